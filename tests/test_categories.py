"""Columns of text and categories: encoded, saved with the model, found by name."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import twinrank as tr
from twinrank.deployment.onnx_export import onnx_model
from twinrank.learning.models.encoding import MOST, Encoding

QID = np.repeat(np.arange(20), 10)
RANDOM = np.random.default_rng(0)
SITE = RANDOM.choice(["shop", "news", "wiki", "forum"], 200)
Y = np.isin(SITE, ["news", "forum"]) + (RANDOM.random(200) < 0.2)
FRAME = pd.DataFrame(
    {
        "bm25": RANDOM.normal(size=200),
        "site": SITE,
        "kind": pd.Categorical(RANDOM.choice(["new", "old"], 200)),
        "read": RANDOM.random(200) < 0.5,
        "shelf": 1000 * RANDOM.integers(1, 4, 200),
    }
)
FRAME.loc[::7, "kind"] = None
RANKERS = {
    "net": tr.Ranker(epochs=4, ensemble_size=1, transforms="Standardise"),
    "lightgbm": tr.BoostedRanker(n_estimators=5, ensemble_size=1, transforms="none"),
    "xgboost": tr.BoostedRanker(
        n_estimators=5, ensemble_size=1, transforms="none", engine="xgboost"
    ),
}
for ranker in RANKERS.values():
    ranker.set_params(categorical_features=["shelf"], random_state=0)


@pytest.fixture(scope="module", params=list(RANKERS))
def fitted(request):
    return RANKERS[request.param].fit(FRAME, Y, qid=QID)


def test_text_is_learned_saved_and_found_by_name(fitted, tmp_path):
    assert fitted.score(FRAME, Y, qid=QID) > 0.7
    expected = fitted.predict(FRAME)
    fitted.save(tmp_path / "model")
    saved = json.loads((tmp_path / "model" / "config.json").read_text())["encoding"]
    assert saved == {
        "1": ["forum", "news", "shop", "wiki"],
        "2": ["new", "old"],
        "4": [1000, 2000, 3000],
    }
    loaded = type(fitted).load(tmp_path / "model")
    moved = FRAME[["shelf", "kind", "read", "site", "bm25"]].assign(further="text")
    kinds = {"kind": pl.Categorical}
    for frame in (moved, pl.from_pandas(moved).cast(kinds), moved.astype({"shelf": "category"})):
        assert np.array_equal(loaded.predict(frame), expected)
    few = FRAME.iloc[[3, 8]]  # other texts come first
    np.testing.assert_allclose(loaded.predict(few), expected[[3, 8]], rtol=1e-5)


def test_unknown_and_missing_categories(fitted):
    def scores(**values):
        return fitted.predict(FRAME.assign(**values))

    assert np.array_equal(scores(site="a new one"), scores(site="another"))
    assert np.array_equal(scores(shelf=7), scores(shelf=5000))
    assert np.array_equal(scores(shelf=-1), scores(shelf=np.nan))
    assert np.array_equal(scores(site=None), scores(site=""))
    if isinstance(fitted, tr.Ranker):
        assert not np.array_equal(scores(kind=None), scores(kind="a new one"))


def test_data_of_another_kind_is_refused(fitted):
    with pytest.raises(tr.InputError, match="Feature 'bm25' is text here"):
        fitted.predict(FRAME.assign(bm25="high"))
    with pytest.raises(tr.InputError, match=r"is 0\.5 in a row, but a category must be text or a"):
        fitted.__class__(categorical_features=["shelf"]).fit(FRAME.assign(shelf=0.5), Y, qid=QID)


def test_frequent_categories_have_codes_of_their_own():
    names = [f"c{i:03d}" for i in range(300)]
    column = names * 2 + names[:MOST]  # the others are rarer
    frame = pl.DataFrame({"qid": [1] * len(column), "a": column})
    data = tr.Dataset.from_frame(frame, label=False)
    encoding = Encoding.learned(data)
    assert encoding.columns == {0: tuple(names[:MOST])}
    assert encoding.counts == {0: MOST + 2}
    assert set(encoding(data).X[MOST:300, 0]) == {MOST}


@pytest.mark.parametrize("name", list(RANKERS))
@pytest.mark.filterwarnings("ignore:Feature 'site' ranks the training data alone")
def test_missing_values_can_matter(name):
    """A missing site is relevant; a known one is not, nor an unknown one."""
    relevant = np.tile([1, 0, 0, 0, 0], 100)
    frame = pd.DataFrame({"site": np.tile([None, "a", "b", "c", "d"], 100)})
    ranker = clone(RANKERS[name]).set_params(categorical_features=None)
    ranker.fit(frame, relevant, group=[5] * 100)
    scores = ranker.predict(pd.DataFrame({"site": ["a", None, "unknown"]}))
    assert scores.argmax() == 1


def test_onnx_takes_text(fitted, tmp_path):
    ranker = fitted
    ranker.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [each.name for each in session.get_inputs()] == ["X", "text:site", "text:kind"]
    frame = FRAME.assign(site=np.where(FRAME.index % 5, FRAME.site, "unknown"))
    frame.loc[::9, "shelf"] = -1
    numbers = frame[["bm25", "read", "shelf"]].to_numpy(np.float32)
    inputs = {"X": np.zeros((200, 5), np.float32)}
    inputs["X"][:, [0, 3, 4]] = numbers
    for name in ("site", "kind"):
        inputs[f"text:{name}"] = frame[name].astype(object).fillna("").to_numpy()
    (scores,) = session.run(None, inputs)
    np.testing.assert_allclose(scores, ranker.predict(frame), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("transforms", ["none", "none | QueryZScore", "Standardise"])
@pytest.mark.parametrize("categorical", [[0, 2], [0, 1, 2, 3]])
def test_onnx_has_the_splits_on_categories(engine, transforms, categorical):
    pytest.importorskip(engine)
    random = np.random.default_rng(1)
    X = random.integers(0, 90, (600, 4)).astype(np.float32)
    worth = random.normal(size=90)
    y = np.digitize(worth[X[:, 0].astype(int)] + 0.5 * worth[X[:, 2].astype(int)], [0, 1])
    small = {"cat_smooth": 1, "min_data_per_group": 1, "cat_l2": 0.1}
    ranker = tr.BoostedRanker(
        n_estimators=8,
        ensemble_size=1,
        transforms=transforms,
        engine=engine,
        categorical_features=categorical,
        engine_params=small if engine == "lightgbm" else {},
    ).fit(X, y, group=[20] * 30)
    session = onnxruntime.InferenceSession(onnx_model(ranker.model_).SerializeToString())
    probe = random.integers(-1, 99, (20, 4)).astype(np.float32)  # with missing and unknown ones
    (scores,) = session.run(None, {"X": probe})
    np.testing.assert_allclose(scores, ranker.predict(probe, group=[20]), rtol=0, atol=1e-6)
    assert np.unique(scores).size > 10


def test_a_blend_of_rankers_takes_text(tmp_path):
    rankers = {"net": RANKERS["net"], "trees": RANKERS["lightgbm"]}
    blend = tr.Blend(rankers).fit(FRAME, Y, qid=QID, eval_fraction=0.3)
    blend.save(tmp_path / "blend")
    moved = FRAME[FRAME.columns[::-1]]
    assert np.array_equal(tr.Blend.load(tmp_path / "blend").predict(moved), blend.predict(FRAME))
    blend.export(tmp_path / "blend.onnx")  # compares scores


@pytest.mark.parametrize("name", ["data.csv", "data.parquet", "folder"])
def test_text_in_files(name, tmp_path):
    frame = FRAME.assign(qid=QID, label=Y.astype(int))
    data = tr.Dataset.from_frame(frame)
    assert data.categories == {1: tuple(dict.fromkeys(SITE)), 2: ("old", "new")}
    path = tmp_path / name
    data.save(path)
    for _ in range(2):  # from the file, then from the cache
        again = tr.load(path)
        assert again.categories == data.categories
        assert np.array_equal(again.X, data.X)
    with pytest.raises(tr.InputError, match="LETOR text has labels and numbers only"):
        data.save(tmp_path / "data.txt")
    ranker = RANKERS["lightgbm"].fit(again)
    assert np.array_equal(ranker.predict(again), ranker.predict(FRAME))


def test_training_on_text_continues_from_a_run(tmp_path):
    for name in ("net", "lightgbm"):
        data = tr.Dataset.from_frame(FRAME.assign(qid=QID, label=Y.astype(int)))
        fresh = RANKERS[name].fit(data, run=tmp_path / name).predict(FRAME)
        again = RANKERS[name].fit(data, run=tmp_path / name, resume=True)
        assert np.array_equal(again.predict(FRAME), fresh)
    net = RANKERS["net"]
    assert net.partial_fit(FRAME.iloc[:50], Y[:50], qid=QID[:50]).predict(FRAME).shape == (200,)
    assert net.model_.encoding.columns[2] == ("new", "old")


def test_a_column_of_ids_is_noted(tmp_path):
    frame = FRAME.assign(url=[f"page/{i}" for i in range(200)], label=Y, qid=QID)
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(tr.DataWarning, match="'url' has 200 different texts in 200 rows"):
        data = tr.load(tmp_path / "a.csv", cache=False)
    assert set(data.categories) == {data.feature_names.index(n) for n in ("site", "kind", "url")}


def test_explanations_keep_the_texts_of_other_columns():
    frame = FRAME[["bm25", "site"]].assign(constant=1.0)
    ranker = tr.BoostedRanker(
        n_estimators=5,
        ensemble_size=1,
        transforms="none",
        engine_params={"min_data_per_group": 5, "min_data_in_leaf": 5, "cat_smooth": 1},
        random_state=0,
    )
    ranker.fit(frame, Y, qid=QID)
    found = tr.permutation_importances(ranker, frame, Y, qid=QID, repeats=2)
    importances = dict(zip(frame, found.importances_mean, strict=True))
    assert importances["constant"] == 0
    assert importances["site"] > 0.1
    curve = tr.partial_dependence(ranker, frame, "constant", qid=QID, grid=[1.0], documents=10)
    scores = ranker.predict(frame).reshape(20, 10)
    others = (scores.sum(axis=1, keepdims=True) - scores) / 9
    np.testing.assert_allclose(
        np.sort(curve.individual[:, 0]), np.sort((scores - others).ravel()), atol=1e-6
    )


@pytest.mark.filterwarnings("ignore:Feature .* ranks the training data alone")
def test_numbers_as_names_are_found_by_name():
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.digitize(X[:, 0], [0.0, 1.0])
    frame = pd.DataFrame(X, columns=["1", "2", "3"])
    mixed = frame[["3", "1", "2"]]
    plain = tr.BoostedRanker(n_estimators=5, ensemble_size=1, transforms="none")
    by_number = clone(plain).fit(frame, y, qid=QID)
    expected = by_number.predict(X)
    for data in (frame, mixed, mixed.assign(**{"4": 0.0})):
        np.testing.assert_array_equal(by_number.predict(data), expected)
    by_name = clone(plain).fit(mixed, y, qid=QID)
    expected = by_name.predict(mixed)
    for data in (frame, X, np.column_stack([X, X[:, 0]])):
        np.testing.assert_array_equal(by_name.predict(data), expected)
    with pytest.raises(tr.InputError, match="lacks 1 feature"):
        by_number.predict(mixed[["3", "1"]])


def test_a_text_column_may_be_empty_in_a_part(tmp_path):
    (tmp_path / "data").mkdir()
    frame = FRAME[["bm25", "site"]].assign(qid=QID, label=Y)
    frame[:100].assign(site="").to_csv(tmp_path / "data" / "a.csv", index=False)
    frame[100:].to_csv(tmp_path / "data" / "b.csv", index=False)
    ranker = tr.BoostedRanker(n_estimators=3, ensemble_size=1, transforms="none")
    with pytest.warns(tr.DataWarning, match="100 values are not a number"):
        scores = ranker.fit(tmp_path / "data").predict(tmp_path / "data")
    assert np.isfinite(scores).all()
