"""Progress of a training on the terminal: a live bar, or plain lines elsewhere."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from twinrank.learning.training.callbacks import Callback, Record
from twinrank.support.terminal import printable

if TYPE_CHECKING:
    from twinrank.learning.training.loop import Trainer


def values_of(trainer: "Trainer", record: Record) -> list[str]:
    """The loss, the measure on every evaluation set and the best value, as text."""
    parts = [f"loss {record['loss']:.4f}"] if "loss" in record else []
    measure = trainer.plan.validation_measure
    parts += [
        f"{name} {measure} {record[name]:.4f}"
        for name in trainer.validation.sets
        if record.get(name) is not None
    ]
    goals = record.get("goals", {}).get(trainer.validation.selecting, {})
    parts += [f"{name} {value:.4f}" for name, value in goals.items() if value is not None]
    parts += [f"weight {value:.2f}" for value in record.get("weights", {}).values()]
    return parts if trainer.best is None else [*parts, trainer.best.text(trainer.iteration_name)]


class Lines(Callback):
    """A line on standard error for every epoch, for every tenth round, and for the last one."""

    def on_prepare(self, note: str) -> None:
        """Print the note."""
        print(note, file=sys.stderr, flush=True)

    def on_pretrain_epoch(self, record: dict[str, float]) -> None:
        """Print the loss."""
        print(_pretraining(record), file=sys.stderr, flush=True)

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Print the note, if there is one."""
        _print_note(trainer)

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:
        """Print what was measured."""
        number, last = record["iteration"], trainer.plan.iterations
        if number % trainer.learner.report_every and number < last and not trainer.stop_reason:
            return
        parts = [f"{trainer.iteration_name} {number}/{last}", *values_of(trainer, record)]
        line = "  ".join([*parts, f"{record['seconds']:.0f} s"])
        print(printable(line), file=sys.stderr, flush=True)

    def on_train_end(self, trainer: "Trainer") -> None:
        """Say why training ended early."""
        _print_stop_reason(trainer)


class JsonLines(Callback):
    """A line of JSON on standard output for every epoch or round, as the history has it.

    An iteration that was not evaluated waits for the next, since the last one is evaluated at the
    end of training. Lines of a blend name the ranker.
    """

    def __init__(self, ranker: str | None = None) -> None:
        self._about = {} if ranker is None else {"ranker": ranker}
        self._waiting: Record | None = None

    def for_ranker(self, name: str) -> "JsonLines":
        """Lines with the name of the ranker."""
        return JsonLines(name)

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:
        """Print the iteration, or the one before if this one waits."""
        self._print()
        self._waiting = record
        if trainer.validation.selecting in (None, *record):
            self._print()

    def on_train_end(self, trainer: "Trainer") -> None:  # noqa: ARG002
        """Print the last iteration."""
        self._print()

    def _print(self) -> None:
        if self._waiting is not None:
            print(json.dumps({**self._about, **self._waiting}), flush=True)
        self._waiting = None


class Bar(Callback):
    """A live bar: iterations, documents per second, the latest and best values, time left."""

    def __init__(self) -> None:
        self._live: Any = None
        self._bar: Any = None
        self._task: Any = None
        self._text: Any = None
        self._documents, self._began = 0, 0.0

    def on_prepare(self, note: str) -> None:
        """Print the note."""
        print(note, file=sys.stderr, flush=True)

    def on_pretrain_epoch(self, record: dict[str, float]) -> None:
        """Replace the line of the epoch before."""
        end = "\n" if record["epoch"] == record["epochs"] else ""
        print(f"\r{_pretraining(record)}", end=end, file=sys.stderr, flush=True)

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Show the bar."""
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.text import Text

        _print_note(trainer)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("Training", total=trainer.plan.iterations, speed="")
        self._text = Text()  # below the bar, on as many lines as it needs
        self._live = Live(Group(self._bar, self._text), console=Console(stderr=True))
        self._live.start()
        self._documents, self._began = 0, time.monotonic()

    def on_step_end(self, trainer: "Trainer") -> None:
        """Advance."""
        state = trainer.progress
        self._documents += trainer.step_documents
        speed = self._documents / max(time.monotonic() - self._began, 1e-9)
        number, last = state.iteration + 1, trainer.plan.iterations
        self._bar.update(
            self._task,
            completed=state.iteration + state.step / max(trainer.steps, 1),
            description=f"{trainer.iteration_name.capitalize()} {number}/{last}",
            speed=f"{speed:,.0f} docs/s",
        )

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:
        """Show what was measured."""
        self._text.plain = "  ".join(values_of(trainer, record))
        self._bar.update(self._task, completed=record["iteration"])

    def on_train_end(self, trainer: "Trainer") -> None:
        """Remove the bar."""
        if self._live is not None:
            self._live.stop()
        _print_stop_reason(trainer)


def _pretraining(record: dict[str, float]) -> str:
    epoch = f"pre-training epoch {record['epoch']}/{record['epochs']}"
    return f"{epoch}  loss {record['loss']:.4f}  {record['seconds']:.0f} s"


def _print_note(trainer: "Trainer") -> None:
    if trainer.note:
        print(f"Note: {trainer.note}", file=sys.stderr)


def _print_stop_reason(trainer: "Trainer") -> None:
    if trainer.stop_reason:
        print(f"stopped: {trainer.stop_reason}", file=sys.stderr)


def console(quiet: bool = False) -> list[Callback]:
    """The callback that suits standard error; none if quiet."""
    if quiet:
        return []
    return [Bar() if sys.stderr.isatty() else Lines()]
