"""What a report says, as plain values; whoever made them fills them in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.display.tables import Table
from twinrank.evaluation.comparison import Comparison, compare
from twinrank.evaluation.result import Evaluation
from twinrank.support.errors import InputError, unknown

Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything on the page; a section without content isn't shown."""

    title: str
    headline: str = ""
    """What was found, in a sentence or two."""
    data_summary: Sequence[tuple[str, str]] = ()
    settings: Sequence[tuple[str, str]] = ()
    command: str = ""
    """What to type to get the same again."""
    versions: Mapping[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    """The table of results; if there is none, one is made from the evaluations."""
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    """By method, of the same queries; measures at several cutoffs are drawn by cutoff."""
    curves: Mapping[str, Sequence[Sequence[Record]]] = field(default_factory=dict)
    """By method: a history per training, as `history_` of an estimator."""
    list_sizes: npt.ArrayLike | None = None
    """Documents per query, in the order of the evaluations' values."""
    list_grades: npt.ArrayLike | None = None
    """The highest label of each query, in the same order."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    """By method, in bytes."""
    notes: Sequence[str] = ()
    """What a reader must know: what failed, what was left out."""
    figures: Sequence[tuple[str, str, str]] = ()
    """More pictures: title, SVG, and what can be seen, for those who can't."""
    tables: Sequence[tuple[str, Table]] = ()
    measure: str = ""
    """The measure of gains and breakdowns; by default the first of the comparison."""
    validation_measure: str = ""
    """What the curves show."""
    baseline: str = ""
    """The method that gains are first shown against; by default the first."""

    def __post_init__(self) -> None:
        """Refuse what doesn't fit together."""
        if self.measure and self.measure not in self.measures:
            raise InputError(unknown("measure of this report", self.measure, self.measures))
        if self.baseline and self.baseline not in self.values:
            raise InputError(unknown("method of this report", self.baseline, self.values))
        lists = {len(v) for by in self.values.values() for v in by.values()}
        for what, found in (("list_sizes", self.list_sizes), ("list_grades", self.list_grades)):
            if found is not None and lists and lists != {np.size(found)}:
                raise InputError(
                    f"{what} has {np.size(found):,} queries, but the evaluations have "
                    f"{' or '.join(f'{n:,}' for n in sorted(lists))}; they must be of the same"
                )

    @cached_property
    def results(self) -> Comparison | None:
        """The comparison that was given, or one of the evaluations."""
        if self.comparison is None and self.evaluations:
            return compare(self.evaluations)
        return self.comparison

    @cached_property
    def values(self) -> Mapping[str, Mapping[str, npt.NDArray[np.float64]]]:
        """By method and measure, a value per query: what was evaluated, else what was compared."""
        if self.evaluations:
            return {name: one.values for name, one in self.evaluations.items()}
        return {} if self.comparison is None else self.comparison.values

    @cached_property
    def measures(self) -> list[str]:
        """What every method was measured by, that of the comparison first."""
        if not self.values:
            return []
        compared = self.results.measures if self.results else []
        known = [m for m in next(iter(self.values.values())) if m not in compared]
        return [m for m in [*compared, *known] if all(m in by for by in self.values.values())]

    @property
    def main_measure(self) -> str:
        """The measure of gains and breakdowns; empty if nothing was measured."""
        return self.measure or next(iter(self.measures), "")

    @cached_property
    def methods(self) -> list[str]:
        """Every method that is spoken of, each with its own colour by its place here."""
        compared = {} if self.results is None else self.results.values
        sources = (compared, self.values, self.curves, self.seconds, self.memory)
        return list(dict.fromkeys(name for source in sources for name in source))
