"""Soft ranks: 1 + Σ_{j≠i} σ(α(s_j − s_i)), how many documents are ahead of i, and how surely.

Their gradient is the pair sum of type1. Short lists visit every pair, one division each; long ones
take the panels of `long.py`; tensors elsewhere go in blocks.
"""

import math
from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.kernels import LONG
from twinrank.ranks.kernels.direct import bounds_of, by_grade, row_spans
from twinrank.ranks.kernels.long import (
    Panels,
    cut_into_panels,
    direct_cost,
    near_panels,
    nodes_for,
    polynomials,
)
from twinrank.ranks.kernels.panels import make_nodes, meet, read_field
from twinrank.support.arrays import Array, as_float, on_cpu, to_numpy
from twinrank.support.compiled import compiled, compiled_sums, in_threads, spans

_NODES = nodes_for(1e-11)


def soft_ranks(scores: Array, lists: Lists, alpha: float) -> Array:
    """The soft rank of every document, between 1 and the length of its list."""
    if not on_cpu(scores):
        from twinrank.ranks.kernels.pair_blocks import soft_ranks_in_blocks

        return soft_ranks_in_blocks(scores, lists, alpha)
    # Double precision whatever the scores have: its exponents reach ten times as far, and a
    # steepness of 10 would take many a list out of the range of single precision.
    scores = as_float(to_numpy(scores))
    nothing = np.zeros(scores.size)
    _, _, x, E, _, wide, _ = by_grade(scores, nothing, nothing, lists, "type1", alpha)
    sums, done = np.zeros(scores.size), np.zeros(len(lists), np.bool_)
    if lists.longest >= LONG:
        sums, done = _by_panels(scores, lists, alpha)
    ranges = row_spans(lists)
    in_threads(_rows, ranges, bounds_of(lists, ~wide & ~done), E, sums)
    if wide.any():
        in_threads(_wide_rows, ranges, bounds_of(lists, wide & ~done), x, sums)
    return 0.5 + sums  # a document beside itself has counted ½


# Rows a = start…stop − 1 of the matrix of pairs: lists[:, a] bounds the list of a, or is empty
# where the row isn't asked for.


@compiled_sums
def _rows(start: int, stop: int, lists: Any, E: Any, sums: Any) -> None:
    """Σ_j σ(x_j − x_a)."""
    for a in range(start, stop):
        if lists[0, a] == lists[1, a]:
            continue
        E_a, total = E[a], 0.0
        for j in range(np.uintp(lists[0, a]), np.uintp(lists[1, a])):
            total += E[j] / (E_a + E[j])
        sums[a] = total


@compiled
def _wide_rows(start: int, stop: int, lists: Any, x: Any, sums: Any) -> None:
    """The same for lists whose scores spread too far for E: an exponential per pair."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            total = 0.0
            for j in range(lists[0, a], lists[1, a]):
                near = math.exp(-abs(x[j] - x[a]))
                total += (1.0 if x[j] > x[a] else near) / (1 + near)
            sums[a] = total


def _by_panels(scores: Any, lists: Lists, alpha: float) -> tuple[Any, Any]:
    """The sums of long lists, and which lists these are: those where interpolation pays."""
    sums, done = np.zeros(scores.size), np.zeros(len(lists), np.bool_)

    def sum_lists(start: int, stop: int) -> None:
        for q in range(start, stop):
            docs = slice(lists.offsets[q], lists.offsets[q + 1])
            if (size := int(lists.sizes[q])) < LONG:
                continue
            one_grade = np.zeros(size, np.int64)
            panels = cut_into_panels(scores[docs], np.ones(size), one_grade, "type3", alpha, _NODES)
            if panels is not None and panels.cost < direct_cost(size):
                _sum_panels(panels, alpha, sums[docs])
                done[q] = True

    in_threads(sum_lists, spans(lists.sizes, per_thread=1000))
    return sums, done


def _sum_panels(panels: Panels, alpha: float, result: Any) -> None:
    """Write Σ_j σ(α(s_j − s_i)) of one list."""
    order, t, ones, grade, _, ends, node_ends, centres = panels
    T, space, nodes = polynomials(_NODES), np.empty((2, _NODES)), int(node_ends[-1])
    E, weights = np.empty(nodes), np.zeros((nodes, 2))
    make_nodes(t, ones, grade, ends, node_ends, T, space, E, weights)
    near = near_panels(centres, alpha)
    # All of a panel that is far above counts; one that is far below doesn't.
    after = np.concatenate([np.cumsum(weights[::-1], 0)[::-1], np.zeros((1, 2))])[node_ends]
    field = np.repeat(after[near[1]], np.diff(node_ends), axis=0)
    nobody = np.zeros_like(weights)
    meet(False, alpha, centres, node_ends, *near, E, weights, nobody, field)
    read_field(0.0, t, ones, grade, order, ends, node_ends, T, field, space, result)
