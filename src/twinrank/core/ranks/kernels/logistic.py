"""Soft ranks (ApproxNDCG) and the logistic loss of pairs (RankNet): values of smooth pair sums.

    soft rank       r_i = 1 + Σ_{j≠i} σ(α(s_j − s_i))
    logistic loss   L = Σ_{label_i > label_j} log(1 + e^{−α(s_i − s_j)})

Their gradients are pair sums, of type1 and of type3 with a constant g. Their values are computed as
the pair sum is: every pair of short lists in compiled loops, long lists by the panels of
`panels.py`, and tensors on other devices in blocks. The softplus is analytic where σ, its slope,
is. So the nodes of a panel represent its documents on both sides of the sum. Between distant panels
the softplus is 0 or linear, and a linear function is exact on nodes.
"""

import math
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels import LONG
from twinrank.core.ranks.kernels.device_choice import device_kernel
from twinrank.core.ranks.kernels.pairs import bounds_of, by_grade, row_spans
from twinrank.core.ranks.kernels.panels import (
    Panels,
    for_each_list,
    make_nodes,
    meet,
    near_panels,
    nodes_for,
    polynomials,
    read_field,
)
from twinrank.support.arrays import Array, as_float, on_cpu, to_numpy
from twinrank.support.compiled import compiled, compiled_sums, in_threads
from twinrank.support.segments import grades_of

_NODES = nodes_for(1e-11)


def soft_ranks(scores: Array, lists: Lists, alpha: float) -> Array:
    """The soft rank of every document, between 1 and the length of its list."""
    if not on_cpu(scores):
        from twinrank.core.ranks.kernels.blocks import soft_ranks_in_blocks
        from twinrank.core.ranks.kernels.tiles import soft_ranks_in_tiles

        tiled = device_kernel(scores) == "triton"
        return (soft_ranks_in_tiles if tiled else soft_ranks_in_blocks)(scores, lists, alpha)
    # In double precision, since its exponents reach ten times as far: with a steepness of 10 many
    # lists would exceed the range of single precision.
    scores = as_float(to_numpy(scores))
    nothing, sums = np.zeros(scores.size), np.zeros(scores.size)
    _, _, x, E, _, wide, _ = by_grade(scores, nothing, nothing, lists, "type1", alpha)
    done = np.zeros(len(lists), np.bool_)
    if lists.longest >= LONG:

        def sum_list(_: int, docs: slice, panels: Panels) -> None:
            _soft_ranks_of_panels(panels, alpha, sums[docs])

        ones, one_grade = np.ones(scores.size), np.zeros(scores.size, np.int64)
        done = for_each_list(
            sum_list, scores, ones, one_grade, lists, "type3", alpha, _NODES, shortest=LONG
        )
    _sum_rows(lists, wide, done, None, x, E, scores, alpha, sums)
    return 0.5 + sums  # a document paired with itself has counted ½


def logistic_sum(scores: Array, labels: Array, lists: Lists, alpha: float) -> tuple[Array, Array]:
    """The loss of each list, and the number of its pairs with different labels."""
    if not on_cpu(scores):
        from twinrank.core.ranks.kernels.blocks import logistic_sum_in_blocks
        from twinrank.core.ranks.kernels.tiles import logistic_sum_in_tiles

        tiled = device_kernel(scores) == "triton"
        run = logistic_sum_in_tiles if tiled else logistic_sum_in_blocks
        return run(scores, labels, lists, alpha)
    scores, labels = as_float(to_numpy(scores)), to_numpy(labels)
    nothing, rows = np.zeros(scores.size), np.zeros(scores.size)
    order, levels, x, E, _, wide, _ = by_grade(scores, labels, nothing, lists, "type3", alpha)
    values, done = np.zeros(len(lists)), np.zeros(len(lists), np.bool_)
    if lists.longest >= LONG:

        def sum_list(q: int, _: slice, panels: Panels) -> None:
            values[q] = _loss_of_panels(panels, alpha)

        grades, _ = grades_of(labels, lists.offsets)
        done = for_each_list(
            sum_list, scores, nothing, grades, lists, "type3", alpha, _NODES, shortest=LONG
        )
    _sum_rows(lists, wide, done, levels[0], x, E, scores[order], alpha, rows)
    return values + lists.sum(rows), lists.sum(levels[0] - lists.starts(x))


def _sum_rows(
    lists: Lists, wide: Any, done: Any, lower: Any, x: Any, E: Any, y: Any, alpha: float, rows: Any
) -> None:
    """Sum the rows of all lists that are not done.

    `lower` is the end of the documents with a lower label, for logistic losses of them, or None for
    the soft ranks of all documents. `y` are the scores, in the order of x and E.
    """
    losses, ranges, bounds = lower is not None, row_spans(lists), bounds_of(lists, ~wide & ~done)
    in_threads(_rows, ranges, losses, bounds, lower if losses else bounds[1], x, E, rows)
    if wide.any():
        bounds = bounds_of(lists, wide & ~done)
        ends = lower if losses else bounds[1]
        in_threads(_wide_rows, ranges, losses, alpha, bounds, ends, y, rows)


# Rows a = start … stop − 1 of the pair matrix, documents in ascending order of labels: lists[:, a]
# bounds the list of a, of which documents up to ends[a] count. An empty list skips the row.


@compiled_sums
def _rows(
    start: int, stop: int, losses: bool, lists: Any, ends: Any, x: Any, E: Any, rows: Any
) -> None:
    """Σ_j log(1 + e^{x_j − x_a}) if `losses`, else Σ_j σ(x_j − x_a)."""
    for a in range(start, stop):
        if lists[0, a] == lists[1, a]:
            continue
        x_a, E_a, total = x[a], E[a], 0.0
        # Unsigned indices need no check for negative values, which would prevent vector code.
        for j in range(np.uintp(lists[0, a]), np.uintp(ends[a])):
            if losses:
                wrong = x[j] > x_a
                small, large = (E_a, E[j]) if wrong else (E[j], E_a)
                total += log_one_plus(small, large) + (x[j] - x_a if wrong else 0.0)
            else:
                total += E[j] / (E_a + E[j])
        rows[a] = total


@compiled
def _wide_rows(
    start: int, stop: int, losses: bool, alpha: float, lists: Any, ends: Any, y: Any, rows: Any
) -> None:
    """The same for lists whose scores spread too far for E: an exponential per pair of scores."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            total = 0.0
            for j in range(lists[0, a], ends[a]):
                ahead = min(max(alpha * (y[j] - y[a]), -1e300), 1e300)  # sums stay finite
                near = math.exp(-abs(ahead))
                if losses:
                    total += max(ahead, 0.0) + math.log1p(near)
                else:
                    total += (1.0 if ahead > 0 else near) / (1 + near)
            rows[a] = total


@compiled_sums
def log_one_plus(small: float, large: float) -> float:
    """log(1 + small/large) for 0 ≤ small ≤ large, to the last digits and on vector units.

    With u = small / (2·large + small), between 0 and ⅓, it is 2·artanh(u) = u · P(u²). P has degree
    9 and interpolates the function at the Chebyshev nodes of 0 … 1/9. A call of log would process
    one number at a time and dominate the time of a loop.
    """
    u = small / (2 * large + small)
    w = u * u
    p = 0.17780763826113302
    p = p * w + 0.09880789048764786
    p = p * w + 0.13591305485579894
    p = p * w + 0.15363676248891633
    p = p * w + 0.1818285980047391
    p = p * w + 0.22222190861346283
    p = p * w + 0.2857142911165716
    p = p * w + 0.399999999952876
    p = p * w + 0.6666666666668257
    p = p * w + 2.0
    return u * p


def _soft_ranks_of_panels(panels: Panels, alpha: float, result: Any) -> None:
    """Write Σ_j σ(α(s_j − s_i)) of one list."""
    order, t, ones, grade, _, ends, node_ends, centres = panels
    T, space, nodes = polynomials(_NODES), np.empty((2, _NODES)), int(node_ends[-1])
    E, weights = np.empty(nodes), np.zeros((nodes, 2))
    make_nodes(t, ones, grade, ends, node_ends, T, space, E, weights)
    near = near_panels(centres, alpha)
    # All documents of a panel far above count, none of a panel far below.
    after = _totals_from(weights)[node_ends]
    field = np.repeat(after[near[1]], np.diff(node_ends), axis=0)
    nobody = np.zeros_like(weights)
    meet(False, alpha, centres, node_ends, *near, E, weights, nobody, field)
    read_field(0.0, t, ones, grade, order, ends, node_ends, T, field, space, result)


def _loss_of_panels(panels: Panels, alpha: float) -> float:
    """Sum over pairs of nodes, and over those of distant panels by their totals."""
    _, t, g, grade, grades, ends, node_ends, centres = panels
    nodes, columns = int(node_ends[-1]), 2 * grades
    E, weights = np.empty(nodes), np.zeros((nodes, columns))
    table, space = polynomials(_NODES), np.empty((columns, _NODES))
    make_nodes(t, g, grade, ends, node_ends, table, space, E, weights)
    upper = np.ascontiguousarray(weights[:, ::2])  # the documents of each grade …
    lower = np.zeros_like(upper)  # … and of all grades below it
    np.cumsum(upper[:, :-1], axis=1, out=lower[:, 1:])
    near = near_panels(centres, alpha)
    t = np.log(E)
    total = float(_meet_logs(alpha, centres, node_ends, *near, t, upper, lower))
    # Relative to the panel of the median document, so that outliers cost the others no digits.
    middle = centres[np.searchsorted(ends, len(panels.t) // 2, side="right") - 1]
    per_panel = np.diff(node_ends)
    x = (t + np.repeat(alpha * (centres - middle), per_panel))[:, None]
    far = np.repeat(node_ends[near[1]], per_panel)  # the nodes from here on lie far above
    above, summed = _totals_from(lower)[far], _totals_from(lower * x)[far]
    return total + float((upper * (summed - x * above)).sum())


def _totals_from(values: Any) -> Any:
    """Row i: the sum of rows i, i + 1, … to the last."""
    return np.concatenate([np.cumsum(values[::-1], 0)[::-1], np.zeros((1, values.shape[1]))])


@compiled_sums
def _meet_logs(
    alpha: float, centres: Any, node_ends: Any, near_begin: Any, near_end: Any,
    t: Any, upper: Any, lower: Any,
) -> float:  # fmt: skip
    """Σ log(1 + e^{x_j − x_i}) · (upper_i · lower_j, over grades) over the nodes of near panels."""
    total = 0.0
    for panel in range(centres.size):
        for source in range(near_begin[panel], near_end[panel]):
            shift = alpha * (centres[source] - centres[panel])
            for i in range(node_ends[panel], node_ends[panel + 1]):
                for j in range(node_ends[source], node_ends[source + 1]):
                    pairs = 0.0
                    for grade in range(upper.shape[1]):
                        pairs += upper[i, grade] * lower[j, grade]
                    step = t[j] + shift - t[i]
                    total += pairs * (max(step, 0.0) + math.log1p(math.exp(-abs(step))))
    return total
