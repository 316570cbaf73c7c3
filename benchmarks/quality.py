"""How well trees, or nets, rank when each has had the same number of trials: LambdaMART and ours.

For every fold each variant is trained with every setting of its grid (quality_methods.py), and the
setting with the best nDCG@5 on the fold's validation data is trained with further seeds: five in
all for trees, three for nets, which take longer. The one variant of ours that stands for us is the
one with the best validation nDCG@5, averaged over the seeds, the folds and the sets of data. Only
then are the test labels read: values are averaged over the seeds query by query, and tested by
Wilcoxon's signed-rank test over the queries of all folds.

    python benchmarks/quality.py MQ2008 MQ2007-partial --out results/quality
    python benchmarks/quality.py MQ2008 MQ2007-partial --out results/quality --nets

The tables are printed, and the one of docs/choosing.md is written to chosen_trees.md or
chosen_net.md. Every training is kept as soon as it ends: the same command goes on where it was
interrupted, and `--quick` trains a part of what the whole would train, for the whole to go on from.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import quality_catboost as catboost
from common import console, describe_environment, parser, save, show_bars, show_table
from quality_methods import (
    CATBOOST,
    DEFAULTS,
    LAMBDAMART,
    VALIDATION,
    Variant,
    net_variants,
    quick,
    tree_variants,
)
from quality_tables import MEASURES, gains, markdown, show_averaged, show_strategies, verdict
from twinrank.data.transforms import transform
from twinrank.evaluation.comparison import compare
from twinrank.evaluation.evaluate import evaluate
from twinrank.study.results import read_unit
from twinrank.study.scheduler import cores, run_in_processes
from twinrank.study.source import Source
from twinrank.study.study import train_units
from twinrank.study.units import Unit
from twinrank.support.files import replacing


@dataclass(frozen=True)
class Trial:
    """A variant with one of its settings, on a fold, with a seed."""

    variant: Variant
    fold: int
    number: int
    seed: int

    def parameters(self) -> dict[str, Any]:
        """Those of the estimator."""
        return {**self.variant.parameters(self.number), "validation_measure": VALIDATION}


@dataclass(frozen=True, eq=False)
class Book:
    """The trials on one set of data, and what they gave."""

    source: Source
    out: Path
    variants: Sequence[Variant]
    folds: Sequence[int]
    seeds: Sequence[int]
    jobs: int

    def run(self) -> None:
        """Train what isn't there yet: all settings with the first seed, then the chosen ones."""
        self.train([t for v in self.variants for f in self.folds for t in self.tried(v, f)])
        self.train([t for v in self.variants for f in self.folds for t in self.chosen(v, f)])

    def tried(self, variant: Variant, fold: int) -> list[Trial]:
        """All settings of a variant on a fold."""
        return [Trial(variant, fold, n, self.seeds[0]) for n in range(len(variant.grid))]

    def chosen(self, variant: Variant, fold: int) -> list[Trial]:
        """The setting that is best on the validation data, with every seed."""
        best = max(self.tried(variant, fold), key=lambda trial: self.outcome(trial).best_score)
        return [Trial(variant, fold, best.number, seed) for seed in self.seeds]

    def train(self, trials: Sequence[Trial]) -> None:
        """Train and keep what is lacking."""
        units = [self.unit(trial) for trial in trials if trial.variant.method != CATBOOST]
        train_units(units, self.source, self.out, self.jobs)
        jobs = [
            partial(
                catboost.train, str(where), self.source.to_text(), t.fold, t.seed,
                t.variant.parameters(t.number), VALIDATION,
            )
            for t in trials
            if t.variant.method == CATBOOST and catboost.read(where := self.place(t)) is None
        ]  # fmt: skip
        if jobs:
            console.print(f"{self.source.name}: {len(jobs)} trainings of CatBoost")
            run_in_processes(jobs, self.jobs)

    def outcome(self, trial: Trial) -> Any:
        """What a trial gave."""
        if trial.variant.method == CATBOOST:
            found: Any = catboost.read(self.place(trial))
        else:
            found = read_unit(self.out, self.unit(trial))
        if found is None:
            raise SystemExit(f"{trial} has no result; see {self.out / 'failures'}")
        return found

    def unit(self, trial: Trial) -> Unit:
        """The trial as a study has it."""
        method, parameters = trial.variant.method_of(trial.number), trial.parameters()
        return Unit.of(method, trial.fold, trial.seed, self.source, parameters)

    def place(self, trial: Trial) -> Path:
        """Where CatBoost's outcome is."""
        setting = trial.variant.parameters(trial.number)
        return catboost.place(self.out, self.source, trial.fold, trial.seed, setting)

    def validation(self, variant: Variant) -> float:
        """The mean over folds and seeds of the best validation value."""
        trials = [t for fold in self.folds for t in self.chosen(variant, fold)]
        return fmean(self.outcome(trial).best_score for trial in trials)

    def seconds(self, variant: Variant) -> float:
        """What the trainings of a variant took, all together."""
        trials = [t for fold in self.folds for t in self.tried(variant, fold)]
        trials += [t for fold in self.folds for t in self.chosen(variant, fold)[1:]]
        return sum(self.outcome(trial).seconds for trial in trials)

    @cached_property
    def values(self) -> dict[str, dict[str, Any]]:
        """Every variant's measures on the test queries of all folds, averaged over the seeds."""
        return {variant.name: self._values(variant) for variant in self.variants}

    def averaged(self) -> dict[str, dict[str, Any]]:
        """What the seeds of a variant give together: their scores, standardised by query, averaged.

        For LambdaMART, and all variants that depend on the seed and are no ensembles.
        """
        found = {v.name: self._values(v, together=True) for v in self.variants if v.varies}
        return {LAMBDAMART: self.values[LAMBDAMART], **found}

    def _values(self, variant: Variant, together: bool = False) -> dict[str, Any]:
        by_fold, alike = [], transform("QueryZScore")
        for fold in self.folds:
            test = self.source.sets(fold)["test"]
            scores = [self.outcome(trial).scores for trial in self.chosen(variant, fold)]
            if together:
                columns = [alike(np.array(one)[:, None], test.lists) for one in scores]
                scores = [np.mean(columns, axis=0)[:, 0]]
            found = [evaluate(one, test.y, test.lists, MEASURES).values for one in scores]
            by_fold.append({m: np.mean([one[m] for one in found], axis=0) for m in MEASURES})
        return {m: np.concatenate([one[m] for one in by_fold]) for m in MEASURES}


def choose(books: Sequence[Book], variants: Sequence[Variant]) -> Variant:
    """Show what the validation data says of all variants, and take the best of ours."""
    found = {v.name: [book.validation(v) for book in books] for v in variants}
    rows = [
        [
            variant.name,
            *(f"{value:.4f}" for value in found[variant.name]),
            f"{fmean(found[variant.name]):.4f}",
            f"{held_fixed(books, variant):.4f}",
            f"{sum(book.seconds(variant) for book in books) / 60:.1f}",
        ]
        for variant in variants
    ]
    names = [book.source.name for book in books]
    title = f"Validation {VALIDATION}, the best setting of each fold; one for all folds, first seed"
    show_table(title, ["", *names, "mean", "one for all", "minutes"], rows)
    spent = sum(book.seconds(variant) for book in books for variant in variants)
    console.print(f"The trainings took {spent / 60:.0f} minutes of one core.")
    return max((v for v in variants if v.ours), key=lambda v: fmean(found[v.name]))


def held_fixed(books: Sequence[Book], variant: Variant) -> float:
    """The validation value of the one setting that is best over all folds and sets."""
    by_fold = [
        [book.outcome(trial).best_score for trial in book.tried(variant, fold)]
        for book in books
        for fold in book.folds
    ]
    return max(fmean(values) for values in zip(*by_fold, strict=True))


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds")
    options.add_argument("--out", type=Path, required=True, help="keeps every training")
    options.add_argument("--nets", action="store_true", help="nets instead of trees")
    options.add_argument("--quick", action="store_true", help="two folds, two seeds, few variants")
    options.add_argument("--jobs", type=int, default=cores(), help="trainings at a time (cores)")
    given = options.parse_args()
    console.print(describe_environment())
    variants = net_variants() if given.nets else tree_variants()
    seeds: Sequence[int] = range(3 if given.nets else 5)
    if given.quick:
        variants, seeds = quick(variants), range(2)
    begun, books = time.perf_counter(), []
    for path in given.data:
        source = Source.of(path, {})
        folds = source.check()[: 2 if given.quick else None]
        book = Book(source, given.out / source.name, variants, folds, seeds, given.jobs)
        book.run()
        books.append(book)
    console.print(f"trained for {(time.perf_counter() - begun) / 60:.0f} minutes just now")
    ours = choose(books, variants)
    record = given.out / ("chosen_net.json" if given.nets else "chosen_trees.json")
    with replacing(record) as partial:
        partial.write_text(json.dumps({"variant": ours.name}) + "\n", "utf-8")
    console.print(f"\nChosen by validation: {ours.name}\n")
    for book in books:
        print(f"{book.source.name}, test queries\n{compare(book.values)}\n")
    with replacing(record.with_suffix(".md")) as partial:
        partial.write_text(markdown(books, variants, ours.name), "utf-8")
    console.print(f"\nDo all methods gain by averaging? {len(seeds)} seeds of each together\n")
    for book in books:
        print(f"{book.source.name}, test queries\n{compare(book.averaged())}\n")
    show_averaged(books, variants, ours.name)
    show_strategies(books)
    for default in DEFAULTS:
        if default in books[0].values and default != ours.name:
            gains(books, default)
    bars = verdict(books, ours.name, given.nets)
    show_bars(bars)
    save(given.json, {"chosen": ours.name, "means": [compare(b.values).means for b in books]}, bars)


if __name__ == "__main__":
    main()
