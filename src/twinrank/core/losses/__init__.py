"""Losses: minus a measure, and baselines. Internal: import public names from `twinrank`."""

import inspect
from typing import Any

from twinrank.core.losses.approx_ndcg import ApproxNDCG
from twinrank.core.losses.cross_entropy import ListNet, SoftmaxCrossEntropy
from twinrank.core.losses.listmle import ListMLE
from twinrank.core.losses.mse import MSE
from twinrank.core.losses.pairwise import LambdaLoss, LambdaRank, RankNet
from twinrank.core.losses.ranking_loss import SmoothLoss
from twinrank.core.losses.wassrank import WassRank
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import check_options, parse

LOSSES: tuple[type[SmoothLoss], ...] = (
    ListNet,
    ListMLE,
    SoftmaxCrossEntropy,
    MSE,
    WassRank,
    ApproxNDCG,
    RankNet,
    LambdaRank,
    LambdaLoss,
)

__all__ = ["LOSSES", "NAMES", "is_loss", "loss"]

_BY_NAME = {kind.name: kind for kind in LOSSES}
NAMES = tuple(_BY_NAME)


def is_loss(name: str) -> bool:
    """True if a name, with or without options, is that of a baseline loss."""
    return parse(name).name in _BY_NAME


def loss(name: str, mode: str = "default") -> SmoothLoss:
    """The baseline loss of this name: `ListNet`, `ApproxNDCG(alpha=5)` and so on.

    `mode` is the default of losses with an option of this name, such as WassRank.

    >>> loss("ListNet")
    ListNet()
    """
    term = parse(name)
    if term.name not in _BY_NAME or term.cutoff is not None:
        raise InputError(unknown("loss", name, _BY_NAME))
    kind: Any = _BY_NAME[term.name]
    known = [p for p in inspect.signature(kind).parameters if p not in ("reduction", "generator")]
    check_options(kind.name, term, known)
    defaults = {"mode": mode} if "mode" in known else {}
    return kind(**{**defaults, **term.options})  # type: ignore[no-any-return]
