"""Where a net computes: batches in the memory of a device, and the threads of torch on a CPU.

Features that fit are moved to a device once; others are copied while it works. Small batches use
one thread.
"""

import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.data.batches import Batch, Batches, rows_of
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform

if TYPE_CHECKING:
    from twinrank.learning.models.ensemble import Net


_LARGEST = 1024**3
"""Bytes of features on a device that does not tell how much memory is free."""

_DOCUMENTS = 1 << 16
"""Documents that are transformed and moved together."""

_MIN_PRODUCTS = 40_000_000  # products of a weight and an input, from which on threads pay

_lock = threading.Lock()
_active = 0  # contexts that are open
_threads_before = 1


class DeviceBatches:
    """The batches of a dataset whose transformed features are in the memory of a device.

    `X` and `y` of a batch are tensors there, and its lists are there, too. Only the numbers of the
    documents are copied for a batch.
    """

    def __init__(
        self, batches: Batches, data: Dataset, transform: Transform, device: torch.device
    ) -> None:
        self._batches, self._data, self._device = batches, data, device
        columns = transform.outputs(data.features)
        self._X = torch.empty(data.documents, columns, device=device)
        self._y = on_device(np.ascontiguousarray(data.y), device)
        parts = data.batches(_DOCUMENTS, transform=transform)
        for part in parts.made(parts.plan(0)):
            self._X[on_device(rows_of(data.lists, part.queries), device)] = on_device(
                part.X, device
            )

    def plan(self, number: int) -> list[npt.NDArray[np.int64]]:
        """The query numbers of each batch of an epoch."""
        return self._batches.plan(number)

    def made(self, plan: list[npt.NDArray[np.int64]]) -> Generator[Batch]:
        """Iterate over the batches of a plan."""
        for queries in plan:
            rows = on_device(rows_of(self._data.lists, queries), self._device)
            lists = Lists.from_sizes(self._data.lists.sizes[queries]).to(self._device)
            yield Batch(self._X[rows], self._y[rows], lists, queries)  # type: ignore[arg-type]


def batches_on(
    device: torch.device, batches: Batches, data: Dataset, transform: Transform
) -> Batches | DeviceBatches:
    """The batches, on the device if the features fit."""
    if fits(data.documents * transform.outputs(data.features) * 4, device):
        return DeviceBatches(batches, data, transform, device)
    return batches


def fits(size: int, device: torch.device) -> bool:
    """True if this many bytes take at most half of a device's free memory; a CPU needs no copy.

    The other half is for the net, its gradients and the optimiser.
    """
    if device.type == "cpu":
        return False
    if device.type == "cuda":
        return size <= torch.cuda.mem_get_info(device)[0] // 2
    return size <= _LARGEST


def on_device(values: Any, device: torch.device) -> Tensor:
    """An array or tensor on a device; the host does not wait for the copy."""
    if isinstance(values, Tensor):
        return values
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def threads_for(scorer: "Net", documents: int) -> AbstractContextManager[None]:
    """A context in which torch uses one thread if the net and the batch are small.

    More threads are no faster there, and much slower on busy cores, since they wait for each other.
    """
    weights = list(scorer.parameters())
    if weights[0].device.type != "cpu":
        return nullcontext()
    number, size = sum(w.numel() for w in weights), scorer.ensemble_size
    if scorer.architecture is not None and scorer.architecture.shared:
        products = number * size  # all nets use the same weights, in one product
    else:
        products = number // size  # the nets of an ensemble run one after the other
    is_small = documents * products < _MIN_PRODUCTS
    return one_torch_thread() if is_small else nullcontext()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Use one thread in torch, and in compiled loops, which follow torch's number.

    The number belongs to the whole process. If several contexts overlap, the first to open stores
    the number and the last to close restores it.
    """
    global _active, _threads_before
    with _lock:
        _active += 1
        if _active == 1:
            _threads_before = torch.get_num_threads()
            torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                torch.set_num_threads(_threads_before)
