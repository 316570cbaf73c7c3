"""Callbacks: small classes that are told what happens while a net is trained."""

import json
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from twinrank.support.files import replacing

if TYPE_CHECKING:
    from twinrank.training.loop import Trainer


class Callback:
    """What a trainer tells; a subclass says what it is interested in."""

    def on_start(self, trainer: "Trainer") -> None:
        """Training is about to begin, or to go on."""

    def on_step(self, trainer: "Trainer") -> None:
        """A batch has been learnt from."""

    def on_epoch(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """An epoch is complete; the record is what was measured."""

    def on_interrupt(self, trainer: "Trainer") -> None:
        """Someone asked to stop; this is the moment to save."""

    def on_stop(self, trainer: "Trainer") -> None:
        """The loop has ended, for whatever reason."""

    def on_end(self, trainer: "Trainer") -> None:
        """Training is complete and the best weights are in place."""


class EarlyStopping(Callback):
    """Stops when the selecting value, or that of every member, hasn't risen for some epochs."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_epoch(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Compare with the best epoch."""
        best = trainer.validation.best
        if best is not None and record["epoch"] - best.epoch >= self.patience:
            measure = trainer.plan.validation_measure
            what = f"no better {measure} than {best.value:.4f} (epoch {best.epoch})"
            if best.members:
                what = f"no member with a better {measure} than until epoch {best.epoch}"
            trainer.stop_reason = f"{what} for {self.patience} epochs"


class HistoryFile(Callback):
    """Keeps one line of JSON per epoch in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_epoch(self, trainer: "Trainer", _: dict[str, Any]) -> None:
        """Write all lines anew: after a resume the file is what the run knows."""
        lines = [json.dumps(record) for record in trainer.progress.history]
        with replacing(self.path) as partial:
            partial.write_text("\n".join(lines) + "\n", "utf-8")


class StopOnInterrupt(Callback):
    """Ctrl-C or SIGTERM once: the step is finished and all is saved. Ctrl-C twice: at once.

    What starts several processes passes a Ctrl-C on that they have had already, so there the
    second one changes nothing.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def on_start(self, trainer: "Trainer") -> None:
        """Take over the signals, where that is possible."""
        if threading.current_thread() is not threading.main_thread():
            return

        def note(number: int, _: FrameType | None) -> None:
            if trainer.interrupted and number == signal.SIGINT and trainer.processes.count == 1:
                raise KeyboardInterrupt
            trainer.interrupted = True

        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, note)

    def on_stop(self, trainer: "Trainer") -> None:  # noqa: ARG002
        """Give the signals back."""
        while self._before:
            signal.signal(*self._before.popitem())
