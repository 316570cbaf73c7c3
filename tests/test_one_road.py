"""Every road into a table gives the same data: values keep their meaning, or a message says so."""

import multiprocessing
import os
import subprocess
import sys
import warnings
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

import twinrank as tr
from twinrank import Dataset, DataWarning, InputError, load
from twinrank.learning.estimators.data_warnings import PERFECT, leaking_features

RANDOM = np.random.default_rng(0)
QID = np.repeat(np.arange(40), 5)
SMALL = {"n_estimators": 3, "ensemble_size": 1, "random_state": 0}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))


def trees(**parameters):
    return tr.BoostedRanker(**{**SMALL, **parameters})


def frame_of(**columns):
    rows = len(next(iter(columns.values())))
    return pl.DataFrame({"qid": [1] * rows, "label": [0] * rows, **columns})


def quietly(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return call(*arguments, **options)


# Cache keys


def test_links_to_the_same_files_below_other_partitions(tmp_path):
    pl.DataFrame({"qid": [1, 1], "a": [1.0, 2.0]}).write_parquet(tmp_path / "rows.parquet")
    labels = {}
    for value in (0, 1):
        folder = tmp_path / f"data{value}" / f"label={value}"
        folder.mkdir(parents=True)
        (folder / "rows.parquet").symlink_to(tmp_path / "rows.parquet")
        labels[value] = load(tmp_path / f"data{value}").y.tolist()
    assert labels == {0: [0, 0], 1: [1, 1]}


# Categories


@pytest.mark.parametrize("as_frame", [pd.DataFrame, pl.DataFrame, None])
def test_large_ids_are_different_categories(as_frame):
    brand = RANDOM.integers(100_000_001, 100_000_005, QID.size)
    y = (brand == 100_000_003).astype(int)
    X = np.column_stack([np.zeros(QID.size), brand])
    chosen = [1]
    if as_frame is not None:
        X, chosen = as_frame({"nothing": X[:, 0], "brand": brand}), ["brand"]
    own = {
        "categorical_features": chosen,
        "engine_params": {"min_data_per_group": 1, "cat_smooth": 1},
    }
    ranker = quietly(trees(**own).fit, X, y, qid=QID)
    assert ranker.model_.encoding.columns == {1: tuple(range(100_000_001, 100_000_005))}
    scores = ranker.predict(X, qid=QID)
    assert scores[y == 1].mean() > scores[y == 0].mean()


def test_categories_of_numbers_in_files(tmp_path):
    ids = [100_000_001, 100_000_002, 100_000_001]
    table = pl.DataFrame({"qid": [1, 1, 1], "label": [0, 1, 2], "brand": ids})
    table.write_parquet(tmp_path / "a.parquet")
    table.write_csv(tmp_path / "a.csv")
    for path in (tmp_path / "a.parquet", tmp_path / "a.csv"):
        data = load(path, categorical_features=["brand"])
        assert data.categories == {0: ("100000001", "100000002")}
        assert data.X[:, 0].tolist() == [0, 1, 0]
    with pytest.warns(DataWarning, match="Feature 'brand' has whole numbers beyond 2\\^24"):
        load(tmp_path / "a.csv")


def test_numbers_in_a_column_of_text(tmp_path, cli):
    site = RANDOM.choice(["shop", "news", "7"], QID.size)
    y = RANDOM.integers(0, 3, QID.size)
    train = pd.DataFrame({"bm25": RANDOM.normal(size=QID.size), "site": pd.Categorical(site)})
    ranker = trees().fit(train, y, qid=QID)
    numbers = train.assign(site=np.where(site == "7", 7, 5))
    with pytest.raises(InputError, match=r"'site' is a number here, but .* trained with text"):
        ranker.predict(numbers, qid=QID)
    with pytest.raises(InputError, match="'site' is a number here"):
        trees().fit(train, y, qid=QID, eval_set=[(numbers, y)], eval_qid=[QID])
    # A CSV file has no types: it is read with those of training, so digits stay text.
    digits = train.assign(site=pd.Categorical(["7"] * QID.size), qid=QID)
    path = tmp_path / "digits.csv"
    digits.to_csv(path, index=False)
    expected = ranker.predict(digits.drop(columns="qid"), qid=QID)
    np.testing.assert_array_equal(ranker.predict(path), expected)
    # The command line does the same.
    ranker.save(tmp_path / "model")
    out = tmp_path / "scores.txt"
    words = ["predict", tmp_path / "model", path, "-o", out, "--no-label", "--unjudged", "keep"]
    assert cli(*words)[0] == 0
    np.testing.assert_allclose(np.loadtxt(out), expected, rtol=1e-6)


# Query ids


PARTS = {
    "floats": ([1.0, 2.0], [2.0, 1.5], ["1", "2", "1.5"]),
    "integers and floats": ([1, 2], [2.0, 1.5], ["1", "2", "1.5"]),
    "decimals": ([Decimal("1.5"), Decimal("2")], [Decimal("1.500"), Decimal("2.00")], ["1.5", "2"]),
    "text and integers": (["7", "a"], [7, 8], ["7", "a", "8"]),
    "times": (
        pl.Series([datetime(2024, 1, 1), datetime(2024, 1, 2)], dtype=pl.Datetime("ms")),
        pl.Series([datetime(2024, 1, 1), datetime(2024, 1, 3)], dtype=pl.Datetime("ns")),
        ["2024-01-01 00:00:00", "2024-01-02 00:00:00", "2024-01-03 00:00:00"],
    ),
}
REFUSED = {
    "precisions": (pl.Series([0.1], dtype=pl.Float32), pl.Series([0.1], dtype=pl.Float64)),
    "dates and times": ([date(2024, 1, 1)], [datetime(2024, 1, 1)]),
    "dates and text": ([date(2024, 1, 1)], ["2024-01-01"]),
    "dates and numbers": ([date(2024, 1, 1)], [1]),
}


def parts(folder, *columns):
    folder.mkdir()
    for i, ids in enumerate(columns):
        table = pl.DataFrame({"qid": ids}).with_columns(label=pl.lit(1), a=pl.lit(1.0))
        table.write_parquet(folder / f"part-{i}.parquet")
    return folder


@pytest.mark.parametrize("name", PARTS)
def test_equal_ids_in_parts_are_one_query(tmp_path, name):
    one, other, expected = PARTS[name]
    data = quietly(load, parts(tmp_path / "data", one, other))
    assert [str(each) for each in data.query_ids] == expected


@pytest.mark.parametrize("name", REFUSED)
def test_ids_of_types_that_differ_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"'qid' has query ids of type .* here and .* before"):
        load(parts(tmp_path / "data", *REFUSED[name]))


def test_nanoseconds_are_kept(tmp_path):
    times = pl.Series([0, 1, 1000, 1_000_000_000]).cast(pl.Datetime("ns"))
    (path := tmp_path / "a.parquet").write_bytes(b"")
    pl.DataFrame({"qid": times, "label": 1, "a": 1.0}).write_parquet(path)
    expected = ["00.000000000", "00.000000001", "00.000001", "01"]
    expected = ["1970-01-01 00:00:" + each.replace(".000000000", "") for each in expected]
    assert load(path).query_ids.tolist() == expected
    frame = pd.read_parquet(path)
    assert Dataset.from_frame(frame).query_ids.tolist() == expected
    arrays = Dataset.from_arrays(np.ones((4, 1)), np.ones(4), qid=times.to_numpy())
    assert arrays.query_ids.tolist() == expected


def test_a_nul_character_is_no_end_of_an_id():
    for qid in (["a\0", "a"], pl.Series(["a\0", "a"]), pd.Series(["a\0", "a"])):
        with pytest.raises(InputError, match="contains a NUL character"):
            Dataset.from_arrays([[1.0], [2.0]], [0, 1], qid=qid)
    assert len(tr.Lists.from_qid(["a\0", "a"])) == 2


# Columns by name


@pytest.mark.parametrize("first", [0, 3])
def test_integer_labels_of_columns_are_names(first):
    X = RANDOM.normal(size=(QID.size, 3))
    y = np.digitize(X[:, 0] + RANDOM.normal(size=QID.size), [0.0, 1.0])
    frame = pd.DataFrame(X, columns=range(first, first + 3))
    ranker = trees().fit(frame, y, qid=QID)
    expected = ranker.predict(X, qid=QID)
    mixed = frame[frame.columns[::-1]]
    np.testing.assert_array_equal(ranker.predict(mixed, qid=QID), expected)
    sets = {name: trees().fit(frame, y, qid=QID, eval_set=(part, y, QID)).history_ for name, part in
            (("same", frame), ("mixed", mixed))}  # fmt: skip
    values = {name: [each["validation"] for each in history] for name, history in sets.items()}
    assert values["same"] == values["mixed"]
    if first == 0:
        by_position = trees().fit(X, y, qid=QID)
        np.testing.assert_array_equal(by_position.predict(mixed, qid=QID), expected)


# Numbers


def test_lost_digits_are_noted(tmp_path):
    decimals = [Decimal(2**53 + 1), Decimal(0)]
    for values in (pl.Series([2**53 + 1, None]), [float(2**24 + 1), 0.5], decimals):
        data = Dataset.from_frame(frame_of(a=values), non_finite="keep")
        assert any("Feature 'a' has whole numbers beyond 2^24" in note for note in data.notes)
    for X in ([[2**53 + 1]], [[2.0**24 + 1]], np.array([[2**64 - 1]], np.uint64)):
        assert "Feature 0 has whole" in Dataset.from_arrays(X, [1], group=[1]).notes[0]
    for y in ([2**24 + 1], [2.0**24 + 1]):
        assert "The labels have whole" in Dataset.from_arrays([[1]], y, group=[1]).notes[0]
    assert Dataset.from_arrays([[2**53]], [2**24], group=[1]).notes == ()
    path = tmp_path / "a.txt"
    for line in ("1 qid:1 1:9007199254740993", "1 qid:1 1:16777217", "16777217 qid:1 1:1"):
        path.write_text(line + "\n")
        with pytest.warns(DataWarning, match=r"beyond 2\^24,? .*loses? digits as float32"):
            load(path)
    path.write_text("16777216 qid:1 1:9007199254740992 2:16777218 3:0.1\n")
    assert load(path).notes == ()


def test_almost_unjudged_is_an_error(tmp_path):
    (path := tmp_path / "a.txt").write_text("-1.00000001 qid:1 1:1\n")
    for call in (
        lambda: Dataset.from_arrays([[1.0]], [-1.00000001], group=[1], unjudged="drop"),
        lambda: Dataset.from_frame(frame_of(a=[1.0]).with_columns(label=-1.00000001)),
        lambda: load(path, unjudged="keep"),
    ):
        with pytest.raises(InputError, match="a label must be a finite"):
            call()


def test_many_columns(tmp_path):
    count = 20_000
    path = tmp_path / "wide.csv"
    names = [f"f{i}" for i in range(count)]
    rows = ["1,1," + ",".join(["0.5"] * count), "1,0," + ",".join(["1.5"] * count)]
    path.write_text("\n".join(["qid,label," + ",".join(names), *rows]) + "\n")
    data = load(path, cache=False)
    assert data.feature_names == tuple(names)
    assert data.X.tolist() == [[0.5] * count, [1.5] * count]


# Folders that cannot be written


def test_without_a_writable_home(tmp_path):
    (home := tmp_path / "home").write_text("a file, so that no folder can be made in it")
    (path := tmp_path / "a.txt").write_text("1 qid:1 1:1\n")
    (temporary := tmp_path / "tmp").mkdir()
    environment = {**os.environ, "HOME": str(home / "me"), "TMPDIR": str(temporary)}
    for name in ("TWINRANK_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "twinrank", "inspect", path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.count("TWINRANK_CACHE_DIR") == 1
    assert "cannot be written" in done.stderr
    assert any(temporary.glob("twinrank-*/data/*/manifest.json"))


# Warnings about data that looks wrong


def test_names_that_are_rarely_features():
    columns = {"weight": [1.0], "prod_score": [1.0], "position": [1], "bm25_score": [1.0]}
    notes = Dataset.from_frame(frame_of(**columns)).notes
    assert [note.split("'")[1] for note in notes] == ["weight", "prod_score", "position"]
    assert "weight='weight'" in notes[0]
    data = Dataset.from_frame(frame_of(**columns))
    assert data.feature_names == tuple(columns)
    X = pd.DataFrame({"position": RANDOM.normal(size=QID.size), "a": RANDOM.normal(size=QID.size)})
    with pytest.warns(DataWarning, match="'position' is used as a feature"):
        trees().fit(X, RANDOM.integers(0, 2, QID.size), qid=QID)


def test_a_feature_that_knows_the_labels():
    X = RANDOM.normal(size=(QID.size, 4))
    y = RANDOM.integers(0, 4, QID.size)
    X[:, 1], X[:, 2] = 2.0 * y, -y
    data = Dataset.from_arrays(X, y, qid=QID)
    assert leaking_features(data) == [1, 2]
    with pytest.warns(
        DataWarning, match="Each of the features 2, 3 ranks the training data alone"
    ) as told:
        trees().fit(data)
    assert told[0].filename == __file__  # of the user's call
    order = np.argsort(y[:5])  # a constant feature keeps the order of rows, which proves nothing
    constant = Dataset.from_arrays(np.zeros((QID.size, 1)), np.tile(y[:5][order], 40), qid=QID)
    assert leaking_features(constant) == []


def test_leaks_are_those_of_evaluate():
    X = RANDOM.normal(size=(QID.size, 3))
    y = np.digitize(X[:, 0], [-1.0, 0.0, 1.0])
    X[:, 1] = X[:, 0] + 0.05 * RANDOM.normal(size=QID.size)
    X[:, 2] = np.round(X[:, 0])
    data = Dataset.from_arrays(X, y, qid=QID)
    mixed = data.select(data.lists.max(data.y) > data.lists.min(data.y))
    expected = [
        i
        for i in range(3)
        if tr.evaluate(mixed.X[:, i], mixed.y, mixed.lists, ["nDCG"], ties="average")["nDCG"]
        >= PERFECT
    ]
    assert leaking_features(data) == expected


@pytest.mark.filterwarnings("default")
def test_validation_queries_of_the_training_data():
    X, y = RANDOM.normal(size=(QID.size, 2)), RANDOM.integers(0, 3, QID.size)
    data = Dataset.from_arrays(X, y, qid=QID)
    with pytest.warns(DataWarning, match="10 queries of the validation data are also in the train"):
        trees().fit(data, eval_set=data.select(slice(30, 40)))
    others = Dataset.from_arrays(X + 1, y, qid=QID)  # the same ids with other rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trees().fit(data, eval_set=others)


def test_large_labels_with_an_exponential_gain():
    X, y = RANDOM.normal(size=(QID.size, 2)), RANDOM.integers(0, 100, QID.size)
    with pytest.warns(DataWarning, match="The highest label is .* exponential gain"):
        trees().fit(X, y, qid=QID)
    trees(objective="nDCG(gain=linear)", validation_measure="AP").fit(X, y, qid=QID)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "takes labels up to 100, but there is a label 4000"),
        ({"objective": "nDCG(gain=[0, 1])"}, "lists the gains of labels 0…1, but not of 4000"),
        ({"objective": "nDCG(gain=linear)"}, "takes labels up to 100"),  # when it is validated
    ],
)
def test_labels_without_a_gain_leave_no_run(changed, message, tmp_path):
    X, y = RANDOM.normal(size=(QID.size, 2)), np.where(np.arange(QID.size) % 2, 4000, 1)
    with pytest.raises(InputError, match=message):
        trees(**changed).fit(X, y, qid=QID, eval_set=(X + 1, y, QID), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Weights


def weighted():
    X = RANDOM.normal(size=(QID.size, 2))
    y, weight = RANDOM.integers(0, 3, QID.size), np.repeat(RANDOM.random(40), 5)
    return X, y, weight


def test_weights_from_every_road(tmp_path):
    X, y, weight = weighted()
    expected = trees().fit(X, y, qid=QID, sample_weight=weight)
    table = pl.DataFrame({"qid": QID, "label": y, "a": X[:, 0], "b": X[:, 1], "w": weight})
    table.write_parquet(tmp_path / "a.parquet")
    table.write_csv(tmp_path / "a.csv")
    (tmp_path / "parts").mkdir()
    for i in range(2):
        table[i * 100 : (i + 1) * 100].write_parquet(tmp_path / "parts" / f"{i}.parquet")
    roads = {
        "arrays": Dataset.from_arrays(X, y, qid=QID, weight=weight),
        "frame": Dataset.from_frame(table, weight="w"),
        **{name: load(tmp_path / name, weight="w") for name in ("a.parquet", "a.csv", "parts")},
    }
    roads["frame"].save(tmp_path / "saved")
    roads["saved"] = load(tmp_path / "saved")
    roads["frame"].save(tmp_path / "again.parquet")
    roads["again"] = load(tmp_path / "again.parquet", weight="weight")
    for name, data in roads.items():
        np.testing.assert_array_equal(data.weights, weight[::5], err_msg=name)
        ranker = trees().fit(data)
        np.testing.assert_array_equal(ranker.predict(X, qid=QID), expected.predict(X, qid=QID))
        assert ranker.score(data) == expected.score(X, y, qid=QID, sample_weight=weight)
    part = roads["frame"].select([3, 1])
    np.testing.assert_array_equal(part.weights, weight[::5][[3, 1]])
    with pytest.raises(InputError, match="weights of its own"):
        trees().fit(roads["frame"], sample_weight=weight)
    with pytest.raises(InputError, match=r"LETOR text has .* weights"):
        roads["frame"].save(tmp_path / "a.txt")


def test_weights_on_the_command_line(tmp_path, cli):
    X, y, weight = weighted()
    table = pl.DataFrame({"qid": QID, "label": y, "a": X[:, 0], "b": X[:, 1], "w": weight})
    table.write_csv(path := tmp_path / "a.csv")
    words = ["train", path, "--trees", "--valid", path, "--out", tmp_path / "run", "--weight", "w"]
    words += ["--set", "n_estimators=3", "--set", "ensemble_size=1", "--seed", "0"]
    assert cli(*words)[0] == 0
    trained = tr.load_model(tmp_path / "run").predict(X, qid=QID)
    data = load(path, weight="w")
    expected = trees(tolerance=1).fit(data, eval_set=data).predict(X, qid=QID)
    np.testing.assert_array_equal(trained, expected)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 1.0, -1.0], "in row 3 is -1, but a weight must be"),
        ([1.0, 1.0, None], "in row 3 is nan, but a weight must be"),
        ([0.0, 0.0, 0.0], "weights of all queries are 0"),
    ],
)
def test_weights_that_cannot_be_used(weight, message):
    table = pl.DataFrame({"qid": [1, 1, 2], "label": [0, 1, 0], "a": [1.0, 2.0, 3.0], "w": weight})
    with pytest.raises(InputError, match=message):
        Dataset.from_frame(table, weight="w")


def test_weights_of_scattered_rows():
    table = pl.DataFrame({"q": [1, 2, 1], "label": [0, 1, 0], "a": [1.0, 2.0, 3.0]})
    for last, rows in ((1.0, None), (5.0, [1, 5, 2])):
        frame = table.with_columns(w=pl.Series([1.0, 2.0, last]))
        data = Dataset.from_frame(frame, query="q", weight="w")
        assert data.weights.tolist() == [(1 + last) / 2, 2]
        assert rows == (None if data.row_weights is None else data.row_weights.tolist())


# Forms that other libraries take


def test_forms_of_lightgbm_and_xgboost():
    X, y = RANDOM.normal(size=(QID.size, 2)), RANDOM.integers(0, 3, QID.size)
    expected = trees().fit(X, y, qid=QID).predict(X, qid=QID)
    group = np.full(40, 5.0)  # as np.loadtxt reads rank.train.query
    frame = pd.DataFrame(X, columns=["a", "b"])
    sparse = frame.astype(pd.SparseDtype(float, 0.0))
    with_qid = frame.assign(qid=QID)
    for form in (
        {"X": X, "y": y, "group": group},
        {"X": frame, "y": pd.DataFrame({"label": y}), "qid": QID},
        {"X": sparse, "y": y, "qid": QID},
        {"X": with_qid, "y": y},
        {"X": pl.from_pandas(with_qid), "y": pl.DataFrame({"label": y})},
    ):
        ranker = trees().fit(**form)
        assert ranker.n_features_in_ == 2
        np.testing.assert_array_equal(ranker.predict(X, qid=QID), expected)
        np.testing.assert_array_equal(ranker.predict(with_qid), expected)
        assert ranker.score(with_qid, y) == ranker.score(X, y, qid=QID)
    with pytest.raises(InputError, match="sizes must be whole numbers"):
        trees().fit(X, y, group=np.full(80, 2.5))


# Processes


def _load_in_child(path, queue):
    try:
        load(path, cache=False)
        queue.put("loaded")
    except InputError as error:
        queue.put(str(error))


def test_a_forked_process_says_what_to_do(tmp_path):
    frame_of(a=[1.0]).write_parquet(path := tmp_path / "a.parquet")
    load(path, cache=False)
    for method, expected in (("fork", "get_context('spawn')"), ("spawn", "loaded")):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python itself warns of forks beside threads
            process = context.Process(target=_load_in_child, args=(path, queue))
            process.start()
        assert expected in queue.get(timeout=60)
        process.join(60)


# Suggestions


@pytest.mark.parametrize(
    ("columns", "label", "expected"),
    [
        (["qid", "relevance", "brand"], "grad", r"Columns that look like it: 'relevance'\."),
        (["qid", "label", "brand"], "lable", r"Did you mean 'label'\?"),
        (["qid", "a", "brand"], "grade", r"Its columns: 'qid', 'a', 'brand'\."),
    ],
)
def test_a_misspelt_label(columns, label, expected):
    table = pl.DataFrame({name: [1] for name in columns})
    with pytest.raises(InputError, match=expected) as caught:
        Dataset.from_frame(table, label=label)
    assert (caught.value.argument, caught.value.value) == ("label", label)
