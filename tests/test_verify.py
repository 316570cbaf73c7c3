"""`twinrank verify`: logs made by production's mistakes, each with its cause and its effect."""

import json
import tempfile
import warnings
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import twinrank as tr
from twinrank.deployment.verification import _exchanged

QUERIES, DOCUMENTS = 25, 16
# Two swaps from alphabetical order, which is a hypothesis of its own.
NAMES = ["bm25", "age", "clicks", "stock", "price"]


@pytest.fixture(scope="module")
def data():
    """Features with zeros and missing values, all of which matter."""
    random = np.random.default_rng(0)
    X = random.normal(size=(QUERIES * DOCUMENTS, 5)).astype(np.float32)
    X[random.random(X.shape) < 0.2] = 0
    X[random.random(X.shape) < 0.2] = np.nan
    shown = np.where(np.isnan(X), 1.5, X)
    y = np.clip(np.round(shown @ [2, 1.5, -1, 1, 0.5] / 2), 0, 4)
    return dataset(X, y)


def dataset(X, y=None, names=NAMES, size=DOCUMENTS):
    group = [size] * (len(X) // size)
    docids = [f"d{i}" for i in range(len(X))]
    options = {"unjudged": "keep", "non_finite": "keep", "docids": docids}
    return tr.Dataset.from_arrays(X, y, group=group, feature_names=names, **options)


def trees(data, **parameters):
    small = {"n_estimators": 15, "ensemble_size": 1, "n_jobs": 1, "transforms": "none"}
    return tr.BoostedRanker(**{**small, **parameters}).fit(data)


@pytest.fixture(scope="module")
def model(data):
    return trees(data)


@pytest.fixture(scope="module")
def per_query(data):
    """A model whose scores depend on the other documents of the query."""
    return trees(data, transforms="auto")


def log(data, scores, names=NAMES, X=None):
    return dataset(np.c_[data.X if X is None else X, scores], data.y, [*names, "score"])


def changed(X, column, value):
    X = np.array(X)
    X[:, column] = value
    return X


# Equal


def test_a_log_of_predict_is_equal(model, per_query, data):
    for ranker in (model, per_query):
        found = tr.verify(ranker, log(data, ranker.predict(data)))
        assert found.is_equal
        assert (found.equal, found.documents, found.queries) == (400, 400, 25)
        assert (found.first, found.causes, found.exchanged, found.effect) == ((), (), 0, None)
        assert str(found).startswith("Equal: 400 rows in 25 queries have the scores of predict.")


@pytest.mark.parametrize(
    ("form", "is_named"),
    [("csv", True), ("parquet", True), ("feather", True), ("txt", True), ("txt", False)],
)
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), transforms=st.sampled_from(["none", "auto"]))
def test_a_log_in_any_order_and_format_is_equal(form, is_named, seed, transforms):
    """Rows and named columns are in any order, and queries are scattered."""
    random = np.random.default_rng(seed)
    data = tr.synthetic_web_search(queries=6, seed=seed % 5)
    columns = [0, 7, 50, 100, 135]
    data = tr.Dataset.from_arrays(data.X[:, columns], data.y, qid=data.qid, feature_names=NAMES)
    ranker = trees(data, n_estimators=3, transforms=transforms)
    rows = random.permutation(data.documents)
    X = np.c_[data.X, ranker.predict(data)][rows]
    names = [*NAMES, "score"]
    order = random.permutation(6) if is_named else np.arange(6)
    own = [names[i] for i in order] if is_named else None
    shuffled = tr.Dataset.from_arrays(
        X[:, order], qid=data.qid[rows], feature_names=own, unjudged="keep"
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", tr.DataWarning)  # a score is rarely a feature
        shuffled.save(f"{folder}/log.{form}")
        read = tr.load(f"{folder}/log.{form}", unjudged="keep", cache=False)
    assert tr.verify(ranker, read, "score" if is_named else "6").is_equal


def test_rounding_to_float32_is_equal_and_more_is_not(model, data):
    scores = model.predict(data).astype(np.float64)
    limit = 1e-5 * np.abs(scores).max()
    near, far = scores.copy(), scores.copy()
    near[3] += 0.9 * limit
    far[3] += 1.1 * limit
    assert tr.verify(model, log(data, near)).is_equal
    found = tr.verify(model, log(data, far))
    assert (found.equal, found.first[0].docid, found.first[0].query) == (399, "d3", "0")
    assert found.limit == pytest.approx(limit)
    assert tr.verify(model, log(data, far), tolerance=1e-4).is_equal


# Causes


def production(data, X, ranker):
    return ranker.predict(dataset(X, data.y))


CAUSES = {
    "3.25 is added to every score": lambda X, predict: predict(X) + 3.25,
    "every score is multiplied by -0.5": lambda X, predict: -0.5 * predict(X),
    "every score is multiplied by 2, then 1 is added": lambda X, predict: 2 * predict(X) + 1,
    "scores are rounded to 2 decimals": lambda X, predict: np.round(predict(X), 2),
    "all logged scores are 7": lambda X, predict: np.full(len(X), 7),
    "lower precision, such as float16": lambda X, predict: predict(X).astype(np.float16),
    "values that are missing in the log are 0": lambda X, predict: predict(np.nan_to_num(X)),
    "values that are 0 in the log are missing": (
        lambda X, predict: predict(np.where(X == 0, np.nan, X))
    ),
    "features are shifted by one": (
        lambda X, predict: predict(np.c_[X[:, 1:], np.zeros(len(X))])
    ),
    "features are in alphabetical order": (
        lambda X, predict: predict(X[:, [NAMES.index(name) for name in sorted(NAMES)]])
    ),
    "feature 'age': it is always 0": lambda X, predict: predict(changed(X, 1, 0)),
    "feature 'age': it is always missing": lambda X, predict: predict(changed(X, 1, np.nan)),
    "feature 'bm25': values that are missing in the log are 0": (
        lambda X, predict: predict(changed(X, 0, np.nan_to_num(X[:, 0])))
    ),
    "features 'bm25' and 'clicks' are swapped": lambda X, predict: predict(X[:, [2, 1, 0, 3, 4]]),
}  # fmt: skip


PAIRS = {
    "0.75 is added to every score, and values that are missing in the log are 0": (
        lambda X, predict: predict(np.nan_to_num(X)) + 0.75
    ),
    "-2 is added to every score, and feature 'age': it is always 0": (
        lambda X, predict: predict(changed(X, 1, 0)) - 2
    ),
    "values that are missing in the log are 0, and features 'bm25' and 'clicks' are swapped": (
        lambda X, predict: predict(np.nan_to_num(X)[:, [2, 1, 0, 3, 4]])
    ),
    "values that are 0 in the log are missing, and features are in alphabetical order": (
        lambda X, predict: predict(
            np.where(X == 0, np.nan, X)[:, [NAMES.index(name) for name in sorted(NAMES)]]
        )
    ),
}


@pytest.mark.parametrize("cause", PAIRS)
def test_two_causes_are_found(model, data, cause):
    scores = PAIRS[cause](data.X, lambda X: production(data, X, model))
    found = tr.verify(model, log(data, scores))
    assert found.causes[0].text == f"two causes: {cause}"
    assert found.causes[0].share > 0.99


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("kind", ["model", "per_query"])
def test_the_cause_is_found(request, data, cause, kind):
    ranker = request.getfixturevalue(kind)
    scores = CAUSES[cause](data.X, lambda X: production(data, X, ranker))
    found = tr.verify(ranker, log(data, scores))
    assert not found.is_equal
    assert found.causes[0].text.startswith(cause)
    assert found.causes[0].share > 0.99
    assert f"Cause: {found.causes[0].text} (explains 100 %" in str(found)


def test_values_at_thresholds(data):
    """Whole numbers: x ≤ t is x − 0.5 < t."""
    random = np.random.default_rng(0)
    X = random.integers(0, 6, (400, 5)).astype(np.float32)
    whole = dataset(X, np.clip(X[:, 0] - X[:, 1], 0, 4))
    ranker = trees(whole, engine="xgboost")
    found = tr.verify(ranker, log(whole, production(whole, X - 0.5, ranker)))
    assert "≤ instead of <" in found.causes[0].text
    assert found.causes[0].share == 1


def test_a_stale_model(model, data):
    old = trees(data, n_estimators=4)
    found = tr.verify(model, log(data, old.predict(data)), others={"may": old, "june": model})
    assert [cause.text for cause in found.causes] == ["the scores are those of another model, may"]
    assert not tr.verify(model, log(data, old.predict(data))).causes


def test_a_renamed_feature(model, data):
    names = ["bm25", "days", "clicks", "stock", "price"]
    found = tr.verify(model, log(data, model.predict(data), names))
    assert not found.is_equal
    assert found.lacking == ("age",)
    assert found.causes[0].text == "other names of features: 'age' is 'days' in the log"
    assert found.causes[0].share == 1
    assert found.effect is None
    names = [f"Column_{i}" for i in range(5)]
    found = tr.verify(model, log(data, model.predict(data), names))
    assert found.causes[0].text.endswith("'age' is 'Column_1' in the log, and 3 more")


def test_an_absent_feature(model, data):
    scores = production(data, changed(data.X, 1, 0), model)
    found = tr.verify(model, log(data, scores, ["bm25", "clicks", "stock", "price"],
                                 np.delete(data.X, 1, axis=1)))  # fmt: skip
    assert (found.is_equal, found.equal, found.lacking) == (False, 400, ("age",))
    assert "The log lacks 1 feature of the model: 'age'. predict got 0 instead" in str(found)


def test_documents_that_were_scored_alone(per_query, data):
    scores = per_query.predict(dataset(data.X, size=1))
    found = tr.verify(per_query, log(data, scores))
    assert found.causes[0].text.startswith("each document was scored alone")


def test_cut_queries_are_mentioned(per_query, model, data):
    """A log with half of the documents of each query."""
    kept = np.arange(400) % 16 < 8
    for ranker, is_equal in ((per_query, False), (model, True)):
        scores = ranker.predict(data)[kept]
        cut = dataset(np.c_[data.X[kept], scores], data.y[kept], [*NAMES, "score"], size=8)
        found = tr.verify(ranker, cut)
        assert found.is_equal == is_equal
        assert ("depend on the other documents of a query" in str(found)) == (not is_equal)


def test_no_cause_is_invented(model, data):
    noise = np.random.default_rng(0).normal(size=400)
    found = tr.verify(model, log(data, model.predict(data) + noise))
    assert found.causes == ()
    assert "Cause: not found." in str(found)


def test_rounded_features_are_mentioned(model, data):
    rounded = data.X.round(2)
    found = tr.verify(model, log(data, model.predict(data), X=rounded))
    assert found.causes == ()
    assert "All features of the log have at most 2 decimals. If production has" in str(found)
    noise = np.random.default_rng(0).normal(size=400)
    assert "decimals" not in str(tr.verify(model, log(data, model.predict(data) + noise)))
    whole = dataset(data.X.round(), data.y)
    found = tr.verify(model, log(whole, model.predict(whole) + noise, X=whole.X))
    assert "of the log have at most" not in str(found)


def test_a_cause_of_few_rows(model, data):
    """Three rows of 400 differ, and the other rows must not."""
    scores = model.predict(data)
    rows = np.flatnonzero(data.X[:, 0] > 0.5)[:3]
    X = np.array(data.X)
    X[rows, 0] = 0
    scores[rows] = production(data, X, model)[rows]
    found = tr.verify(model, log(data, scores))
    assert found.equal == 397
    assert found.causes == ()  # bm25 = 0 explains them, but breaks other rows


def test_a_net_that_takes_no_missing_values():
    data = tr.synthetic_web_search(queries=10)
    data = tr.Dataset.from_arrays(data.X[:, :4], data.y, qid=data.qid, feature_names=NAMES[:4])
    net = tr.Ranker(epochs=1, transforms="none", architecture="Linear").fit(data)
    swapped = net.predict(data.X[:, [2, 1, 0, 3]], data.qid)
    X, names = np.c_[data.X, swapped], [*NAMES[:4], "score"]
    logged = tr.Dataset.from_arrays(X, data.y, qid=data.qid, feature_names=names)
    assert "'bm25' and 'clicks' are swapped" in str(tr.verify(net, logged))


def test_columns_of_text():
    """A swap beside categories; and a category that the log lacks."""
    random = np.random.default_rng(0)
    brand, x = random.choice(["a", "b", "c"], 300), random.normal(size=(300, 2))
    columns = {"qid": np.arange(300) // 10, "brand": brand, "x1": x[:, 0], "x2": x[:, 1]}
    label = np.clip(np.round(2 * x[:, 0] + x[:, 1] + (brand == "a")), 0, 3)
    frame = pl.DataFrame({**columns, "label": label})
    ranker = trees(tr.Dataset.from_frame(frame))
    swapped = frame.with_columns(x1=pl.col("x2"), x2=pl.col("x1"))
    scores = ranker.predict(tr.Dataset.from_frame(swapped))
    found = tr.verify(ranker, tr.Dataset.from_frame(frame.with_columns(score=pl.Series(scores))))
    assert "features 'x1' and 'x2' are swapped" in found.causes[0].text
    without = frame.drop("brand").with_columns(
        score=pl.Series(ranker.predict(tr.Dataset.from_frame(frame)))
    )
    assert tr.verify(ranker, tr.Dataset.from_frame(without)).lacking == ("brand",)


# Effect


def test_order_and_measure(model, data):
    """The best and the second document of a query change places."""
    scores = model.predict(data)
    first, second = np.argsort(-scores[:DOCUMENTS], kind="stable")[:2]
    swapped = scores.copy()
    swapped[[first, second]] = scores[[second, first]]
    found = tr.verify(model, log(data, swapped), measure="nDCG@1")
    assert (found.reordered, found.exchanged, found.pairs) == (1, 1, 25 * 120)
    assert found.effect.measures == ["nDCG@1"]
    for name, own in (("production", swapped), ("predict", scores)):
        expected = tr.evaluate(own, data.y, data.lists, ["nDCG@1"])["nDCG@1"]
        assert found.effect.means[name]["nDCG@1"] == pytest.approx(expected)
    unlabelled = dataset(np.c_[data.X, swapped], None, [*NAMES, "score"])
    assert tr.verify(model, unlabelled).effect is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_exchanged_pairs(scores):
    first, second = np.array(scores, np.float64).reshape(-1, 2).T
    pairs = combinations(range(len(scores)), 2)
    opposite = [(first[i] - first[j]) * (second[i] - second[j]) < 0 for i, j in pairs]
    assert _exchanged(first, second) == sum(opposite)


# The command


@pytest.fixture
def folder(model, data, tmp_path, monkeypatch):
    """A model, and logs in all formats: equal ones, and one with swapped features."""
    monkeypatch.chdir(tmp_path)
    model.save("model")
    trees(data, n_estimators=4).save("old")
    logged = log(data, model.predict(data))
    for name in ("log.csv", "log.parquet", "log.feather"):
        logged.save(name)
    log(data, production(data, data.X[:, [1, 0, 2, 3, 4]], model)).save("swapped.csv")
    log(data, tr.load_model("old").predict(data)).save("stale.csv")
    return tmp_path


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.feather"])
def test_the_command_on_an_equal_log(cli, folder, name):
    code, out, err = cli("verify", "model", name)
    assert (code, err) == (0, f"Note: {name}: 415 values are not a number (NaN).\n")
    assert out.startswith("Equal: 400 rows in 25 queries have the scores of predict.")


def test_the_command_on_letor_text(cli, data, tmp_path, monkeypatch):
    """The scores are a feature; absent values are 0 on both sides."""
    monkeypatch.chdir(tmp_path)
    X = np.nan_to_num(data.X)
    plain = tr.Dataset.from_arrays(X, data.y, qid=data.qid)
    ranker = trees(plain)
    ranker.save("model")
    table = np.c_[X, ranker.predict(plain)]
    tr.Dataset.from_arrays(table, data.y, qid=data.qid).save("log.txt")
    assert cli("verify", "model", "log.txt", "--score", 6)[0] == 0


def test_the_command_on_a_different_log(cli, folder):
    code, out, _ = cli("verify", "model", "swapped.csv")
    assert code == 1
    assert max(map(len, out.splitlines())) <= 80
    lines = out.splitlines()
    assert lines[0].split() == ["query", "docid", "logged", "predict", "difference"]
    assert len(lines[2:7]) == 5
    text = " ".join(out.split())
    assert "Cause: features 'bm25' and 'age' are swapped (explains 100 % of" in text
    assert "pairs are exchanged." in text
    assert "(Wilcoxon signed-rank test)." in text
    code, out, err = cli("verify", "model", "swapped.csv", "--json", "--quiet", "-m", "AP")
    found = json.loads(out)
    assert (code, err, found["is_equal"], len(found["first"])) == (1, "", False, 5)
    assert list(found["effect"]["means"]) == ["production", "predict"]
    assert found["effect"]["best"].keys() == {"AP"}


def test_the_command_with_an_older_model(cli, folder):
    code, out, _ = cli("verify", "model", "stale.csv", "--other", "old")
    assert code == 1
    assert "Cause: the scores are those of another model, old" in out


def test_a_log_without_labels_and_docids(cli, folder):
    frame = pl.read_csv("swapped.csv").drop("label", "docid").rename({"score": "ltr"})
    frame.write_csv("bare.csv")
    code, out, _ = cli("verify", "model", "bare.csv", "--score", "ltr")
    assert code == 1
    assert out.splitlines()[2].split()[:2] == ["0", "1"]
    assert "nDCG" not in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["model", "log.csv", "--score", "sco"], "has no column 'sco' for the logged scores; pass"),
        (["model", "none.csv"], "none.csv"),
        (["none", "log.csv"], "none is not a model"),
        (["model", "log.csv", "--other", "none"], "none is not a model"),
        (["model", "swapped.csv", "-m", "nDGC"], "Unknown measure 'nDGC'"),
        (["model", "missing.csv"], "Column 'score' must have a finite number in each row"),
        (["model", "words.csv"], "Column 'score' must have a finite number in each row"),
        (["model", "other.csv"], "X lacks 5 features that BoostedRanker was trained with"),
    ],
)
def test_mistakes(cli, folder, words, complaint):
    frame = pl.read_csv("log.csv")
    frame.with_columns(score=None).write_csv("missing.csv")
    frame.with_columns(score=pl.lit("good")).write_csv("words.csv")
    frame.select("qid", "label", "score", other="bm25").write_csv("other.csv")
    code, out, err = cli("verify", *words)
    *notes, error = err.splitlines()
    assert (code, out) == (2, "")
    assert all(note.startswith("Note: ") for note in notes)
    assert error.startswith("Error: ")
    assert complaint in error
