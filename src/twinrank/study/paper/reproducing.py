"""The paper's experiment as studies: what to train for which tables and figures, and what it gave.

Measures follow the paper's convention, queries are left out as there, and each method's
architecture is chosen by the mean validation nDCG@5 over the folds, by nothing of the test data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from twinrank.study.methods import method as method_of
from twinrank.study.paper.figures import Panel
from twinrank.study.paper.published import (
    FEWEST_DOCUMENTS,
    FIGURE_2,
    LEAST_HESSIAN,
    MEASURES,
    MSLR,
    PUBLISHED,
    TREES_METHOD,
    VALIDATION,
    methods_of,
    parameters,
    system,
    systems,
)
from twinrank.study.paper.tables import Measured, PaperTable, choose
from twinrank.study.results import Results, read_unit
from twinrank.study.running import Study
from twinrank.study.source import Source
from twinrank.study.units import Unit, UnitResult
from twinrank.support.errors import InputError

CONVENTION = "paper"
STUDY = "study"
"""The folder of finished units, in that of the reproduction."""
# Training data too: nDCG@5 there is LambdaMART's curve in Figure 2. Units of figures and of tables
# are alike, so that neither is trained twice.
_WATCH = ("train", "validation", "test")


@dataclass(frozen=True)
class Reproduction:
    """Which of Tables 4 to 7, and whether Figure 2, on which data, by the paper's protocol.

    `architectures=None` trains a method only on the one that the paper chose for it. Figure 2 is
    about the first of the folds.
    """

    source: Source
    tables: Sequence[int] = (4, 5, 6, 7)
    figure_2: bool = True
    folds: Sequence[int] | None = None
    architectures: Sequence[str] | None = None
    epochs: int = 100
    seed: int = 0
    validate_every: int | str = "auto"

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """Queries, documents and features of a fold's three parts: of the whole data, therefore."""
        sets = list(self.source.sets(self.chosen_folds[0]).values())
        return sum(d.queries for d in sets), sum(d.documents for d in sets), sets[0].features

    def check(self) -> None:
        """Refuse data of which the paper's filter leaves nothing."""
        for fold in self.chosen_folds:
            for part, data in self.source.sets(fold).items():
                if not data.queries:
                    raise InputError(
                        f"{self.source.name}, fold {fold}: no query of the {part} data has "
                        f"{FEWEST_DOCUMENTS} documents, some of them relevant, which is what the "
                        "paper keeps"
                    )

    @property
    def on_mslr(self) -> bool:
        """Whether the data is the paper's, so that its numbers can be set beside ours."""
        return self.size == MSLR

    @property
    def least_hessian(self) -> float:
        """Of LambdaMART's leaves: 200, as in the paper, for as many documents as it had.

        Smaller data has less hessian to share out; with 200, MQ2008 wouldn't grow a single tree.
        """
        return LEAST_HESSIAN * min(1.0, self.size[1] / MSLR[1])

    @cached_property
    def chosen_folds(self) -> tuple[int, ...]:
        """The numbers of the folds."""
        return self.source.check(None if self.folds is None else tuple(self.folds))

    @cached_property
    def methods(self) -> list[str]:
        """The methods of the tables, by the paper's names."""
        return methods_of(self.tables)

    @cached_property
    def studies(self) -> list[Study]:
        """What to train: for Figure 2 alone, on one fold, what no table asks for; then the rest."""
        found = []
        only = [m for m in FIGURE_2 if m not in self.methods] if self.figure_2 else []
        if only:
            found.append(self._study(only, self.chosen_folds[:1], None))
        if self.methods:
            found.append(self._study(self.methods, self.chosen_folds, self.architectures))
        return found

    def _study(
        self, methods: Sequence[str], folds: Sequence[int], wanted: Sequence[str] | None
    ) -> Study:
        named = {name: one for one in methods for name in systems(one, wanted)}
        return Study(
            self.source,
            list(named),
            folds,
            (self.seed,),
            MEASURES,
            {name: self._parameters(one) for name, one in named.items()},
            VALIDATION,
            _WATCH,
            kind="reproduction",
        )

    def _parameters(self, method: str) -> dict[str, Any]:
        chosen = parameters(method, self.epochs)
        if method != TREES_METHOD:
            return {**chosen, "validate_every": self.validate_every}
        if self.least_hessian < LEAST_HESSIAN:
            chosen["engine_params"] = {"min_sum_hessian_in_leaf": self.least_hessian}
        return chosen

    def lacking(self, out: Path) -> list[Unit]:
        """The units that are still to be trained."""
        units = [unit for study in self.studies for unit in study.units()]
        return [unit for unit in units if read_unit(out / STUDY, unit) is None]

    def run(self, out: Path, **choices: Any) -> "Found":
        """Train what is lacking; `choices` are those of `Study.run`."""
        return Found(self, [study.run(out / STUDY, **choices) for study in self.studies])


@dataclass(frozen=True, eq=False)
class Found:
    """What a reproduction gave."""

    asked: Reproduction
    results: Sequence[Results]

    @cached_property
    def measured(self) -> list[Measured]:
        """Every method on every architecture that was trained on all folds."""
        if not self.asked.methods:
            return []
        results = self.results[-1]
        evaluations = results.evaluations(MEASURES, CONVENTION)
        found = []
        for one in self.asked.methods:
            for name in systems(one, self.asked.architectures):
                if name not in evaluations:
                    continue
                units = results.units_of(name)
                values = [unit.best_value for unit in units]
                net = None if one == TREES_METHOD else method_of(name).model
                found.append(
                    Measured(
                        one,
                        net,
                        evaluations[name],
                        _mean([float("-inf") if v is None else v for v in values]),
                        _mean([unit.tied_pairs for unit in units]),
                    )
                )
        if not found:
            said = "".join(f"\n  {one}" for one in self.failures[:3])
            raise InputError(f"no method could be trained on every fold:{said}")
        return found

    @cached_property
    def chosen(self) -> dict[str, Measured]:
        """Each method on the architecture that validation chose."""
        return choose(self.measured)

    @cached_property
    def tables(self) -> list[PaperTable]:
        """The tables asked for, as far as their methods could be trained."""
        found = [PaperTable.of(n, self.chosen, self.asked.on_mslr) for n in self.asked.tables]
        return [one for one in found if one is not None]

    @cached_property
    def panels(self) -> list[Panel]:
        """The panels of Figure 2, each of the chosen architecture, else the published one."""
        if not self.asked.figure_2:
            return []
        found = []
        for name in FIGURE_2:
            taken = self.chosen.get(name)
            net = PUBLISHED[name].architecture if taken is None else taken.architecture
            unit = self._unit(system(name, net))
            if unit is not None:
                shown = name if net is None else system(name, net)
                found.append(Panel.of(name, shown, unit.history))
        return found

    @property
    def failures(self) -> list[str]:
        """What failed, and why."""
        return [str(one) for results in self.results for one in results.failures]

    def units_of(self, name: str) -> list[UnitResult]:
        """The finished units of a method on an architecture."""
        return [unit for results in self.results for unit in results.units_of(name)]

    def _unit(self, name: str) -> UnitResult | None:
        """That of the fold that Figure 2 is about."""
        fold = self.asked.chosen_folds[0]
        return next((u for u in self.units_of(name) if u.unit.fold == fold), None)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
