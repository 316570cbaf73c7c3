"""Measures that count documents near the top: precision, recall, F, R-precision, judged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import BinaryMeasure, CountedMeasure, ReciprocalMeasure
from twinrank.core.measures.measure_base import Swaps, additive, shared
from twinrank.support.arrays import Array, namespace
from twinrank.support.errors import check_number

# A count has no discount. As in the paper (Yu 2020, Eq. VirPre) its documents get the credit
# position/total. The discount 1/r cancels the position in the value, but not in the gradient.


@dataclass(frozen=True, kw_only=True)
class _Count(ReciprocalMeasure):
    """A count of documents among the first k."""

    counts: ClassVar[bool] = True

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """One document more or less if one of the two is among the first k."""
        inside = self.cut(namespace(labels).ones_like(labels), lists)
        return additive(self.credit(labels, lists) / lists.positions(labels), inside)

    def over_ties(self, credit: Array, lists: Lists, mean: Callable[[Array], Array]) -> Array:
        """The mean count of the ties, without the position, which the discount cancels."""
        position = lists.positions(credit)
        return mean(credit / position) * position


@dataclass(frozen=True, kw_only=True)
class Precision(_Count, CountedMeasure):
    """Precision: P@k = Σ_{j≤k} b_j / k.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    gain : {"binary", "linear"}, default "binary"
        b is 1 for a relevant document, or the label itself, such as the credit of clicks.
    cutoff : int, optional
        k. Default: the length of each list.
    """

    name: ClassVar[str] = "P"
    aliases: ClassVar[tuple[str, ...]] = ("Precision", "Pre")
    sums_gains: ClassVar[bool] = True

    def credit(self, labels: Array, lists: Lists) -> Array:
        """b_i · i / k."""
        position = lists.positions(labels)
        depth = _sizes(labels, lists) if self.cutoff is None else float(self.cutoff)
        return self.gains(labels) * position / depth


@dataclass(frozen=True, kw_only=True)
class Recall(_Count, CountedMeasure):
    """Recall@k = Σ_{j≤k} b_j / R, with R = Σ b_j of the whole list: the relevant documents.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    gain : {"binary", "linear"}, default "binary"
        b is 1 for a relevant document, or the label itself.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "Recall"
    aliases: ClassVar[tuple[str, ...]] = ("R",)
    sums_gains: ClassVar[bool] = True

    def credit(self, labels: Array, lists: Lists) -> Array:
        """b_i · i / R."""
        gains = self.gains(labels)
        return shared(gains * lists.positions(labels), lists.sum(gains), lists)


@dataclass(frozen=True, kw_only=True)
class SetF(_Count, CountedMeasure):
    """The F measure of a set: (β + 1) · P · R / (β · P + R), with precision P and recall R.

    As trec_eval's set_F, β is not squared.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    gain : {"binary", "linear"}, default "binary"
        A document counts 1 if it is relevant, or as much as its label.
    beta : float, default 1
        β, the weight of recall relative to precision.
    cutoff : int, optional
        The set is that of the first `cutoff` documents. Default: the whole list.
    """

    name: ClassVar[str] = "SetF"
    sums_gains: ClassVar[bool] = True
    beta: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(f"beta of {self.name}", self.beta)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """(β + 1) · b_i · i / (β · R + n) with n documents in the set."""
        gains, size = self.gains(labels), _sizes(labels, lists)
        size = size if self.cutoff is None else size.clip(max=self.cutoff)
        total = self.beta * lists.spread(lists.sum(gains)) + size
        return (self.beta + 1.0) * gains * lists.positions(labels) / total.clip(1e-12)


@dataclass(frozen=True, kw_only=True)
class RPrecision(BinaryMeasure):
    """R-precision: Rprec = P@R, precision at the number R of relevant documents.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "Rprec"

    def credit(self, labels: Array, lists: Lists) -> Array:
        """b_i · i / R for positions up to R."""
        relevant, position = self.relevant(labels) * 1.0, lists.positions(labels)
        total = lists.sum(relevant)
        return shared(relevant * position * (position <= lists.spread(total)), total, lists)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """One document more or less if one of the two is among the first R."""
        relevant = self.relevant(labels) * 1.0
        total = lists.sum(relevant)
        inside = self.cut((lists.positions(labels) <= lists.spread(total)) * 1.0, lists)
        return additive(shared(relevant, total, lists), inside)


@dataclass(frozen=True, kw_only=True)
class Judged(_Count):
    """Judged@k: the share of judged documents (label ≥ 0) among the first k.

    Parameters
    ----------
    cutoff : int, optional
        k. Default: the length of each list.
    """

    name: ClassVar[str] = "Judged"

    def credit(self, labels: Array, lists: Lists) -> Array:
        """i / (the number of documents up to k), for a judged document."""
        size = _sizes(labels, lists)
        depth = size if self.cutoff is None else size.clip(max=self.cutoff)
        return (labels >= 0) * lists.positions(labels) / depth

    def relevant(self, labels: Array) -> Array:
        """Every document: only a list without documents is empty."""
        return labels == labels


def _sizes(labels: Array, lists: Lists) -> Array:
    """The number of ranked documents in each document's list."""
    return lists.spread(lists.sum(lists.ranked(namespace(labels).ones_like(labels), None)))
