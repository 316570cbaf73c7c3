"""Direct optimisation against surrogate losses: single nets of one architecture, tuned alike.

    python benchmarks/losses.py OHSUMED MQ2008 built-in --folds 1 --out results

Every method trains the same net with four settings: two learning rates times two values of the
loss's own option, or four learning rates if it has none. Validation nDCG@5 selects the setting of a
fold; the tables show test queries. Every training is kept in --out, so that the script continues
where it was interrupted.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from common import console, describe_environment, parser, save, show_table
from quality import MEASURES, VALIDATION, Bench, Method, open_source
from twinrank.evaluation.significance import holm, p_value
from twinrank.experiments.study.scheduler import cores

RATES = ({"learning_rate": 1e-3}, {"learning_rate": 3e-3})
MORE_RATES = (*RATES, {"learning_rate": 3e-4}, {"learning_rate": 1e-2})
NO_NOISE = {"perturbation": 0.0, "samples": 1}


def direct(name: str) -> Method:
    """A measure with a strategy: with the default noise, and without."""
    settings = tuple({**rate, **noise} for rate in RATES for noise in ({}, NO_NOISE))
    return Method(name, name, settings, ours=True)


def surrogate(name: str, option: str = "") -> Method:
    """A baseline loss: its defaults, and one other value of an option."""
    if not option:
        return Method(name, name, MORE_RATES)
    names = ({"method": name}, {"method": f"{name}({option})"})
    return Method(name, name, tuple({**rate, **n} for rate in RATES for n in names))


DIRECT = tuple(map(direct, ("nDCG-type3", "nDCG-type1", "nDCG-swap", "AP-type3")))
SURROGATES = (
    surrogate("MSE"),
    surrogate("RankNet", "sigma=2"),
    surrogate("LambdaRank", "sigma=2"),
    surrogate("NDCGLoss1", "sigma=2"),
    surrogate("LambdaLoss", "sigma=2"),
    surrogate("ListNet"),
    surrogate("ListMLE"),
    surrogate("PListMLE"),
    surrogate("SoftmaxCrossEntropy"),
    surrogate("ADRMSE", "alpha=3"),
    surrogate("ApproxNDCG", "alpha=1"),
    surrogate("NeuralNDCG", "temperature=0.3"),
    surrogate("PLRank", "samples=50"),
    surrogate("WassRank", "smoothing=10"),
)


def show_values(benches: Sequence[Bench], methods: Sequence[Method]) -> list[dict[str, Any]]:
    """The means over the sets, and the differences from the first method over all queries."""
    p_values, gains = {}, {}
    for measure in MEASURES[1:]:
        pooled = [np.concatenate([b.values(m)[measure] for b in benches]) for m in methods]
        gains[measure] = [float(np.nanmean(x - pooled[0])) for x in pooled]
        p_values[measure] = [1.0, *holm([p_value(x, pooled[0]) for x in pooled[1:]])]
    rows, changes, figures = [], [], []
    for i, method in enumerate(methods):
        means = {m: fmean(b.mean(method, m) for b in benches) for m in MEASURES[1:]}
        valid = fmean(b.validation(method) for b in benches)
        differences = [f"{gains[m][i]:+.4f} (p = {p_values[m][i]:.1g})" for m in means]
        seconds = fmean(b.seconds(method) for b in benches)
        rows.append([method.name, f"{valid:.4f}", *(f"{v:.4f}" for v in means.values()),
                     f"{seconds:.1f}"])  # fmt: skip
        changes += [[method.name, *differences]] if i else []
        figures.append({"method": method.name, "validation": valid, "means": means,
                        "gains": {m: gains[m][i] for m in means}, "seconds": seconds,
                        "p": {m: p_values[m][i] for m in means}})  # fmt: skip
    first, queries = methods[0].name, len(pooled[0])
    title = f"Means over {len(benches)} sets, each with the same weight"
    show_table(title, ["", f"validation {VALIDATION}", *means, "seconds"], rows)
    title = f"Differences from {first} over all {queries} test queries (Wilcoxon's test, Holm)"
    show_table(title, ["", *means], changes)
    return figures


def show_sets(benches: Sequence[Bench], methods: Sequence[Method]) -> None:
    """The validation measure of each set."""
    rows = [[m.name, *(f"{b.mean(m, VALIDATION):.4f}" for b in benches)] for m in methods]
    names = [b.source.name.removesuffix(" synthetic web search") for b in benches]
    show_table(f"{VALIDATION} by set", ["", *names], rows)


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", help="folders with folds, files, or built-in")
    options.add_argument("--out", type=Path, required=True, help="keeps every training")
    options.add_argument("--folds", type=int, help="the first folds of each set only")
    options.add_argument("--trials", type=int, default=4, help="settings of each method (1 to 4)")
    options.add_argument("--epochs", type=int, default=40, help="at most; early stopping as usual")
    options.add_argument("--queries", type=int, default=600, help="of the built-in data")
    options.add_argument("--jobs", type=int, default=cores(), help="trainings at a time (cores)")
    given = options.parse_args()
    console.print(describe_environment())
    methods = [
        Method(m.name, m.method, m.settings, (("epochs", given.epochs),), m.ours)
        for m in (*DIRECT, *SURROGATES)
    ]
    begun, benches = time.perf_counter(), []
    for name in given.data:
        source = open_source(name, given.queries)
        folds, out = source.check()[: given.folds], given.out / source.name.replace(" ", "-")
        benches.append(Bench(source, out, folds, [0], given.trials, given.jobs))
    for bench in benches:
        console.print(f"\n{bench.source.name}")
        bench.train(methods)
    console.print(f"trained for {(time.perf_counter() - begun) / 60:.0f} minutes just now\n")
    figures = show_values(benches, methods)
    show_sets(benches, methods)
    save(given.json, {"losses": figures})


if __name__ == "__main__":
    main()
