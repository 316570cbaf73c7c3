"""`compare`: a table of several systems with significance tests against the best."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.measures import Measure
from twinrank.evaluation.conventions import Convention
from twinrank.evaluation.evaluate import DEFAULT, evaluate
from twinrank.evaluation.evaluation_values import Evaluation, mean_of
from twinrank.evaluation.metric_plots import draw_wins
from twinrank.evaluation.significance import CORRECTIONS, TESTS, confidence_interval, p_value
from twinrank.support.arrays import Floats
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import json_text, json_types, write_text
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable

TABLE_FORMATS = {".txt": "to_text", ".md": "to_markdown", ".tex": "to_latex", ".html": "to_html"}
_NAMES = {
    "wilcoxon": "Wilcoxon signed-rank test",
    "t": "paired t-test",
    "permutation": "paired permutation test",
    "randomisation": "paired randomisation test",
    "bootstrap": "paired bootstrap test",
}
_CORRECTIONS = {"holm": ", Holm correction", "bh": ", Benjamini–Hochberg correction"}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`: several systems on the same lists, tested against the best.

    `str(comparison)` is a table of the means. The best mean of each column is marked, and an
    asterisk marks the systems that are significantly different from it.

    Parameters
    ----------
    values : mapping of str to mapping of str to array of float, shape (n_lists,)
        Values by system and measure.
    test : {"wilcoxon", "t", "permutation", "randomisation", "bootstrap"}
        The paired test.
    level : float
        The significance level.
    correction : {"holm", "bh", "none"} or None
        The correction of p-values for the number of systems.
    p_values : mapping of str to mapping of str to float
        By measure and system, the p-value of the test against the best system.
    intervals : mapping of str to mapping of str to tuple of float, or None
        95 % bootstrap confidence intervals of the means, by system and measure.
    convention : Convention or None
        The rules of the evaluation, if the systems were evaluated by `evaluate`.
    """

    values: Mapping[str, Mapping[str, Floats]]
    test: str
    level: float
    correction: str | None
    p_values: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] | None
    convention: Convention | None

    @property
    def measures(self) -> list[str]:
        """The names of the measures."""
        return list(next(iter(self.values.values())))

    @property
    def lists(self) -> int:
        """The number of lists."""
        return len(next(iter(next(iter(self.values.values())).values())))

    @property
    def lists_in_means(self) -> dict[str, int]:
        """The number of lists with a value, by measure: the lists that the means are over."""
        return {
            name: int(np.any([~np.isnan(by[name]) for by in self.values.values()], axis=0).sum())
            for name in self.measures
        }

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """The means, by system and measure."""
        return {
            system: {name: mean_of(values) for name, values in by_measure.items()}
            for system, by_measure in self.values.items()
        }

    def best(self, measure: str) -> str:
        """The system with the highest mean; the first if several have it.

        Parameters
        ----------
        measure : str
            One of `measures`.
        """
        return _best(self.values, measure)

    def table(self) -> ResultTable:
        """A table of systems by measures, with the best mean and significant differences marked."""
        means, best = self.means, {name: self.best(name) for name in self.measures}
        rows = [
            [Cell(system), *(self._cell(system, name, means, best) for name in self.measures)]
            for system in self.values
        ]
        best_of = f"best mean of its column ({self.lists_text()})"
        return ResultTable("", ["", *self.measures], rows, self._notes(), best_of)

    def lists_text(self, noun: str = "list") -> str:
        """The number of lists that the means are over, in words."""
        counts, total = self.lists_in_means, counted(self.lists, noun)
        least, most = min(counts.values()), max(counts.values())
        if least == most == self.lists:
            return total
        number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        return f"{number} of {total}; the others have no relevant document"

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
            corrected = _CORRECTIONS.get(self.correction or "", "")
            notes = [
                f"*: significantly different from the best, p < {self.level:g} "
                f"({_NAMES[self.test]}{corrected})."
            ]
        if self.intervals is not None:
            notes.append("[low, high]: 95 % bootstrap confidence interval of the mean.")
        if self.convention is not None:
            notes.append(f"Convention: {self.convention}.")
        return notes

    def __str__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return self.table().to_html()

    def draw(self, path: str | os.PathLike[str], first: str, second: str, measure: str) -> None:
        """Plot the difference of two systems on each list, sorted from wins to losses.

        Parameters
        ----------
        path : str or path
            The file to write, with suffix .png, .svg or .pdf.
        first, second : str
            Names of systems; the plot shows `first` minus `second`.
        measure : str
            One of `measures`.
        """
        for system in (first, second):
            if system not in self.values:
                raise InputError(unknown("system", system, self.values))
        if measure not in self.measures:
            raise InputError(unknown("measure of this comparison", measure, self.measures))
        a, b = self.values[first][measure], self.values[second][measure]
        draw_wins(path, a, b, (first, second), measure)

    def to_json(self) -> dict[str, Any]:
        """The means, p-values and intervals as a dictionary for JSON."""
        return {
            "lists": self.lists,
            "lists_in_means": self.lists_in_means,
            "means": json_types(self.means),
            "best": {name: self.best(name) for name in self.measures},
            "test": self.test,
            "correction": self.correction,
            "p_values": {name: dict(by_system) for name, by_system in self.p_values.items()},
            "intervals": None if self.intervals is None else json_types(self.intervals),
            "convention": None if self.convention is None else str(self.convention),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the table, or all results, to a file.

        Parameters
        ----------
        path : str or path
            A name with suffix .txt, .md, .tex or .html (the table) or .json (all results).
        """
        target = Path(path)
        if target.suffix == ".json":
            content = json_text(self.to_json())
        elif target.suffix in TABLE_FORMATS:
            content = getattr(self.table(), TABLE_FORMATS[target.suffix])()
        else:
            known = ", ".join([*TABLE_FORMATS, ".json"])
            raise InputError(f"Can't write {target}. Choose a name with suffix {known}.")
        write_text(target, content)


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
    **options: Any,
) -> Comparison:
    """Compare systems by several measures, with significance tests.

    Each system is tested against the best system of each measure. The systems are scores, which
    are evaluated on `labels` and `lists`, or results: evaluations or values per list.

    Parameters
    ----------
    systems : mapping of str to array, Evaluation or mapping
        The systems by name. With `labels` and `lists`, each is an array of scores. Without, each is
        an `Evaluation`, or values per list by measure, such as `{"nDCG@10": values}`.
    labels : array, shape (n_documents,), optional
        The relevance of each document.
    lists : Lists, optional
        The documents of each query.
    measures : sequence of str or Measure
        The measures, for scores only. The default is that of `evaluate`.
    test : {"wilcoxon", "t", "permutation", "bootstrap"}, default "wilcoxon"
        The paired test. Yu (2020) uses the Wilcoxon signed-rank test. "randomisation" is another
        name of the permutation test.
    level : float, default 0.01
        The significance level.
    correction : {"holm", "bh", "none"}, optional
        Correct p-values for the number of systems: by Holm, or by Benjamini and Hochberg, which
        controls the false discovery rate.
    intervals : bool, default False
        Add 95 % bootstrap confidence intervals of the means.
    random_state : int, default 0
        The seed of random ties, the permutation test and the bootstrap.
    **options
        Other arguments of `evaluate`, for scores only.

    Returns
    -------
    Comparison
        The means, p-values and intervals; printed as a table.

    Raises
    ------
    InputError
        If the systems do not have the same lists and measures, or a name is unknown.

    Examples
    --------
    >>> a, b = {"RR": np.array([1.0, 0.5, 1.0])}, {"RR": np.array([0.5, 0.5, 0.2])}
    >>> print(compare({"A": a, "B": b}))
            RR
    ─  ───────
    A  0.8333•
    B  0.4000
    •: best mean of its column (3 lists).
    *: significantly different from the best, p < 0.01 (Wilcoxon signed-rank test).
    """
    check_testing(test, level, correction)
    if not isinstance(systems, Mapping) or not systems:
        raise InputError(
            "systems must map names to systems, such as {'old': scores, 'new': scores}."
        )
    convention, values = _values(systems, labels, lists, measures, random_state, options)
    p_values = {}
    for name in next(iter(values.values())):
        best = _best(values, name)
        others = [system for system in values if system != best]
        tested = [p_value(values[best][name], values[s][name], test, random_state) for s in others]
        tested = CORRECTIONS[correction or "none"](tested)
        p_values[name] = {best: 1.0, **dict(zip(others, tested, strict=True))}
    bounds = None
    if intervals:
        bounds = {
            system: {n: confidence_interval(v, 0.95, random_state) for n, v in by.items()}
            for system, by in values.items()
        }
    return Comparison(values, test, level, correction, p_values, bounds, convention)


def _best(values: Mapping[str, Mapping[str, Floats]], measure: str) -> str:
    """The system with the highest mean; systems without a value come last."""
    means = {system: mean_of(by[measure]) for system, by in values.items()}
    return max(means, key=lambda system: np.nan_to_num(means[system], nan=-np.inf))


def check_testing(test: str, level: float, correction: str | None) -> None:
    """Raise an error for an unknown test or correction, or a level outside (0, 1)."""
    if test not in TESTS:
        raise InputError(argument="test", value=test, choices=TESTS)
    if correction is not None and correction not in CORRECTIONS:
        raise InputError(argument="correction", value=correction, choices=CORRECTIONS)
    if not 0 < level < 1:
        raise InputError(f"The significance level must be between 0 and 1, not {level}.")


def _values(
    systems: Mapping[str, Any],
    labels: Any,
    lists: Lists | None,
    measures: Sequence[str | Measure],
    random_state: int,
    options: dict[str, Any],
) -> tuple[Convention | None, dict[str, dict[str, Floats]]]:
    """The convention, and values by system and measure, checked to be comparable."""
    if (labels is None) != (lists is None):
        raise InputError("Give both labels and lists for scores, or neither for values per list.")
    if labels is None and options:
        raise InputError(
            f"{', '.join(options)} can only be used with scores, which need labels and lists."
        )
    if labels is not None and lists is not None:
        options = {**options, "random_state": random_state}
        systems = {n: evaluate(s, labels, lists, measures, **options) for n, s in systems.items()}
    evaluations = {n: system for n, system in systems.items() if isinstance(system, Evaluation)}
    _check_evaluations(evaluations)
    values = {name: _by_measure(name, system) for name, system in systems.items()}
    _check_values(values)
    return next((result.convention for result in evaluations.values()), None), values


def _by_measure(name: str, system: Any) -> dict[str, Floats]:
    """The values of a system by measure."""
    values = system.values if isinstance(system, Evaluation) else system
    if not isinstance(values, Mapping) or not values:
        raise InputError(
            f"System {name!r} must be scores (with labels and lists), an Evaluation, or values "
            f"per list by measure, not {type(system).__name__}."
        )
    return {str(measure): np.asarray(v, np.float64) for measure, v in values.items()}


def _check_evaluations(evaluations: Mapping[str, Evaluation]) -> None:
    """Raise an error for evaluations of different queries or by different conventions."""
    for (first, a), (second, b) in pairwise(evaluations.items()):
        if a.convention != b.convention:
            raise InputError(
                f"{first!r} and {second!r} were evaluated by different conventions: "
                f"{a.convention}; {b.convention}."
            )
        if a.query_ids is None or b.query_ids is None:
            continue
        if not np.array_equal(a.query_ids, b.query_ids):
            raise InputError(f"{first!r} and {second!r} are evaluations of different queries.")


def _check_values(systems: Mapping[str, Mapping[str, Floats]]) -> None:
    """Raise an error if a system has other measures or lists than the first system."""
    first, expected = next(iter(systems.items()))
    for name, by_measure in systems.items():
        if by_measure.keys() != expected.keys():
            raise InputError(
                f"{first!r} and {name!r} must have the same measures, not "
                f"{', '.join(expected)} and {', '.join(by_measure)}."
            )
        size = next(iter(expected.values())).shape
        for measure, values in by_measure.items():
            if values.shape != size or values.ndim != 1:
                raise InputError(
                    f"{measure} of {name!r} has shape {values.shape} but {first!r} has {size}; "
                    f"both need one value per list, for the same lists."
                )
