"""DCG and nDCG (Järvelin & Kekäläinen 2002)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from twinrank.lists import Lists
from twinrank.measures.base import shared
from twinrank.measures.gains import GainMeasure
from twinrank.measures.swaps import Swaps, additive
from twinrank.support.arrays import Array, namespace


@dataclass(frozen=True, kw_only=True)
class DCG(GainMeasure):
    """Discounted cumulative gain: DCG@k = Σ_{j≤k} gain_j / log2(1 + j)."""

    name: ClassVar[str] = "DCG"

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The document's gain."""
        return self.gains(labels)

    def discount(self, rank: Array) -> Array:
        """1 / log2(1 + r)."""
        return 1.0 / namespace(rank).log2(1.0 + rank)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """(credit_p − credit_q) · (D(p) − D(q)), with D = 0 beyond the cutoff."""
        return additive(self.credit(labels, lists), self.cut(self.discounts(labels, lists), lists))

    def over_ties(self, credit: Array, lists: Lists, mean: Callable[[Array], Array]) -> Array:
        """The mean gain of the tied documents."""
        return mean(credit)

    def slope(self, rank: Array) -> Array:
        """−1 / (ln 2 · (1 + r) · log2²(1 + r)); the paper omits the 1/ln 2."""
        return -1.0 / (math.log(2) * (1.0 + rank) * namespace(rank).log2(1.0 + rank) ** 2)


@dataclass(frozen=True, kw_only=True)
class NDCG(DCG):
    """Normalised DCG: nDCG@k = DCG@k / (DCG@k of the ideal order)."""

    name: ClassVar[str] = "nDCG"
    aliases: ClassVar[tuple[str, ...]] = ("NDCG",)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The document's share of the ideal DCG@k."""
        ideal = self.ideal_gains(labels, lists) * self.discounts(labels, lists)
        return shared(self.gains(labels), lists.sum(lists.first(ideal, self.cutoff)), lists)
