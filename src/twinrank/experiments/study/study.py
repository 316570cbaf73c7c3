"""A study: methods × folds × seeds. Each training is a unit that is saved when it ends."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from twinrank.core.measures import measure
from twinrank.experiments.study.methods import method
from twinrank.experiments.study.scheduler import DIED, Item, Job, run_jobs
from twinrank.experiments.study.study_folder import (
    FAILURES,
    RUNNING,
    SETTINGS,
    UNITS,
    Failure,
    Results,
    failure_path,
    read_failure,
    read_unit,
    saved_settings,
    status_path,
    write_failure,
    write_unit,
)
from twinrank.experiments.study.study_source import Source, forget
from twinrank.experiments.study.units import (
    PROTOCOL,
    StatusFile,
    Unit,
    UnitResult,
    full_parameters,
    train_unit,
)
from twinrank.support.errors import FileError, InputError, explained
from twinrank.support.files import check_format, read_json, remove, write_json
from twinrank.support.locks import locked

COMPARED_MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP", "nERR@10")
_FORMAT, _VERSION = "twinrank-study", 1
_REMEDY = "Choose another --out, or pass --force to add these results to it."


@dataclass(frozen=True)
class Study:
    """Methods that are trained and evaluated on the same folds with the same seeds.

    `parameters` holds parameters of the estimators by method; others have the estimator's default.
    `watch` names the parts of a fold that are evaluated every epoch: "validation", and for curves
    "train" and "test" as well.

    >>> study = Study(Source(queries=30, cut=3), ["AP-type3", "LambdaMART"], seeds=(0, 1))
    >>> len(study.units)
    12
    """

    source: Source
    methods: Sequence[str]
    folds: Sequence[int] | None = None
    """Their numbers; None for all folds of the source."""
    seeds: Sequence[int] = (0,)
    measures: Sequence[str] = COMPARED_MEASURES
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    validation_measure: str = "nDCG@5"
    watch: Sequence[str] = ("validation",)
    kind: str = "comparison"
    """The purpose of the study. Studies of different kinds do not share a folder."""

    def __post_init__(self) -> None:
        if not self.methods or not self.seeds or not self.measures:
            raise InputError("A study needs at least one method, one seed and one measure.")
        if len(set(self.method_names)) < len(self.methods):
            raise InputError(f"A method is named twice: {', '.join(self.method_names)}.")
        for name, numbers in (("folds", self.folds or ()), ("seeds", self.seeds)):
            if len(set(numbers)) < len(numbers):
                raise InputError(f"{name} must be different numbers, not {list(numbers)}.")
        if min(self.seeds) < 0:
            raise InputError(f"Seeds must be 0 or more, not {min(self.seeds)}.")
        for name in (*self.measures, self.validation_measure):
            measure(name)
        if unused := [m for m in self._parameters if m not in self.method_names]:
            raise InputError(f"There are parameters for {unused[0]}, but no such method.")

    @cached_property
    def method_names(self) -> list[str]:
        """The full names of the methods."""
        return [str(method(name)) for name in self.methods]

    @cached_property
    def chosen_folds(self) -> tuple[int, ...]:
        """The numbers of the folds."""
        return self.source.check(None if self.folds is None else tuple(self.folds))

    @cached_property
    def _parameters(self) -> dict[str, Mapping[str, Any]]:
        return {str(method(name)): values for name, values in self.parameters.items()}

    @cached_property
    def units(self) -> list[Unit]:
        """All units, by fold, then method, then seed."""
        shared = {"validation_measure": self.validation_measure}
        own = {
            name: full_parameters(name, {**shared, **self._parameters.get(name, {})})
            for name in self.method_names
        }
        data = {fold: self.source.fingerprint(fold) for fold in self.chosen_folds}
        return [
            Unit(name, fold, seed, own[name], data[fold], tuple(self.watch))
            for fold in self.chosen_folds
            for name in self.method_names
            for seed in self.seeds
        ]

    def run(
        self,
        out: str | os.PathLike[str],
        jobs: int | None = None,
        ray: str | None = None,
        progress: bool = True,
        force: bool = False,
    ) -> Results:
        """Train the units that the folder `out` lacks; each is saved as soon as it has ended.

        `jobs` units are trained at a time, by default one per core. `ray` is the address of a Ray
        cluster ("auto", "local", "ray://…") that trains them instead; all its machines must see
        `out` and the data. Failed units are in the results' `failures`, and the next run trains
        them again. `progress=False` prints nothing to standard error. A folder with other results
        raises an error, unless `force`.
        """
        folder = Path(out).expanduser().absolute()
        forget()
        units = self.units
        with locked(folder, "training"):
            self._claim(folder, force)
            queue = UnitQueue(units, self.source, folder)
            if queue.lacking:
                queue.clear()
                run_jobs(queue, jobs, ray, progress)
        return Results(self, folder)

    def to_json(self) -> dict[str, Any]:
        """The settings, with the fingerprint of every fold's data."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "protocol": PROTOCOL,
            "kind": self.kind,
            "source": asdict(self.source),
            "data": {str(fold): self.source.fingerprint(fold) for fold in self.chosen_folds},
            "methods": self.method_names,
            "folds": list(self.chosen_folds),
            "seeds": list(self.seeds),
            "measures": list(self.measures),
            "validation_measure": self.validation_measure,
            "watch": list(self.watch),
            "parameters": {u.method: dict(u.parameters) for u in self.units},
        }

    def _claim(self, folder: Path, force: bool) -> None:
        """Write the settings; the folder of another study raises an error, unless forced."""
        with explained("write", folder):
            if folder.exists() and not force:
                self._check_folder(folder)
        write_json(folder / SETTINGS, self.to_json())

    def _check_folder(self, folder: Path) -> None:
        saved = saved_settings(folder, SETTINGS, self.kind, [_REMEDY])
        if saved is None:
            return
        path = folder / SETTINGS
        saved = check_format(saved, path, _FORMAT, _VERSION, "that of a study")
        if saved.get("kind") != self.kind:
            raise InputError(
                f"{folder} contains a {saved.get('kind')}, not a {self.kind}. {_REMEDY}"
            )
        own = self.to_json()
        before = saved.get("data")
        if not isinstance(before, dict):
            raise InputError(f"{path} is damaged: it does not name the data. {_REMEDY}")
        common = own["data"].keys() & before.keys()
        same = all(own["data"][fold] == before[fold] for fold in common)
        if not same or not (common or saved.get("source") == own["source"]):
            raise InputError(f"{folder} contains results on other data. {_REMEDY}")


class UnitQueue:
    """Units as jobs of the scheduler and as items of the display."""

    label = "units"

    def __init__(self, units: Sequence[Unit], source: Source, out: Path) -> None:
        self._source, self._out = source, out
        by_key = {unit.key: unit for unit in units}
        self.total = len(by_key)
        self.lacking = {k: unit for k, unit in by_key.items() if read_unit(out, unit) is None}
        self._ended = {k: Item(str(u), True) for k, u in by_key.items() if k not in self.lacking}

    def clear(self) -> None:
        """Remove what earlier runs left: failures, and the status files of killed processes."""
        remove(self._out / RUNNING)
        (self._out / RUNNING).mkdir(parents=True)
        for unit in self.lacking.values():
            failure_path(self._out, unit).unlink(missing_ok=True)

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
        iteration = f"{ended.unit.kind.unit} {ended.best_iteration}"
        best = f"validation {measure_name} {ended.best_score:.4f} in {iteration}, "
    return f"{ended.unit}: {best}{ended.seconds:.0f} s"
