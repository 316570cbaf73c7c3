"""How well probabilities hold: maps after training, a net's own, a sigmoid, a pointwise model.

    python benchmarks/calibration.py MQ2008 OHSUMED MSLR-5k-rows.txt --out results

DATA are folders with folds, or files, which are cut into five folds. The predictions of every
fold are kept in --out, so that the same command continues. A document is relevant if its label is
at least 1. Maps are fitted on the validation queries, which also select the round or epoch.
"""

import time
from pathlib import Path

import lightgbm as lgb
import numpy as np

import twinrank as tr
from common import console, describe_environment, parser, show_table
from twinrank.evaluation.significance import p_value

SIGMOID, MAP, QUERIES = "trees, σ(score)", "trees, map", "trees, map, query features"
NET_SIGMOID, NET_MAP, TRAINED = "net, σ(score)", "net, map", "net, calibrated in training"
POINTWISE = "pointwise"
AGAINST = {
    SIGMOID: "trees",
    MAP: "trees",
    QUERIES: "trees",
    NET_SIGMOID: "net",
    NET_MAP: "net",
    TRAINED: "net",
    POINTWISE: "trees",
}
"""The ranker with whose nDCG that of a method is compared."""
OBJECTIVE = "nDCG + SigmoidCrossEntropy"


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds, or files")
    options.add_argument("--folds", type=int, default=5, help="the first folds only")
    options.add_argument("--out", type=Path, required=True, help="keeps the predictions")
    given = options.parse_args()
    console.print(describe_environment())
    given.out.mkdir(parents=True, exist_ok=True)
    for path in given.data:
        folds = tr.load_folds(path) if path.is_dir() else tr.load(path).folds()
        parts = []
        for number, fold in enumerate(list(folds)[: given.folds], start=1):
            kept = given.out / f"{path.stem}-{number}.npz"
            if not kept.exists():
                begin = time.perf_counter()
                np.savez(kept, **predicted(*fold))
                console.print(f"{path.stem}, fold {number}: {time.perf_counter() - begin:.0f} s")
            parts.append(np.load(kept))
        show(path.stem, parts)
    show_speed()


def predicted(train: tr.Dataset, valid: tr.Dataset, test: tr.Dataset) -> dict[str, np.ndarray]:
    """The predictions of all methods, the scores, the labels and the sizes of the test queries."""
    trees = tr.BoostedRanker().fit(train, eval_set=valid, calibrate="probability")
    found = {MAP: trees.predict(test, output="probability")}
    trees.calibrate(valid, query_features=True)
    found |= {QUERIES: trees.predict(test, output="probability")}
    net = tr.Ranker().fit(train, eval_set=valid, calibrate="probability")
    found |= {NET_MAP: net.predict(test, output="probability")}
    trained = tr.Ranker(OBJECTIVE).fit(train, eval_set=valid)
    found |= {TRAINED: trained.predict(test, output="probability")}
    scores = {"trees": trees.predict(test), "net": net.predict(test)}
    for name, own in ((SIGMOID, "trees"), (NET_SIGMOID, "net")):
        found |= {name: 1 / (1 + np.exp(-scores[own].astype(np.float64)))}
    sets = [lgb.Dataset(part.X, part.y >= 1) for part in (train, valid)]
    parameters = {"objective": "binary", "learning_rate": 0.05, "num_leaves": 15, "verbose": -1}
    stop = [lgb.early_stopping(50, verbose=False)]
    model = lgb.train(parameters, sets[0], 500, valid_sets=[sets[1]], callbacks=stop)
    found |= {POINTWISE: model.predict(test.X)}
    return {**found, **scores, "labels": test.y, "sizes": test.lists.sizes}


def show(name: str, parts: list[np.ndarray]) -> None:
    """A table of one data set, over the test queries of all folds."""
    known = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    lists, labels = tr.Lists.from_sizes(known["sizes"]), known["labels"]
    exact = {
        own: tr.evaluate(known[own], labels, lists, ["nDCG@5"]).values["nDCG@5"]
        for own in ("trees", "net")
    }
    rows = []
    for method, ranker in AGAINST.items():
        own = tr.evaluate_calibration(known[method], labels, lists)
        values = tr.evaluate(known[method], labels, lists, ["nDCG@5"]).values["nDCG@5"]
        same = np.array_equal(values, exact[ranker], equal_nan=True)
        test = "equal bits" if same else f"p = {p_value(values, exact[ranker]):.2g}"
        test += f" ({ranker})"
        cells = [own.error, own.squared_error, own.auc, np.nanmean(values)]
        rows.append([method, *(f"{cell:.4f}" for cell in cells), test])
    title = f"{name}: {len(lists):,} queries, {labels.size:,} documents"
    title += f" (perfect predictions: ECE {own.noise:.4f})"
    columns = ["", "ECE", "Brier score", "AUC", "nDCG@5", "against the score"]
    show_table(title, columns, rows)


def show_speed() -> None:
    """The seconds that a map of a million scores takes to fit and to apply, the best of three."""
    from twinrank.learning.models.score_map import fit_map

    random = np.random.default_rng(0)
    scores = random.normal(size=10**6).astype(np.float32)
    labels = (random.random(10**6) < 1 / (1 + np.exp(3 - 2 * scores))).astype(np.float64)
    lists = tr.Lists.from_sizes(np.full(10**4, 100))
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        own = fit_map(scores, labels, lists, "probability")
        middle = time.perf_counter()
        own(scores)
        seconds.append((middle - begin, time.perf_counter() - middle))
    fit, apply = np.min(seconds, axis=0)
    console.print(f"10⁶ scores: fitted in {fit:.2f} s, mapped in {apply:.2f} s")


if __name__ == "__main__":
    main()
