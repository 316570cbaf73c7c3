"""The compiled loops of the kernel for long lists; `long.py` says what they are for.

T[n, k] = T_k(t_n) are the Chebyshev polynomials at the nodes t_n of a panel.
"""

import math
from typing import Any

from twinrank.support.compiled import compiled_sums


@compiled_sums
def make_nodes(
    t: Any, g: Any, grade: Any, ends: Any, node_ends: Any, T: Any, M: Any, E: Any, weights: Any
) -> None:
    """Nodes that act on far-away targets as a panel's documents do, per grade and for 1 and g.

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
    """Add to the field at every node what near panels' nodes cause there, by σ or by σ(1 − σ)."""
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
    """Interpolate the field between a panel's nodes to its documents, ±g times that of 1 and g."""
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
