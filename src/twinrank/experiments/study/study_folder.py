"""The folder of a study: finished units, failures, and the queue of the units that it lacks.

OUT/study.json            the settings
OUT/units/KEY/unit.json   the training of a unit
OUT/units/KEY/scores.npy  its scores of the test data
OUT/failures/KEY.json     the reason why a unit failed the last time
OUT/running/KEY.json      the progress of a unit while it runs
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.experiments.study.scheduler import DIED, Item, Job, run_jobs
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import Scores, Unit, UnitResult, train_unit
from twinrank.learning.training.callbacks import Callback
from twinrank.support.errors import (
    FileError,
    InputError,
    Parts,
    error_message,
    explained,
)
from twinrank.support.files import check_format, new_folder, publish, read_json, remove, write_json
from twinrank.support.locks import is_empty

if TYPE_CHECKING:
    from twinrank.learning.training.loop import Trainer


UNITS, FAILURES, RUNNING, SETTINGS = "units", "failures", "running", "study.json"
_FORMAT, _VERSION = "twinrank-unit", 1
_WRITE_SECONDS = 0.5  # between writes of a status file
_OLD_NAMES = {"best_epoch": "best_iteration", "best_value": "best_score"}  # in older unit files


@dataclass(frozen=True)
class Failure:
    """A unit that failed, with its error message."""

    unit: Unit
    error: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.unit}: {self.error}"


def write_unit(out: Path, result: UnitResult) -> None:
    """Publish a finished unit, and remove the record of an earlier failure."""
    plain = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "read_scores"}
    about = {"format": _FORMAT, "version": _VERSION, **plain, "unit": result.unit.to_json()}
    folder = out / UNITS / result.unit.key
    with new_folder(folder) as partial:
        write_json(partial / "unit.json", {**about, "error": None})
        np.save(partial / "scores.npy", result.scores, allow_pickle=False)
        publish(partial, folder)
    failure_path(out, result.unit).unlink(missing_ok=True)


def read_unit(out: Path, unit: Unit) -> UnitResult | None:
    """A finished unit, None if it is absent or damaged: then it must be trained again."""
    folder = out / UNITS / unit.key
    if not (folder / "unit.json").is_file():
        return None
    try:
        path = folder / "unit.json"
        about = check_format(read_json(path), path, _FORMAT, _VERSION, "that of a unit")
        about = {_OLD_NAMES.get(key, key): value for key, value in about.items()}
        known = {f.name: about[f.name] for f in fields(UnitResult) if f.name != "read_scores"}
        _read_scores(folder)
    except (FileError, InputError, KeyError, TypeError, ValueError, EOFError):
        return None
    return UnitResult(**{**known, "unit": unit, "read_scores": lambda: _read_scores(folder)})


def _read_scores(folder: Path) -> Scores:
    """The scores of a unit as a map, which keeps its file open: a study has too many to keep."""
    with explained("read", folder):
        scores: Scores = np.load(folder / "scores.npy", mmap_mode="r", allow_pickle=False)
    return scores


def write_failure(out: Path, unit: Unit, error: BaseException | str) -> None:
    """Record why a unit failed; the next run trains it again."""
    message, trace = error, ""
    if isinstance(error, BaseException):
        message, trace = error_message(error), "".join(traceback.format_exception(error))
    about = {"unit": unit.to_json(), "error": message, "traceback": trace}
    (out / FAILURES).mkdir(parents=True, exist_ok=True)
    write_json(failure_path(out, unit), about)


def read_failure(out: Path, unit: Unit) -> Failure | None:
    """The reason why a unit failed, None if it did not."""
    with suppress(FileError, InputError, KeyError, TypeError):
        about = read_json(failure_path(out, unit))
        return Failure(unit, about["error"], about["traceback"])
    return None


def failure_path(out: Path, unit: Unit) -> Path:
    """The file that records why a unit failed."""
    return out / FAILURES / f"{unit.key}.json"


def status_path(out: Path, unit: Unit) -> Path:
    """The file with the progress of a unit that runs."""
    return out / RUNNING / f"{unit.key}.json"


def saved_settings(folder: Path, name: str, kind: str, remedy: Parts) -> Any:
    """The settings file of an existing folder, None if the folder is empty.

    A folder with other files raises an error, since it is not the folder of a `kind`.
    """
    if (folder / name).is_file():
        return read_json(folder / name)
    if not is_empty(folder):
        raise InputError(f"{folder} contains other files and is not a {kind} folder. ", *remedy)
    return None


class StatusFile(Callback):
    """A callback that writes the progress of a unit to a small file.

    If the process that started this one has ended, this process ends too: no process waits for the
    unit, and the next run of the study trains it again.
    """

    def __init__(self, path: Path, unit: Unit, leader: int | None = None) -> None:
        self.path, self._leader = path, leader
        self._status: dict[str, Any] = {"unit": str(unit), "done": 0.0, "total": 0, "value": None}
        self._written = 0.0
        self._write(at_once=True)

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Write the number of iterations."""
        self._status["total"] = trainer.plan.iterations
        self._write(at_once=True)

    def on_step_end(self, trainer: "Trainer") -> None:
        """Write the progress within an epoch."""
        progress = trainer.progress
        self._status["done"] = progress.iteration + progress.step / max(trainer.steps, 1)
        self._write()

    def on_iteration_end(self, _: "Trainer", record: dict[str, Any]) -> None:
        """Write the progress and the last validation value."""
        self._status["done"] = record["iteration"]
        self._status["value"] = record.get("validation", self._status["value"])
        self._write()

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _write(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._written < _WRITE_SECONDS:
            return
        self._written = now
        if self._leader is not None and os.getppid() != self._leader:
            os._exit(1)
        partial = self.path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # training does not fail because of its display
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(self._status), "utf-8")
            partial.replace(self.path)


def train_units(
    units: Sequence[Unit],
    source: Source,
    out: Path,
    jobs: int | None = None,
    ray: str | None = None,
    progress: bool = True,
    alone: bool = True,
) -> None:
    """Train the units that a folder lacks, `jobs` at a time or on a Ray cluster.

    Without `alone`, other processes train other units in the folder at the same time.
    """
    queue = UnitQueue(units, source, out)
    if queue.lacking:
        queue.clear(alone)
        run_jobs(queue, jobs, ray, progress)


class UnitQueue:
    """Units as jobs of the scheduler and as items of the display."""

    label = "units"

    def __init__(self, units: Sequence[Unit], source: Source, out: Path) -> None:
        self._source, self._out = source, out
        by_key = {unit.key: unit for unit in units}
        self.total = len(by_key)
        self.lacking = {k: unit for k, unit in by_key.items() if read_unit(out, unit) is None}
        self._ended = {k: Item(str(u), True) for k, u in by_key.items() if k not in self.lacking}

    def clear(self, alone: bool = True) -> None:
        """Remove what earlier runs left: failures, and the status files of killed processes."""
        if alone:
            remove(self._out / RUNNING)
        (self._out / RUNNING).mkdir(parents=True, exist_ok=True)
        for unit in self.lacking.values():
            failure_path(self._out, unit).unlink(missing_ok=True)
            status_path(self._out, unit).unlink(missing_ok=True)

    def pending(self) -> list[Job]:
        """The units that have neither a result nor failed."""
        return [self._job(unit) for unit in self._pending()]

    def on_death(self, retry: Callable[[Job], bool]) -> None:
        """Train the units that were running again, one at a time; a second death is a failure."""
        pending = self._pending()
        begun = [unit for unit in pending if status_path(self._out, unit).exists()]
        for unit in begun or pending[:1]:
            if not retry(self._job(unit)):
                write_failure(self._out, unit, DIED)

    def items(self) -> dict[str, Item]:
        """The units that run or have ended."""
        # Called twice a second for up to a thousand units: read only those that have files.
        folders = (self._out / name for name in (UNITS, FAILURES, RUNNING))
        begun = {path.stem for folder in folders for path in folder.glob("*")}
        running = {}
        for key, unit in self.lacking.items():
            if key in self._ended or key not in begun:
                continue
            ended = read_unit(self._out, unit) or read_failure(self._out, unit)
            if ended is not None:
                self._ended[key] = Item(str(unit), True, _closing_line(ended))
            elif (status := _status(self._out, unit)) is not None:
                done, total, value = (status[name] for name in ("done", "total", "value"))
                running[key] = Item(str(unit), done=done, total=total, value=value)
        return {**self._ended, **running}

    def headline(self) -> str:
        """Empty: values of different methods and folds do not compare."""
        return ""

    def _pending(self) -> list[Unit]:
        out, units = self._out, self.lacking.values()
        return [unit for unit in units if not (read_unit(out, unit) or read_failure(out, unit))]

    def _job(self, unit: Unit) -> Job:
        return partial(run_unit, unit, self._source, self._out)


def run_unit(unit: Unit, source: Source, out: Path, leader: int | None = None) -> None:
    """Train a unit, and write its result or its failure.

    `leader` is the process that started this one, which does not outlive it.
    """
    status = StatusFile(status_path(out, unit), unit, leader)
    try:
        write_unit(out, train_unit(unit, source, [status]))
    except Exception as error:  # any failure leaves the other units running
        write_failure(out, unit, error)
    finally:
        status.remove()


def _status(out: Path, unit: Unit) -> dict[str, Any] | None:
    try:
        status: dict[str, Any] = read_json(status_path(out, unit))
    except (FileError, InputError):
        return None
    return status


def _closing_line(ended: UnitResult | Failure) -> str:
    if isinstance(ended, Failure):
        return f"{ended.unit} failed: {ended.error}"
    best = ""
    if ended.best_score is not None:
        measure_name = ended.unit.parameters["validation_measure"]
        iteration = f"{ended.unit.kind.iteration} {ended.best_iteration}"
        best = f"validation {measure_name} {ended.best_score:.4f} in {iteration}, "
    return f"{ended.unit}: {best}{ended.seconds:.0f} s"
