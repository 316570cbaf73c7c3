"""Global optimisation: the best of five restarts by validation, against an ensemble of the five.

    python benchmarks/restarts.py OHSUMED MQ2008 MQ2007-partial --folds 2 --out results

Every fold trains the same single net with several seeds. The table compares the mean of the single
nets, the net with the best validation value, and the nets' mean score, on the test queries. Every
training is kept in --out, so that the script continues where it was interrupted.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import numpy as np

from common import console, describe_environment, parser, save, show_table
from quality import MEASURES, Bench, Method, open_source
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.significance import p_value
from twinrank.experiments.study.scheduler import cores
from twinrank.support.arrays import Floats

SINGLE, BEST, ENSEMBLE = "a single net", "the best of them by validation", "their ensemble"


def values_of(bench: Bench, method: Method) -> dict[str, dict[str, Floats]]:
    """The measures of the test queries of all folds, by choice."""
    by_fold: list[Mapping[str, Mapping[str, Floats]]] = []
    for fold in bench.folds:
        test = bench.source.sets(fold)["test"]
        results = [bench.result(unit) for unit in bench.selected(method, fold)]
        best = max(results, key=lambda result: result.best_score or 0.0)
        mean = np.mean([result.scores for result in results], axis=0)
        single = [evaluate(r.scores, test.y, test.lists, MEASURES).values for r in results]
        by_fold.append(
            {
                SINGLE: {m: np.mean([values[m] for values in single], axis=0) for m in MEASURES},
                BEST: evaluate(best.scores, test.y, test.lists, MEASURES).values,
                ENSEMBLE: evaluate(mean, test.y, test.lists, MEASURES).values,
            }
        )
    return {
        choice: {m: np.concatenate([values[choice][m] for values in by_fold]) for m in MEASURES}
        for choice in (SINGLE, BEST, ENSEMBLE)
    }


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", help="folders with folds, files, or built-in")
    options.add_argument("--out", type=Path, required=True, help="keeps every training")
    options.add_argument("--method", default="nDCG-type3", help="of a study, without an ensemble")
    options.add_argument("--restarts", type=int, default=5)
    options.add_argument("--folds", type=int, help="the first folds of each set only")
    options.add_argument("--queries", type=int, default=200, help="of the built-in data")
    options.add_argument("--jobs", type=int, default=cores(), help="trainings at a time (cores)")
    given = options.parse_args()
    console.print(describe_environment())
    method, values = Method(given.method, given.method), []
    for name in given.data:
        source = open_source(name, given.queries)
        folds, out = source.check()[: given.folds], given.out / source.name.replace(" ", "-")
        bench = Bench(source, out, folds, range(given.restarts), 1, given.jobs)
        bench.train([method])
        values.append(values_of(bench, method))
    rows, figures = [], []
    for choice in (SINGLE, BEST, ENSEMBLE):
        row = [choice]
        for measure in MEASURES[1:]:
            own, ensemble = (
                np.concatenate([each[c][measure] for each in values]) for c in (choice, ENSEMBLE)
            )
            mean = fmean(float(np.nanmean(each[choice][measure])) for each in values)
            p = 1.0 if choice == ENSEMBLE else p_value(own, ensemble)
            row.append(f"{mean:.4f}" + (f" (p = {p:.1g})" if choice != ENSEMBLE else ""))
            figures.append({"choice": choice, "measure": measure, "mean": mean, "p": p})
        rows.append(row)
    queries = sum(each[SINGLE][MEASURES[0]].size for each in values)
    console.print(
        f"{given.restarts} seeds of {given.method}; means over {len(values)} sets, each with the "
        f"same weight; p against the ensemble, over all {queries} test queries (Wilcoxon)."
    )
    show_table("", ["", *MEASURES[1:]], rows)
    save(given.json, {"restarts": figures})


if __name__ == "__main__":
    main()
