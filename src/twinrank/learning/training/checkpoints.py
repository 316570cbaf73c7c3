"""Checkpoints: one file with everything that a run needs to continue."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from twinrank.learning.training.callbacks import Callback, Record
from twinrank.learning.training.loop import Progress
from twinrank.learning.training.validation import Best
from twinrank.support.checksums import check_seal, checksum, sealed
from twinrank.support.compiled import threads
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, replacing

if TYPE_CHECKING:
    from twinrank.learning.training.loop import Trainer

FORMAT, VERSION = "twinrank-checkpoint", 5
_LEARNER, _KEPT, _TOP = "learner.", "kept.", "top"
_SHARE = 0.05  # of the training time that checkpoints may take


class Checkpoints(Callback):
    """Save a checkpoint after iterations, within long ones, and when interrupted.

    A checkpoint after an iteration is skipped while checkpoints take more than 5 % of the time:
    boosting may have a hundred rounds per second.

    Parameters
    ----------
    path : Path
        The file.
    every_seconds : float, default 300
        The time between checkpoints within an iteration.
    """

    def __init__(self, path: Path, every_seconds: float = 300.0) -> None:
        self.path, self.every_seconds = path, every_seconds
        self._last, self._cost = time.monotonic(), 0.0

    def on_step_end(self, trainer: "Trainer") -> None:
        """Save within a long iteration."""
        within = trainer.progress.step < trainer.steps
        if within and time.monotonic() - self._last >= self.every_seconds:
            self._save(trainer)

    def on_iteration_end(self, trainer: "Trainer", record: Record) -> None:  # noqa: ARG002
        """Save, unless that would take too large a share of the time."""
        last = trainer.progress.iteration == trainer.plan.iterations or bool(trainer.stop_reason)
        if last or time.monotonic() - self._last >= self._cost / _SHARE:
            self._save(trainer)

    def on_interrupt(self, trainer: "Trainer") -> None:
        """Save."""
        self._save(trainer)

    def _save(self, trainer: "Trainer") -> None:
        began = time.monotonic()
        save_checkpoint(trainer, self.path)
        self._last = time.monotonic()
        self._cost = self._last - began


def save_checkpoint(trainer: "Trainer", path: Path) -> None:
    """Write the state of the learner, the best value and the progress."""
    state = trainer.learner.state() if trainer.learner.resumes_exactly else {}
    arrays: dict[str, Any] = {
        f"{_LEARNER}{name}": np.frombuffer(part, np.uint8) for name, part in state.items()
    }
    arrays |= {f"{_KEPT}{name}": scores for name, scores in trainer.validation.kept.items()}
    if trainer.validation.top is not None:
        arrays[_TOP] = trainer.validation.top
    best, dual = trainer.best, trainer.validation.dual
    about = {
        "format": FORMAT,
        "version": VERSION,
        "plan": trainer.plan.to_json(),
        "settings": trainer.learner.settings(),
        "arrays": _described(arrays),
        "threads": threads(),
        "progress": asdict(trainer.progress) | {"seconds": trainer.seconds},
        "stop_reason": trainer.stop_reason,
        "best": None if best is None else asdict(best),
        "dual": None if dual is None else dual.state(),
    }
    content = save(arrays, metadata={"twinrank": json.dumps(sealed(about))})
    with replacing(path) as partial:
        partial.write_bytes(content)


def load_checkpoint(trainer: "Trainer", path: Path) -> None:
    """Bring a trainer to where a checkpoint was written.

    A learner that cannot continue exactly starts again instead, and gives the same model.
    """
    with explained("read", path):
        try:
            with safe_open(path, framework="np") as file:
                about = json.loads((file.metadata() or {}).get("twinrank", "null"))
                arrays = {name: file.get_tensor(name).copy() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise InputError(f"{path} is damaged ({error}).") from error
    hint = ["Train again in a new folder."]
    about = check_format(about, path, FORMAT, VERSION, "a checkpoint of TwinRank", hint)
    check_seal(about, path, required=True)
    # Engines trust the state they get, and may crash on others.
    if about.get("arrays") != _described(arrays):
        raise InputError(f"{path} is damaged: its checksum is wrong.")
    current = {"plan": trainer.plan.to_json(), "settings": trainer.learner.settings()}
    for part, values in current.items():
        _check_same(json.loads(json.dumps(values)), about.get(part), path)
    if not trainer.learner.resumes_exactly:
        trainer.note = (
            "These settings draw random numbers that cannot be continued, so that training starts "
            "again. It ends with the same model."
        )
        return
    try:
        _restore(trainer, about, arrays)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise InputError(f"{path} does not fit this model and plan ({error}).") from error


def _described(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The type, the shape and the checksum of each array."""
    return {
        name: [array.dtype.str, list(array.shape), checksum(array)]
        for name, array in arrays.items()
    }


def _check_same(values: dict[str, Any], before: Any, path: Path) -> None:
    """Refuse another plan; more iterations are allowed."""
    if not isinstance(before, dict):
        raise InputError(f"{path} is damaged: it has no plan.")
    for name in values.keys() - {"iterations"}:
        if values[name] != before.get(name):
            raise InputError(
                f"{path} was trained with {name}={before.get(name)!r}, not {values[name]!r}."
            )


def _restore(trainer: "Trainer", about: dict[str, Any], arrays: dict[str, Any]) -> None:
    trainer.learner.restore(
        {
            name.removeprefix(_LEARNER): array.tobytes()
            for name, array in arrays.items()
            if name.startswith(_LEARNER)
        }
    )
    trainer.stop_reason = str(about["stop_reason"])
    trainer.progress = Progress(**about["progress"])
    trainer.validation.best = None if about["best"] is None else Best(**about["best"])
    trainer.validation.top = arrays.get(_TOP)
    trainer.validation.kept = {
        name.removeprefix(_KEPT): array for name, array in arrays.items() if name.startswith(_KEPT)
    }
    trainer.validation.restore(about.get("dual"))
