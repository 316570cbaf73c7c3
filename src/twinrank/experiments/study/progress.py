"""The progress display of studies and searches: live bars on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from twinrank.support.progress_bars import polling
from twinrank.support.quantities import duration
from twinrank.support.terminal import printable


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
