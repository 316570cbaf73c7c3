"""A study: methods × folds × seeds, and its results.

Each training is a unit that is saved when it ends.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.core.measures import measure
from twinrank.data.dataset import Dataset
from twinrank.evaluation.comparison import Comparison, check_testing, compare
from twinrank.evaluation.conventions import Convention
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.experiments.study.methods import method
from twinrank.experiments.study.study_folder import (
    SETTINGS,
    Failure,
    read_failure,
    read_unit,
    saved_settings,
    train_units,
)
from twinrank.experiments.study.study_source import Source, forget
from twinrank.experiments.study.units import PROTOCOL, Unit, UnitResult, full_parameters
from twinrank.learning.training.own_code import identities
from twinrank.support.arrays import Floats, Ints
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, write_json
from twinrank.support.locks import locked

COMPARED_MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP", "nERR@10")
_FORMAT, _VERSION = "twinrank-study", 1
SHARDS = "shards"
"""The folder with the locks of shards."""
_ATTEMPTS = 20
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
    testing: Mapping[str, Any] = field(default_factory=dict)
    """The significance test: `test`, `level` and `correction` of `compare`."""
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
        chosen = {"test": "wilcoxon", "level": 0.01, "correction": None, **self.testing}
        check_testing(**chosen)
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
        code = {name: identities(values) for name, values in own.items()}
        data = {fold: self.source.fingerprint(fold) for fold in self.chosen_folds}
        return [
            Unit(name, fold, seed, own[name], data[fold], tuple(self.watch), code[name])
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
        shard: tuple[int, int] | None = None,
    ) -> "Results":
        """Train the units that the folder `out` lacks; each is saved as soon as it has ended.

        `jobs` units are trained at a time, by default one per core. `ray` is the address of a Ray
        cluster ("auto", "local", "ray://…") that trains them instead; all its machines must see
        `out` and the data. Failed units are in the results' `failures`, and the next run trains
        them again. `progress=False` prints nothing to standard error. A folder with other results
        raises an error, unless `force`.

        `shard=(7, 40)` trains the seventh of forty parts of the units. Processes and machines can
        train different shards in the same folder at the same time. A run without `shard` then
        trains what is missing.
        """
        folder = Path(out).expanduser().absolute()
        forget()
        units = self.units
        if shard is not None:
            number, count = check_shard(shard)
            own = locked(folder / SHARDS / f"{number}-of-{count}", "training this shard")
            with locked(folder, "training", shared=True):
                self._claim_shared(folder, force)
                with own:
                    part = units[number - 1 :: count]
                    train_units(part, self.source, folder, jobs, ray, progress, alone=False)
            return Results(self, folder)
        with locked(folder, "training"):
            self._claim(folder, force)
            train_units(units, self.source, folder, jobs, ray, progress)
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

    def _claim_shared(self, folder: Path, force: bool) -> None:
        """`_claim`, again for some seconds: another shard may be about to write the settings."""
        for attempt in range(_ATTEMPTS):
            existed = (folder / SETTINGS).is_file()
            try:
                self._claim(folder, force)
                return
            except InputError:
                if existed or attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(0.25)

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


def check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """The number and the count of a shard; an error unless 1 ≤ number ≤ count."""
    number, count = shard
    if not 1 <= number <= count:
        raise InputError(f"A shard is written 7/40, the seventh of forty, not {number}/{count}.")
    return number, count


@dataclass(frozen=True, eq=False)
class Results:
    """The finished units of a study.

    The values of a method cover the test queries of all folds, in the order of the folds. They are
    means over the seeds, query by query. Methods with missing units have no values.
    """

    study: Study
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
        return {name: own[0] for name, own in self._measured(names, convention).items()}

    def seed_values(self, method: str) -> dict[str, Floats]:
        """The values of a complete method by measure, [seeds, queries]."""
        return self._measured(tuple(self.study.measures), "twinrank")[method][2]

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
    ) -> dict[str, tuple[Evaluation, dict[str, Floats], dict[str, Floats]]]:
        """Evaluations, means by fold and values by seed of the complete methods, computed once."""
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
        return compare(evaluations, **{**self.study.testing, **choices})

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
    ) -> tuple[Evaluation, dict[str, Floats], dict[str, Floats]]:
        by_fold = [
            [
                evaluate_data(result.scores, test, measures, convention=convention)
                for result in self.units_of(method)
                if result.unit.fold == fold
            ]
            for fold, test in zip(self.study.chosen_folds, self.tests, strict=True)
        ]
        by_query = {
            name: np.concatenate(
                [np.stack([seed.values[name] for seed in by_seed]) for by_seed in by_fold], axis=1
            )
            for name in measures
        }
        values = {name: seeds.mean(axis=0) for name, seeds in by_query.items()}
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
        return evaluation, means, by_query
