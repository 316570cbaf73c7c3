"""The compiled loops: the best documents, counted grades, the ideal order, discounted credits."""

from typing import Any

import numpy as np

from twinrank.support import random
from twinrank.support.compiled import compiled, compiled_sums

_FEW = 2048
"""Whole numbers below this are sorted by counting."""

random_bits = compiled(random.random_bits)


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
    """The best documents of the lists start … stop − 1, best first; `tied` where equal ones met.

    Equal scores are ordered as `exact_ranks` does it, at random or by their place.
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
    """Whether the random numbers that break ties put a document behind another one."""
    mine = np.uint64(random_bits(seed, random.TIES, document))
    return bool(mine >= np.uint64(random_bits(seed, random.TIES, other)))


@compiled
def count_grades(start: int, stop: int, labels: Any, offsets: Any, counts: Any) -> None:
    """How often each grade occurs in a list; −1 at grade 0 if a label is no grade.

    Grades of 0 and below count for nothing. Branches would be hard to predict: there are none.
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
def count_rest(
    start: int, stop: int, labels: Any, offsets: Any, top: Any, counts: Any, rows: Any
) -> None:
    """Take the first labels of each list out of its counts; how many rows it then needs."""
    for q in range(start, stop):
        rows[q] = top[q]
        for i in range(offsets[q], offsets[q] + top[q]):
            counts[q, np.int64(max(labels[i], 0.0))] -= 1
        counts[q, 0] = 0
        for grade in range(1, counts.shape[1]):
            rows[q] += counts[q, grade] > 0


@compiled
def fill_in(
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
    """The first labels of each list, then the grades that are left with their counts."""
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
    """Σ credit · discount over the first documents of each list, as many as its limit says."""
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
    """The sum over each list, a row as often as it counts."""
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
    """The values of each list, largest first, each as often as it counts, as far as rows go."""
    result = np.empty_like(x)
    order = np.empty(int(np.diff(offsets).max(initial=0)), np.int64)
    _sort_weighted(x, weights, offsets, np.empty(_FEW), order, result)
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
        for i in range(begin, end):  # other numbers: an insertion sort, since rows are few
            place = i - begin
            while place > 0 and x[order[place - 1]] < x[i]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = i
        for j in range(end - begin):
            row = _repeat(x[order[j]], weights[order[j]], row, end, result)


@compiled
def _add_up(x: Any, weights: Any, begin: int, end: int, counts: Any) -> int:
    """Add up the weights of each grade; the highest one, or −1 if there are other numbers."""
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
    """Write a value several times, but not beyond the end; the row that comes next."""
    while times > 0 and row < end:
        result[row] = value
        row += 1
        times -= 1
    return row
