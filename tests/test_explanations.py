"""Importances of features, attributions and partial dependence, for nets, trees and blends."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone

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
