"""The dataset object: what arrays become, how queries are chosen, and what is said about it all."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankings import assert_same, datasets
from twinrank import Dataset, DataWarning, InputError, Lists, load

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 0, 1], np.float32)
QID = np.array([7, 7, 7, 9, 9, 4])
arrays = Dataset.from_arrays


@pytest.fixture
def data():
    return arrays(X, Y, qid=QID, docids=[f"d{i}" for i in range(6)], feature_names=["a", "b"])


# From arrays


def test_what_a_dataset_has(data):
    assert (data.queries, data.documents, data.features) == (3, 6, 2)
    assert data.X.dtype == data.y.dtype == np.float32
    assert data.X.flags.c_contiguous
    assert np.array_equal(data.X, X)
    assert np.array_equal(data.y, Y)
    assert np.array_equal(data.qid, QID)
    assert data.query_ids.tolist() == [7, 9, 4]
    assert data.lists == Lists.from_sizes([3, 2, 1])
    assert data.docids.tolist() == ["d0", "d1", "d2", "d3", "d4", "d5"]
    assert data.feature_names == ("a", "b")
    assert data.notes == ()
    assert repr(data) == "Dataset(3 queries, 6 documents, 2 features)"


def test_features_in_float32_are_not_copied():
    assert np.shares_memory(arrays(X, Y, qid=QID).X, X)


@pytest.mark.parametrize(
    "given",
    [
        X.tolist(),
        X.astype(np.float64),
        X.astype(np.float16),
        X.astype(np.int64),
        np.asfortranarray(X),
        X[::-1][::-1],
        torch.from_numpy(X),
        pd.DataFrame(X),
        scipy.sparse.csr_matrix(X),
        scipy.sparse.csc_array(X.astype(np.int64)),
        scipy.sparse.coo_array(X),
        np.ma.masked_array(X, np.zeros_like(X)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_matrices_of_all_kinds(given):
    made = arrays(given, Y, qid=QID)
    assert np.array_equal(made.X, X)
    assert made.X.dtype == np.float32
    assert made.X.flags.c_contiguous


def test_booleans_are_numbers():
    assert arrays([[True], [False]], [True, False], qid=[1, 1]).X.tolist() == [[1.0], [0.0]]


def test_group_numbers_the_queries():
    made = arrays(X, Y, group=[2, 0, 4])
    assert made.query_ids.tolist() == [0, 1, 2]
    assert made.lists.sizes.tolist() == [2, 0, 4]
    assert arrays(X, Y, group=[6, 0]).queries == 2
    assert arrays(X, Y, group=[2.0, 0.0, 4.0]).lists == made.lists


@pytest.mark.parametrize(
    ("qid", "expected"),
    [
        (["7", "7", "7", "9", "9", "4"], [7, 9, 4]),
        ([7.0, 7.0, 7.0, 9.0, 9.0, 4.0], [7, 9, 4]),
        (["07", "07", "07", "9", "9", "4"], ["07", "9", "4"]),
        ([b"a", b"a", b"a", b"b", b"b", b"c"], ["a", "b", "c"]),
        ([0.5, 0.5, 0.5, 1.0, 1.0, 2.0], ["0.5", "1", "2"]),
        (pd.Series([0.5, 0.5, 0.5, 1.0, 1.0, 2.0]), ["0.5", "1", "2"]),
        (np.array([2, 2.0, "2", 3, Decimal("3.0"), "03"], object), ["2", "3", "03"]),
        (np.array([2**64 - 1] * 5 + [1], np.uint64), ["18446744073709551615", "1"]),
        (np.array([2**63 - 1] * 5 + [-(2**63)]), [2**63 - 1, -(2**63)]),
        (pd.Series([7, 7, 7, 9, 9, 4], dtype="Int64"), [7, 9, 4]),
        (np.array([7, 7, 7, "x", "x", 4], object), ["7", "x", "4"]),
    ],
)
def test_query_ids_are_whole_numbers_or_text(qid, expected):
    assert arrays(X, Y, qid=qid).query_ids.tolist() == expected


def test_without_labels_everything_is_unjudged():
    assert arrays(X, qid=QID).y.tolist() == [-1.0] * 6


def test_a_comment_may_hold_the_document_id():
    comments = ["docid = GX1-2 inc = 1", " padded ", "", "docid=3", "x", "mydocid = 4"]
    made = arrays(X, Y, qid=QID, docids=comments)
    assert made.docids.tolist() == ["GX1-2", "padded", "", "3", "x", "mydocid = 4"]
    assert list(made.comments) == comments


def test_empty_document_ids_are_none():
    assert arrays(X, Y, qid=QID, docids=[""] * 6).docids is None


def test_features_called_by_number_have_no_names():
    assert arrays(X, Y, qid=QID, feature_names=["1", "2"]).feature_names is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"X": [[1], [1, 2]]}, "X can't be converted to an array"),
        ({"X": [1.0, 2.0]}, r"X must be a matrix, but it has shape \(2,\)\. Reshape your data"),
        ({"X": [["a", "b"]] * 6}, "X must be a matrix of numbers, not <U1"),
        ({"X": X.astype(complex)}, "Complex data not supported: X is complex128"),
        ({"X": pd.DataFrame({"a": ["1", "x"] * 3})}, "X: column 'a' contains 'x' in row 2, which"),
        ({"X": pd.DataFrame(index=range(6))}, r"X has 0 feature\(s\) \(shape=\(6, 0\)\)"),
        ({"X": np.zeros((0, 2))}, r"X is empty: its shape is \(0, 2\)"),
        ({"X": np.zeros((6, 0))}, r"X has 0 feature\(s\) \(shape=\(6, 0\)\)"),
        ({"y": Y[:5]}, r"y has shape \(5,\) but X has 6 rows"),
        ({"y": Y[:, None]}, r"y has shape \(6, 1\) but X has 6 rows"),
        ({"y": [0, 1, None, 0, 0, 1]}, r"y\[2\] is missing \(NaN\), but a label must be a finite"),
        ({"y": [0, 1, np.inf, 0, 0, 1]}, r"y\[2\] is infinite"),
        ({"y": [0, 1e300, 0, 0, 0, 1]}, r"y\[1\] is 1e\+300"),
        ({"y": [0, 1, 2, -0.5, 0, 1]}, r"y\[3\] is -0.5"),
        ({"y": ["a"] * 6}, "y must be numbers, not <U1"),
        ({"y": ["a", None, 1, 2, 3, 4]}, "y contains the text 'a'. Encode it as a number"),
        (
            {"y": [0, -1, 2, 0, 0, 1]},
            r"y\[1\] is −1, which means unjudged. Pass unjudged='keep' .* unjudged='drop'",
        ),
        (
            {"y": [-1] * 6, "unjudged": "drop"},
            "no documents except 6 unjudged ones .* unjudged='drop' leaves out",
        ),
        ({"unjudged": "kep"}, "Unknown unjudged 'kep'. Did you mean 'keep'"),
        ({"non_finite": "nan"}, "Unknown non_finite 'nan'. Choose from error, keep, clip"),
        ({"qid": None}, "Pass either qid .* or group"),
        ({"group": [6]}, "Pass either qid .* or group"),
        ({"qid": QID[:5]}, "qid has 5 ids but X has 6 rows"),
        ({"qid": QID[:, None]}, "qid must have one dimension"),
        ({"qid": np.arange(6).astype("m8[s]")}, "query ids of type .*. Convert them to text"),
        ({"qid": np.array([[1], [2], None, 3, 4, 5], object)}, r"qid\[2\] is missing"),
        ({"qid": pl.Series([[1]] * 6)}, r"query ids of type List\(Int64\). Convert them to text"),
        ({"qid": pl.Series([b"a"] * 6)}, "query ids of type Binary. Convert them to text"),
        ({"qid": [1, None, 1, 2, 2, 3]}, r"qid\[1\] is missing; every row needs a query id"),
        ({"qid": [1, np.nan, 1, 2, 2, 3]}, r"qid\[1\] is missing; every row needs a query id"),
        (
            {"qid": pd.Series([1, None, 1, 2, 2, 3], dtype="Int64")},
            r"qid\[1\] is missing; every row needs a query id",
        ),
        ({"qid": None, "group": [2, 2]}, "group adds up to 4 documents, but X has 6"),
        ({"qid": None, "group": [7, -1]}, "group: sizes must not be negative"),
        ({"qid": None, "group": [1.5, 4.5]}, "group: sizes must be whole numbers"),
        ({"docids": ["a"]}, "docids has 1 id but X has 6 rows"),
        ({"feature_names": ["a"]}, "feature_names has 1 name but X has 2 columns"),
        ({"feature_names": ["a", "a"]}, "feature_names contains 'a' twice"),
    ],
)
def test_bad_arrays_get_a_clear_error(change, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        arrays(**{"X": X, "y": Y, "qid": QID, **change})
    assert str(caught.value).endswith((".", "?"))


def test_values_that_are_not_finite():
    odd = X.astype(np.float64)
    odd[2, 1], odd[4, 0], odd[5, 1] = np.nan, 1e300, -np.inf
    given = odd.copy()
    with pytest.raises(InputError, match=r"X\[2, 1\] \('b'\) is missing \(NaN\), .*'keep' or"):
        arrays(odd, Y, qid=QID, feature_names=["a", "b"])
    with pytest.raises(InputError, match=r"X\[0, 0\] is infinite or too large, but a feature must"):
        arrays(odd[4:], Y[4:], qid=QID[4:])
    kept = arrays(odd, Y, qid=QID, non_finite="keep")
    assert np.isnan(kept.X[2, 1])
    assert kept.X[4, 0] == np.inf
    notes = ("1 value is not a number (NaN).", "2 values are beyond a float32's range.")
    assert kept.notes == notes
    clipped = arrays(odd, Y, qid=QID, non_finite="clip")
    assert np.isnan(clipped.X[2, 1])
    assert clipped.X[4, 0] == -clipped.X[5, 1] == np.finfo(np.float32).max
    assert np.array_equal(odd, given, equal_nan=True), "the caller's array was changed"


def test_clipping_leaves_the_callers_array_alone():
    given = np.array([[np.inf], [1]], np.float32)
    assert arrays(given, [0, 1], group=[2], non_finite="clip").X[0, 0] < np.inf
    assert given[0, 0] == np.inf


def test_masked_values_are_missing():
    masked = np.ma.masked_array(X, X == 3)
    with pytest.raises(InputError, match=r"X\[1, 1\] is missing"):
        arrays(masked, Y, qid=QID)


LOSES = "whole numbers beyond 2^24, which lose digits as float32."


@pytest.mark.parametrize(
    "kind", [np.int32, np.uint32, np.int64, np.uint64, np.float64, np.longdouble, object]
)
def test_whole_numbers_that_lose_digits_are_noted(kind):
    large = np.array([[1, 2**24], [2, 2**24 + 1]]).astype(kind)
    assert arrays(large, [0, 1], group=[2]).notes == (f"Feature 1 has {LOSES}",)
    named = arrays(large, [0, 1], group=[2], feature_names=["a", "b"])
    assert named.notes == (f"Feature 'b' has {LOSES}",)
    assert arrays(large[::-1], large[:, 1], group=[2]).notes == (
        f"Feature 1 has {LOSES}",
        f"The labels have {LOSES}",
    )
    assert arrays(-large[:, 1:].astype(np.int64), [0, 1], group=[2]).notes != ()
    assert arrays(large[:1], [2**24], group=[1]).notes == ()


def test_numbers_that_are_not_whole_lose_digits_without_a_note():
    assert arrays([[2.0**24 + 1.5], [0.1]], [2.0**24 + 0.5, 0.1], group=[2]).notes == ()
    assert arrays(np.array([[2**24 + 1]], np.float32), [1], group=[1]).notes == ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**31 - 1, np.int32),
        (2**32 - 1, np.uint32),
        (2**53 + 1, np.int64),
        (2**63 - 1, np.int64),
        (-(2**63) + 1, np.int64),
        (2**64 - 1, np.uint64),
        (2**53 + 1, object),
    ],
)
def test_the_largest_integers_lose_digits(value, kind):
    for rows in (1, 100):  # NumPy converts many values in another way than few
        many = np.full((rows, 3), value, kind)
        made = arrays(many, [0] * rows, group=[rows])
        assert made.notes == tuple(f"Feature {i} has {LOSES}" for i in range(3))


@pytest.mark.parametrize("value", [2**63, -(2**63), 2**127, 3 * 2**40])
def test_large_integers_that_float32_holds(value):
    assert arrays(np.array([[value], [1]]), [0, 1], group=[2]).notes == ()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_of_dropped_documents_are_not_noted(value):
    labels = [-1, 1, -1, 0]
    made = arrays(
        np.array([[value], [5], [6], [7]]),
        labels,
        qid=["a", "b", "a", "a"],
        unjudged="drop",
        non_finite="keep",
    )
    assert made.query_ids.tolist() == ["b", "a"]
    assert made.X.ravel().tolist() == [5, 7]
    assert made.notes == ("2 documents without a judgement (label −1) were dropped.",)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_with_arrays_beside_them(make):
    table = make({"b": [1.5, 2.5, 3.5], "color": ["red", "blue", "red"]})
    made = arrays(table, make({"label": [2, 0, 1]}), qid=["x", "x", "y"])
    assert made.X.tolist() == [[1.5, 0], [2.5, 1], [3.5, 0]]
    assert made.y.tolist() == [2, 0, 1]
    assert made.feature_names == ("b", "color")
    assert made.categories == {1: ("red", "blue")}
    renamed = arrays(table, [2, 0, 1], group=[3], feature_names=["c", "d"])
    assert renamed.feature_names == ("c", "d")
    assert np.array_equal(renamed.X, made.X)
    with pytest.raises(InputError, match=r"X\[1, 0\] \('b'\) is missing \(NaN\)"):
        arrays(make({"b": [1.5, None, 3.5]}), [2, 0, 1], group=[3])
    with pytest.raises(InputError, match=r"y has shape \(3, 2\) but X has 3 rows"):
        arrays(table, make({"label": [2, 0, 1], "other": [0, 0, 0]}), group=[3])


# Scattered queries


def test_scattered_queries_are_put_together():
    qid = ["b", "a", "b", "c", "a", "b"]
    made = arrays(X, Y, qid=qid, docids=list("012345"))
    assert made.query_ids.tolist() == ["b", "a", "c"]
    assert made.docids.tolist() == list("025143")
    assert made.notes == ("The rows of 2 queries were scattered; they are now grouped.",)
    assert np.array_equal(made.in_source_order(made.X), X)
    assert made.in_source_order(made.qid).tolist() == qid
    assert made.in_source_order(list(made.y)).tolist() == Y.tolist()
    assert made.in_source_order(torch.from_numpy(made.y.copy())).tolist() == Y.tolist()


def test_source_order_without_the_dropped():
    labels = [1, -1, 0, 2, -1, 3]
    made = arrays(X, labels, qid=[5, 6, 7, 5, 7, 5], unjudged="drop")
    assert made.query_ids.tolist() == [5, 7]
    assert made.in_source_order(made.y).tolist() == [1, 0, 2, 3]
    assert made.in_source_order(made.X).tolist() == X[[0, 2, 3, 5]].tolist()
    assert made.notes == (
        "The rows of 1 query were scattered; they are now grouped.",
        "2 documents without a judgement (label −1) were dropped.",
    )


def test_source_order_needs_all_documents(data):
    with pytest.raises(InputError, match=r"values has shape \(5,\) but the dataset has 6 doc"):
        data.in_source_order(np.zeros(5))
    with pytest.raises(InputError, match="A selection has no source order"):
        data.select([0]).in_source_order(np.zeros(3))
    assert np.array_equal(data.in_source_order(Y), Y)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_any_order_comes_back(qid):
    made = arrays(np.arange(len(qid))[:, None], np.zeros(len(qid)), qid=qid)
    assert made.in_source_order(made.X)[:, 0].tolist() == list(range(len(qid)))
    assert made.in_source_order(made.qid).tolist() == qid
    for where in made.lists:  # stable within a query
        assert (np.diff(made.X[where, 0]) > 0).all()


# Selecting


def test_select_by_numbers_mask_and_slice(data):
    assert data.select([2, 0]).query_ids.tolist() == [4, 7]
    assert data.select([2, 0]).X.tolist() == X[[5, 0, 1, 2]].tolist()
    assert data.select([2, 0]).docids.tolist() == ["d5", "d0", "d1", "d2"]
    assert data.select([False, True, True]).query_ids.tolist() == [9, 4]
    assert data.select(slice(None, None, -1)).query_ids.tolist() == [4, 9, 7]
    assert data.select([-1]).y.tolist() == [1.0]
    assert data.select(torch.tensor([1])).query_ids.tolist() == [9]
    assert data.select([1, 1]).y.tolist() == [0.0] * 4


def test_neighbours_share_memory(data):
    assert np.shares_memory(data.select(slice(1, 3)).X, X)
    assert np.shares_memory(data.select([0, 1]).X, X)
    assert np.shares_memory(data.select([0, 1]).select([1]).X, X)
    assert not np.shares_memory(data.select([0, 2]).X, X)
    assert data.select([0, 2]).X.flags.c_contiguous


@pytest.mark.parametrize(
    ("queries", "complaint"),
    [
        ([3], "index 3 is out of bounds .* there are 3 queries"),
        ([True], "boolean index did not match"),
        ([0.5], "must be of integer"),
        ("a", "must be of integer"),
        (1, "select takes a one-dimensional array of query numbers"),
        ([[0]], "select takes a one-dimensional array of query numbers"),
    ],
)
def test_bad_selections(data, queries, complaint):
    with pytest.raises(InputError, match=complaint):
        data.select(queries)


@given(datasets(), st.data())
def test_selections_compose(data, draw):
    numbers = st.integers(0, data.queries - 1)
    first = draw.draw(st.lists(numbers, min_size=1, max_size=6))
    second = draw.draw(st.lists(st.integers(0, len(first) - 1), max_size=6))
    twice = data.select(first).select(second)
    assert_same(twice, data.select(np.array(first)[second]))
    pieces = [slice(*data.lists.offsets[first[i] : first[i] + 2]) for i in second]
    rows = np.concatenate([np.arange(data.documents)[piece] for piece in pieces] or [[]])
    assert np.array_equal(twice.y, data.y[rows.astype(int)])
    assert np.array_equal(twice.qid, data.qid[rows.astype(int)])
    if twice.comments is not None:
        assert list(twice.comments) == [data.comments[i] for i in rows.astype(int)]


def test_filter(data):
    assert data.filter().queries == 3
    assert data.filter(min_documents=2).query_ids.tolist() == [7, 9]
    assert data.filter(min_relevant=1).query_ids.tolist() == [7, 4]
    assert data.filter(min_relevant=1, relevant=2).query_ids.tolist() == [7]
    assert data.filter(min_relevant=2, min_documents=3).query_ids.tolist() == [7]
    assert arrays(X, Y, group=[2, 0, 4]).filter().query_ids.tolist() == [0, 2]


def test_nothing_left_is_still_a_dataset(data):
    for empty in (data.filter(min_documents=9), data.select([]), data.select([False] * 3)):
        assert (empty.queries, empty.documents) == (0, 0)
        assert empty.X.shape == (0, 2)
        assert empty.y.size == empty.qid.size == empty.docids.size == 0
        assert "documents per query  none" in str(empty)
        assert list(empty.batches(5)) == []
        with pytest.raises(InputError, match="the dataset has no documents"):
            empty.save("nothing.csv")


def test_take_copies_queries_into_one_matrix(data):
    out = np.empty((4, 2), np.float32)
    assert data.take([2, 0], out=out) is out
    assert out.tolist() == X[[5, 0, 1, 2]].tolist()
    assert not np.shares_memory(data.take(np.array([0])), X)


# What is said about it


def test_printing_tells_what_one_has():
    labels = [0, 1, 2, 0, 0, -1]
    values = np.array([[1, 0], [1, np.nan], [1, 3], [1, 4], [1, np.inf], [1, 6]])
    made = arrays(
        values,
        labels,
        qid=[3, 1, 1, 3, 3, 1],
        docids=["docid = x1", *"abcde"],
        feature_names=["bias", "bm25"],
        unjudged="keep",
        non_finite="keep",
    )
    lines = str(made).splitlines()
    assert lines == [
        "queries              2",
        "documents            6",
        "features             2",
        "feature names        bias, bm25",
        "memory               48 bytes for the features, as float32",
        "documents per query  3 to 3, mean 3.0, median 3, middle half 3 to 3",
        "labels               -1: 16.7%, 0: 50.0%, 1: 16.7%, 2: 16.7%",
        "unjudged             1 document (16.7%)",
        "nothing relevant     1 query (50.0%)",
        "feature values       0 to 6",
        "constant features    1 of 2: bias",
        "missing values       1, in 1 feature",
        "infinite values      1",
        "document ids         such as x1",
        "note                 1 value is not a number (NaN).",
        "note                 1 value is beyond a float32's range.",
        "note                 The rows of 2 queries were scattered; they are now grouped.",
    ]


def test_the_summary_of_columns_of_text():
    frame = pl.DataFrame(
        {"qid": [1] * 4, "label": [0, 1, 0, 1], "price": [3.0, 0.0, 2.0, 7.0],
         "brand": ["a", None, "b", "a"], "shop": ["x"] * 4}
    )  # fmt: skip
    facts = Dataset.from_frame(frame).summary
    assert (facts.categorical_features, facts.constant_features) == (["brand", "shop"], ["shop"])
    assert (facts.missing_values, facts.missing) == (1, [0, 0.25, 0])
    assert facts.filled == [0.75, 0.75, 1]
    assert facts.value_range == (0, 7)
    assert "categorical          2 of 3: brand, shop" in str(facts)


def test_the_summary_is_plain_json():
    made = arrays(np.full((6, 2), np.nan), Y, qid=QID, non_finite="keep")
    facts = json.loads(json.dumps(made.summary.to_json(), allow_nan=False))
    assert facts["value_range"] is None
    assert facts["constant_features"] == ["1", "2"]
    assert facts["missing_values"] == 12
    assert facts["labels"] == {"0": 0.5, "1": 2 / 6, "2": 1 / 6}
    assert facts["lengths"]["mean"] == 2.0


def test_labels_that_differ_by_little_or_are_many():
    near = np.array([0.1234567, 0.12345671, 0, 0, 0, 1], np.float32)
    shares = arrays(X, near, qid=QID).summary.labels
    assert sum(shares.values()) == pytest.approx(1)
    assert len(shares) == np.unique(near).size == 4
    many = arrays(np.zeros((1000, 1)), np.linspace(0, 4, 1000), group=[1000])
    assert many.summary.labels == {}
    assert "labels               1,000 different ones, 0 to 4" in str(many)


def test_constant_features_of_a_selection(data):
    assert data.summary.constant_features == []
    assert data.select([2]).summary.constant_features == ["a", "b"]
    half = arrays([[1.0], [np.nan]], [0, 1], group=[2], non_finite="keep")
    assert half.summary.constant_features == []


def test_a_saved_folder_is_read_under_the_choices_of_the_reader(tmp_path):
    saved = Dataset.from_arrays(
        [[1.0], [np.nan], [3.0]], [1, -1, 0], group=[2, 1], unjudged="keep", non_finite="keep"
    )
    saved.save(tmp_path / "folder")
    with pytest.raises(InputError, match="non_finite='keep'"):
        load(tmp_path / "folder", unjudged="keep")
    with pytest.raises(InputError, match="unjudged='drop'"):
        load(tmp_path / "folder", non_finite="keep")
    kept = load(tmp_path / "folder", unjudged="keep", non_finite="keep")
    assert kept.y.tolist() == [1, -1, 0]
    with pytest.warns(DataWarning) as said:
        assert load(tmp_path / "folder", unjudged="drop", non_finite="keep").y.tolist() == [1, 0]
    dropped = "1 document without a judgement (label −1) was dropped."
    assert [str(one.message) for one in said] == [f"{tmp_path / 'folder'}: {dropped}"]
    for name, value in (("ignore", ["1"]), ("label", False), ("features", 1), ("query", "q")):
        with pytest.raises(InputError, match=f"saved dataset, whose .* are fixed; remove {name}"):
            load(tmp_path / "folder", unjudged="keep", non_finite="keep", **{name: value})


def test_repeated_and_empty_queries_survive_other_choices(tmp_path):
    data = Dataset.from_arrays(
        [[1.0], [2.0], [3.0], [np.inf]],
        [1, -1, 0, 1],
        qid=[7, 7, 8, 8],
        unjudged="keep",
        non_finite="keep",
    )
    data.select([1, 0, 1]).save(tmp_path / "folder")
    with pytest.warns(DataWarning):
        clipped = load(tmp_path / "folder", unjudged="keep", non_finite="clip")
    assert clipped.query_ids.tolist() == [8, 7, 8]
    assert clipped.lists.sizes.tolist() == [2, 2, 2]
    with pytest.warns(DataWarning):
        judged = load(tmp_path / "folder", unjudged="drop", non_finite="clip")
    assert judged.query_ids.tolist() == [8, 7, 8]
    assert judged.X[[0, 2, 3], 0].tolist() == [3, 1, 3]
