"""Small datasets for property tests, and what it means that two are the same."""

import warnings

import numpy as np
from hypothesis import strategies as st

from twinrank import Dataset, DataWarning, load

FRAMES = (".csv", ".tsv", ".parquet", ".feather", ".csv.zst")
FORMS = (*FRAMES, "", ".txt", ".txt.gz", ".svm.xz")
EXTREMES = (0.0, -0.0, 1e-45, -1.1754942e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 0.1)

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r")
in_letor = st.characters(exclude_categories=["Cs"], exclude_characters="#", min_codepoint=33)
values = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(EXTREMES)
labels = st.integers(0, 4).map(float) | st.floats(0, 5, width=32) | st.just(-1.0)
comments = st.text(characters, max_size=12) | st.sampled_from(
    ["", " x", "docid = GX1 inc = 1", 'a "b", c', "#", "ünï", "1", "NA", "''", ",", "\t", '"']
)
feature_names = st.text(characters, min_size=1, max_size=6).map("f{}".format)


def query_ids(letters=in_letor):
    """Ids of one kind: whole numbers, numbers with zeros before them, or text."""
    numbers = st.integers(-(2**63), 2**63 - 1)
    padded = st.integers(0, 20).map("{:03}".format)
    texts = st.text(letters, min_size=1, max_size=8)
    return st.one_of(
        st.lists(kind, min_size=1, max_size=5, unique=True) for kind in (numbers, padded, texts)
    )


@st.composite
def datasets(draw, numbers=values, letters=in_letor, named=True):
    ids = draw(query_ids(letters))
    group = draw(st.lists(st.integers(1, 4), min_size=len(ids), max_size=len(ids)))
    documents, features = sum(group), draw(st.integers(1, 4))
    several = {"min_size": documents, "max_size": documents}
    X = [draw(st.lists(numbers, min_size=features, max_size=features)) for _ in range(documents)]
    names = st.lists(feature_names, min_size=features, max_size=features, unique=True)
    return Dataset.from_arrays(
        np.array(X, np.float32),
        np.array(draw(st.lists(labels, **several)), np.float32),
        qid=np.repeat(ids, group),
        docids=draw(st.none() | st.lists(comments, **several)),
        feature_names=draw(st.none() | names) if named else None,
        unjudged="keep",
        non_finite="keep",
    )


def quietly(path, **choices):
    """Load data, whatever is in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return load(path, **{"unjudged": "keep", "non_finite": "keep", "cache": False, **choices})


def bits(x):
    """Floats by their bits, with one pattern for all that are not a number."""
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32)


def assert_same(one, other):
    """The same data, to the last bit."""
    assert np.array_equal(bits(one.X), bits(other.X))
    assert np.array_equal(bits(one.y), bits(other.y))
    assert one.lists == other.lists
    assert one.query_ids.tolist() == other.query_ids.tolist()
    assert (one.comments is None) == (other.comments is None)
    if one.comments is not None:
        assert list(one.comments) == list(other.comments)
    assert one.feature_names == other.feature_names
