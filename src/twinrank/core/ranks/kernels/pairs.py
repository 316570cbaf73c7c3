"""The pair sum on the CPU, pair by pair: compiled loops over ragged lists, without an m × m array.

With E = exp(α(y − centre)) one division per pair gives σ(α(y_a − y_j)) = E_a / (E_a + E_j) and its
complement. Lists are sorted by label first. So the sign u_aj splits the documents j of a list into
two ranges: lower labels (u = 1) come before a, higher labels (u = −1) after it.

A pair adds the same force to one document that it takes from the other. So each pair is visited
once, and the threads share the lists. Very long lists are shared by rows of the pair matrix, which
visits each pair twice. The result has the same bits for any number of threads.

Every loop can also sum the curvature h of `curvature.py`. It is compiled without it where `curves`
is None: on 100 lists of 120 documents, summing h takes 15 to 60 % longer.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.strategies import RankStrategy
from twinrank.support.compiled import compiled, compiled_sums, in_threads, spans, threads
from twinrank.support.segments import count_grades, grades_of

BY_ROWS = 4096
"""From this length on the threads share the rows of a list."""

SCALE: dict[RankStrategy, float] = {"type1": 1.0, "type2": -1.0, "type3": -2.0}
"""The factor of the sum over pairs, in units of α."""

_WIDEST = {np.dtype(np.float32): 60.0, np.dtype(np.float64): 600.0}
"""Up to this spread α(max − min) of a list, E, 1/E and E·E stay within the limits of the type …"""

_LARGEST = {np.dtype(np.float32): 1e10, np.dtype(np.float64): 1e40}
"""… even times a rank gradient of this size. Larger gradients are scaled down, list by list."""

_PAIRS_PER_THREAD = 1_000_000
"""With fewer pairs per thread, a second thread costs more time than it saves."""


def direct_sums(
    scores: Any,
    labels: Any,
    rank_gradient: Any,
    lists: Lists,
    strategy: RankStrategy,
    alpha: float,
    *,
    curvature: bool = False,
) -> tuple[Any, Any]:
    """∂L/∂score of every document, in the precision of `scores`, and h or None.

    This is the fastest kernel for lists of up to about 1,500 documents.
    """
    order, levels, _, E, g, wide, scale = by_grade(
        scores, labels, rank_gradient, lists, strategy, alpha
    )
    sums, curves = np.empty_like(scores), np.empty_like(scores) if curvature else None
    pairs = pair_spans(lists)
    if strategy == "type3":
        in_threads(each_step, pairs, lists.offsets, levels, E, g, sums, curves)
    else:
        sign = -1.0 if strategy == "type1" else 1.0
        in_threads(each_bell, pairs, sign, lists.offsets, levels, E, g, sums, curves)
    left = wide
    if lists.longest >= BY_ROWS:
        very_long = lists.sizes >= BY_ROWS
        if curvature:
            left = wide | very_long
        else:
            rows = {"type1": type1_rows, "type2": type2_rows, "type3": type3_rows}[strategy]
            in_threads(rows, row_spans(lists), bounds_of(lists, very_long), levels, E, g, sums)
    if left.any():
        number, bounds, y = int(strategy[-1]), bounds_of(lists, left), scores[order]
        y = y.astype(np.float64, copy=False)
        in_threads(any_rows, row_spans(lists), number, alpha, bounds, levels, y, g, sums, curves)
    gradient = np.empty_like(scores)
    gradient[order] = sums
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite gradient stays infinite
        gradient = (scale * gradient).astype(scores.dtype, copy=False)
        if curves is None:
            return gradient, None
        diagonal = np.empty_like(scores)
        diagonal[order] = curves
        diagonal = alpha * np.abs(scale) * diagonal
    return gradient, diagonal.astype(scores.dtype, copy=False)


class ByGrade(NamedTuple):
    """The input of the loops over pairs: the documents of each list sorted by grade."""

    order: Any  # the documents in this order
    levels: Any  # levels[:, a] bounds the documents of the same grade as a
    x: Any  # α(y − centre), in double precision; not for wide lists
    E: Any  # exp(x), and 1 in wide lists
    g: Any
    wide: Any  # lists whose scores spread too far for E
    scale: Any  # the factor of the sum: a number, or one per document in the caller's order


def by_grade(
    scores: Any, labels: Any, rank_gradient: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> ByGrade:
    """Sort each list by grade, and compute E where the spread of the scores allows it."""
    x, g, size = scores.astype(np.float64), rank_gradient, scores.size
    scale: Any = SCALE[strategy] * alpha
    if np.abs(g).max(initial=0) > _LARGEST[scores.dtype]:
        largest = lists.max(np.abs(g))
        largest = lists.spread(np.where(largest > 0, largest, 1.0))
        with np.errstate(invalid="ignore"):
            g, scale = (g / largest).astype(scores.dtype), scale * largest
    lowest, highest = lists.min(x), lists.max(x)
    with np.errstate(over="ignore"):  # an infinite spread is wide, too
        wide = alpha * (highest - lowest) > _WIDEST[scores.dtype]
        x = alpha * (x - lists.spread(lowest / 2 + highest / 2))
    order, levels = np.arange(size), np.empty((2, size), np.int64)
    if strategy == "type1":  # it ignores labels: every document has its own level
        levels[0], levels[1] = order, order + 1
    else:
        grades, top = grades_of(labels, lists.offsets)
        in_threads(
            _sort_by_grade, spans(lists.sizes, 16384), lists.offsets, grades, top, order, levels
        )
        x, g = x[order], g[order]
    within = x
    if wide.any():
        within = np.where(lists.spread(wide), 0.0, x)
    return ByGrade(order, levels, x, np.exp(within).astype(scores.dtype), g, wide, scale)


def bounds_of(lists: Lists, chosen: Any) -> Any:
    """The begin and end of each document's list; an empty range if the list is not chosen."""
    ends = np.stack([lists.offsets[:-1], lists.offsets[1:]]) * chosen
    return np.repeat(ends, lists.sizes, axis=1)


def pair_spans(lists: Lists) -> list[tuple[int, int]]:
    """Cut the lists into ranges with similar numbers of pairs."""
    return spans(lists.sizes**2, _PAIRS_PER_THREAD)


def row_spans(lists: Lists) -> list[tuple[int, int]]:
    """Cut the rows of all lists into ranges with similar numbers of pairs; lists may be cut."""
    pairs = np.concatenate([[0], np.cumsum(lists.sizes.astype(np.float64) ** 2)])
    parts = int(min(threads(), pairs[-1] // _PAIRS_PER_THREAD))
    if parts <= 1:
        return [(0, lists.documents)]
    cuts = np.interp(pairs[-1] * np.arange(1, parts) / parts, pairs, lists.offsets).astype(int)
    bounds = np.unique([0, *cuts, lists.documents]).tolist()
    return list(pairwise(bounds))


@compiled
def _sort_by_grade(
    start: int, stop: int, offsets: Any, grades: Any, top: int, order: Any, levels: Any
) -> None:
    """Sort each list by grade; levels[:, a] bounds the documents of the same grade as a."""
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
    start: int, stop: int, sign: float,
    offsets: Any, levels: Any, E: Any, g: Any, sums: Any, curves: Any,
) -> None:  # fmt: skip
    """Types 1 and 2: add (g_j ± g_a) · σ(x_aj) · σ(−x_aj) to a, subtract it from j; h: its size."""
    one = E.dtype.type(1)
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], E.dtype.type(sign) * g[a]
            total, curve = E_a - E_a, E_a - E_a
            # Unsigned indices need no check for negative values, which would prevent vector code.
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                part = one / (E_a + E[j])  # σ − σ² would cancel where σ is close to 1
                force = (g[j] + g_a) * ((E_a * part) * (E[j] * part))
                sums[j] -= force
                total += force
                if curves is not None:
                    curves[j] += abs(force)
                    curve += abs(force)
            sums[a] = total  # the first write to a: only later documents subtract from it
            if curves is not None:
                curves[a] = curve


@compiled_sums
def each_step(
    start: int, stop: int,
    offsets: Any, levels: Any, E: Any, g: Any, sums: Any, curves: Any,
) -> None:  # fmt: skip
    """Type 3: add (g_j + g_a) · σ(−x_aj) to a, subtract it from j; h: |g_j + g_a| · σ · (1 − σ)."""
    one = E.dtype.type(1)
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], g[a]
            total, curve = E_a - E_a, E_a - E_a
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                if curves is None:
                    force = (g[j] + g_a) * E[j] / (E_a + E[j])
                else:
                    part = one / (E_a + E[j])
                    force = (g[j] + g_a) * (E[j] * part)
                    bend = abs(force) * (E_a * part)
                    curves[j] += bend
                    curve += bend
                sums[j] -= force
                total += force
            sums[a] = total
            if curves is not None:
                curves[a] = curve


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


# Rows a = start … stop − 1 of the pair matrix: lists[:, a] bounds the list of a. An empty range
# skips the row.


@compiled
def type1_rows(start: int, stop: int, lists: Any, _levels: Any, E: Any, g: Any, sums: Any) -> None:
    """Σ_j (g_j − g_a) · K(y_aj) / α."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            sums[a] = _sum_bell(lists[0, a], lists[1, a], E, g, E[a], -g[a])


@compiled
def type2_rows(start: int, stop: int, lists: Any, levels: Any, E: Any, g: Any, sums: Any) -> None:
    """Σ_j (g_a + g_j) · u_aj · K(y_aj) / α."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            lower = _sum_bell(lists[0, a], levels[0, a], E, g, E[a], g[a])
            sums[a] = lower - _sum_bell(levels[1, a], lists[1, a], E, g, E[a], g[a])


@compiled
def type3_rows(start: int, stop: int, lists: Any, levels: Any, E: Any, g: Any, sums: Any) -> None:
    """Σ_j (g_a + g_j) · u_aj · σ(−α · u_aj · y_aj)."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            lower = _sum_falling(lists[0, a], levels[0, a], E, g, E[a], g[a])
            sums[a] = lower - _sum_rising(levels[1, a], lists[1, a], E, g, E[a], g[a])


@compiled
def any_rows(
    start: int, stop: int, strategy: int, alpha: float,
    lists: Any, levels: Any, y: Any, g: Any, sums: Any, curves: Any,
) -> None:  # fmt: skip
    """Any strategy for lists whose scores spread too far for E: an exponential per pair.

    The scores have no common centre: next to an outlier, all others would lose their digits.
    """
    for a in range(start, stop):
        if lists[0, a] == lists[1, a]:
            continue
        total, curve = 0.0, 0.0
        for j in range(lists[0, a], lists[1, a]):
            u = 1.0 if j < levels[0, a] else -1.0 if j >= levels[1, a] else 0.0
            near = math.exp(-alpha * abs(y[a] - y[j]))  # e^−|x_aj|, so that nothing overflows
            both = g[j] - g[a] if strategy == 1 else g[j] + g[a]
            if strategy == 1:
                total += both * near / (1 + near) ** 2
            elif strategy == 2:
                total += both * u * near / (1 + near) ** 2
            elif u != 0:
                wrong = u * (y[a] - y[j]) < 0
                total += both * u * (1 if wrong else near) / (1 + near)
            if curves is not None and (strategy == 1 or u != 0):
                curve += abs(both) * (near / (1 + near) ** 2)
        sums[a] = total
        if curves is not None:
            curves[a] = curve
