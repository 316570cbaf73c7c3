"""Importances of features, attributions and partial dependence, for nets, trees and blends."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import twinrank as tr
from twinrank.learning.models.gradients import sampled_importances

RNG = np.random.default_rng(0)
NAMES = ["useful", "noise", "query", "category"]
FAST = {
    "net": tr.Ranker(
        architecture="MLP(width=8, depth=1, dropout=0)",
        ensemble_size=1,
        epochs=15,
        learning_rate=0.03,
        batch_documents=300,
        transforms="none",
        categorical_features=[3],
        random_state=0,
    ),
    "trees": tr.BoostedRanker(
        n_estimators=15,
        ensemble_size=1,
        n_jobs=1,
        transforms="none",
        engine_params={"min_data_in_leaf": 5},
    ),
}


def made(queries):
    """Labels depend on the first feature and the category; the third is constant in a query."""
    sizes = np.full(queries, 12)
    n = sizes.sum()
    X = np.column_stack(
        [
            RNG.normal(size=n),
            RNG.normal(size=n),
            np.repeat(RNG.normal(size=queries), sizes),
            RNG.integers(0, 4, n),
        ]
    ).astype(np.float32)
    value = X[:, 0] + 0.5 * (X[:, 3] == 2) + 0.3 * RNG.normal(size=n)
    y = np.digitize(value, [0.3, 1.0])
    return tr.Dataset.from_arrays(X, y, group=sizes, feature_names=NAMES)


TRAIN, TEST = made(40), made(20)


@pytest.fixture(scope="module")
def rankers():
    fitted = {name: clone(ranker).fit(TRAIN) for name, ranker in FAST.items()}
    fitted["blend"] = tr.Blend(FAST).fit(TRAIN)
    return fitted


@pytest.mark.parametrize("name", ["net", "trees", "blend"])
def test_feature_importances(rankers, tmp_path, name):
    ranker = rankers[name]
    found = ranker.feature_importances_
    assert found.shape == (4,)
    assert found.sum() == pytest.approx(1)
    assert found.argmax() == 0
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(tr.load_model(tmp_path / "model").feature_importances_, found)


def test_importances_of_a_net(rankers, tmp_path):
    net = rankers["net"]
    assert net.feature_importances_[3] > net.feature_importances_[1]
    assert net.feature_importances_[2] == pytest.approx(0, abs=1e-12)  # constant in each query
    np.testing.assert_allclose(net.gradient_importances(TRAIN), net.feature_importances_)
    again = net.gradient_importances(TEST.X, group=TEST.lists.sizes)
    np.testing.assert_array_equal(net.gradient_importances(TEST), again)
    net.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["importances"]  # a model of an older version
    config["crc32"] = None
    path.write_text(json.dumps(config))
    older = tr.load_model(tmp_path / "model")
    assert not hasattr(older, "feature_importances_")
    with pytest.raises(AttributeError, match="call gradient_importances"):
        _ = older.feature_importances_
    for value, message in (([0.5] * 3, "a list of 4 numbers"), (["x"] * 4, "from 0 to 1")):
        path.write_text(json.dumps({**config, "importances": value}))
        with pytest.raises(tr.InputError, match=message):
            tr.load_model(tmp_path / "model")


def test_attributions_add_up_for_a_linear_net():
    ranker = tr.Ranker(architecture="Linear", transforms="none", epochs=2, ensemble_size=1)
    ranker.fit(TRAIN)
    values, scores = ranker.attributions(TEST), ranker.predict(TEST)
    means = np.repeat(TEST.lists.sum(scores) / TEST.lists.sizes, TEST.lists.sizes)
    np.testing.assert_allclose(values.sum(axis=1), scores - means, atol=1e-5)


@pytest.mark.parametrize(
    "architecture", ["MLP(width=8, context=attention)", "MLP(width=8, shared=true)"]
)
def test_attributions_of_other_nets(architecture):
    ranker = tr.Ranker(architecture=architecture, ensemble_size=2, epochs=1).fit(TRAIN)
    assert ranker.feature_importances_.shape == (4,)
    assert ranker.attributions(TEST).shape == TEST.X.shape


def test_nets_without_a_gradient_have_no_importances():
    class Steps(torch.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(features))

        def forward(self, X):
            return X.detach().sign() @ self.weight

    ranker = tr.Ranker(architecture=Steps, transforms="none", epochs=1).fit(TRAIN)
    assert not hasattr(ranker, "feature_importances_")
    with pytest.raises(tr.InputError, match="no gradient"):
        ranker.attributions(TEST)


def test_long_data_is_sampled(rankers, monkeypatch):
    model = rankers["net"].model_
    monkeypatch.setattr("twinrank.learning.models.gradients._SAMPLE", 100)
    assert sum(sampled_importances(model, TRAIN)) == pytest.approx(1)
    monkeypatch.setattr("twinrank.learning.models.gradients._SAMPLE", 5)
    assert sampled_importances(model, TRAIN) is None


@pytest.mark.parametrize("name", ["net", "trees", "blend"])
def test_permutation_importances(rankers, name):
    ranker = rankers[name]
    found = tr.permutation_importances(ranker, TEST, measure="AP", repeats=2, random_state=3)
    assert found.importances.shape == (4, 2)
    assert found.importances_mean.argmax() == 0
    assert found.importances_mean[2] == 0  # shuffling a constant changes nothing
    baseline = tr.evaluate(ranker.predict(TEST), TEST.y, TEST.lists, ["AP"])["AP"]
    assert found.baseline == pytest.approx(baseline)
    one = tr.permutation_importances(
        ranker,
        TEST.X,
        TEST.y,
        group=TEST.lists.sizes,
        measure="AP",
        features=["category"] if name == "net" else [3],
        repeats=2,
        random_state=3,
    )
    np.testing.assert_array_equal(one.importances[0], found.importances[3])


def test_errors_of_importances(rankers):
    ranker = rankers["trees"]
    for arguments, message in (
        ({"features": ["useless"]}, "Unknown feature 'useless'. Did you mean 'useful'?"),
        ({"features": [4]}, "numbers are 0 to 3"),
        ({"repeats": 0}, "repeats must be"),
    ):
        with pytest.raises(tr.InputError, match=message):
            tr.permutation_importances(ranker, TEST, **arguments)
    empty = tr.Dataset.from_arrays(TEST.X, np.zeros(len(TEST.y)), group=TEST.lists.sizes)
    with pytest.raises(tr.InputError, match="has no value"):
        tr.permutation_importances(ranker, empty)


@pytest.mark.parametrize("name", ["net", "trees", "blend"])
def test_partial_dependence(rankers, name):
    curve = tr.partial_dependence(rankers[name], TEST, "useful", grid=5, documents=2)
    assert curve.individual.shape == (2 * TEST.queries, 5)
    assert curve.average[0] < curve.average[-1]
    assert curve.average_rank[0] > 9
    assert curve.average_rank[-1] < 4
    by_number = tr.partial_dependence(
        rankers[name], TEST.X, 3, group=TEST.lists.sizes, grid=20, documents=1
    )
    np.testing.assert_array_equal(by_number.grid_values, [0, 1, 2, 3])
    assert by_number.average.argmax() == 2


def test_partial_dependence_knows_queries():
    """A z-score within the query does not change if all its documents get the same value."""
    ranker = tr.Ranker(architecture="Linear", transforms="QueryZScore", epochs=5).fit(TRAIN)
    curve = tr.partial_dependence(ranker, TEST, 0, grid=[-2.0, 0.0, 2.0])
    assert np.ptp(curve.average) > 0.1
    for arguments, message in (
        ({"grid": 0}, "grid must be"),
        ({"grid": [np.nan]}, "finite"),
        ({"documents": 0}, "documents must be"),
    ):
        with pytest.raises(tr.InputError, match=message):
            tr.partial_dependence(ranker, TEST, 0, **arguments)
    single = tr.Dataset.from_arrays(TEST.X[:2], [0, 1], group=[1, 1])
    with pytest.raises(tr.InputError, match="No query has two documents"):
        tr.partial_dependence(ranker, single, 0)


# Why one document is above another

SHOPS = ["books", "toys", "garden"]


def with_texts(rows=96):
    """Documents with a column of text, which the labels depend on."""
    rng = np.random.default_rng(1)
    shop = rng.choice(SHOPS, rows)
    frame = pd.DataFrame(
        {"bm25": rng.normal(size=rows), "shop": shop, "age": rng.normal(size=rows)}
    )
    labels = (frame.bm25 + (shop == "toys") > 0.5).astype(int)
    return frame, labels, np.repeat(np.arange(rows // 8), 8)


@pytest.mark.parametrize("transforms", ["none", "none | QueryZScore"])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_contributions_of_trees_add_up_to_the_difference(engine, size, transforms):
    changes = {"engine": engine, "ensemble_size": size, "transforms": transforms}
    ranker = clone(FAST["trees"]).set_params(**changes, engine_params=None).fit(TRAIN)
    query = TEST.select([3])
    scores, ranks, shap = ranker.predict(query), ranker.rank(query), ranker.contributions(query)
    for a, b in [(0, 5), (5, 0), (2, 9)]:
        found = ranker.explain(query, a, b)
        assert found.scores == (scores[a], scores[b])
        assert found.ranks == (ranks[a], ranks[b])
        assert np.array_equal(found.contributions, (shap[a] - shap[b])[:-1])
        assert abs(found.contributions.sum() - (scores[a] - scores[b])) < 1e-6
        assert "not explained" not in str(found)


@pytest.mark.parametrize("name", ["net", "trees", "blend"])
def test_explanations_of_any_ranker_add_up(rankers, name):
    ranker, query = rankers[name], TEST.select([2])
    found = ranker.explain(query, 1, 4)
    assert found.difference == pytest.approx(float(np.subtract(*ranker.predict(query)[[1, 4]])))
    assert abs(found.remainder) < 0.01 * max(1, abs(found.difference))
    if name == "net":  # SHAP values also spread interactions
        assert found.contributions[2] == 0  # constant in a query
    swapped = ranker.explain(query, 4, 1)
    assert swapped.difference == -found.difference
    assert ranker.explain(query.X, 1, 4).contributions == pytest.approx(found.contributions)


def test_explanations_of_linear_nets_are_exact():
    changes = {"architecture": "Linear", "categorical_features": None}
    net = clone(FAST["net"]).set_params(**changes).fit(TRAIN)
    query = TEST.select([0])
    found = net.explain(query, 3, 7)
    weight = next(net.model_.net.parameters()).detach().numpy().ravel()
    assert np.allclose(found.contributions, weight * (query.X[3] - query.X[7]), atol=1e-5)
    assert abs(found.remainder) < 1e-5


def test_explanations_of_nets_that_see_the_query():
    net = clone(FAST["net"]).set_params(architecture="MLP(width=8, depth=2, context=pool)")
    found = net.fit(TRAIN).explain(TEST.select([0]), 3, 7)
    assert np.isfinite(found.contributions).all()
    assert found.contributions.sum() + found.remainder == pytest.approx(found.difference)


@pytest.mark.parametrize("kind", [tr.BoostedRanker, tr.Ranker])
def test_explanations_have_names_and_texts(kind, tmp_path):
    X, y, qid = with_texts()
    fast = {"n_estimators": 10} if kind is tr.BoostedRanker else {"epochs": 2}
    ranker = kind(ensemble_size=1, **fast).fit(X, y, qid)
    query = X[:8].assign(shop=["toys", "books", "moon", None, *SHOPS, "toys"])
    found = ranker.explain(query, 0, 2)
    assert found.features == ("bm25", "shop", "age")
    assert found.values[1] == ("toys", "moon (unknown)")
    assert ranker.explain(query, 1, 3).values[1] == ("books", "missing")
    assert found.documents == ("row 0", "row 2")
    text = str(found)
    assert "shop" in text
    assert "toys" in text
    assert max(map(len, text.splitlines())) <= 80
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["contributions"][0]["feature"] == found.features[found.order[0]]
    total = sum(each["contribution"] for each in plain["contributions"])
    assert total + plain["remainder"] == pytest.approx(plain["scores"][0] - plain["scores"][1])
    found.draw(tmp_path / "pair.svg")
    assert "<svg" in (tmp_path / "pair.svg").read_text()


def test_long_names_fit_a_terminal():
    data = tr.Dataset.from_arrays(
        TRAIN.X, TRAIN.y, qid=TRAIN.qid, feature_names=["f" * 90, *(c * 60 for c in "abc")],
        docids=[f"http://example.org/{'d' * 80}/{i}" for i in range(TRAIN.documents)],
    )  # fmt: skip
    ranker = clone(FAST["trees"]).fit(data)
    query = data.select([0])
    first, second = query.docids[[1, 2]]
    found = ranker.explain(query, str(first), str(second))
    assert found.documents == (first, second)
    assert np.array_equal(found.contributions, ranker.explain(query, 1, 2).contributions)
    assert max(map(len, str(found).splitlines())) <= 80


def test_errors_of_explanations(rankers):
    query = TEST.select([0])
    for message, arguments in {
        "one query, but X has 2 queries": (TEST.select([0, 1]), 0, 1),
        "There is no row 12: the query has rows 0 to 11": (query, 0, 12),
        "There is no row -1": (query, -1, 2),
        "two different documents": (query, 3, 3),
        "X has no docids": (query, "d1", "d2"),
    }.items():
        with pytest.raises(tr.InputError, match=message):
            rankers["trees"].explain(*arguments)
    with pytest.raises(NotFittedError):
        tr.BoostedRanker().explain(query, 0, 1)


def test_partial_dependence_on_categories():
    """Categories have their texts, and the most frequent ones are tried."""
    X, y, qid = with_texts()
    ranker = tr.BoostedRanker(n_estimators=10, ensemble_size=1).fit(X, y, qid)
    curve = tr.partial_dependence(ranker, X, "shop", qid=qid)
    assert list(curve.grid_values) == list(X.shop.value_counts().index)
    best = dict(zip(curve.grid_values, curve.average, strict=True))
    assert max(best, key=best.get) == "toys"
    assert list(tr.partial_dependence(ranker, X, "shop", qid=qid, grid=2).grid_values) == list(
        curve.grid_values[:2]
    )
    chosen = tr.partial_dependence(ranker, X, "shop", qid=qid, grid=["toys", "books"])
    assert list(chosen.grid_values) == ["toys", "books"]
    assert chosen.average[0] == best["toys"]
    with pytest.raises(tr.InputError, match="Unknown category 'moon'"):
        tr.partial_dependence(ranker, X, "shop", qid=qid, grid=["moon"])
