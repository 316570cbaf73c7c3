"""Sinkhorn's algorithm on documents with grades, list by list: compiled loops.

Documents come sorted by grade. Documents i ≠ j exchange mass by the kernel exp(−|x_g − x_h|) of
their grades, or exp(−e) within a grade (`same` = e), a document keeps its own by 1; x and e are
divided by λ already. So what document i receives from all is what its grade receives, from two
scans over the grades, and its own: a sweep takes O(documents + grades). Everything is in
logarithms.

Two sweeps differ little where the grades hold nearly the mass that they should and hardly
exchange any: Sinkhorn's algorithm then creeps. So after each sweep the small problem of the grades
is solved by Newton's method (`balance.py`): one factor per grade for u and one for v, such that the
grades' totals are right. Both steps climb the same concave function, the dual of the transport
problem, and rest at the same point.
"""

from typing import Any

import numpy as np

from twinrank.losses.balance import STRIDE, balance
from twinrank.support.compiled import compiled

MOST_GRADES = 32
"""Lists with more different labels do without Newton's method."""


@compiled
def solve(
    start: int,
    stop: int,
    log_a: Any,
    log_b: Any,
    documents: Any,
    grades: Any,
    x: Any,
    same: float,
    own: float,
    sweeps: int,
    tolerance: float,
    newton: bool,
    log_u: Any,
    log_v: Any,
    change: Any,
) -> None:
    """Scale lists start … stop − 1: log_u, log_v, and the last relative change of each list.

    Grade g holds documents[g] … documents[g + 1] − 1, list q grades[q] … grades[q + 1] − 1.
    """
    most = 0
    for q in range(start, stop):
        most = max(most, grades[q + 1] - grades[q])
    u, v, heard = np.empty(most), np.empty(most), np.empty(most)
    n = min(most, MOST_GRADES)
    table, tables = np.empty((6, n)), np.empty((3, n, n))
    for q in range(start, stop):
        first, last = grades[q], grades[q + 1]
        change[q] = 0.0
        if documents[first] == documents[last]:
            continue
        shortcut = newton and 1 < last - first <= MOST_GRADES
        if shortcut:
            _totals(log_a, documents, first, last, table[0])
            _totals(log_b, documents, first, last, table[1])
            stride = max(STRIDE, (x[last - 1] - x[first]) / 16)
        _totals(log_u, documents, first, last, u)
        for sweep in range(sweeps):
            _listen(u, x, first, last, same, heard)
            moved = _scale(log_b, log_u, documents, first, last, heard, own, log_v)
            _totals(log_v, documents, first, last, v)
            _listen(v, x, first, last, same, heard)
            moved = max(moved, _scale(log_a, log_v, documents, first, last, heard, own, log_u))
            _totals(log_u, documents, first, last, u)
            change[q] = moved
            if sweep > 0 and moved <= tolerance:
                break
            if shortcut and sweep < sweeps - 1:  # rows are exact after the last sweep
                _exchange(u, v, x, first, last, same, tables[0])
                _keep(log_u, log_v, documents, first, last, own, tables[0])
                balance(last - first, table, tables, stride, 0.01 * tolerance)
                _shift(log_u, documents, first, last, table[2], u)
                _shift(log_v, documents, first, last, table[3], v)


@compiled
def _totals(log_x: Any, documents: Any, first: int, last: int, result: Any) -> None:
    """log Σ exp over the documents of each grade."""
    for g in range(first, last):
        top = -np.inf
        for i in range(documents[g], documents[g + 1]):
            top = max(top, log_x[i])
        total = 0.0
        for i in range(documents[g], documents[g + 1]):
            total += np.exp(log_x[i] - top)
        result[g - first] = top + np.log(total)


@compiled
def _listen(sums: Any, x: Any, first: int, last: int, same: float, heard: Any) -> None:
    """What each grade receives: log Σ_h exp(−|x_g − x_h|) X_h, with exp(−same) for its own."""
    below = above = -np.inf
    for g in range(first, last):
        if g > first:
            below = np.logaddexp(below, sums[g - 1 - first]) - (x[g] - x[g - 1])
        heard[g - first] = np.logaddexp(below, sums[g - first] - same)
    for g in range(last - 2, first - 1, -1):
        above = np.logaddexp(above, sums[g + 1 - first]) - (x[g + 1] - x[g])
        heard[g - first] = np.logaddexp(heard[g - first], above)


@compiled
def _scale(
    log_mass: Any,
    log_other: Any,
    documents: Any,
    first: int,
    last: int,
    heard: Any,
    own: float,
    result: Any,
) -> float:
    """result = mass / (K · other), in logarithms; the largest change is returned."""
    moved = 0.0
    for g in range(first, last):
        for i in range(documents[g], documents[g + 1]):
            new = log_mass[i] - np.logaddexp(heard[g - first], own + log_other[i])
            moved = max(moved, abs(new - result[i]))
            result[i] = new
    return moved


@compiled
def _exchange(u: Any, v: Any, x: Any, first: int, last: int, same: float, log_t: Any) -> None:
    """log T_gh: the mass that goes from grade g to grade h, but for what documents keep."""
    for g in range(last - first):
        for h in range(last - first):
            log_t[g, h] = u[g] + v[h] - (same if g == h else abs(x[first + g] - x[first + h]))


@compiled
def _keep(
    log_u: Any, log_v: Any, documents: Any, first: int, last: int, own: float, log_t: Any
) -> None:
    """Add what documents keep to the mass that stays in their grade."""
    for g in range(first, last):
        top = -np.inf
        for i in range(documents[g], documents[g + 1]):
            top = max(top, log_u[i] + log_v[i])
        total = 0.0
        for i in range(documents[g], documents[g + 1]):
            total += np.exp(log_u[i] + log_v[i] - top)
        k = g - first
        log_t[k, k] = np.logaddexp(log_t[k, k], own + top + np.log(total))


@compiled
def _shift(log_x: Any, documents: Any, first: int, last: int, by: Any, sums: Any) -> None:
    """Multiply the documents of each grade by one factor, and their total."""
    for g in range(first, last):
        sums[g - first] += by[g - first]
        for i in range(documents[g], documents[g + 1]):
            log_x[i] += by[g - first]
