"""Losses: minus a measure, and the baselines it is compared with, one small file each."""

import inspect
from typing import Any

from twinrank.losses.base import SmoothLoss
from twinrank.losses.listnet import ListNet
from twinrank.support.errors import InputError
from twinrank.support.notation import check_options, parse
from twinrank.support.suggest import unknown

LOSSES: tuple[type[SmoothLoss], ...] = (ListNet,)

__all__ = ["LOSSES", "NAMES", "loss"]

_BY_NAME = {kind.name: kind for kind in LOSSES}
NAMES = tuple(_BY_NAME)


def loss(name: str) -> SmoothLoss:
    """The baseline loss of this name: `ListNet`, `ApproxNDCG(alpha=5)` and so on.

    >>> loss("ListNet")
    ListNet()
    """
    term = parse(name)
    if term.name not in _BY_NAME or term.cutoff is not None:
        raise InputError(unknown("loss", name, _BY_NAME))
    kind: Any = _BY_NAME[term.name]
    known = [p for p in inspect.signature(kind).parameters if p not in ("reduction", "generator")]
    check_options(kind.name, term, known)
    return kind(**term.options)  # type: ignore[no-any-return]
