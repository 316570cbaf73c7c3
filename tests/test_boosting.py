"""Boosted trees: gradients and hessians of measures, both engines, saved models, callbacks."""

import json
import pickle
import sys

import lightgbm as lgb
import numpy as np
import pytest
import torch
import xgboost as xgb

import twinrank as tr
from twinrank.core.ranks.kernels import pairs
from twinrank.core.ranks.kernels.curvature import curved_pair_sum
from twinrank.core.ranks.kernels.pairs import BY_ROWS
from twinrank.learning.boosting.engine_objectives import mean
from twinrank.learning.boosting.newton import FLOOR, Newton
from twinrank.learning.models.saved_model import read_model
from twinrank.support import compiled
from twinrank.training import Callback

STRATEGIES = ("type1", "type2", "type3")
ENGINES = ("lightgbm", "xgboost")
random = np.random.default_rng(0)
SIZES = np.array([1, 12, 40, 7, 25, 2, 33, 18, 9, 28, 14, 21] * 3)
LISTS = tr.Lists.from_sizes(SIZES)
QID = np.repeat(np.arange(SIZES.size), SIZES)
X = random.normal(size=(LISTS.documents, 4)).astype(np.float32)
Y = np.clip(np.rint(X[:, 0] - X[:, 1] + random.normal(size=QID.size) / 2), 0, 3)
Y[LISTS.offsets[:-1]] = 1
SCORES = random.normal(size=LISTS.documents)
TINY = {"min_data_in_leaf": 2, "min_sum_hessian_in_leaf": 1e-3}
SMALL = {"lightgbm": TINY, "xgboost": {"min_child_weight": 1.0}}


@pytest.fixture(autouse=True)
def _same_random_numbers_in_every_test():
    global random
    random = np.random.default_rng(1)


def small(engine="lightgbm", **changes):
    settings = {"n_estimators": 8, "num_leaves": 6, "engine_params": SMALL[engine], "n_jobs": 1}
    return tr.BoostedRanker(**{"engine": engine, **settings, **changes})


# Sums over pairs

SOME = slice(0, 4000, 50)


def sums_of_pairs(y, labels, g, strategy, alpha, rows=slice(None)):
    """Gradient and hessian of one list by the formulas, with m × m matrices (or some rows)."""
    x = alpha * (y[rows, None] - y)
    u = np.sign(labels[rows, None] - labels)
    bell = alpha * np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))) ** 2
    if strategy == "type1":
        difference = g - g[rows, None]
        return (difference * bell).sum(1), (np.abs(difference) * alpha * bell).sum(1)
    both = g + g[rows, None]
    if strategy == "type2":
        return -(both * u * bell).sum(1), (np.abs(both * u) * alpha * bell).sum(1)
    step = 1 / (1 + np.exp(np.clip(u * x, -700, 700)))
    force = -2 * alpha * both * u * step
    return force.sum(1), (np.abs(both * u) * 2 * alpha * bell).sum(1)


def rank_gradients(labels, lists, name="nDCG"):
    """∂L/∂rank as a measure gives it."""
    ranks = tr.exact_ranks(random.normal(size=labels.size), lists)
    return -tr.measure(name).at_ranks(ranks, labels, lists, gradient=True)[1]


def close(result, expected, accuracy):
    scale = np.abs(expected).max() if expected.size else 0.0
    np.testing.assert_allclose(result, expected, rtol=0, atol=accuracy * scale + 1e-300)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("sizes", "spread"),
    [([3, 0, 1, 40, 130], 1.0), ([30, 5], 300.0), ([1700], 1.0), ([1600, 4], 2e5)],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_both_sums_are_those_of_the_formulas(strategy, sizes, spread, mixed):
    lists = tr.Lists.from_sizes(sizes)
    y = random.normal(size=lists.documents) * spread
    labels = random.integers(0, 4, lists.documents).astype(float)
    g = rank_gradients(labels, lists) - (0.01 if mixed else 0.0)
    double = curved_pair_sum(y, labels, g, lists, strategy=strategy, alpha=1.3)
    single = curved_pair_sum(
        y.astype(np.float32), labels, g.astype(np.float32), lists, strategy=strategy, alpha=1.3
    )
    for start, stop in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        expected = sums_of_pairs(
            *(a[start:stop] for a in (y, labels, g)), strategy=strategy, alpha=1.3
        )
        for i in (0, 1):
            close(double[i][start:stop], expected[i], 1e-10)
            if spread == 1:  # with a wide spread, float32 rounds scores too much
                close(single[i][start:stop], expected[i], 1e-5)
    assert single[0].dtype == single[1].dtype == np.float32
    assert (double[1] >= 0).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_very_long_lists_get_the_sum_or_a_bound_of_it(strategy):
    lists = tr.Lists.from_sizes([BY_ROWS + 4])
    y = random.normal(size=lists.documents)
    labels = random.integers(0, 3, lists.documents).astype(float)
    for shift in (0.0, 0.5):
        g = random.random(lists.documents) - shift
        gradient, hessian = curved_pair_sum(y, labels, g, lists, strategy=strategy)
        expected = sums_of_pairs(y, labels, g, strategy, 1.0, SOME)
        close(gradient[SOME], expected[0], 1e-9)
        if strategy != "type1" and shift == 0:
            close(hessian[SOME], expected[1], 1e-9)
        else:
            assert (hessian[SOME] >= expected[1]).all()
            assert (hessian[SOME] <= 4 * expected[1].max()).all()


def test_a_list_of_very_many_grades_is_visited_pair_by_pair():
    lists = tr.Lists.from_sizes([BY_ROWS])
    y, labels, g = (random.normal(size=BY_ROWS) for _ in range(3))
    sums = curved_pair_sum(y, labels, np.abs(g), lists, strategy="type2")
    expected = sums_of_pairs(y, labels, np.abs(g), "type2", 1.0, SOME)
    for values, expected_values in zip(sums, expected, strict=True):
        close(values[SOME], expected_values, 1e-9)


def test_type3_has_the_true_diagonal():
    lists, step = tr.Lists.from_sizes([9]), 1e-5
    y, labels = random.normal(size=9), random.integers(0, 3, 9).astype(float)
    g = rank_gradients(labels, lists)
    _, hessian = curved_pair_sum(y, labels, g, lists, strategy="type3")
    for a in range(9):
        up, down = y + step * (np.arange(9) == a), y - step * (np.arange(9) == a)
        slopes = [curved_pair_sum(s, labels, g, lists, strategy="type3")[0][a] for s in (up, down)]
        np.testing.assert_allclose(hessian[a], (slopes[0] - slopes[1]) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hessians_bound_the_true_diagonal(strategy):
    lists, step = tr.Lists.from_sizes([9]), 1e-5
    y, labels, g = random.normal(size=9), random.integers(0, 3, 9).astype(float), random.random(9)
    _, hessian = curved_pair_sum(y, labels, g, lists, strategy=strategy)
    for a in range(9):
        up, down = y + step * (np.arange(9) == a), y - step * (np.arange(9) == a)
        slopes = [curved_pair_sum(s, labels, g, lists, strategy=strategy)[0][a] for s in (up, down)]
        assert abs(slopes[0] - slopes[1]) / (2 * step) <= hessian[a] * (1 + 1e-6)


# The objective


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["nDCG", "nDCG@3", "DCG", "AP", "nERR@10"])
def test_without_noise_the_gradient_is_that_of_the_loss(name, strategy):
    gradient, hessian = Newton.of(name, strategy, perturbation=0, samples=1)(SCORES, Y, LISTS)
    scores = torch.tensor(SCORES.astype(np.float32), requires_grad=True)
    loss = tr.DirectLoss(name, strategy=strategy, reduction="sum")
    loss(scores, torch.tensor(Y), LISTS).backward()
    expected = scores.grad.numpy()
    scale = gradient @ expected / (expected @ expected)
    close(gradient, scale * expected, 1e-5)
    assert scale > 0
    np.testing.assert_allclose(hessian.mean(), 1 + FLOOR, rtol=1e-5)
    assert (hessian >= FLOOR).all()


@pytest.mark.parametrize("name", ["nDCG", "AP"])
def test_noise_has_the_same_distribution_as_in_the_loss(name):
    """The same mean, from other random numbers: within five standard errors for each document."""
    scores, labels, lists, samples = SCORES[:30], Y[:30], tr.Lists.from_sizes([30]), 40_000
    newton = Newton.of(name, perturbation=0.7, samples=samples)
    gradient = newton.rank_gradient(scores.astype(np.float32), labels, lists)
    ranks = tr.exact_ranks(
        scores, lists, perturbation=0.7, samples=samples, generator=np.random.default_rng(0)
    )
    slopes = -tr.measure(name).at_ranks(ranks, labels, lists.tile(samples), gradient=True)[1]
    slopes = slopes.reshape(samples, 30)
    errors = slopes.std(0) * np.sqrt(2 / samples)
    assert (np.abs(gradient - slopes.mean(0)) <= 5 * errors).all()
    assert (errors[labels > 0] < 0.2 * slopes.mean(0)[labels > 0]).all()


def test_a_users_measure_is_an_objective():
    attention = tr.Measure.from_functions(
        "Attention", lambda labels, _: labels / (1 + labels), lambda rank: 1 / torch.log2(1 + rank)
    )
    linear = Newton.of(tr.measure("DCG(gain=linear)"), perturbation=0, samples=1)
    mine = Newton.of(attention, perturbation=0, samples=1)
    binary = np.minimum(Y, 1)  # where credit is label / 2
    sums = mine(SCORES, binary, LISTS), linear(SCORES, binary, LISTS)
    for own, expected in zip(*sums, strict=True):
        close(own, expected, 1e-5)


def test_noise_is_fresh_for_other_scores_and_the_same_for_the_same():
    newton = Newton.of("AP")
    first, again = newton(SCORES, Y, LISTS), newton(SCORES, Y, LISTS)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], Newton.of("AP", random_state=1)(SCORES, Y, LISTS)[0])
    ranks = [newton.rank_gradient((SCORES + d).astype(np.float32), Y, LISTS) for d in (0, 1)]
    assert not np.array_equal(*ranks)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["nDCG", "AP"])
def test_the_same_bits_on_any_number_of_threads(monkeypatch, name, strategy):
    newton = Newton.of(name, strategy, samples=3)
    monkeypatch.setattr("twinrank.learning.boosting.newton._BLOCK", 200)
    monkeypatch.setattr(pairs, "_PAIRS_PER_THREAD", 1)
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr(compiled, "threads", lambda count=count: count)
        monkeypatch.setattr(pairs, "threads", lambda count=count: count)
        results.append(newton(SCORES, Y, LISTS))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_weights_of_lists():
    newton = Newton.of("nDCG", perturbation=0, samples=1)
    plain, even = newton(SCORES, Y, LISTS), newton(SCORES, Y, LISTS, np.full(len(LISTS), 7.0))
    for unweighted, weighted in zip(plain, even, strict=True):
        close(weighted, unweighted, 1e-6)
    weights = np.arange(len(LISTS), dtype=float)
    gradient, hessian = newton(SCORES, Y, LISTS, weights)
    raw = plain[0] * LISTS.spread(weights)
    close(gradient, raw * (gradient @ raw / (raw @ raw)), 1e-5)
    assert (hessian[: SIZES[0]] == np.float32(FLOOR)).all()  # of weight 0


def test_without_relevant_documents_the_gradient_is_zero():
    gradient, hessian = Newton.of("AP")(SCORES, Y * 0, LISTS)
    assert not gradient.any()
    assert (hessian == np.float32(FLOOR)).all()
    assert all(a.size == 0 for a in Newton.of("AP")(SCORES[:0], Y[:0], tr.Lists.from_sizes([])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measure": "nDGC"}, "Did you mean 'nDCG'"),
        ({"strategy": "type4"}, "strategy"),
        ({"perturbation": -1.0}, "perturbation"),
        ({"samples": 0}, "samples"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": None}, "random_state"),
    ],
)
@pytest.mark.parametrize("make", [tr.lightgbm_objective, tr.xgboost_objective])
def test_invalid_objectives(make, arguments, message):
    with pytest.raises(tr.InputError, match=message):
        make(**{"measure": "AP", **arguments})


def test_scores_and_labels_must_be_finite():
    for scores, labels in ((SCORES * np.nan, Y), (SCORES, Y * np.nan)):
        with pytest.raises(tr.InputError, match="not finite"):
            Newton.of("AP")(scores, labels, LISTS)


# In your own training


def on_lightgbm(weight=None, rounds=8, init=None, **changes):
    data = lgb.Dataset(X, Y, group=SIZES, weight=weight, free_raw_data=False)
    settings = {**TINY, "num_leaves": 6, "verbosity": -1, "num_threads": 1, "deterministic": True}
    settings |= {"force_col_wise": True, "objective": tr.lightgbm_objective("nDCG", **changes)}
    record = {}
    booster = lgb.train(
        settings,
        data,
        rounds,
        valid_sets=[data.create_valid(X, Y, group=SIZES)],
        valid_names=["again"],
        feval=tr.lightgbm_metric("nDCG@5"),
        callbacks=[lgb.record_evaluation(record)],
        init_model=init,
    )
    return booster, record["again"]["nDCG@5"]


def on_xgboost(weight=None, rounds=8, **changes):
    data = xgb.DMatrix(X, Y, qid=QID, weight=weight)
    settings = {"max_depth": 3, "nthread": 1, "disable_default_eval_metric": True}
    record = {}
    booster = xgb.train(
        settings,
        data,
        rounds,
        evals=[(data, "again")],
        obj=tr.xgboost_objective("nDCG", **changes),
        custom_metric=tr.xgboost_metric("nDCG@5"),
        evals_result=record,
        verbose_eval=False,
    )
    return booster, record["again"]["nDCG@5"]


def scores_of(booster):
    data = X if isinstance(booster, lgb.Booster) else xgb.DMatrix(X)
    return booster.predict(data)


@pytest.mark.parametrize("train", [on_lightgbm, on_xgboost])
def test_plain_training_learns_and_measures(train):
    booster, values = train()
    value = tr.evaluate(scores_of(booster), Y, LISTS, ["nDCG@5"])["nDCG@5"]
    np.testing.assert_allclose(values[-1], value, atol=1e-6)
    assert value > 0.9 > tr.evaluate(SCORES, Y, LISTS, ["nDCG@5"])["nDCG@5"]
    assert np.array_equal(scores_of(train()[0]), scores_of(booster))
    assert not np.array_equal(scores_of(train(random_state=1)[0]), scores_of(booster))


def test_lightgbm_continues_from_init_model_as_without_interruption():
    first, _ = on_lightgbm(rounds=4)
    rest, _ = on_lightgbm(rounds=4, init=first)
    whole, _ = on_lightgbm(rounds=8)
    np.testing.assert_allclose(scores_of(rest), scores_of(whole), atol=1e-6)


@pytest.mark.parametrize(("train", "spread"), [(on_lightgbm, True), (on_xgboost, False)])
def test_weights_of_the_data_are_applied(train, spread):
    some = (np.arange(SIZES.size) % 2).astype(np.float32)
    weight = LISTS.spread(some) if spread else some
    booster, _ = train(weight=weight, perturbation=0.0, samples=1)
    kept = LISTS.spread(some) > 0
    assert not np.array_equal(scores_of(booster), scores_of(train(samples=1)[0]))
    scores = scores_of(booster) + 1e-6 * SCORES  # without ties
    value = mean(tr.measure("nDCG"), scores, Y, LISTS, some)
    expected = tr.evaluate(scores[kept], Y[kept], tr.Lists.from_sizes(SIZES[some > 0]), ["nDCG"])[
        "nDCG"
    ]
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert expected > 0.9


def test_data_without_lists_is_refused():
    objective = tr.lightgbm_objective("AP")
    with pytest.raises(tr.InputError, match="group=sizes"):
        objective(SCORES, lgb.Dataset(X, Y).construct())
    with pytest.raises(tr.InputError, match="qid=qid"):
        tr.xgboost_objective("AP")(SCORES, xgb.DMatrix(X, Y))
    uneven = lgb.Dataset(X, Y, group=SIZES, weight=np.arange(Y.size)).construct()
    with pytest.raises(tr.InputError, match="AP is not a sum of gains"):
        objective(SCORES, uneven)


def test_objectives_and_metrics_can_be_pickled():
    for function in (tr.lightgbm_objective("AP", samples=2), tr.xgboost_metric("nDCG@5")):
        assert pickle.loads(pickle.dumps(function)) == function


def test_transforms_work_block_by_block(monkeypatch):
    for engine in ENGINES:
        ranker = small(engine, transforms="QueryZScore").fit(X, Y, qid=QID)
        with monkeypatch.context() as patch:
            patch.setattr("twinrank.data.batches._BLOCK", 200)
            blocked = small(engine, transforms="QueryZScore").fit(X, Y, qid=QID)
            scores = blocked.predict(X, qid=QID)
        assert np.array_equal(scores, ranker.predict(X, qid=QID))


# Models as folders


@pytest.fixture(scope="module", params=ENGINES)
def fitted(request):
    ranker = small(request.param, transforms="QueryZScore", categorical_features=[3])
    features = X.copy()
    features[:, 3] = np.arange(Y.size) % 5
    features[::7, 2] = np.nan
    return ranker.fit(features, Y, qid=QID), features


def test_a_saved_model_loads_unchanged(fitted, tmp_path):
    ranker, features = fitted
    ranker.save(tmp_path / "model")
    ranker.save(tmp_path / "model")  # replaces the first
    loaded = tr.BoostedRanker.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(features, qid=QID), ranker.predict(features, qid=QID))
    assert np.array_equal(
        loaded.contributions(features, qid=QID), ranker.contributions(features, qid=QID)
    )
    assert np.array_equal(loaded.feature_importances_, ranker.feature_importances_)
    assert loaded.get_params() == ranker.get_params()
    assert loaded.best_iteration_ == ranker.best_iteration_
    assert loaded.history_ == ranker.history_
    names = {"lightgbm": "model.txt", "xgboost": "model.json"}
    assert {p.name for p in (tmp_path / "model").iterdir()} == {
        "config.json",
        "history.jsonl",
        names[ranker.engine],
    }


def test_the_engine_reads_its_own_file(fitted, tmp_path):
    ranker, features = fitted
    ranker.save(tmp_path / "model")
    inside = tr.transform("QueryZScore")(features, LISTS)
    inside[:, 3] = features[:, 3]
    if ranker.engine == "lightgbm":
        scores = lgb.Booster(model_file=tmp_path / "model/model.txt").predict(inside)
    else:
        kinds = ["float"] * 3 + ["c"]
        data = xgb.DMatrix(inside, feature_types=kinds, enable_categorical=True)
        booster = xgb.Booster(model_file=tmp_path / "model/model.json")
        scores = booster.predict(data, output_margin=True)
    np.testing.assert_allclose(scores, ranker.predict(features, qid=QID), rtol=1e-5, atol=1e-6)


def test_a_fitted_ranker_can_be_pickled(fitted):
    ranker, features = fitted
    again = pickle.loads(pickle.dumps(ranker))
    assert np.array_equal(again.predict(features, qid=QID), ranker.predict(features, qid=QID))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not the configuration of a TwinRank model"),
        ({"version": 3}, "version 3"),
        ({"engine": "catboost"}, "no engine 'catboost'"),
        ({"features": 0}, "features must be a positive whole number"),
        ({"features": True}, "features must be a positive whole number"),
        ({"features": 3, "categorical": [], "encoding": {}}, "for 4 features, not 3"),
        ({"encoding": {"4": ["a"]}}, "encoding has no column '4'"),
        ({"encoding": {"3": ["a", "a"]}}, "must list different texts or numbers"),
        ({"encoding": {"2": ["a"]}}, "encoding does not fit the categorical columns"),
        ({"encoding": []}, "encoding must be an object"),
        ({"categorical": [4]}, "categorical must be a list of columns"),
        ({"feature_names": ["a"]}, "1 names for 4 features"),
        ({"feature_names": [1, 2, 3, 4]}, "list of names"),
        ({"provenance": []}, "provenance must be an object"),
        ({"transform": {"name": "ZScore"}}, "QueryZScore"),
        ({"sha256": "0"}, "is damaged: it is not the file"),
    ],
)
def test_a_damaged_configuration(fitted, tmp_path, change, message):
    fitted[0].save(tmp_path / "model")
    path = tmp_path / "model/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(tr.InputError, match=message):
        read_model(tmp_path / "model")


def test_damaged_files(fitted, tmp_path):
    folder = tmp_path / "model"
    fitted[0].save(folder)
    (trees,) = (p for p in folder.iterdir() if p.stem == "model")
    content = trees.read_bytes()
    for damaged in (content[:-100], b"", content[:-1] + b"x"):
        trees.write_bytes(damaged)
        with pytest.raises(tr.InputError, match=f"{trees.name} is damaged"):
            tr.BoostedRanker.load(folder)
    trees.unlink()
    with pytest.raises(tr.InputError, match=f"There is no {trees.name} in it"):
        tr.BoostedRanker.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(tr.InputError, match="damaged"):
        tr.BoostedRanker.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(tr.InputError, match=r"it has no config\.json"):
        tr.BoostedRanker.load(folder)
    (folder / "thesis.txt").write_text("precious")
    with pytest.raises(tr.InputError, match="exists and is not a model"):
        fitted[0].save(folder)


# Callbacks, early stopping and progress


class Events(Callback):
    def __init__(self, stop=None):
        self.events, self.stop = [], stop

    def on_train_begin(self, trainer):
        self.events.append("begin")

    def on_iteration_end(self, trainer, record):
        self.events.append(record["iteration"])
        if record["iteration"] == self.stop:
            trainer.stop_reason = "enough"

    def on_train_end(self, trainer):
        self.events.append("end")


@pytest.mark.parametrize("engine", ENGINES)
def test_early_stopping_keeps_the_best_round(engine):
    noise = random.integers(0, 3, Y.size)  # nothing to learn: the best comes early
    sets = (X[::-1], noise, QID)
    callback = Events()
    ranker = small(engine, n_estimators=60, early_stopping=3, ensemble_size=1, tolerance=0)
    ranker.fit(X, Y, qid=QID, eval_set=sets, callbacks=[callback])
    values = [record["validation"] for record in ranker.history_]
    best = int(np.argmax(values)) + 1
    assert ranker.best_iteration_ == best
    assert len(values) == best + 3 < 60
    assert ranker.best_score_ == max(values)
    assert ranker.score(X[::-1], noise, qid=QID) == pytest.approx(max(values), abs=1e-6)
    assert callback.events == ["begin", *range(1, len(values) + 1), "end"]
    never = small(engine, n_estimators=12, early_stopping=None, ensemble_size=1)
    never.fit(X, Y, qid=QID, eval_set=sets)
    assert len(never.history_) == 12
    np.testing.assert_allclose(
        [r["validation"] for r in never.history_][: len(values)], values[:12]
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ensemble_size", [1, 3])
def test_later_rounds_are_kept_while_they_are_about_as_good(engine, ensemble_size):
    settings = {"n_estimators": 40, "ensemble_size": ensemble_size, "random_state": 1}
    new = (X[::-1], np.roll(Y, 3), QID)
    best, level, always = (
        small(engine, tolerance=tolerance, **settings).fit(X, Y, qid=QID, eval_set=new)
        for tolerance in (0, 1, 1e9)
    )
    rounds = [ranker.model_.trees.count for ranker in (best, level, always)]
    assert rounds[0] <= rounds[1] <= rounds[2] == ensemble_size * len(always.history_)
    assert rounds[0] < rounds[2]
    for ranker in (best, level, always):
        assert ranker.best_score_ == ranker.history_[ranker.best_iteration_ - 1]["validation"]
        assert ranker.best_score_ == pytest.approx(ranker.score(*new[:2], qid=QID), abs=1e-6)


def test_callbacks_can_stop_training_and_are_closed_on_errors():
    ranker = small().fit(X, Y, qid=QID, callbacks=[Events(stop=3)])
    assert ranker.best_iteration_ == len(ranker.history_) == 3
    assert ranker.best_score_ is None

    class Failing(Events):
        def on_iteration_end(self, trainer, record):
            raise RuntimeError("no more")

    failing = Failing()
    with pytest.raises(RuntimeError, match="no more"):
        small().fit(X, Y, qid=QID, callbacks=[failing])
    assert failing.events == ["begin", "end"]


def test_a_progress_line_for_every_tenth_round_and_the_last(capsys):
    small(n_estimators=21, verbose=True, ensemble_size=1).fit(X, Y, qid=QID, eval_set=(X, Y, QID))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["10/21", "20/21", "21/21"]
    assert "validation nDCG@5 0.9" in lines[0]
    assert "best 0.9" in lines[0]
    small().fit(X, Y, qid=QID)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ranker = small(verbose=True, n_estimators=30, early_stopping=1, ensemble_size=1)
    ranker.fit(X, Y, qid=QID, eval_set=(X, random.permutation(Y), QID))
    shown = capsys.readouterr().err
    assert "Round " in shown
    assert "stopped: no better nDCG@5 than" in shown


def test_an_error_if_no_tree_can_be_grown():
    for features, more in ((X, 10_000), (X * 0, 1), (X, 620)):
        with pytest.raises(tr.InputError, match="No tree could be grown"):
            small(engine_params={"min_data_in_leaf": more}).fit(features, Y, qid=QID)


def test_lgbm_ranker_takes_the_objective_and_the_metric():
    data = tr.synthetic_web_search(20)
    chosen = {"n_estimators": 4, "num_leaves": 4, "min_child_samples": 1, "verbosity": -1}
    ranker = lgb.LGBMRanker(objective=tr.lightgbm_objective("nDCG"), n_jobs=1, **chosen)
    weights = np.repeat(np.arange(1.0, 21), data.lists.sizes)
    ranker.fit(data.X, data.y, group=data.lists.sizes, sample_weight=weights)
    rows = lgb.Dataset(data.X, data.y, group=data.lists.sizes, weight=weights)
    rounds = chosen.pop("n_estimators")
    parameters = {**chosen, "objective": tr.lightgbm_objective("nDCG"), "num_threads": 1}
    booster = lgb.train(parameters, rows, rounds)
    assert np.array_equal(ranker.predict(data.X), booster.predict(data.X))
    metric, scores = tr.lightgbm_metric("nDCG@5"), booster.predict(data.X)
    assert metric(data.y, scores, weights, data.lists.sizes) == metric(scores, rows)
    with pytest.raises(tr.InputError, match=r"LGBMRanker.fit\(X, y, group=sizes\)"):
        metric(data.y, scores, None, None)


@pytest.mark.parametrize("value", ["abc", None])
def test_max_bin_must_be_a_number(value):
    data = tr.synthetic_web_search(queries=10)
    ranker = tr.BoostedRanker(engine_params={"max_bin": value}, n_estimators=1)
    with pytest.raises(tr.InputError, match="max_bin must be a whole number of at least 2"):
        ranker.fit(data)


def test_a_negative_seed_of_the_bins():
    data = tr.synthetic_web_search(queries=10)
    params = {"data_random_seed": -3, "bin_construct_sample_cnt": 50}
    ranker = tr.BoostedRanker(n_estimators=2, ensemble_size=1, n_jobs=1, engine_params=params)
    assert ranker.fit(data).booster_.num_trees() == 2
