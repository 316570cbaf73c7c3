"""Logs of clicks from frames and files, checked row by row, and back."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt

from twinrank.clicks.click_log import ClickLog
from twinrank.clicks.log_rows import LogRows, Place, checked_rows
from twinrank.data.dataset import Dataset
from twinrank.data.from_frames import as_frame, as_text
from twinrank.data.readers import polars_for, read_errors
from twinrank.data.streams import plain_suffix
from twinrank.support.errors import Argument, InputError, suggestion
from twinrank.support.files import replacing

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_SUFFIXES = (*_SEPARATORS, ".parquet")


class Columns(NamedTuple):
    """The columns of a log."""

    impression: str = "impression"
    query: str = "query"
    docid: str = "docid"
    position: str = "position"
    clicked: str = "clicked"
    weight: str = "weight"
    propensity: str = "propensity"
    randomised: str = "randomised"


_MANY = 50_000_000
"""Rows that are summed while they are read."""
_OPTIONAL = ("weight", "propensity", "randomised")
_IDS = ("impression", "query", "docid")
_LISTS = ("docid", "clicked", "position", "propensity")
"""The columns that contain lists if a row is an impression."""


def load_clicks(
    path: str | os.PathLike[str],
    data: Dataset | None = None,
    *,
    impression: str = "impression",
    query: str = "query",
    docid: str = "docid",
    position: str = "position",
    clicked: str = "clicked",
    weight: str = "weight",
    propensity: str = "propensity",
    randomised: str = "randomised",
    features: Sequence[str] | None = None,
    summed: bool | str = "auto",
) -> ClickLog:
    """Load a log of clicks from a file, or from a folder of Parquet files.

    A log larger than memory is summed while it is read, by document and position. Credits,
    propensities and evaluations are the same; `compare_click_models`, `select` and `save` need
    single impressions. A weight then counts impressions, also for `clip="auto"`.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .tsv or .parquet, or a folder with Parquet files.
    data : Dataset, optional
        The features of the documents, found by query id and document id.
    impression, query, docid, position, clicked, weight, propensity, randomised : str
        The columns, as in `ClickLog.from_frame`.
    features : sequence of str, optional
        Columns with features, if the log itself contains them.
    summed : bool or "auto", default "auto"
        Whether to sum impressions. "auto" sums more than 50 million rows of Parquet. The rows of an
        impression must be next to each other.

    Returns
    -------
    ClickLog

    Raises
    ------
    InputError
        If a column is missing, or a row is invalid; the message names the row and the reason.
    FileError
        If the file cannot be read.

    Examples
    --------
    >>> log = load_clicks("clicks.parquet", data)                                # doctest: +SKIP
    """
    source = Path(path).expanduser()
    columns = Columns(impression, query, docid, position, clicked, weight, propensity, randomised)
    pl = polars_for(source)
    suffix = plain_suffix(source)
    if suffix not in _SUFFIXES and not source.is_dir():
        known = ", ".join(_SUFFIXES)
        raise InputError(f"{source} is not a table of clicks; choose a file with {known}.")
    if source.is_dir() and next(source.rglob("*.parquet"), None) is None:
        raise InputError(f"{source} has no Parquet files.")
    if summed not in (True, False, "auto"):
        raise InputError(argument="summed", value=summed, choices=("True", "False", "auto"))
    with read_errors(pl, str(source)):
        if suffix in _SEPARATORS:
            ids = dict.fromkeys((impression, query, docid), pl.String)
            separator = _SEPARATORS[suffix]
            rows = pl.scan_csv(source, separator=separator, schema_overrides=ids)
        else:
            rows = pl.scan_parquet(source / "**" / "*.parquet" if source.is_dir() else source)
            if summed == "auto":
                summed = len_of(pl, rows, docid)[1] > _MANY
        if summed is not True:
            return read_log(rows.collect(), data, columns, features, str(source))
        if features is not None:
            raise InputError(
                "A log with features cannot be summed; pass data, or ", Argument("summed", False),
                ".",
            )  # fmt: skip
        from twinrank.clicks.log_sums import summed_log

        return summed_log(pl, rows, data, columns, str(source))


def len_of(pl: Any, rows: Any, docid: str) -> tuple[int, int]:
    """The number of rows of a lazy frame, and of the documents that they show."""
    wide = isinstance(rows.collect_schema().get(docid), pl.List)
    documents = pl.col(docid).list.len().sum() if wide else pl.len()
    both = rows.select(pl.len().alias("rows"), documents.alias("documents"))
    return both.collect().row(0)  # type: ignore[no-any-return]


def read_log(
    frame: Any,
    data: Dataset | None,
    columns: Columns,
    features: Sequence[str] | None,
    where: str,
) -> ClickLog:
    """Make a log from a frame; `where` names the frame in messages."""
    rows = log_rows(frame, columns, features, where)
    X = None if features is None else _features(as_frame(frame, where), features, where)
    return rows.log(data, X, features)


def log_rows(
    frame: Any, columns: Columns, features: Sequence[str] | None, where: str, start: int = 0
) -> LogRows:
    """The checked rows of a frame, which follow `start` others."""
    table = as_frame(frame, where)
    present = _present(table.columns, columns, where)
    if len(table) == 0:
        raise InputError(f"{where} has no rows.")
    series = {role: table[name] for role, name in present.items()}
    place = Place(where, start)
    first = next(iter(series["docid"].drop_nulls().head(1).to_list()), None)
    if isinstance(first, list | tuple | np.ndarray | nw.Series) or hasattr(first, "to_list"):
        if features:
            raise InputError(f"{where} has a row per impression, which cannot contain features.")
        values: dict[str, Any]
        values, place = _exploded(series, place)
    elif "position" not in series:
        raise _missing_column("position", columns.position, table.columns, where)
    else:
        values = {role: own if role in _IDS else _plain(own) for role, own in series.items()}
    return checked_rows(values, place)


def _present(names: Sequence[str], columns: Columns, where: str) -> dict[str, str]:
    """The columns that the frame has, by role."""
    present = {role: name for role, name in columns._asdict().items() if name in names}
    for role, name in columns._asdict().items():
        chosen = role not in _OPTIONAL or name != Columns._field_defaults[role]
        if role not in present and role != "position" and chosen:
            raise _missing_column(role, name, names, where)
    return present


def _missing_column(role: str, name: str, names: Sequence[str], where: str) -> InputError:
    return InputError(
        f"{where} has no column {name!r}. {suggestion(name, names)} Rename the column, or pass "
        f"its name as {role}=… in Python.",
        argument=role,
        value=name,
        choices=names,
    )


def _exploded(series: Mapping[str, Any], place: Place) -> tuple[dict[str, list[Any]], Place]:
    """The values of a frame with a row per impression, as a row per document."""
    lists = {role: own.to_list() for role, own in series.items() if role in _LISTS}
    names = {role: repr(series[role].name) for role in lists}
    for role, own in lists.items():
        for row, (each, documents) in enumerate(zip(own, lists["docid"], strict=True)):
            if not hasattr(each, "__len__"):
                raise InputError(f"{place.row(row)} has no list in {names[role]}.")
            if len(each) != len(documents):
                raise InputError(
                    f"{place.row(row)} has a list of {len(each)} in {names[role]}, but "
                    f"{len(documents)} documents in {names['docid']}."
                )
    sizes = [len(each) for each in lists["docid"]]
    if not any(sizes):
        raise InputError(f"{place.where} has no documents: all lists are empty.")
    if "position" not in lists:
        lists["position"] = [list(range(1, size + 1)) for size in sizes]
    values = {role: [item for each in own for item in each] for role, own in lists.items()}
    for role, own in series.items():
        if role not in _LISTS:
            pairs = zip(own.to_list(), sizes, strict=True)
            values[role] = [item for item, size in pairs for _ in range(size)]
    return values, place._replace(sizes=sizes)


def _plain(series: Any) -> Any:
    """Numbers as an array, and anything else as a list."""
    if (series.dtype.is_numeric() or series.dtype == nw.Boolean) and not series.null_count():
        return series.to_numpy()
    return series.to_list()


def _features(table: Any, names: Sequence[str], where: str) -> npt.NDArray[np.float64]:
    for name in names:
        if name not in table.columns:
            raise _missing_column("features", name, table.columns, where)
        if not (table[name].dtype.is_numeric() or table[name].dtype == nw.Boolean):
            raise InputError(f"{where}: feature {name!r} is not numeric; pass data instead.")
    columns = [table[name].cast(nw.Float64).to_numpy() for name in names]
    return np.stack(columns, axis=1)


def write_log(log: ClickLog, path: Path) -> None:
    """Write a log as a table with one row per document shown."""
    suffix = plain_suffix(path)
    if suffix not in _SUFFIXES or path.suffix.lower() != suffix:
        raise InputError(f"Can't write {path}; choose a file with {', '.join(_SUFFIXES)}.")
    pl = polars_for(path)
    columns: dict[str, Any] = {
        "impression": log.impression,
        "query": [as_text(query) for query in log.query_ids[log.query].tolist()],
        "docid": log.docids[log.document].tolist(),
        "position": log.position,
        "clicked": log.clicked.astype(np.int8),
    }
    if (log.weight != 1).any():
        columns["weight"] = log.row_weight
    if log.propensity is not None:
        columns["propensity"] = log.propensity
    if log.randomised is not None:
        columns["randomised"] = log.randomised[log.impression].astype(np.int8)
    frame = pl.DataFrame(columns)
    with replacing(path) as partial:
        if suffix in _SEPARATORS:
            frame.write_csv(partial, separator=_SEPARATORS[suffix])
        else:
            frame.write_parquet(partial)
