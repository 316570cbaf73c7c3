"""Loops compiled by numba: cached on disk, without the interpreter lock, on a thread pool.

Numba's `parallel=True` is not used. Its threading layers abort when two threads enter at once
(workqueue) or kill child processes that are forked later (OpenMP), and it takes seconds to compile.
Here, a loop releases the interpreter lock and works on a range. `in_threads` runs the ranges on a
pool of Python threads. Any thread may use the pool, and a forked process creates its own.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from twinrank.support.files import private_folder

Function = TypeVar("Function", bound=Callable[..., Any])

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_limit: ContextVar[int] = ContextVar("twinrank_threads", default=sys.maxsize)


def compiled(function: Function) -> Function:
    """Compile a loop at the first call for each combination of types, and cache it on disk."""
    return _compile(function)


def compiled_sums(function: Function) -> Function:
    """As `compiled`, with sums reordered by the compiler so that they use SIMD instructions.

    The order is fixed at compile time, so the same input always gives the same bits.
    """
    return _compile(function, fastmath={"reassoc", "contract", "nsz"})


def _compile(function: Function, **flags: Any) -> Function:
    flags |= {"nogil": True, "error_model": "numpy"}
    try:
        dispatcher = _cached(function, flags)
        _invalidate_on_change(dispatcher, function)
        _ignore_write_errors(dispatcher)
    except (RuntimeError, AttributeError, OSError):
        # No writable folder at all, or another version of numba's cache: compile in each process.
        return numba.njit(**flags)(function)  # type: ignore[no-any-return]
    return dispatcher  # type: ignore[no-any-return]


def _cached(function: Function, flags: dict[str, Any]) -> Any:
    """Compile with a cache: beside the module, in the user's cache folder, or a temporary one."""
    try:
        return numba.njit(cache=True, **flags)(function)
    except RuntimeError:  # neither of the first two can be written
        settings: Any = numba.config
        own, chosen = settings.CACHE_DIR, os.environ.get("TWINRANK_CACHE_DIR")
        place = Path(chosen).expanduser() / "compiled" if chosen else private_folder("compiled")
        settings.CACHE_DIR = str(place.absolute())
        try:
            return numba.njit(cache=True, **flags)(function)
        finally:
            settings.CACHE_DIR = own


def _invalidate_on_change(dispatcher: Any, function: Function) -> None:
    """Recompile when a called module changes; numba only checks the file of the function."""
    stored = dispatcher._cache._cache_file
    folder = Path(function.__code__.co_filename).parent
    stored._source_stamp = stored._source_stamp, _sources(folder), _sources(Path(__file__).parent)


@cache
def _sources(folder: Path) -> str:
    """A hash of all modules in a folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _ignore_write_errors(dispatcher: Any) -> None:
    """Continue without a cache if it cannot be written, for example on a full disk."""
    cache = dispatcher._cache
    save = cache.save_overload

    def save_if_possible(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError:
            cache.disable()
            # Numba writes the index before the code, so the index may now refer to older code.
            with suppress(OSError):
                Path(cache._cache_file._index_path).unlink()

    cache.save_overload = save_if_possible


def threads() -> int:
    """The number of threads of a parallel loop: that of torch if it is loaded, else all cores.

    `threads_at_most` can limit it.
    """
    return min(_available_threads(), _limit.get())


def _available_threads() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_of_threads(n_jobs: int | None) -> int | None:
    """The smaller of `n_jobs` and the limit of this context; None if neither limits."""
    limit = _limit.get()
    if limit == sys.maxsize:
        return n_jobs
    return limit if n_jobs is None or n_jobs < 0 else min(n_jobs, limit)


@contextmanager
def threads_at_most(number: int | None) -> Iterator[None]:
    """Limit the threads in this context, as `n_jobs` of scikit-learn; −1 and None set no limit."""
    token = _limit.set(number if number is not None and number > 0 else _limit.get())
    try:
        yield
    finally:
        _limit.reset(token)


def pieces(size: int, per_thread: int) -> list[tuple[int, int]]:
    """Split 0…size into at most `threads()` equal ranges of at least `per_thread`.

    >>> pieces(10, per_thread=100)
    [(0, 10)]
    """
    parts = max(1, min(threads(), size // per_thread))
    return [(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


def spans(costs: Any, per_thread: int) -> list[tuple[int, int]]:
    """Split 0…len(costs) into at most `threads()` ranges of equal cost, about `per_thread` or more.

    >>> spans(np.array([1, 1, 1, 1]), per_thread=100)
    [(0, 4)]
    """
    parts = min(threads(), int(costs.sum()) // per_thread)
    if parts <= 1:
        return [(0, costs.size)]
    so_far = np.cumsum(costs)
    total = so_far[-1]
    cuts = np.searchsorted(so_far, total * np.arange(1, parts) / parts, side="right")
    bounds = np.unique([0, *cuts, so_far.size]).tolist()
    return list(pairwise(bounds))


def in_threads(loop: Callable[..., None], ranges: Sequence[tuple[int, int]], *shared: Any) -> None:
    """Call `loop(start, stop, *shared)` for every range, the first on the calling thread."""
    if len(ranges) == 1:
        loop(*ranges[0], *shared)
        return
    waits = [_submit(loop, start, stop, *shared) for start, stop in ranges[1:]]
    try:
        if ranges:
            loop(*ranges[0], *shared)
    finally:  # wait for threads that still write into shared arrays
        errors = [error for wait in waits if (error := wait()) is not None]
    if errors:
        raise errors[0]


def _submit(loop: Callable[..., None], *arguments: Any) -> Callable[[], BaseException | None]:
    global _pool, _pool_size
    task: Future[None] = Future()

    def run() -> None:
        if task.set_running_or_notify_cancel():
            try:
                loop(*arguments)
                task.set_result(None)
            except BaseException as error:
                task.set_exception(error)

    with _lock:
        workers = max(_available_threads() - 1, 1)  # for callers with several limits at once
        if _pool is None or _pool_size != workers:
            _pool = ThreadPoolExecutor(workers, thread_name_prefix="twinrank")
            _pool_size = workers
        # At interpreter exit, or at the system's limit, no thread can start. The task may still be
        # queued: cancel it, unless a thread has started it.
        with suppress(RuntimeError):
            _pool.submit(run)
            return task.exception
    if task.cancel():
        loop(*arguments)
        return lambda: None
    return task.exception


def _forget_threads() -> None:
    """Reset the pool in a forked process: it has no threads, and the lock may be held."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
    # A process forked while another thread compiles would wait for that thread forever.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
