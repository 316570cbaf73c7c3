"""The pair sum with its curvature, as a Newton step of boosted trees needs it.

Beside the gradient of `pair_sum` there is a positive diagonal h_a ≥ 0. With g held constant:

    type1   h_a = Σ_j |g_j − g_a| · α · K(y_aj)
    type2   h_a = Σ_j |g_a + g_j| · |u_aj| · α · K(y_aj)
    type3   h_a = Σ_j |g_a + g_j| · |u_aj| · 2α · K(y_aj)

Derivation. For type3, ∂/∂y_a of −2α·(g_a + g_j)·u·σ(−α·u·y_aj) is 2α·(g_a + g_j)·u²·K(y_aj), since
σ(αx) has the slope K(x). Where g ≥ 0, as for minus a measure with positive credits, h is the exact
diagonal. The forces of type1 and type2 are bells K, whose slope K′(x) = α·K(x)·(1 − 2σ(αx)) changes
its sign. So the exact diagonals are often negative, and a Newton step would then go uphill.
|K′| ≤ α·K bounds them. The same bound serves g of mixed signs.

One pass computes both sums. Long lists use the gradient of the long kernel, and h from the same
panels, since Σ_j (g_a + g_j)·|u_aj|·K(y_aj) is linear in g. Where it is not linear (type1, g of
mixed signs), lists of `BY_ROWS` documents or more use the looser bound |g_a| + |g_j| ≥ |g_a ± g_j|.
"""

from functools import partial
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels import LONG, pair_sum
from twinrank.core.ranks.kernels.pairs import BY_ROWS, SCALE, direct_sums
from twinrank.core.ranks.kernels.panels import interpolated_curvature
from twinrank.core.ranks.strategies import RankStrategy


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
        return direct_sums(scores, labels, g, lists, strategy, alpha, curvature=True)
    interpolate = _in_panels(g, lists, strategy)
    gradient, curvature = np.empty_like(scores), np.empty_like(scores)
    every_pair = partial(direct_sums, curvature=True)
    for kernel, chosen in ((_interpolated, interpolate), (every_pair, ~interpolate)):
        docs = lists.spread(chosen)
        part = Lists.from_sizes(lists.sizes[chosen])
        arguments = (scores[docs], labels[docs], g[docs], part, strategy, alpha)
        gradient[docs], curvature[docs] = kernel(*arguments)
    return gradient, curvature


def _in_panels(g: Any, lists: Lists, strategy: RankStrategy) -> Any:
    """The long lists in which h is linear in g, and all very long ones."""
    linear = np.zeros(len(lists), np.bool_)
    if strategy != "type1":
        linear = lists.min(g) >= 0
    return (lists.sizes >= LONG) & (linear | (lists.sizes >= BY_ROWS))


def _interpolated(
    scores: Any, labels: Any, g: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> tuple[Any, Any]:
    """The gradient of the long kernel, and the curvature from panels where they pay."""
    gradient = pair_sum(scores, labels, g, lists, strategy=strategy, alpha=alpha)
    sums, done = interpolated_curvature(scores, labels, np.abs(g), lists, strategy, alpha)
    curvature = (abs(SCALE[strategy]) * alpha**2 * sums).astype(scores.dtype, copy=False)
    if not done.all():
        left = lists.spread(~done)
        rest = Lists.from_sizes(lists.sizes[~done])
        arguments = (scores[left], labels[left], g[left], rest, strategy, alpha)
        _, curvature[left] = direct_sums(*arguments, curvature=True)
    return gradient, curvature
