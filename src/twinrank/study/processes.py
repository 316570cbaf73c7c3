"""Calls on processes of their own, some of which may die."""

import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

DIED = "the process that trained it died; was there enough memory?"


def in_processes(calls: Sequence[Any], jobs: int) -> bool:
    """Run joblib's delayed calls, `jobs` at a time; whether their processes lived to the end.

    At Ctrl-C they are ended before the interruption goes on.
    """
    from joblib import Parallel
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with _interrupted_once(), warnings.catch_warnings():
        # loky's, when a process is replaced to free memory: nothing that one could act on.
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
        try:
            Parallel(n_jobs=jobs, backend="loky", batch_size=1)(calls)
        except TerminatedWorkerError:
            return False
        except KeyboardInterrupt:
            get_reusable_executor().shutdown(wait=True, kill_workers=True)
            raise
    return True


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """Let Ctrl-C count once: at a second one, processes that are being ended would live on."""

    def note(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
