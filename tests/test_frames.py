"""Frames and files: columns by name, what is refused, and conversions that keep every bit."""

import datetime
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankings import FORMS, FRAMES, assert_same, bits, datasets, quietly
from twinrank import Dataset, DataWarning, InputError, load
from twinrank.data import from_csv
from twinrank.data.streams import opened
from twinrank.support.memory import PeakMemory

COLUMNS = {"qid": [7, 7, 9], "label": [0, 2, 1], "a": [0.5, 1.5, 2.5], "b": [1, 2, 3]}
X = [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]
ALIKE = [pd.DataFrame, pl.DataFrame, pa.table]
frame = Dataset.from_frame


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWINRANK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def csv(tmp_path):
    """Load a text as a CSV file."""

    def loaded(text, name="data.csv", **choices):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path, **choices)

    return loaded


# Columns


@pytest.mark.parametrize("make", [*ALIKE, lambda c: pl.DataFrame(c).lazy()])
def test_frames_of_all_kinds(make):
    made = frame(make(COLUMNS))
    assert made.X.tolist() == X
    assert made.X.flags.c_contiguous
    assert made.y.tolist() == [0, 2, 1]
    assert made.qid.tolist() == [7, 7, 9]
    assert made.feature_names == ("a", "b")
    assert made.docids is None


@pytest.mark.parametrize(
    ("query", "label", "docid"),
    [
        ("query_id", "relevance", "doc_id"),
        ("QueryID", "Relevance Label", "docno"),
        ("query", "grade", "document-id"),
        ("session_id", "target", "ITEM_ID"),
        ("topic_id", "y", "comment"),
    ],
)
def test_columns_are_guessed_by_name(query, label, docid):
    made = frame(pl.DataFrame({"a": [1.0, 2.0], docid: [5, 6], label: [0, 1], query: [3, 3]}))
    assert made.query_ids.tolist() == [3]
    assert made.y.tolist() == [0, 1]
    assert made.docids.tolist() == ["5", "6"]
    assert made.feature_names == ("a",)


def test_columns_are_chosen_by_name():
    columns = {"session": [1, 1, 2], "stars": [0, 1, 2], "item": ["x", "y", "z"], **COLUMNS}
    made = frame(
        pl.DataFrame(columns),
        query="session",
        label="stars",
        docid="item",
        features=["b", "a"],
    )
    assert made.qid.tolist() == [1, 1, 2]
    assert made.y.tolist() == [0, 1, 2]
    assert made.docids.tolist() == ["x", "y", "z"]
    assert made.feature_names == ("b", "a")
    assert made.X.tolist() == [row[::-1] for row in X]
    assert made.notes == ()


def test_columns_are_left_out():
    assert frame(pl.DataFrame(COLUMNS), ignore=["b"]).feature_names == ("a",)
    assert frame(pl.DataFrame(COLUMNS), ignore="b").feature_names == ("a",)
    assert frame(pl.DataFrame(COLUMNS), features="b").feature_names == ("b",)


def test_no_labels():
    made = frame(pl.DataFrame({"qid": [1], "a": [2.0]}), label=False)
    assert made.y.tolist() == [-1]


def test_a_choice_settles_what_is_ambiguous():
    columns = pl.DataFrame({**COLUMNS, "relevance": [3, 3, 3], "query": [1, 2, 3]})
    assert frame(columns, query="qid", label="label", ignore=["query", "relevance"]).y.sum() == 3
    made = frame(columns, query="qid", label="relevance", ignore=["query"])
    assert made.y.tolist() == [3, 3, 3]
    note = (
        "Column 'label' looks like a label but is used as a feature. "
        "ignore=['label'] leaves it out."
    )
    assert made.notes == (note,)
    assert frame(columns, label="label", docid="query", ignore=["relevance"]).qid.sum() == 23


def test_an_index_is_no_feature(tmp_path):
    table = pd.DataFrame(COLUMNS)[lambda t: t.b != 2]
    table.to_csv(tmp_path / "data.csv")
    table.to_parquet(tmp_path / "data.parquet")
    assert load(tmp_path / "data.csv").feature_names == ("a", "b")
    assert load(tmp_path / "data.parquet").feature_names == ("a", "b")
    assert frame(pd.read_csv(tmp_path / "data.csv")).feature_names == ("a", "b")


@pytest.mark.parametrize(
    ("columns", "choices", "complaint"),
    [
        ({"rel": [1, 2, 3]}, {}, "'label', 'rel' could each be the label; .*label='label'"),
        ({"query": [1, 2, 3]}, {}, "'qid', 'query' could each be the query"),
        ({"did": [1, 2, 3], "doc_id": [1, 2, 3]}, {}, "'did', 'doc_id' could each be the docid"),
        ({}, {"query": "quid"}, "no column 'quid' for query. Did you mean 'qid'"),
        ({}, {"label": "LABEL"}, "no column 'LABEL' for label. Did you mean 'label'"),
        (
            {},
            {"features": ["a", "c"]},
            "no column 'c' for features. Its .*: 'qid', 'label', 'a', 'b'",
        ),
        ({}, {"ignore": ["zz"]}, "no column 'zz' for ignore. Its columns: 'qid', 'label', 'a'"),
        ({}, {"query": "a", "label": "a"}, "column 'a' is named twice"),
        ({}, {"label": "label", "features": ["label", "a"]}, "column 'label' is named twice"),
        ({}, {"features": ["a", "a"]}, "column 'a' is named twice"),
        ({}, {"ignore": ["a", "b"]}, "no feature columns"),
        ({}, {"max_features": 1}, "has 2 features, more than the limit of 1; max_features raises"),
        ({"label": [0, -1, 1]}, {}, "column 'label' in row 2 is −1, .*unjudged. .*unjudged='keep'"),
        ({"label": [0, -2, 1]}, {}, "column 'label' in row 2 is -2, but a label must be a finite"),
        ({"label": [0, None, 1]}, {}, r"column 'label' in row 2 is missing \(NaN\), but a label"),
        ({"label": [0.0, np.inf, 1]}, {}, "column 'label' in row 2 is infinite"),
        (
            {"label": ["0", "1", "x"]},
            {},
            "column 'label' contains 'x' in row 3, which is text, not a number. Convert the",
        ),
        ({"a": [1, None, 2]}, {}, r"column 'a' in row 2 is missing \(NaN\), .*non_finite='keep'"),
        ({"a": [1.0, 2.0, 1e39]}, {}, "column 'a' in row 3 is infinite or too large, but a feat"),
        ({"a": ["1", "2", "x"]}, {}, r"contains 'x' in row 3, .*not a number. .*ignore=\['a'\]"),
        (
            {"a": ["1", "2", "3"]},
            {},
            "column 'a' contains '1' in row 1, which is text, not a number",
        ),
        ({"a": [datetime.date(2024, 1, i) for i in (1, 2, 3)]}, {}, "datetime.date.* in row 1"),
        ({"qid": ["a", None, "b"]}, {}, "row 2 has no query id in column 'qid'"),
        ({"qid": [1.0, 1.0, np.nan]}, {}, "row 3 has no query id in column 'qid'"),
    ],
)
@pytest.mark.parametrize("make", ALIKE)
def test_bad_frames_get_a_clear_error(make, columns, choices, complaint):
    with pytest.raises(InputError, match=f"^The frame.*{complaint}") as caught:
        frame(make({**COLUMNS, **columns}), **choices)
    assert str(caught.value).endswith((".", "?"))


def test_columns_that_are_not_there():
    with pytest.raises(InputError, match=r"no column looks like the query\. Its columns: 'label'"):
        frame(pl.DataFrame({"label": [1], "a": [2.0]}))
    with pytest.raises(
        InputError, match=r"Name it: label='…'; if there are no labels: label=False\."
    ):
        frame(pl.DataFrame({"qid": [1], "a": [2.0]}))


def test_columns_of_the_same_name():
    columns = ["qid", "label", "a", "a"]
    for table in (
        pd.DataFrame([[1, 1, 2.0, 3.0]], columns=columns),
        pa.table([[1], [1], [2.0], [3.0]], names=columns),
    ):
        with pytest.raises(InputError, match="columns of the same name; rename them: - 'a' 2"):
            frame(table)
    with pytest.raises(InputError, match="two columns named '0'"):
        frame(pd.DataFrame([[1, 1, 2.0, 3.0]], columns=["qid", "label", 0, "0"]))


@pytest.mark.parametrize("thing", [[[1, 2]], {"qid": [1]}, None, np.zeros((2, 2)), pd.Series([1])])
def test_what_is_no_frame(thing):
    with pytest.raises(InputError, match=f"Expected a frame .*, not {type(thing).__name__}"):
        frame(thing)


@pytest.mark.parametrize("make", ALIKE)
def test_no_rows(make):
    with pytest.raises(InputError, match=r"^The frame has no rows\.$"):
        frame(make({name: values[:0] for name, values in COLUMNS.items()}))


def test_an_unknown_argument_is_pythons_own_error():
    with pytest.raises(TypeError, match=r"from_frame.*'lable'"):
        frame(pl.DataFrame(COLUMNS), lable="label")


# Types


def test_pandas_columns_by_number():
    table = pd.DataFrame([[1, 1, 2.0, 3.0], [1, 0, 4.0, 5.0]])
    made = frame(table, query=0, label=1, ignore=[3])
    assert made.feature_names == ("2",)
    assert made.X.tolist() == [[2.0], [4.0]]
    assert frame(pd.DataFrame({"qid": [1], "label": [1], 1: [2.0], 2: [3.0]})).feature_names is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.array([1, None, 3], dtype="Int64"), [1, np.nan, 3]),
        (pd.array([1.5, None, 3], dtype="Float64"), [1.5, np.nan, 3]),
        (pd.array([True, None, False], dtype="boolean"), [1, np.nan, 0]),
        (np.array([True, None, False], object), [1, np.nan, 0]),
        (np.array([1, None, 2.5], object), [1, np.nan, 2.5]),
        (pd.Categorical([30, 4, None]), [0, 1, -1]),  # codes of "30" and "4"
        ([True, False, True], [1, 0, 1]),
        (pd.array([1, None, 3], dtype="int64[pyarrow]"), [1, np.nan, 3]),
        (np.array([1, 2, 3], np.uint8), [1, 2, 3]),
    ],
)
def test_pandas_types(values, expected):
    made = frame(pd.DataFrame({**COLUMNS, "a": values}), non_finite="keep")
    assert np.array_equal(made.X[:, 0], np.array(expected, np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, 3], pl.Int32, [1, np.nan, 3]),
        ([True, None, False], pl.Boolean, [1, np.nan, 0]),
        ([1, 2, 3], pl.Decimal(10, 2), [1, 2, 3]),
        ([2**64 - 1, 0, 1], pl.UInt64, [2.0**64, 0, 1]),
        ([2**90, None, 1], pl.Int128, [2.0**90, np.nan, 1]),
        ([None, None, None], pl.Null, [np.nan] * 3),
        ([None, None, None], pl.String, [-1] * 3),
        (["", None, ""], pl.String, [-1] * 3),
        ([None, None, None], pl.Categorical, [-1] * 3),
    ],
)
def test_polars_types(values, kind, expected):
    made = frame(
        pl.DataFrame({**COLUMNS, "a": values}, schema_overrides={"a": kind}), non_finite="keep"
    )
    assert np.array_equal(made.X[:, 0], np.array(expected, np.float32), equal_nan=True)
    assert made.categories == ({0: ()} if kind in (pl.String, pl.Categorical) else {})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.Categorical(["x", "x", "y"]), ["x", "x", "y"]),
        (pd.Categorical([5, 5, 6]), [5, 5, 6]),
        (pd.array([5, 5, 6], dtype="Int64"), [5, 5, 6]),
        ([5.0, 5.0, 6.0], [5, 5, 6]),
        (["5", "5", "6"], [5, 5, 6]),
        (["05", "05", "6"], ["05", "05", "6"]),
        (["5.0", "5.0", "6"], ["5.0", "5.0", "6"]),
        ([0.5, 2.0, 2.0], ["0.5", "2", "2"]),
        ([Decimal("2.00"), Decimal("2.00"), Decimal("0.50")], ["2", "2", "0.5"]),
        ([datetime.date(2024, 1, 1)] * 3, ["2024-01-01"] * 3),
    ],
)
def test_query_ids_of_all_types(values, expected):
    table = pd.DataFrame({**COLUMNS, "qid": values})
    assert frame(table).qid.tolist() == expected
    assert frame(pl.DataFrame({**COLUMNS, "qid": table["qid"].tolist()})).qid.tolist() == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1], r"List\(Int64\)"),
        ({"x": 1}, "Struct.*"),
        (b"a", "Binary"),
        (datetime.timedelta(1), "Duration.*"),
        (datetime.time(1), "Time"),
    ],
)
def test_types_that_are_no_query_ids(tmp_path, value, kind):
    columns = {**COLUMNS, "qid": [value] * 3}
    complaint = f"column 'qid' has query ids of type {kind}. Convert them to text or whole numbers."
    for make in (pl.DataFrame, pa.table):
        with pytest.raises(InputError, match=f"^The frame: {complaint}$"):
            frame(make(columns))
    path = tmp_path / "data.parquet"
    pl.DataFrame(columns).write_parquet(path)
    with pytest.raises(InputError, match=f"^{path}: {complaint}$"):
        load(path)


@pytest.mark.parametrize("value", [[1], {"x": 1}, datetime.timedelta(1)], ids=str)
def test_pandas_objects_that_are_no_query_ids(value):
    with pytest.raises(InputError, match=r"column 'qid' has query ids of type .*\. Convert them"):
        frame(pd.DataFrame({**COLUMNS, "qid": [value] * 3}))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["x", None, "z"], ["x", "", "z"]),
        (np.array(["x", np.nan, 3], object), ["x", "", "3"]),
        ([1, None, 3], ["1", "", "3"]),
        ([1.5, None, 3], ["1.5", "", "3.0"]),
        ([True, False, True], ["True", "False", "True"]),
    ],
)
def test_document_ids_of_all_types(values, expected):
    for make in (pd.DataFrame, pl.DataFrame):
        if make is pl.DataFrame and isinstance(values, np.ndarray):
            continue
        assert list(frame(make({**COLUMNS, "docid": values})).comments) == expected


LOSES = "whole numbers beyond 2^24, which lose digits as float32."


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("make", ALIKE)
def test_whole_numbers_that_lose_digits_are_noted(make, kind):
    large = [kind(1), kind(2**24), kind(2**24 + 1)]
    made = frame(make({**COLUMNS, "b": large, "c": [2**25, 2, 3], "d": [2.0**24 + 1.5, 0.1, 3]}))
    assert made.notes == (f"Feature 'b' has {LOSES}",)
    with_gap = {**COLUMNS, "a": [*large[1:], None], "label": large}
    assert frame(make(with_gap), non_finite="keep").notes == (
        f"Feature 'a' has {LOSES}",
        f"The labels have {LOSES}",
        "1 value is not a number (NaN).",
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**24 + 1, pl.Int32),
        (2**53 + 1, pl.Int64),
        (2**64 - 1, pl.UInt64),
        (2**24 + 1, pl.Int128),
        (2**24 + 1, pl.Decimal(20, 2)),
    ],
)
def test_polars_types_that_lose_digits(value, kind):
    for values in ([value, 1, 2], [value, None, 2]):
        column = pl.Series(values).cast(kind) if value < 2**63 else pl.Series(values, dtype=kind)
        made = frame(pl.DataFrame({**COLUMNS, "b": column}), non_finite="keep")
        assert made.notes[0] == f"Feature 'b' has {LOSES}"


@pytest.mark.parametrize("make", ALIKE)
def test_values_of_dropped_documents_are_not_noted(make):
    columns = {
        "qid": ["b", "a", "b", "a"],
        "label": [-1, 1, 2, 0],
        "large": [7, 1, 2, 3],
        "missing": [None, 1.0, 2.0, 3.0],
        "infinite": [np.inf, 1.0, 2.0, 3.0],
    }
    made = frame(make(columns), unjudged="drop", non_finite="keep")
    assert made.query_ids.tolist() == ["a", "b"]
    assert made.X[:, 0].tolist() == [1, 3, 2]
    assert made.notes == (
        "The rows of 1 query were scattered; they are now grouped.",
        "1 document without a judgement (label −1) was dropped.",
    )


def test_columns_that_are_rarely_features_are_noted(tmp_path):
    columns = {**COLUMNS, "Score": [1, 2, 3], "weight": [1, 1, 1], "position": [1, 2, 3]}
    result = (
        "Column {0!r} is used as a feature. If it is the result of an earlier ranking and unknown "
        "when documents are ranked, leave it out: ignore=[{0!r}]."
    )
    notes = (
        result.format("Score"),
        "Column 'weight' is used as a feature. If it holds weights, pass "
        "weight='weight'; ignore=['weight'] leaves it out.",
        result.format("position"),
    )
    table = pl.DataFrame(columns)
    made = frame(table)
    assert made.feature_names == ("a", "b", "Score", "weight", "position")
    assert made.notes == notes
    table.write_parquet(tmp_path / "data.parquet")
    for _ in range(2):  # read, then from the cache
        with pytest.warns(DataWarning) as said:
            load(tmp_path / "data.parquet")
        expected = [f"{tmp_path / 'data.parquet'}: {note}" for note in notes]
        assert [str(one.message) for one in said] == expected
    assert frame(table, features=["Score", "weight", "position"]).notes == ()
    assert frame(table, ignore=["Score", "position"], weight="weight").notes == ()


def test_scattered_queries(tmp_path):
    pl.DataFrame({**COLUMNS, "qid": [7, 9, 7]}).write_csv(tmp_path / "data.csv")
    for _ in range(2):  # read, then from the cache
        with pytest.warns(DataWarning, match=r"data.csv: The rows of 1 query were scattered"):
            made = load(tmp_path / "data.csv")
        assert made.qid.tolist() == [7, 7, 9]
        assert made.in_source_order(made.X).tolist() == X
        assert made.notes == ("The rows of 1 query were scattered; they are now grouped.",)


# CSV

HEADER = "qid,label,a,b\n"


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "7,0,0.5,1\n7,2,1.5,2\n9,1,2.5,3\n",
        HEADER + "7,0,0.5,1\n7,2,1.5,2\n9,1,2.5,3",
        "\ufeff" + HEADER + "7,0,0.5,1\n7,2,1.5,2\n9,1,2.5,3\n",
        (HEADER + "7,0,0.5,1\n7,2,1.5,2\n9,1,2.5,3\n").replace("\n", "\r\n"),
        "\n" + HEADER + "7,0,0.5,1\n\n7,2,1.5,2\n9,1,2.5,3\n\n\n",
        '"qid","label","a","b"\n"7","0","0.5","1"\n7,2,1.5,2\n9,1,2.5,3\n',
        HEADER + "7, 0, 0.5, 1\n7, 2, 1.5, 2\n9, 1, 2.5, 3\n",
        HEADER + "7,0e0,5e-1,1.\n7,+2,1.50,2\n9,1,2.5,3\n",
    ],
)
def test_csv_as_people_write_it(csv, text):
    made = csv(text)
    assert made.X.tolist() == X
    assert made.qid.tolist() == [7, 7, 9]
    assert made.y.tolist() == [0, 2, 1]
    assert made.feature_names == ("a", "b")


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "nan", "null", "N/A", " "])
def test_missing_values_in_csv(csv, missing):
    text = HEADER + f"7,0,0.5,1\n7,2,{missing},2\n"
    with pytest.raises(InputError, match=r"data.csv: column 'a' in row 2 is missing \(NaN\)"):
        csv(text)
    with pytest.warns(DataWarning, match="1 value is not a number"):
        assert np.isnan(csv(text, non_finite="keep").X[1, 0])


@pytest.mark.parametrize(
    ("last", "expected"), [("0.5", 0.5), ("1e-3", 0.001), (" 7", 7), ("99999999999999999999", 1e20)]
)
def test_numbers_of_another_kind_further_on(csv, last, expected):
    text = HEADER + "7,0,1,2\n" * 3000 + f"7,0,{last},2\n"
    if expected < 2**24:
        made = csv(text)
        assert made.notes == ()
    else:
        with pytest.warns(DataWarning, match="Feature 'a' has whole numbers beyond 2"):
            made = csv(text)
        assert made.notes == (f"Feature 'a' has {LOSES}",)
    assert made.X[-1, 0] == np.float32(expected)
    assert made.X[:-1].tolist() == [[1, 2]] * 3000


def test_text_further_on(csv):
    with pytest.raises(InputError, match="column 'a' contains 'x' in row 3001"):
        csv(HEADER + "7,0,1,2\n" * 3000 + "7,0,x,2\n")
    with pytest.raises(InputError, match="line 3002: 5 fields, but the header has 4"):
        csv(HEADER + "7,0,1,2\n" * 3000 + "7,0,1,2,3\n")


def test_large_whole_numbers_in_csv_are_noted(csv):
    for number in ("1700000000123", "1700000000123.0", "-16777217"):
        with pytest.warns(DataWarning, match="data.csv: Feature 'a' has whole numbers beyond 2"):
            assert csv(HEADER + f"7,0,{number},2\n").notes == (f"Feature 'a' has {LOSES}",)
    with pytest.warns(DataWarning, match="data.csv: The labels have whole numbers beyond 2"):
        assert csv(HEADER + "7,16777217,1,2\n").notes == (f"The labels have {LOSES}",)
    assert csv(HEADER + "7,16777216,16777218,16777217.5\n").notes == ()


def test_ids_in_csv_stay_as_they_are(csv):
    made = csv("qid,label,docid,a\n007,0,1e5,1\n010,1,0x1,2\n")
    assert made.qid.tolist() == ["007", "010"]
    assert made.docids.tolist() == ["1e5", "0x1"]
    assert csv("qid,label,a\n99999999999999999999,0,1\n").qid.tolist() == ["99999999999999999999"]


def test_line_breaks_within_quotes(csv):
    made = csv('qid,label,docid,"a\nb"\n1,0,"x\ny",2\n1,1,"say ""z""",3\n')
    assert made.feature_names == ("a\nb",)
    assert list(made.comments) == ["x\ny", 'say "z"']


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_rows_of_csv_are_counted(end, tmp_path):
    path = tmp_path / "x.csv"
    text = end.join(['\ufeffqid,"a ""b"', "", "1,2", ",", '"x\n",""', '"","', '"', "3,4"])
    for last in ("", end):
        path.write_bytes((text + last).encode())
        with opened(path) as source:
            assert sum(rows for _, rows in from_csv.whole_rows(source, ",")) == 4


def test_a_row_that_the_parser_loses_is_an_error(csv, monkeypatch):
    whole_rows = from_csv.whole_rows
    one_more = lambda *args: ((text, rows + 1) for text, rows in whole_rows(*args))  # noqa: E731
    monkeypatch.setattr(from_csv, "whole_rows", one_more)
    with pytest.raises(InputError, match="2 of 3 rows were read"):
        csv(HEADER + "7,0,1,2\n7,1,3,4\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "data.csv is empty"),
        ("\n\n", "data.csv is empty"),
        (HEADER, "data.csv has no documents.$"),
        (HEADER + "7,0,1,2\n7,1,3,4,5\n", "data.csv, line 3: 5 fields, but the header has 4"),
        (HEADER + "7,0,1,2\n\n7,1,3\n", "data.csv, line 4: 3 fields, but the header has 4"),
        (HEADER + '7,0,"1,2\n7,1,3,4\n', "data.csv, line 2, column 3: a quoted field .* not end"),
        (HEADER + '7,0,1"1,2\n', 'data.csv, line 2, column 3: a " in a field'),
        (HEADER + '7,0,"1"1,2\n', "data.csv, line 2, column 3: text after a closing quote"),
        (HEADER + "7,0,1,2\n7,0,1\0,2\n", "data.csv, line 3, column 3: a NUL byte"),
        (HEADER + "7,0,1,2\r7,0,1,2\n", "data.csv, line 2, column 4: a carriage return without"),
        ('label,qid,docid,7"\n0,1,a,1\n1,1,b,2\n0,2,7",3\n1,2,d,4\n', 'line 1, column 4: a "'),
        (HEADER.replace(",", ";") + "7;0;1;2\n", "by commas, but the header has semicolons: 'qid;"),
        (HEADER.replace(",", "\t") + "7\t0\t1\t2\n", "by commas, but the header has tabs"),
        ("qid,label,a,a\n7,0,1,2\n", "data.csv has two columns named 'a'"),
        (HEADER + "7,0,1,2\n7,1,x,4\n", "column 'a' contains 'x' in row 2, .*ignore"),
        (HEADER + "7,0,1,2\n7,,3,4\n", r"column 'label' in row 2 is missing"),
        (HEADER + "7,0,1,2\n7,high,3,4\n", "column 'label' contains 'high' in row 2"),
        (HEADER + "7,0,1,2\n,1,3,4\n", "row 2 has no query id in column 'qid'"),
        (HEADER + "7,0,1e400,2\n", "column 'a' in row 1 is infinite or too large"),
        ("qid,label,docid,a\n7,0,é,1\n".encode("latin-1"), "is not UTF-8 text; save it as UTF-8"),
        ((HEADER + "7,0,1,2\n").encode("utf-16"), "is not UTF-8 text; save it as UTF-8"),
        ("qid,label\n7,0\n", "no feature columns"),
    ],
)
def test_bad_csv_gets_a_clear_error(csv, text, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        csv(text)
    assert "\n" not in str(caught.value)


def test_a_tsv_has_tabs(csv):
    assert csv("qid\tlabel\ta\tdocid\n7\t0\t1\tx,y\n", "data.tsv").docids.tolist() == ["x,y"]
    with pytest.raises(InputError, match="separated by tabs, but the header has commas"):
        csv(HEADER, "data.tsv")


@pytest.mark.parametrize("form", [".csv.gz", ".parquet", ".feather", ".arrow"])
@pytest.mark.parametrize("content", [b"", b"this is something else", bytes(range(256))])
def test_files_that_are_not_what_they_say(csv, form, content):
    with pytest.raises(InputError, match="data") as caught:
        csv(content, f"data{form}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", [".parquet", ".feather"])
def test_columns_of_lists_are_refused(tmp_path, form):
    table = pl.DataFrame({**COLUMNS, "a": [[1, 2], [3], []]})
    (table.write_parquet if form == ".parquet" else table.write_ipc)(tmp_path / f"data{form}")
    with pytest.raises(InputError, match=r"column 'a' contains \[1, 2\] in row 1"):
        load(tmp_path / f"data{form}")


def test_polars_is_asked_for_where_it_is_needed(monkeypatch, csv):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        InputError, match=r"needs polars; install it with pip install 'twinrank\[frames\]'"
    ):
        csv(HEADER + "7,0,1,2\n")


# Round trips


def check_round_trips(data, forms):
    """The data is the same after it was saved and read in each form, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        now = data
        for form in forms:
            now.save(f"{folder}/data{form}")
            now = quietly(f"{folder}/data{form}")
            assert_same(data, now)


@settings(max_examples=30)
@given(datasets(), st.permutations(FORMS))
def test_every_form_into_every_other(data, forms):
    check_round_trips(data, forms)


anything = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


@settings(max_examples=30)
@given(datasets(st.floats(width=32), letters=anything), st.permutations((*FRAMES, "")))
def test_ids_of_any_letters_and_values_of_any_kind(data, forms):
    check_round_trips(data, forms)


@settings(max_examples=10)
@given(datasets(), st.sampled_from(FORMS))
def test_the_cache_keeps_everything(data, form):
    with tempfile.TemporaryDirectory() as folder:
        data.save(f"{folder}/data{form}")
        for _ in range(2):
            read = quietly(f"{folder}/data{form}", cache=True, cache_dir=f"{folder}/cache")
            assert_same(data, read)


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_float_keeps_its_bits(tmp_path, form):
    random = np.random.default_rng(0).integers(0, 2**32, (4_000, 3), np.uint32)
    values = random.view(np.float32)
    labels = np.abs(values[:, 0])
    labels[~np.isfinite(labels)] = 0.1
    data = Dataset.from_arrays(values, labels, group=[4_000], non_finite="keep")
    data.save(tmp_path / f"data{form}")
    read = quietly(tmp_path / f"data{form}")
    assert np.array_equal(bits(read.X), bits(values))
    assert np.array_equal(bits(read.y), bits(labels))


@pytest.mark.parametrize("form", FORMS)
def test_a_selection_is_saved_as_it_is(tmp_path, form):
    data = Dataset.from_arrays(np.arange(8)[:, None], np.arange(8), group=[2, 3, 3])
    chosen = data.select([2, 0])
    chosen.save(tmp_path / f"data{form}")
    assert_same(chosen, load(tmp_path / f"data{form}"))


def test_many_blocks_are_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr("twinrank.data.batches._BLOCK", 50)
    data = Dataset.from_arrays(np.arange(300).reshape(100, 3), np.arange(100), group=[10] * 10)
    for form in ("", ".csv"):
        data.save(tmp_path / f"data{form}")
        assert_same(data, load(tmp_path / f"data{form}"))
    assert (tmp_path / "data.csv").read_text().count("qid") == 1


def test_what_a_form_cannot_hold_is_refused(tmp_path):
    X, y = np.zeros((3, 1)), [0, 1, 2]
    make = Dataset.from_arrays
    for data, name, complaint in (
        (
            make(X, y, qid=["a b"] * 3),
            "x.txt",
            "query id 'a b' is empty, too long, or contains blanks or '#'",
        ),
        (
            make(X, y, qid=["a#b"] * 3),
            "x.txt",
            "query id 'a#b' is empty, too long, or contains blanks or '#'",
        ),
        (make(X, y, qid=[""] * 3), "x.txt", "query id '' is empty"),
        (make(X, y, group=[3], docids=["a\nb"] * 3), "x.txt", "line break"),
        (
            make(X, y, group=[3], feature_names=["rel"]),
            "x.csv",
            "would read feature 'rel' as the label",
        ),
        (
            make(X, y, group=[3], feature_names=["doc id"]),
            "x.parquet",
            "feature 'doc id' as the docid",
        ),
        (make(X, y, group=[3], feature_names=[""]), "x.feather", "feature '' as the index"),
        (make(X, y, group=[2, 0, 1]), "x.csv", "some queries have no documents"),
        (make(X, y, group=[2, 1]).select([0, 1, 0]), "x.txt", "query 0 is selected twice"),
        (make(X, y, group=[3]), "x.xlsx", "'.xlsx' is not a known format; choose from .txt"),
        (make(X, y, group=[3]), "x.gz", "'.gz' is not a known format"),
        (make(X, y, group=[3]), "x.parquet.gz", ".parquet files are compressed already"),
        (make(X, y, group=[3]), "nowhere/x.csv", "the folder .*nowhere does not exist"),
    ):
        with pytest.raises(InputError, match=f"^Can't write .*{name}: .*{complaint}"):
            data.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_replaced_only_as_a_whole(tmp_path):
    data = Dataset.from_arrays([[1.0]], [1], qid=["a b"])
    (tmp_path / "x.txt").write_text("precious")
    with pytest.raises(InputError):
        data.save(tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text() == "precious"
    with pytest.raises(InputError, match="exists and is not TwinRank data"):
        data.save(tmp_path)
    data.save(Path(tmp_path / "x"))
    data.save(tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "x.txt"]


def test_a_long_query_id_takes_no_memory_for_the_others(csv):
    rows = "".join(f"q{i // 5},0,1,2\n" for i in range(5_000))
    with PeakMemory() as before:
        pass
    with pytest.raises(InputError, match=r"Query id 'xxx.* has 50,000 characters; shorten it"):
        csv(HEADER + rows + "x" * 50_000 + ",0,1,2\n")
    with PeakMemory() as after:
        pass
    assert after.bytes - before.bytes < 300e6  # an array of 5,001 such texts has 1 GB


def test_integers_of_128_bits():
    wide = pl.Series([1, 2**100], dtype=pl.Int128)
    made = frame(pl.DataFrame({"qid": wide, "label": [0, 1], "a": wide}))
    assert made.qid.tolist() == ["1", str(2**100)]
    assert made.X.ravel().tolist() == [1, 2.0**100]


@pytest.mark.parametrize("column", ["qid", "a", "docid"])
def test_a_date_beyond_the_calendar_is_an_error(column, capfd):
    damaged = pl.Series([1, 2**60]).cast(pl.Datetime("ms"))
    columns = {"qid": [1, 1], "label": [0, 1], "docid": ["x", "y"], "a": [1, 2], column: damaged}
    with pytest.raises(InputError, match=f"can't read column '{column}': .*overflow"):
        frame(pl.DataFrame(columns))
    capfd.readouterr()


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_categories_that_look_like_numbers_are_kept(tmp_path, suffix):
    frame = pd.DataFrame({"qid": [1, 1, 2], "label": [1, 0, 1]})
    frame["shelf"] = pd.Categorical([1000, None, 20])
    data = Dataset.from_frame(frame)
    assert data.categories == {0: ("1000", "20")}
    data.save(tmp_path / f"data{suffix}")
    again = load(tmp_path / f"data{suffix}")
    assert again.categories == data.categories
    assert np.array_equal(again.X, data.X)
    with pytest.raises(InputError, match=r"'shelf' has the category '1000', which `load` would"):
        data.save(tmp_path / "data.csv")
    assert not (tmp_path / "data.csv").exists()


def test_a_query_may_be_called_nan(tmp_path):
    (tmp_path / "data.csv").write_text("query,label,x\nnan,1,0.5\nnan,0,0.1\nNaT,1,0.2\n")
    assert load(tmp_path / "data.csv", cache=False).query_ids.tolist() == ["nan", "NaT"]
