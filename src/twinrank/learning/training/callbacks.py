"""Callbacks: classes that the training loop calls at every event, for nets and trees alike."""

import json
import signal
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from twinrank.support.errors import InputError, TwinRankError, explained
from twinrank.support.files import replacing

if TYPE_CHECKING:
    from twinrank.learning.training.loop import Trainer

Record = dict[str, Any]
"""One iteration in the history: `iteration`, `seconds`, one value per evaluation set, and for nets
`loss` and `learning_rate`. With several goals, `goals` has the value of each by evaluation set, and
with constraints `weights` the weight of each."""


class TrainingInterrupted(TwinRankError):  # noqa: N818 (an event, not an error)
    """Training was asked to stop, and has saved a checkpoint if it has a run folder."""


class Callback:
    """Base class of callbacks: override the events you need.

    An iteration is an epoch of a net or a round of boosting. Pass callbacks to `fit`:
    `ranker.fit(X, y, qid, callbacks=[MyCallback()])`. A callback ends training by setting
    `trainer.stop_reason` in `on_iteration_end`.

    Examples
    --------
    >>> from twinrank.training import Callback
    >>> class StopAt(Callback):
    ...     def __init__(self, value):
    ...         self.value = value
    ...     def on_iteration_end(self, trainer, record):
    ...         if record.get("validation", 0.0) >= self.value:
    ...             trainer.stop_reason = f"reached {self.value}"
    """

    def on_prepare(self, note: str) -> None:
        """Preparing the data for training begins, and takes long.

        Parameters
        ----------
        note : str
            What it takes: memory and time.
        """

    def on_pretrain_epoch(self, record: dict[str, float]) -> None:
        """An epoch of pre-training on unlabelled lists is done, before training starts.

        Parameters
        ----------
        record : dict
            `epoch`, `epochs` (their number), `loss` and `seconds`.
        """

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Training starts, or continues from a checkpoint.

        Parameters
        ----------
        trainer : Trainer
            The running training; `trainer.progress.history` holds earlier iterations.
        """

    def on_step_end(self, trainer: "Trainer") -> None:
        """A step is done: a batch of a net, or a round of boosting.

        Parameters
        ----------
        trainer : Trainer
            `trainer.progress.step` of `trainer.steps` steps are done.
        """

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:
        """An iteration is done and evaluated.

        Parameters
        ----------
        trainer : Trainer
            The running training.
        record : dict
            The new entry of the history.
        """

    def on_interrupt(self, trainer: "Trainer") -> None:
        """Training ends because of Ctrl-C or SIGTERM: the moment to save.

        Parameters
        ----------
        trainer : Trainer
            The running training.
        """

    def on_train_end(self, trainer: "Trainer") -> None:
        """Training has ended, also by an error: the moment to close files.

        Parameters
        ----------
        trainer : Trainer
            `trainer.stop_reason` says why it ended early.
        """

    def for_ranker(self, name: str) -> "Callback":  # noqa: ARG002
        """The callback for one ranker of a `Blend`; by default the same object for all.

        Parameters
        ----------
        name : str
            The name of the ranker.
        """
        return self


class EarlyStopping(Callback):
    """Stop when the validation measure has not improved for some iterations.

    An ensemble stops when none of its models has improved.

    Parameters
    ----------
    patience : int
        The number of iterations without improvement.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:
        """Compare with the best iteration, after an evaluation."""
        best = trainer.best
        if best is None or trainer.validation.selecting not in record:
            return
        if record["iteration"] - best.iteration < self.patience:
            return
        measure, name = trainer.plan.validation_measure, trainer.iteration_name
        what = (
            f"no smaller violation of constraints than {best.missed:.4f} ({name} {best.iteration})"
        )
        if not best.missed:
            what = f"no better {measure} than {best.tops[0]:.4f} ({name} {best.iteration})"
        if len(best.tops) > 1:
            what = f"no model of the ensemble improved its {measure} after {name} {best.iteration}"
        trainer.stop_reason = f"{what} for {self.patience} {name}s"


class HistoryFile(Callback):
    """Write one line of JSON per iteration to a file.

    Parameters
    ----------
    path : str or Path
        The file; a resumed run replaces it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file: IO[str] | None = None

    def for_ranker(self, name: str) -> "HistoryFile":
        """A file of its own for each ranker of a blend, such as `history.net.jsonl`."""
        return HistoryFile(self.path.with_name(f"{self.path.stem}.{name}{self.path.suffix}"))

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Write the iterations that the run already has."""
        self._write_all(trainer)
        with explained("write", self.path):
            self._file = self.path.open("a", encoding="utf-8")

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:  # noqa: ARG002
        """Append a line."""
        if self._file is not None:
            with explained("write", self.path):
                self._file.write(json.dumps(record) + "\n")
                self._file.flush()

    def on_train_end(self, trainer: "Trainer") -> None:
        """Close the file; the last iteration may have been evaluated late."""
        if self._file is not None:
            file, self._file = self._file, None
            with explained("write", self.path):
                file.close()
            if trainer.stop_reason:
                self._write_all(trainer)

    def _write_all(self, trainer: "Trainer") -> None:
        with replacing(self.path) as partial:
            lines = [json.dumps(record) + "\n" for record in trainer.progress.history]
            partial.write_text("".join(lines), "utf-8")


class StopOnInterrupt(Callback):
    """On Ctrl-C or SIGTERM, finish the step, save and stop. A second Ctrl-C stops at once.

    Launchers such as torchrun pass on a Ctrl-C that their processes have already received, so with
    several processes the second one is ignored.
    """

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Handle the signals, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return

        def handle(number: int, _: FrameType | None) -> None:
            if trainer.interrupted and number == signal.SIGINT and trainer.group.size == 1:
                raise KeyboardInterrupt
            trainer.interrupted = True

        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, handle)

    def on_train_end(self, trainer: "Trainer") -> None:  # noqa: ARG002
        """Restore the previous handlers."""
        while self._previous:
            signal.signal(*self._previous.popitem())


class TensorBoard(Callback):
    """Write the loss, the learning rate and the measure on each evaluation set for TensorBoard.

    The folder shows one training. A resumed run writes its earlier iterations again, so that none
    is missing and none appears twice. View it with `tensorboard --logdir FOLDER`. Needs the
    optional dependency `twinrank[track]`.

    Parameters
    ----------
    folder : str or Path
        Where the event files go.
    """

    def __init__(self, folder: Path | str) -> None:
        if find_spec("tensorboard") is None:
            raise InputError(
                "TensorBoard is not installed; install it with pip install 'twinrank[track]'."
            )
        self.folder = Path(folder).expanduser()
        self._writer: Any = None

    def for_ranker(self, name: str) -> "TensorBoard":
        """A folder of its own for each ranker of a blend."""
        return TensorBoard(self.folder / name)

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Write the iterations that the run already has."""
        from torch.utils.tensorboard import SummaryWriter

        with explained("write", self.folder):
            for earlier in self.folder.glob("events.out.tfevents.*"):
                earlier.unlink()
            self._writer = SummaryWriter(str(self.folder))
        for record in trainer.progress.history:
            self._write(trainer, record)
        self._flush()

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:
        """Write what was measured."""
        self._write(trainer, record)
        self._flush()

    def on_train_end(self, trainer: "Trainer") -> None:  # noqa: ARG002
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, trainer: "Trainer", record: Record) -> None:
        measure = trainer.plan.validation_measure
        values = {name: record.get(name) for name in ("loss", "learning_rate")}
        values |= {f"{measure}/{name}": record.get(name) for name in trainer.validation.sets}
        for name, goals in record.get("goals", {}).items():
            values |= {f"{goal}/{name}": value for goal, value in goals.items()}
        for name, weight in record.get("weights", {}).items():
            values[f"weight/{name}"] = weight
        # The wall time without interruptions: the history only has seconds of training.
        when = time.time() - trainer.seconds + record["seconds"]
        for tag, value in values.items():
            if value is not None:
                self._writer.add_scalar(tag, value, record["iteration"], walltime=when)

    def _flush(self) -> None:
        with explained("write", self.folder):
            self._writer.flush()
