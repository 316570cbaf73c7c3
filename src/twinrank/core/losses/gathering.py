"""Rows of all processes of a distributed training, with the gradient of the local ones."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx


def processes() -> int:
    """The number of processes of the training."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gathered_objects(value: Any) -> list[Any]:
    """The value of each process, in the order of their ranks."""
    if processes() == 1:
        return [value]
    values: list[Any] = [None] * processes()
    dist.all_gather_object(values, value)
    return values


def gathered_rows(rows: Tensor, counts: list[int]) -> Tensor:
    """The rows of all processes, one after the other; `counts` is the number of rows of each.

    The gradient of the local rows is the sum of what all processes compute for them. If each
    process has the mean loss of its own queries and DistributedDataParallel averages the gradients,
    the result is the gradient of the mean over all queries.
    """
    if processes() == 1:
        return rows
    return _Gathered.apply(rows, counts)  # type: ignore[no-any-return, no-untyped-call]


class _Gathered(Function):
    """Forward: the rows of all processes. Backward: the summed gradient of the local rows."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts  # type: ignore[attr-defined]
        # All tensors of a gather have the same shape, so that shorter ones are padded.
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows.detach()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        first = sum(ctx.counts[: dist.get_rank()])
        return total[first : first + ctx.counts[dist.get_rank()]], None
