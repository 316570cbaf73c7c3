"""Scaling a small matrix to given row and column sums by Newton's method: loops and tensors."""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled

STRIDE = 20.0
"""The furthest that a step moves a logarithm; a 16th of the largest cost, if that is more."""
HALVINGS = 12
"""How often a step that leads downhill is halved before it is given up."""
TINY = 1e-290
"""Added to what could be 0 and is divided by."""


@compiled
def balance(n: int, table: Any, tables: Any, stride: float, tolerance: float) -> None:
    """p, q with Σ_l T_kl exp(p_k + q_l) = A_k and Σ_k T_kl exp(p_k + q_l) = B_l.

    They maximise Σ A p + Σ B q once q is eliminated by the second equation: a concave function of
    p whose Hessian is minus a graph's Laplacian. `tables[0]` is log T; the rows of `table` are
    log A, log B, p, q, then the gradient and the step.
    """
    log_a, p, rest, step = table[0], table[2], table[4], table[5]
    for k in range(n):
        p[k] = 0.0
        step[k] = 0.0
    value = _columns(n, 0.0, table, tables)
    for _ in range(60):
        worst = 0.0
        for k in range(n):
            rest[k] = mass = np.exp(log_a[k])
            for j in range(n):
                rest[k] -= tables[1, k, j]
            worst = max(worst, abs(rest[k]) / (mass + TINY))
        if worst <= tolerance:
            return
        _newton_step(n, table, tables, stride)
        scale, slack = 1.0, 1e-13 * (1.0 + abs(value))
        new = _columns(n, scale, table, tables)
        for _ in range(HALVINGS):
            if new >= value - slack:
                break
            scale *= 0.5
            new = _columns(n, scale, table, tables)
        if not new >= value - slack:
            _columns(n, 0.0, table, tables)
            return
        for k in range(n):
            p[k] += scale * step[k]
        value = new


@compiled
def _columns(n: int, scale: float, table: Any, tables: Any) -> float:
    """Make the columns right for p + scale · step: q, the plan, and the function's value."""
    value = 0.0
    for k in range(n):
        value += np.exp(table[0, k]) * (table[2, k] + scale * table[5, k])
    for h in range(n):
        top, total = -np.inf, 0.0
        for k in range(n):
            top = max(top, tables[0, k, h] + table[2, k] + scale * table[5, k])
        for k in range(n):
            share = np.exp(tables[0, k, h] + table[2, k] + scale * table[5, k] - top)
            tables[1, k, h] = share
            total += share
        mass = np.exp(table[1, h])
        for k in range(n):
            tables[1, k, h] *= mass / total
        table[3, h] = table[1, h] - top - np.log(total)
        value += mass * table[3, h]
    return value


@compiled
def _newton_step(n: int, table: Any, tables: Any, stride: float) -> None:
    """Solve Laplacian · step = rest with step 0 for the last grade.

    Grades are eliminated one by one; diagonal entries are sums of what is left, as Grassmann,
    Taksar & Heyman (1985) do, so that nothing cancels, however unlike the weights.
    """
    rest, step, plan, weight = table[4], table[5], tables[1], tables[2]
    for k in range(n):
        for j in range(n):
            weight[k, j] = 0.0
    for h in range(n):
        mass = np.exp(table[1, h]) + TINY
        for k in range(n):
            for j in range(n):
                weight[k, j] += plan[k, h] * (plan[j, h] / mass)
    for k in range(n - 1):
        total = TINY
        for j in range(k + 1, n):
            total += weight[k, j]
        for i in range(k + 1, n):
            part = weight[i, k] / total
            rest[i] += part * rest[k]
            for j in range(k + 1, n):
                weight[i, j] += part * weight[k, j]
    step[n - 1] = 0.0
    for k in range(n - 2, -1, -1):
        total, moved = TINY, rest[k]
        for j in range(k + 1, n):
            total += weight[k, j]
            moved += weight[k, j] * step[j]
        step[k] = min(max(moved / total, -stride), stride)


def balance_many(
    log_t: Any, log_a: Any, log_b: Any, stride: Any, tolerance: float
) -> tuple[Any, Any]:
    """`balance` for tensors, many T at once."""
    import torch

    a, b = log_a.exp(), log_b.exp()
    tiny = torch.finfo(a.dtype).tiny

    def columns(p: Any) -> tuple[Any, Any, Any]:
        q = log_b - torch.logsumexp(log_t + p[:, :, None], 1)
        return q, (a * p).sum(1) + (b * q).sum(1), (log_t + p[:, :, None] + q[:, None, :]).exp()

    p = torch.zeros_like(a)
    q, value, plan = columns(p)
    for _ in range(60):
        rest = a - plan.sum(2)
        going = (rest.abs() > tolerance * a + tiny).any(1)
        if not bool(going.any()):
            break
        step = torch.where(going[:, None], _newton_steps(plan, b, rest, stride), 0.0)
        slack = 1e3 * torch.finfo(a.dtype).eps * (1.0 + value.abs())
        for halving in range(HALVINGS + 1):
            trial = columns(p + step)
            worse = ~(trial[1] >= value - slack)
            if not bool(worse.any()):
                break
            step = torch.where(worse[:, None], 0.5 * step if halving < HALVINGS else 0.0, step)
        else:
            trial = columns(p + step)
        if not bool(step.any()):
            break
        p = p + step
        q, value, plan = trial
    return p, q


def _newton_steps(plan: Any, b: Any, rest: Any, stride: Any) -> Any:
    """Laplacian⁻¹ · rest, as `_newton_step` has it."""
    import torch

    n, tiny = plan.shape[1], torch.finfo(plan.dtype).tiny
    weight = torch.einsum("qkh,qjh->qkj", plan, plan / (b + tiny)[:, None, :])
    step = torch.zeros_like(rest)
    for k in range(n - 1):
        part = weight[:, k + 1 :, k] / (weight[:, k, k + 1 :].sum(1) + tiny)[:, None]
        rest[:, k + 1 :] += part * rest[:, k, None]
        weight[:, k + 1 :, k + 1 :] += part[:, :, None] * weight[:, k, None, k + 1 :]
    for k in range(n - 2, -1, -1):
        later = weight[:, k, k + 1 :]
        moved = (rest[:, k] + (later * step[:, k + 1 :]).sum(1)) / (later.sum(1) + tiny)
        step[:, k] = moved.clamp(-stride, stride)
    return step
