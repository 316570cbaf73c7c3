"""What a person sees while a net is trained: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Any

from twinrank.training.callbacks import Callback

if TYPE_CHECKING:
    from twinrank.training.loop import Trainer


def line_of(trainer: "Trainer", record: dict[str, Any]) -> str:
    """One epoch in one line."""
    parts = [f"epoch {record['epoch']}/{trainer.plan.epochs}", f"loss {record['loss']:.4f}"]
    measure = trainer.plan.validation_measure
    parts += [
        f"{name} {measure} {record[name]:.4f}"
        for name in trainer.validation.sets
        if record.get(name) is not None
    ]
    if trainer.validation.best is not None:
        parts.append(str(trainer.validation.best))
    return "  ".join([*parts, f"{record['seconds']:.0f} s"])


class Lines(Callback):
    """A line per epoch on standard error."""

    def on_epoch(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Say what was measured."""
        print(line_of(trainer, record), file=sys.stderr, flush=True)

    def on_stop(self, trainer: "Trainer") -> None:
        """Say why training ended early."""
        if trainer.stop_reason:
            print(f"stopped: {trainer.stop_reason}", file=sys.stderr)


class Bar(Callback):
    """A live bar: epochs, documents per second, loss, the latest and the best value, time left."""

    def __init__(self) -> None:
        self._live: Any = None
        self._bar: Any = None
        self._task: Any = None
        self._found: Any = None
        self._documents, self._began = 0, 0.0

    def on_start(self, trainer: "Trainer") -> None:
        """Put the bar on the screen."""
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.text import Text

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("Training", total=trainer.plan.epochs, speed="")
        self._found = Text()  # below the bar, on as many lines as it takes
        self._live = Live(Group(self._bar, self._found), console=Console(stderr=True))
        self._live.start()
        self._began = time.monotonic()

    def on_step(self, trainer: "Trainer") -> None:
        """Move on."""
        state = trainer.progress
        done = state.epoch + state.step / max(trainer.steps, 1)
        self._documents += trainer.step_documents
        speed = self._documents / max(time.monotonic() - self._began, 1e-9)
        self._bar.update(
            self._task,
            completed=done,
            description=f"Epoch {state.epoch + 1}/{trainer.plan.epochs}",
            speed=f"{speed:,.0f} docs/s",
        )

    def on_epoch(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Show what was measured."""
        line = "  ".join(line_of(trainer, record).split("  ")[1:-1])
        self._found.plain = line
        self._bar.update(self._task, completed=record["epoch"])

    def on_stop(self, trainer: "Trainer") -> None:
        """Take the bar down."""
        if self._live is not None:
            self._live.stop()
        if trainer.stop_reason:
            print(f"stopped: {trainer.stop_reason}", file=sys.stderr)


def reporter(quiet: bool = False) -> list[Callback]:
    """The callback that fits where standard error goes; none if quiet."""
    if quiet:
        return []
    return [Bar() if sys.stderr.isatty() else Lines()]
