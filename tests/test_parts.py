"""Tables in many parts: the same data as one frame, in bounded memory, resumable after a kill."""

import gzip
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from twinrank.data.parts import address_of
from twinrank.data.text_columns import with_features
from typer.testing import CliRunner

import twinrank as tr
from twinrank.boosting import tree_features
from twinrank.cli import app
from twinrank.data import batches, csv_structure, loading, part_reader

pl = pytest.importorskip("polars")
CUTS = (0, 42, 75, 75, 120)  # query 8 goes on in the second part; the third is empty


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    """The cache of one test, and pieces of 16 rows."""
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(part_reader, "PIECE", 16 * 2 * 4)
    monkeypatch.setattr(csv_structure, "PIECE", 256)
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
    with pytest.warns(tr.DataWarning, match="the rows of 1 query were in several parts"):
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
    with pytest.raises(tr.InputError, match="no file matches"):
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
    with pytest.raises(tr.InputError, match="the lazy frame: column 'bm25' in row 51 is infinite"):
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


def test_large_files_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "SMALL", 0)
    for suffix in (".parquet", ".csv", ".feather"):
        path = write(frame(), tmp_path / f"one{suffix}")
        assert same(tr.load(path), tr.Dataset.from_frame(frame()))


def test_folds_keep_their_meaning(tmp_path):
    for name in ("train", "test"):
        write(frame()[:50], tmp_path / "folds" / f"{name}.parquet")
        parts(tmp_path / "split" / name)
    for folder in ("folds", "split"):
        with pytest.raises(tr.InputError, match="use load_folds"):
            tr.load(tmp_path / folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tr.DataWarning)
            (fold,) = tr.load_folds(tmp_path / folder)
            assert fold.train.queries == fold.test.queries
    (tmp_path / "empty").mkdir()
    with pytest.raises(tr.InputError, match="without tables"):
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
    with pytest.raises(tr.InputError, match="split_queries: Unknown choice 'sort'"):
        tr.load(files, split_queries="sort")


def test_text_and_numbers_as_query_ids(tmp_path):
    write(frame()[:10], tmp_path / "data" / "a.parquet")
    write(
        frame()[10:20].with_columns(qid=pl.Series(["x"] * 5 + ["2"] * 5)),
        tmp_path / "data" / "b.parquet",
    )
    assert read(tmp_path / "data").query_ids.tolist() == ["0", "1", "x", "2"]


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


# Resuming


@pytest.mark.parametrize("table", [frame(), with_texts()], ids=["numbers", "texts"])
def test_a_killed_reader_continues(tmp_path, base, monkeypatch, table):
    parts(tmp_path / "data", table=table)
    opened, real = [], part_reader._file

    def opening(polars, part):
        opened.append(part.path.name)
        if len(opened) == 4:
            raise KeyboardInterrupt
        return real(polars, part)

    monkeypatch.setattr(part_reader, "_MOST_THREADS", 1)
    monkeypatch.setattr(part_reader, "_file", opening)
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path / "data")
    (unfinished,) = base.iterdir()
    assert unfinished.name.endswith(".unfinished")
    opened[:] = ["continued"] * 10
    assert same(read(tmp_path / "data"), tr.Dataset.from_frame(table))
    assert opened[10] == "part-0.parquet"  # its columns only
    assert "part-1.parquet" not in opened[11:]
    assert opened[-1] == "part-3.parquet"
    (entry,) = base.iterdir()
    assert sorted(path.name for path in entry.iterdir()) == [
        "X.npy", "comment_ends.npy", "comments.npy", "manifest.json", "offsets.npy",
        "query_ids.npy", "y.npy",
    ]  # fmt: skip
    opened[:] = []
    read(tmp_path / "data", verify=True)
    assert not opened


@pytest.mark.parametrize("damage", ["part", "array"])
def test_a_damaged_record_starts_again(tmp_path, base, monkeypatch, damage):
    files = parts(tmp_path / "data")
    real = part_reader._check_unchanged

    def dying(part):
        if part.name.endswith("part-3.parquet"):
            raise KeyboardInterrupt
        real(part)

    with monkeypatch.context() as patch:
        patch.setattr(part_reader, "_check_unchanged", dying)
        with pytest.raises(KeyboardInterrupt):
            read(tmp_path / "data")
    table = frame()
    if damage == "part":
        table = table.with_columns(label=pl.Series([1] * 120))
        write(table[:42], files[0])
        table = pl.concat([table[:42], frame()[42:]], how="vertical_relaxed")
    else:
        (array,) = base.glob("*.unfinished/arrays/X.npy")
        content = bytearray(array.read_bytes())
        content[200] ^= 255
        array.write_bytes(content)
    assert same(read(tmp_path / "data"), tr.Dataset.from_frame(table))


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
    """The engines bin the features block by block; small data gives the same bits as a matrix."""
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
