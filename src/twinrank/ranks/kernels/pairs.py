"""The compiled loops of the direct kernel; `direct.py` says what they are for."""

import math
from typing import Any

import numpy as np

from twinrank.support.compiled import compiled, compiled_sums
from twinrank.support.segments import count_grades

BY_ROWS = 4096
"""From this length on a list's rows are shared out among threads."""


@compiled
def sort_by_grade(
    start: int, stop: int, offsets: Any, grades: Any, top: int, order: Any, levels: Any
) -> None:
    """Sort each list by grade; levels[:, a] bounds those that share the grade of a."""
    counts = np.empty(top, np.int64)
    for q in range(start, stop):
        place = offsets[q]
        for grade in range(count_grades(grades, offsets[q], offsets[q + 1], counts)):
            end = place + counts[grade]
            counts[grade] = place
            for i in range(place, end):
                levels[0, i], levels[1, i] = place, end
            place = end
        for i in range(offsets[q], offsets[q + 1]):
            place = counts[grades[i]]
            counts[grades[i]] = place + 1
            order[place] = i


@compiled_sums
def each_bell(
    start: int, stop: int, sign: float, offsets: Any, levels: Any, E: Any, g: Any, sums: Any
) -> None:
    """Types 1 and 2: (g_j ± g_a) · σ(x_aj) · σ(−x_aj) of every pair, to a and from j."""
    one = E.dtype.type(1)
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], E.dtype.type(sign) * g[a]
            total = E_a - E_a
            # Unsigned indices need no check for negative ones, which keeps loops off vector units.
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                part = one / (E_a + E[j])  # σ − σ² would cancel where σ is close to 1
                force = (g[j] + g_a) * ((E_a * part) * (E[j] * part))
                sums[j] -= force
                total += force
            sums[a] = total  # for the first time: what a gets as a j comes from documents after it


@compiled_sums
def each_step(start: int, stop: int, offsets: Any, levels: Any, E: Any, g: Any, sums: Any) -> None:
    """Type 3: (g_j + g_a) · σ(−x_aj) of every pair with label_a > label_j, to a and from j."""
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], g[a]
            total = E_a - E_a
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                force = (g[j] + g_a) * E[j] / (E_a + E[j])
                sums[j] -= force
                total += force
            sums[a] = total


@compiled_sums
def _sum_bell(begin: int, end: int, E: Any, g: Any, E_a: Any, g_a: Any) -> Any:
    """Σ_j (g_j + g_a) · σ(x_aj) · σ(−x_aj)."""
    one = E.dtype.type(1)
    total = E_a - E_a
    for j in range(np.uintp(begin), np.uintp(end)):
        part = one / (E_a + E[j])
        total += (g[j] + g_a) * ((E_a * part) * (E[j] * part))
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


# The rows a = start…stop − 1 of the matrix of pairs: lists[:, a] bounds the list of a, or is empty
# where the row isn't asked for.


@compiled
def type1_rows(
    start: int, stop: int, lists: Any, _levels: Any, E: Any, g: Any, result: Any
) -> None:
    """Σ_j (g_j − g_a) · K(y_aj) / α."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            result[a] = _sum_bell(lists[0, a], lists[1, a], E, g, E[a], -g[a])


@compiled
def type2_rows(start: int, stop: int, lists: Any, levels: Any, E: Any, g: Any, result: Any) -> None:
    """Σ_j (g_a + g_j) · u_aj · K(y_aj) / α."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            lower = _sum_bell(lists[0, a], levels[0, a], E, g, E[a], g[a])
            result[a] = lower - _sum_bell(levels[1, a], lists[1, a], E, g, E[a], g[a])


@compiled
def type3_rows(start: int, stop: int, lists: Any, levels: Any, E: Any, g: Any, result: Any) -> None:
    """Σ_j (g_a + g_j) · u_aj · σ(−α · u_aj · y_aj)."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            lower = _sum_falling(lists[0, a], levels[0, a], E, g, E[a], g[a])
            result[a] = lower - _sum_rising(levels[1, a], lists[1, a], E, g, E[a], g[a])


@compiled
def wide_rows(
    start: int, stop: int, strategy: int, lists: Any, levels: Any, x: Any, g: Any, result: Any
) -> None:
    """Any strategy for lists whose scores spread too far for E: an exponential per pair."""
    for a in range(start, stop):
        if lists[0, a] == lists[1, a]:
            continue
        total = 0.0
        for j in range(lists[0, a], lists[1, a]):
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
