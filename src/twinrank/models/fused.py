"""Norm and activation of a layer in two passes over its values each way, in training on a CPU.

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

from twinrank.lists import Lists
from twinrank.models import passes
from twinrank.models.dropout import DropoutLinear
from twinrank.models.norms import QueryNorm
from twinrank.support.compiled import in_threads, spans

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
        and not any(watched(layer) for layer in layers)
    )


def watched(layer: nn.Module) -> bool:
    """Whether a hook wants to see what goes in and out of a layer."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    )


def fused(x: Tensor, layers: Any, lists: Lists | None) -> Tensor:
    """φ(norm(x Wᵀ + b)) of a linear layer, its norm and its activation.

    A linear layer must be all that reads the result: the gradient which it makes is changed in
    place.
    """
    linear, norm, activation = layers
    known = type(activation) in _BELOW
    below = _BELOW[type(activation)] if known else (0.0, 1.0)
    queries = lists if type(norm) is QueryNorm else None
    u = _NormedActivated.apply(  # type: ignore[no-untyped-call]
        linear.product(x), linear.bias, norm.weight, norm.bias, norm, queries, below
    )
    return u if known else activation(u)  # type: ignore[no-any-return]


class _NormedActivated(Function):
    """φ(γ·x̂ + β). z comes without the layer's bias, on which x̂ doesn't depend."""

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
    ) -> Tensor:
        (rows, width), values = z.shape, _flat(z)
        ends, owner, sizes = _pieces(rows, width, lists)
        ranges = _ranges(ends)
        sums, squares = np.empty((2, owner.size, width))
        in_threads(passes.sum_pieces, ranges, values, ends, sums, squares)
        mean, variance = np.zeros((2, len(sizes), width))
        passes.settle(ends, owner, sums, squares, mean, variance)
        added = _flat(bias)
        if lists is None:
            _track(norm, mean[0] + added, variance[0] * (rows / (rows - 1)))
        r = 1 / np.sqrt(variance + (norm.eps if lists is None else norm.epsilon))
        # The bias is gone, but if it isn't finite, scores mustn't be.
        affine = mean, r * _flat(weight), (_flat(shift) + 0 * added)[None]
        centre, scale, offset = (part.astype(values.dtype) for part in affine)
        out, where = torch.empty_like(z), (ends, owner, centre, scale)
        in_threads(passes.activate, ranges, values, *where, offset, *below, _flat(out))
        ctx.save_for_backward(z, out)
        ctx.parts = ranges, where, sizes, r, below
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
        ranges, where, sizes, r, below = ctx.parts
        gradient = upstream[0].contiguous()  # made by the linear layer after it, and nobody else's
        values, g = _flat(z), _flat(gradient)
        parts, totals = np.empty((2, where[1].size, z.shape[1])), np.zeros((2, *r.shape))
        in_threads(passes.sum_back, ranges, values, *where[:3], *below, _flat(out), g, *parts)
        for part, total in zip(parts, totals, strict=True):
            passes.add_up(where[1], part, total)
        total, moment = totals
        mean, tilt = (part.astype(g.dtype) for part in (total / sizes, moment * r**2 / sizes))
        in_threads(passes.pass_back, ranges, values, *where, mean, tilt, g)
        learned = np.zeros(z.shape[1]), (moment * r).sum(0), total.sum(0)
        of_parameters = (torch.from_numpy(part.astype(g.dtype, copy=False)) for part in learned)
        return gradient, *of_parameters, None, None, None


def _flat(values: Tensor) -> Any:
    """A tensor's values as NumPy's, in a row."""
    return values.detach().numpy().reshape(-1)


@lru_cache(maxsize=8)  # a net's layers ask for the same
def _pieces(rows: int, width: int, lists: Lists | None) -> tuple[Any, Any, Any]:
    """Where pieces of rows end, counted in values from 0 on; which query each belongs to; and the
    queries' sizes. Without lists all rows are one query's; empty lists don't count.
    """
    bounds = np.array([0, rows]) if lists is None else np.unique(lists.offsets)
    most, sizes = passes.rows_of_a_piece(width), np.diff(bounds)
    count = -(-sizes // most)
    owner = np.repeat(np.arange(sizes.size), count)
    number = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    return np.append(bounds[owner] + number * most, rows) * width, owner, sizes[:, None]


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
