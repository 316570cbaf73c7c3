"""Measures of the first relevant document: reciprocal rank and success."""

from dataclasses import dataclass
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.core.measures.measure_base import Swaps
from twinrank.support.arrays import Array, as_float, namespace


@dataclass(frozen=True, kw_only=True)
class RR(BinaryMeasure):
    """Reciprocal rank: RR@k = 1 / (rank of the first relevant document), 0 if that is beyond k.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "RR"
    aliases: ClassVar[tuple[str, ...]] = ("MRR",)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """1 for the first relevant document."""
        return first_relevant(self.relevant(labels), lists)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """Those of the first relevant document, which is worth 1/r."""
        value = self.cut(self.discounts(labels, lists), lists)
        return first_swaps(self.relevant(labels), value, lists)


@dataclass(frozen=True, kw_only=True)
class Success(BinaryMeasure):
    """Success@k: 1 if a relevant document is among the first k, else 0.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "Success"
    counts: ClassVar[bool] = True

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The position i, for the first relevant document."""
        return first_relevant(self.relevant(labels), lists) * lists.positions(labels)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """Those of the first relevant document, which is worth 1 up to k."""
        inside = self.cut(namespace(labels).ones_like(labels), lists)
        return first_swaps(self.relevant(labels), inside, lists)


def first_relevant(relevant: Array, lists: Lists) -> Array:
    """1 for the first relevant document of every list, else 0."""
    relevant = as_float(relevant)
    return relevant * (lists.cumsum(relevant) == 1.0)


def first_swaps(relevant: Array, value: Array, lists: Lists) -> Swaps:
    """The swaps of a measure that is the `value` at the position of the first relevant document f.

    Only swaps that involve f or a document before f change the measure. If a relevant document
    moves before f, its new position counts instead of f's. If f moves down, the second relevant
    document counts, or f at its new position if that comes first.
    """
    xp, relevant = namespace(value), as_float(relevant)
    count = lists.cumsum(relevant)
    first, second = (
        lists.spread(lists.sum(relevant * (count == number) * value)) for number in (1.0, 2.0)
    )
    behind = xp.where(relevant > 0, first, xp.maximum(value, second))
    reach = (count - relevant == 0) * 1.0  # up to the first relevant document, itself included
    return Swaps(relevant, reach, value, behind)
