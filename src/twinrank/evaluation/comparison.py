"""`compare`: systems side by side, the best in bold, asterisks where it is significantly better."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.display.tables import Cell, Table
from twinrank.evaluation.conventions import Convention
from twinrank.evaluation.evaluate import DEFAULT, evaluate
from twinrank.evaluation.metric_plots import draw_wins
from twinrank.evaluation.result import Evaluation, mean_of
from twinrank.evaluation.significance import TESTS, confidence_interval, holm, p_value
from twinrank.lists import Lists
from twinrank.measures import Measure
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import replacing
from twinrank.support.text import counted

Floats = npt.NDArray[np.float64]
FORMATS = {".txt": "to_text", ".md": "to_markdown", ".tex": "to_latex", ".html": "to_html"}
_NAMES = {
    "wilcoxon": "Wilcoxon's signed-rank test",
    "t": "the paired t test",
    "permutation": "the paired permutation test",
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several systems' values on the same lists, with a test of each against the best."""

    values: Mapping[str, Mapping[str, Floats]]  # system: measure: one per list
    test: str
    level: float
    correction: str | None
    p_values: Mapping[str, Mapping[str, float]]  # measure: system: against the best
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] | None
    convention: Convention | None

    @property
    def measures(self) -> list[str]:
        """What was measured."""
        return list(next(iter(self.values.values())))

    @property
    def lists(self) -> int:
        """The number of lists."""
        return len(next(iter(next(iter(self.values.values())).values())))

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """Means by system and measure."""
        return {
            system: {name: mean_of(found) for name, found in by_measure.items()}
            for system, by_measure in self.values.items()
        }

    def best(self, measure: str) -> str:
        """The system with the highest mean; the first of equals."""
        means = self.means
        return max(means, key=lambda system: np.nan_to_num(means[system][measure], nan=-np.inf))

    def table(self) -> Table:
        """Systems by measures, the best of each column bold, others marked where p is low."""
        means, best = self.means, {name: self.best(name) for name in self.measures}
        rows = [
            [Cell(system), *(self._cell(system, name, means, best) for name in self.measures)]
            for system in self.values
        ]
        best_of = f"the best mean of its column ({counted(self.lists, 'list')})"
        return Table("", ["", *self.measures], rows, self._notes(), best_of)

    def _cell(
        self, system: str, name: str, means: dict[str, dict[str, float]], best: dict[str, str]
    ) -> Cell:
        mean = means[system][name]
        text = "–" if np.isnan(mean) else f"{mean:.4f}"
        if self.intervals is not None and not np.isnan(mean):
            low, high = self.intervals[system][name]
            text += f" [{low:.3f}, {high:.3f}]"
        worse = best[name] != system and self.p_values[name][system] < self.level
        return Cell(text, best=mean == means[best[name]][name], mark="*" if worse else "")

    def _notes(self) -> list[str]:
        notes = []
        if len(self.values) > 1:
            corrected = ", Holm's correction" if self.correction == "holm" else ""
            notes = [f"*: differs from it, p < {self.level:g} ({_NAMES[self.test]}{corrected})."]
        if self.intervals is not None:
            notes.append("[low, high]: 95 % bootstrap interval of the mean.")
        if self.convention is not None:
            notes.append(f"Convention: {self.convention}.")
        return notes

    def __str__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return self.table().to_html()

    def draw(self, path: str | os.PathLike[str], first: str, second: str, measure: str) -> None:
        """Draw two systems' difference list by list, from wins to losses, to .png, .svg or .pdf."""
        for system in (first, second):
            if system not in self.values:
                raise InputError(unknown("system", system, self.values))
        if measure not in self.measures:
            raise InputError(unknown("measure of this comparison", measure, self.measures))
        a, b = self.values[first][measure], self.values[second][measure]
        draw_wins(path, a, b, (first, second), measure)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: means, p-values against the best, intervals."""
        return {
            "lists": self.lists,
            "means": _without_nan(self.means),
            "best": {name: self.best(name) for name in self.measures},
            "test": self.test,
            "correction": self.correction,
            "p_values": {name: dict(by_system) for name, by_system in self.p_values.items()},
            "intervals": None if self.intervals is None else _without_nan(self.intervals),
            "convention": None if self.convention is None else str(self.convention),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as .txt, .md, .tex or .html, or everything as .json."""
        target = Path(path)
        if target.suffix == ".json":
            content = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
        elif target.suffix in FORMATS:
            content = getattr(self.table(), FORMATS[target.suffix])()
        else:
            known = ", ".join([*FORMATS, ".json"])
            raise InputError(f"can't write {target}: choose a name with one of {known}")
        with replacing(target) as partial:
            partial.write_text(content + "\n", "utf-8")


def compare(
    systems: Mapping[str, Any],
    labels: Any = None,
    lists: Lists | None = None,
    measures: Sequence[str | Measure] = DEFAULT,
    *,
    test: str = "wilcoxon",
    level: float = 0.01,
    correction: str | None = None,
    intervals: bool = False,
    random_state: int = 0,
    **choices: Any,
) -> Comparison:
    """Set systems side by side; nothing is trained.

    With `labels` and `lists`, each system is its scores, and is measured as by `evaluate` (whose
    other arguments are `choices`). Without, each is an `Evaluation`, or values per list by measure:
    `{"A": {"nDCG@10": values}, "B": …}`. `test` is "wilcoxon" (as in Yu 2020), "t" or
    "permutation", of each system against the best of a column, at `level`; `correction="holm"`
    corrects for the number of systems; `intervals=True` adds 95 % bootstrap intervals.

    >>> a, b = {"RR": np.array([1.0, 0.5, 1.0])}, {"RR": np.array([0.5, 0.5, 0.2])}
    >>> print(compare({"A": a, "B": b}))
            RR
    ─  ───────
    A  0.8333•
    B  0.4000
    •: the best mean of its column (3 lists).
    *: differs from it, p < 0.01 (Wilcoxon's signed-rank test).
    """
    check_testing(test, level, correction)
    if not isinstance(systems, Mapping) or not systems:
        raise InputError("compare needs systems by name, such as {'old': scores, 'new': scores}")
    convention, values = _values(systems, labels, lists, measures, random_state, choices)
    p_values = {}
    for name in next(iter(values.values())):
        means = {s: np.nan_to_num(mean_of(by[name]), nan=-np.inf) for s, by in values.items()}
        best = max(means, key=lambda system: means[system])
        others = [system for system in values if system != best]
        found = [p_value(values[best][name], values[s][name], test, random_state) for s in others]
        found = holm(found) if correction == "holm" else found
        p_values[name] = {best: 1.0, **dict(zip(others, found, strict=True))}
    around = None
    if intervals:
        around = {
            system: {n: confidence_interval(v, 0.95, random_state) for n, v in by.items()}
            for system, by in values.items()
        }
    return Comparison(values, test, level, correction, p_values, around, convention)


def check_testing(test: str, level: float, correction: str | None) -> None:
    """Refuse unknown tests and corrections, and a level that is no chance."""
    if test not in TESTS:
        raise InputError(unknown("test", str(test), TESTS))
    if correction not in (None, "holm"):
        raise InputError(unknown("correction", str(correction), ["holm"]))
    if not 0 < level < 1:
        raise InputError(f"the level of significance must lie between 0 and 1, not {level}")


def _values(
    systems: Mapping[str, Any],
    labels: Any,
    lists: Lists | None,
    measures: Sequence[str | Measure],
    random_state: int,
    choices: dict[str, Any],
) -> tuple[Convention | None, dict[str, dict[str, Floats]]]:
    """The convention, and values by system and measure, all of the same lists and measures."""
    if (labels is None) != (lists is None):
        raise InputError("scores need both labels and lists; values per list need neither")
    if labels is None and choices:
        raise InputError(f"{', '.join(choices)}: only for scores, which need labels and lists")
    if labels is not None and lists is not None:
        choices = {**choices, "random_state": random_state}
        systems = {n: evaluate(s, labels, lists, measures, **choices) for n, s in systems.items()}
    evaluations = {n: one for n, one in systems.items() if isinstance(one, Evaluation)}
    _check_evaluations(evaluations)
    found = {name: _by_measure(name, given) for name, given in systems.items()}
    _check_values(found)
    return next((one.convention for one in evaluations.values()), None), found


def _by_measure(name: str, given: Any) -> dict[str, Floats]:
    """One system's values by measure."""
    values = given.values if isinstance(given, Evaluation) else given
    if not isinstance(values, Mapping) or not values:
        raise InputError(
            f"system {name!r} must be scores (with labels and lists), an Evaluation, or values "
            f"per list by measure, not {type(given).__name__}"
        )
    return {str(measure): np.asarray(v, np.float64) for measure, v in values.items()}


def _check_evaluations(found: Mapping[str, Evaluation]) -> None:
    """Refuse evaluations of different queries, or by different conventions."""
    for (first, a), (second, b) in pairwise(found.items()):
        if a.convention != b.convention:
            raise InputError(
                f"{first!r} and {second!r} were evaluated by different conventions: "
                f"{a.convention}; {b.convention}"
            )
        known = a.query_ids is not None and b.query_ids is not None
        if known and not np.array_equal(a.query_ids, b.query_ids):  # type: ignore[arg-type]
            raise InputError(f"{first!r} and {second!r} are evaluations of different queries")


def _check_values(found: Mapping[str, Mapping[str, Floats]]) -> None:
    """Refuse other measures, or another number of lists, than the first system has."""
    first, expected = next(iter(found.items()))
    for name, by_measure in found.items():
        if by_measure.keys() != expected.keys():
            raise InputError(
                f"{first!r} and {name!r} must have the same measures, not "
                f"{', '.join(expected)} and {', '.join(by_measure)}"
            )
        size = next(iter(expected.values())).shape
        for measure, values in by_measure.items():
            if values.shape != size or values.ndim != 1:
                raise InputError(
                    f"{measure} of {name!r} has values {values.shape}, but {first!r} {size}; they "
                    f"must be one per list, of the same lists"
                )


def _without_nan(found: Any) -> Any:
    """The same with None for NaN, which JSON doesn't have."""
    if isinstance(found, Mapping):
        return {name: _without_nan(value) for name, value in found.items()}
    if isinstance(found, tuple):
        return [_without_nan(value) for value in found]
    return None if np.isnan(found) else found
