"""The scheduler of studies: runs jobs in processes or on Ray, and shows their progress."""

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from twinrank.support.errors import InputError, TwinRankError, needing
from twinrank.support.quantities import duration
from twinrank.support.terminal import polling, printable

DIED = "the process that trained it died; was there enough memory?"
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^/:]+):(?P<port>\d+)")
_CONNECT_SECONDS = 5.0  # Ray itself would try for minutes
_RESUME = "Finished jobs are kept; the same command continues."

Job = Callable[[int | None], None]
"""A picklable function. Its argument is the id of the process that started its own, if any."""


class ClusterError(TwinRankError):
    """The cluster failed, not a job on it."""


@dataclass(frozen=True)
class Item:
    """A training that runs or has ended, as the display shows it."""

    name: str
    ended: bool = False
    closing_line: str = ""
    """Shown once, when the training has ended."""
    done: float = 0.0
    """Iterations so far."""
    total: int = 0
    """Iterations at most, 0 if that is not known yet."""
    value: float | None = None
    """The last validation value."""


class Watched(Protocol):
    """Trainings that run elsewhere, as the display reads them."""

    @property
    def label(self) -> str:
        """The plural of an item, such as "units"."""

    @property
    def total(self) -> int:
        """The number of trainings, those that have not started included."""

    def items(self) -> Mapping[str, Item]:
        """The trainings that run or have ended, by key."""

    def headline(self) -> str:
        """The best result so far, if results compare."""


class Queue(Watched, Protocol):
    """Jobs, each of which records that it has ended."""

    def pending(self) -> Sequence[Job]:
        """The jobs that have not ended."""

    def on_death(self, retry: Callable[[Job], bool]) -> None:
        """Handle the death of processes: mark the jobs that they ran as failed, or retry them.

        `retry` runs one job alone and returns True if its process survived. Afterwards at least
        one job must no longer be pending.
        """


def run_jobs(
    queue: Queue, jobs: int | None = None, ray: str | None = None, progress: bool = True
) -> None:
    """Run the pending jobs of a queue, and show their progress.

    `jobs` run at a time, by default one per core. A single one runs in this process. `ray` is the
    address of a Ray cluster that runs them instead.
    """
    if pending := queue.pending():
        with watching(queue, progress):
            _run(queue, pending, jobs, ray)


def _run(queue: Queue, pending: Sequence[Job], jobs: int | None, ray: str | None) -> None:
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
    with needing("--ray", "Ray", "cluster"):
        import ray
        from ray.util.joblib import register_ray
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


@contextmanager
def watching(watched: Watched, show: bool = True) -> Iterator[None]:
    """Show the progress of trainings within a block, unless all have ended before."""
    ended = sum(item.ended for item in watched.items().values()) if show else 0
    if not show or ended >= watched.total:
        yield
        return
    display = _Display(watched, live=sys.stderr.isatty())
    with polling(display.look, display.close):
        yield


class _Display:
    """Prints a line for each training that has ended, and on a terminal a bar for each other."""

    def __init__(self, watched: Watched, live: bool) -> None:
        self._watched = watched
        self._ended = {key for key, item in watched.items().items() if item.ended}
        self._before, self._started = len(self._ended), time.monotonic()
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        if self._ended:
            self._print(
                f"{len(self._ended)} of {watched.total} {watched.label} were finished before"
            )
        if live:
            self._bars = _bars()
            self._bars.start()
            self._all = self._bars.add_task(f"All {watched.label}", total=watched.total, text="")

    def look(self) -> None:
        """Print the lines of trainings that have ended since, and update the bars."""
        items = self._watched.items()
        headline = self._watched.headline()
        for key, item in items.items():
            if item.ended and key not in self._ended:
                self._ended.add(key)
                count = f"[{len(self._ended)}/{self._watched.total}]"
                self._print("  ".join(filter(None, [f"{count} {item.closing_line}", headline])))
        if self._bars is not None:
            self._update({key: item for key, item in items.items() if not item.ended}, headline)

    def close(self) -> None:
        """Remove the bars."""
        if self._bars is not None:
            self._bars.stop()

    def _print(self, line: str) -> None:
        if self._bars is None:
            print(printable(line), file=sys.stderr, flush=True)
        else:
            self._bars.console.print(printable(line))

    def _update(self, running: Mapping[str, Item], headline: str) -> None:
        for key, item in running.items():
            if key not in self._tasks:
                self._tasks[key] = self._bars.add_task(item.name, total=None, text="")
            value = "" if item.value is None else f"  {item.value:.4f}"
            self._bars.update(
                self._tasks[key],
                total=item.total or None,
                completed=item.done,
                text=f"{int(item.done)}/{item.total}{value}",
            )
        for key in [key for key in self._tasks if key not in running]:
            self._bars.remove_task(self._tasks.pop(key))
        count = f"{len(self._ended)}/{self._watched.total}"
        partly = sum(item.done / item.total for item in running.values() if item.total)
        completed = len(self._ended) + partly
        left = ""
        if len(self._ended) > self._before:
            elapsed, done = time.monotonic() - self._started, completed - self._before
            left = _time_left(elapsed, done, self._watched.total - completed)
        text = "  ".join(filter(None, [count, headline, left]))
        self._bars.update(self._all, completed=completed, text=text)


def _time_left(elapsed: float, done: float, remaining: float) -> str:
    """The expected time of the remaining trainings, if they take as long as those before.

    >>> _time_left(100.0, done=2.5, remaining=5.0)
    '3 minutes left'
    """
    return f"{duration(elapsed * remaining / done)} left" if remaining > 0 else ""


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False, markup=False),
        transient=True,
    )
