"""Methods cross-validated on the same folds, and tested for significance, in Python.

`twinrank compare` does this and more (seeds, processes, a report) from the command line.
"""

import numpy as np

import twinrank as tr

MEASURES = ["nDCG@5", "AP"]


def methods(seed: int) -> dict[str, tr.Ranker | tr.BoostedRanker]:
    """Fresh rankers by name."""
    net = {"transforms": "SignedLog1p + QueryZScore", "epochs": 8, "random_state": seed}
    trees = {"n_estimators": 100, "random_state": seed}
    return {
        "ListNet": tr.Ranker(objective="ListNet", **net),
        "nDCG-type3": tr.Ranker(objective="nDCG", strategy="type3", **net),
        "AP-type3": tr.Ranker(objective="AP", strategy="type3", **net),
        "LambdaMART": tr.BoostedRanker(objective="LambdaMART", **trees),
        "nDCG-type3 (trees)": tr.BoostedRanker(objective="nDCG", strategy="type3", **trees),
    }


def cross_validate(data: tr.Dataset, folds: int = 3, seed: int = 0) -> tr.Comparison:
    """Train every method on every fold; compare the values of all test queries."""
    values: dict[str, dict[str, list[np.ndarray]]] = {}
    for fold in data.folds(folds, random_state=seed):
        for name, ranker in methods(seed).items():
            ranker.fit(fold.train, eval_set=fold.validation)
            found = tr.evaluate(
                ranker.predict(fold.test), fold.test.y, fold.test.lists, MEASURES
            ).values
            kept = values.setdefault(name, {measure: [] for measure in MEASURES})
            for measure in MEASURES:
                kept[measure].append(found[measure])
    pooled = {
        name: {measure: np.concatenate(parts) for measure, parts in by.items()}
        for name, by in values.items()
    }
    return tr.compare(pooled, test="wilcoxon", level=0.05, correction="holm", intervals=True)


if __name__ == "__main__":
    print(cross_validate(tr.synthetic_web_search(queries=120)))
