"""The pair sum on the CPU, pair by pair: fused, ragged, parallel, no m × m array.

With E = exp(α(y − centre)) one division per pair gives both σ(α(y_a − y_j)) = E_a / (E_a + E_j) and
its complement. Sorting each list by label first turns u_aj into two ranges of j: the documents with
a lower label (u = 1) come before, those with a higher label (u = −1) after. What a pair adds to one
of its documents it takes from the other, so each pair is visited once and the lists are shared out
among the threads. Very long lists are shared out by rows of the matrix of pairs, which visits pairs
twice but keeps rows independent. Either way the result has the same bits on any number of threads.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.strategies import Strategy
from twinrank.support.compiled import compiled, compiled_sums, in_threads, spans, threads
from twinrank.support.segments import count_grades, grades_of

_WIDEST = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 600.0}
"""The spread α(max − min) of a list up to which E, 1/E and E·E keep clear of the type's limits."""

SCALE: dict[Strategy, float] = {"type1": 1.0, "type2": -1.0, "type3": -2.0}
"""What stands, times α, before the sum over pairs."""

_PAIRS_PER_THREAD = 1_000_000
"""Below this many pairs a second thread costs more than it saves."""

_BY_ROWS = 4096
"""From this length on a list's rows are shared out among threads."""


@dataclass(frozen=True)
class DirectKernel:
    """Every pair of a list, in compiled loops: the fastest way up to about a thousand documents."""

    def __call__(
        self,
        scores: Any,
        labels: Any,
        rank_gradient: Any,
        lists: Lists,
        strategy: Strategy,
        alpha: float,
    ) -> Any:
        """∂L/∂score of every document, in the precision of `scores`."""
        size = scores.size
        order, levels = np.empty(size, np.int64), np.empty((2, size), np.int64)
        x, g, spread = np.empty(size), np.empty_like(scores), np.empty(len(lists))
        if strategy == "type1":  # which knows no labels: every document is a grade of its own
            grades, top = np.arange(size) - lists.starts(scores), lists.longest
        else:
            grades, top = grades_of(labels, lists.offsets)
        in_threads(
            _prepare, spans(lists.sizes, 16384), lists.offsets, scores, grades, top, rank_gradient,
            alpha, order, levels, x, g, spread,
        )  # fmt: skip
        wide = spread > _WIDEST[scores.dtype]
        sums = np.empty_like(scores)
        within = np.where(lists.spread(wide), 0.0, x) if wide.any() else x
        arrays = (lists.offsets, levels, np.exp(within).astype(scores.dtype), g, sums)
        pairs = spans(lists.sizes**2, _PAIRS_PER_THREAD)
        if strategy == "type3":
            in_threads(_each_step, pairs, *arrays)
        else:
            in_threads(_each_bell, pairs, -1.0 if strategy == "type1" else 1.0, *arrays)
        if lists.longest >= _BY_ROWS:
            rows = {"type1": _type1_rows, "type2": _type2_rows, "type3": _type3_rows}[strategy]
            in_threads(rows, _row_spans(lists), *arrays)
        if wide.any():
            kind = int(strategy[-1])
            in_threads(_wide_rows, _row_spans(lists), kind, wide, lists.offsets, levels, x, g, sums)
        result = np.empty_like(scores)
        result[order] = SCALE[strategy] * alpha * sums
        return result


def _row_spans(lists: Lists) -> list[tuple[int, int]]:
    """Cut the rows of all lists into ranges with like numbers of pairs, through long lists too."""
    pairs = np.concatenate([[0], np.cumsum(lists.sizes.astype(np.float64) ** 2)])
    parts = int(min(threads(), pairs[-1] // _PAIRS_PER_THREAD))
    if parts <= 1:
        return [(0, lists.documents)]
    cuts = np.interp(pairs[-1] * np.arange(1, parts) / parts, pairs, lists.offsets).astype(int)
    bounds = np.unique([0, *cuts, lists.documents]).tolist()
    return list(pairwise(bounds))


@compiled
def _prepare(
    start: int,
    stop: int,
    offsets: Any,
    scores: Any,
    grades: Any,
    top: int,
    rank_gradient: Any,
    alpha: float,
    order: Any,
    levels: Any,
    x: Any,
    g: Any,
    spread: Any,
) -> None:
    """Sort each list by grade; x = α(y − centre); levels[:, a] bounds those with a's grade."""
    counts = np.empty(top, np.int64)
    for q in range(start, stop):
        first, last = offsets[q], offsets[q + 1]
        if first == last:
            spread[q] = 0.0
            continue
        lowest, highest = scores[first], scores[first]
        for i in range(first, last):
            lowest, highest = min(lowest, scores[i]), max(highest, scores[i])
        spread[q] = alpha * (np.float64(highest) - np.float64(lowest))
        centre = np.float64(lowest) / 2 + np.float64(highest) / 2
        place = first
        for grade in range(count_grades(grades, first, last, counts)):
            end = place + counts[grade]
            counts[grade] = place
            for i in range(place, end):
                levels[0, i], levels[1, i] = place, end
            place = end
        for i in range(first, last):
            place = counts[grades[i]]
            counts[grades[i]] = place + 1
            order[place] = i
            x[place] = min(max(alpha * (scores[i] - centre), -1e300), 1e300)
            g[place] = rank_gradient[i]


@compiled_sums
def _each_bell(
    start: int, stop: int, sign: float, offsets: Any, levels: Any, E: Any, g: Any, sums: Any
) -> None:
    """Types 1 and 2: (g_j ± g_a) · σ(x_aj) · σ(−x_aj) of every pair, to a and from j."""
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= _BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], E.dtype.type(sign) * g[a]
            total = E_a - E_a
            # Unsigned indices need no check for negative ones, which keeps loops off vector units.
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                share = E_a / (E_a + E[j])
                force = (g[j] + g_a) * (share - share * share)
                sums[j] -= force
                total += force
            sums[a] = total  # for the first time: what a gets as a j comes from documents after it


@compiled_sums
def _each_step(start: int, stop: int, offsets: Any, levels: Any, E: Any, g: Any, sums: Any) -> None:
    """Type 3: (g_j + g_a) · σ(−x_aj) of every pair with label_a > label_j, to a and from j."""
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= _BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], g[a]
            total = E_a - E_a
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                force = (g[j] + g_a) * E[j] / (E_a + E[j])
                sums[j] -= force
                total += force
            sums[a] = total


@compiled
def _list_of(row: int, offsets: Any) -> int:
    """The list that holds a row."""
    low, high = 0, offsets.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle] <= row:
            low = middle
        else:
            high = middle
    return low


@compiled_sums
def _sum_bell(begin: int, end: int, E: Any, g: Any, E_a: Any, g_a: Any) -> Any:
    """Σ_j (g_j + g_a) · σ(x_aj) · σ(−x_aj)."""
    total = E_a - E_a
    for j in range(np.uintp(begin), np.uintp(end)):
        share = E_a / (E_a + E[j])
        total += (g[j] + g_a) * (share - share * share)
    return total


@compiled_sums
def _sum_falling(begin: int, end: int, E: Any, g: Any, E_a: Any, g_a: Any) -> Any:
    """Σ_j (g_j + g_a) · σ(−x_aj)."""
    total = E_a - E_a
    for j in range(np.uintp(begin), np.uintp(end)):
        total += (g[j] + g_a) * E[j] / (E_a + E[j])
    return total


@compiled_sums
def _sum_rising(begin: int, end: int, E: Any, g: Any, E_a: Any, g_a: Any) -> Any:
    """Σ_j (g_j + g_a) · σ(x_aj)."""
    total = E_a - E_a
    for j in range(np.uintp(begin), np.uintp(end)):
        total += (g[j] + g_a) / (E_a + E[j])
    return E_a * total


@compiled
def _type1_rows(
    start: int, stop: int, offsets: Any, _levels: Any, E: Any, g: Any, result: Any
) -> None:
    """Σ_j (g_j − g_a) · K(y_aj) / α."""
    q = _list_of(start, offsets)
    for a in range(start, stop):
        while offsets[q + 1] <= a:
            q += 1
        if offsets[q + 1] - offsets[q] < _BY_ROWS:
            continue
        result[a] = _sum_bell(offsets[q], offsets[q + 1], E, g, E[a], -g[a])


@compiled
def _type2_rows(
    start: int, stop: int, offsets: Any, levels: Any, E: Any, g: Any, result: Any
) -> None:
    """Σ_j (g_a + g_j) · u_aj · K(y_aj) / α."""
    q = _list_of(start, offsets)
    for a in range(start, stop):
        while offsets[q + 1] <= a:
            q += 1
        if offsets[q + 1] - offsets[q] < _BY_ROWS:
            continue
        lower = _sum_bell(offsets[q], levels[0, a], E, g, E[a], g[a])
        higher = _sum_bell(levels[1, a], offsets[q + 1], E, g, E[a], g[a])
        result[a] = lower - higher


@compiled
def _type3_rows(
    start: int, stop: int, offsets: Any, levels: Any, E: Any, g: Any, result: Any
) -> None:
    """Σ_j (g_a + g_j) · u_aj · σ(−α · u_aj · y_aj)."""
    q = _list_of(start, offsets)
    for a in range(start, stop):
        while offsets[q + 1] <= a:
            q += 1
        if offsets[q + 1] - offsets[q] < _BY_ROWS:
            continue
        lower = _sum_falling(offsets[q], levels[0, a], E, g, E[a], g[a])
        higher = _sum_rising(levels[1, a], offsets[q + 1], E, g, E[a], g[a])
        result[a] = lower - higher


@compiled
def _wide_rows(
    start: int,
    stop: int,
    strategy: int,
    wide: Any,
    offsets: Any,
    levels: Any,
    x: Any,
    g: Any,
    result: Any,
) -> None:
    """Any strategy for the lists whose scores spread too far for E: an exponential per pair."""
    q = _list_of(start, offsets)
    for a in range(start, stop):
        while offsets[q + 1] <= a:
            q += 1
        if not wide[q]:
            continue
        total = 0.0
        for j in range(offsets[q], offsets[q + 1]):
            u = 1.0 if j < levels[0, a] else -1.0 if j >= levels[1, a] else 0.0
            near = math.exp(-abs(x[a] - x[j]))  # e^−|x_aj|, so that nothing overflows
            if strategy == 1:
                total += (g[j] - g[a]) * near / (1 + near) ** 2
            elif strategy == 2:
                total += (g[j] + g[a]) * u * near / (1 + near) ** 2
            elif u != 0:
                wrong = u * (x[a] - x[j]) < 0
                total += (g[j] + g[a]) * u * (1 if wrong else near) / (1 + near)
        result[a] = total
