"""The weighted logistic loss of pairs (LambdaRank, LambdaLoss) and its gradient, in one pass.

    L = Σ_{gain_i > gain_j} w_ij · log(1 + e^{−α(s_i − s_j)})
    w_ij = (gain_i − gain_j) · (|D(r_i) − D(r_j)| + N(|r_i − r_j|))

with the current ranks r, a discount D and a function N of the distance of ranks. The gradient
treats w as a constant. On the CPU documents are in rank order. So D and N are read sequentially,
and the later document of a pair has the smaller e^x. A pair adds the same force to one document
that it takes from the other, so it is visited once. Weights depend on ranks and are not smooth, so
long lists visit every pair, too. Their rows are split into parts with their own sums. The parts do
not depend on the number of threads, so neither do the bits. Beyond rank k, D is 0: without N only
pairs with a document among the first k are visited.
"""

import math
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels.device_choice import device_kernel
from twinrank.core.ranks.kernels.logistic import log_one_plus
from twinrank.support.arrays import Array, as_float, namespace, on_cpu
from twinrank.support.compiled import compiled, compiled_sums, in_threads, spans

_WIDEST = 600.0
"""Up to this spread α(max − min), e^x stays within the limits of double precision."""

_PART = 2_000_000
"""Pairs per part of a long list …"""

_MOST_PARTS = 64
"""… and the maximum number of parts, each with a sum for every document."""

_PAIRS_PER_THREAD = 500_000


_LIST, _FIRST, _BEGIN, _END, _PLACE, _WIDE = range(6)
"""Columns of a part: list, first document of the list, rows, place of its sums, wide or not."""


def lambda_sums(
    scores: Array,
    gains: Array,
    ranks: Array,
    lists: Lists,
    discounts: Any,
    nearness: Any,
    alpha: float,
) -> tuple[Array, Array]:
    """L of each list, and ∂L/∂score of each document.

    The tables are arrays of the scores' library: `discounts` D(1), D(2), …, descending, 0 after the
    last entry; `nearness` N(0), N(1), … up to the length of the longest list, or None for 0.
    """
    reach = lists.longest
    missing = max(0, reach - len(discounts))
    if not on_cpu(scores):
        from twinrank.core.ranks.kernels.blocks import lambda_sums_in_blocks
        from twinrank.core.ranks.kernels.tiles import lambda_sums_in_tiles

        tiled = device_kernel(scores) == "triton"
        run = lambda_sums_in_tiles if tiled else lambda_sums_in_blocks
        discounts = namespace(scores).nn.functional.pad(discounts, (0, missing))
        return run(scores, gains, ranks, lists, discounts, nearness, alpha)
    if nearness is None:
        reach, nearness = min(reach, len(discounts)), np.zeros(reach + 1)
    discounts = np.concatenate([discounts, np.zeros(missing)])
    lowest, highest = lists.min(scores), lists.max(scores)
    with np.errstate(over="ignore"):  # an infinite spread is wide, too
        wide = alpha * (highest - lowest) > _WIDEST
        x = alpha * (as_float(scores) - lists.spread(lowest / 2 + highest / 2))
    if wide.any():  # next to an outlier, others would lose their digits
        x = np.where(lists.spread(wide), as_float(scores), x)
    x = lists.arrange(x, ranks)
    E = np.exp(np.where(lists.spread(wide), 0.0, x) if wide.any() else x)
    parts, pairs = _cut(lists, wide, reach)
    values, forces = np.zeros(len(parts)), np.zeros(parts[:, _END].sum())
    shared = (
        parts,
        reach,
        alpha,
        x,
        E,
        lists.arrange(gains, ranks),
        discounts,
        nearness,
        values,
        forces,
    )
    in_threads(_sum_parts, spans(pairs, _PAIRS_PER_THREAD), *shared)
    slopes = np.zeros(scores.size)
    _add_parts(parts, forces, slopes)
    totals = np.bincount(parts[:, _LIST], values, minlength=len(lists))
    return totals, alpha * lists.restore(slopes, ranks)


def _cut(lists: Lists, wide: Any, reach: int) -> tuple[Any, Any]:
    """Cut lists into parts: ranges of rows with similar numbers of pairs; and these numbers.

    Row a has the pairs of document a with the first min(a, reach) documents.
    """
    top = np.minimum(lists.sizes, reach).astype(np.float64)  # the rows that grow: half a square
    pairs = top**2 / 2 + top * (lists.sizes - top)
    count = np.clip(np.ceil(pairs / _PART), 1, _MOST_PARTS).astype(np.int64)
    of_list = np.repeat(np.arange(len(lists)), count)
    number = np.arange(of_list.size) - np.repeat(np.cumsum(count) - count, count)
    per_part, top = (pairs / count)[of_list], top[of_list]

    def row_after(parts: Any) -> Any:
        before, square = parts * per_part, top**2 / 2
        beyond = top + (before - square) / np.maximum(top, 1)
        return np.where(before <= square, np.sqrt(2 * before), beyond).astype(np.int64)

    end = np.where(number + 1 == count[of_list], lists.sizes[of_list], row_after(number + 1))
    begin = np.where(number == 0, 0, row_after(number))
    place = np.cumsum(end) - end
    parts = np.stack([of_list, lists.offsets[of_list], begin, end, place, wide[of_list]], axis=1)
    return parts.astype(np.int64), per_part.astype(np.int64)


@compiled
def _sum_parts(
    start: int,
    stop: int,
    parts: Any,
    reach: int,
    alpha: float,
    x: Any,
    E: Any,
    gains: Any,
    D: Any,
    N: Any,
    values: Any,
    forces: Any,
) -> None:
    """The losses of parts start … stop − 1, and the forces on their documents."""
    for part in range(start, stop):
        total = 0.0
        for a in range(parts[part, _BEGIN], parts[part, _END]):
            first, place, until = parts[part, _FIRST], parts[part, _PLACE], min(a, reach)
            if parts[part, _WIDE]:
                total += _wide_row(first, place, a, until, alpha, x, gains, D, N, forces)
            else:
                total += _row(first, place, a, until, x, E, gains, D, N, forces)
        values[part] = total


@compiled_sums
def _row(
    first: int, place: int, a: int, until: int,
    x: Any, E: Any, gains: Any, D: Any, N: Any, forces: Any,
) -> float:  # fmt: skip
    """Pairs of document a with the documents ranked before it, up to `until`."""
    # Unsigned indices need no check for negative values, which would prevent vector code.
    i, behind, base, sums = np.uintp(first + a), np.uintp(a), np.uintp(first), np.uintp(place)
    x_a, E_a, gain_a, D_a = x[i], E[i], gains[i], D[behind]
    total, pull = 0.0, 0.0
    for j in range(np.uintp(0), np.uintp(until)):
        weight = (gain_a - gains[base + j]) * (D[j] - D_a + N[behind - j])
        rise = E_a / (E_a + E[base + j])  # σ(x_a − x_j), at most ½
        wrong = weight > 0  # the better document is behind
        log = log_one_plus(E_a, E[base + j]) + (x[base + j] - x_a if wrong else 0.0)
        force = weight * (1 - rise if wrong else rise)
        total += abs(weight) * log
        forces[sums + j] += force
        pull += force
    forces[sums + behind] -= pull
    return total


@compiled
def _wide_row(
    first: int, place: int, a: int, until: int, alpha: float,
    x: Any, gains: Any, D: Any, N: Any, forces: Any,
) -> float:  # fmt: skip
    """The same for lists whose scores spread too far for E: x are the scores themselves."""
    total = 0.0
    for j in range(until):
        weight = (gains[first + a] - gains[first + j]) * (D[j] - D[a] + N[a - j])
        ahead = min(alpha * (x[first + j] - x[first + a]), 1e300)  # sums stay finite
        near = math.exp(-ahead)
        log = math.log1p(near) + (ahead if weight > 0 else 0.0)
        force = weight * (1.0 if weight > 0 else near) / (1 + near)
        total += abs(weight) * log
        forces[place + j] += force
        forces[place + a] -= force
    return total


@compiled
def _add_parts(parts: Any, forces: Any, slopes: Any) -> None:
    """Add the forces of the parts, in order."""
    for part in range(len(parts)):
        for i in range(parts[part, _END]):
            slopes[parts[part, _FIRST] + i] += forces[parts[part, _PLACE] + i]
