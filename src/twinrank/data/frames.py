"""Data frames to tables and back: narwhals for any frame, polars for CSV, Parquet and Feather."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.array_source import Locations, numbered, rounded, rounded_note, table_from_arrays
from twinrank.data.batches import blocks
from twinrank.data.column_roles import choose_columns, looks_like
from twinrank.data.delimited import SEPARATORS, read_delimited
from twinrank.data.streams import plain_suffix, written
from twinrank.data.table import ReadOptions, Table, docid_in
from twinrank.data.text_columns import is_number, many_texts_note, text_codes
from twinrank.support.arrays import refuse_dask
from twinrank.support.errors import InputError, explained

if TYPE_CHECKING:
    import narwhals as nw

    from twinrank.data.dataset import Dataset

PARSER = "frames 2"  # part of the cache key; change it to invalidate old caches
_LIBRARIES = ("polars", "pyo3_runtime", "pyarrow", "narwhals")


def table_from_frame(frame: Any, options: ReadOptions, where: str = "the frame") -> Table:
    """Make a table from a frame; columns are chosen by `options` or recognised by name."""
    table = eager_frame(frame, where)
    columns = [str(name) for name in table.columns]
    roles = choose_columns(columns, options, where)
    if table.shape[0] == 0:
        raise InputError(f"{where} has no rows")

    def column(name: str, convert: Callable[..., Any], **choices: Any) -> Any:
        with converting(name, where):
            return convert(table[:, columns.index(name)], where, **choices)

    X = np.empty((table.shape[0], len(roles.features)), np.float32)
    categories: dict[int, tuple[str, ...]] = {}
    notes = [] if options.features else suspicious_names(roles.features)
    with np.errstate(over="ignore"):  # values that are too large become infinite; checked later
        for i, name in enumerate(roles.features):
            coded = column(name, lambda series, _: text_codes(series))
            if coded is not None:
                X[:, i], texts = coded
                categories |= {i: texts} if texts else {}
                if len(texts) > max(len(X) / 2, 9):
                    notes.append(many_texts_note(name, len(texts), len(X)))
                continue
            values = column(name, numbers_in)
            X[:, i] = values
            if values.dtype.kind in "iu" and rounded(values, X[:, i]).any():
                notes.append(rounded_note(repr(name)))
    labels = docids = None
    if roles.label is not None:
        labels = column(roles.label, numbers_in, label=True)
    if roles.docid is not None:
        docids = column(roles.docid, texts_in)
    made = table_from_arrays(
        X,
        labels,
        qid=column(roles.query, query_ids_in),
        docids=docids,
        feature_names=roles.features,
        unjudged=options.unjudged,
        non_finite=options.non_finite,
        locations=Locations(roles.features, where, roles.label or ""),
        notes=notes,
    )
    return replace(made, categories=categories)


@contextmanager
def converting(name: str, where: str) -> Iterator[None]:
    """Raise a library's own error, such as that for a date beyond its calendar, as InputError."""
    try:
        yield
    except BaseException as error:  # polars' panics are no Exceptions
        if type(error).__module__.split(".")[0] not in _LIBRARIES and not isinstance(
            error, OverflowError
        ):
            raise
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{where}: can't read column {name!r}: {reason}") from error


def suspicious_names(features: tuple[str, ...]) -> list[str]:
    """Return notes about default features whose names suggest another role."""
    return [
        f"column {name!r} looks like a {role} but is used as a feature; ignore= leaves it out"
        for name in features
        if (role := looks_like(name)) is not None
    ]


def eager_frame(frame: Any, where: str) -> "nw.DataFrame[Any]":
    """Return any frame as a narwhals frame; a lazy frame is computed."""
    import narwhals as nw

    refuse_dask(where, frame)
    try:
        native = nw.from_native(frame)
        table = native.collect() if isinstance(native, nw.LazyFrame) else native
        table.columns  # noqa: B018
    except nw.exceptions.DuplicateError as error:
        names = " ".join(str(error).rpartition("got:")[2].split())
        raise InputError(f"{where} has columns of the same name; rename them: {names}") from error
    except TypeError as error:
        raise InputError(
            f"expected a frame (pandas, polars, pyarrow, …), not {type(frame).__name__}"
        ) from error
    return table


def numbers_in(
    series: "nw.Series[Any]", where: str, label: bool = False, first_row: int = 0
) -> Any:
    """Return a column as numbers, with NaN for missing values; text raises an error."""
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        unusual = dtype in (nw.Int128, nw.UInt128, nw.Decimal)
        if unusual or (series.null_count() and not dtype.is_float()):
            series = series.cast(nw.Float64)
        return series.to_numpy()
    values, missing = series.to_list(), series.is_null().to_list()
    numbers = np.full(len(values), np.nan)
    try:
        for row, value in enumerate(values):
            if not missing[row]:
                numbers[row] = _number(value)
    except (TypeError, ValueError) as error:
        row = _first_bad_row(values, missing)
        raise InputError(
            f"{where}: column {series.name!r} contains {values[row]!r} in row "
            f"{first_row + row + 1}, which is not a number"
            + ("" if label else f"; to leave the column out, pass ignore=[{str(series.name)!r}]")
        ) from error
    return numbers


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("text")
    return float(value)


def _first_bad_row(values: list[Any], missing: list[bool]) -> int:
    """Return the first row that is not a number even as text, or else the first row of text."""
    present = [row for row in range(len(values)) if not missing[row]]
    for convert in (float, _number):
        for row in present:
            try:
                convert(values[row])
            except (TypeError, ValueError):
                return row
    raise AssertionError("all values are numbers")


def query_ids_in(series: "nw.Series[Any]", where: str, rows: Any = None) -> Any:
    """Return query ids as an array; a missing id raises an error that names its row.

    `rows` has the row of each id in the source; by default ids are in rows 0, 1, ….
    """
    import narwhals as nw

    missing = series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(True)
    if missing.any():
        row = missing.to_list().index(True)
        row = row if rows is None else int(rows[row])
        raise InputError(f"{where}: row {row + 1} has no query id in column {series.name!r}")
    wide = series.dtype in (nw.Int128, nw.UInt128)
    if series.dtype.is_float() or (series.dtype.is_integer() and not wide):
        return series.to_numpy()
    return np.array([str(value) for value in series.to_list()], object)


def texts_in(series: "nw.Series[Any]", _: str) -> list[str]:
    """Return a column as text, with "" for missing values.

    Integers in a column with missing values come as floats; they are written without a point.
    """
    pairs = zip(series.to_list(), series.is_null().to_list(), strict=True)
    values = [None if null else value for value, null in pairs]
    if series.dtype.is_float() and all(
        value == value // 1 for value in values if value is not None
    ):
        values = [None if value is None else int(value) for value in values]
    return ["" if value is None else str(value) for value in values]


def polars_for(path: object) -> Any:
    """Return the module polars; without it, an error names the file or source."""
    try:
        import polars
    except ImportError as error:
        raise InputError(
            f"{path} needs polars; install it with pip install 'twinrank[frames]', or use LETOR "
            f"text"
        ) from error
    return polars


def read_file(path: Path, options: ReadOptions) -> Table:
    """Make a table from a CSV, Parquet or Feather file."""
    pl = polars_for(path)
    suffix = plain_suffix(path)
    try:
        with explained("read", path):
            if path.stat().st_size == 0:
                raise InputError(f"{path} is empty")
            if suffix in SEPARATORS:
                frame = read_delimited(pl, path, options, SEPARATORS[suffix])
            elif suffix == ".parquet":
                frame = pl.read_parquet(path)
            else:
                frame = pl.read_ipc(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{path} is not valid {suffix[1:].capitalize()}: {reason}") from error
    return table_from_frame(frame, options, str(path))


def write_frame(data: "Dataset", path: Path, name: Path) -> None:
    """Write a dataset to `path` in the format of the file called `name`."""
    pl = polars_for(name)
    features = data.feature_names or numbered(data.features)
    for feature in features:
        if (role := looks_like(feature)) is not None:
            raise InputError(
                f"can't write {name}: `load` would read feature {feature!r} as the {role}; "
                f"rename it, or write LETOR text or a folder"
            )
    comment_column = None
    if data.comments is not None:
        only_ids = all(docid_in(text) == text for text in data.comments)
        comment_column = "docid" if only_ids else "comment"
    try:
        _write(pl, data, features, comment_column, path, name)
    except pl.exceptions.PolarsError as error:  # such as a full disk
        raise OSError(str(error)) from error


def _write(
    pl: Any,
    data: "Dataset",
    features: tuple[str, ...],
    comment_column: str | None,
    path: Path,
    name: Path,
) -> None:
    suffix = plain_suffix(name)
    if suffix == ".parquet":
        _frame(pl, data, features, comment_column).write_parquet(path)
    elif suffix not in SEPARATORS:
        _frame(pl, data, features, comment_column).write_ipc(path)
    else:
        _check_texts(data, features, name)
        with written(path, name) as file:
            for i, queries in enumerate(blocks(data)):
                part = _frame(pl, data.select(queries), features, comment_column)
                part.write_csv(file, separator=SEPARATORS[suffix], include_header=i == 0)


def _check_texts(data: "Dataset", features: tuple[str, ...], name: Path) -> None:
    """Raise an error for categories that `load` would read as numbers."""
    for column, texts in data.categories.items():
        if number := next(filter(is_number, texts), None):
            raise InputError(
                f"can't write {name}: feature {features[column]!r} has the category {number!r}, "
                f"which `load` would read as a number; write Parquet, Feather or a folder"
            )


def _frame(pl: Any, data: "Dataset", features: tuple[str, ...], comment_column: str | None) -> Any:
    columns: dict[str, Any] = {"qid": data.qid, "label": data.y}
    if comment_column is not None and data.comments is not None:
        columns[comment_column] = list(data.comments)
    values = pl.from_numpy(data.X, schema=list(features))
    for column, texts in data.categories.items():
        own = [texts[int(code)] if code >= 0 else None for code in data.X[:, column].tolist()]
        # `load` takes text that looks like numbers for a mistake, unless its type says otherwise.
        kind = pl.Categorical if any(map(is_number, texts)) else pl.String
        values.replace_column(column, pl.Series(features[column], own, kind))
    return pl.concat([pl.DataFrame(columns), values], how="horizontal")
