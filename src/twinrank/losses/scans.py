"""Sums of exponentials per list, in logarithms: nothing overflows or vanishes."""

from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.support.arrays import Array, as_float, from_numpy, namespace, on_cpu, to_numpy
from twinrank.support.compiled import compiled


def log_sum_exp(x: Array, lists: Lists) -> Array:
    """log Σ exp(x) of each list; −∞ for a list without documents."""
    xp, top = namespace(x), lists.max(x)
    total = lists.sum(xp.exp(x - lists.spread(top)))
    return xp.where(total > 0, top + xp.log(xp.where(total > 0, total, 1.0)), -np.inf)


def log_cumsum_exp(
    x: Array, lists: Lists, *, places: Array | None = None, reverse: bool = False
) -> Array:
    """log Σ_{j ≤ i} exp(x_j) of each document i within its list; `reverse`: Σ_{j ≥ i}.

    With `places`, which must not decrease within a list, terms fade with the way that they come:
    log Σ_j exp(x_j − |places_i − places_j|). Every sum is taken relative to its own largest term:
    relative to the list's, the sum over the end of a list whose scores lie 1,000 below the best
    would be 0.

    >>> log_cumsum_exp(np.array([0.0, 0.0, 1e4]), Lists.from_sizes([3])).round(4)[:2]
    array([0.    , 0.6931])
    """
    x = as_float(x)
    if not on_cpu(x):
        return _by_doubling(
            x, lists, namespace(x).zeros_like(x) if places is None else places, reverse
        )
    values = to_numpy(x)
    where = np.zeros_like(values) if places is None else to_numpy(places)
    result = np.empty_like(values)
    _scan(values, where, lists.offsets, reverse, result)
    return from_numpy(result, like=x)


def neighbour(
    x: Array, lists: Lists, places: Array, *, step: int = 1, reverse: bool = False
) -> Array:
    """The value `step` documents before (`reverse`: after), faded by the way; −∞ beyond the list.

    Of tensors.
    """
    xp, position = namespace(x), lists.positions(x)
    shift = -step if reverse else step
    inside = position > step
    if reverse:
        inside = xp.roll(inside, -step, 0)
        # A document that comes `step` later is in the same list if its position is beyond `step`;
        # what is rolled around the end isn't.
        inside[max(len(x) - step, 0) :] = False
    way = abs(places - xp.roll(places, shift, 0))
    return xp.where(inside, xp.roll(x, shift, 0) - way, -np.inf)


def _by_doubling(x: Array, lists: Lists, places: Array, reverse: bool) -> Array:
    """Combine with what lies 1, 2, 4, … documents before, in log₂(longest) steps."""
    step = 1
    while step < lists.longest:
        x = namespace(x).logaddexp(x, neighbour(x, lists, places, step=step, reverse=reverse))
        step *= 2
    return x


@compiled
def _scan(x: Any, places: Any, offsets: Any, reverse: bool, result: Any) -> None:
    for q in range(offsets.size - 1):
        top, total = -np.inf, 0.0  # the largest so far; Σ exp(x − top)
        before = offsets[q]
        for step in range(offsets[q + 1] - offsets[q]):
            i = offsets[q + 1] - 1 - step if reverse else offsets[q] + step
            if step > 0:
                top -= abs(places[i] - places[before])
            before = i
            if x[i] > top:
                total = total * np.exp(top - x[i]) + 1.0
                top = x[i]
            else:
                total += np.exp(x[i] - top)
            result[i] = top + np.log(total)
