"""Loops compiled by numba: cached on disk, free of the interpreter lock, run on our own threads.

Numba's `parallel=True` is not used. Its threading layers abort when two threads enter at once
(workqueue) or kill a child forked later (OpenMP), and it takes seconds to compile. A loop here
releases the interpreter lock instead and is given a range of work; `in_threads` runs the ranges on
a pool of Python threads, which any thread may enter and which a forked child builds anew.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

Function = TypeVar("Function", bound=Callable[..., Any])

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_most: ContextVar[int] = ContextVar("twinrank_threads", default=sys.maxsize)


def compiled(function: Function) -> Function:
    """Compile a loop at its first call for each combination of types; keep the code on disk."""
    return _compile(function)


def compiled_sums(function: Function) -> Function:
    """As `compiled`, and let the compiler reorder sums so that they run on vector units.

    The order is fixed when the loop is compiled: the same input gives the same bits each time.
    """
    return _compile(function, fastmath={"reassoc", "contract", "nsz"})


def _compile(function: Function, **flags: Any) -> Function:
    flags |= {"nogil": True, "error_model": "numpy"}
    try:
        dispatcher = numba.njit(cache=True, **flags)(function)
        _notice_changes(dispatcher, function)
        _survive_failing_writes(dispatcher)
    except (RuntimeError, AttributeError):
        # Nowhere to write, or a numba whose cache has changed inside: compile in each process.
        return numba.njit(**flags)(function)  # type: ignore[no-any-return]
    return dispatcher  # type: ignore[no-any-return]


def _notice_changes(dispatcher: Any, function: Function) -> None:
    """Numba looks for changes in a function's own file; what it calls is in the code as well."""
    stored = dispatcher._cache._cache_file
    folder = Path(function.__code__.co_filename).parent
    stored._source_stamp = stored._source_stamp, _sources(folder), _sources(Path(__file__).parent)


@cache
def _sources(folder: Path) -> str:
    """A hash of a folder's modules."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _survive_failing_writes(dispatcher: Any) -> None:
    """A cache that can't be written (full disk, revoked permission) must not fail the call."""
    cache = dispatcher._cache
    save = cache.save_overload

    def save_or_go_on(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError:
            cache.disable()
            # Numba writes the index before the code: it may now name a file with older code.
            with suppress(OSError):
                Path(cache._cache_file._index_path).unlink()

    cache.save_overload = save_or_go_on


def threads() -> int:
    """How many threads a parallel loop uses: torch's number if torch is loaded, else all cores.

    Or fewer, within `threads_at_most`.
    """
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found = int(torch.get_num_threads())
    elif hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    return min(found, _most.get())


def limit_of_threads(n_jobs: int | None) -> int | None:
    """The smaller of `n_jobs` and the limit of this context; None if neither limits."""
    limit = _most.get()
    if limit == sys.maxsize:
        return n_jobs
    return limit if n_jobs is None or n_jobs < 0 else min(n_jobs, limit)


@contextmanager
def threads_at_most(number: int | None) -> Iterator[None]:
    """Limit the threads of loops in this context, as scikit-learn's `n_jobs`: −1, None: don't."""
    token = _most.set(number if number is not None and number > 0 else _most.get())
    try:
        yield
    finally:
        _most.reset(token)


def pieces(size: int, per_thread: int) -> list[tuple[int, int]]:
    """Cut 0…size into at most `threads()` like ranges, none below `per_thread`.

    >>> pieces(10, per_thread=100)
    [(0, 10)]
    """
    parts = max(1, min(threads(), size // per_thread))
    return [(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


def spans(costs: Any, per_thread: int) -> list[tuple[int, int]]:
    """Cut 0…len(costs) into at most `threads()` ranges of like cost, none much below `per_thread`.

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
    """Call `loop(start, stop, *shared)` for every range, the first one on the calling thread."""
    if len(ranges) == 1:
        loop(*ranges[0], *shared)
        return
    others = [_submit(loop, start, stop, *shared) for start, stop in ranges[1:]]
    try:
        if ranges:
            loop(*ranges[0], *shared)
    finally:  # never leave while another thread still writes into shared arrays
        errors = [error for wait in others if (error := wait()) is not None]
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
        wanted = max(threads() - 1, 1)
        if _pool is None or _pool_size != wanted:
            _pool = ThreadPoolExecutor(wanted, thread_name_prefix="twinrank")
            _pool_size = wanted
        # No thread can be started at interpreter exit, or beyond the system's limit. The work may
        # be queued nevertheless: take it back, unless a thread has begun with it.
        with suppress(RuntimeError):
            _pool.submit(run)
            return task.exception
    if task.cancel():
        loop(*arguments)
        return lambda: None
    return task.exception


def untraced(function: Function) -> Function:
    """Break the graph of torch.compile'd code at `function`, which is NumPy and compiled loops.

    That is what `torch.compiler.disable` does; but it imports the compiler, which takes over a
    second, so here it waits until somebody compiles.
    """
    disabled: Any = None

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal disabled
        torch = sys.modules.get("torch")
        if torch is None or not torch.compiler.is_compiling():
            return function(*arguments, **options)
        if disabled is None:
            disabled = torch.compiler.disable(function)
        return disabled(*arguments, **options)

    return call  # type: ignore[return-value]


def _forget_threads() -> None:
    """Forked children have none of the parent's threads, and perhaps a lock that nobody holds."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
    # A child forked while another thread compiles would wait for that thread for ever.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
