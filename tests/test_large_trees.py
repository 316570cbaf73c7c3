"""Trees on large data: bins without a matrix of the transformed features, in bounded memory."""

import lightgbm as lgb
import numpy as np
import pytest

import twinrank as tr
from twinrank.data import batches
from twinrank.learning.boosting import lightgbm_data
from twinrank.learning.boosting.lightgbm_data import binned
from twinrank.learning.boosting.tree_features import StreamedFeatures, rows_of, tree_transform

PARAMETERS = {"objective": "lambdarank", "seed": 3, "verbosity": -1, "num_threads": 1}


@pytest.fixture
def data():
    """Zeros, missing values, a category, a rare value and a constant."""
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 6))
    X[:, 1] = random.integers(0, 4, 600)
    X[random.random(600) < 0.3, 2] = np.nan
    X[random.random(600) < 0.9, 3] = 0.0
    X[:, 4] = np.arange(600) < 15  # can only be split with a small min_data_in_leaf
    X[:, 5] = 1.0
    y = random.integers(0, 3, 600)
    return tr.Dataset.from_arrays(X, y, group=[20] * 30, non_finite="keep")


@pytest.mark.parametrize("own", [{}, {"min_data_in_leaf": 3, "max_bin": 15}])
@pytest.mark.parametrize("name", ["none", "none | QueryZScore"])
def test_blocks_give_the_trees_of_a_matrix(data, monkeypatch, name, own):
    transform = tree_transform(tr.transform(name), (1,))
    weights = np.arange(1.0, 31.0)
    whole = rows_of(data, transform, (1,), weights)
    matrix = lgb.Dataset(
        whole.X.matrix(),
        data.y,
        group=data.lists.sizes,
        weight=data.lists.spread(weights),
        categorical_feature=[1],
        params=PARAMETERS | own,
    )
    monkeypatch.setattr(batches, "_BLOCK", 6 * 70)
    rows = rows_of(data, transform, (1,), weights)
    assert len(rows.X) > 5
    blocks = binned(rows, PARAMETERS | own, (1,))
    trees = [lgb.Booster(PARAMETERS | own, train) for train in (matrix, blocks)]
    trees[1].add_valid(binned(rows, PARAMETERS | own, (1,), blocks), "same")
    for _ in range(5):
        assert [booster.update() for booster in trees] == [False, False]
    expected, found = (booster.model_to_string() for booster in trees)
    assert found == expected
    trained, valid = trees[1].eval_train(), trees[1].eval_valid()
    assert [value[2] for value in trained] == [value[2] for value in valid]


def test_bins_of_large_data_come_from_random_queries(data):
    features = StreamedFeatures(data, tr.transform("none | QueryZScore"), ())
    X = features.matrix()
    assert np.array_equal(features.sample(600, 0), X.T, equal_nan=True)
    sample = features.sample(90, 0)
    assert sample.shape == (12, 90)
    queries = [
        query
        for query, rows in enumerate(np.split(X, 30))
        if (sample[0, :, None] == rows[:, 0]).any()
    ]
    assert len(queries) == 5
    places = np.flatnonzero(np.isin(np.arange(600) // 20, queries))[:90]
    assert np.array_equal(sample, X[places].T, equal_nan=True)
    assert not np.array_equal(sample, features.sample(90, 1), equal_nan=True)


def test_trees_do_not_depend_on_the_blocks(data, monkeypatch):
    def scores():
        ranker = tr.BoostedRanker(n_estimators=5, ensemble_size=1, n_jobs=1)
        return ranker.fit(data, eval_set=data).predict(data)

    monkeypatch.setattr(lightgbm_data, "BIN_DOCUMENTS", 400)
    expected = scores()
    monkeypatch.setattr(batches, "_BLOCK", 6 * 50)
    assert np.array_equal(scores(), expected)
    monkeypatch.setattr(lightgbm_data, "BIN_DOCUMENTS", 100_000)
    assert not np.array_equal(scores(), expected)
