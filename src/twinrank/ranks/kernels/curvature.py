"""The pair sum with its curvature: what a step of Newton's method, as in boosted trees, needs.

Beside the gradient of `pair_sum` there is a positive diagonal h_a ≥ 0. With g held, as ranks are:

    type1   h_a = Σ_j |g_j − g_a| · α · K(y_aj)
    type2   h_a = Σ_j |g_a + g_j| · |u_aj| · α · K(y_aj)
    type3   h_a = Σ_j |g_a + g_j| · |u_aj| · 2α · K(y_aj)

Derivation. For type3, ∂/∂y_a of −2α·(g_a + g_j)·u·σ(−α·u·y_aj) is 2α·(g_a + g_j)·u²·K(y_aj), since
σ(αx) has the slope K(x): where g ≥ 0, as of minus a measure whose credits are positive, h is the
diagonal itself. The forces of type1 and type2 are bells K, whose slope K′(x) = α·K(x)·(1 − 2σ(αx))
changes its sign: the true diagonals are often negative, and a step along the gradient over a
negative number climbs. |K′| ≤ α·K bounds them, and g of mixed signs likewise.

One pass makes both sums, each pair visited once: a pair's force goes to one document and from the
other, its curvature to both. Long lists take the gradient of the long kernel, and h from the same
panels, for Σ_j (g_a + g_j)·|u_aj|·K(y_aj) is linear in g. Where it isn't (type1, g of mixed signs)
lists from `BY_ROWS` documents on get |g_a| + |g_j| in place of |g_a ± g_j|: a looser bound.
"""

from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.kernels import LONG, pair_sum
from twinrank.ranks.kernels.curved_pairs import curved_rows, each_curved_bell, each_curved_step
from twinrank.ranks.kernels.direct import SCALE, bounds_of, by_grade, pair_spans, row_spans
from twinrank.ranks.kernels.long import bends_of
from twinrank.ranks.kernels.pairs import BY_ROWS
from twinrank.ranks.strategies import RankStrategy
from twinrank.support.compiled import in_threads


def curved_pair_sum(
    scores: Any,
    labels: Any,
    rank_gradient: Any,
    lists: Lists,
    *,
    strategy: RankStrategy,
    alpha: float = 1.0,
) -> tuple[Any, Any]:
    """∂L/∂score and the diagonal h of every document: NumPy arrays, float32 or float64.

    >>> lists, scores, labels = Lists.from_sizes([2]), np.zeros(2), np.array([1, 0])
    >>> curved_pair_sum(scores, labels, np.array([0.5, 0.0]), lists, strategy="type3")
    (array([-0.5,  0.5]), array([0.25, 0.25]))
    """
    g = np.ascontiguousarray(rank_gradient, scores.dtype)
    if lists.longest < LONG:
        return _every_pair(scores, labels, g, lists, strategy, alpha)
    panels = _by_panels(g, lists, strategy)
    gradient, curvature = np.empty_like(scores), np.empty_like(scores)
    for kernel, chosen in ((_interpolated, panels), (_every_pair, ~panels)):
        docs = lists.spread(chosen)
        some = Lists.from_sizes(lists.sizes[chosen])
        gradient[docs], curvature[docs] = kernel(
            scores[docs], labels[docs], g[docs], some, strategy, alpha
        )
    return gradient, curvature


def _by_panels(g: Any, lists: Lists, strategy: RankStrategy) -> Any:
    """Long lists: those in which h is linear in g, and all that are very long."""
    linear = np.zeros(len(lists), np.bool_)
    if strategy != "type1":
        linear = lists.min(g) >= 0
    return (lists.sizes >= LONG) & (linear | (lists.sizes >= BY_ROWS))


def _every_pair(
    scores: Any, labels: Any, g: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> tuple[Any, Any]:
    """Both sums in one pass over the pairs."""
    order, levels, x, E, g, wide, scale = by_grade(scores, labels, g, lists, strategy, alpha)
    sums, bends = np.empty_like(scores), np.empty_like(scores)
    pairs = pair_spans(lists)
    if strategy == "type3":
        in_threads(each_curved_step, pairs, lists.offsets, levels, E, g, sums, bends)
    else:
        sign = -1.0 if strategy == "type1" else 1.0
        in_threads(each_curved_bell, pairs, sign, lists.offsets, levels, E, g, sums, bends)
    left = wide | (lists.sizes >= BY_ROWS)
    if left.any():
        number, bounds = int(strategy[-1]), bounds_of(lists, left)
        in_threads(curved_rows, row_spans(lists), number, bounds, levels, x, g, sums, bends)
    gradient, curvature = np.empty_like(scores), np.empty_like(scores)
    gradient[order], curvature[order] = sums, bends
    with np.errstate(over="ignore", invalid="ignore"):
        gradient, curvature = scale * gradient, alpha * np.abs(scale) * curvature
    return gradient.astype(scores.dtype, copy=False), curvature.astype(scores.dtype, copy=False)


def _interpolated(
    scores: Any, labels: Any, g: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> tuple[Any, Any]:
    """The gradient of the long kernel, and the curvature from panels where these can be cut."""
    gradient = pair_sum(scores, labels, g, lists, strategy=strategy, alpha=alpha)
    bends, done = bends_of(scores, labels, np.abs(g), lists, strategy, alpha)
    curvature = (abs(SCALE[strategy]) * alpha**2 * bends).astype(scores.dtype, copy=False)
    if not done.all():
        left = lists.spread(~done)
        rest = Lists.from_sizes(lists.sizes[~done])
        _, curvature[left] = _every_pair(scores[left], labels[left], g[left], rest, strategy, alpha)
    return gradient, curvature
