"""How many threads torch takes, for a while."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from twinrank.models.ensemble import Net

_WORTH_THREADS = 40_000_000  # products of a weight and a document's value

_lock = threading.Lock()
_inside = 0
_before = 1


def threads_for(scorer: "Net", documents: int) -> AbstractContextManager[None]:
    """One thread to send few documents through a small net.

    There more threads are no faster, and where cores are busy far slower: they wait for each other.
    """
    weights = list(scorer.parameters())
    if weights[0].device.type != "cpu":
        return nullcontext()
    of_one = sum(w.numel() for w in weights) // scorer.ensemble_size  # models take turns
    return one_torch_thread() if documents * of_one < _WORTH_THREADS else nullcontext()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """One thread for torch and the compiled loops, which take as many as torch does.

    The number is one for the whole process: of several that overlap, the first to come remembers
    it, and the last to go restores it.
    """
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                torch.set_num_threads(_before)
