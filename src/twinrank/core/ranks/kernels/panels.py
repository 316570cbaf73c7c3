"""The pair sum of long lists without visiting every pair: O(m · p) by Chebyshev interpolation.

In x = α·y the kernels σ(x_a − x_j) and σ·(1 − σ) are analytic within |Im| < π. So over a panel of
width 2 they are polynomials of degree p − 1, up to a relative error of about 6.4⁻ᵖ. As sources, the
documents of a panel are replaced by p nodes with weights of the same moments. As targets, they are
replaced by the field at p nodes, from which their own is interpolated. A sum over pairs of *nodes*
remains. Three rules keep it cheap for any scores:

- Only panels with documents exist. A panel with fewer than p documents uses these as nodes.
- Panels at a distance of more than `_FAR` use each other's totals: σ is 0 or 1 to 17 digits.
- Labels enter through weights. For a target of grade γ the sources of lower and of higher grades
  have their own sums, so the cost of a pair of nodes grows with the number of grades.

Cost: a sort by panel and about 6p flops per document, plus panels × near panels × p² × 2 grades for
the nodes. Below about 1,500 documents, or with very many grades, visiting every pair is cheaper.
The idea is that of the fast multipole methods (Greengard & Rokhlin 1987; the "black-box" form with
Chebyshev nodes: Fong & Darve 2009).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels.pairs import SCALE, direct_sums
from twinrank.core.ranks.strategies import RankStrategy
from twinrank.support.compiled import compiled_sums, in_threads, spans
from twinrank.support.segments import COUNTS, grades_of, sort_keys

_FAR = 40.0
_WIDEST = 1e15
"""Beyond this spread float64 numbers lie further apart than panels: every pair is visited."""

_MOST_FIELD_VALUES = 2**24
"""With more nodes × grades than this (128 MB) interpolation is not used."""


@dataclass(frozen=True)
class LongKernel:
    """Interpolated pair sums; `accuracy` is relative to the largest gradient of a list.

    The default is 1e-7 for float32 scores and 1e-11 for float64. If all pairs of a list are further
    apart than 40/α, its gradients, which are below e⁻⁴⁰, become zero. Type 1 is the difference of
    two sums: its error is relative to the larger sum. Lists for which visiting every pair is faster
    (many distinct labels, scores spread over very many panels) use the direct kernel. With `always`
    only the impossible ones do.
    """

    accuracy: float | None = None
    always: bool = True

    def __call__(
        self,
        scores: Any,
        labels: Any,
        rank_gradient: Any,
        lists: Lists,
        strategy: RankStrategy,
        alpha: float,
    ) -> Any:
        """∂L/∂score of every document, in the precision of `scores`."""
        p = nodes_for(self.accuracy or default_accuracy(scores))
        result = np.zeros(scores.size)  # lists for the direct kernel stay 0 until then

        def sum_list(_: int, docs: slice, panels: Panels) -> None:
            _sum_panels(panels, strategy, alpha, p, result[docs])

        done = for_each_list(
            sum_list,
            scores.astype(np.float64),
            rank_gradient.astype(np.float64),
            grades_for(strategy, labels, lists),
            lists,
            strategy,
            alpha,
            p,
            always=self.always,
        )
        result *= SCALE[strategy] * alpha
        result = result.astype(scores.dtype, copy=False)
        if not done.all():
            left = lists.spread(~done)
            rest = Lists.from_sizes(lists.sizes[~done])
            arguments = (scores[left], labels[left], rank_gradient[left], rest, strategy, alpha)
            result[left], _ = direct_sums(*arguments)
        return result


def interpolated_curvature(
    scores: Any, labels: Any, sizes: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> tuple[Any, Any]:
    """Σ_j (s_a + s_j) · |u_aj| · K(y_aj) / α for sizes s ≥ 0, and the lists that have it.

    With type1, which ignores labels, |u_aj| is 1 for every other document.
    """
    p = nodes_for(default_accuracy(scores))
    s, result = sizes.astype(np.float64), np.zeros(scores.size)

    def sum_list(_: int, docs: slice, panels: Panels) -> None:
        _sum_panels(panels, strategy, alpha, p, result[docs], curvature=True)

    grades = grades_for(strategy, labels, lists)
    done = for_each_list(sum_list, scores.astype(np.float64), s, grades, lists, "type2", alpha, p)
    if strategy == "type1":
        result -= s / 2  # a document with itself: 2s · ¼
    return np.maximum(result, 0.0), done


def for_each_list(
    sum_list: Callable[[int, slice, "Panels"], None],
    scores: Any,
    g: Any,
    grades: Any,
    lists: Lists,
    strategy: RankStrategy,
    alpha: float,
    p: int,
    *,
    shortest: int = 0,
    always: bool = False,
) -> Any:
    """Call sum_list(q, documents, panels) for each list where interpolation pays; return which.

    Lists with fewer than `shortest` documents are skipped. With `always` interpolation always pays.
    """
    done = np.zeros(len(lists), np.bool_)

    def sum_lists(start: int, stop: int) -> None:
        for q in range(start, stop):
            if (size := int(lists.sizes[q])) < shortest:
                continue
            docs = slice(lists.offsets[q], lists.offsets[q + 1])
            panels = cut_into_panels(scores[docs], g[docs], grades[docs], strategy, alpha, p)
            if panels is not None and (always or panels.cost < direct_cost(size)):
                sum_list(q, docs, panels)
                done[q] = True

    in_threads(sum_lists, spans(lists.sizes, per_thread=1000))
    return done


def direct_cost(size: int) -> float:
    """The cost of visiting every pair, in the unit of `Panels.cost`: a pair of nodes."""
    return 0.12 * size**2


def default_accuracy(scores: Any) -> float:
    """The accuracy that suits the precision of the scores."""
    return 1e-7 if scores.dtype == np.float32 else 1e-11


def grades_for(strategy: RankStrategy, labels: Any, lists: Lists) -> Any:
    """The grade of each document; type1 ignores labels."""
    if strategy == "type1":
        return np.zeros(lists.documents, np.int64)
    return grades_of(labels, lists.offsets)[0]


def nodes_for(accuracy: float) -> int:
    """Chebyshev nodes per panel: the ellipse with poles at ±iπ has ρ = π + √(1 + π²) ≈ 6.44.

    Two more make up for the constant, which is larger for the slope of σ than for σ.
    """
    return math.ceil(-math.log(accuracy) / math.log(math.pi + math.hypot(1, math.pi))) + 2


class Panels(NamedTuple):
    """The documents of a list in the order of their panels."""

    order: Any  # documents by panel
    t: Any  # α(score − centre of its panel), within about −1…1
    g: Any
    grade: Any  # 0, 1, … in ascending order of labels
    grades: int
    ends: Any  # panel k has documents ends[k] … ends[k + 1] − 1 …
    node_ends: Any  # … and nodes node_ends[k] … node_ends[k + 1] − 1
    centres: Any  # in units of the scores

    @property
    def cost(self) -> float:
        """Pairs of nodes × grades, plus the cost per document."""
        nodes, panels, size = int(self.node_ends[-1]), len(self.centres), len(self.t)
        return nodes * min(panels, 41) * nodes / panels * (1 + self.grades) + 100.0 * size


def cut_into_panels(
    scores: Any, g: Any, grade: Any, strategy: RankStrategy, alpha: float, p: int
) -> Panels | None:
    """Sort one list by panels of width 2/α; None if that is not possible."""
    size = scores.size
    if size == 0:
        return None
    lowest, highest = float(scores.min()), float(scores.max())
    if not alpha * (highest - lowest) < _WIDEST:  # Python's numbers overflow without a warning
        return None
    used = np.bincount(grade) > 0
    grade, grades = (np.cumsum(used) - 1)[grade], int(used.sum())
    # In place where possible: new memory costs long lists more time than arithmetic.
    x = scores - lowest
    x *= alpha / 2
    keys = x.astype(np.uint64)
    by_panel = np.arange(size)
    spare_keys, spare_order = np.empty(size, np.uint64), np.empty(size, np.int64)
    sort_keys(keys, by_panel, size, spare_keys, spare_order, np.empty(COUNTS, np.int64))
    ends = np.r_[0, np.flatnonzero(keys[1:] != keys[:-1]) + 1, size]
    sizes = np.diff(ends)
    centres = lowest + (keys[ends[:-1]] + 0.5) * (2 / alpha)
    node_ends = np.r_[0, np.cumsum(np.minimum(sizes, p))]
    if node_ends[-1] * grades > _MOST_FIELD_VALUES:
        return None
    if strategy == "type1":
        g = g - g.mean()  # type1 depends on differences of g only, and small values cancel less
    # Relative to the centre of the panel, so that scores far out lose no digits.
    t = np.take(scores, by_panel, out=x)
    t -= np.repeat(centres, sizes)
    t *= alpha
    return Panels(by_panel, t, g[by_panel], grade[by_panel], grades, ends, node_ends, centres)


def polynomials(p: int) -> Any:
    """T[n, k] = T_k(t_n): the Chebyshev polynomials at the p nodes of a panel."""
    return np.cos(np.arange(p) * (np.pi * (np.arange(p) + 0.5) / p)[:, None])


def near_panels(centres: Any, alpha: float) -> tuple[Any, Any]:
    """The first panel within reach of each panel, and the one after the last."""
    reach = _FAR / alpha
    return (
        np.searchsorted(centres, centres - reach),
        np.searchsorted(centres, centres + reach, side="right"),
    )


def _sum_panels(
    panels: Panels,
    strategy: RankStrategy,
    alpha: float,
    p: int,
    result: Any,
    curvature: bool = False,
) -> None:
    """Write the unscaled pair sum of one list, or its curvature: K for any strategy, |u| for u."""
    order, t, g, grade, grades, ends, node_ends, centres = panels
    T = polynomials(p)
    nodes, columns = int(node_ends[-1]), 2 * grades
    E, weights = np.empty(nodes), np.zeros((nodes, columns))
    make_nodes(t, g, grade, ends, node_ends, T, np.empty((columns, p)), E, weights)

    # The sources of a target: lower grades with a falling σ, higher grades with a rising σ and the
    # sign of u_aj. For type1, without grades, all documents.
    if strategy == "type1":
        falling, rising = weights, np.zeros_like(weights)
    else:
        falling, rising = np.zeros_like(weights), np.zeros_like(weights)
        falling[:, 2:] = np.cumsum(weights.reshape(nodes, grades, 2), 1)[:, :-1].reshape(nodes, -1)
        from_top = np.cumsum(weights.reshape(nodes, grades, 2)[:, ::-1], 1)[:, -2::-1]
        rising[:, :-2] = from_top.reshape(nodes, -1) * (1.0 if curvature else -1.0)
    field = np.zeros((nodes, columns))
    near = near_panels(centres, alpha)
    steps = strategy == "type3" and not curvature
    if steps:
        zero = np.zeros((1, columns))
        before = np.concatenate([zero, np.cumsum(rising, 0)])[node_ends]
        after = np.concatenate([np.cumsum(falling[::-1], 0)[::-1], zero])[node_ends]
        field += np.repeat(before[near[0]] + after[near[1]], np.diff(node_ends), axis=0)
    meet(not steps, alpha, centres, node_ends, *near, E, falling, rising, field)
    sign = -1.0 if strategy == "type1" and not curvature else 1.0
    read_field(sign, t, g, grade, order, ends, node_ends, T, field, np.empty((columns, p)), result)


# T[n, k] = T_k(t_n) are the Chebyshev polynomials at the nodes t_n of a panel.


@compiled_sums
def make_nodes(
    t: Any, g: Any, grade: Any, ends: Any, node_ends: Any, T: Any, M: Any, E: Any, weights: Any
) -> None:
    """Nodes with the effect of a panel's documents on distant targets, per grade and for 1 and g.

    M[2h, k] = Σ T_k(t) and M[2h + 1, k] = Σ g·T_k(t) are the moments of grade h.
    """
    columns, p = M.shape
    for panel in range(ends.size - 1):
        node = node_ends[panel]
        if ends[panel + 1] - ends[panel] <= p:
            for i in range(ends[panel], ends[panel + 1]):
                E[node] = math.exp(t[i])
                weights[node, 2 * grade[i]] = 1.0
                weights[node, 2 * grade[i] + 1] = g[i]
                node += 1
            continue
        for c in range(columns):
            for k in range(p):
                M[c, k] = 0.0
        for i in range(ends[panel], ends[panel + 1]):
            c = 2 * grade[i]
            value, before = 1.0, t[i]
            for k in range(p):
                M[c, k] += value
                M[c + 1, k] += g[i] * value
                value, before = 2 * t[i] * value - before, value
        for n in range(p):
            E[node + n] = math.exp(T[n, 1])
            for c in range(columns):
                weight = M[c, 0] / 2
                for k in range(1, p):
                    weight += T[n, k] * M[c, k]
                weights[node + n, c] = 2 * weight / p


@compiled_sums
def meet(
    bell: bool,
    alpha: float,
    centres: Any,
    node_ends: Any,
    near_begin: Any,
    near_end: Any,
    E: Any,
    falling: Any,
    rising: Any,
    field: Any,
) -> None:
    """Add the contribution of near panels' nodes to the field at every node: σ or σ(1 − σ)."""
    for panel in range(centres.size):
        for source in range(near_begin[panel], near_end[panel]):
            shift = math.exp(alpha * (centres[source] - centres[panel]))
            for i in range(node_ends[panel], node_ends[panel + 1]):
                for j in range(node_ends[source], node_ends[source + 1]):
                    part = 1 / (E[i] + E[j] * shift)
                    fall, rise = E[j] * shift * part, E[i] * part
                    if bell:
                        fall *= rise
                        rise = fall
                    for c in range(field.shape[1]):
                        field[i, c] += fall * falling[j, c] + rise * rising[j, c]


@compiled_sums
def read_field(
    sign: float,
    t: Any,
    g: Any,
    grade: Any,
    order: Any,
    ends: Any,
    node_ends: Any,
    T: Any,
    field: Any,
    M: Any,
    result: Any,
) -> None:
    """Interpolate the field of a panel's nodes at its documents: ±g · (that of 1) + that of g."""
    columns, p = M.shape
    for panel in range(ends.size - 1):
        node = node_ends[panel]
        if ends[panel + 1] - ends[panel] <= p:
            for i in range(ends[panel], ends[panel + 1]):
                c = 2 * grade[i]
                result[order[i]] = sign * g[i] * field[node, c] + field[node, c + 1]
                node += 1
            continue
        for c in range(columns):
            for k in range(p):
                total = 0.0
                for n in range(p):
                    total += T[n, k] * field[node + n, c]
                M[c, k] = total * (1 if k == 0 else 2) / p
        for i in range(ends[panel], ends[panel + 1]):
            c = 2 * grade[i]
            plain, by_g = 0.0, 0.0
            value, before = 1.0, t[i]
            for k in range(p):
                plain += M[c, k] * value
                by_g += M[c + 1, k] * value
                value, before = 2 * t[i] * value - before, value
            result[order[i]] = sign * g[i] * plain + by_g
