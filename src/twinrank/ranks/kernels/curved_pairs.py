"""The compiled loops of `curvature.py`: those of `pairs.py`, with a second sum per document."""

import math
from typing import Any

import numpy as np

from twinrank.ranks.kernels.pairs import BY_ROWS
from twinrank.support.compiled import compiled, compiled_sums


@compiled_sums
def each_curved_bell(
    start: int,
    stop: int,
    sign: float,
    offsets: Any,
    levels: Any,
    E: Any,
    g: Any,
    sums: Any,
    bends: Any,
) -> None:
    """Types 1 and 2: `each_bell`, and the size of every pair's force to both of its documents."""
    one = E.dtype.type(1)
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], E.dtype.type(sign) * g[a]
            total = E_a - E_a
            bend = E_a - E_a
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                part = one / (E_a + E[j])
                force = (g[j] + g_a) * ((E_a * part) * (E[j] * part))
                sums[j] -= force
                total += force
                bends[j] += abs(force)
                bend += abs(force)
            sums[a], bends[a] = total, bend


@compiled_sums
def each_curved_step(
    start: int, stop: int, offsets: Any, levels: Any, E: Any, g: Any, sums: Any, bends: Any
) -> None:
    """Type 3: `each_step`, and |g_j + g_a| · σ(x_aj) · σ(−x_aj) to both documents of a pair."""
    one = E.dtype.type(1)
    for q in range(start, stop):
        if offsets[q + 1] - offsets[q] >= BY_ROWS:
            continue
        for a in range(offsets[q], offsets[q + 1]):
            E_a, g_a = E[a], g[a]
            total = E_a - E_a
            bend = E_a - E_a
            for j in range(np.uintp(offsets[q]), np.uintp(levels[0, a])):
                part = one / (E_a + E[j])
                force = (g[j] + g_a) * (E[j] * part)
                curve = abs(force) * (E_a * part)
                sums[j] -= force
                total += force
                bends[j] += curve
                bend += curve
            sums[a], bends[a] = total, bend


@compiled
def curved_rows(
    start: int,
    stop: int,
    strategy: int,
    lists: Any,
    levels: Any,
    x: Any,
    g: Any,
    sums: Any,
    bends: Any,
) -> None:
    """Any strategy, row by row, for what the loops above leave out: an exponential per pair."""
    for a in range(start, stop):
        if lists[0, a] == lists[1, a]:
            continue
        total, bend = 0.0, 0.0
        for j in range(lists[0, a], lists[1, a]):
            u = 1.0 if j < levels[0, a] else -1.0 if j >= levels[1, a] else 0.0
            near = math.exp(-abs(x[a] - x[j]))
            bell = near / (1 + near) ** 2
            if strategy == 1:
                force = (g[j] - g[a]) * bell
                total += force
                bend += abs(force)
            elif u != 0:
                both = g[j] + g[a]
                wrong = u * (x[a] - x[j]) < 0
                slope = bell if strategy == 2 else (1 if wrong else near) / (1 + near)
                total += both * u * slope
                bend += abs(both) * bell
        sums[a], bends[a] = total, bend
