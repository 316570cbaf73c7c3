"""Frames into tables and back: any frame that narwhals takes; CSV, Parquet, Feather by polars."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.arrays import table_from_arrays
from twinrank.data.options import Reading
from twinrank.data.sources import COMPRESSED, opened, plain_suffix, written
from twinrank.data.table import Table, as_ids
from twinrank.support.errors import InputError, explained
from twinrank.support.suggest import unknown

if TYPE_CHECKING:
    import narwhals as nw

    from twinrank.data.dataset import Dataset

PARSER = "frames 1"  # another name makes old caches void
# What columns are called, in small letters and without signs.
_CALLED = {
    "query": ("qid", "queryid", "query", "groupid", "sessionid", "searchid"),
    "label": ("label", "relevance", "rel", "relevancelabel", "grade", "target", "y"),
    "docid": ("docid", "documentid", "docno", "did", "itemid", "productid", "comment"),
}
_TEXT_COLUMNS = ("query", "docid")


def table_from_frame(frame: Any, reading: Reading, where: str = "the frame") -> Table:
    """The table of a frame; columns are chosen by `reading`, or guessed by name."""
    import narwhals as nw

    try:
        native = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        raise InputError(
            f"expected a frame (pandas, polars, pyarrow, …), not {type(frame).__name__}"
        ) from error
    columns = [str(name) for name in native.columns]
    roles = choose_columns(columns, reading, where)
    features = _feature_columns(columns, roles, reading, where)
    X = np.empty((native.shape[0], len(features)), np.float32)
    with np.errstate(over="ignore"):  # too large becomes infinite, and is seen later
        for i, name in enumerate(features):
            X[:, i] = _numbers(native, columns.index(name), where)
    labels = None
    if "label" in roles:
        labels = _numbers(native, columns.index(roles["label"]), where)
    docids = None
    if "docid" in roles:
        docids = [_text(v) for v in native[:, columns.index(roles["docid"])].to_list()]
    return table_from_arrays(
        X,
        labels,
        qid=_query_ids(native[:, columns.index(roles["query"])], where),
        docids=docids,
        feature_names=None if features == _numbered(len(features)) else features,
        unjudged=reading.unjudged,
        non_finite=reading.non_finite,
    )


def choose_columns(columns: list[str], reading: Reading, where: str) -> dict[str, str]:
    """Which columns hold the query, the label and the document id."""
    roles = {}
    for role, called in _CALLED.items():
        asked = getattr(reading, role)
        if asked is False:
            continue
        if isinstance(asked, str):
            if asked not in columns:
                raise InputError(f"{where} has no " + unknown(f"column for {role}", asked, columns))
            roles[role] = asked
            continue
        taken = (*roles.values(), *reading.ignore, *_asked_features(reading))
        spelled = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in columns}
        near = [name for name in columns if spelled[name] in called and name not in taken]
        if len(near) > 1:
            raise InputError(
                f"{where}: {', '.join(map(repr, near))} could each be the {role}; "
                f"say which one: {role}={near[0]!r}"
            )
        if not near and role != "docid":
            also = ", or label=False if there is none" if role == "label" else ""
            raise InputError(
                f"{where}: no column looks like the {role} (its columns: {_some(columns)}); "
                f"say which one it is: {role}='…'{also}"
            )
        if near:
            roles[role] = near[0]
    return roles


def _asked_features(reading: Reading) -> tuple[str, ...]:
    return reading.features if isinstance(reading.features, tuple) else ()


def _feature_columns(
    columns: list[str],
    roles: dict[str, str],
    reading: Reading,
    where: str,
) -> list[str]:
    if isinstance(reading.features, int):
        raise InputError(f"{where}: features= takes the names of columns, not a number")
    for name in (*_asked_features(reading), *reading.ignore):
        if name not in columns:
            raise InputError(f"{where} has no " + unknown("column", name, columns))
    rest = [c for c in columns if c not in roles.values() and c not in reading.ignore]
    features = list(reading.features or rest)
    if not features:
        raise InputError(
            f"{where} has no columns left for features (its columns: {_some(columns)})"
        )
    if len(features) > reading.max_features:
        raise InputError(
            f"{where} has {len(features):,} features, beyond the limit of "
            f"{reading.max_features:,}; max_features= raises it"
        )
    return features


def _numbers(frame: "nw.DataFrame[Any]", column: int, where: str) -> Any:
    """A column as floats, missing values as NaN; text is refused, with the first that is none."""
    import narwhals as nw

    series = frame[:, column]
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        for row, value in enumerate(series.to_list()):
            if not isinstance(value, int | float | None):
                raise InputError(
                    f"{where}: column {series.name!r} holds {value!r} in row {row + 1}, which is "
                    f"no number; leave it out with ignore=[{series.name!r}], or choose features="
                )
    if series.null_count():
        return np.array([np.nan if v is None else v for v in series.to_list()], np.float64)
    return series.to_numpy().astype(np.float64)


def _query_ids(series: "nw.Series[Any]", where: str) -> Any:
    if series.null_count():
        row = series.is_null().to_list().index(True)
        raise InputError(f"{where}: row {row + 1} has no query id in column {series.name!r}")
    if series.dtype.is_integer():
        return series.to_numpy()
    if series.dtype.is_float():
        numbers = series.to_numpy()
        if (numbers % 1 == 0).all():
            return numbers.astype(np.int64)
    return as_ids([_text(value) for value in series.to_list()])


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _some(columns: list[str], most: int = 12) -> str:
    return ", ".join(map(repr, columns[:most])) + (", …" if len(columns) > most else "")


def _numbered(count: int) -> list[str]:
    """What features without names are called in a frame: 1, 2, …, as in LETOR text."""
    return [str(i + 1) for i in range(count)]


def _polars(path: Path) -> Any:
    try:
        import polars
    except ImportError as error:
        raise InputError(
            f"{path} needs polars: pip install 'twinrank[frames]', or use LETOR text"
        ) from error
    return polars


def read_file(path: Path, reading: Reading) -> Table:
    """The table of a CSV, Parquet or Feather file."""
    pl = _polars(path)
    kind = plain_suffix(path)
    try:
        with explained("read", path):
            if kind in (".csv", ".tsv"):
                frame = _read_csv(pl, path, reading, "," if kind == ".csv" else "\t")
            elif kind == ".parquet":
                frame = pl.read_parquet(path)
            else:
                frame = pl.read_ipc(path)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path} can't be read: {error}") from error
    if frame.height == 0:
        raise InputError(f"{path} holds no documents")
    return table_from_frame(frame, reading, str(path))


def _read_csv(pl: Any, path: Path, reading: Reading, separator: str) -> Any:
    """Read a CSV file; ids are text, so that 007 stays 007."""
    source: Any = path
    if path.suffix.lower() in COMPRESSED:
        source = io.BytesIO(_content(path))
    choices = {"separator": separator, "infer_schema_length": None}
    header = pl.read_csv(source, n_rows=0, infer_schema=False, separator=separator)
    roles = choose_columns(header.columns, reading, str(path))
    kinds = {roles[role]: pl.String for role in _TEXT_COLUMNS if role in roles}
    if isinstance(source, io.BytesIO):
        source.seek(0)
    return pl.read_csv(source, schema_overrides=kinds, **choices)


def _content(path: Path) -> bytes:
    pieces = []
    with opened(path) as source:
        while True:
            piece = bytearray(1 << 22)
            count = source.fill(memoryview(piece))
            pieces.append(bytes(piece[:count]))
            if count < len(piece):
                return b"".join(pieces)


def write_frame(data: "Dataset", path: Path, name: Path) -> None:
    """Write a dataset to `path` in the form that `name` asks for."""
    pl = _polars(name)
    features = list(data.feature_names or _numbered(data.features))
    comment = {}
    if data.comments is not None and data.docids is not None:
        texts = list(data.comments)
        comment = {"docid" if texts == data.docids.tolist() else "comment": texts}
    taken = ["qid", "label", *comment, *features]
    if len(set(taken)) < len(taken):
        twice = next(column for column in taken if taken.count(column) > 1)
        raise InputError(f"can't write {name}: it would have two columns called {twice!r}")
    whole = pl.DataFrame({"qid": data.qid, "label": data.y, **comment})
    values = pl.from_numpy(data.X, schema=features)
    frame = pl.concat([whole, values], how="horizontal")
    kind = plain_suffix(name)
    if kind == ".parquet":
        frame.write_parquet(path)
    elif kind in (".csv", ".tsv"):
        with written(path, name) as file:
            frame.write_csv(file, separator="," if kind == ".csv" else "\t")
    else:
        frame.write_ipc(path)
