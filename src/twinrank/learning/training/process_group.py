"""Several processes that train one net, and the single process that trains alone.

Every process knows the whole plan. It takes its own share of the queries of each batch, and
DistributedDataParallel averages the gradients, weighted so that they equal those of the whole
batch. Failures and interruptions are agreed on in every step, so that all processes stop after the
same step and none waits for another.

In training, batch norm uses the statistics of each process's own share; the running statistics,
which score, are averaged over the processes after every step.
"""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.learning.training.learner import TrainingError
from twinrank.support.errors import InputError, TwinRankError

if TYPE_CHECKING:
    from torch import nn

_TIMEOUT = timedelta(minutes=30)


class ProcessLostError(TrainingError):
    """Another process of the group has died; it may be the main one."""


class ProcessGroup:
    """A single process. `TorchProcessGroup` overrides what several have to agree on."""

    rank, size = 0, 1

    @property
    def is_main(self) -> bool:
        """True for the process that writes and reports."""
        return self.rank == 0

    def reports(self, error: TrainingError) -> bool:
        """True if this process prints an error that all have met.

        That is the main one. If it may be the one that died, the next one prints it too.
        """
        return self.is_main or (isinstance(error, ProcessLostError) and self.rank == 1)

    def wrap(self, net: "nn.Module") -> "nn.Module":
        """The net to call in training."""
        return net

    def share(
        self, queries: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], bool]:
        """This process's share of a batch, and whether it counts.

        Shares have about the same number of documents. A process without a share gets one query
        that does not count, because every process has to take part.
        """
        if self.size == 1:
            return queries, True
        middle = np.cumsum(sizes) - sizes / 2
        owner = np.minimum(middle * self.size // max(int(sizes.sum()), 1), self.size - 1)
        own = queries[owner == self.rank]
        return (own, True) if own.size else (queries[:1], False)

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over the processes."""
        return list(values)

    def add_parts(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over the parts of the data; here, every process knows all of it."""
        return list(values)

    def all_reduce_array(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The sum of an array over the processes, in place."""
        return values

    def average_buffers(self, net: "nn.Module") -> None:
        """Replace running statistics by their mean over the processes."""

    def all_gather(self, message: str) -> list[str]:
        """The message of each process."""
        return [message]

    def close(self) -> None:
        """Leave the group."""


class TorchProcessGroup(ProcessGroup):
    """One of several processes that torchrun or the like has started."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._dist: Any = dist
        gpu = torch.cuda.is_available()
        if gpu:  # from here on, "cuda" is the device of this process
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
            try:
                dist.init_process_group(backend, timeout=_TIMEOUT)
            except (RuntimeError, ValueError) as error:
                raise InputError(f"The processes cannot find each other ({error}).") from error
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def wrap(self, net: "nn.Module") -> "nn.Module":
        """The net, with gradients averaged over the processes."""
        from torch.nn.parallel import DistributedDataParallel

        with explaining_lost_processes():  # they compare their nets
            return DistributedDataParallel(net)

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over the processes."""
        import torch

        vector = torch.tensor(values, dtype=torch.float64)
        self._run("all_reduce", vector)
        return vector.tolist()

    def all_reduce_array(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The sum of an array over the processes, in place."""
        import torch

        self._run("all_reduce", torch.from_numpy(values))
        return values

    def average_buffers(self, net: "nn.Module") -> None:
        """Replace running statistics by their mean over the processes."""
        import torch

        buffers = [b for b in net.buffers() if b.is_floating_point()]
        if not buffers:
            return
        flat = torch.cat([b.detach().cpu().double().reshape(-1) for b in buffers])
        self._run("all_reduce", flat)
        flat /= self.size
        with torch.no_grad():
            start = 0
            for buffer in buffers:
                values = flat[start : (start := start + buffer.numel())]
                buffer.copy_(values.view_as(buffer))

    def all_gather(self, message: str) -> list[str]:
        """The message of each process."""
        messages: list[Any] = [None] * self.size
        self._run("all_gather_object", messages, message)
        return messages

    def close(self) -> None:
        """Leave the group."""
        gc.collect()  # nets that are wrapped for the group must go before it, or torch aborts
        if self._dist.is_initialized():
            self._dist.destroy_process_group()

    def _run(self, operation: str, *arguments: Any) -> None:
        with explaining_lost_processes():
            getattr(self._dist, operation)(*arguments)


@contextmanager
def explaining_lost_processes() -> Iterator[None]:
    """Turn torch's broken connections into a ProcessLostError."""
    try:
        yield
    except TwinRankError:
        raise
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        raise ProcessLostError(
            "Another process of this training has died or cannot be reached, so this one stops "
            "too; the last checkpoint is kept."
        ) from error


def is_lost_connection(error: BaseException) -> bool:
    """True if an error of torch's is about the connection to another process."""
    text = str(error).lower()
    return any(word in text for word in ("connection", "gloo", "nccl", "timed out", "broken pipe"))


def current_group() -> ProcessGroup:
    """The group that torchrun's variables describe, or this process alone."""
    return TorchProcessGroup() if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ProcessGroup()
