"""The logistic loss of all pairs of a list: Σ_{label_i > label_j} log(1 + e^{−α(s_i − s_j)}).

Its gradient is the pair sum of type3 with a constant g; here is its value, by the same three ways:
every pair of short lists in compiled loops, long ones by panels, tensors elsewhere in blocks. The
softplus is analytic where σ, its slope, is, so that a panel's nodes stand for its documents on
both sides of the sum; of panels further apart than σ can tell from 0 or 1, one side of the softplus
is 0 and the other linear, and a linear function is exact on nodes.
"""

from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.kernels import LONG
from twinrank.ranks.kernels.direct import bounds_of, by_grade, row_spans
from twinrank.ranks.kernels.logs import logistic_rows, meet_logs, wide_logistic_rows
from twinrank.ranks.kernels.long import (
    Panels,
    cut_into_panels,
    direct_cost,
    near_panels,
    nodes_for,
    polynomials,
)
from twinrank.ranks.kernels.panels import make_nodes
from twinrank.support.arrays import Array, as_float, on_cpu, to_numpy
from twinrank.support.compiled import in_threads, spans
from twinrank.support.segments import grades_of

_NODES = nodes_for(1e-11)


def logistic_sum(scores: Array, labels: Array, lists: Lists, alpha: float) -> tuple[Array, Array]:
    """The sum of each list, and the number of its pairs with different labels."""
    if not on_cpu(scores):
        from twinrank.ranks.kernels.pair_blocks import logistic_sum_in_blocks

        return logistic_sum_in_blocks(scores, labels, lists, alpha)
    scores, labels = as_float(to_numpy(scores)), to_numpy(labels)
    nothing = np.zeros(scores.size)
    _, levels, x, E, _, wide, _ = by_grade(scores, labels, nothing, lists, "type3", alpha)
    values, done = np.zeros(len(lists)), np.zeros(len(lists), np.bool_)
    if lists.longest >= LONG:
        values, done = _by_panels(scores, labels, lists, alpha)
    rows, ranges = np.zeros(scores.size), row_spans(lists)
    in_threads(logistic_rows, ranges, bounds_of(lists, ~wide & ~done), levels, x, E, rows)
    if wide.any():
        in_threads(wide_logistic_rows, ranges, bounds_of(lists, wide & ~done), levels, x, rows)
    return values + lists.sum(rows), lists.sum(levels[0] - lists.starts(x))


def _by_panels(scores: Any, labels: Any, lists: Lists, alpha: float) -> tuple[Any, Any]:
    """The sums of long lists, and which lists these are: those where interpolation pays."""
    grades, _ = grades_of(labels, lists.offsets)
    values, done = np.zeros(len(lists)), np.zeros(len(lists), np.bool_)

    def sum_lists(start: int, stop: int) -> None:
        for q in range(start, stop):
            docs = slice(lists.offsets[q], lists.offsets[q + 1])
            if lists.sizes[q] < LONG:
                continue
            x = scores[docs]
            panels = cut_into_panels(x, np.zeros(x.size), grades[docs], "type3", alpha, _NODES)
            if panels is not None and panels.cost < direct_cost(x.size):
                values[q], done[q] = _sum_panels(panels, alpha), True

    in_threads(sum_lists, spans(lists.sizes, per_thread=1000))
    return values, done


def _sum_panels(panels: Panels, alpha: float) -> float:
    """Σ over pairs of nodes, and over those of far panels by their totals."""
    nodes, columns = int(panels.node_ends[-1]), 2 * panels.grades
    E, weights = np.empty(nodes), np.zeros((nodes, columns))
    table, space = polynomials(_NODES), np.empty((columns, _NODES))
    t, g, grade, ends, node_ends = panels.t, panels.g, panels.grade, panels.ends, panels.node_ends
    make_nodes(t, g, grade, ends, node_ends, table, space, E, weights)
    upper = np.ascontiguousarray(weights[:, ::2])  # the documents of each grade …
    lower = np.zeros_like(upper)  # … and of all grades below it
    np.cumsum(upper[:, :-1], axis=1, out=lower[:, 1:])
    near = near_panels(panels.centres, alpha)
    t = np.log(E)
    total = float(meet_logs(alpha, panels.centres, node_ends, *near, t, upper, lower))
    # Measured from where most documents are, so that outliers cost the others no digits.
    middle = panels.centres[np.searchsorted(ends, len(panels.t) // 2, side="right") - 1]
    per_panel = np.diff(node_ends)
    x = (t + np.repeat(alpha * (panels.centres - middle), per_panel))[:, None]
    far = np.repeat(node_ends[near[1]], per_panel)  # the nodes from here on lie far above
    above, summed = _totals_from(lower)[far], _totals_from(lower * x)[far]
    return total + float((upper * (summed - x * above)).sum())


def _totals_from(values: Any) -> Any:
    """Row i: the sum of rows i, i + 1, … to the last."""
    return np.concatenate([np.cumsum(values[::-1], 0)[::-1], np.zeros((1, values.shape[1]))])
