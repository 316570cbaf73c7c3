"""Expected reciprocal rank, plain and normalised (Chapelle et al. 2009)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import ReciprocalMeasure
from twinrank.core.measures.measure_base import Swaps, shared
from twinrank.support.arrays import Array, all_true, at_least_zero, namespace
from twinrank.support.errors import InputError, check_number


@dataclass(frozen=True, kw_only=True)
class ERR(ReciprocalMeasure):
    """ERR@k = Σ_{j≤k} (1/j) · Pr_j · Π_{i<j} (1 − Pr_i), with Pr = (2ʸ − 1) / 2^max.

    Parameters
    ----------
    max_grade : float, optional
        The maximum grade. Default: the highest label of each list, as in the paper.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "ERR"
    max_grade: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_grade is not None:
            check_number(f"max_grade of {self.name}", self.max_grade)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The probability that the reader reaches the document and stops there."""
        stops, _, reaches = self._reader(labels, lists)
        return stops * reaches

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """D(p−1) · (Pr_q − Pr_p) · (1/p − (T(p) − T(q−1)) / D(p) − D(q−1) / (D(p) · q)).

        D(r) is the probability to read on after rank r, with D(p−1) = D(p) / (1 − Pr_p), and
        T(r) = Σ_{r<j≤k} of the terms of ERR.
        """
        xp, position = namespace(labels), lists.positions(labels)
        stops, passes, reaches = self._reader(labels, lists)
        inside = self.cut(xp.ones_like(stops), lists)
        rest = lists.cumsum(inside * stops * reaches / position, reverse=True)
        later = xp.where(
            xp.roll(position, -1) > 1, xp.roll(rest, -1), 0.0
        )  # T(p), without cancellation
        ahead, behind = (
            reaches * passes / position - later,
            inside * reaches / position - rest,
        )
        return Swaps(stops, inside / passes, ahead, behind)

    def _reader(self, labels: Array, lists: Lists) -> tuple[Array, Array, Array]:
        """The probabilities that a reader stops at a document, passes it, and reaches it."""
        xp, labels = namespace(labels), at_least_zero(labels)
        highest = lists.max(labels)
        if self.max_grade is None:
            top = lists.spread(highest)
        elif not all_true(highest <= self.max_grade):
            raise InputError(
                f"{self} takes labels up to {self.max_grade:g}, but there is a label "
                f"{float(highest.max()):g}."
            )
        else:
            top = float(self.max_grade)
        stops = xp.exp2(labels - top) - 2.0**-top  # (2ʸ − 1) / 2^max, without 2ʸ
        passes = 1.0 - xp.exp2(labels - top) + 2.0**-top  # positive for any label
        goes_on = xp.roll(lists.cumprod(passes), 1)
        return stops, passes, xp.where(lists.positions(labels) > 1, goes_on, 1.0)


@dataclass(frozen=True, kw_only=True)
class NERR(ERR):
    """Normalised ERR: nERR@k = ERR@k / (ERR@k of the ideal order).

    Parameters
    ----------
    max_grade : float, optional
        The maximum grade. Default: the highest label of each list, as in the paper.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "nERR"

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The credit of ERR over the ideal ERR@k."""
        return shared(super().credit(labels, lists), self._ideal(labels, lists), lists)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """Those of ERR over the ideal ERR@k."""
        swaps = super().swaps(labels, lists)
        return replace(swaps, worth=shared(swaps.worth, self._ideal(labels, lists), lists))

    def _ideal(self, labels: Array, lists: Lists) -> Array:
        """ERR@k of the ideal order of every list."""
        terms = super().credit(lists.sort(labels), lists) * self.discounts(labels, lists)
        return lists.sum(lists.first(terms, self.cutoff))
