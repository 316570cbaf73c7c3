"""Ranking quality on several data sets: our defaults, other libraries, and what each part is worth.

    python benchmarks/quality.py MQ2008 MQ2007-partial OHSUMED built-in --out results

Every training is kept in --out, so that the script continues where it was interrupted. Each method
has the same number of settings (--trials; the first is what it ships with). Validation selects the
setting of a fold; the tables show test queries, averaged over the seeds.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from common import console, describe_environment, parser, save, show_table
from twinrank.evaluation.comparison import compare
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.significance import p_value
from twinrank.experiments.study.scheduler import cores
from twinrank.experiments.study.study_folder import read_unit, train_units
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import Unit, UnitResult
from twinrank.support.errors import InputError

Setting = Mapping[str, Any]
Values = dict[str, Any]

VALIDATION = "nDCG@5"
MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP")
BUILT_IN = "built-in"
BUILT_IN_QUERIES = 600
QUICK_QUERIES = 150

_TREES: tuple[Setting, ...] = (
    {},
    {"num_leaves": 7},
    {"learning_rate": 0.1},
    {"num_leaves": 31, "learning_rate": 0.03},
)
_CATBOOST: tuple[Setting, ...] = ({}, {"depth": 4}, {"learning_rate": 0.1}, {"depth": 8})
_NETS: tuple[Setting, ...] = (
    {},
    {"learning_rate": 1e-3},
    {"weight_decay": 1e-3},
    {"architecture": "MLP(width=100, depth=3, dropout=0.5)", "ensemble_size": 5},
)


@dataclass(frozen=True, eq=False)
class Method:
    """A line of the tables: the name of a method in studies, and its settings.

    The entry "method" of a setting replaces the name, for options of a loss.
    """

    name: str
    method: str
    settings: tuple[Setting, ...] = ({},)
    fixed: tuple[tuple[str, Any], ...] = ()
    ours: bool = False

    def parameters(self, trial: int) -> dict[str, Any]:
        """The parameters of a trial."""
        return {**dict(self.fixed), **self.settings[trial], "validation_measure": VALIDATION}


PEERS = (
    Method("LambdaMART", "LambdaMART", _TREES, (("num_leaves", 7),)),
    Method("LambdaMART, 5 bagged", "LambdaMART(ensemble_size=5, subsample=0.7, subsample_freq=1)",
           _TREES),
    Method("XGBoost rank:ndcg", "rank:ndcg", _TREES),
    Method("CatBoost YetiRank", "CatBoost", _CATBOOST),
    Method("CatBoost StochasticRank", "CatBoost(loss=StochasticRank)", _CATBOOST),
    Method("ListNet with attention", "ListNet (MLP(context=attention))", _NETS[:3]),
)  # fmt: skip
"""Other libraries; the last is the model that allRank recommends, with our trainer."""
OURS = (
    Method("BoostedRanker()", "BoostedRanker", _TREES, ours=True),
    Method("Ranker()", "Ranker", _NETS, ours=True),
    Method("Blend()", "Blend", ours=True),
)
"""The defaults."""


def without(name: str, method: str, **parameters: Any) -> Method:
    """One of our defaults with a part replaced."""
    return Method(name, method, fixed=tuple(parameters.items()), ours=True)


ABLATIONS = {
    "BoostedRanker()": (
        without("one model", "BoostedRanker", ensemble_size=1),
        without("all columns for each tree", "BoostedRanker", colsample_bytree=1.0),
        without("70 % of the queries for each model", "BoostedRanker", subsample=0.7),
        without("raw features only", "BoostedRanker", transforms="none"),
        without("no noise", "BoostedRanker", perturbation=0.0, samples=1),
        without("swap instead of type3", "BoostedRanker", strategy="swap", perturbation=1.0),
        without("AP instead of nDCG", "BoostedRanker", objective="AP"),
    ),
    "Ranker()": (
        without("one net", "Ranker", ensemble_size=1),
        without("z-scores only", "Ranker", transforms="QueryZScore"),
        without("with logarithms", "Ranker", transforms="QueryZScore | SignedLog1p + Standardise"),
        without("no noise", "Ranker", perturbation=0.0, samples=1),
        without("swap instead of type3", "Ranker", strategy="swap"),
        without("pooled context", "Ranker", architecture="Small(context=pool)", ensemble_size=5),
        without("attention", "Ranker", architecture="Small(context=attention)", ensemble_size=5),
        without("shared weights", "Ranker", architecture="Small(shared=true)", ensemble_size=16),
        without("no noise on features", "Ranker", feature_noise=0.0),
    ),
}  # fmt: skip
"""What each part of a default is worth: variants that differ in one part."""


@dataclass(frozen=True, eq=False)
class Bench:
    """The trainings on one data set."""

    source: Source
    out: Path
    folds: Sequence[int]
    seeds: Sequence[int]
    trials: int
    jobs: int

    def train(self, methods: Sequence[Method]) -> None:
        """Train what is missing: all settings with the first seed, then the selected ones."""
        first = [u for m in methods for f in self.folds for u in self.tried(m, f)]
        train_units(first, self.source, self.out, self.jobs)
        rest = [u for m in methods for f in self.folds for u in self.selected(m, f)]
        train_units(rest, self.source, self.out, self.jobs)

    def tried(self, method: Method, fold: int) -> list[Unit]:
        """All settings of a method on a fold."""
        return [self._unit(method, fold, n, self.seeds[0]) for n in self._numbers(method)]

    def selected(self, method: Method, fold: int) -> list[Unit]:
        """The setting with the best validation value, with every seed."""
        best = max(
            self._numbers(method),
            key=lambda n: self.result(self._unit(method, fold, n, self.seeds[0])).best_score or 0.0,
        )
        return [self._unit(method, fold, best, seed) for seed in self.seeds]

    def result(self, unit: Unit) -> UnitResult:
        """The result of a training."""
        result = read_unit(self.out, unit)
        if result is None:
            raise SystemExit(f"{unit} failed; see {self.out / 'failures'}")
        return result

    def validation(self, method: Method) -> float:
        """The mean best validation value over folds and seeds."""
        units = [unit for fold in self.folds for unit in self.selected(method, fold)]
        return fmean(self.result(unit).best_score or 0.0 for unit in units)

    def seconds(self, method: Method) -> float:
        """The mean time of a training."""
        units = [unit for fold in self.folds for unit in self.selected(method, fold)]
        return fmean(self.result(unit).seconds for unit in units)

    @cache  # noqa: B019 (a bench lives as long as the script)
    def values(self, method: Method) -> Values:
        """The measures of the test queries of all folds, averaged over the seeds."""
        by_fold = []
        for fold in self.folds:
            test = self.source.sets(fold)["test"]
            scores = [self.result(unit).scores for unit in self.selected(method, fold)]
            values = [evaluate(s, test.y, test.lists, MEASURES).values for s in scores]
            by_fold.append({m: np.mean([v[m] for v in values], axis=0) for m in MEASURES})
        return {m: np.concatenate([values[m] for values in by_fold]) for m in MEASURES}

    def mean(self, method: Method, measure: str) -> float:
        """The mean of a measure over the test queries."""
        return float(np.nanmean(self.values(method)[measure]))

    def _numbers(self, method: Method) -> range:
        return range(min(self.trials, len(method.settings)))

    def _unit(self, method: Method, fold: int, trial: int, seed: int) -> Unit:
        parameters = method.parameters(trial)
        name = parameters.pop("method", method.method)
        return Unit.of(name, fold, seed, self.source, parameters)


def show_sets(benches: Sequence[Bench], methods: Sequence[Method]) -> None:
    """A table of test queries for each set."""
    for bench in benches:
        names = {method.name: bench.values(method) for method in methods}
        print(f"{bench.source.name}, test queries\n{compare(names)}\n")


def show_means(benches: Sequence[Bench], methods: Sequence[Method]) -> list[dict[str, Any]]:
    """The mean over the sets, and the seconds of a training."""
    rows, figures = [], []
    for method in methods:
        means = {m: fmean(bench.mean(method, m) for bench in benches) for m in MEASURES}
        seconds = fmean(bench.seconds(method) for bench in benches)
        valid = fmean(bench.validation(method) for bench in benches)
        rows.append([method.name, f"{valid:.4f}", *(f"{v:.4f}" for v in means.values()),
                     f"{seconds:.1f}"])  # fmt: skip
        figures.append(
            {"method": method.name, "validation": valid, **means, "seconds": round(seconds, 2)}
        )
    title = f"Mean over {len(benches)} sets, each with the same weight"
    show_table(title, ["", "validation", *MEASURES, "seconds per fit"], rows)
    return figures


def show_gains(
    benches: Sequence[Bench], ours: Sequence[Method], others: Sequence[Method]
) -> list[dict[str, Any]]:
    """The differences from other methods, over the queries of all sets together."""
    rows, figures = [], []
    for own in ours:
        for other in others:
            cells = []
            for measure in MEASURES:
                a, b = (
                    np.concatenate([bench.values(m)[measure] for bench in benches])
                    for m in (own, other)
                )
                gain, p = float(np.nanmean(a - b)), p_value(a, b)
                cells.append(f"{gain:+.4f} (p = {p:.1g})")
                figures.append({"method": own.name, "against": other.name, "measure": measure,
                                "gain": gain, "p": p})  # fmt: skip
            rows.append([own.name, other.name, *cells])
    title = "Differences over the test queries of all sets (Wilcoxon)"
    show_table(title, ["", "against", *MEASURES], rows, texts=2)
    return figures


def show_ablation(benches: Sequence[Bench], default: Method, variants: Sequence[Method]) -> None:
    """Each variant's mean difference from the default, in validation and test, and p."""
    rows = []
    for variant in variants:
        valid = fmean(b.validation(variant) - b.validation(default) for b in benches)
        cells = []
        for measure in MEASURES[1:]:
            gain = fmean(b.mean(variant, measure) - b.mean(default, measure) for b in benches)
            a, b = (
                np.concatenate([bench.values(m)[measure] for bench in benches])
                for m in (variant, default)
            )
            cells.append(f"{gain:+.4f} (p = {p_value(a, b):.1g})")
        rows.append([variant.name, f"{valid:+.4f}", *cells])
    title = f"{default.name} with one part replaced: mean difference over the sets"
    show_table(title, ["", "validation", *MEASURES[1:]], rows)


def show_left_out(
    benches: Sequence[Bench], variants: Sequence[Method], peers: Sequence[Method]
) -> list[dict[str, Any]]:
    """For each set: the variant that validation selects on the other sets, tested on this one."""
    rows, figures = [], []
    for bench in benches:
        others = [other for other in benches if other is not bench]
        gains = {v: fmean(_standardised(other, v, variants) for other in others) for v in variants}
        chosen = max(variants, key=gains.__getitem__)
        rest = {peer.name: bench.mean(peer, VALIDATION) for peer in peers}
        own = bench.mean(chosen, VALIDATION)
        rows.append([bench.source.name, chosen.name, f"{own:.4f}",
                     *(f"{own - value:+.4f}" for value in rest.values())])  # fmt: skip
        figures.append({"set": bench.source.name, "chosen": chosen.name, "value": own, **rest})
    title = f"Leave one set out: {VALIDATION} of the variant that the other sets select"
    show_table(title, ["set", "selected", "test", *(f"− {p.name}" for p in peers)], rows, texts=2)
    return figures


def _standardised(bench: Bench, method: Method, methods: Sequence[Method]) -> float:
    """The validation value of a method, in standard deviations over the methods."""
    values = [bench.validation(other) for other in methods]
    return (bench.validation(method) - fmean(values)) / max(float(np.std(values)), 1e-9)


def available(methods: Sequence[Method], bench: Bench) -> list[Method]:
    """The methods whose packages are installed."""
    kept = []
    for method in methods:
        try:
            bench.tried(method, bench.folds[0])
        except InputError as error:
            console.print(f"without {method.name}: {error}")
        else:
            kept.append(method)
    return kept


def open_source(name: str, queries: int) -> Source:
    """A folder with folds, a file, or `queries` queries of the built-in data."""
    if name == BUILT_IN:
        return Source.of(None, {}, queries=queries, cut=3)
    return Source.of(name, {"non_finite": "keep"})


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", help=f"folders with folds, files, or {BUILT_IN!r}")
    options.add_argument("--out", type=Path, required=True, help="keeps every training")
    options.add_argument("--methods", help="other methods, separated by ;, instead of the peers")
    options.add_argument("--trials", type=int, default=1, help="settings of each method (1 to 4)")
    options.add_argument("--seeds", type=int, default=3, help="seeds of each method")
    options.add_argument("--folds", type=int, help="the first folds of each set only")
    options.add_argument("--no-ablation", action="store_true", help="the defaults only")
    options.add_argument(
        "--quick",
        action="store_true",
        help=f"one fold, one seed, no ablation, {QUICK_QUERIES} built-in queries; in OUT/quick",
    )
    options.add_argument("--jobs", type=int, default=cores(), help="trainings at a time (cores)")
    given = options.parse_args()
    if given.quick:
        given.folds, given.seeds, given.no_ablation = 1, 1, True
        given.out /= "quick"
    console.print(describe_environment())
    begun, benches = time.perf_counter(), []
    for name in given.data:
        source = open_source(name, QUICK_QUERIES if given.quick else BUILT_IN_QUERIES)
        folds = source.check()[: given.folds]
        out = given.out / source.name.replace(" ", "-")
        benches.append(Bench(source, out, folds, range(given.seeds), given.trials, given.jobs))
    peers: Sequence[Method] = PEERS
    if given.methods:
        peers = [Method(name.strip(), name.strip()) for name in given.methods.split(";")]
    peers = available(peers, benches[0])
    ablations = {} if given.no_ablation else ABLATIONS
    variants = [variant for group in ablations.values() for variant in group]
    for bench in benches:
        console.print(f"\n{bench.source.name}")
        bench.train([*peers, *OURS, *variants])
    console.print(f"trained for {(time.perf_counter() - begun) / 60:.0f} minutes just now\n")
    show_sets(benches, [*peers, *OURS])
    figures: dict[str, Any] = {
        "means": show_means(benches, [*peers, *OURS]),
        "gains": show_gains(benches, OURS, peers),
    }
    for default in OURS:
        if default.name in ablations:
            group = ablations[default.name]
            show_ablation(benches, default, group)
            if len(benches) > 1:
                key = f"left out, {default.name}"
                figures[key] = show_left_out(benches, [default, *group], peers)
    save(given.json, figures)


if __name__ == "__main__":
    main()
