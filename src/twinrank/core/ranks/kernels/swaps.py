"""The pair sum of `strategy="swap"`: each pair weighted by the change if the two swapped places.

    ∂L/∂y_a = −α Σ_j u_aj · |ΔM_aj| · σ(−α · u_aj · y_aj)
    h_a     = α² Σ_j |u_aj| · |ΔM_aj| · σ(αy_aj) · σ(−αy_aj)

with u_aj = sign(label_a − label_j), and ΔM_aj the exact change of the measure if a and j swapped
places, averaged over S rankings (Burges, MSR-TR-2010-82, for any measure). The gradient treats |ΔM|
as a constant. `Swaps` in `core/measures/measure_base.py` gives it in closed form, so a pair costs S
multiplications and one exponential. |ΔM| is not a smooth function of the scores, so long lists
visit every pair that can change the measure. With a cutoff k, these are the pairs with a document
among the first k of one of the S rankings, about m · k · S; without one, all m² / 2.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels.device_choice import device_kernel
from twinrank.support.arrays import on_cpu
from twinrank.support.compiled import compiled, in_threads, spans

_PAIRS_PER_THREAD = 100_000


def swap_sums(
    scores: Any,
    labels: Any,
    ranks: Any,
    swaps: Any,
    lists: Lists,
    alpha: float = 1.0,
    parallel: bool = True,
) -> tuple[Any, Any]:
    """∂L/∂score and h of every document, for L = −(the mean measure of S rankings).

    All are NumPy arrays, or all tensors on one device. `ranks` has shape (S, documents). `swaps` is
    a `Swaps` of the measure at these ranks, in rank order. `parallel=False` uses only the calling
    thread.
    """
    if not lists.documents:
        return scores * 0, scores * 0
    samples = ranks.reshape(-1, lists.documents)
    tiled = lists.tile(len(samples))
    if not on_cpu(scores):
        return _on_device(scores, labels, samples, swaps, lists, alpha)
    per_document = [
        _by_document(tiled.restore(np.asarray(x, np.float64), samples.reshape(-1)), lists)
        for x in (swaps.worth, swaps.scale, swaps.ahead, swaps.behind)
    ]
    worth = np.ascontiguousarray(per_document[0][:, 0])
    order, active = _active_first(per_document[1], per_document[2], per_document[3], lists)
    arrays = (
        scores.astype(np.float64), np.asarray(labels, np.float64), worth,
        _by_document(samples, lists), *per_document[1:],
    )  # fmt: skip
    if order is not None:
        arrays = tuple(x[order] for x in arrays)
    sums, curves = np.zeros(scores.size), np.zeros(scores.size)
    shared = (alpha, lists.offsets, active, *arrays, sums, curves)
    parts = spans(lists.sizes * active, _PAIRS_PER_THREAD) if parallel else [(0, len(lists))]
    in_threads(_each_swap, parts, *shared)
    if order is not None:
        back = np.argsort(order)
        sums, curves = sums[back], curves[back]
    gradient, curvature = alpha / len(samples) * sums, alpha**2 / len(samples) * curves
    return gradient.astype(scores.dtype), curvature.astype(scores.dtype)


def _on_device(
    scores: Any, labels: Any, samples: Any, swaps: Any, lists: Lists, alpha: float
) -> tuple[Any, Any]:
    """Sums of tensors, by the kernel of their device."""
    from twinrank.core.ranks.kernels.blocks import swap_sums_in_blocks
    from twinrank.core.ranks.kernels.tiles import swap_sums_in_tiles

    tiled, ranks = lists.tile(len(samples)), samples.reshape(-1)
    parts = {
        name: tiled.restore(value, ranks).reshape(samples.shape)
        for name, value in vars(swaps).items()
    }
    run = swap_sums_in_tiles if device_kernel(scores) == "triton" else swap_sums_in_blocks
    return run(scores, labels, samples, replace(swaps, **parts), lists, alpha)


def _active_first(scale: Any, ahead: Any, behind: Any, lists: Lists) -> tuple[Any, Any]:
    """An order with the active documents of each list first, None if all are; and their number.

    No swap of two inactive documents changes the measure: beyond the cutoff of an additive measure
    both ends of |ahead − behind| are 0, and for others the scale.
    """
    no_scale = (scale == 0).all(axis=1)
    no_ends = ((ahead == 0) & (behind == 0)).all(axis=1)
    inactive = no_scale if no_scale.sum() >= no_ends.sum() else no_ends
    if not inactive.any():
        return None, lists.sizes
    order = np.lexsort((inactive, lists.index(scale)))
    return order, np.asarray(lists.sum((~inactive).astype(np.float64))).astype(np.int64)


def _by_document(x: Any, lists: Lists) -> Any:
    """(S, documents) as (documents, S), so that the samples of a document are adjacent."""
    return np.ascontiguousarray(x.reshape(-1, lists.documents).T)


@compiled
def _each_swap(
    start: int, stop: int,
    alpha: float, offsets: Any, active: Any, y: Any, labels: Any, worth: Any,
    ranks: Any, scale: Any, ahead: Any, behind: Any,
    sums: Any, curves: Any,
) -> None:  # fmt: skip
    """Each pair of different labels in lists start…stop − 1 with an active document, once."""
    for q in range(start, stop):
        for a in range(offsets[q], offsets[q] + active[q]):
            for j in range(a + 1, offsets[q + 1]):
                difference = abs(worth[a] - worth[j])
                if labels[a] == labels[j] or difference == 0:
                    continue
                change = 0.0
                for s in range(ranks.shape[1]):
                    if ranks[a, s] < ranks[j, s]:
                        change += scale[a, s] * abs(ahead[a, s] - behind[j, s])
                    else:
                        change += scale[j, s] * abs(ahead[j, s] - behind[a, s])
                gap = alpha * (y[a] - y[j] if labels[a] > labels[j] else y[j] - y[a])
                near = math.exp(-abs(gap))  # e^−|gap|, so that nothing overflows
                curve = difference * change * near / (1 + near) ** 2
                force = difference * change * (1 if gap < 0 else near) / (1 + near)
                if labels[a] > labels[j]:
                    force = -force
                sums[a] += force
                sums[j] -= force
                curves[a] += curve
                curves[j] += curve
