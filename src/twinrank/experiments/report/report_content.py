"""`ReportContent`: the values that a report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.comparison import Comparison, compare
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.experiments.report.query_rankings import RankedQuery
from twinrank.support.arrays import Floats
from twinrank.support.errors import InputError, unknown
from twinrank.support.tables import ResultTable

Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class ReportContent:
    """The content of a report; sections without content are omitted."""

    title: str
    headline: str = ""
    """The main result in one or two sentences."""
    data_summary: Sequence[tuple[str, str]] = ()
    settings: Sequence[tuple[str, str]] = ()
    command: str = ""
    """The command that reproduces the report."""
    versions: Mapping[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    """The table of results; by default a comparison of the evaluations."""
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    """Evaluations of the same queries, by method; measures with several cutoffs are plotted."""
    curves: Mapping[str, Sequence[Sequence[Record]]] = field(default_factory=dict)
    """By method, the history of each training run, as `history_` of an estimator."""
    list_sizes: npt.ArrayLike | None = None
    """The number of documents of each query, in the order of the values."""
    list_grades: npt.ArrayLike | None = None
    """The highest label of each query, in the same order."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    """Peak memory in bytes, by method."""
    notes: Sequence[str] = ()
    """Warnings for the reader, such as failed training runs."""
    figures: Sequence[tuple[str, str, str]] = ()
    """Additional figures: title, SVG and a description for screen readers."""
    tables: Sequence[tuple[str, ResultTable]] = ()
    measure: str = ""
    """The measure of gains and query groups; by default the first of the comparison."""
    validation_measure: str = ""
    """The measure of the training curves."""
    queries: Sequence[RankedQuery] = ()
    """Queries to explore one by one, with the scores of all methods that have values."""
    feature_names: Sequence[str] = ()
    """The names of the features of `queries`."""
    queries_note: str = ""
    """How the queries were chosen, and from how many."""
    baseline: str = ""
    """The baseline that is selected first; by default the first method."""

    def __post_init__(self) -> None:
        """Raise an error if names or sizes do not match."""
        if self.measure and self.measure not in self.measures:
            raise InputError(unknown("measure of this report", self.measure, self.measures))
        if self.baseline and self.baseline not in self.values:
            raise InputError(unknown("method of this report", self.baseline, self.values))
        sizes = {len(v) for by in self.values.values() for v in by.values()}
        for name, array in (("list_sizes", self.list_sizes), ("list_grades", self.list_grades)):
            if array is not None and sizes and sizes != {np.size(array)}:
                raise InputError(
                    f"{name} has {np.size(array):,} queries but the evaluations have "
                    f"{' or '.join(f'{n:,}' for n in sorted(sizes))}; both need the same queries."
                )

    @cached_property
    def results(self) -> Comparison | None:
        """The comparison, by default of the evaluations."""
        if self.comparison is None and self.evaluations:
            return compare(self.evaluations)
        return self.comparison

    @cached_property
    def values(self) -> Mapping[str, Mapping[str, Floats]]:
        """Values per query by method and measure: of the evaluations, else of the comparison."""
        if self.evaluations:
            return {name: result.values for name, result in self.evaluations.items()}
        return {} if self.comparison is None else self.comparison.values

    @cached_property
    def measures(self) -> list[str]:
        """The measures that every method has, those of the comparison first."""
        if not self.values:
            return []
        compared = self.results.measures if self.results else []
        others = [m for m in next(iter(self.values.values())) if m not in compared]
        return [m for m in [*compared, *others] if all(m in by for by in self.values.values())]

    @property
    def main_measure(self) -> str:
        """The measure of gains and query groups; empty if there are no values."""
        return self.measure or next(iter(self.measures), "")

    @cached_property
    def methods(self) -> list[str]:
        """All methods of the report; the index of a method selects its colour."""
        compared = {} if self.results is None else self.results.values
        sources = (compared, self.values, self.curves, self.seconds, self.memory)
        return list(dict.fromkeys(name for source in sources for name in source))
