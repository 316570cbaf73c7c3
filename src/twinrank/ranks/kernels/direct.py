"""The pair sum on the CPU, pair by pair: fused, ragged, parallel over rows, no m × m array.

With E = exp(α(y − centre)) one division per pair gives both σ(α(y_a − y_j)) = E_a / (E_a + E_j) and
its complement. Sorting each list by label first turns u_aj into two ranges of j: the documents with
a lower label (u = 1) come before, those with a higher label (u = −1) after. The rows of the matrix
of pairs are summed independently, so the result has the same bits on any number of threads.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.strategies import Strategy
from twinrank.support.compiled import compiled, compiled_sums, in_threads, spans
from twinrank.support.sorting import COUNTS, sort_ascending

_WIDEST = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 600.0}
"""The spread α(max − min) of a list up to which E, 1/E and E·E keep clear of the type's limits."""

SCALE: dict[Strategy, float] = {"type1": 1.0, "type2": -1.0, "type3": -2.0}
"""What stands, times α, before the sum over pairs."""

_PAIRS_PER_THREAD = 50_000
"""Below this many pairs a second thread costs more than it saves."""


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
        result = np.empty_like(scores)
        documents, count = scores.size, len(lists)
        order, levels = np.empty(documents, np.int64), np.empty((2, documents), np.int64)
        x, g = np.empty(documents), np.empty(documents)
        spread = np.empty(count)
        in_threads(
            _prepare,
            spans(lists.sizes, per_thread=4096),
            lists.offsets,
            scores.astype(np.float64),
            np.zeros(documents) if strategy == "type1" else labels.astype(np.float64),
            rank_gradient.astype(np.float64),
            alpha,
            order,
            levels,
            x,
            g,
            spread,
        )
        wide = spread > _WIDEST[scores.dtype]
        rows = spans(np.repeat(lists.sizes, lists.sizes), _PAIRS_PER_THREAD)
        sorted_result = np.empty_like(scores)
        if not wide.all():
            E = np.exp(np.where(lists.spread(wide), 0.0, x)).astype(scores.dtype)
            fused = {"type1": _type1_rows, "type2": _type2_rows, "type3": _type3_rows}[strategy]
            in_threads(
                fused, rows, lists.offsets, levels, E, g.astype(scores.dtype), sorted_result
            )
        if wide.any():
            number = int(strategy[-1])
            in_threads(_wide_rows, rows, lists.offsets, levels, x, g, number, wide, sorted_result)
        result[order] = SCALE[strategy] * alpha * sorted_result
        return result


@compiled
def _prepare(
    start: int,
    stop: int,
    offsets: Any,
    scores: Any,
    labels: Any,
    rank_gradient: Any,
    alpha: float,
    order: Any,
    levels: Any,
    x: Any,
    g: Any,
    spread: Any,
) -> None:
    """Sort each list by label; levels[:, a] bounds the documents that share a's label."""
    longest = 0
    for q in range(start, stop):
        longest = max(longest, offsets[q + 1] - offsets[q])
    keys, spare_keys = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    documents, spare_order = np.empty(longest, np.int64), np.empty(longest, np.int64)
    counts = np.empty(COUNTS, np.int64)
    for q in range(start, stop):
        first, size = offsets[q], offsets[q + 1] - offsets[q]
        sort_ascending(
            labels, first, first + size, documents, keys, spare_keys, spare_order, counts
        )
        lowest, highest = math.inf, -math.inf
        for i in range(size):
            lowest = min(lowest, scores[first + i])
            highest = max(highest, scores[first + i])
        spread[q] = alpha * (highest - lowest) if size else 0.0
        begin = 0
        for i in range(size):
            document = documents[i]
            order[first + i] = document
            x[first + i] = alpha * (scores[document] - (lowest / 2 + highest / 2))
            g[first + i] = rank_gradient[document]
            if labels[document] != labels[documents[begin]]:
                begin = i
            levels[0, first + i] = first + begin
        end = size
        for i in range(size - 1, -1, -1):
            if i + 1 < size and labels[documents[i]] != labels[documents[i + 1]]:
                end = i + 1
            levels[1, first + i] = first + end


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
    start: int, stop: int, offsets: Any, levels: Any, E: Any, g: Any, result: Any
) -> None:
    """Σ_j (g_j − g_a) · K(y_aj) / α."""
    q = _list_of(start, offsets)
    for a in range(start, stop):
        while offsets[q + 1] <= a:
            q += 1
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
        lower = _sum_falling(offsets[q], levels[0, a], E, g, E[a], g[a])
        higher = _sum_rising(levels[1, a], offsets[q + 1], E, g, E[a], g[a])
        result[a] = lower - higher


@compiled
def _wide_rows(
    start: int,
    stop: int,
    offsets: Any,
    levels: Any,
    x: Any,
    g: Any,
    strategy: int,
    wide: Any,
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
