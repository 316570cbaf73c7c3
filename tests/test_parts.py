"""Tables in many parts: the same data as one frame, in bounded memory, resumable after a kill."""

import gzip
import json
import os
import shutil
import warnings
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import twinrank as tr
from twinrank.cli import app
from twinrank.data import batches, from_csv, loading, readers
from twinrank.data.builder import TableBuilder
from twinrank.data.dataset import with_features
from twinrank.data.sources import address_of, find_parts
from twinrank.learning.boosting import tree_features

pl = pytest.importorskip("polars")
CUTS = (0, 42, 75, 75, 120)  # query 8 goes on in the second part; the third is empty


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    """The cache of one test, and pieces of 16 rows."""
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(readers, "PIECE", 16 * 2 * 4)
    monkeypatch.setattr(from_csv, "PIECE", 256)
    return tmp_path / "cache"


def frame(rows=120):
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "qid": np.arange(rows) // 5,
            "label": random.integers(0, 3, rows),
            "bm25": random.normal(size=rows),
            "clicks": random.integers(0, 9, rows),
            "docid": [f"d{i}" for i in range(rows)],
        }
    )


def with_texts():
    """The frame with texts: some appear late, one column has none in the first part."""
    kinds = [None if i % 7 == 3 else f"kind {(i * i) % (i // 10 + 2)}" for i in range(120)]
    late = [None if i < 75 else f"late {i % 3}" for i in range(120)]
    return frame().with_columns(
        kind=pl.Series(kinds, dtype=pl.Categorical), late=pl.Series(late, dtype=pl.String)
    )


def write(table, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.suffix == ".gz"
    if path.name.endswith((".csv", ".csv.gz")):
        content = table.write_csv().encode()
        path.write_bytes(gzip.compress(content) if text else content)
    elif path.suffix == ".parquet":
        table.write_parquet(path, row_group_size=20)
    else:
        table.write_ipc(path)
    return path


def parts(folder, suffix=".parquet", table=None):
    table = frame() if table is None else table
    bounds = pairwise(CUTS)
    return [write(table[a:b], folder / f"part-{i}{suffix}") for i, (a, b) in enumerate(bounds)]


def read(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tr.DataWarning)
        return tr.load(source, **options)


def same(data, expected):
    assert np.array_equal(data.X, expected.X)
    assert np.array_equal(data.y, expected.y)
    assert data.query_ids.tolist() == expected.query_ids.tolist()
    assert data.lists.sizes.tolist() == expected.lists.sizes.tolist()
    assert data.feature_names == expected.feature_names
    assert list(data.comments) == list(expected.comments)
    assert data.categories == expected.categories
    assert np.array_equal(data.in_source_order(data.y), expected.in_source_order(expected.y))
    return True


# Sources


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".feather"])
@pytest.mark.parametrize("cache", [True, False])
def test_a_folder_of_parts_is_one_dataset(tmp_path, suffix, cache):
    parts(tmp_path / "data", suffix)
    with pytest.warns(
        tr.DataWarning,
        match=r"data: The rows of 1 query were in several parts and are now together, for example ",
    ):
        data = tr.load(tmp_path / "data", cache=cache)
    assert same(data, tr.Dataset.from_frame(frame()))
    assert data.name == str(tmp_path / "data")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather"])
@pytest.mark.parametrize("cache", [True, False])
def test_texts_have_the_same_numbers_in_all_parts(tmp_path, suffix, cache):
    parts(tmp_path / "data", suffix, with_texts())
    data = read(tmp_path / "data", cache=cache, non_finite="keep")
    expected = tr.Dataset.from_frame(with_texts())
    if suffix == ".csv":  # a piece without any value could have been numbers
        assert np.isnan(data.X[:75, 3]).all()
        whole = np.where(np.isnan(data.X), -1, data.X)
        data = with_features(data, whole, data.feature_names, data.categories)
    assert same(data, expected)
    assert len(data.categories[2]) > 10


@pytest.mark.parametrize("first", ["text", "numbers"])
def test_a_column_is_text_or_numbers(tmp_path, first):
    columns = {"text": with_texts()["kind"].cast(pl.String)[:60], "numbers": frame()["bm25"][:60]}
    second = "numbers" if first == "text" else "text"
    for i, kind in enumerate((first, second)):
        write(frame()[:60].with_columns(columns[kind].alias("x")), tmp_path / f"{i}.parquet")
    with pytest.raises(tr.InputError, match=rf"1\.parquet: .*'x' has {second} here and {first} in"):
        tr.load(tmp_path)


def test_patterns_lists_and_order(tmp_path):
    files = parts(tmp_path / "data")
    expected = tr.Dataset.from_frame(frame())
    assert same(read(tmp_path / "data" / "part-*.parquet"), expected)
    assert same(read(files), expected)
    ten = write(frame()[:5], tmp_path / "numbers" / "part-10.csv")
    two = write(frame()[5:10], tmp_path / "numbers" / "part-2.csv")
    assert read(tmp_path / "numbers").query_ids.tolist() == [1, 0]
    assert read([ten, two]).query_ids.tolist() == [0, 1]
    with pytest.raises(tr.InputError, match="in the list twice"):
        tr.load([ten, ten])
    with pytest.raises(tr.InputError, match=r"No file matches .*nothing-\*\.parquet\."):
        tr.load(tmp_path / "nothing-*.parquet")


@pytest.mark.parametrize("cache", [True, False])
def test_streams(tmp_path, base, cache):
    arrow = pytest.importorskip("pyarrow.dataset")
    table, expected = frame(), tr.Dataset.from_frame(frame())
    path = write(table, tmp_path / "one.parquet")
    for source in (
        table.lazy().filter(pl.col("label") >= 0),
        table.to_arrow().to_reader(50),
        arrow.dataset(path),
        f"file://{path}",
    ):
        assert same(tr.load(source, cache=cache), expected)
    assert not base.exists() or not list(base.iterdir())


def test_addresses_are_read_as_paths(tmp_path):
    """Ids stay text, and folders called column=value give no features."""
    text = "docid,query,label,bm25\n01,007,1,0.5\n02,007,0,0.4\n03,7,1,0.3\n"
    (tmp_path / "data.csv").write_text(text)
    expected = tr.load(tmp_path / "data.csv", cache=False)
    read = tr.load(f"file://{tmp_path}/data.csv", cache=False)
    assert same(read, expected)
    assert read.query_ids.tolist() == ["007", "7"]
    assert read.docids.tolist() == ["01", "02", "03"]
    for day in (1, 2):
        write(frame()[60 * day - 60 : 60 * day], tmp_path / "days" / f"day={day}" / "a.parquet")
    own = tr.load(tmp_path / "days", cache=False)
    read = tr.load(f"file://{tmp_path}/days/**/*.parquet", cache=False)
    assert read.feature_names == own.feature_names
    assert np.array_equal(read.X, own.X)


def test_errors_of_streams(tmp_path):
    with pytest.raises(tr.InputError, match=r"LazyFrame cannot be read: .*nothing"):
        tr.load(frame().lazy().select("nothing"))
    with pytest.raises((tr.InputError, tr.FileError), match=r"nothing\.parquet"):
        tr.load(f"file://{tmp_path}/nothing.parquet")
    with pytest.raises(tr.InputError, match="LazyFrame: column 'bm25' in row 51 is infinite"):
        tr.load(frame().lazy().with_columns(bm25=1 / (pl.col("qid") - 10)))
    with pytest.raises(tr.InputError, match="for a frame in memory use"):
        tr.load(frame())


def test_addresses():
    assert address_of(Path("s3://bucket/day=1/*.parquet")) == "s3://bucket/day=1/*.parquet"
    assert address_of("gs://bucket/x.csv") == "gs://bucket/x.csv"
    assert address_of(r"C:\data\x.csv") is None
    assert address_of(Path("data/x.csv")) is None


def test_folders_give_values_to_columns(tmp_path):
    table = frame()
    for i, day in enumerate(("day=1/site=a", "day=2/site=b%20c")):
        write(table[60 * i : 60 * i + 60], tmp_path / "data" / day / "x.parquet")
    (tmp_path / "data" / "_SUCCESS").touch()
    assert same(tr.load(tmp_path / "data"), tr.Dataset.from_frame(table))  # no feature by default
    data = read(tmp_path / "data", features=["day", "bm25"], ignore=["site"])
    assert data.X[:, 0].tolist() == [1.0] * 60 + [2.0] * 60
    data = read(tmp_path / "data", query="site", ignore=["qid", "day"])
    assert data.query_ids.tolist() == ["a", "b c"]


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_links_to_the_same_files_in_other_folders(tmp_path, base, linked):
    """The files are the same, but not the values that their folders give to columns."""
    file = write(frame()[:60], tmp_path / "store" / "x.parquet")
    names = ["day=1", "day=2", "day=2.5", "day=__HIVE_DEFAULT_PARTITION__", "week=1", "."]
    for number, name in enumerate(names):
        place = tmp_path / str(number) / name
        if linked == "file" or name == ".":
            place.mkdir(parents=True)
            (place / "x.parquet").symlink_to(file)
        else:
            place.parent.mkdir()
            place.symlink_to(file.parent)
    options = {"features": ["day", "bm25"], "non_finite": "keep"}
    for _ in range(2):  # from the cache, too
        for number, day in enumerate([1.0, 2.0, 2.5, np.nan]):
            data = read(tmp_path / str(number), **options)
            assert np.array_equal(data.X[:, 0], [day] * 60, equal_nan=True)
            assert data.X[:, 1].tolist() == frame()["bm25"][:60].cast(pl.Float32).to_list()
            assert len(list(base.iterdir())) == (number + 1 if _ == 0 else 4)
    for number in (4, 5):
        with pytest.raises(tr.InputError, match=r"no column 'day' for features\."):
            read(tmp_path / str(number), **options)
        assert same(tr.load(tmp_path / str(number)), tr.Dataset.from_frame(frame()[:60]))
    assert len(list(base.iterdir())) == 6


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".feather"])
@pytest.mark.parametrize("cache", [True, False])
def test_a_single_file_is_a_list_of_one_part(tmp_path, base, monkeypatch, suffix, cache):
    """It is read in pieces, too; a path, a list, a folder and a pattern give the same data."""
    rows, block = [], readers.TableReader._block

    def counting(reader, table, frame, first_row):
        piece = block(reader, table, frame, first_row)
        rows.append((first_row, len(piece.X)))
        return piece

    monkeypatch.setattr(readers.TableReader, "_block", counting)
    path = write(frame(), tmp_path / "data" / f"one{suffix}")
    expected = tr.Dataset.from_frame(frame())
    for source in (path, str(path), [path], path.parent, path.with_stem("o*")):
        rows.clear()
        assert [part.path for part in find_parts(source)] == [path]
        assert same(tr.load(source, cache=cache), expected)
        assert sum(count for _, count in rows) in ((0, 120) if cache else (120,))
        ends = np.cumsum([count for _, count in sorted(rows)])
        assert [first for first, _ in sorted(rows)] == [0, *ends[:-1]][: len(rows)]
        assert len(rows) > 4 or (cache and source != path)
    if cache:
        (entry,) = base.iterdir()
        assert entry.name.startswith(f"one{suffix}-1-")


def test_folds_keep_their_meaning(tmp_path):
    for name in ("train", "test"):
        write(frame()[:50], tmp_path / "folds" / f"{name}.parquet")
        parts(tmp_path / "split" / name)
    for folder, refused in (
        (
            "folds",
            r"\(test\.parquet, train\.parquet\), which are not mixed\. .*load_folds loads all",
        ),
        ("split", "load_folds"),
    ):
        with pytest.raises(tr.InputError, match=refused):
            tr.load(tmp_path / folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tr.DataWarning)
            (fold,) = tr.load_folds(tmp_path / folder)
            assert fold.train.queries == fold.test.queries
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        tr.InputError, match=r"without 'manifest\.json' and without tables .*; use load_folds"
    ):
        tr.load(tmp_path / "empty")


# Queries in several parts


def test_queries_are_put_together(tmp_path):
    table = frame()
    shuffled = table.with_columns(qid=pl.Series(np.arange(120) % 7))
    files = parts(tmp_path / "data", table=shuffled)
    with pytest.warns(tr.DataWarning, match="7 queries were in several parts"):
        data = tr.load(tmp_path / "data")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tr.DataWarning)
        assert same(data, tr.Dataset.from_frame(shuffled))
        assert same(tr.load(tmp_path / "data", verify=True), data)
    with pytest.raises(tr.InputError, match=r"query 0 in .*part-0.*part-1.*split_queries='join'"):
        tr.load(files, split_queries="error")
    with pytest.raises(
        tr.InputError, match=r"^Unknown split_queries 'sort'\. Choose from join, error\.$"
    ):
        tr.load(files, split_queries="sort")


def test_text_and_numbers_as_query_ids(tmp_path):
    write(frame()[:10], tmp_path / "data" / "a.parquet")
    write(
        frame()[10:20].with_columns(qid=pl.Series(["x"] * 5 + ["2"] * 5)),
        tmp_path / "data" / "b.parquet",
    )
    assert read(tmp_path / "data").query_ids.tolist() == ["0", "1", "x", "2"]


TEXT_DAYS = pl.Series(["2024-01-01"] * 5 + ["2024-01-02"] * 5)
DAYS = TEXT_DAYS.str.to_date()


@pytest.mark.parametrize("cache", [True, False])
def test_a_query_id_has_one_form(tmp_path, cache):
    """Equal ids of several types are one query, also if the types differ between parts."""
    for i, qid in enumerate(
        [
            pl.Series([1.0] * 5 + [2.0] * 5),
            pl.Series([2] * 5 + [3] * 5, dtype=pl.UInt8),
            pl.Series(["3"] * 5 + ["4"] * 5),
            pl.Series([4] * 5 + [5] * 5, dtype=pl.Int128),
            pl.Series(["5.00"] * 5 + ["6.00"] * 5).cast(pl.Decimal(10, 2)),
        ]
    ):
        write(frame()[10 * i : 10 * i + 10].with_columns(qid=qid), tmp_path / f"{i}.parquet")
    data = read(tmp_path, cache=cache)
    assert data.query_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert data.query_ids.dtype == np.int64
    assert data.lists.sizes.tolist() == [5, 10, 10, 10, 10, 5]
    assert list(data.comments) == [f"d{i}" for i in range(50)]


def test_fractions_after_whole_numbers_keep_their_form(tmp_path):
    """The first pieces of a column of floats look like integers."""
    qid = pl.Series([*np.repeat(np.arange(20.0), 5), *[2.5] * 10, *[1e300] * 10])
    write(frame().with_columns(qid=qid), tmp_path / "a.parquet")
    assert tr.load(tmp_path).query_ids.tolist() == [*map(str, range(20)), "2.5", str(int(1e300))]
    single = tr.Dataset.from_frame(frame().with_columns(qid=qid))
    assert same(tr.load(tmp_path / "a.parquet"), single)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "here", "before"),
    [
        (TEXT_DAYS, DAYS, "Date", "text"),
        (DAYS, TEXT_DAYS, "text", "Date"),
        (DAYS, DAYS.cast(pl.Datetime), "Datetime", "Date"),
        (
            DAYS.cast(pl.Datetime),
            DAYS.cast(pl.Datetime).dt.replace_time_zone("Asia/Tokyo"),
            "Datetime in Asia/Tokyo",
            "Datetime",
        ),
        (pl.Series([1] * 10), DAYS, "Date", "integer"),
        (pl.Series([True] * 10), pl.Series([1] * 10), "integer", "Boolean"),
        (pl.Series([1.5] * 10), pl.Series(["1.5"] * 10), "text", "Float64"),
        (pl.Series([1.5] * 10, dtype=pl.Float32), pl.Series([1.5] * 10), "Float64", "Float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_types_of_query_ids_must_agree(tmp_path, base, cache, first, second, here, before):
    write(frame()[:10].with_columns(qid=first), tmp_path / "data" / "a.parquet")
    write(frame()[10:20].with_columns(qid=second), tmp_path / "data" / "b.parquet")
    place = tmp_path / "data" / "b.parquet"
    with pytest.raises(tr.InputError) as error:
        tr.load(tmp_path / "data", cache=cache)
    assert str(error.value) == (
        f"{place}: column 'qid' has query ids of type {here} here and {before} in the rows before. "
        f"Give it one type in all parts."
    )
    assert not base.exists() or list(base.iterdir()) == []


# Notes

INEXACT = "whole numbers beyond 2^24, which lose digits as float32."


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather"])
@pytest.mark.parametrize("cache", [True, False])
def test_whole_numbers_that_float32_does_not_hold_are_noted(tmp_path, suffix, cache):
    """They may be in any part and any row; numbers that float32 holds are not noted."""
    table = frame().with_columns(
        exact=pl.Series([2**24, 2**25, -(2**60)] * 40),
        large=pl.Series([0] * 119 + [2**24 + 1]),
        negative=pl.Series([-(2**53)] * 100 + [-(2**53) + 1] * 20),
        label=pl.Series([0] * 60 + [2**24 + 1] * 60),
    )
    parts(tmp_path / "data", suffix, table)
    for _ in range(2):
        with pytest.warns(tr.DataWarning) as told:
            data = tr.load(tmp_path / "data", cache=cache)
        start = f"{tmp_path / 'data'}: "
        assert [str(each.message) for each in told] == [start + note for note in data.notes]
        assert data.notes[:3] == (
            f"Feature 'large' has {INEXACT}",
            f"Feature 'negative' has {INEXACT}",
            f"The labels have {INEXACT}",
        )
        assert "several parts" in data.notes[3]
        assert len(data.notes) == 4
    first = write(table[:50], tmp_path / f"first{suffix}")
    assert tr.load(first, cache=cache).notes == ()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather"])
def test_columns_that_are_rarely_features_are_noted(tmp_path, suffix):
    odd = {"score": 0.5, "Weight": 1.0, "position": 3, "qid_2": 1, "rank_": 2}
    table = frame().with_columns(**{name: pl.lit(value) for name, value in odd.items()})
    parts(tmp_path / "data", suffix, table)
    result = "is the result of an earlier ranking and unknown when documents are ranked, leave it"
    with pytest.warns(tr.DataWarning):
        data = tr.load(tmp_path / "data")
    assert data.notes[:-1] == (
        f"Column 'score' is used as a feature. If it {result} out: ignore=['score'].",
        "Column 'Weight' is used as a feature. If it holds weights, pass "
        "weight='Weight'; ignore=['Weight'] leaves it out.",
        f"Column 'position' is used as a feature. If it {result} out: ignore=['position'].",
        f"Column 'rank_' is used as a feature. If it {result} out: ignore=['rank_'].",
    )
    assert "several parts" in data.notes[-1]
    named = [*data.feature_names]
    with pytest.warns(tr.DataWarning) as told:  # the user's choice
        assert len(tr.load(tmp_path / "data", features=named).notes) == 1
    assert len(told) == 1
    rest = {"ignore": ["score", "position", "rank_"], "weight": "Weight"}
    assert len(read(tmp_path / "data", **rest).notes) == 1


# Checks, with the part and the row


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather"])
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("bm25", np.inf, r"part-1\.\w+: column 'bm25' in row 31 is infinite"),
        ("label", -2, r"part-1\.\w+: column 'label' in row 31 is -2"),
        ("label", -1, r"part-1\.\w+: column 'label' in row 31 is −1"),
        ("bm25", "high", r"part-1\.\w+: column 'bm25' contains .* in row (31|1)"),
        ("qid", None, r"part-1\.\w+: row 31 has no query id"),
    ],
)
def test_errors_name_the_part_and_the_row(tmp_path, base, suffix, column, value, message):
    folder = tmp_path / "data"
    parts(folder, suffix)
    values = frame()[42:75][column].to_list()
    values[30] = value
    strict = not isinstance(value, str)
    series = pl.Series(column, values if strict else [str(v) for v in values])
    write(frame()[42:75].with_columns(series), folder / f"part-1{suffix}")
    with pytest.raises(tr.InputError, match=message):
        tr.load(folder)
    assert not list(base.iterdir())


def test_options_for_values_hold_for_parts(tmp_path):
    table = frame().with_columns(
        pl.when(pl.col("docid") == "d50").then(None).otherwise("bm25").alias("bm25"),
        pl.when(pl.col("docid") == "d51").then(-1).otherwise("label").alias("label"),
    )
    parts(tmp_path / "data", table=table)
    options = {"non_finite": "keep", "unjudged": "drop"}
    data = read(tmp_path / "data", **options)
    expected = read(write(table, tmp_path / "one.parquet"), **options)
    assert np.array_equal(data.X, expected.X, equal_nan=True)
    assert list(data.comments) == list(expected.comments)
    assert {n for n in data.notes if "part" not in n} == set(expected.notes)


def test_csv_is_checked_strictly(tmp_path):
    parts(tmp_path / "data", ".csv")
    path = tmp_path / "data" / "part-1.csv"
    lines = path.read_text().splitlines()
    for line, message in (
        ('8,"0,1', "line 32, column 2: a quoted field that does not end"),
        ("8,0", "line 32: 2 fields, but the header has 5"),
        ('8,0,1,"2"3,d', "line 32, column 4: text after a closing quote"),
    ):
        path.write_text("\n".join([*lines[:31], line, *lines[32:], ""]))
        with pytest.raises(tr.InputError, match=f"part-1.csv, {message}"):
            tr.load(tmp_path / "data")


def test_quoted_fields_may_hold_line_breaks(tmp_path):
    docids = [f'a "b"\r\n,{i}' + "x" * (i % 50) for i in range(120)]
    table = frame().with_columns(docid=pl.Series(docids))
    parts(tmp_path / "data", ".csv", table)
    assert list(read(tmp_path / "data").comments) == docids


def test_columns_of_parts_must_agree(tmp_path):
    parts(tmp_path / "data")
    path = tmp_path / "data" / "part-3.parquet"
    write(frame()[75:].select("clicks", "docid", "bm25", "label", "qid"), path)
    assert same(read(tmp_path / "data"), tr.Dataset.from_frame(frame()))
    write(frame()[75:].drop("bm25"), path)
    with pytest.raises(tr.InputError, match=r"part-3.* has no column 'bm25', which .*part-0"):
        tr.load(tmp_path / "data")
    write(frame()[75:].with_columns(more=pl.lit(1)), path)
    with pytest.raises(tr.InputError, match=r"part-3.* has the column 'more', .*ignore=\['more'\]"):
        tr.load(tmp_path / "data")
    path.write_bytes(b"no table")
    with pytest.raises(tr.InputError, match=r"part-3.parquet is not valid Parquet"):
        tr.load(tmp_path / "data")


@pytest.mark.parametrize("cache", [True, False])
def test_errors_of_the_disk_name_the_part(tmp_path, base, monkeypatch, cache):
    """polars raises a plain OSError, also for some damaged Feather files."""
    files, real = parts(tmp_path / "data"), readers.TableReader._lazy

    def failing(reader, frame, name):
        table = real(reader, frame, name)
        if not name.endswith("part-1.parquet"):
            return table

        def frames(roles):
            yield from [next(table.frames(roles))]
            raise OSError("failed to fill whole buffer")

        return replace(table, frames=frames)

    monkeypatch.setattr(readers.TableReader, "_lazy", failing)
    with pytest.raises(tr.TwinRankError, match=rf"{files[1]}.*failed to fill whole buffer"):
        tr.load(tmp_path / "data", cache=cache)


# Resuming


@pytest.mark.parametrize("table", [frame(), with_texts()], ids=["numbers", "texts"])
def test_a_killed_reader_continues(tmp_path, base, monkeypatch, table):
    parts(tmp_path / "data", table=table)
    opened, real = [], readers.TableReader._open

    def opening(reader, part):
        opened.append(part.path.name)
        if len(opened) == 4:
            raise KeyboardInterrupt
        return real(reader, part)

    monkeypatch.setattr(loading, "_MOST_THREADS", 1)
    monkeypatch.setattr(readers.TableReader, "_open", opening)
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path / "data")
    (unfinished,) = base.iterdir()
    assert unfinished.name.startswith("part-0.parquet-4-")
    assert unfinished.name.endswith(".unfinished")
    opened[:] = ["continued"] * 10
    assert same(read(tmp_path / "data"), tr.Dataset.from_frame(table))
    assert opened[10] == "part-0.parquet"  # its columns only
    assert "part-1.parquet" not in opened[11:]
    assert opened[-1] == "part-3.parquet"
    (entry,) = base.iterdir()
    assert f"{entry.name}.unfinished" == unfinished.name
    assert sorted(path.name for path in entry.iterdir()) == [
        "X.npy", "comment_ends.npy", "comments.npy", "manifest.json", "offsets.npy",
        "query_ids.npy", "y.npy",
    ]  # fmt: skip
    opened[:] = []
    read(tmp_path / "data", verify=True)
    assert not opened


@pytest.fixture
def started(monkeypatch):
    """The names of the parts whose rows were read."""
    names, pieces = [], readers.TableReader.pieces

    def start(reader, part):
        names.append(part.path.name)
        return pieces(reader, part)

    monkeypatch.setattr(readers.TableReader, "pieces", start)
    return names


ALL = [f"part-{i}.parquet" for i in range(4)]
WEIGHTED = {"weight": "w"}


def kill(folder, monkeypatch, last="part-3.parquet", **options):
    """Read a folder until all rows of the part `last` were read, but before it is recorded."""
    real = TableBuilder.end_part

    def dying(builder):
        if last.startswith(f"part-{builder.parts}."):
            raise KeyboardInterrupt
        real(builder)

    with monkeypatch.context() as patch:
        patch.setattr(TableBuilder, "end_part", dying)
        with pytest.raises(KeyboardInterrupt):
            read(folder, **options)


def with_everything():
    """A table that needs every kind of array: texts, text as query ids, document ids, weights."""
    qid = pl.Series([f"q{i // 5}" for i in range(120)])
    return with_texts().with_columns(qid=qid, w=pl.Series([1.0 + i // 5 for i in range(120)]))


def flipped(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def damages(arrays):
    """Ways to damage the arrays of an unfinished cache: a name, what to do, the parts to read."""
    progress = arrays / "progress.json"
    content = progress.read_bytes()
    checksum, text = content.split(b"\n")
    recorded = json.loads(text)["columns"]
    for path in sorted(arrays.glob("*.npy")):
        size, name = path.stat().st_size, path.name
        dtype, shape, rows, _ = recorded[path.stem]
        end = 128 + rows * int(np.prod(shape)) * np.dtype(dtype).itemsize
        assert 128 < end < size, name
        for place in (128, (128 + end) // 2, end - 1):
            yield f"{name} flipped at {place}", lambda p=path, i=place: flipped(p, i), ALL
        yield f"{name} flipped at {end}", lambda p=path, i=end: flipped(p, i), ALL[3:]
        yield f"{name} header", lambda p=path: flipped(p, 3), None
        yield f"{name} empty", lambda p=path: p.write_bytes(b""), ALL
        yield f"{name} cut", lambda p=path: p.write_bytes(p.read_bytes()[:129]), ALL
        yield f"{name} missing", path.unlink, ALL
        yield f"{name} pipe", lambda p=path: (p.unlink(), os.mkfifo(p)), ALL
        yield f"{name} longer", lambda p=path: p.write_bytes(p.read_bytes() + b"x"), ALL[3:]
    for i in range(0, len(content), len(content) // 20):
        yield f"record flipped at {i}", lambda i=i: flipped(progress, i, i % 7), ALL
    for what, left in [
        ("missing", None),
        ("empty", b""),
        ("without a checksum", text),
        ("without rows", checksum),
        ("of null", b"%d\nnull" % zlib.crc32(b"null")),
        ("of other things", b"%d\n{}" % zlib.crc32(b"{}")),
        ("cut by a byte", content[:-1]),
        ("cut in half", content[: len(content) // 2]),
        ("longer", content + b"\n"),
        ("not UTF-8", content + b"\xff"),
    ]:
        change = progress.unlink if left is None else (lambda b=left: progress.write_bytes(b))
        yield f"record {what}", change, ALL


def test_damaged_records_start_again(tmp_path, base, monkeypatch, started):
    """The data is that of an undisturbed load, to the last bit, and is read only if needed."""
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    first, *_ = parts(folder, table=with_everything())
    write(with_everything()[:42].with_columns(qid=pl.Series(np.arange(42) // 5 + 1)), first)
    for path in folder.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))  # no wait for a change
    undisturbed = read(folder, cache_dir=elsewhere, **WEIGHTED)
    assert started == ALL
    kill(folder, monkeypatch, **WEIGHTED)
    (unfinished,) = base.iterdir()
    shutil.copytree(unfinished, tmp_path / "kept")
    names = {path.stem for path in (unfinished / "arrays").glob("*.npy")}
    assert names == {
        "X", "y", "comments", "comment_ends",
        "row_weights", "run_starts", "run_numbers", "run_texts", "run_ends",
    }  # fmt: skip
    (entry,) = elsewhere.iterdir()
    cases, count = list(damages(unfinished / "arrays")), 0
    assert len(cases) > 100
    for what, damage, parts_read in cases:
        for path in base.iterdir():
            shutil.rmtree(path)
        shutil.copytree(tmp_path / "kept", unfinished)
        damage()
        started.clear()
        data = read(folder, **WEIGHTED)
        count += started == ALL
        assert parts_read is None or started == parts_read, what
        assert same(data, undisturbed), what
        started.clear()
        assert same(read(folder, verify=True, **WEIGHTED), undisturbed), what
        assert started == [], what
        own = base / entry.name
        assert list(base.iterdir()) == [own], what
        for path in entry.iterdir():
            assert (own / path.name).read_bytes() == path.read_bytes(), (what, path.name)
    assert count > 60


def test_a_part_that_changes_before_the_reader_continues(tmp_path, monkeypatch, started):
    files = parts(tmp_path / "data")
    kill(tmp_path / "data", monkeypatch)
    table = frame().with_columns(label=pl.Series([1] * 120))
    write(table[:42], files[0])
    started.clear()
    table = pl.concat([table[:42], frame()[42:]], how="vertical_relaxed")
    assert same(read(tmp_path / "data"), tr.Dataset.from_frame(table))
    assert started == ALL


def test_a_reader_that_is_killed_again_and_again(tmp_path, base, monkeypatch, started):
    """It continues after every part; texts and query ids go on where they were."""
    parts(tmp_path / "data", table=with_everything())
    undisturbed = read(tmp_path / "data", cache_dir=tmp_path / "elsewhere", **WEIGHTED)
    for number, last in enumerate(ALL):
        started.clear()
        kill(tmp_path / "data", monkeypatch, last, **WEIGHTED)
        assert started[0] == ALL[max(number - 1, 0)]
    started.clear()
    assert same(read(tmp_path / "data", **WEIGHTED), undisturbed)
    assert started == ALL[3:]
    assert same(read(tmp_path / "data", verify=True, **WEIGHTED), undisturbed)


def test_a_record_describes_all_finished_parts(tmp_path, base, monkeypatch):
    """It replaces that of the parts before, with all texts so far in their order."""
    parts(tmp_path / "data", table=with_everything())
    kinds = with_everything()["kind"]
    for number, rows in ((1, 42), (2, 75), (3, 75)):
        kill(tmp_path / "data", monkeypatch, ALL[number], **WEIGHTED)
        (path,) = base.glob("*.unfinished/arrays/progress.json")
        checksum, text = path.read_bytes().split(b"\n")
        assert int(checksum) == zlib.crc32(text)
        builder = json.loads(text)["builder"]
        assert (len(builder["ends"]), builder["documents"]) == (number, rows)
        own = kinds[:rows].drop_nulls().cast(pl.String).unique(maintain_order=True)
        assert builder["texts"]["2"] == own.to_list()


def test_wrong_data_leaves_nothing_to_continue(tmp_path, base, monkeypatch):
    files = parts(tmp_path / "data")
    kill(tmp_path / "data", monkeypatch)
    write(frame()[75:].with_columns(label=pl.lit(-5)), files[3])
    with pytest.raises(tr.InputError, match=r"part-3\.parquet: column 'label' in row 1 is -5"):
        read(tmp_path / "data")
    assert list(base.iterdir()) == []


def test_verify_does_not_continue_with_changed_content(tmp_path, monkeypatch):
    """Size, time and inode of a finished part are the same, but not its rows."""
    files = parts(tmp_path / "data", ".csv")
    for path in files:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    kill(tmp_path / "data", monkeypatch, "part-3.csv")
    text = files[0].read_text()
    row = next(line for line in text.splitlines() if line.startswith("1,0,"))
    with files[0].open("r+") as file:
        file.write(text.replace(row, row.replace("1,0,", "1,2,")))
    os.utime(files[0], (1_000_000_000, 1_000_000_000))
    expected = read(tmp_path / "data", cache=False)
    assert same(read(tmp_path / "data", verify=True), expected)


def test_two_readers_at_once(tmp_path, base):
    from twinrank.support.locks import locked

    parts(tmp_path / "data")
    read(tmp_path / "data")
    (entry,) = base.iterdir()
    entry.rename(tmp_path / "gone")
    with locked(entry.with_name(f"{entry.name}.unfinished"), "reading"):
        assert read(tmp_path / "data").documents == 120
        assert entry.exists()


def test_a_changed_part_is_read_again(tmp_path):
    parts(tmp_path / "data")
    read(tmp_path / "data")
    write(frame()[75:115], tmp_path / "data" / "part-3.parquet")
    assert read(tmp_path / "data").documents == 115


# Training and commands


def test_fit_takes_files(tmp_path):
    parts(tmp_path / "data")
    valid = write(frame(), tmp_path / "valid.parquet")
    ranker = tr.BoostedRanker(
        n_estimators=2, ensemble_size=1, engine_params={"min_data_in_leaf": 1}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tr.DataWarning)
        ranker.fit(str(tmp_path / "data"), eval_set=valid)
        same_ranker = tr.BoostedRanker(**ranker.get_params()).fit(frame().lazy(), eval_set=[valid])
        scores = ranker.predict(tmp_path / "data")
    assert np.array_equal(scores, same_ranker.predict(read(tmp_path / "data")))
    unlabelled = write(frame().drop("label"), tmp_path / "new.parquet")
    assert np.array_equal(ranker.predict(unlabelled), scores)
    write(frame().with_columns(label=pl.lit(-1)), tmp_path / "data" / "part-0.parquet")
    with pytest.raises(tr.InputError, match=r"label.*−1.*Options for reading belong to load"):
        ranker.fit(tmp_path / "data")


@pytest.mark.parametrize(
    "parameters",
    [
        {"engine_params": {"bin_construct_sample_cnt": 300}, "random_state": 7},
        {"objective": "LambdaMART", "transforms": "Standardise", "subsample": 0.5},
        {"engine": "xgboost", "engine_params": {"max_bin": 16}},
    ],
)
def test_trees_grow_from_blocks(monkeypatch, parameters):
    """The engines bin the features block by block; the size of a block does not matter."""
    if "engine" in parameters:
        pytest.importorskip("xgboost")
    train, valid = tr.synthetic_web_search(queries=20).split(0.5)
    fixed = {"n_estimators": 4, "ensemble_size": 1, "n_jobs": 1}
    expected = tr.BoostedRanker(**fixed, **parameters).fit(train, eval_set=valid)
    monkeypatch.setattr(tree_features, "STREAMED", 0)
    monkeypatch.setattr(batches, "_BLOCK", 20_000)
    monkeypatch.setattr(tr.Dataset, "X", property(lambda data: pytest.fail("all in memory")))
    if "transforms" in parameters:  # statistics are computed from all features
        monkeypatch.undo()
        monkeypatch.setattr(tree_features, "STREAMED", 0)
        monkeypatch.setattr(batches, "_BLOCK", 20_000)
    ranker = tr.BoostedRanker(**fixed, **parameters).fit(train, eval_set=valid)
    assert ranker.history_[-1]["validation"] == expected.history_[-1]["validation"]
    assert np.array_equal(ranker.predict(valid), expected.predict(valid))


def test_commands_take_parts(tmp_path):
    parts(tmp_path / "data")
    runner = CliRunner()
    for source in (tmp_path / "data", tmp_path / "data" / "*.parquet"):
        shown = runner.invoke(app, ["inspect", str(source)])
        assert shown.exit_code == 0, shown.output
        assert "120" in shown.stdout
    training = ["train", str(tmp_path / "data"), "--trees", "--epochs", "2", "--quiet"]
    trained = runner.invoke(app, [*training, "--out", str(tmp_path / "run")])
    assert trained.exit_code == 0, trained.output
