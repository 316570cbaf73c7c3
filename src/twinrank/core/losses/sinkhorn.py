"""Entropic optimal transport with costs that depend on grades: Sinkhorn's algorithm, list by list.

The optimal plan is P_ij = u_i · exp(−C_ij / λ) · v_j. An iteration scales v so that the columns of
P sum to b, then u so that its rows sum to a (Cuturi, "Sinkhorn distances", NeurIPS 2013). The
documents of a list are sorted by grade. The cost is |x_g − x_h| between two grades, `same` within
a grade and 0 from a document to itself. So two scans over the grades replace the m × m kernel, and
an iteration takes O(documents). The loops work on logarithms, with x and `same` in units of λ.

Plain iterations hardly move mass across a wide gap between two grades. `_balance` corrects every
gap in closed form between two iterations. Both climb the same concave function, the dual of the
transport problem.
"""

from typing import Any, NamedTuple

import numpy as np

from twinrank.core.lists import Lists
from twinrank.support.compiled import compiled, in_threads, spans


class Transport(NamedTuple):
    """A plan P_ij = u_i · exp(−C_ij / λ) · v_j for every list."""

    log_u: Any
    log_v: Any
    change: Any
    """The largest change of an entry of log u and log v in the last iteration of each list."""
    cost: Any
    """⟨P, C⟩ / λ of each list."""


def transport(
    log_a: Any,
    log_b: Any,
    grades: Lists,
    documents: Lists,
    x: Any,
    same: float,
    *,
    iterations: int,
    tolerance: float,
    balance: bool,
) -> Transport:
    """Transport a to b: the rows are exact at the end, the columns if `change` is small.

    `grades` are the grades of each list, in ascending order of x, and `documents` the documents of
    each grade. The start is u = 1/m. A list is done if an iteration changes no entry of log u and
    log v by more than `tolerance`.
    """
    sizes = np.diff(documents.offsets[grades.offsets])
    log_u = -np.log(np.repeat(sizes, sizes))
    result = Transport(log_u, np.zeros_like(log_a), np.zeros(len(grades)), np.zeros(len(grades)))
    excess = _excess(np.exp(log_a), np.exp(log_b), grades, documents)
    in_threads(
        _solve,
        spans(sizes, 1024),
        grades.offsets, documents.offsets, x, same, iterations, tolerance, balance,
        log_a, log_b, excess, *result,
    )  # fmt: skip
    return result


def _excess(a: Any, b: Any, grades: Lists, documents: Lists) -> Any:
    """How much more of a than of b lies above each grade, and the rounding error of that."""
    a, b = documents.sum(a), documents.sum(b)
    below, above = grades.cumsum(b - a), np.roll(grades.cumsum(a - b, reverse=True), -1)
    mass = grades.cumsum(a + b)  # of 2; the side with less of it has more digits
    return np.stack([np.where(mass < 1, below, above), 1e-14 * np.minimum(mass, 2 - mass)])


@compiled
def _solve(
    start: int, stop: int,
    grades: Any, documents: Any, x: Any, same: float,
    iterations: int, tolerance: float, balance: bool,
    log_a: Any, log_b: Any, excess: Any,
    log_u: Any, log_v: Any, change: Any, cost: Any,
) -> None:  # fmt: skip
    """Lists start … stop − 1; list q has grades grades[q] … grades[q + 1] − 1, and so on."""
    most = 0
    for q in range(start, stop):
        most = max(most, grades[q + 1] - grades[q])
    u, v, work = np.empty(most), np.empty(most), np.empty((2, most))
    for q in range(start, stop):
        first, last = grades[q], grades[q + 1]
        if first == last:
            continue
        _totals(first, last, documents, log_u, u)
        shifted = 0.0
        for iteration in range(iterations):
            moved_v = _scale(first, last, documents, x, same, log_b, log_u, u, work[0], log_v)
            _totals(first, last, documents, log_v, v)
            moved_u = _scale(first, last, documents, x, same, log_a, log_v, v, work[0], log_u)
            _totals(first, last, documents, log_u, u)
            change[q] = max(shifted, moved_u, moved_v)
            if iteration > 0 and change[q] <= tolerance:
                break
            if balance and iteration < iterations - 1:  # the rows are exact after the last one
                shifted = _balance(first, last, documents, x, excess, u, v, work, log_u, log_v)
        cost[q] = _cost(first, last, documents, x, same, u, v, work, log_u, log_v)


@compiled
def _totals(first: int, last: int, documents: Any, log_x: Any, totals: Any) -> None:
    """log Σ exp over the documents of each grade."""
    for g in range(first, last):
        top, total = -np.inf, 0.0
        for i in range(documents[g], documents[g + 1]):
            top = max(top, log_x[i])
        for i in range(documents[g], documents[g + 1]):
            total += np.exp(log_x[i] - top)
        totals[g - first] = top + np.log(total)


@compiled
def _scale(
    first: int, last: int, documents: Any, x: Any, same: float,
    log_mass: Any, log_other: Any, totals: Any, received: Any, log_x: Any,
) -> float:  # fmt: skip
    """log x = log(mass / (K · other)), with the totals of `other`; returns the largest change."""
    below = above = -np.inf
    for k in range(last - first):
        if k > 0:
            below = np.logaddexp(below, totals[k - 1]) - (x[first + k] - x[first + k - 1])
        received[k] = np.logaddexp(below, totals[k] - same)
    for k in range(last - first - 2, -1, -1):
        above = np.logaddexp(above, totals[k + 1]) - (x[first + k + 1] - x[first + k])
        received[k] = np.logaddexp(received[k], above)
    itself = np.log(-np.expm1(-same))  # exp(−0), of which exp(−same) is in `received`
    moved = 0.0
    for g in range(first, last):
        for i in range(documents[g], documents[g + 1]):
            new = log_mass[i] - np.logaddexp(received[g - first], itself + log_other[i])
            moved = max(moved, abs(new - log_x[i]))
            log_x[i] = new
    return moved


@compiled
def _above(first: int, last: int, x: Any, totals: Any, above: Any) -> None:
    """What each grade receives from itself and all grades above."""
    above[last - first - 1] = totals[last - first - 1]
    for k in range(last - first - 2, -1, -1):
        above[k] = np.logaddexp(totals[k], above[k + 1] - (x[first + k + 1] - x[first + k]))


@compiled
def _balance(
    first: int, last: int, documents: Any, x: Any, excess: Any,
    u: Any, v: Any, above: Any, log_u: Any, log_v: Any,
) -> float:  # fmt: skip
    """Make the flow down across each gap exceed the flow up by the excess of a over b above it.

    A factor exp(t) for u and exp(−t) for v above the gap multiplies the flow down by exp(t) and the
    flow up by exp(−t), and changes no flow on either side. So t solves a quadratic equation. Gaps
    that are balanced up to rounding stay: behind a wide one t would be a function of the noise.
    """
    _above(first, last, x, u, above[0])
    _above(first, last, x, v, above[1])
    below_u, below_v, t, largest = u[0], v[0], 0.0, 0.0
    for k in range(1, last - first):
        gap = x[first + k] - x[first + k - 1]
        down, up = above[0, k] + t + below_v - gap, below_u - gap + above[1, k] - t
        need = excess[0, first + k - 1]
        if abs(np.exp(down) - np.exp(up) - need) > excess[1, first + k - 1]:
            half, mean = np.log(abs(need) / 2), (up + down) / 2
            root = np.logaddexp(half, np.logaddexp(2 * half, 2 * mean) / 2) - mean
            t += (up - down) / 2 + (root if need > 0 else -root)
        largest = max(largest, abs(t))
        u[k], v[k] = u[k] + t, v[k] - t
        below_u, below_v = np.logaddexp(below_u - gap, u[k]), np.logaddexp(below_v - gap, v[k])
        for i in range(documents[first + k], documents[first + k + 1]):
            log_u[i] += t
            log_v[i] -= t
    return largest


@compiled
def _cost(
    first: int, last: int, documents: Any, x: Any, same: float,
    u: Any, v: Any, above: Any, log_u: Any, log_v: Any,
) -> float:  # fmt: skip
    """⟨P, C⟩: the width of each gap times its flows, and `same` times the flow within grades."""
    _above(first, last, x, u, above[0])
    _above(first, last, x, v, above[1])
    total, below_u, below_v = 0.0, -np.inf, -np.inf
    for k in range(last - first):
        if k > 0:
            gap = x[first + k] - x[first + k - 1]
            below_u, below_v = below_u - gap, below_v - gap
            total += gap * (np.exp(above[0, k] + below_v) + np.exp(below_u + above[1, k]))
        below_u, below_v = np.logaddexp(below_u, u[k]), np.logaddexp(below_v, v[k])
        within = np.exp(u[k] + v[k] - same)
        for i in range(documents[first + k], documents[first + k + 1]):
            within -= np.exp(log_u[i] + log_v[i] - same)
        total += same * max(within, 0.0)
    return total
