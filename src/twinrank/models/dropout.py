"""Dropout before a linear layer, drawn as what falls out, not as what stays: fast on a CPU."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from twinrank.support.compiled import compiled
from twinrank.support.random import random_bits

_bits = compiled(random_bits)


class DropoutLinear(nn.Linear):
    """x Wᵀ + b, where in training each input is 0 with probability p, and else times 1 / (1 − p).

    On a CPU torch draws one random number per value, which takes longer than the matrix product
    after it. But the distances from one dropped value to the next are independent and geometric,
    P(gap > n) = (1 − p)ⁿ, so that drawing these gives the same distribution from p as many numbers
    (Devroye, "Non-Uniform Random Variate Generation", 1986, chapter XII). What falls out is set to
    0 where it is, and the factor goes to the small matrix W rather than to x: no pass over x.

    So there x itself is changed. It must be a tensor that nothing else reads, such as the output of
    an activation: whether that needs its result for its own gradient doesn't matter, since the
    gradient of what fell out is 0.

    Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov, "Dropout" (JMLR 2014).
    """

    def __init__(self, inputs: int, outputs: int, p: float) -> None:
        super().__init__(inputs, outputs)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop, in training, and multiply."""
        return self.product(x, self.bias)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """The same with another bias, or without one."""
        if not self.training or not self.p:
            return functional.linear(x, self.weight, bias)
        here = x.device.type == "cpu" and x.is_contiguous() and not torch.compiler.is_compiling()
        if not here:
            return functional.linear(functional.dropout(x, self.p), self.weight, bias)
        dropped = _Dropped.apply(x, self.p)  # type: ignore[no-untyped-call]
        return functional.linear(dropped, self.weight / (1 - self.p), bias)

    def extra_repr(self) -> str:
        """What distinguishes this layer when it is printed."""
        return f"{super().extra_repr()}, p={self.p:g}"


class _Dropped(Function):
    """Zero at random places, forward and backward, in place; only the places are remembered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        places = dropped_places(x.numel(), p)
        ctx.save_for_backward(places)
        _clear(x.data, places)  # .data: autograd would think that the activation's output is spoilt
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "a scorer that trains on a CPU with dropout has a first derivative only: compute "
                "it without create_graph=True, or in evaluation mode"
            )
        (places,) = ctx.saved_tensors
        gradient = upstream[0].contiguous()  # made by the linear layer, and nobody else's
        _clear(gradient, places)
        return gradient, None


def dropped_places(size: int, p: float) -> Tensor:
    """Which of `size` values fall out, in ascending order, each with probability p."""
    expected = size * p
    # Eight deviations more than expected, so that the gaps reach the end for certain.
    places = torch.empty(math.ceil(expected + 8 * math.sqrt(expected)) + 10, dtype=torch.int64)
    seed = int(torch.randint(2**62, ()))
    return places[: _draw(seed, size, 1 / math.log1p(-p), places.numpy())]


@compiled
def _draw(seed: int, size: int, rate: float, places: Any) -> int:
    """Write the places below `size` that geometric gaps lead to; how many these are."""
    place = -1
    for i in range(places.size):
        # 52 bits and a half: strictly between 0 and 1, so that its logarithm is finite.
        uniform = (float((_bits(seed, 0, i) >> 12) & (2**52 - 1)) + 0.5) * 2.0**-52
        gap = math.log(uniform) * rate
        if gap >= size - 1 - place:
            return i
        place += int(gap) + 1
        places[i] = place
    return len(places)


def _clear(x: Tensor, places: Tensor) -> None:
    """Set values to 0, in place."""
    if x.dtype in (torch.float32, torch.float64):
        _write_zeros(x.detach().numpy().reshape(-1), places.numpy())
    else:
        x.view(-1).index_fill_(0, places, 0)


@compiled
def _write_zeros(values: Any, places: Any) -> None:
    for i in range(places.size):
        values[places[i]] = 0
