"""The number of threads that torch uses: one for small batches."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from twinrank.learning.models.ensemble import Net

_MIN_PRODUCTS = 40_000_000  # products of a weight and an input, from which on threads pay

_lock = threading.Lock()
_active = 0  # contexts that are open
_threads_before = 1


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
