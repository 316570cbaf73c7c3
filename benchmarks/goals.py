"""Two goals on built-in data with a made-up margin: a sum of measures beside two other ways.

    python benchmarks/goals.py --queries 400 --out results

The margin of a document is a grade from 0 to 3: a random linear function of ten features, with
noise, cut at its quantiles. For each weight of the margin, three rankers are trained: our sum of
two nDCG@10; LightGBM's lambdarank on blended labels; and a blend of the scores of two rankers, one
for each goal. Each is a single model of 100 trees. Values are means over the test queries, which
are kept in --out by training. The last table compares the margins where the relevance is equal.
"""

import json
from functools import partial
from pathlib import Path

import lightgbm as lgb
import numpy as np
import torch

import twinrank as tr
from common import console, describe_environment, parser, race, show_table
from twinrank.evaluation.significance import p_value

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4)
GOALS = ("nDCG@10", "nDCG(label=margin)@10")
SUM, LABELS, SCORES = "sum of measures", "blended labels, LightGBM", "blended scores"
SETTINGS = {"n_estimators": 100, "ensemble_size": 1, "early_stopping": None, "random_state": 0}


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--queries", type=int, default=400)
    options.add_argument("--out", type=Path, required=True, help="keeps the values per query")
    given = options.parse_args()
    console.print(describe_environment())
    given.out.mkdir(parents=True, exist_ok=True)
    train, test = with_margin(tr.synthetic_web_search(queries=given.queries)).split(0.5)
    console.print(f"{train.queries} training queries, {test.queries} test queries")
    found: dict[tuple[str, float], list[np.ndarray]] = {}
    singles: dict[str, np.ndarray] = {}
    for weight in WEIGHTS:
        for name in (SUM, LABELS, SCORES):
            kept = given.out / f"{given.queries}-{name.split()[0]}-{name.split()[1]}-{weight}.json"
            if not kept.exists():
                scores = scored(name, weight, train, test, singles)
                values = tr.evaluate(scores, test.labels, test.lists, GOALS).values
                kept.write_text(json.dumps([values[goal].tolist() for goal in GOALS]))
            found[name, weight] = [np.array(v, float) for v in json.loads(kept.read_text())]
    rows = [
        [
            f"{weight:g}",
            *(cell for name in (SUM, LABELS, SCORES) for cell in cells(found[name, weight])),
        ]
        for weight in WEIGHTS
    ]
    columns = [f"{name}: {goal}" for name in (SUM, LABELS, SCORES) for goal in ("rel", "margin")]
    show_table("nDCG@10 by the weight of the margin", ["weight", *columns], rows)
    compare(found)
    show_cost(train)


def with_margin(data: tr.Dataset) -> tr.Dataset:
    """The data with a second column of labels."""
    random = np.random.default_rng(1)
    X = np.argsort(np.argsort(data.X[:, random.choice(data.features, 10, False)], axis=0), axis=0)
    value = (X / data.documents) @ random.normal(size=10) + 0.3 * random.normal(size=len(X))
    margin = np.searchsorted(np.quantile(value, [0.6, 0.85, 0.95]), value).astype(np.float64)
    labels = {"relevance": data.y, "margin": margin}
    return tr.Dataset.from_arrays(data.X, group=data.lists.sizes, labels=labels)


def scored(
    name: str, weight: float, train: tr.Dataset, test: tr.Dataset, singles: dict[str, np.ndarray]
) -> np.ndarray:
    """The scores of the test queries by one of the three ways."""
    if name == LABELS:
        return by_blended_labels(weight, train, test)
    if name == SUM and 0 < weight < 1:
        objective = f"{1 - weight:g} * {GOALS[0]} + {weight:g} * {GOALS[1]}"
        return tr.BoostedRanker(objective, **SETTINGS).fit(train).predict(test)
    for goal in GOALS:
        if goal not in singles:
            own = tr.BoostedRanker(goal, **SETTINGS).fit(train).predict(test)
            centred = own - test.lists.spread(test.lists.sum(own) / test.lists.sizes)
            singles[goal] = centred / centred.std()
    return (1 - weight) * singles[GOALS[0]] + weight * singles[GOALS[1]]


def by_blended_labels(weight: float, train: tr.Dataset, test: tr.Dataset) -> np.ndarray:
    """LambdaMART on (1 − w) · gain of the relevance + w · gain of the margin, as 31 grades."""
    gains = [2.0 ** train.labels[name] - 1 for name in ("relevance", "margin")]
    blended = (1 - weight) * gains[0] / gains[0].max() + weight * gains[1] / gains[1].max()
    grades = np.rint(30 * blended / blended.max()).astype(int)
    transform = tr.transform("QueryZScore")
    sets = [np.column_stack([d.X, transform(d.X, d.lists)]) for d in (train, test)]
    data = lgb.Dataset(sets[0], grades, group=train.lists.sizes)
    parameters = {"objective": "lambdarank", "learning_rate": 0.1, "num_leaves": 15, "verbose": -1}
    parameters |= {"label_gain": list(range(31)), "feature_fraction": 0.5, "seed": 0}
    return lgb.train(parameters, data, 100).predict(sets[1])


def cells(values: list[np.ndarray]) -> list[str]:
    return [f"{np.nanmean(value):.4f}" for value in values]


def compare(found: dict[tuple[str, float], list[np.ndarray]]) -> None:
    """The margin of the sum against that of the others at an equal relevance, by interpolation."""
    rows = []
    for name in (LABELS, SCORES):
        for weight in WEIGHTS[1:-1]:
            goal = np.nanmean(found[SUM, weight][0])
            points = sorted((np.nanmean(found[name, w][0]), w) for w in WEIGHTS)
            above = next((i for i, (value, _) in enumerate(points) if value >= goal), 0)
            if above == 0:
                continue
            (low, a), (high, b) = points[above - 1 : above + 1]
            share = (goal - low) / (high - low)
            other = (1 - share) * found[name, a][1] + share * found[name, b][1]
            gain = np.nanmean(found[SUM, weight][1] - other)
            p = p_value(found[SUM, weight][1], other)
            rows.append([name, f"{weight:g}", f"{goal:.4f}", f"{gain:+.4f}", f"{p:.2g}"])
    columns = ["against", "weight", "nDCG@10 of relevance", "margin of the sum", "p"]
    show_table("the second goal at an equal first one", columns, rows)


def show_cost(data: tr.Dataset) -> None:
    """The time of the gradient of a sum, relative to that of one measure."""
    from twinrank.data.label_columns import training_labels
    from twinrank.learning.boosting.newton import Newton

    scores = np.random.default_rng(0).normal(size=data.documents).astype(np.float32)
    y = torch.tensor(scores, requires_grad=True)
    calls = {}
    for objective in (GOALS[0], f"0.5 * {GOALS[0]} + 0.5 * {GOALS[1]}"):
        newton, loss = Newton.of(objective), tr.DirectLoss(objective)
        labels = training_labels(newton.measure, data)
        calls["trees", objective] = partial(newton, scores, labels, data.lists)
        tensor = torch.as_tensor(labels)
        calls["net", objective] = lambda f=loss, x=tensor: f(y, x, data.lists).backward()
    seconds = {name: timing.median for name, timing in race(calls, rounds=30, budget=60).items()}
    for learner in ("trees", "net"):
        one, two = (value for (name, _), value in seconds.items() if name == learner)
        console.print(f"{learner}: the gradient of two measures costs {two / one:.2f} × one")


if __name__ == "__main__":
    main()
