"""How far a study is: units write it to small files, whoever leads reads them."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinrank.display.progress_bars import polling
from twinrank.study.results import RUNNING, Failure, read_failure, read_unit
from twinrank.study.units import Unit, UnitResult
from twinrank.support.errors import FileError, InputError
from twinrank.support.files import read_json

_EVERY = 0.5  # seconds between writes


class Status:
    """A callback, of nets and trees alike, that keeps a small file about one unit's training.

    When the process that leads is gone, it ends its own: nobody waits for the unit, and who takes
    up the study trains it anew.
    """

    def __init__(self, path: Path, unit: Unit, leader: int | None = None) -> None:
        self.path, self._leader = path, leader
        self._about: dict[str, Any] = {"unit": str(unit), "done": 0.0, "total": 0, "value": None}
        self._written = 0.0
        self._write(at_once=True)

    def on_start(self, training: Any) -> None:
        """Training is about to begin."""
        self._about["total"] = training.rounds if _trees(training) else training.plan.epochs
        self._write(at_once=True)

    def on_step(self, trainer: Any) -> None:
        """A net has learnt from a batch."""
        state = trainer.progress
        self._about["done"] = state.epoch + state.step / max(trainer.steps, 1)
        self._write()

    def on_epoch(self, _: Any, record: dict[str, Any]) -> None:
        """A net has gone through all batches."""
        self._note(record["epoch"], record)

    def on_round(self, _: Any, record: dict[str, Any]) -> None:
        """A tree was grown."""
        self._note(record["round"], record)

    def on_interrupt(self, _: Any) -> None:
        """Nothing to be done."""

    on_stop = on_end = on_interrupt

    def remove(self) -> None:
        """Training is over."""
        self.path.unlink(missing_ok=True)

    def _note(self, done: int, record: dict[str, Any]) -> None:
        self._about["done"] = done
        self._about["value"] = record.get("validation", self._about["value"])
        self._write()

    def _write(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._written < _EVERY:
            return
        self._written = now
        if self._leader is not None and os.getppid() != self._leader:
            os._exit(1)
        partial = self.path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # a picture that is late is no reason to fail
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(self._about), "utf-8")
            partial.replace(self.path)


def _trees(training: Any) -> bool:
    return hasattr(training, "rounds")


@contextmanager
def watching(
    out: Path, units: Sequence[Unit], lacking: Sequence[Unit], show: bool
) -> Iterator[None]:
    """Show how units go while they run elsewhere: a live picture on a terminal, else lines."""
    if not show or not lacking:
        yield
        return
    watch = Watch(out, len(units), lacking, live=sys.stderr.isatty())
    with polling(watch.look, watch.close):
        yield


class Watch:
    """What a person sees of a study: a line per unit that has ended, and on a terminal bars."""

    def __init__(self, out: Path, total: int, lacking: Sequence[Unit], live: bool) -> None:
        from rich.console import Console

        self._out, self._total = out, total
        self._left = {unit.key: unit for unit in lacking}
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._bars: Any = None
        self._running: dict[str, Any] = {}
        done = total - len(lacking)
        if done:
            self._say(f"{done} of {total} units were finished before")
        if live:
            self._bars = _bars(self._console)
            self._bars.start()
            self._whole = self._bars.add_task("All units", total=total, completed=done, found="")

    def look(self) -> None:
        """Read what units have written since."""
        for key, unit in list(self._left.items()):
            ended = read_unit(self._out, unit) or read_failure(self._out, unit)
            if ended is not None:
                del self._left[key]
                done = self._total - len(self._left)
                self._say(f"[{done}/{self._total}] {_line(ended)}")
        if self._bars is not None:
            self._show()

    def close(self) -> None:
        """Take the picture down."""
        if self._bars is not None:
            self._bars.stop()

    def _say(self, line: str) -> None:
        if self._bars is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bars.console.print(line)

    def _show(self) -> None:
        parts = 0.0
        for key, unit in self._left.items():
            about = _status(self._out / RUNNING / f"{key}.json")
            if about is None:
                continue
            if key not in self._running:
                self._running[key] = self._bars.add_task(str(unit), total=None, found="")
            total, done = about["total"], about["done"]
            value = about["value"]
            parts += done / total if total else 0.0
            self._bars.update(
                self._running[key],
                total=total or None,
                completed=done,
                found=f"{int(done)}/{total}" + ("" if value is None else f"  {value:.4f}"),
            )
        for key in [key for key in self._running if key not in self._left]:
            self._bars.remove_task(self._running.pop(key))
        done = self._total - len(self._left)
        self._bars.update(self._whole, completed=done + parts, found=f"{done}/{self._total} units")


def _bars(console: Any) -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[found]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _status(path: Path) -> dict[str, Any] | None:
    try:
        about: dict[str, Any] = read_json(path)
    except (FileError, InputError):
        return None
    return about


def _line(ended: UnitResult | Failure) -> str:
    if isinstance(ended, Failure):
        return f"{ended.unit} failed: {ended.error}"
    measured = ended.unit.parameters["validation_measure"]
    best = ""
    if ended.best_value is not None:
        each = "round" if "round" in ended.history[0] else "epoch"
        best = f"validation {measured} {ended.best_value:.4f} in {each} {ended.best_epoch}, "
    return f"{ended.unit}: {best}{ended.seconds:.0f} s"
