"""Rank-biased precision (Moffat & Zobel 2008)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import CountedMeasure
from twinrank.core.measures.measure_base import Swaps, additive
from twinrank.support.arrays import Array
from twinrank.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class RBP(CountedMeasure):
    """Rank-biased precision: RBP = (1 − p) · Σ_j b_j · p^(j−1).

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    gain : {"binary", "linear"}, default "binary"
        b is 1 for a relevant document, or the label itself, such as the credit of clicks.
    p : float, default 0.8
        Probability that the reader goes on to the next document, between 0 and 1.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "RBP"
    sums_gains: ClassVar[bool] = True
    p: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.p, int | float) or not 0 < self.p < 1:
            raise InputError(f"p of RBP must lie between 0 and 1, not {self.p!r}.")

    def credit(self, labels: Array, lists: Lists) -> Array:
        """(1 − p) · b_i."""
        return (1.0 - self.p) * self.gains(labels)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """(credit_p − credit_q) · (p^(p−1) − p^(q−1))."""
        return additive(self.credit(labels, lists), self.cut(self.discounts(labels, lists), lists))

    def over_ties(self, credit: Array, lists: Lists, mean: Callable[[Array], Array]) -> Array:
        """The mean credit of the tied documents."""
        return mean(credit)

    def discount(self, rank: Array) -> Array:
        """p^(r−1)."""
        return self.p ** (rank - 1.0)

    def slope(self, rank: Array) -> Array:
        """p^(r−1) · ln p."""
        return math.log(self.p) * self.discount(rank)
