"""What a person sees of a search: trials as they end, the best so far, and what runs now."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinrank.display.progress_bars import polling
from twinrank.study.tuning.search import Tuning
from twinrank.study.tuning.trials import Tried, best_of, open_search, tried


@contextmanager
def watching(out: Path, tuning: Tuning, trials: int, show: bool) -> Iterator[None]:
    """Show how trials go, wherever they run: a live picture on a terminal, else lines."""
    if not show:
        yield
        return
    watch = Watch(out, tuning, trials, live=sys.stderr.isatty())
    with polling(watch.look, watch.close):
        yield


class Watch:
    """Reads the journal, and says what is new in it."""

    def __init__(self, out: Path, tuning: Tuning, trials: int, live: bool) -> None:
        self._tuning = tuning
        self._searches = [open_search(out, tuning, model) for model in tuning.models]
        self._bars: Any = None
        self._running: dict[str, Any] = {}
        there = self._ended(self._trials())
        self._said = {one.name for one in there}
        self._total = max(trials * len(self._searches), len(there))
        if there:
            self._say(f"{len(there)} of {self._total} trials were finished before")
        if live and len(there) < self._total:
            self._bars = _bars()
            self._bars.start()
            self._whole = self._bars.add_task("Trials", total=self._total, found="")

    def look(self) -> None:
        """Say what ended since; show what runs."""
        trials = self._trials()
        ended = self._ended(trials)
        best = next(iter(best_of(ended)), None)
        for one in ended:
            if one.name not in self._said:
                self._said.add(one.name)
                self._say(f"[{len(self._said)}/{self._total}] {self._line(one)}{_so_far(best)}")
        if self._bars is not None:
            self._show([one for one in trials if one.state == "running"], best)

    def close(self) -> None:
        """Take the picture down."""
        if self._bars is not None:
            self._bars.stop()

    def _trials(self) -> list[Tried]:
        return [one for search in self._searches for one in tried(search)]

    @staticmethod
    def _ended(trials: list[Tried]) -> list[Tried]:
        return [one for one in trials if one.state != "running"]

    def _line(self, one: Tried) -> str:
        if one.state == "failed":
            return f"{one.name} failed: {one.error}"
        value = "" if one.value is None else f" {self._tuning.measure} {one.value:.4f}"
        word = "pruned at" if one.state == "pruned" else "complete:"
        return f"{one.name} {word}{value} after {one.after}, {one.seconds or 0:.0f} s"

    def _say(self, line: str) -> None:
        if self._bars is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bars.console.print(line)

    def _show(self, running: list[Tried], best: Tried | None) -> None:
        parts = 0.0
        for one in running:
            total = self._tuning.total(one.model)
            if one.name not in self._running:
                self._running[one.name] = self._bars.add_task(one.name, total=total, found="")
            value = "" if one.value is None else f"  {one.value:.4f}"
            found = f"{one.after}/{total}{value}"
            self._bars.update(self._running[one.name], completed=one.after, found=found)
            parts += one.after / total
        for name in [n for n in self._running if n not in {one.name for one in running}]:
            self._bars.remove_task(self._running.pop(name))
        done = len(self._said)
        found = f"{done}/{self._total}{_so_far(best)}"
        self._bars.update(self._whole, completed=done + parts, found=found)


def _so_far(best: Tried | None) -> str:
    return "" if best is None else f"  best {best.value:.4f} ({best.name})"


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[found]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False, markup=False),
        transient=True,
    )
