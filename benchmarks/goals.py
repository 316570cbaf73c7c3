"""Two goals: a sum of measures beside blended labels and blended scores.

    python benchmarks/goals.py --queries 1500 --out results
    python benchmarks/goals.py --expedia expedia.csv --rounds 40 --out results

Built-in data gets a made-up margin: a random linear function of ten features, with noise, cut into
grades from 0 to 3 at its quantiles; 30 % of the queries train, the others test. --expedia takes the
training data of the Expedia competition, or a part of it: clicks are the first goal, bookings the
second, and five folds test all queries.

For each weight of the second goal, rankers of --rounds trees with the same features are trained:
our sum of two nDCG@10; LightGBM's lambdarank and XGBoost's rank:ndcg (ndcg_exp_gain=False) on
blended labels; and two rankers, one for each goal, whose scores are blended: with half of the trees
each, which is an equal cost, and with all ("twice"). Scores are kept in --out. The table of
comparisons is at an equal first goal: it interpolates between the two weights of the other method
whose first goal is just below and just above that of the sum.

On built-in data, "constraints" trains on a third of the test queries as validation data, with
bounds relative to a ranker of the first goal, and compares the second goal with that of the fixed
weights at an equal first goal.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import polars as pl
import torch
import xgboost as xgb

import twinrank as tr
from common import console, describe_environment, parser, race, show_table
from real_clicks import NOT_FEATURES
from twinrank.evaluation.significance import p_value
from twinrank.experiments.study.units import one_thread

WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SHOWN = (0.1, 0.2, 0.3, 0.4, 0.5)
SAME = 0.3
SUM, LIGHTGBM, XGBOOST = "sum", "labels, LightGBM", "labels, XGBoost"
HALF, TWICE = "scores, equal cost", "scores, twice"
METHODS = (SUM, LIGHTGBM, XGBOOST, HALF, TWICE)
Split = tuple[tr.Dataset, tr.Dataset]
Values = list[np.ndarray]


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--queries", type=int, default=1500)
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--expedia", type=Path, help="the log, instead of built-in data")
    options.add_argument("--out", type=Path, required=True, help="keeps the values per query")
    given = options.parse_args()
    console.print(describe_environment())
    if given.expedia is None:
        data, prefix = with_margin(tr.synthetic_web_search(queries=given.queries)), given.queries
        splits = [data.split(0.3)]
    else:
        data, prefix = bookings(given.expedia), "expedia"
        splits = [(train, test) for train, _, test in data.folds(5)]
    first, second = data.labels
    goals = ("nDCG@10", f"nDCG(label={second})@10")
    train, test = splits[0]
    console.print(
        f"{train.queries} training queries, {test.queries} test queries, {first}, {second}"
    )
    found: dict[tuple[str, float], Values] = {}
    for number, split in enumerate(splits):
        place = given.out / f"{prefix}-{given.rounds}-{number}"
        for name, weight, scores in rankings(split, goals, place, given.rounds):
            values = tr.evaluate(scores, split[1].labels, split[1].lists, goals).values
            before = found.get((name, weight), [np.zeros(0)] * 2)
            found[name, weight] = [
                np.append(old, values[goal]) for old, goal in zip(before, goals, strict=True)
            ]
    rows = [
        [f"{weight:g}", *(" / ".join(cells(found[name, weight])) for name in METHODS)]
        for weight in WEIGHTS
    ]
    title = f"nDCG@10 of {first} / {second} by the weight of {second}"
    show_table(title, ["weight", *METHODS], rows)
    compare(found, first, second)
    if given.expedia is None:
        sums = {weight: found[SUM, weight] for weight in WEIGHTS}
        show_constraints(splits[0], goals, sums, given.rounds)
    show_cost(train, goals)


def with_margin(data: tr.Dataset) -> tr.Dataset:
    """The data with a second column of labels."""
    random = np.random.default_rng(1)
    X = np.argsort(np.argsort(data.X[:, random.choice(data.features, 10, False)], axis=0), axis=0)
    value = (X / data.documents) @ random.normal(size=10) + 0.3 * random.normal(size=len(X))
    margin = np.searchsorted(np.quantile(value, [0.6, 0.85, 0.95]), value).astype(np.float64)
    labels = {"relevance": data.y, "margin": margin}
    return tr.Dataset.from_arrays(data.X, group=data.lists.sizes, labels=labels)


def bookings(path: Path) -> tr.Dataset:
    """Hotel searches with clicks and bookings."""
    frame = pl.read_csv(path, null_values=["NULL", ""], infer_schema_length=None)
    names = [name for name in frame.columns if name not in NOT_FEATURES]
    X = frame.select(pl.col(names).cast(pl.Float64).fill_null(-1.0)).to_numpy()
    labels = {"click": frame["click_bool"].to_numpy(), "booking": frame["booking_bool"].to_numpy()}
    return tr.Dataset.from_arrays(X, qid=frame["srch_id"].to_numpy(), labels=labels)


def rankings(
    split: Split, goals: tuple[str, str], out: Path, rounds: int
) -> Iterator[tuple[str, float, np.ndarray]]:
    """Method, weight and scores of the test queries; those of trained rankers are kept."""

    def kept(name: str, train: Any) -> np.ndarray:
        path = out / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(np.asarray(train(), float).tolist()))
        return np.array(json.loads(path.read_text()))

    lists = split[1].lists
    out.mkdir(parents=True, exist_ok=True)
    for trees, name in ((rounds // 2, HALF), (rounds, TWICE)):
        singles = []
        for i, goal in enumerate(goals):
            own = kept(f"single-{i}-{trees}", partial(by_measure, goal, split, trees))
            centred = own - lists.spread(lists.sum(own) / lists.sizes)
            singles.append(centred / centred.std())
        for weight in WEIGHTS:
            yield name, weight, (1 - weight) * singles[0] + weight * singles[1]
    for weight in WEIGHTS:
        objective = f"{1 - weight:g} * {goals[0]} + {weight:g} * {goals[1]}"
        own = partial(by_measure, objective if weight else goals[0], split, rounds)
        yield SUM, weight, kept(f"sum-{weight}", own)
        grades = blended_grades(split[0], weight)
        for name, train in ((LIGHTGBM, by_lightgbm), (XGBOOST, by_xgboost)):
            own = partial(train, grades, split, rounds)
            yield name, weight, kept(f"{name.split()[1]}-{weight}", own)


def by_measure(objective: str, split: Split, rounds: int) -> np.ndarray:
    settings = {"learning_rate": 0.1, "ensemble_size": 1, "early_stopping": None, "n_jobs": 1}
    ranker = tr.BoostedRanker(objective, n_estimators=rounds, **settings).fit(split[0])
    return ranker.predict(split[1])


def blended_grades(data: tr.Dataset, weight: float) -> np.ndarray:
    """(1 − w) · gain of the first goal + w · gain of the second, as 31 grades."""
    gains = [2.0**column - 1 for column in data.labels.values()]
    blended = (1 - weight) * gains[0] / gains[0].max() + weight * gains[1] / gains[1].max()
    return np.rint(30 * blended / blended.max()).astype(int)


def features(split: Split) -> list[np.ndarray]:
    """The features that our trees see: as they are, and as z-scores within the query."""
    transform = tr.transform("QueryZScore")
    return [np.column_stack([d.X, transform(d.X, d.lists)]) for d in split]


def by_lightgbm(grades: np.ndarray, split: Split, rounds: int) -> np.ndarray:
    train, test = features(split)
    data = lgb.Dataset(train, grades, group=split[0].lists.sizes)
    parameters = {"objective": "lambdarank", "learning_rate": 0.1, "num_leaves": 15, "verbose": -1}
    parameters |= {"label_gain": list(range(31)), "feature_fraction": 0.5, "seed": 0}
    return lgb.train({**parameters, "num_threads": 1}, data, rounds).predict(test)


def by_xgboost(grades: np.ndarray, split: Split, rounds: int) -> np.ndarray:
    train, test = features(split)
    data = xgb.DMatrix(train, grades, group=split[0].lists.sizes)
    parameters = {"objective": "rank:ndcg", "ndcg_exp_gain": False, "learning_rate": 0.1}
    parameters |= {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 15}
    parameters |= {"colsample_bytree": 0.5, "seed": 0, "nthread": 1}
    return xgb.train(parameters, data, rounds).predict(xgb.DMatrix(test))


def cells(values: Values) -> list[str]:
    return [f"{np.nanmean(value):.4f}" for value in values]


def compare(found: dict[tuple[str, float], Values], first: str, second: str) -> None:
    """The second goal of the sum against that of the others at an equal first one."""
    rows = []
    for name in METHODS[1:]:
        others = {weight: found[name, weight] for weight in WEIGHTS}
        for weight in SHOWN:
            own = found[SUM, weight]
            rows.append([name, f"{weight:g}", cells(own)[0], *at_equal(*own, others)])
    columns = ["against", "weight", first, f"{second} of the sum", "p"]
    show_table("the second goal at an equal first one", columns, rows)
    rows = []
    for name in METHODS[1:]:
        pairs = list(zip(found[SUM, SAME], found[name, SAME], strict=True))
        gains = [
            f"{np.nanmean(a) - np.nanmean(b):+.4f} (p = {p_value(a, b):.2g})" for a, b in pairs
        ]
        rows.append([name, *gains])
    show_table(f"the sum against the others at a weight of {SAME}", ["", first, second], rows)


def at_equal(first: np.ndarray, second: np.ndarray, others: dict[float, Values]) -> tuple[str, str]:
    """The gain in the second goal, and its p-value, where others have an equal first goal."""
    goal = np.nanmean(first)
    points = sorted((np.nanmean(values[0]), weight) for weight, values in others.items())
    above = next((i for i, (value, _) in enumerate(points) if value >= goal), None)
    if above is None:
        return f"first goal ≤ {points[-1][0]:.4f}", ""
    if above == 0:
        return f"first goal ≥ {points[0][0]:.4f}", ""
    (low, a), (high, b) = points[above - 1 : above + 1]
    share = (goal - low) / (high - low)
    other = (1 - share) * others[a][1] + share * others[b][1]
    return f"{np.nanmean(second - other):+.4f}", f"{p_value(second, other):.2g}"


def show_constraints(
    split: Split, goals: tuple[str, str], sums: dict[float, Values], rounds: int
) -> None:
    """Constrained rankers beside fixed weights, on the test queries that they did not see."""
    train, (valid, test) = split[0], split[1].split(1 / 3)
    own = {query: row for row, query in enumerate(split[1].query_ids.tolist())}
    kept = [own[query] for query in test.query_ids.tolist()]
    fixed = {w: [value[kept] for value in values] for w, values in sums.items()}
    settings = {"learning_rate": 0.1, "ensemble_size": 1, "n_estimators": rounds, "n_jobs": 1}
    sets = {"validation": valid, "test": test}
    current = tr.BoostedRanker(goals[0], **settings, validation_measure=goals[0])
    current.fit(train, eval_set=sets)
    rows, per_round = [], {}
    for slack in (0.002, 0.01, 0.03):
        objective = f"{goals[1]} subject to {goals[0]} >= current - {slack}"
        began = time.process_time()
        ranker = tr.BoostedRanker(objective, **settings)
        ranker.fit(train, eval_set=sets, current=current)
        per_round["constraint"] = (time.process_time() - began) / len(ranker.history_)
        values = tr.evaluate(ranker.predict(test), test.labels, test.lists, goals).values
        gain, p = at_equal(values[goals[0]], values[goals[1]], fixed)
        checks = [f"{c.margin:+.4f} [{c.low:+.3f}, {c.high:+.3f}]" for c in ranker.constraints_]
        weight = next(iter(ranker.history_[ranker.best_iteration_ - 1]["weights"].values()))
        mean = f"{np.nanmean(values[goals[1]]):.4f}"
        rows.append([f"{slack:g}", *checks, f"{weight:.1f}", mean, gain, p])
    columns = ["bound", "validation", "test", "weight", "second goal", "− fixed", "p"]
    show_table("constraints: margins with 95 % intervals", columns, rows)
    began = time.process_time()
    plain = tr.BoostedRanker(f"0.2 * {goals[1]} + 0.8 * {goals[0]}", **settings)
    plain.fit(train, eval_set=sets)
    ratio = per_round["constraint"] / ((time.process_time() - began) / len(plain.history_))
    console.print(f"a round with a constraint costs {ratio:.2f} × one of a sum with fixed weights")


def show_cost(data: tr.Dataset, goals: tuple[str, str]) -> None:
    """The time of the gradient of a sum, relative to that of one measure."""
    from twinrank.data.label_columns import training_labels
    from twinrank.learning.boosting.newton import Newton

    scores = np.random.default_rng(0).normal(size=data.documents).astype(np.float32)
    y = torch.tensor(scores, requires_grad=True)
    calls = {}
    for objective in (goals[0], f"0.5 * {goals[0]} + 0.5 * {goals[1]}"):
        newton = Newton.of(objective)
        measure, labels = training_labels(newton.measure, data)
        newton, loss = (
            replace(newton, measure=measure),
            tr.DirectLoss(objective).on_measure(measure),
        )
        calls["trees", objective] = partial(newton, scores, labels, data.lists)
        tensor = torch.as_tensor(labels)
        calls["net", objective] = lambda f=loss, x=tensor: f(y, x, data.lists).backward()
    seconds = {name: timing.median for name, timing in race(calls, rounds=30, budget=60).items()}
    for learner in ("trees", "net"):
        one, two = (value for (name, _), value in seconds.items() if name == learner)
        console.print(f"{learner}: the gradient of two measures costs {two / one:.2f} × one")


if __name__ == "__main__":
    with one_thread():
        main()
