"""The first k documents of every list: all that a measure with a cutoff needs.

Such a measure needs the order of the first k documents only. Of the other documents it needs the
number per grade, for the number of relevant documents and for the ideal order. The compiled loops
below select and count; numba loads with this module, so callers import it where they use it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.evaluation.ranking import Ranking
from twinrank.evaluation.retrieved_lists import RetrievedLists
from twinrank.support import random
from twinrank.support.arrays import Floats
from twinrank.support.compiled import compiled, compiled_sums, in_threads, spans

_MAX_GRADES = 32
"""Labels that are integers below this number are counted."""
_COUNTED = 2048
"""Integers below this number are sorted by counting."""
_PER_THREAD = 1 << 16

random_bits = compiled(random.random_bits)


@dataclass(frozen=True)
class TopK:
    """The first labels of every list in rank order, and the number of documents per grade."""

    labels: Floats
    lists: Lists
    counts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, ranking: Ranking, labels: Floats, k: int) -> "TopK | None":
        """The first k labels of every list; None if the labels are not small integers."""
        grades = int(min(labels.max(initial=0), _MAX_GRADES - 1)) + 1
        counts = np.zeros((len(ranking.lists), grades), np.int32)
        ranges = spans(ranking.lists.sizes, _PER_THREAD)
        in_threads(_count_grades, ranges, labels, ranking.lists.offsets, counts)
        if (counts[:, 0] < 0).any():
            return None
        chosen, lists = ranking.best(k)
        return cls(labels[chosen], lists, counts)

    def cut(self, k: int) -> tuple[Floats, RetrievedLists]:
        """Lists of the first k labels, followed by one row for each grade among the others."""
        ranges = spans(self.lists.sizes, _PER_THREAD)
        top, rest = self.lists.sizes.clip(max=k), self.counts.copy()
        rows = np.empty(len(self.lists), np.int64)
        in_threads(_count_rest, ranges, self.labels, self.lists.offsets, top, rest, rows)
        offsets = np.append(0, np.cumsum(rows))
        labels, weights = np.empty(offsets[-1]), np.empty(offsets[-1])
        shared: tuple[Any, ...] = (self.labels, self.lists.offsets, top, rest, offsets)
        in_threads(_fill_in, ranges, *shared, labels, weights)
        return labels, RetrievedLists(offsets, top, weights)


@compiled
def select(
    start: int,
    stop: int,
    scores: Any,
    offsets: Any,
    at_random: bool,
    seed: int,
    places: Any,
    chosen: Any,
    tied: Any,
) -> None:
    """Select the best documents of the lists start … stop − 1, the best first.

    Equal scores are ordered as in `exact_ranks`, at random or by position. `tied` marks the lists
    in which two compared scores were equal.
    """
    longest = 0
    for q in range(start, stop):
        longest = max(longest, places[q + 1] - places[q])
    best = np.empty(longest + 1, scores.dtype)
    for q in range(start, stop):
        begin, limit = places[q], places[q + 1] - places[q]
        size = 0
        for i in range(offsets[q], offsets[q + 1]):
            score, place = scores[i], size
            while place > 0 and best[place - 1] <= score:
                if best[place - 1] == score:
                    tied[q] = True
                    if not at_random or _later(seed, i, chosen[begin + place - 1]):
                        break
                best[place] = best[place - 1]
                if place < limit:
                    chosen[begin + place] = chosen[begin + place - 1]
                place -= 1
            if place < limit:
                best[place], chosen[begin + place] = score, i
                size = min(size + 1, limit)


@compiled
def _later(seed: int, document: int, other: int) -> bool:
    """True if the random numbers that break ties rank a document below the other."""
    mine = np.uint64(random_bits(seed, random.TIES, document))
    return bool(mine >= np.uint64(random_bits(seed, random.TIES, other)))


@compiled
def _count_grades(start: int, stop: int, labels: Any, offsets: Any, counts: Any) -> None:
    """Count the documents per grade of each list; −1 at grade 0 if a label is not an integer.

    Grades of 0 and below are not counted. The loop has no branch, since none would be predictable.
    """
    highest = counts.shape[1] - 1
    for q in range(start, stop):
        whole = True
        for i in range(offsets[q], offsets[q + 1]):
            label = max(labels[i], 0.0)
            grade = np.int64(min(label, highest))
            whole &= grade == label
            counts[q, grade] += 1
        counts[q, 0] = 0 if whole else -1


@compiled
def _count_rest(
    start: int, stop: int, labels: Any, offsets: Any, top: Any, counts: Any, rows: Any
) -> None:
    """Subtract the first labels of each list from its counts; set the rows that it needs."""
    for q in range(start, stop):
        rows[q] = top[q]
        for i in range(offsets[q], offsets[q] + top[q]):
            counts[q, np.int64(max(labels[i], 0.0))] -= 1
        counts[q, 0] = 0
        for grade in range(1, counts.shape[1]):
            rows[q] += counts[q, grade] > 0


@compiled
def _fill_in(
    start: int,
    stop: int,
    labels: Any,
    offsets: Any,
    top: Any,
    counts: Any,
    places: Any,
    short: Any,
    weights: Any,
) -> None:
    """Write the first labels of each list, then the remaining grades with their counts."""
    for q in range(start, stop):
        row = places[q]
        for i in range(offsets[q], offsets[q] + top[q]):
            short[row], weights[row] = labels[i], 1
            row += 1
        for grade in range(1, counts.shape[1]):
            if counts[q, grade] > 0:
                short[row], weights[row] = grade, counts[q, grade]
                row += 1


def discounted(credit: Any, discounts: Any, offsets: Any, limits: Any) -> Any:
    """Σ credit · discount over the first `limits[q]` documents of each list q."""
    values = np.empty(limits.size)
    _discount(np.ascontiguousarray(credit), discounts, offsets, limits, values)
    return values


@compiled_sums
def _discount(credit: Any, discounts: Any, offsets: Any, limits: Any, values: Any) -> None:
    for q in range(limits.size):
        total = 0.0
        for i in range(limits[q]):
            total += credit[offsets[q] + i] * discounts[i]
        values[q] = total


def sum_weighted(x: Any, weights: Any, offsets: Any) -> Any:
    """The sum over each list, each row multiplied by its weight."""
    values = np.empty(offsets.size - 1)
    _sum_weighted(x, weights, offsets, values)
    return values


@compiled_sums
def _sum_weighted(x: Any, weights: Any, offsets: Any, values: Any) -> None:
    for q in range(offsets.size - 1):
        total = 0.0
        for i in range(offsets[q], offsets[q + 1]):
            total += x[i] * weights[i]
        values[q] = total


def sort_weighted(x: Any, weights: Any, offsets: Any) -> Any:
    """The values of each list, largest first, each repeated by its weight, cut to the list."""
    result = np.empty_like(x)
    order = np.empty(int(np.diff(offsets).max(initial=0)), np.int64)
    _sort_weighted(x, weights, offsets, np.empty(_COUNTED), order, result)
    return result


@compiled
def _sort_weighted(
    x: Any, weights: Any, offsets: Any, counts: Any, order: Any, result: Any
) -> None:
    for q in range(offsets.size - 1):
        begin, end = offsets[q], offsets[q + 1]
        row, highest = begin, _add_up(x, weights, begin, end, counts)
        for grade in range(highest, -1, -1):
            row = _repeat(float(grade), counts[grade], row, end, result)
        if highest >= 0:
            continue
        for i in range(begin, end):  # not integers: an insertion sort, since rows are few
            place = i - begin
            while place > 0 and x[order[place - 1]] < x[i]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = i
        for j in range(end - begin):
            row = _repeat(x[order[j]], weights[order[j]], row, end, result)


@compiled
def _add_up(x: Any, weights: Any, begin: int, end: int, counts: Any) -> int:
    """Add up the weights per grade; return the highest grade, or −1 for other numbers."""
    highest = -1
    for i in range(begin, end):
        if not 0 <= x[i] < counts.size:
            return -1
        grade = np.int64(x[i])
        if grade != x[i]:
            return -1
        while highest < grade:
            highest += 1
            counts[highest] = 0
        counts[grade] += weights[i]
    return highest


@compiled
def _repeat(value: float, times: float, row: int, end: int, result: Any) -> int:
    """Write a value several times, at most up to the end; return the next row."""
    while times > 0 and row < end:
        result[row] = value
        row += 1
        times -= 1
    return row
