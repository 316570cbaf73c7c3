"""Average precision, with both common divisors, and as in the tables of the paper."""

from dataclasses import dataclass
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.core.measures.measure_base import Swaps, shared
from twinrank.support.arrays import Array, at_least_zero, namespace
from twinrank.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class _AveragePrecision(BinaryMeasure):
    """Σ_{j≤k} b_j · P@j over a divisor that subclasses define."""

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The contribution to the precision at its own and at later relevant documents."""
        relevant, position = self.relevant(labels) * 1.0, lists.positions(labels)
        counted = self.cut(relevant / position, lists)
        credit = relevant * position * lists.cumsum(counted, reverse=True)
        return shared(credit, self.divide_by(labels, lists), lists)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """The change when a relevant document moves from rank q up to p, or down from p to q.

        It changes the precision at its own ranks, (C(p−1) + 1) / p and C(q) / q, with C(r) relevant
        documents up to rank r. At each relevant document j in between it adds 1/j: together a
        difference of H(r) = Σ_{j≤min(r,k)} b_j / j.
        """
        relevant, position = self.relevant(labels) * 1.0, lists.positions(labels)
        inside = self.cut(namespace(relevant).ones_like(relevant), lists)
        own = relevant / position * inside
        count, sums = lists.cumsum(relevant), lists.cumsum(own)
        worth = shared(relevant, self.divide_by(labels, lists), lists)
        ahead = (count - relevant + 1.0) / position - sums
        return Swaps(worth, inside, ahead, inside * count / position - (sums - own))

    def divide_by(self, labels: Array, lists: Lists) -> Array:
        """The divisor of each list."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AP(_AveragePrecision):
    """Average precision: AP@k = Σ_{j≤k} b_j · P@j / min(R, k), with R relevant documents.

    The differentiable form (Yu 2020, Eq. VirAP) gives document i the credit
    b_i · i · Σ_{i≤j≤k} (b_j / j) / divisor.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    divisor : {"min", "R"}, default "min"
        min(R, k), or R as in trec_eval's map_cut.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "AP"
    aliases: ClassVar[tuple[str, ...]] = ("MAP",)
    divisor: str = "min"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.divisor not in ("min", "R"):
            raise InputError(argument="divisor", value=self.divisor, choices=["min", "R"])

    def divide_by(self, labels: Array, lists: Lists) -> Array:
        """min(R, k), or R."""
        total = lists.sum(self.relevant(labels))
        return total.clip(max=self.cutoff) if self.cutoff and self.divisor == "min" else total


@dataclass(frozen=True, kw_only=True)
class PaperAP(_AveragePrecision):
    """MAP@k in the tables of the paper: AP@k over Σ_{j≤k} of the *graded* labels, ideally ordered.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "paperAP"

    def divide_by(self, labels: Array, lists: Lists) -> Array:
        """The sum of the k highest labels."""
        return lists.sum(lists.first(at_least_zero(lists.sort(labels)), self.cutoff))
