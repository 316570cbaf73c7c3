"""Dropout before a linear layer, on a CPU with random numbers that need no order."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from twinrank.models import fused_kernels
from twinrank.support.compiled import in_threads, pieces

_PER_THREAD = 200_000  # values that are worth a thread


class DropoutLinear(nn.Linear):
    """x Wᵀ + b, where in training each input is 0 with probability p, and else times 1 / (1 − p).

    On a CPU torch draws one random number after the other, which takes longer than the matrix
    product that follows. A hash of a value's place is drawn in any order: on vector units, by any
    thread, and once more on the way back, so that nothing is remembered.

    Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov, "Dropout" (JMLR 2014).
    """

    def __init__(self, inputs: int, outputs: int, p: float) -> None:
        super().__init__(inputs, outputs)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop, in training, and multiply."""
        return functional.linear(self.dropped(x), self.weight, self.bias)

    @property
    def rate(self) -> float:
        """How often an input falls out, now."""
        return self.p if self.training else 0.0

    def dropped(self, x: Tensor) -> Tensor:
        """The inputs that are left."""
        if not self.rate:
            return x
        if (
            x.device.type == "cpu"
            and x.dtype in (torch.float32, torch.float64)
            and not torch.compiler.is_compiling()
        ):
            return _Dropped.apply(x, self.p)  # type: ignore[no-untyped-call, no-any-return]
        return functional.dropout(x, self.p)

    def extra_repr(self) -> str:
        """What distinguishes this layer when it is printed."""
        return f"{super().extra_repr()}, p={self.p:g}"


def draw_fate(p: float) -> fused_kernels.Fate:
    """Which values fall out, from torch's generator."""
    return fused_kernels.fate(int(torch.randint(2**62, ())) if p else 0, p)


class _Dropped(Function):
    """Zero at random places, and all else times 1 / (1 − p), forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.given = draw_fate(p), 1 / (1 - p)
        return _drop(x, *ctx.given)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "a scorer that trains on a CPU with dropout has a first derivative only: compute "
                "it without create_graph=True, or in evaluation mode"
            )
        return _drop(upstream[0], *ctx.given), None


def _drop(x: Tensor, fate: fused_kernels.Fate, factor: float) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    values = out.view(-1).detach().numpy()
    in_threads(fused_kernels.drop, pieces(x.numel(), _PER_THREAD), values, fate, factor)
    return out
