"""How many threads torch takes, for a while."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside = 0
_before = 1


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
