"""Reciprocal rank."""

from dataclasses import dataclass
from typing import ClassVar

from twinrank.lists import Lists
from twinrank.measures.base import BinaryMeasure
from twinrank.measures.precision import first_relevant, first_swaps
from twinrank.measures.swaps import Swaps
from twinrank.support.arrays import Array


@dataclass(frozen=True, kw_only=True)
class RR(BinaryMeasure):
    """RR@k = 1 / (rank of the first relevant document), 0 if that is beyond k."""

    name: ClassVar[str] = "RR"
    aliases: ClassVar[tuple[str, ...]] = ("MRR",)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """1 for the first relevant document."""
        return first_relevant(self.relevant(labels), lists)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """Those of the first relevant document, which is worth 1/r."""
        value = self.cut(self.discounts(labels, lists), lists)
        return first_swaps(self.relevant(labels), value, lists)
