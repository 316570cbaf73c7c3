"""Dropout that draws what falls out, not what stays: fast on a CPU."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class Dropout(nn.Dropout):
    """Each value is 0 with probability p, and else multiplied by 1 / (1 − p), in training.

    On a CPU torch draws one random number per value, which takes longer than the matrix product
    before it. But the distances from one dropped value to the next are independent and geometric,
    P(gap > n) = (1 − p)ⁿ, so that drawing these gives the same distribution from p as many numbers
    (Devroye, "Non-Uniform Random Variate Generation", 1986, chapter XII).

    Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov, "Dropout" (JMLR 2014).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop, in training; the same values otherwise."""
        if not self.training or not 0 < self.p < 1 or x.device.type != "cpu":
            return super().forward(x)
        return _Dropped.apply(x, self.p)  # type: ignore[no-any-return, no-untyped-call]


class _Dropped(Function):
    """Zero at random places, forward and backward; only the places are remembered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        places = dropped_places(x.numel(), p)
        ctx.save_for_backward(places)
        ctx.scale = 1 / (1 - p)
        return _without(x, places, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return _without(upstream[0], places, ctx.scale), None


def _without(x: Tensor, places: Tensor, scale: float) -> Tensor:
    result = torch.mul(x, scale).contiguous()
    result.view(-1).index_fill_(0, places, 0)
    return result


def dropped_places(size: int, p: float) -> Tensor:
    """Which of `size` values fall out, in ascending order, each with probability p."""
    expected = size * p
    # Eight deviations more than expected, so that the gaps reach the end for certain.
    draws = math.ceil(expected + 8 * math.sqrt(expected)) + 10
    uniform = torch.rand(draws, dtype=torch.float64)  # below 1, so that log(1 − u) is finite
    gaps = torch.log1p(uniform.neg_()).div_(math.log1p(-p)).floor_().add_(1)
    places = gaps.cumsum_(0).long().sub_(1)
    return places[: int(torch.searchsorted(places, size))]
