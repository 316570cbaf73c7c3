"""The ways in which a gradient gets from ranks, or from swaps of documents, to scores."""

from typing import Literal, get_args

from twinrank.support.errors import InputError
from twinrank.support.suggest import unknown

Strategy = Literal["type1", "type2", "type3"]
"""How a rank passes its gradient on (Yu 2020, section 5).

type1: the backward sigmoid's slope; type2: with the labels' sign; type3: growing with error.
"""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Way = Literal["type1", "type2", "type3", "swap"]
"""How a measure passes its gradient on: through ranks, or by what swapping two documents changes.

swap: every pair of documents is pushed apart by as much as the measure would change if they changed
places (LambdaRank, Burges 2010, for any measure). It needs the measure, so ranks alone don't have
it.
"""

WAYS: tuple[Way, ...] = get_args(Way)


def as_strategy(name: str) -> Strategy:
    """Check a strategy's name."""
    if name not in STRATEGIES:
        raise InputError(unknown("strategy", str(name), STRATEGIES))
    return name


def as_way(name: str) -> Way:
    """Check the name of a strategy of losses and boosters: those of ranks, or swap."""
    if name not in WAYS:
        raise InputError(unknown("strategy", str(name), WAYS))
    return name
