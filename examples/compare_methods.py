"""Cross-validate several methods on the same folds and test the differences for significance.

The command `twinrank compare` does the same, and adds seeds, parallel processes and a report.
"""

import numpy as np

import twinrank as tr

MEASURES = ["nDCG@5", "AP"]


def methods(seed: int) -> dict[str, tr.Ranker | tr.BoostedRanker]:
    """Unfitted rankers by name."""
    net = {"epochs": 6, "random_state": seed}
    trees = {"n_estimators": 50, "random_state": seed}
    return {
        "ListNet": tr.Ranker(objective="ListNet", **net),
        "nDCG-type3": tr.Ranker(objective="nDCG", strategy="type3", **net),
        "AP-type3": tr.Ranker(objective="AP", strategy="type3", **net),
        "LambdaMART": tr.BoostedRanker(objective="LambdaMART", **trees),
        "nDCG-type3 (trees)": tr.BoostedRanker(objective="nDCG", strategy="type3", **trees),
    }


def cross_validate(data: tr.Dataset, folds: int = 3, seed: int = 0) -> tr.Comparison:
    """Train every method on every fold, and compare the values of all test queries."""
    values: dict[str, dict[str, list[np.ndarray]]] = {}
    for fold in data.folds(folds, random_state=seed):
        for name, ranker in methods(seed).items():
            ranker.fit(fold.train, eval_set=fold.validation)
            scores = ranker.predict(fold.test)
            result = tr.evaluate(scores, fold.test.y, fold.test.lists, MEASURES)
            by_measure = values.setdefault(name, {measure: [] for measure in MEASURES})
            for measure in MEASURES:
                by_measure[measure].append(result.values[measure])
    pooled = {
        name: {measure: np.concatenate(parts) for measure, parts in by_measure.items()}
        for name, by_measure in values.items()
    }
    return tr.compare(pooled, test="wilcoxon", level=0.05, correction="holm", intervals=True)


if __name__ == "__main__":
    print(cross_validate(tr.synthetic_web_search(queries=120)))
