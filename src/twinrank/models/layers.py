"""Layers that torch lacks: a norm per query, and a linear layer with fast dropout."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from twinrank.lists import Lists
from twinrank.models import fused_kernels
from twinrank.support.compiled import in_threads, pieces
from twinrank.support.errors import InputError

_VALUES_PER_THREAD = 200_000  # fewer values are faster on one thread


class QueryNorm(nn.Module):
    """Batch normalisation with the statistics of each query, in training and in evaluation.

    x̂ = (x − mean_q) / √(var_q + ε), then scaled and shifted by learned weights.
    """

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor, lists: Lists | None) -> Tensor:
        """Normalise [documents, width], query by query."""
        if lists is None:
            raise InputError(
                "a scorer with norm='query' needs the query of each document; pass lists"
            )
        x = x if x.dtype == torch.float64 else x.float()  # sums in bfloat16 are too inexact
        if len(lists) == 1 and lists.documents > 1:  # the paper trains on one query per step
            return functional.batch_norm(
                x, None, None, self.weight, self.bias, training=True, eps=self.epsilon
            )
        index = lists.index(x)
        sizes = torch.from_numpy(lists.sizes.copy()).to(x).clamp(min=1)[:, None]
        mean = _sum_by_query(x, index, len(lists)) / sizes
        centred = x - mean[index]
        variance = _sum_by_query(centred**2, index, len(lists)) / sizes
        scale = torch.rsqrt(variance + self.epsilon) * self.weight
        return torch.addcmul(self.bias, centred, scale[index])


def _sum_by_query(x: Tensor, index: Tensor, queries: int) -> Tensor:
    return x.new_zeros(queries, x.shape[1]).index_add(0, index, x)


class DropoutLinear(nn.Linear):
    """Dropout, then a linear layer: in training an input is 0 with probability p, else x / (1 − p).

    On a CPU torch draws random numbers one after the other, which takes longer than the matrix
    product that follows. Here the hash of a value's position decides. Vector units and threads
    compute it in any order, and backward computes it again instead of storing a mask.

    Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov, "Dropout" (JMLR 2014).
    """

    def __init__(self, inputs: int, outputs: int, p: float) -> None:
        super().__init__(inputs, outputs)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop inputs (in training only), then multiply by the weights and add the bias."""
        return functional.linear(self.dropped(x), self.weight, self.bias)

    @property
    def rate(self) -> float:
        """The current probability that an input is dropped: 0 in evaluation mode."""
        return self.p if self.training else 0.0

    def dropped(self, x: Tensor) -> Tensor:
        """The inputs after dropout."""
        if not self.rate:
            return x
        if (
            x.device.type == "cpu"
            and x.dtype in (torch.float32, torch.float64)
            and not torch.compiler.is_compiling()
        ):
            return _HashedDropout.apply(x, self.p)  # type: ignore[no-untyped-call, no-any-return]
        return functional.dropout(x, self.p)

    def extra_repr(self) -> str:
        """The layer's options when it is printed."""
        return f"{super().extra_repr()}, p={self.p:g}"


def draw_dropout_key(p: float) -> fused_kernels.DropoutKey:
    """Draw the random key of one dropout from torch's generator."""
    return fused_kernels.dropout_key(int(torch.randint(2**62, ())) if p else 0, p)


class _HashedDropout(Function):
    """Dropout whose mask is a hash of the position, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.key_and_factor = draw_dropout_key(p), 1 / (1 - p)
        return _drop(x, *ctx.key_and_factor)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "a scorer that trains on a CPU with dropout has a first derivative only: compute "
                "it without create_graph=True, or in evaluation mode"
            )
        return _drop(upstream[0], *ctx.key_and_factor), None


def _drop(x: Tensor, key: fused_kernels.DropoutKey, factor: float) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    values = out.view(-1).detach().numpy()
    ranges = pieces(x.numel(), _VALUES_PER_THREAD)
    in_threads(fused_kernels.drop_values, ranges, values, key, factor)
    return out
