"""Losses: minus a measure, and baselines. Internal: import public names from `twinrank`."""

from typing import Any

from twinrank.core.losses.adr_mse import ADRMSE
from twinrank.core.losses.approx_ndcg import ApproxNDCG
from twinrank.core.losses.cross_entropy import ListNet, SoftmaxCrossEntropy
from twinrank.core.losses.listmle import ListMLE
from twinrank.core.losses.mse import MSE
from twinrank.core.losses.ndcg_loss1 import NDCGLoss1
from twinrank.core.losses.neural_ndcg import NeuralNDCG
from twinrank.core.losses.pairwise import LambdaLoss, LambdaRank, RankNet
from twinrank.core.losses.pl_rank import PLRank
from twinrank.core.losses.plistmle import PListMLE
from twinrank.core.losses.ranking_loss import SmoothLoss, options_of
from twinrank.core.losses.sigmoid_cross_entropy import SigmoidCrossEntropy
from twinrank.core.losses.wassrank import WassRank
from twinrank.core.own_losses import is_own_loss, is_path, own_loss, own_names
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import check_options, parse, summands

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
    PListMLE,
    ADRMSE,
    NDCGLoss1,
    NeuralNDCG,
    PLRank,
    SigmoidCrossEntropy,
)

__all__ = ["LOSSES", "NAMES", "is_loss", "is_path", "loss", "loss_names", "probability_term"]

_BY_NAME = {kind.name: kind for kind in LOSSES}
NAMES = tuple(_BY_NAME)


def loss_names() -> tuple[str, ...]:
    """The names of all losses: built in and registered, here or by modules in TWINRANK_IMPORT."""
    return (*_BY_NAME, *own_names())


def is_loss(name: str) -> bool:
    """True if a name, with or without options, is that of a loss, or an import path."""
    return is_path(name) or parse(name).name in loss_names()


def probability_term(objective: Any) -> SigmoidCrossEntropy | None:
    """The term of an objective that makes scores log-odds, if there is one."""
    if isinstance(objective, str) and not is_own_loss(objective):
        terms = [part for _, part in summands(objective)]
        found: list[Any] = [loss(t) for t in terms if parse(t).name == SigmoidCrossEntropy.name]
    else:
        found = [own for _, own in getattr(objective, "terms", [(1.0, objective)])]
    return next((own for own in found if isinstance(own, SigmoidCrossEntropy)), None)


def loss(name: str, mode: str = "default") -> Any:
    """The loss of this name: `ListNet`, `ApproxNDCG(alpha=5)`, your own, or an import path.

    `mode` is the default of losses with an option of this name, such as WassRank.

    >>> loss("ListNet")
    ListNet()
    """
    term = None if is_path(name) else parse(name)
    if term is None or term.name in own_names():
        return own_loss(name)
    if term.name not in _BY_NAME or term.cutoff is not None:
        raise InputError(unknown("loss", name, loss_names()))
    kind: Any = _BY_NAME[term.name]
    known = options_of(kind)
    check_options(kind.name, term, known)
    defaults = {"mode": mode} if "mode" in known else {}
    return kind(**{**defaults, **term.options})
