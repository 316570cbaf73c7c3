"""The folder of a study: finished units, failures, and the measures computed from them.

OUT/study.json            the settings
OUT/units/KEY/unit.json   the training of a unit
OUT/units/KEY/scores.npy  its scores of the test data
OUT/failures/KEY.json     the reason why a unit failed the last time
OUT/running/KEY.json      the progress of a unit while it runs
"""

import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.evaluation.comparison import Comparison, compare
from twinrank.evaluation.conventions import Convention
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.experiments.study.units import Scores, Unit, UnitResult
from twinrank.support.arrays import Floats, Ints
from twinrank.support.errors import FileError, InputError, Parts, error_message, explained
from twinrank.support.files import check_format, new_folder, publish, read_json, write_json
from twinrank.support.locks import is_empty

if TYPE_CHECKING:
    from twinrank.experiments.study.study import Study


UNITS, FAILURES, RUNNING, SETTINGS = "units", "failures", "running", "study.json"
_FORMAT, _VERSION = "twinrank-unit", 1
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


@dataclass(frozen=True, eq=False)
class Results:
    """The finished units of a study.

    The values of a method cover the test queries of all folds, in the order of the folds. They are
    means over the seeds, query by query. Methods with missing units have no values.
    """

    study: "Study"
    out: Path

    @cached_property
    def units(self) -> list[UnitResult]:
        """All finished units, in the study's order."""
        results = (read_unit(self.out, unit) for unit in self.study.units)
        return [result for result in results if result is not None]

    @cached_property
    def failures(self) -> list[Failure]:
        """The units that failed the last time."""
        done = {result.unit.key for result in self.units}
        missing = [unit for unit in self.study.units if unit.key not in done]
        failures = (read_failure(self.out, unit) for unit in missing)
        return [failure for failure in failures if failure is not None]

    @property
    def methods(self) -> list[str]:
        """The methods of which all units are finished."""
        count = len(self.study.chosen_folds) * len(self.study.seeds)
        return [m for m in self.study.method_names if len(self.units_of(m)) == count]

    def units_of(self, method: str) -> list[UnitResult]:
        """The finished units of a method, by fold, then seed."""
        return [result for result in self.units if result.unit.method == method]

    def evaluations(
        self, measures: Sequence[str] | None = None, convention: str | Convention = "twinrank"
    ) -> dict[str, Evaluation]:
        """The measures of the complete methods on all test queries."""
        names = tuple(self.study.measures if measures is None else measures)
        return {name: own for name, (own, _) in self._measured(names, convention).items()}

    def fold_means(
        self, method: str, measures: Sequence[str], convention: str | Convention = "twinrank"
    ) -> dict[str, Floats]:
        """The means of a complete method on each fold with each seed, [seeds, folds]."""
        return self._measured(tuple(measures), convention)[method][1]

    @cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    def _measured(
        self, measures: tuple[str, ...], convention: str | Convention
    ) -> dict[str, tuple[Evaluation, dict[str, Floats]]]:
        """The evaluations and the means by fold of all complete methods, computed once."""
        key = measures, convention
        if key not in self._known:
            self._known[key] = {name: self._measure(name, *key) for name in self.methods}
        return self._known[key]  # type: ignore[no-any-return]

    def comparison(self, measures: Sequence[str] | None = None, **choices: Any) -> Comparison:
        """The comparison of the complete methods; `choices` are those of `compare`."""
        evaluations = self.evaluations(measures)
        if not evaluations:
            listed = (f"\n  {failure}" for failure in self.failures[:3])
            raise InputError("No method of this study is complete.", *listed)
        return compare(evaluations, **choices)

    @cached_property
    def list_sizes(self) -> Ints:
        """The number of documents of every test query, in the order of the evaluations."""
        return np.concatenate([np.asarray(test.lists.sizes) for test in self.tests])

    @cached_property
    def list_grades(self) -> Floats:
        """The highest label of every test query."""
        return np.concatenate([test.lists.max(test.y) for test in self.tests])

    def seconds(self, method: str) -> float:
        """The total training time of a method."""
        return sum(result.seconds for result in self.units_of(method))

    @cached_property
    def tests(self) -> list[Dataset]:
        """The test data of every fold."""
        source = self.study.source
        return [source.sets(fold)["test"] for fold in self.study.chosen_folds]

    def _measure(
        self, method: str, measures: tuple[str, ...], convention: str | Convention
    ) -> tuple[Evaluation, dict[str, Floats]]:
        by_fold = [
            [
                evaluate(result.scores, test.y, test.lists, measures, convention=convention)
                for result in self.units_of(method)
                if result.unit.fold == fold
            ]
            for fold, test in zip(self.study.chosen_folds, self.tests, strict=True)
        ]
        values = {
            name: np.concatenate(
                [np.mean([seed.values[name] for seed in by_seed], axis=0) for by_seed in by_fold]
            )
            for name in measures
        }
        means = {
            name: np.array([[seed[name] for seed in by_seed] for by_seed in by_fold]).T
            for name in measures
        }
        evaluation = Evaluation(
            values,
            by_fold[0][0].convention,
            documents=sum(test.documents for test in self.tests),
            empty_lists={n: sum(seeds[0].empty_lists[n] for seeds in by_fold) for n in measures},
            query_ids=np.concatenate([test.query_ids for test in self.tests]),
        )
        return evaluation, means
