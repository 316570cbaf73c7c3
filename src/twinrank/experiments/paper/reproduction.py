"""The paper's experiment as studies, and their results.

Measures follow the paper's convention and are averaged over folds, and the same queries are left
out. The architecture of each method is chosen by the mean validation nDCG@5 over folds and seeds,
without the test data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from twinrank.experiments.paper.paper_figures import Panel
from twinrank.experiments.paper.paper_tables import Measured, PaperTable, choose
from twinrank.experiments.paper.published import (
    AUTHORS_COST,
    FEWEST_DOCUMENTS,
    FIGURE_2,
    LEAST_HESSIAN,
    MSLR,
    PAPER_MEASURES,
    PUBLISHED,
    ROWS,
    TOLERANCE,
    VALIDATION,
    Published,
    methods_of,
    models,
    parameters,
    system,
)
from twinrank.experiments.study.study import Results, Study
from twinrank.experiments.study.study_folder import read_unit
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import Unit, UnitResult
from twinrank.support.errors import InputError

CONVENTION, AUTHOR = "paper", "ptranking"
"""The convention of the tables, and that of the author's code."""
STUDY = "study"
"""The folder of the studies within that of the reproduction."""
# LambdaMART's curve in Figure 2 needs nDCG@5 on the training data. Tables and figures share units,
# so that no unit is trained twice.
_WATCH = ("train", "validation", "test")


@dataclass(frozen=True)
class Reproduction:
    """Tables 4 to 8 and Figure 2, or some of them, on some data by the paper's protocol.

    `architectures=None` trains each method on the architecture that the paper chose for it. Figure
    2 shows the first fold with the first seed. `published` shows the published values; None shows
    them if the data is MSLR-WEB30K. The data is compared with them only in this case.
    `wassrank_cost` is the option `cost` of WassRank, by default as in the author's code.
    """

    source: Source
    tables: Sequence[int] = (4, 5, 6, 7, 8)
    figure_2: bool = True
    folds: Sequence[int] | None = None
    architectures: Sequence[str] | None = None
    epochs: int = 100
    seeds: Sequence[int] = (0,)
    validate_every: int | str = "auto"
    published: bool | None = None
    rounds: int | None = None
    wassrank_cost: str = AUTHORS_COST

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """Queries, documents and features of the whole data, which a fold's three parts make up."""
        sets = list(self.source.sets(self.chosen_folds[0]).values())
        return sum(d.queries for d in sets), sum(d.documents for d in sets), sets[0].features

    def check(self) -> None:
        """Raise an error if the paper's filter leaves no queries."""
        for fold in self.chosen_folds:
            for part, data in self.source.sets(fold).items():
                if not data.queries:
                    raise InputError(
                        f"{self.source.name}, fold {fold}: no query of the {part} data has "
                        f"{FEWEST_DOCUMENTS} documents and one relevant; the paper uses only such "
                        "queries."
                    )

    @property
    def on_mslr(self) -> bool:
        """True if the data is MSLR-WEB30K by its statistics, so that published values compare."""
        near = all(
            abs(number - papers) <= TOLERANCE * papers
            for number, papers in zip(self.size[:2], MSLR[:2], strict=True)
        )
        return self.source.has_folds and near and self.size[2] == MSLR[2]

    @property
    def shows_published(self) -> bool:
        """True if the published values are shown beside the measured ones."""
        return self.on_mslr if self.published is None else self.published

    @property
    def least_hessian(self) -> float:
        """The least hessian of LambdaMART's leaves: 200 on the paper's data, less on smaller data.

        The hessian grows with the number of documents. With 200, MQ2008 would not grow a tree.
        """
        share = self.size[1] / MSLR[1]
        return LEAST_HESSIAN * (share if share < 1 - TOLERANCE else 1.0)

    @cached_property
    def chosen_folds(self) -> tuple[int, ...]:
        """The numbers of the folds."""
        return self.source.check(None if self.folds is None else tuple(self.folds))

    @cached_property
    def methods(self) -> list[str]:
        """The paper's names of the methods in the tables."""
        return methods_of(self.tables)

    @cached_property
    def studies(self) -> list[Study]:
        """First the methods that only Figure 2 needs, on one fold, then those of the tables."""
        studies = []
        only = [m for m in FIGURE_2 if m not in self.methods] if self.figure_2 else []
        if only:
            folds, seeds = self.chosen_folds[:1], self.seeds[:1]
            studies.append(self._study(only, folds, seeds, None))
        if self.methods:
            folds, seeds = self.chosen_folds, self.seeds
            studies.append(self._study(self.methods, folds, seeds, self.architectures))
        return studies

    def _study(
        self,
        methods: Sequence[str],
        folds: Sequence[int],
        seeds: Sequence[int],
        architectures: Sequence[str] | None,
    ) -> Study:
        named = {
            self.system(method, model): method
            for method in methods
            for model in models(method, architectures)
        }
        return Study(
            self.source,
            list(named),
            folds,
            seeds,
            PAPER_MEASURES,
            {name: self._parameters(method) for name, method in named.items()},
            VALIDATION,
            _WATCH,
            kind="reproduction",
        )

    def _parameters(self, method: str) -> dict[str, Any]:
        chosen = parameters(method, self.epochs, self.rounds)
        if ROWS[method].architecture is not None:
            return {**chosen, "validate_every": self.validate_every}
        if self.least_hessian < LEAST_HESSIAN:
            chosen["engine_params"] = {"min_sum_hessian_in_leaf": self.least_hessian}
        return chosen

    def system(self, method: str, model: str | None) -> str:
        """The name of a method on an architecture in the studies."""
        return system(method, model, self.wassrank_cost)

    def lacking(self, out: Path) -> list[Unit]:
        """The units that have not been trained."""
        units = [unit for study in self.studies for unit in study.units]
        return [unit for unit in units if read_unit(out / STUDY, unit) is None]

    def run(self, out: Path, **choices: Any) -> "ReproductionResults":
        """Train the units that are lacking; `choices` are those of `Study.run`."""
        results = [study.run(out / STUDY, **choices) for study in self.studies]
        return ReproductionResults(self, results)


@dataclass(frozen=True, eq=False)
class ReproductionResults:
    """The results of a reproduction."""

    reproduction: Reproduction
    results: Sequence[Results]

    @cached_property
    def measured(self) -> list[Measured]:
        """Every method on every architecture that was trained on all folds."""
        if not self.reproduction.methods:
            return []
        results = self.results[-1]
        evaluations = results.evaluations(PAPER_MEASURES, CONVENTION)
        measured = []
        for method in self.reproduction.methods:
            for model in models(method, self.reproduction.architectures):
                name = self.reproduction.system(method, model)
                if name not in evaluations:
                    continue
                units = results.units_of(name)
                values = [unit.best_score for unit in units]
                measured.append(
                    Measured(
                        method,
                        model,
                        evaluations[name],
                        results.fold_means(name, PAPER_MEASURES, CONVENTION),
                        results.fold_means(name, PAPER_MEASURES, AUTHOR),
                        _mean([float("-inf") if v is None else v for v in values]),
                        _mean([unit.tied_pairs for unit in units]),
                    )
                )
        if not measured:
            listed = (f"\n  {failure}" for failure in self.failures[:3])
            raise InputError("No method could be trained on every fold.", *listed)
        return measured

    @cached_property
    def chosen(self) -> dict[str, Measured]:
        """Each method on the architecture that validation chose."""
        return choose(self.measured)

    @cached_property
    def tables(self) -> list[PaperTable]:
        """The tables, without methods whose training failed."""
        numbers, published = self.reproduction.tables, self.reproduction.shows_published
        tables = [PaperTable.of(number, self.chosen, published) for number in numbers]
        return [table for table in tables if table is not None]

    @cached_property
    def panels(self) -> list[Panel]:
        """The panels of Figure 2, with the chosen or else the published architecture."""
        if not self.reproduction.figure_2:
            return []
        panels = []
        for name in FIGURE_2:
            row: Measured | Published = self.chosen.get(name) or PUBLISHED[name]
            units = self.units_of(self.reproduction.system(name, row.architecture))
            title = name if row.architecture is None else system(name, row.architecture)
            if units:
                panels.append(Panel.of(name, title, [unit.history for unit in units]))
        return panels

    @property
    def failures(self) -> list[str]:
        """The failed units with their error messages."""
        return [str(failure) for results in self.results for failure in results.failures]

    def units_of(self, name: str) -> list[UnitResult]:
        """The finished units of a method on an architecture, by fold, then seed."""
        return [unit for results in self.results for unit in results.units_of(name)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
