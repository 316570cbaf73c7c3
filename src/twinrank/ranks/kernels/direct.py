"""The pair sum on the CPU, pair by pair: fused, ragged, parallel, no m × m array.

With E = exp(α(y − centre)) one division per pair gives both σ(α(y_a − y_j)) = E_a / (E_a + E_j) and
its complement. Sorting each list by label first turns u_aj into two ranges of j: the documents with
a lower label (u = 1) come before, those with a higher label (u = −1) after. What a pair adds to one
of its documents it takes from the other, so each pair is visited once and the lists are shared out
among the threads. Very long lists are shared out by rows of the matrix of pairs, which visits pairs
twice but keeps rows independent. Either way the result has the same bits on any number of threads.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from twinrank.lists import Lists
from twinrank.ranks.kernels.pairs import (
    BY_ROWS,
    each_bell,
    each_step,
    sort_by_grade,
    type1_rows,
    type2_rows,
    type3_rows,
    wide_rows,
)
from twinrank.ranks.strategies import RankStrategy
from twinrank.support.compiled import in_threads, spans, threads
from twinrank.support.segments import grades_of

_WIDEST = {np.dtype(np.float32): 60.0, np.dtype(np.float64): 600.0}
"""The spread α(max − min) of a list up to which E, 1/E and E·E keep clear of the type's limits …"""

_LARGEST = {np.dtype(np.float32): 1e10, np.dtype(np.float64): 1e40}
"""… even times a rank gradient of this size; larger ones are scaled down, list by list."""

SCALE: dict[RankStrategy, float] = {"type1": 1.0, "type2": -1.0, "type3": -2.0}
"""What stands, times α, before the sum over pairs."""

_PAIRS_PER_THREAD = 1_000_000
"""Below this many pairs a second thread costs more than it saves."""


@dataclass(frozen=True)
class DirectKernel:
    """Every pair of a list, in compiled loops: the fastest way up to about 1,500 documents."""

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
        order, levels, x, E, g, wide, scale = by_grade(
            scores, labels, rank_gradient, lists, strategy, alpha
        )
        sums = np.empty_like(scores)
        arrays = (levels, E, g, sums)
        pairs = pair_spans(lists)
        if strategy == "type3":
            in_threads(each_step, pairs, lists.offsets, *arrays)
        else:
            sign = -1.0 if strategy == "type1" else 1.0
            in_threads(each_bell, pairs, sign, lists.offsets, *arrays)
        if lists.longest >= BY_ROWS:
            rows = {"type1": type1_rows, "type2": type2_rows, "type3": type3_rows}[strategy]
            in_threads(rows, row_spans(lists), bounds_of(lists, lists.sizes >= BY_ROWS), *arrays)
        if wide.any():
            number, bounds = int(strategy[-1]), bounds_of(lists, wide)
            in_threads(wide_rows, row_spans(lists), number, bounds, levels, x, g, sums)
        result = np.empty_like(scores)
        result[order] = sums
        with np.errstate(over="ignore", invalid="ignore"):  # what is infinite may show as such
            return (scale * result).astype(scores.dtype, copy=False)


class ByGrade(NamedTuple):
    """What the loops over pairs are given: the documents of each list sorted by grade."""

    order: Any  # the documents in this order
    levels: Any  # levels[:, a] bounds those that share the grade of a
    x: Any  # α(y − centre), in double precision
    E: Any  # exp(x), and 1 in wide lists
    g: Any
    wide: Any  # lists whose scores spread too far for E
    scale: Any  # what stands before the sum: a number, or one per document in the caller's order


def by_grade(
    scores: Any, labels: Any, rank_gradient: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> ByGrade:
    """Sort each list by grade, and take the exponential of its scores where it has room for it."""
    x, g, size = scores.astype(np.float64), rank_gradient, scores.size
    scale: Any = SCALE[strategy] * alpha
    if np.abs(g).max(initial=0) > _LARGEST[scores.dtype]:
        largest = lists.max(np.abs(g))
        largest = lists.spread(np.where(largest > 0, largest, 1.0))
        with np.errstate(invalid="ignore"):
            g, scale = (g / largest).astype(scores.dtype), scale * largest
    lowest, highest = lists.min(x), lists.max(x)
    with np.errstate(over="ignore"):  # beyond every limit is as good as infinity
        wide = alpha * (highest - lowest) > _WIDEST[scores.dtype]
        x = alpha * (x - lists.spread(lowest / 2 + highest / 2))
    order, levels = np.arange(size), np.empty((2, size), np.int64)
    if strategy == "type1":  # which knows no labels: every document is a level of its own
        levels[0], levels[1] = order, order + 1
    else:
        grades, top = grades_of(labels, lists.offsets)
        in_threads(
            sort_by_grade, spans(lists.sizes, 16384), lists.offsets, grades, top, order, levels
        )
        x, g = x[order], g[order]
    within = x
    if wide.any():
        x = np.clip(x, -1e300, 1e300)  # so that differences are numbers
        within = np.where(lists.spread(wide), 0.0, x)
    return ByGrade(order, levels, x, np.exp(within).astype(scores.dtype), g, wide, scale)


def bounds_of(lists: Lists, chosen: Any) -> Any:
    """Where the list of each document begins and ends; nowhere if the list isn't chosen."""
    ends = np.stack([lists.offsets[:-1], lists.offsets[1:]]) * chosen
    return np.repeat(ends, lists.sizes, axis=1)


def pair_spans(lists: Lists) -> list[tuple[int, int]]:
    """Cut the lists into ranges with like numbers of pairs."""
    return spans(lists.sizes**2, _PAIRS_PER_THREAD)


def row_spans(lists: Lists) -> list[tuple[int, int]]:
    """Cut the rows of all lists into ranges with like numbers of pairs, through long lists too."""
    pairs = np.concatenate([[0], np.cumsum(lists.sizes.astype(np.float64) ** 2)])
    parts = int(min(threads(), pairs[-1] // _PAIRS_PER_THREAD))
    if parts <= 1:
        return [(0, lists.documents)]
    cuts = np.interp(pairs[-1] * np.arange(1, parts) / parts, pairs, lists.offsets).astype(int)
    bounds = np.unique([0, *cuts, lists.documents]).tolist()
    return list(pairwise(bounds))
