"""Splits and folds by query, and the folders in which published data sets come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinrank import Dataset, DataWarning, InputError, load_folds


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWINRANK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def made(queries):
    """Queries with 1, 2, 3, 1, 2, 3, … documents."""
    sizes = np.arange(queries) % 3 + 1
    qid = np.repeat(np.arange(queries) + 100, sizes)
    return Dataset.from_arrays(np.arange(qid.size)[:, None], np.zeros(qid.size), qid=qid)


def assert_partition(data, parts):
    """Every query in exactly one part, with all its documents."""
    ids = np.concatenate([part.query_ids for part in parts])
    assert sorted(ids) == sorted(data.query_ids)
    rows = np.concatenate([part.X[:, 0] for part in parts])
    assert sorted(rows) == list(range(data.documents))
    for part in parts:
        assert (np.diff(part.query_ids) > 0).all(), "in the order they had"


# Splits

shares = st.lists(st.floats(0.05, 0.5), min_size=1, max_size=4).filter(lambda s: sum(s) < 0.95)


@given(st.integers(30, 60), shares, st.integers(0, 9))
def test_splits_are_partitions(queries, shares, seed):
    data = made(queries)
    parts = data.split(*shares, random_state=seed)
    assert_partition(data, parts)
    assert len(parts) == len(shares) + 1
    for part, share in zip(parts, shares, strict=False):
        assert abs(part.queries - share * queries) <= 1
    again = data.split(*shares, random_state=seed)
    assert [p.query_ids.tolist() for p in parts] == [p.query_ids.tolist() for p in again]


def test_splits_by_seed():
    data = made(50)
    assert [part.queries for part in data.split(0.6, 0.2, 0.2)] == [30, 10, 10]
    assert [part.queries for part in data.split(0.8)] == [40, 10]
    assert [part.queries for part in data.split(1)] == [50]
    assert [part.queries for part in data.split(np.float32(0.5))] == [25, 25]
    first, second = (data.split(0.5, random_state=seed)[0].query_ids for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    "shares", [(), (0,), (-0.1, 0.5), (0.8, 0.3), (float("nan"),), ([0.5, 0.5],)]
)
def test_bad_shares(shares):
    with pytest.raises(InputError, match="shares must be positive numbers with a sum of at most 1"):
        made(10).split(*shares)


def test_too_few_queries_for_the_shares():
    with pytest.raises(InputError, match="2 queries cannot be cut into the shares"):
        made(2).split(0.98, 0.01)


# k folds


@given(st.integers(3, 40), st.integers(3, 8), st.integers(0, 5))
def test_folds_are_partitions(queries, k, seed):
    data = made(queries)
    if k > queries:
        with pytest.raises(InputError, match=f"{queries} quer.* cannot be cut into {k} folds"):
            data.folds(k, random_state=seed)
        return
    folds = data.folds(k, random_state=seed)
    assert [fold.name for fold in folds] == [f"Fold{i + 1}" for i in range(k)]
    assert_partition(data, [fold.test for fold in folds])
    for i, fold in enumerate(folds):
        assert_partition(data, [fold.train, fold.validation, fold.test])
        following = folds[(i + 1) % k].test
        assert fold.validation.query_ids.tolist() == following.query_ids.tolist()
        assert abs(fold.test.queries - queries / k) < 1
    again = data.folds(k, random_state=seed)
    assert all(
        a.test.query_ids.tolist() == b.test.query_ids.tolist()
        for a, b in zip(folds, again, strict=True)
    )


def test_folds_by_seed():
    data = made(40)
    first, second = (data.folds(5, random_state=seed)[0].test.query_ids for seed in (0, 1))
    assert not np.array_equal(first, second)
    train, validation, test = data.folds()[0]
    assert [train.queries, validation.queries, test.queries] == [24, 8, 8]
    assert repr(data.folds()[4]) == "Fold('Fold5')"
    with pytest.raises(InputError, match="40 queries cannot be cut into 2 folds; choose from 3"):
        data.folds(2)


def test_folds_of_a_part():
    data = made(40)
    part = data.split(0.5)[0]
    for fold in part.folds(3):
        assert set(fold.train.query_ids) < set(part.query_ids)


# Layouts


@pytest.fixture
def lay(tmp_path):
    """Write small files, one query each, and load the folder."""

    def files(*names, features=2):
        for number, name in enumerate(names):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            values = " ".join(f"{i + 1}:{number}" for i in range(features))
            path.write_text(f"1 qid:{number} {values}\n")
        return tmp_path

    return files


def contents(folder, **choices):
    """{fold: the query of each part}, the parts in order."""
    return {
        fold.name: [None if part is None else int(part.query_ids[0]) for part in fold]
        for fold in load_folds(folder, **choices)
    }


def test_mslr_and_letor_4(lay):
    names = [f"Fold{i}/{part}.txt" for i in range(1, 6) for part in ("train", "vali", "test")]
    found = contents(lay(*names))
    assert found == {f"Fold{i}": [3 * i - 3, 3 * i - 2, 3 * i - 1] for i in range(1, 6)}


def test_folds_are_in_the_order_of_their_numbers(lay):
    folder = lay(*[f"Fold{i}/{part}.txt" for i in (10, 2, 1) for part in ("train", "test")])
    assert list(contents(folder)) == ["Fold1", "Fold2", "Fold10"]


def test_ohsumed(lay):
    names = ("Fold1/testset.txt", "Fold1/trainingset.txt", "Fold1/validationset.txt")
    assert contents(lay(*names)) == {"Fold1": [1, 2, 0]}


def test_istella(lay):
    names = (
        "full/train.txt",
        "full/test.txt",
        *(f"sample/{p}.txt" for p in ("train", "vali", "test")),
    )
    assert contents(lay(*names)) == {"full": [0, None, 1], "sample": [2, 3, 4]}
    folder = lay("train.txt", "test.txt")
    assert contents(folder / "sample") == {"sample": [2, 3, 4]}


def test_yahoo(lay):
    names = [f"set{i}.{part}.txt" for i in (1, 2) for part in ("train", "valid", "test")]
    assert contents(lay(*names)) == {"set1": [0, 1, 2], "set2": [3, 4, 5]}


def test_other_formats_and_compression(lay, tmp_path):
    data = made(6)
    for place, form in (("a", ".csv"), ("b", ".parquet"), ("c", ".txt.gz"), ("d", "")):
        (tmp_path / place).mkdir()
        for number, part in enumerate(("Train", "dev", "test_set")):
            data.select([number]).save(tmp_path / place / f"{part}{form}")
    expected = [100, 101, 102]
    assert contents(tmp_path) == dict.fromkeys("abcd", expected)


def test_names_can_be_given(lay):
    folder = lay("f1/tr.txt", "f1/va.txt", "f1/te.txt", "f2/tr.txt", "f2/te.txt", "f1/x.txt")
    names = {"train": "tr.txt", "validation": "va.txt", "test": "te.txt"}
    assert contents(folder, names=names) == {"f1": [0, 1, 2], "f2": [3, None, 4]}
    assert contents(folder / "f1", names={"train": "x.txt", "test": "te.txt"}) == {
        "f1": [5, None, 2]
    }


def test_some_names_can_be_given(lay):
    folder = lay("train.txt", "vali.txt", "test.txt", "holdout.txt")
    assert list(contents(folder).values()) == [[0, 1, 2]]
    assert list(contents(folder, names={"test": "holdout.txt"}).values()) == [[0, 1, 3]]


def test_what_else_lies_around_is_ignored(lay):
    folder = lay("Fold1/train.txt", "Fold1/test.txt", "Fold1/._train.txt", "Fold1/._test.txt")
    lay(
        ".hidden/train.txt",
        ".hidden/test.txt",
        "Fold1/train.txt.md5",
        "README.txt",
        "docs/notes.md",
    )
    lay("Fold1/train.txt", "Fold1/test.txt")
    assert contents(folder) == {"Fold1": [0, None, 1]}


def test_an_incomplete_fold_is_left_out_aloud(lay):
    folder = lay("Fold1/train.txt", "Fold1/test.txt", "Fold2/train.txt", "Fold2/vali.txt")
    with pytest.warns(DataWarning, match=r"Fold2 has no test file \(found train.txt, vali.txt\)"):
        assert contents(folder) == {"Fold1": [0, None, 1]}


def test_files_of_a_fold_get_the_same_width(lay):
    folder = lay("train.txt", features=3)
    lay("train.txt", "vali.txt", "test.txt", features=2)
    (folder / "train.txt").write_text("1 qid:1 3:1\n")
    (fold,) = load_folds(folder)
    assert [part.features for part in fold] == [3, 3, 3]
    assert fold.test.X.tolist() == [[2, 2, 0]]


def test_choices_are_those_of_load(lay):
    folder = lay("train.txt", "test.txt")
    (folder / "test.txt").write_text("-1 qid:1 1:1\n")
    (fold,) = load_folds(folder)
    with pytest.raises(InputError, match=r"test.txt, line 1, .*unjudged"):
        fold.train  # noqa: B018
    with pytest.raises(TypeError, match=r"load_folds.* unexpected keyword argument 'unjuged'"):
        load_folds(folder, unjuged="keep")
    (fold,) = load_folds(folder, unjudged="keep")
    assert fold.test.y.tolist() == [-1]


def test_nothing_is_read_before_it_is_used(lay):
    folder = lay("Fold1/train.txt", "Fold1/test.txt", "Fold2/train.txt", "Fold2/test.txt")
    (folder / "Fold2/train.txt").write_text("broken")
    first, second = load_folds(folder)
    assert first.train.documents == 1
    with pytest.raises(InputError, match="Fold2"):
        second.test  # noqa: B018


def test_folders_without_folds(lay, tmp_path):
    with pytest.raises(InputError, match="found no train, vali and test files there or in its"):
        load_folds(tmp_path)
    with pytest.raises(InputError, match=r"found no 'tr\.txt' there"):
        load_folds(tmp_path, names={"train": "tr.txt"})
    folder = lay("train.txt", "train.csv")
    with pytest.raises(InputError, match=r"train.csv and .*train.txt both look like train data"):
        load_folds(folder)
    (folder / "train.csv").unlink()
    with pytest.raises(InputError, match=r"has no test file \(found train.txt\)"):
        load_folds(folder)
    with pytest.raises(InputError, match="Unknown part of a fold 'vali'"):
        load_folds(folder, names={"vali": "vali.txt"})
    with pytest.raises(OSError, match=r"Can't read .*nowhere: No such file"):
        load_folds(folder / "nowhere")
    with pytest.raises(OSError, match=r"Can't read .*train.txt: Not a directory"):
        load_folds(folder / "train.txt")


def test_files_with_different_columns_do_not_fit(tmp_path):
    for name, columns in (("train", "a,b"), ("test", "b,a")):
        (tmp_path / f"{name}.csv").write_text(f"qid,label,{columns}\n1,0,2,3\n")
    (fold,) = load_folds(tmp_path)
    with pytest.raises(InputError, match="The files of a fold have different features"):
        fold.train  # noqa: B018
