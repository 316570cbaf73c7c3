"""Norm, activation and dropout of a layer in two passes each way, in training on a CPU.

A layer of 12,000 × 100 values is larger than the caches next to a core, so that what batch norm
and activation cost is passes over memory. Torch makes six of them, forward and backward, and two
for a bias that the norm takes away again. Here statistics are one pass, normalising and activating
the second; backward the sums, with the activation's slope, are one, and ∂L/∂z the second.

With x̂ = (z − mean)·r, r = 1/√(var + ε), u = γ·x̂ + β and the output φ(u), where g = ∂L/∂u:

    ∂L/∂β = Σ g,   ∂L/∂γ = Σ g·x̂,   ∂L/∂z = γ·r·(g − (Σ g)/n − x̂·(Σ g·x̂)/n)

(Ioffe & Szegedy, "Batch Normalization", ICML 2015). The same for the norm of each query, whose
sums run over its own documents. Results don't depend on the number of threads.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from twinrank.lists import Lists
from twinrank.models import fused_kernels
from twinrank.models.dropout import DropoutLinear, draw_fate
from twinrank.models.norms import QueryNorm
from twinrank.support.compiled import in_threads, spans, threads

LEAST = 50_000
"""Values of a layer from which on fewer passes are worth the way through Python."""

_PER_THREAD = 50_000  # values that are worth a thread
_HEAD_START = 200_000  # values that are done before another thread has begun

# Activations that are u above 0, and a·(exp(u) − 1) + b·u below it. Others follow the fused norm.
_BELOW: dict[type[nn.Module], tuple[float, float]] = {
    nn.ReLU: (0.0, 0.0),
    nn.LeakyReLU: (0.0, 0.01),
    nn.CELU: (1.0, 0.0),
}


def can_fuse(x: Tensor, layers: list[nn.Module], lists: Lists | None) -> bool:
    """Whether the first three of these can be one here; where not, torch's own are right.

    The fourth is the one that reads the result. Nobody may look at what goes between them.
    """
    if len(layers) < 4 or type(layers[0]) is not DropoutLinear:
        return False
    linear, norm, *_ = layers
    pays = len(x) > 1 and len(x) * layers[0].out_features >= LEAST
    if type(norm) is QueryNorm:  # several queries by torch's means take more passes still
        fits = lists is not None and lists.documents == len(x) and (pays or len(lists) > 1)
    else:
        fits = type(norm) is nn.BatchNorm1d and norm.training and pays
    return (
        fits
        and x.device.type == "cpu"
        and x.dtype == linear.weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not any(_watched(layer) for layer in layers)
    )


def _watched(layer: nn.Module) -> bool:
    """Whether a hook wants to see what goes in and out of a layer."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    )


def fused(x: Tensor, layers: Any, lists: Lists | None, dropped: bool) -> Tensor:
    """φ(norm(x Wᵀ + b)) of a linear layer, norm and activation, with the next layer's dropout.

    `dropped`: whether x has been through this one's. A linear layer must be all that reads the
    result: the gradient which it makes is changed in place.
    """
    linear, norm, activation, after = layers
    known = type(activation) in _BELOW
    below = _BELOW[type(activation)] if known else (0.0, 1.0)
    drops = type(after) is DropoutLinear
    queries = lists if type(norm) is QueryNorm else None
    given = linear.bias, norm.weight, norm.bias, norm, queries, below
    z = functional.linear(x if dropped else linear.dropped(x), linear.weight)
    p = after.rate if known and drops else 0.0
    u = _NormedActivated.apply(z, *given, p)  # type: ignore[no-untyped-call]
    if known:
        return u  # type: ignore[no-any-return]
    return after.dropped(activation(u)) if drops else activation(u)  # type: ignore[no-any-return]


class _NormedActivated(Function):
    """φ(γ·x̂ + β), dropped. z comes without the layer's bias, on which x̂ doesn't depend."""

    @staticmethod
    @np.errstate(all="ignore")  # what isn't finite is found in the scores
    def forward(
        ctx: Any,
        z: Tensor,
        bias: Tensor,
        weight: Tensor,
        shift: Tensor,
        norm: Any,
        lists: Lists | None,
        below: tuple[float, float],
        p: float,
    ) -> Tensor:
        (rows, width), values = z.shape, _flat(z)
        ends, owner, sizes, ranges = _pieces(rows, width, lists, threads())
        sums, squares = np.empty((2, owner.size, width))
        in_threads(fused_kernels.sum_pieces, ranges, values, ends, sums, squares)
        mean, variance, r = np.zeros((3, sizes.size, width))
        epsilon = norm.eps if lists is None else norm.epsilon
        fused_kernels.settle(ends, owner, sums, squares, epsilon, mean, variance, r)
        affine, added = np.empty((3, *r.shape), values.dtype), _flat(bias)
        fused_kernels.line_up(mean, r, _flat(weight), _flat(shift), added, affine)
        if lists is None:
            _track(norm, mean[0] + added, variance[0] * (rows / (rows - 1)))
        out, where = torch.empty_like(z), (ends, owner, affine)
        how = *below, draw_fate(p), 1 / (1 - p)
        in_threads(fused_kernels.activate, ranges, values, *where, *how, _flat(out))
        ctx.save_for_backward(z, out)
        ctx.parts = ranges, where, sizes, r, how
        return out

    @staticmethod
    @np.errstate(all="ignore")
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "a scorer that trains on a CPU has a first derivative only: compute it without "
                "create_graph=True, or in evaluation mode"
            )
        z, out = ctx.saved_tensors
        ranges, where, sizes, r, how = ctx.parts
        gradient = upstream[0].contiguous()  # made by the linear layer after it, and nobody else's
        values, g, owner = _flat(z), _flat(gradient), where[1]
        sums, moments = np.empty((2, owner.size, r.shape[1]))
        in_threads(
            fused_kernels.sum_back, ranges, values, *where, *how, _flat(out), g, sums, moments
        )
        means, learned = np.empty((2, *r.shape), g.dtype), np.zeros((3, r.shape[1]), g.dtype)
        fused_kernels.settle_back(owner, sums, moments, sizes, r, means, *learned[1:])
        in_threads(fused_kernels.pass_back, ranges, values, *where, means, g)
        return gradient, *torch.from_numpy(learned), None, None, None, None


def _flat(values: Tensor) -> Any:
    """A tensor's values as NumPy's, in a row."""
    return values.detach().numpy().reshape(-1)


@lru_cache(maxsize=8)  # a net's layers ask for the same
def _pieces(rows: int, width: int, lists: Lists | None, _threads: int) -> tuple[Any, Any, Any, Any]:
    """Where pieces of rows end, counted in values from 0 on; which query each belongs to; the
    queries' sizes; and the pieces of each thread. Without lists all rows are one query's; empty
    lists don't count.
    """
    bounds = np.array([0, rows]) if lists is None else np.unique(lists.offsets)
    most, sizes = fused_kernels.rows_of_a_piece(width), np.diff(bounds)
    count = -(-sizes // most)
    owner = np.repeat(np.arange(sizes.size), count)
    number = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    ends = np.append(bounds[owner] + number * most, rows) * width
    return ends, owner, sizes, _ranges(ends)


def _ranges(ends: Any) -> list[tuple[int, int]]:
    """The pieces of each thread; the calling one gets more, as the others begin later."""
    costs = np.diff(ends)
    first = min(_HEAD_START, int(costs.sum()))
    head = int(np.searchsorted(np.cumsum(costs), first))
    rest = spans(costs[head:], _PER_THREAD)
    return [(0 if i == 0 else head + a, head + b) for i, (a, b) in enumerate(rest)]


def _track(norm: Any, mean: Any, variance: Any) -> None:
    """Move the running statistics, as torch does."""
    for running, now in ((norm.running_mean, mean), (norm.running_var, variance)):
        old = _flat(running)
        old += norm.momentum * (now - old)
    _flat(norm.num_batches_tracked)[0] += 1
