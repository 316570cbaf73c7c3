"""Compiled loops for measures of variety: the greedy ideal order, and what a swap changes.

A document has a set of sub-topics, a whole number with one binary digit for each. A document that
has sub-topic t counts B(r) · D(r) there, with the discount D (0 beyond the cutoff), B(r) = βᶜ,
β = 1 − α, and c earlier documents of t. T(r) is the sum of these terms up to rank r. If the
documents at ranks p < q swap, and only the first has sub-topic t, the measure loses

    B(p)·D(p) − B(q)·D(q) / β − (1/β − 1) · (T(q) − T(p))

and if only the second has it, the measure loses

    β·B(q)·D(q) − B(p)·D(p) + (1 − β) · (T(q) − T(p)).

Each pair is pushed towards the better of its two orders, by the mean change ΔM over S rankings:

    ∂L/∂y_a = −α Σ_j sign(ΔM_aj) · |ΔM_aj| · σ(−α · sign(ΔM_aj) · y_aj)

The sign is that of the change, not of the labels: a new sub-topic is better than a known one.
"""

import math
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.support.arrays import is_tensor, to_numpy
from twinrank.support.compiled import compiled, in_threads, spans

_PAIRS_PER_THREAD = 20_000
_PER_THREAD = 1 << 14


def greedy_ideal(sets: Any, lists: Lists, subtopics: int, beta: float, discounts: Any) -> Any:
    """Σ gain · discount of a greedy order of every list: the next document has the highest gain.

    The best order is NP-hard to find (Clarke et al. 2008). `sets` descend within each list, and
    equal gains go to the larger number. `discounts` ends at the cutoff.
    """
    values = np.zeros(len(lists))
    own = np.ascontiguousarray(to_numpy(sets.cpu() if is_tensor(sets) else sets), np.float64)
    shared = (lists.offsets, own.astype(np.int64), subtopics, beta, discounts, values)
    in_threads(_each_ideal, spans(lists.sizes, _PER_THREAD), *shared)
    if not is_tensor(sets):
        return values
    import torch

    return torch.as_tensor(values).to(sets)


def subtopic_swaps(
    scores: Any,
    sets: Any,
    ranks: Any,
    scale: Any,
    lists: Lists,
    subtopics: int,
    beta: float,
    discounts: Any,
    alpha: float,
    parallel: bool,
) -> tuple[Any, Any]:
    """∂L/∂score and the positive diagonal h for L = −scale · Σ credit · discount.

    All are NumPy arrays in the order of the documents; `scale` has one number per list, and
    `discounts` one per rank.
    """
    y = np.ascontiguousarray(scores, np.float64)
    samples = np.ascontiguousarray(ranks.reshape(-1, lists.documents).T.astype(np.int64))
    sums, curves = np.zeros((2, y.size))
    shared = (
        alpha, lists.offsets, y, sets.astype(np.int64), samples, scale, subtopics, beta,
        discounts, sums, curves,
    )  # fmt: skip
    parts = spans(lists.sizes**2, _PAIRS_PER_THREAD) if parallel else [(0, len(lists))]
    in_threads(_each_swap, parts, *shared)
    return sums.astype(scores.dtype), curves.astype(scores.dtype)


@compiled
def _each_ideal(
    start: int, stop: int, offsets: Any, sets: Any, subtopics: int, beta: float, discounts: Any,
    values: Any,
) -> None:  # fmt: skip
    """The lists start … stop − 1; documents with the same sub-topics are counted together."""
    gains = np.empty(subtopics)
    for q in range(start, stop):
        first, size = offsets[q], offsets[q + 1] - offsets[q]
        kinds, left = np.empty(size, np.int64), np.zeros(size, np.int64)
        number = 0
        for i in range(first, offsets[q + 1]):
            if number == 0 or sets[i] != kinds[number - 1]:
                kinds[number] = sets[i]
                number += 1
            left[number - 1] += 1
        gains[:] = 1.0
        for r in range(min(size, discounts.size)):
            best, highest = -1, 0.0
            for u in range(number):
                if left[u] > 0:
                    gain = 0.0
                    for t in range(subtopics):
                        if kinds[u] >> t & 1:
                            gain += gains[t]
                    if gain > highest:
                        best, highest = u, gain
            if best < 0:
                break
            left[best] -= 1
            values[q] += highest * discounts[r]
            for t in range(subtopics):
                if kinds[best] >> t & 1:
                    gains[t] *= beta


@compiled
def _each_swap(
    start: int, stop: int, alpha: float, offsets: Any, y: Any, sets: Any, ranks: Any, scale: Any,
    subtopics: int, beta: float, discounts: Any, sums: Any, curves: Any,
) -> None:  # fmt: skip
    """Each pair of different sets in lists start … stop − 1, once."""
    samples = ranks.shape[1]
    for q in range(start, stop):
        first, size = offsets[q], offsets[q + 1] - offsets[q]
        if scale[q] == 0:
            continue
        # By document, sample and sub-topic: the worth B · D at its rank, and T up to it.
        worth, total = np.empty((2, size, samples, subtopics))
        at, seen, sum_of = np.empty(size, np.int64), np.empty(subtopics), np.empty(subtopics)
        counts = np.zeros(size, np.bool_)  # within the cutoff of one of the samples
        for s in range(samples):
            for i in range(size):
                at[ranks[first + i, s] - 1] = i
            seen[:] = 1.0
            sum_of[:] = 0.0
            for r in range(size):
                i = at[r]
                counts[i] = counts[i] or discounts[r] > 0
                for t in range(subtopics):
                    worth[i, s, t] = seen[t] * discounts[r]
                    if sets[first + i] >> t & 1:
                        sum_of[t] += worth[i, s, t]
                        seen[t] *= beta
                    total[i, s, t] = sum_of[t]
        for a in range(size):
            for j in range(a + 1, size):
                only = sets[first + a] ^ sets[first + j]
                if only == 0 or not (counts[a] or counts[j]):
                    continue
                change = 0.0  # of the measure, if a comes before j instead of after it
                for s in range(samples):
                    p, e, side = a, j, 1.0
                    if ranks[first + a, s] > ranks[first + j, s]:
                        p, e, side = j, a, -1.0
                    loss = 0.0
                    for t in range(subtopics):
                        if only >> t & 1:
                            between = total[e, s, t] - total[p, s, t]
                            if sets[first + p] >> t & 1:
                                loss += worth[p, s, t] - worth[e, s, t] / beta
                                loss -= (1 / beta - 1) * between
                            else:
                                loss += beta * worth[e, s, t] - worth[p, s, t]
                                loss += (1 - beta) * between
                    change += side * loss
                change *= scale[q] / samples
                if change == 0.0:
                    continue
                gap = alpha * (y[first + a] - y[first + j])
                gap = gap if change > 0 else -gap
                near = math.exp(-abs(gap))  # e^−|gap|, so that nothing overflows
                curve = alpha**2 * abs(change) * near / (1 + near) ** 2
                force = alpha * change * (1 if gap < 0 else near) / (1 + near)
                sums[first + a] -= force
                sums[first + j] += force
                curves[first + a] += curve
                curves[first + j] += curve
