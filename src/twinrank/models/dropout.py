"""Dropout before a linear layer, drawn as what falls out, not as what stays: fast on a CPU."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional


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
        if not self.training or not self.p:
            return super().forward(x)
        if x.device.type != "cpu" or not x.is_contiguous():
            return super().forward(functional.dropout(x, self.p))
        dropped = _Dropped.apply(x, self.p)  # type: ignore[no-untyped-call]
        return functional.linear(dropped, self.weight / (1 - self.p), self.bias)

    def extra_repr(self) -> str:
        """What distinguishes this layer when it is printed."""
        return f"{super().extra_repr()}, p={self.p:g}"


class _Dropped(Function):
    """Zero at random places, forward and backward, in place; only the places are remembered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        places = dropped_places(x.numel(), p)
        ctx.save_for_backward(places)
        # By way of .data: autograd would think that the activation's gradient is spoilt.
        x.data.view(-1).index_fill_(0, places, 0)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        gradient = upstream[0].contiguous()  # made by the linear layer, and nobody else's
        gradient.view(-1).index_fill_(0, places, 0)
        return gradient, None


def dropped_places(size: int, p: float) -> Tensor:
    """Which of `size` values fall out, in ascending order, each with probability p."""
    expected = size * p
    # Eight deviations more than expected, so that the gaps reach the end for certain.
    draws = math.ceil(expected + 8 * math.sqrt(expected)) + 10
    uniform = torch.rand(draws, dtype=torch.float64)  # below 1, so that log(1 − u) is finite
    gaps = torch.log1p(uniform.neg_()).div_(math.log1p(-p)).floor_().add_(1)
    places = gaps.cumsum_(0).long().sub_(1)
    return places[: int(torch.searchsorted(places, size))]
