"""Entropic optimal transport between two distributions over the documents of each list."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.lists import Lists
from twinrank.losses import sinkhorn
from twinrank.losses.balance import STRIDE, balance_many
from twinrank.losses.scans import log_cumsum_exp, log_sum_exp, neighbour
from twinrank.support.arrays import Array, is_tensor, namespace, on_cpu, to_numpy
from twinrank.support.compiled import in_threads, spans


@dataclass(frozen=True)
class Grades:
    """The documents of each list sorted by label, and where each grade begins."""

    order: Array
    """Sorted document → document."""
    documents: Lists
    """The documents of each grade."""
    grades: Lists
    """The grades of each list."""
    labels: Array
    """The label of each grade, ascending within a list."""

    @classmethod
    def of(cls, labels: Array, lists: Lists) -> "Grades":
        """Sort the labels, on the CPU: lists are made there."""
        values = to_numpy(labels.cpu() if is_tensor(labels) else labels)
        index = np.repeat(np.arange(len(lists)), lists.sizes)
        order = np.lexsort((values, index))
        ordered = values[order]
        new = np.r_[True, (ordered[1:] != ordered[:-1]) | (index[1:] != index[:-1])][: values.size]
        starts = np.flatnonzero(new)
        return cls(
            order=_beside(order, labels),
            documents=Lists.from_offsets(np.r_[starts, values.size]),
            grades=Lists.from_sizes(np.bincount(index[starts], minlength=len(lists))),
            labels=_beside(ordered[starts], labels),
        )


@dataclass(frozen=True)
class Costs:
    """|x_g − x_h| between documents of two grades, `same` within one, 0 for a document itself.

    In units of λ: one entry of x per grade.
    """

    x: Array
    same: float

    @property
    def own(self) -> float:
        """log(1 − exp(−same)): what a document keeps beyond its part in its grade's exchange."""
        return math.log(-math.expm1(-self.same))


@dataclass(frozen=True)
class Plan:
    """P_ij = u_i · exp(−C_ij / λ) · v_j, documents sorted as `Grades` has them."""

    log_u: Array
    log_v: Array
    change: Array
    """The largest relative change of u and v in the last sweep, per list."""


def transport(
    log_a: Array,
    log_b: Array,
    lists: Lists,
    grades: Grades,
    costs: Costs,
    *,
    start: Array,
    sweeps: int,
    tolerance: float,
    newton: bool,
) -> Plan:
    """Scale v, then u, until P has column sums b and row sums a; rows are exact at the end.

    `start` is log u at first. A list is done when a sweep changes no u and v by more than
    `tolerance`, relatively, or after `sweeps` sweeps. `newton`: see `sinkhorn.py`.
    """
    if not on_cpu(log_a):
        return _by_tensors(log_a, log_b, lists, grades, costs, start, sweeps, tolerance, newton)
    log_u, log_v, change = start.copy(), np.zeros_like(log_a), np.zeros(len(lists))
    in_threads(
        sinkhorn.solve,
        spans(lists.sizes, 1024),
        log_a,
        log_b,
        grades.documents.offsets,
        grades.grades.offsets,
        costs.x,
        costs.same,
        costs.own,
        sweeps,
        tolerance,
        newton,
        log_u,
        log_v,
        change,
    )
    return Plan(log_u, log_v, change)


def total_cost(plan: Plan, grades: Grades, costs: Costs) -> Array:
    """⟨P, C⟩ / λ of each list: for every gap between grades, its width times what crosses it."""
    xp, lists = namespace(plan.log_u), grades.grades
    u, v = log_sum_exp(plan.log_u, grades.documents), log_sum_exp(plan.log_v, grades.documents)
    gap = xp.zeros_like(costs.x)
    gap[1:] = costs.x[1:] - costs.x[:-1]
    gap = xp.where(lists.positions(gap) > 1, gap, 0.0)
    crossing = xp.zeros_like(gap)
    for one, other in ((u, v), (v, u)):
        below = log_cumsum_exp(one, lists, places=costs.x)
        above = log_cumsum_exp(other, lists, places=costs.x, reverse=True)
        crossing[1:] += xp.exp(xp.where(gap[1:] > 0, below[:-1] + above[1:] - gap[1:], -np.inf))
    kept = log_sum_exp(plan.log_u + plan.log_v, grades.documents)
    within = (xp.exp(u + v - costs.same) - xp.exp(kept - costs.same)).clip(0)
    return lists.sum(gap * crossing + costs.same * within)


def _by_tensors(
    log_a: Array,
    log_b: Array,
    lists: Lists,
    grades: Grades,
    costs: Costs,
    log_u: Array,
    sweeps: int,
    tolerance: float,
    newton: bool,
) -> Plan:
    """All lists at once; those that are done stay as they are."""
    import torch

    def heard(log_x: Any) -> Any:
        """What each grade receives from all."""
        sums = log_sum_exp(log_x, grades.documents)
        result = sums - costs.same
        for reverse in (False, True):
            running = log_cumsum_exp(sums, grades.grades, places=costs.x, reverse=reverse)
            coming = neighbour(running, grades.grades, costs.x, reverse=reverse)
            result = torch.logaddexp(result, coming)
        return result

    log_v = torch.zeros_like(log_u)
    change = log_u.new_zeros(len(lists))
    going = change >= 0
    for sweep in range(sweeps):
        moving = lists.spread(going)
        before_u, before_v = log_u, log_v
        received = torch.logaddexp(grades.documents.spread(heard(log_u)), costs.own + log_u)
        log_v = torch.where(moving, log_b - received, log_v)
        received = torch.logaddexp(grades.documents.spread(heard(log_v)), costs.own + log_v)
        log_u = torch.where(moving, log_a - received, log_u)
        moved = torch.maximum((log_u - before_u).abs(), (log_v - before_v).abs())
        change = torch.where(going, lists.max(moved), change)
        if sweep > 0:
            going = going & (change > tolerance)
        if not bool(going.any()):
            break
        if newton and sweep < sweeps - 1:  # rows are exact after the last sweep
            p, q = _balance_grades(log_a, log_b, log_u, log_v, grades, costs, 0.01 * tolerance)
            moving = lists.spread(going)
            log_u = torch.where(moving, log_u + grades.documents.spread(p), log_u)
            log_v = torch.where(moving, log_v + grades.documents.spread(q), log_v)
    return Plan(log_u, log_v, change)


def _balance_grades(
    log_a: Any, log_b: Any, log_u: Any, log_v: Any, grades: Grades, costs: Costs, tolerance: float
) -> tuple[Any, Any]:
    """The logarithm of a factor for u and one for v, per grade."""
    import torch

    lists = grades.grades
    few = torch.from_numpy(lists.sizes <= sinkhorn.MOST_GRADES).to(log_a.device)
    few = lists.spread(few)
    row, column = lists.index(log_a)[few], (lists.positions(log_a)[few] - 1).long()
    width = int(column.max()) + 1 if len(column) else 1
    nothing = -1e30  # finite: what isn't there must not make NaN

    def padded(x: Any) -> Any:
        result = x.new_full((len(lists), width), nothing)
        result[row, column] = x[few]
        return result

    sums = [log_sum_exp(x, grades.documents) for x in (log_a, log_b, log_u, log_v, log_u + log_v)]
    a, b, u, v, kept = map(padded, sums)
    x = padded(costs.x)
    apart = (x[:, :, None] - x[:, None, :]).abs()
    each = torch.eye(width, dtype=torch.bool, device=x.device)
    apart = torch.where(each, costs.same, apart)
    log_t = u[:, :, None] + v[:, None, :] - apart
    own = torch.where(each, (costs.own + kept)[:, :, None], nothing)
    stride = ((lists.max(costs.x) - lists.min(costs.x)) / 16).clamp(min=STRIDE)
    p, q = balance_many(torch.logaddexp(log_t, own).clamp(min=nothing), a, b, stride, tolerance)
    shifts = torch.zeros_like(costs.x), torch.zeros_like(costs.x)
    for shift, values in zip(shifts, (p, q), strict=True):
        shift[few] = values[row, column]
    return shifts


def _beside(values: Any, like: Array) -> Array:
    """NumPy values as a tensor on the device of `like`, if that is one."""
    if not is_tensor(like):
        return values
    return namespace(like).from_numpy(values).to(like.device)
