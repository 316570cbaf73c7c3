"""The strategies that pass a gradient from a measure to the scores."""

from collections.abc import Sequence
from typing import Literal, get_args

from twinrank.support.errors import InputError, unknown

RankStrategy = Literal["type1", "type2", "type3"]
"""How ranks pass their gradient to the scores (Yu 2020, section 5).

type1: the slope of the backward sigmoid. type2: the same with the sign of the label difference.
type3: a gradient that grows with the error.
"""

Strategy = Literal["type1", "type2", "type3", "swap"]
"""How a measure passes its gradient to the scores: through ranks, or through swaps.

swap: each pair of documents is weighted by the change of the measure if the two swapped places
(LambdaRank, Burges 2010, for any measure). It needs the measure, so `twin_ranks` does not offer it.
"""

RANK_STRATEGIES: tuple[RankStrategy, ...] = get_args(RankStrategy)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


def as_rank_strategy(name: str) -> RankStrategy:
    """Check the name of a strategy that works on ranks alone."""
    if name not in RANK_STRATEGIES:
        raise _unknown(name, RANK_STRATEGIES)
    return name


def as_strategy(name: str) -> Strategy:
    """Check the name of a strategy."""
    if name not in STRATEGIES:
        raise _unknown(name, STRATEGIES)
    return name


def _unknown(name: str, known: Sequence[str]) -> InputError:
    return InputError(  # no `Argument`: it may also be part of the name of a method
        unknown("strategy", str(name), known), argument="strategy", value=name, choices=known
    )
