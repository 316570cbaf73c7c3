"""Several processes that train one net: how they share a step and what they tell each other.

Every process knows the whole plan. Of each batch it takes its own part of the queries; gradients
are averaged by DistributedDataParallel, weighted so that they are those of the whole batch. What
has to be agreed on (did anything go wrong, has anyone been asked to stop) is agreed on in every
step, so that all do the same thing at the same time, and none waits for one that has given up.

Batch norm normalises with the statistics of each process's own part in training; the running
statistics, which score, are averaged over the processes after every step.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from twinrank.support.errors import InputError, TwinRankError

_PATIENCE = timedelta(minutes=30)


class TrainingError(TwinRankError, RuntimeError):
    """Training can't go on; what was learnt so far is kept where it was saved."""


class AbandonedError(TrainingError):
    """Another process has died, perhaps the one that leads."""


class Processes:
    """One process alone; everything that has to be agreed on is agreed."""

    rank, count = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def speaks(self, error: TrainingError) -> bool:
        """Whether this process tells of an error that all have met.

        That's for the one that leads; where it may be the one that died, for the next one, too.
        """
        return self.leads or (isinstance(error, AbandonedError) and self.rank == 1)

    def wrapped(self, scorer: nn.Module) -> nn.Module:
        """The net to call in training."""
        return scorer

    def part(
        self, queries: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], bool]:
        """This process's part of a batch, and whether it counts.

        Parts are cut where documents are shared out as evenly as whole queries allow. A process
        for which nothing is left gets one query that counts nothing, since it has to take part.
        """
        if self.count == 1:
            return queries, True
        middle = np.cumsum(sizes) - sizes / 2
        owner = np.minimum(middle * self.count // max(int(sizes.sum()), 1), self.count - 1)
        mine = queries[owner == self.rank]
        return (mine, True) if mine.size else (queries[:1], False)

    def sums(self, values: Sequence[float]) -> list[float]:
        """Each value added up over the processes."""
        return list(values)

    def average_buffers(self, scorer: nn.Module) -> None:
        """Give running statistics their mean over the processes."""

    def added(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Arrays added up over the processes."""
        return values

    def told(self, word: str) -> list[str]:
        """What each process has to say."""
        return [word]

    def wait(self) -> None:
        """Go on when all have come here."""

    def close(self) -> None:
        """Take leave of the others."""


class Several(Processes):
    """One of several processes, started by torchrun or alike."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist: Any = dist
        gpu = torch.cuda.is_available()
        if gpu:  # "cuda" means this process's own device from here on
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
            try:
                dist.init_process_group(backend, timeout=_PATIENCE)
            except (RuntimeError, ValueError) as error:
                raise InputError(f"the processes can't find each other: {error}") from error
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def wrapped(self, scorer: nn.Module) -> nn.Module:
        """The net, whose gradients are averaged over the processes."""
        from torch.nn.parallel import DistributedDataParallel

        with others_alive():  # they compare their nets
            return DistributedDataParallel(scorer)

    def sums(self, values: Sequence[float]) -> list[float]:
        """Each value added up over the processes."""
        vector = torch.tensor(values, dtype=torch.float64)
        self._all("all_reduce", vector)
        return vector.tolist()

    def average_buffers(self, scorer: nn.Module) -> None:
        """Give running statistics their mean over the processes."""
        found = [b for b in scorer.buffers() if b.is_floating_point()]
        if not found:
            return
        flat = torch.cat([b.detach().cpu().double().reshape(-1) for b in found])
        self._all("all_reduce", flat)
        flat /= self.count
        with torch.no_grad():
            start = 0
            for buffer in found:
                values = flat[start : (start := start + buffer.numel())]
                buffer.copy_(values.view_as(buffer))

    def added(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Arrays added up over the processes."""
        self._all("all_reduce", torch.from_numpy(values))
        return values

    def told(self, word: str) -> list[str]:
        """What each process has to say."""
        words: list[Any] = [None] * self.count
        self._all("all_gather_object", words, word)
        return words

    def wait(self) -> None:
        """Go on when all have come here."""
        self._all("all_reduce", torch.zeros(1))

    def close(self) -> None:
        """Take leave of the others."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group()

    def _all(self, what: str, *arguments: Any) -> None:
        with others_alive():
            getattr(self._dist, what)(*arguments)


class others_alive:  # noqa: N801 (reads as what it checks)
    """Says in plain words that another process has died, which shows as a broken connection."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, TwinRankError) and lost(error):
            raise AbandonedError(
                "another process of this training has died or can't be reached, so this one "
                "stops too; the last checkpoint is kept"
            ) from error


def lost(error: BaseException) -> bool:
    """Whether an error of torch's is about the connection to another process."""
    text = str(error).lower()
    return any(word in text for word in ("connection", "gloo", "nccl", "timed out", "broken pipe"))


def processes_here() -> Processes:
    """The processes that this one belongs to, by the variables that torchrun sets; else alone."""
    return Several() if int(os.environ.get("WORLD_SIZE", "1")) > 1 else Processes()
