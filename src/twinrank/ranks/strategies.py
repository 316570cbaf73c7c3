"""The three ways in which a rank passes its gradient on to scores (Yu 2020, section 5)."""

from typing import Literal, get_args

from twinrank.support.errors import InputError
from twinrank.support.suggest import unknown

Strategy = Literal["type1", "type2", "type3"]
"""type1: the backward sigmoid's slope; type2: with the labels' sign; type3: growing with error."""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


def as_strategy(name: str) -> Strategy:
    """Check a strategy's name."""
    if name not in STRATEGIES:
        raise InputError(unknown("strategy", str(name), STRATEGIES))
    return name
