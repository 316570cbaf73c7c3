"""A layer's norm, activation and dropout as one operation, for training on a CPU.

**Reference.** The result, the gradients and the running statistics must equal those of the layers
run one by one: `nn.BatchNorm1d` or `QueryNorm`, the activation, and `DropoutLinear.dropped`.
`tests/test_fused.py` compares them. There is one difference: the gradient of a bias before a norm
is exactly 0 here, and rounding noise in torch.

**Used when** all of these hold (`can_fuse`); otherwise the scorer runs the layers one by one:

1. The scorer is in training mode.
2. The layers are a `DropoutLinear` or `PooledLinear`, a `BatchNorm1d` in training mode or a
   `QueryNorm`, an activation, and one more linear layer, which reads the result.
3. Input and weights are on a CPU, both float32 or both float64, without autocast and outside
   torch.compile.
4. The layer has at least two rows and `MIN_VALUES` values. Smaller inputs qualify only for a
   `QueryNorm` of several queries, where torch needs more passes.
5. None of the four layers has a hook, which would expect to see the values in between.

**Why.** A layer of 12,000 × 100 values is larger than a core's own cache, so its cost is the number
of passes over memory. Torch needs six passes, forward and backward, and two more for a bias that
the norm removes again. Here forward takes two (statistics; normalise and activate), and so does
backward (sums; ∂L/∂z). A training step of CE4.L takes a third less time
(`benchmarks/training.py`).

With x̂ = (z − mean)·r, r = 1/√(var + ε), u = γ·x̂ + β and the output φ(u), where g = ∂L/∂u:

    ∂L/∂β = Σ g,   ∂L/∂γ = Σ g·x̂,   ∂L/∂z = γ·r·(g − (Σ g)/n − x̂·(Σ g·x̂)/n)

(Ioffe & Szegedy, "Batch Normalization", ICML 2015). The norm of each query uses the same formulas
with sums over its own documents. Results don't depend on the number of threads.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function

from twinrank.core.lists import Lists
from twinrank.learning.models import fused_kernels
from twinrank.learning.models.context_layers import PooledLinear
from twinrank.learning.models.layers import (
    DropoutLinear,
    QueryNorm,
    SeparateLinear,
    draw_dropout_key,
)
from twinrank.support.compiled import in_threads, spans, threads

MIN_VALUES = 50_000
"""Smaller layers are faster in torch: the calls from Python cost more than the passes saved."""

_VALUES_PER_THREAD = 50_000  # fewer values are faster on one thread
_FIRST_THREAD_EXTRA = 200_000  # values that the calling thread computes before others have started

# Activations φ(u) = u above 0 and curve·(exp(u) − 1) + slope·u below it, as (curve, slope).
# Other activations run after the fused norm.
_ACTIVATIONS: dict[type[nn.Module], tuple[float, float]] = {
    nn.ReLU: (0.0, 0.0),
    nn.LeakyReLU: (0.0, 0.01),
    nn.CELU: (1.0, 0.0),
}
_IDENTITY = (0.0, 1.0)
_LINEAR = (nn.Linear, PooledLinear, SeparateLinear)


def can_fuse(x: Tensor, layers: list[nn.Module], lists: Lists | None) -> bool:
    """True if conditions 2 to 5 of this module hold for the first four of these layers."""
    if len(layers) < 4 or not isinstance(layers[0], DropoutLinear | PooledLinear):
        return False
    linear, norm, _, reader = layers
    is_large = len(x) > 1 and len(x) * linear.bias.numel() >= MIN_VALUES  # type: ignore[operator]
    if type(norm) is QueryNorm:
        fits = lists is not None and lists.documents == len(x) and (is_large or len(lists) > 1)
    else:
        fits = type(norm) is nn.BatchNorm1d and norm.training and is_large
    return (
        fits
        and isinstance(reader, _LINEAR)
        and x.device.type == "cpu"
        and x.dtype == linear.weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not any(_has_hooks(layer) for layer in layers)
    )


def _has_hooks(layer: nn.Module) -> bool:
    """True if a hook reads a layer's input, output or gradients."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    )


def fused(x: Tensor, layers: Any, lists: Lists | None, dropped: bool) -> Tensor:
    """φ(norm(x Wᵀ + b)) of a linear layer, norm and activation, with the next layer's dropout.

    `dropped` says that x has already been through the linear layer's own dropout. Only a linear
    layer may read the result, because backward changes its gradient in place.
    """
    linear, norm, activation, reader = layers
    is_known = type(activation) in _ACTIVATIONS
    has_dropout = isinstance(reader, DropoutLinear)
    z = linear.product(x, lists, dropped)
    u = _NormedActivated.apply(  # type: ignore[no-untyped-call]
        z,
        linear.bias,
        norm.weight,
        norm.bias,
        norm,
        lists if type(norm) is QueryNorm else None,
        _ACTIVATIONS.get(type(activation), _IDENTITY),
        reader.rate if is_known and has_dropout else 0.0,
    )
    if is_known:
        return u  # type: ignore[no-any-return]
    activated = activation(u)
    return reader.dropped(activated) if has_dropout else activated  # type: ignore[no-any-return]


class _NormedActivated(Function):
    """φ(γ·x̂ + β) after dropout. z comes without the layer's bias, on which x̂ doesn't depend."""

    @staticmethod
    @np.errstate(all="ignore")  # the training loop checks the scores for values that aren't finite
    def forward(
        ctx: Any,
        z: Tensor,
        bias: Tensor,
        weight: Tensor,
        shift: Tensor,
        norm: Any,
        lists: Lists | None,
        activation: tuple[float, float],
        p: float,
    ) -> Tensor:
        (rows, width), values = z.shape, _flat(z)
        bounds, segments, sizes, ranges = _chunks(rows, width, lists, threads())
        sums, squares = np.empty((2, segments.size, width))
        in_threads(fused_kernels.chunk_moments, ranges, values, bounds, sums, squares)
        mean, variance, r = np.zeros((3, sizes.size, width))
        epsilon = norm.eps if lists is None else norm.epsilon
        fused_kernels.merge_moments(bounds, segments, sums, squares, epsilon, mean, variance, r)
        affine, bias_values = np.empty((3, *r.shape), values.dtype), _flat(bias)
        fused_kernels.affine_maps(mean, r, _flat(weight), _flat(shift), bias_values, affine)
        if lists is None:
            _update_running(norm, mean[0] + bias_values, variance[0] * (rows / (rows - 1)))
        out, chunks = torch.empty_like(z), (bounds, segments, affine)
        options = *activation, draw_dropout_key(p), 1 / (1 - p)
        in_threads(fused_kernels.normalise_activate, ranges, values, *chunks, *options, _flat(out))
        ctx.save_for_backward(z, out)
        ctx.parts = ranges, chunks, sizes, r, options
        return out

    @staticmethod
    @np.errstate(all="ignore")
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "a scorer that trains on a CPU has a first derivative only: compute it without "
                "create_graph=True, or in evaluation mode."
            )
        z, out = ctx.saved_tensors
        ranges, chunks, sizes, r, options = ctx.parts
        gradient = upstream[0].contiguous()  # of the linear layer that follows, and used only here
        values, g, segments = _flat(z), _flat(gradient), chunks[1]
        sums, moments = np.empty((2, segments.size, r.shape[1]))
        in_threads(
            fused_kernels.backward_sums,
            ranges,
            values,
            *chunks,
            *options,
            _flat(out),
            g,
            sums,
            moments,
        )
        means = np.empty((2, *r.shape), g.dtype)
        # ∂L/∂bias stays 0, then ∂L/∂γ and ∂L/∂β
        of_parameters = np.zeros((3, r.shape[1]), g.dtype)
        fused_kernels.merge_backward_sums(
            segments, sums, moments, sizes, r, means, *of_parameters[1:]
        )
        in_threads(fused_kernels.input_gradient, ranges, values, *chunks, means, g)
        return gradient, *torch.from_numpy(of_parameters), None, None, None, None


def _flat(values: Tensor) -> Any:
    """A tensor's memory as a flat NumPy array."""
    return values.detach().numpy().reshape(-1)


@lru_cache(maxsize=8)  # all layers of a net ask for the same
def _chunks(rows: int, width: int, lists: Lists | None, _threads: int) -> tuple[Any, Any, Any, Any]:
    """The chunks of rows: their bounds, segments, segment sizes, and ranges by thread.

    Bounds count values. A segment is a query, or all rows if there are no lists. Empty lists have
    no segment. `_threads` is part of the cache's key.
    """
    ends = np.array([0, rows]) if lists is None else np.unique(lists.offsets)
    limit, sizes = fused_kernels.rows_per_chunk(width), np.diff(ends)
    count = -(-sizes // limit)
    segments = np.repeat(np.arange(sizes.size), count)
    number = np.arange(segments.size) - np.repeat(np.cumsum(count) - count, count)
    bounds = np.append(ends[segments] + number * limit, rows) * width
    return bounds, segments, sizes, _ranges(bounds)


def _ranges(bounds: Any) -> list[tuple[int, int]]:
    """The chunks of each thread; the calling thread gets more, since the others start later."""
    costs = np.diff(bounds)
    extra = min(_FIRST_THREAD_EXTRA, int(costs.sum()))
    first = int(np.searchsorted(np.cumsum(costs), extra))
    shares = spans(costs[first:], _VALUES_PER_THREAD)
    return [(0 if i == 0 else first + a, first + b) for i, (a, b) in enumerate(shares)]


def _update_running(norm: Any, mean: Any, variance: Any) -> None:
    """Update a batch norm's running statistics as torch does."""
    for running, current in ((norm.running_mean, mean), (norm.running_var, variance)):
        values = _flat(running)
        values += norm.momentum * (current - values)
    _flat(norm.num_batches_tracked)[0] += 1
