"""The scheduler of studies: runs jobs on the processes of this machine or on a Ray cluster."""

import logging
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from twinrank.support.errors import InputError, TwinRankError

DIED = "the process that trained it died; was there enough memory?"
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^/:]+):(?P<port>\d+)")
_CONNECT_SECONDS = 5.0  # Ray itself would try for minutes
_RESUME = "Finished jobs are kept; the same command continues."

Job = Callable[[int | None], None]
"""A picklable function. Its argument is the id of the process that started its own, if any."""


class ClusterError(TwinRankError):
    """The cluster failed, not a job on it."""


class Queue(Protocol):
    """Jobs, each of which records that it has ended."""

    def pending(self) -> Sequence[Job]:
        """The jobs that have not ended."""

    def on_death(self, retry: Callable[[Job], bool]) -> None:
        """Handle the death of processes: mark the jobs that they ran as failed, or retry them.

        `retry` runs one job alone and returns True if its process survived. Afterwards at least
        one job must no longer be pending.
        """


def run_jobs(queue: Queue, jobs: int | None = None, ray: str | None = None) -> None:
    """Run the pending jobs of a queue.

    `jobs` run at a time, by default one per core. A single one runs in this process. `ray` is the
    address of a Ray cluster that runs them instead.
    """
    pending = queue.pending()
    if not pending:
        return
    if ray is not None:
        _run_on_ray(pending, ray, jobs)
        return
    count = min(jobs or cores(), len(pending))
    if count == 1:
        for job in pending:
            job(None)
        return
    while pending and not run_in_processes(pending, count):
        queue.on_death(lambda job: run_in_processes([job], count))
        pending = queue.pending()


def run_in_processes(pending: Sequence[Job], jobs: int) -> bool:
    """Run jobs in processes, `jobs` at a time. Return False if a process died, which ends all.

    Ctrl-C ends the processes before it is raised here.
    """
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with interrupted_once(signal.SIGINT), warnings.catch_warnings():
        # loky replaces a process to free memory, which needs no action by the user.
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
        try:
            calls = [delayed(job)(os.getpid()) for job in pending]
            Parallel(n_jobs=jobs, backend="loky", batch_size=1)(calls)
        except TerminatedWorkerError:
            return False
        except KeyboardInterrupt:
            get_reusable_executor().shutdown(wait=True, kill_workers=True)
            raise
    return True


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def interrupted_once(signal_number: int) -> Iterator[None]:
    """Raise KeyboardInterrupt on the first signal of this number, and ignore others.

    Processes that are being ended would survive a second one.
    """

    def interrupt(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal_number, interrupt)
    try:
        yield
    finally:
        signal.signal(signal_number, before)


def _run_on_ray(pending: Sequence[Job], address: str, jobs: int | None) -> None:
    """Run jobs on a Ray cluster, or on the one that this process has joined.

    Addresses are those of Ray: "auto" finds a running cluster, "local" starts one on this machine,
    "host:port" and "ray://host:port" name one. By default all its cores are used.
    """
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise InputError(
            "--ray needs Ray; install it with pip install 'twinrank[cluster]'."
        ) from error
    from joblib import Parallel, delayed, parallel_config

    started = not ray.is_initialized()
    if started:
        _check_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"There is no Ray cluster at {address} ({error}).") from error
    try:
        register_ray()
        with parallel_config(backend="ray"):
            Parallel(n_jobs=jobs or -1, batch_size=1)(delayed(job)(None) for job in pending)
    except ray.exceptions.RayError as error:
        raise ClusterError(f"The Ray cluster failed: {error}\n{_RESUME}") from error
    finally:
        if started:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise an error if no server listens at the address."""
    if (match := _ADDRESS.fullmatch(address)) is None:
        return
    try:
        host, port = match["host"], int(match["port"])
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"There is no Ray cluster at {address} ({error}).") from error
