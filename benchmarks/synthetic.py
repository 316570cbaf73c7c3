"""The built-in data beside real data: the order of methods, and the redundancy of features.

    python benchmarks/synthetic.py DATA [--sets MQ2008,built-in] [--folds 2] [--out FOLDER]

DATA contains folders with folds (MQ2008, OHSUMED, …) and rows of MSLR-WEB30K as a LETOR file. The
first table compares the features with those of MSLR. The others give nDCG@5 and nDCG@10 of each
method, their range, and Kendall's τ between the orders of methods on each pair of sets. Results
are saved; the same command continues.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.table import Table
from scipy.stats import kendalltau, rankdata

import twinrank as tr
from common import console
from twinrank.experiments.study.method_comparison import comparison_study
from twinrank.experiments.study.study_source import Source

METHODS = (
    "LambdaMART",
    "rank_xendcg",
    "nDCG-type3 (Boosted)",
    "nDCG-type3",
    "ListNet",
    "LambdaRank",
    "ApproxNDCG",
    "ListNet (Linear)",
)
MEASURES = ("nDCG@5", "nDCG@10")
BUILT_IN, ROWS = "built-in", "MSLR-5k-rows.txt"


def main() -> None:
    """Print the statistics of features, train the methods on every set, and print their order."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=f"MQ2008,OHSUMED,{ROWS},{BUILT_IN}", help="or none: ''")
    parser.add_argument("--folds", type=int, default=5, help="number of folds of each set")
    parser.add_argument("--queries", type=int, default=600, help="of the built-in data")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("built-in-order"))
    chosen = parser.parse_args()
    rows = chosen.data / ROWS
    if rows.is_file():
        statistics({"MSLR rows": tr.load(rows), BUILT_IN: tr.synthetic_web_search(200)})
    means = {}
    for name in filter(None, chosen.sets.split(",")):
        path = None if name == BUILT_IN else chosen.data / name
        source = Source.of(path, {}, queries=chosen.queries)
        study = comparison_study(source, METHODS, MEASURES, source.folds[: chosen.folds])
        results = study.run(chosen.out / name.partition(".")[0], chosen.jobs)
        means[name] = results.comparison().means
    if means:
        order(means)


def order(means: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print the measures of each method, and how the orders of methods agree."""
    methods = list(next(iter(means.values())))
    for measure in MEASURES:
        table = Table("", *means, title=measure)
        for method in methods:
            table.add_row(method, *(f"{values[method][measure]:.4f}" for values in means.values()))
        columns = {n: np.array([v[m][measure] for m in methods]) for n, v in means.items()}
        table.add_row("range", *(f"{np.ptp(column):.4f}" for column in columns.values()))
        for name, column in columns.items():
            taus = (kendalltau(column, other).statistic for other in columns.values())
            table.add_row(f"τ with {name}", *(f"{tau:.2f}" for tau in taus))
        console.print(table)


def statistics(sets: dict[str, tr.Dataset]) -> None:
    """Print how redundant the features are, and what each of them is worth alone."""
    table = Table("features", *sets)
    columns = {name: _statistics(data) for name, data in sets.items()}
    for row in next(iter(columns.values())):
        table.add_row(row, *(f"{values[row]:.3f}" for values in columns.values()))
    console.print(table)


def _statistics(data: tr.Dataset) -> dict[str, float]:
    X, lists = np.asarray(data.X, np.float64), data.lists
    starts = lists.offsets[:-1]
    found: dict[str, float] = {}
    constant = np.maximum.reduceat(X, starts) == np.minimum.reduceat(X, starts)
    found["constant within a query"] = constant.mean()
    found["variance between queries, median"] = np.median(_between(rankdata(X, axis=0), lists))
    within = np.concatenate([rankdata(X[a:b], axis=0) / (b - a) - 0.5 for a, b in _bounds(lists)])
    for name, ranks in (("all documents", rankdata(X, axis=0)), ("within queries", within)):
        values = np.corrcoef(ranks[:, ranks.std(0) > 0].T)
        pairs = np.abs(values[np.triu_indices(len(values), 1)])
        for quantile in (0.25, 0.5, 0.75, 0.95):
            found[f"|Spearman|, {name}, quantile {quantile}"] = np.quantile(pairs, quantile)
        eigenvalues = np.linalg.eigvalsh(values).clip(1e-12) / len(values)
        found[f"effective rank, {name}"] = np.exp(-(eigenvalues * np.log(eigenvalues)).sum())
    measure = tr.measure("nDCG@5")
    alone = [
        max(np.nanmean(measure(sign * x, data.y, lists, ties="random")) for sign in (1, -1))
        for x in X.T
    ]
    for quantile in (0, 0.25, 0.5, 0.75, 1):
        found[f"nDCG@5 of a feature, quantile {quantile}"] = np.quantile(alone, quantile)
    return found


def _between(values: np.ndarray, lists: tr.Lists) -> np.ndarray:
    """The share of each column's variance that is between queries."""
    sizes = np.asarray(lists.sizes)[:, None]
    means = np.add.reduceat(values, lists.offsets[:-1]) / sizes
    squares = (sizes * (means - values.mean(0)) ** 2).sum(0) / len(values)
    return squares / values.var(0).clip(1e-9)


def _bounds(lists: tr.Lists) -> list[tuple[int, int]]:
    return list(zip(lists.offsets[:-1].tolist(), lists.offsets[1:].tolist(), strict=True))


if __name__ == "__main__":
    main()
