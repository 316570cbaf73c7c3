"""Frames into tables and back: any frame that narwhals takes; CSV, Parquet, Feather by polars."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.array_source import Places, numbered, rounded, rounded_note, table_from_arrays
from twinrank.data.batches import blocks
from twinrank.data.column_roles import choose_columns, looks_like
from twinrank.data.delimited import SEPARATORS, read_delimited
from twinrank.data.streams import plain_suffix, written
from twinrank.data.table import ReadOptions, Table, as_ids, docid_in
from twinrank.support.errors import InputError, explained

if TYPE_CHECKING:
    import narwhals as nw

    from twinrank.data.dataset import Dataset

PARSER = "frames 1"  # another name makes old caches void


def table_from_frame(frame: Any, reading: ReadOptions, where: str = "the frame") -> Table:
    """The table of a frame; columns are chosen by `reading`, or guessed by name."""
    table = _eager(frame, where)
    columns = [str(name) for name in table.columns]
    roles = choose_columns(columns, reading, where)
    if table.shape[0] == 0:
        raise InputError(f"{where} holds no documents")
    X = np.empty((table.shape[0], len(roles.features)), np.float32)
    notes = [] if reading.features else _doubts(roles.features)
    with np.errstate(over="ignore"):  # too large becomes infinite, and is seen later
        for i, name in enumerate(roles.features):
            values = _numbers(table[:, columns.index(name)], where)
            X[:, i] = values
            if values.dtype.kind in "iu" and rounded(values, X[:, i]).any():
                notes.append(rounded_note(repr(name)))
    labels = docids = None
    if roles.label is not None:
        labels = _numbers(table[:, columns.index(roles.label)], where, label=True)
    if roles.docid is not None:
        docids = _texts(table[:, columns.index(roles.docid)])
    return table_from_arrays(
        X,
        labels,
        qid=_query_ids(table[:, columns.index(roles.query)], where),
        docids=docids,
        feature_names=roles.features,
        unjudged=reading.unjudged,
        non_finite=reading.non_finite,
        places=Places(roles.features, where, roles.label or ""),
        notes=notes,
    )


def _doubts(features: tuple[str, ...]) -> list[str]:
    """What is said of features that nobody asked for and that look like something else."""
    return [
        f"column {name!r} looks like a {role}, but counts as a feature; ignore= leaves it out"
        for name in features
        if (role := looks_like(name)) is not None
    ]


def _eager(frame: Any, where: str) -> "nw.DataFrame[Any]":
    """Any frame as narwhals sees it; one that is lazy is computed."""
    import narwhals as nw

    try:
        native = nw.from_native(frame)
        table = native.collect() if isinstance(native, nw.LazyFrame) else native
        table.columns  # noqa: B018
    except nw.exceptions.DuplicateError as error:
        which = " ".join(str(error).rpartition("got:")[2].split())
        raise InputError(f"{where} has columns of the same name; rename them: {which}") from error
    except TypeError as error:
        raise InputError(
            f"expected a frame (pandas, polars, pyarrow, …), not {type(frame).__name__}"
        ) from error
    return table


def _numbers(series: "nw.Series[Any]", where: str, label: bool = False) -> Any:
    """A column as numbers, missing ones as NaN; text is refused."""
    import narwhals as nw

    kind = series.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        odd = kind in (nw.Int128, nw.UInt128, nw.Decimal)
        if odd or (series.null_count() and not kind.is_float()):
            series = series.cast(nw.Float64)
        return series.to_numpy()
    values, missing = series.to_list(), series.is_null().to_list()
    numbers = np.full(len(values), np.nan)
    try:
        for row, value in enumerate(values):
            if not missing[row]:
                numbers[row] = _number(value)
    except (TypeError, ValueError) as error:
        row = _culprit(values, missing)
        raise InputError(
            f"{where}: column {series.name!r} holds {values[row]!r} in row {row + 1}, which is "
            f"no number" + ("" if label else f"; leave it out: ignore=[{str(series.name)!r}]")
        ) from error
    return numbers


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("text")
    return float(value)


def _culprit(values: list[Any], missing: list[bool]) -> int:
    """The first row that doesn't even spell a number, or else the first with text in it."""
    present = [row for row in range(len(values)) if not missing[row]]
    for read in (float, _number):
        for row in present:
            try:
                read(values[row])
            except (TypeError, ValueError):
                return row
    raise AssertionError("all are numbers")


def _query_ids(series: "nw.Series[Any]", where: str) -> Any:
    absent = series.is_null()
    if series.dtype.is_float():
        absent = absent | series.is_nan().fill_null(True)
    if absent.any():
        row = absent.to_list().index(True)
        raise InputError(f"{where}: row {row + 1} has no query id in column {series.name!r}")
    if series.dtype.is_integer() or series.dtype.is_float():
        return series.to_numpy()
    return as_ids([str(value) for value in series.to_list()])


def _texts(series: "nw.Series[Any]") -> list[str]:
    """A column as text, missing values as empty; whole numbers beside missing ones are floats."""
    values, missing = series.to_list(), series.is_null().to_list()
    if series.dtype.is_float():
        whole = all(v == v // 1 for v, gone in zip(values, missing, strict=True) if not gone)
        values = [
            v if gone or not whole else int(v) for v, gone in zip(values, missing, strict=True)
        ]
    return ["" if gone else str(v) for v, gone in zip(values, missing, strict=True)]


def _polars(path: Path) -> Any:
    try:
        import polars
    except ImportError as error:
        raise InputError(
            f"{path} needs polars: pip install 'twinrank[frames]', or use LETOR text"
        ) from error
    return polars


def read_file(path: Path, reading: ReadOptions) -> Table:
    """The table of a CSV, Parquet or Feather file."""
    pl = _polars(path)
    kind = plain_suffix(path)
    try:
        with explained("read", path):
            if path.stat().st_size == 0:
                raise InputError(f"{path} holds no documents: it is empty")
            if kind in SEPARATORS:
                frame = read_delimited(pl, path, reading, SEPARATORS[kind])
            elif kind == ".parquet":
                frame = pl.read_parquet(path)
            else:
                frame = pl.read_ipc(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{path} can't be read as {kind[1:].capitalize()}: {reason}") from error
    return table_from_frame(frame, reading, str(path))


def write_frame(data: "Dataset", path: Path, name: Path) -> None:
    """Write a dataset to `path` in the form that `name` asks for."""
    pl = _polars(name)
    features = data.feature_names or numbered(data.features)
    for feature in features:
        if (role := looks_like(feature)) is not None:
            raise InputError(
                f"can't write {name}: read back, feature {feature!r} would be taken for the "
                f"{role}; rename it, or write LETOR text or a folder"
            )
    comments = None
    if data.comments is not None:
        plain = all(docid_in(text) == text for text in data.comments)
        comments = "docid" if plain else "comment"
    try:
        _write(pl, data, features, comments, path, name)
    except pl.exceptions.PolarsError as error:  # no room on the disk, say
        raise OSError(str(error)) from error


def _write(
    pl: Any,
    data: "Dataset",
    features: tuple[str, ...],
    comments: str | None,
    path: Path,
    name: Path,
) -> None:
    kind = plain_suffix(name)
    if kind == ".parquet":
        _frame(pl, data, features, comments).write_parquet(path)
    elif kind not in SEPARATORS:
        _frame(pl, data, features, comments).write_ipc(path)
    else:
        with written(path, name) as file:
            for i, queries in enumerate(blocks(data)):
                part = _frame(pl, data.select(queries), features, comments)
                part.write_csv(file, separator=SEPARATORS[kind], include_header=i == 0)


def _frame(pl: Any, data: "Dataset", features: tuple[str, ...], comments: str | None) -> Any:
    first: dict[str, Any] = {"qid": data.qid, "label": data.y}
    if comments is not None and data.comments is not None:
        first[comments] = list(data.comments)
    values = pl.from_numpy(data.X, schema=list(features))
    return pl.concat([pl.DataFrame(first), values], how="horizontal")
