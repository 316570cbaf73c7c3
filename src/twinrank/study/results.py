"""What a study's folder holds: finished units, failures, and the measures that follow from them.

OUT/study.json            the settings
OUT/units/KEY/unit.json   how a unit's training went
OUT/units/KEY/scores.npy  its scores of the test data
OUT/failures/KEY.json     why a unit failed, the last time it was tried
OUT/running/KEY.json      how far a unit is, while it runs
"""

import json
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.evaluation.comparison import Comparison, compare
from twinrank.evaluation.conventions import Convention
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.result import Evaluation
from twinrank.study.units import Unit, UnitResult
from twinrank.support.errors import FileError, InputError, explained
from twinrank.support.files import check_format, new_folder, publish, read_json, replacing

if TYPE_CHECKING:
    from twinrank.study.running import Study

UNITS, FAILURES, RUNNING, SETTINGS = "units", "failures", "running", "study.json"
_FORMAT, _VERSION = "twinrank-unit", 1


@dataclass(frozen=True)
class Failure:
    """A unit that failed, and what was said."""

    unit: Unit
    error: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.unit}: {self.error}"


def write_unit(out: Path, result: UnitResult) -> None:
    """Publish a finished unit; what says that it failed before goes."""
    plain = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "scores"}
    about = {"format": _FORMAT, "version": _VERSION, **plain, "unit": result.unit.to_json()}
    folder = out / UNITS / result.unit.key
    with new_folder(folder) as partial:
        text = json.dumps({**about, "error": None}, indent=1, ensure_ascii=False)
        (partial / "unit.json").write_text(text + "\n", "utf-8")
        np.save(partial / "scores.npy", result.scores, allow_pickle=False)
        publish(partial, folder)
    (out / FAILURES / f"{result.unit.key}.json").unlink(missing_ok=True)


def read_unit(out: Path, unit: Unit) -> UnitResult | None:
    """A finished unit; None if there is none, or a damaged one, which is to be trained again."""
    folder = out / UNITS / unit.key
    if not (folder / "unit.json").is_file():
        return None
    try:
        path = folder / "unit.json"
        about = check_format(read_json(path), path, _FORMAT, _VERSION, "that of a unit")
        known = {f.name: about[f.name] for f in fields(UnitResult) if f.name != "scores"}
        with explained("read", folder):
            scores = np.load(folder / "scores.npy", mmap_mode="r", allow_pickle=False)
    except (FileError, InputError, KeyError, TypeError, ValueError, EOFError):
        return None
    return UnitResult(**{**known, "unit": unit, "scores": scores})


def write_failure(out: Path, unit: Unit, error: BaseException | str) -> None:
    """Say why a unit failed; it is tried again the next time."""
    said = str(error) or type(error).__name__
    if isinstance(error, Exception) and not isinstance(error, InputError):
        said = f"{type(error).__name__}: {error}"
    told = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
    about = {"unit": unit.to_json(), "error": said, "traceback": told}
    path = out / FAILURES / f"{unit.key}.json"
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_failure(out: Path, unit: Unit) -> Failure | None:
    """Why a unit failed, if it did."""
    with suppress(FileError, InputError, KeyError, TypeError):
        about = read_json(out / FAILURES / f"{unit.key}.json")
        return Failure(unit, about["error"], about["traceback"])
    return None


@dataclass(frozen=True, eq=False)
class Results:
    """The finished units of a study.

    A method's values are those of the test queries of all folds, in the order of the folds, and
    means over the seeds, query by query. Methods of which a unit is lacking have none.
    """

    study: "Study"
    out: Path

    @cached_property
    def units(self) -> list[UnitResult]:
        """All finished units, in the study's order."""
        found = (read_unit(self.out, unit) for unit in self.study.units())
        return [one for one in found if one is not None]

    @cached_property
    def failures(self) -> list[Failure]:
        """The units that failed when they were last tried."""
        done = {one.unit.key for one in self.units}
        found = (read_failure(self.out, u) for u in self.study.units() if u.key not in done)
        return [one for one in found if one is not None]

    @property
    def methods(self) -> list[str]:
        """The methods whose units are all there."""
        wanted = len(self.study.chosen_folds) * len(self.study.seeds)
        return [m for m in self.study.method_names if len(self.units_of(m)) == wanted]

    def units_of(self, method: str) -> list[UnitResult]:
        """A method's finished units, by fold, then seed."""
        return [one for one in self.units if one.unit.method == method]

    def evaluations(
        self, measures: Sequence[str] | None = None, convention: str | Convention = "twinrank"
    ) -> dict[str, Evaluation]:
        """The complete methods' measures on all test queries."""
        wanted = tuple(self.study.measures if measures is None else measures)
        if (wanted, convention) not in self._known:
            found = {name: self._evaluation(name, wanted, convention) for name in self.methods}
            self._known[wanted, convention] = found
        return self._known[wanted, convention]

    @cached_property
    def _known(self) -> dict[Any, dict[str, Evaluation]]:
        return {}

    def comparison(self, measures: Sequence[str] | None = None, **choices: Any) -> Comparison:
        """The complete methods side by side; `choices` are those of `compare`."""
        found = self.evaluations(measures)
        if not found:
            said = "".join(f"\n  {one}" for one in self.failures[:3])
            raise InputError(f"no method of this study is complete{':' if said else ''}{said}")
        return compare(found, **choices)

    @cached_property
    def list_sizes(self) -> npt.NDArray[np.int64]:
        """The number of documents of every test query, as the evaluations have them."""
        return np.concatenate([np.asarray(test.lists.sizes) for test in self.tests])

    @cached_property
    def list_grades(self) -> npt.NDArray[np.float32]:
        """The highest label of every test query."""
        tests = self.tests
        return np.concatenate([np.maximum.reduceat(t.y, t.lists.offsets[:-1]) for t in tests])

    def seconds(self, method: str) -> float:
        """How long a method's units were trained, all together."""
        return sum(one.seconds for one in self.units_of(method))

    def memory(self, method: str) -> int:
        """The most memory that a unit of the method took, in bytes."""
        return max((one.peak_memory_bytes for one in self.units_of(method)), default=0)

    @cached_property
    def tests(self) -> list[Dataset]:
        """The test data of every fold."""
        source = self.study.source
        return [source.sets(fold)["test"] for fold in self.study.chosen_folds]

    def _evaluation(
        self, method: str, measures: tuple[str, ...], convention: str | Convention
    ) -> Evaluation:
        by_fold = []
        for fold, test in zip(self.study.chosen_folds, self.tests, strict=True):
            found = [
                evaluate(one.scores, test.y, test.lists, measures, convention=convention)
                for one in self.units_of(method)
                if one.unit.fold == fold
            ]
            by_fold.append((test, found))
        values = {
            name: np.concatenate(
                [np.mean([one.values[name] for one in found], axis=0) for _, found in by_fold]
            )
            for name in measures
        }
        return Evaluation(
            values,
            by_fold[0][1][0].convention,
            documents=sum(test.documents for test, _ in by_fold),
            empty_lists={n: sum(f[0].empty_lists[n] for _, f in by_fold) for n in measures},
            query_ids=np.concatenate([test.query_ids for test, _ in by_fold]),
        )
