"""TensorBoard: the curves of a training, while it runs."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.support.errors import InputError, explained
from twinrank.training.callbacks import Callback

if TYPE_CHECKING:
    from twinrank.training.loop import Trainer


class TensorBoard(Callback):
    """Writes the loss, the learning rate and each evaluation set's measure, by epoch.

    The folder shows one training: what was there before is replaced, also by a resumed run, which
    tells all of its epochs again. So none is missing and none is there twice, wherever the run was
    cut. Look at it with `tensorboard --logdir FOLDER`.
    """

    def __init__(self, folder: Path | str) -> None:
        if find_spec("tensorboard") is None:
            raise InputError("TensorBoard isn't installed: pip install 'twinrank[track]'")
        self.folder = Path(folder).expanduser()
        self._writer: Any = None

    def on_start(self, trainer: "Trainer") -> None:
        """Begin, with the epochs that the run already has."""
        from torch.utils.tensorboard import SummaryWriter

        with explained("write", self.folder):
            self._writer = SummaryWriter(str(self.folder), purge_step=1)
        for record in trainer.progress.history:
            self._write(trainer, record)
        self._flush()

    def on_epoch(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Write what was measured."""
        self._write(trainer, record)
        self._flush()

    def on_stop(self, trainer: "Trainer") -> None:  # noqa: ARG002
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        measure = trainer.plan.validation_measure
        found = {"loss": record["loss"], "learning_rate": record["learning_rate"]}
        found |= {f"{measure}/{name}": record.get(name) for name in trainer.validation.sets}
        # When it happened, breaks left out: the history knows seconds of training only.
        when = time.time() - trainer.seconds + record["seconds"]
        for tag, value in found.items():
            if value is not None:
                self._writer.add_scalar(tag, value, record["epoch"], walltime=when)

    def _flush(self) -> None:
        with explained("write", self.folder):
            self._writer.flush()
