"""The pair sum of long lists without visiting every pair: O(m · p) by Chebyshev interpolation.

In x = α·y the kernels σ(x_a − x_j) and σ·(1 − σ) are analytic within |Im| < π, so over a panel of
width 2 they are polynomials of degree p − 1 up to a relative error of about 6.4⁻ᵖ. A panel's
documents are therefore replaced, as sources, by p nodes with weights that have the same moments,
and, as targets, by the field at p nodes, from which theirs is interpolated. What remains is a sum
over pairs of *nodes*. Three things keep it cheap whatever the scores are:

- only panels that hold documents exist, and one with fewer than p documents uses these as nodes;
- panels further apart than `_FAR` see only each other's total, since σ is 0 or 1 to 17 digits;
- labels enter through weights: for target grade γ the sources of lower and of higher grades have
  their own sums, two per grade, so the cost of a pair of nodes grows with the number of grades.

Cost: a sort by panel and about 6p flops a document, plus panels × near panels × p² × 2 grades for
the nodes. Below about 1,500 documents, or with very many grades, visiting every pair is cheaper.
The idea is that of the fast multipole methods (Greengard & Rokhlin 1987; the "black-box" form with
Chebyshev nodes: Fong & Darve 2009).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.kernels.direct import SCALE, DirectKernel
from twinrank.ranks.kernels.panels import make_nodes, meet, read_field
from twinrank.ranks.strategies import RankStrategy
from twinrank.support.compiled import in_threads, spans
from twinrank.support.segments import grades_of
from twinrank.support.sorting import COUNTS, sort_keys

_FAR = 40.0
_WIDEST = 1e15
"""Beyond this spread float64 numbers lie further apart than panels: every pair is visited."""

_MOST_FIELD_VALUES = 2**24
"""More nodes × grades than this (128 MB) don't pay either."""


@dataclass(frozen=True)
class LongKernel:
    """Interpolated kernel sums; `accuracy` is relative to a list's largest gradient.

    By default 1e-7 for float32 scores and 1e-11 for float64. In a list whose pairs are all further
    apart than 40/α every pair counts as settled: its gradients, below e⁻⁴⁰, come out as zero. And
    type1 is the difference of two sums: its error is relative to the larger one.
    Lists that visiting every pair would serve faster (many distinct labels, scores spread over very
    many panels) are handed to the direct kernel; `always` keeps all but the impossible ones.
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
        accuracy = self.accuracy or (1e-7 if scores.dtype == np.float32 else 1e-11)
        p = nodes_for(accuracy)
        x, g = scores.astype(np.float64), rank_gradient.astype(np.float64)
        grades = np.zeros(scores.size, np.int64)
        if strategy != "type1":
            grades, _ = grades_of(labels, lists.offsets)
        result = np.zeros(scores.size)  # lists left to the direct kernel stay 0 until then
        done = np.zeros(len(lists), np.bool_)

        def sum_lists(start: int, stop: int) -> None:
            for q in range(start, stop):
                docs = slice(lists.offsets[q], lists.offsets[q + 1])
                panels = cut_into_panels(x[docs], g[docs], grades[docs], strategy, alpha, p)
                if panels is not None and (self.always or panels.cost < direct_cost(x[docs].size)):
                    _sum_panels(panels, strategy, alpha, p, result[docs])
                    done[q] = True

        in_threads(sum_lists, spans(lists.sizes, per_thread=1000))
        result *= SCALE[strategy] * alpha
        result = result.astype(scores.dtype, copy=False)
        if not done.all():
            left = lists.spread(~done)
            rest = Lists.from_sizes(lists.sizes[~done])
            arguments = (scores[left], labels[left], rank_gradient[left], rest, strategy, alpha)
            result[left] = DirectKernel()(*arguments)
        return result


def direct_cost(size: int) -> float:
    """What visiting every pair costs, in the unit of `Panels.cost`: a pair of nodes."""
    return 0.12 * size**2


def nodes_for(accuracy: float) -> int:
    """Chebyshev nodes a panel: the ellipse with poles at ±iπ has ρ = π + √(1 + π²) ≈ 6.44.

    Two more make up for the constant, which is larger for the slope of σ than for σ.
    """
    return math.ceil(-math.log(accuracy) / math.log(math.pi + math.hypot(1, math.pi))) + 2


class Panels(NamedTuple):
    """A list's documents in the order of their panels."""

    order: Any  # documents by panel
    t: Any  # α(score − centre of its panel), within about −1…1
    g: Any
    grade: Any  # 0, 1, … in ascending order of labels
    grades: int
    ends: Any  # panel k holds documents ends[k] … ends[k + 1] − 1 …
    node_ends: Any  # … and nodes node_ends[k] … node_ends[k + 1] − 1
    centres: Any  # in units of the scores

    @property
    def cost(self) -> float:
        """Pairs of nodes × grades, and the documents' own share."""
        nodes, panels, size = int(self.node_ends[-1]), len(self.centres), len(self.t)
        return nodes * min(panels, 41) * nodes / panels * (1 + self.grades) + 100.0 * size


def cut_into_panels(
    scores: Any, g: Any, grade: Any, strategy: RankStrategy, alpha: float, p: int
) -> Panels | None:
    """Sort one list by panels of width 2/α; None where that can't be done."""
    size = scores.size
    if size == 0:
        return None
    lowest, highest = float(scores.min()), float(scores.max())
    if not alpha * (highest - lowest) < _WIDEST:  # Python's numbers overflow without a warning
        return None
    used = np.bincount(grade) > 0
    grade, grades = (np.cumsum(used) - 1)[grade], int(used.sum())
    # In place wherever it can be: fresh memory costs long lists more than arithmetic.
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
        g = g - g.mean()  # type1 depends on differences of g alone, and small ones cancel less
    # Measured from the panel's own centre, so that nothing is lost when scores lie far out.
    t = np.take(scores, by_panel, out=x)
    t -= np.repeat(centres, sizes)
    t *= alpha
    return Panels(by_panel, t, g[by_panel], grade[by_panel], grades, ends, node_ends, centres)


def bends_of(
    scores: Any, labels: Any, sizes: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> tuple[Any, Any]:
    """Σ_j (s_a + s_j) · |u_aj| · K(y_aj) / α for sizes s ≥ 0, and for which lists it was found.

    With type1, which knows no labels, |u_aj| is 1 for every other document.
    """
    p = nodes_for(1e-7 if scores.dtype == np.float32 else 1e-11)
    x, s = scores.astype(np.float64), sizes.astype(np.float64)
    grades = np.zeros(scores.size, np.int64)
    if strategy != "type1":
        grades, _ = grades_of(labels, lists.offsets)
    result, done = np.zeros(scores.size), np.zeros(len(lists), np.bool_)

    def sum_lists(start: int, stop: int) -> None:
        for q in range(start, stop):
            docs = slice(lists.offsets[q], lists.offsets[q + 1])
            panels = cut_into_panels(x[docs], s[docs], grades[docs], "type2", alpha, p)
            if panels is not None and panels.cost < direct_cost(x[docs].size):
                _sum_panels(panels, strategy, alpha, p, result[docs], bends=True)
                done[q] = True

    in_threads(sum_lists, spans(lists.sizes, per_thread=1000))
    if strategy == "type1":
        result -= s / 2  # a document with itself: 2s · ¼
    return np.maximum(result, 0.0), done


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
    panels: Panels, strategy: RankStrategy, alpha: float, p: int, result: Any, bends: bool = False
) -> None:
    """Write the unscaled pair sum of one list, or that of its `bends`, in which |u| stands for u.

    All bends are bells.
    """
    order, t, g, grade, grades, ends, node_ends, centres = panels
    T = polynomials(p)
    nodes, columns = int(node_ends[-1]), 2 * grades
    E, weights = np.empty(nodes), np.zeros((nodes, columns))
    make_nodes(t, g, grade, ends, node_ends, T, np.empty((columns, p)), E, weights)

    # What a target of each grade sees: lower grades by σ falling, higher ones by σ rising, with
    # the sign of u_aj; type1, without grades, sees all.
    if strategy == "type1":
        falling, rising = weights, np.zeros_like(weights)
    else:
        falling, rising = np.zeros_like(weights), np.zeros_like(weights)
        falling[:, 2:] = np.cumsum(weights.reshape(nodes, grades, 2), 1)[:, :-1].reshape(nodes, -1)
        from_top = np.cumsum(weights.reshape(nodes, grades, 2)[:, ::-1], 1)[:, -2::-1]
        rising[:, :-2] = from_top.reshape(nodes, -1) * (1.0 if bends else -1.0)
    field = np.zeros((nodes, columns))
    near = near_panels(centres, alpha)
    steps = strategy == "type3" and not bends
    if steps:
        zero = np.zeros((1, columns))
        before = np.concatenate([zero, np.cumsum(rising, 0)])[node_ends]
        after = np.concatenate([np.cumsum(falling[::-1], 0)[::-1], zero])[node_ends]
        field += np.repeat(before[near[0]] + after[near[1]], np.diff(node_ends), axis=0)
    meet(not steps, alpha, centres, node_ends, *near, E, falling, rising, field)
    sign = -1.0 if strategy == "type1" and not bends else 1.0
    read_field(sign, t, g, grade, order, ends, node_ends, T, field, np.empty((columns, p)), result)
