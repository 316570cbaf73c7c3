"""Logs of clicks from frames and files, checked row by row, and back."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt

from twinrank.clicks.click_log import Bools, ClickLog, Floats, Ints
from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset
from twinrank.data.from_frames import as_frame, as_text
from twinrank.data.readers import polars_for, read_errors
from twinrank.data.streams import plain_suffix
from twinrank.support.errors import InputError, suggestion
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


_OPTIONAL = ("weight", "propensity", "randomised")
_DEEPEST = 10_000
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
) -> ClickLog:
    """Load a log of clicks from a file, or from a folder of Parquet files.

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
    with read_errors(pl, str(source)):
        if suffix in _SEPARATORS:
            ids = dict.fromkeys((impression, query, docid), pl.String)
            separator = _SEPARATORS[suffix]
            frame = pl.read_csv(source, separator=separator, schema_overrides=ids)
        else:
            pattern = source / "**" / "*.parquet" if source.is_dir() else source
            frame = pl.read_parquet(pattern)
    return read_log(frame, data, columns, features, str(source))


def read_log(
    frame: Any,
    data: Dataset | None,
    columns: Columns,
    features: Sequence[str] | None,
    where: str,
) -> ClickLog:
    """Make a log from a frame; `where` names the frame in messages."""
    table = as_frame(frame, where)
    present = _present(table.columns, columns, where)
    if len(table) == 0:
        raise InputError(f"{where} has no rows.")
    series = {role: table[name] for role, name in present.items()}
    first = series["docid"][0]
    if isinstance(first, list | tuple | np.ndarray | nw.Series) or hasattr(first, "to_list"):
        if features:
            raise InputError(f"{where} has a row per impression, which cannot contain features.")
        values: dict[str, Any] = _exploded(series, where)
    elif "position" not in series:
        raise _missing_column("position", columns.position, table.columns, where)
    else:
        values = {role: own if role in _IDS else _plain(own) for role, own in series.items()}
    rows = _Rows(values, where)
    X = None if features is None else _features(table, features, where)
    return rows.log(data, X, features)


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
        f"{where} has no column {name!r}. {suggestion(name, names)} Pass its name as {role}=….",
        argument=role,
        value=name,
        choices=names,
    )


def _exploded(series: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """The values of a frame with a row per impression, as a row per document."""
    lists = {role: own.to_list() for role, own in series.items() if role in _LISTS}
    sizes = [len(each) for each in lists["docid"]]
    for role, own in lists.items():
        for row, (each, size) in enumerate(zip(own, sizes, strict=True)):
            if each is None or len(each) != size:
                length = "no list" if each is None else f"a list of {len(each)}"
                raise InputError(
                    f"{where}: row {row + 1} has {length} in {series[role].name!r}, but {size} "
                    f"documents in {series['docid'].name!r}."
                )
    if "position" not in lists:
        lists["position"] = [list(range(1, size + 1)) for size in sizes]
    values = {role: [item for each in own for item in each] for role, own in lists.items()}
    for role, own in series.items():
        if role not in _LISTS:
            pairs = zip(own.to_list(), sizes, strict=True)
            values[role] = [item for item, size in pairs for _ in range(size)]
    return values


def _plain(series: Any) -> Any:
    """Numbers as an array, and anything else as a list."""
    if (series.dtype.is_numeric() or series.dtype == nw.Boolean) and not series.null_count():
        return series.to_numpy()
    return series.to_list()


def _physical(values: Any) -> Any:
    """Ids as whole numbers that are equal if the ids are, if that is fast; otherwise a list.

    Text of polars becomes categories, which takes a third of the time of a dictionary of Python.
    """
    if not isinstance(values, nw.Series):
        return values
    if values.null_count() == 0:
        if values.dtype.is_integer():
            return values.to_numpy()
        native = values.to_native()
        if values.dtype == nw.String and type(native).__module__.startswith("polars"):
            import polars

            return native.cast(polars.Categorical).to_physical().to_numpy()
    return values.to_list()


class _Rows:
    """The rows of a log: checked values, by role."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        position = self._numbers(values["position"], "position")
        clicked = self._numbers(values["clicked"], "clicked")
        self._check(np.isnan(clicked), "has no value for clicked; it must be 0 or 1")
        self._check((clicked != 0) & (clicked != 1), "has a value for clicked other than 0 and 1")
        self._check(np.isnan(position) & (clicked == 1), "has a click without a position")
        self._check(np.isnan(position), "has no position; leave out documents that were not shown")
        whole = (position >= 1) & (position == np.floor(position))
        self._check(~whole, "has a position that is not a whole number from 1 on")
        self._check(position > _DEEPEST, f"has a position beyond {_DEEPEST:,}; it may be an id")
        self.position, self.clicked = position.astype(np.int64), clicked == 1
        self.impression, self.impressions = self._codes(values["impression"], "impression")
        self.query, self.query_texts = self._codes(values["query"], "query")
        self.docid, self.docid_texts = self._codes(values["docid"], "docid")
        self.propensity: Floats | None = None
        if "propensity" in values:
            self.propensity = self._numbers(values["propensity"], "propensity")
            bad = ~((self.propensity > 0) & (self.propensity <= 1))
            self._check(bad, "has a propensity that is not above 0 and at most 1")
        weight = np.ones(self.position.size)
        if "weight" in values:
            weight = self._numbers(values["weight"], "weight")
            bad = ~(np.isfinite(weight) & (weight >= 0))
            self._check(bad, "has a weight that is negative or not finite")
        self.weight = self._per_impression(weight, "weight")
        if not self.weight.any():
            raise InputError(f"{where}: all weights are 0.")
        self.randomised: Bools | None = None
        if "randomised" in values:
            flags = self._numbers(values["randomised"], "randomised")
            self._check((flags != 0) & (flags != 1), "has a value for randomised other than 0 or 1")
            self.randomised = self._per_impression(flags, "randomised") == 1
        self._per_impression(self.query.astype(np.float64), "query")
        self._check_once(self.position, "shows two documents at the same position")

    def _numbers(self, values: Any, role: str) -> Floats:
        if isinstance(values, np.ndarray):
            return values.astype(np.float64)
        try:
            return np.array([np.nan if v is None else float(v) for v in values], np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{self.where}: a {role} in row {_first_text(values) + 1} is not a number: {error}."
            ) from error

    def _codes(self, values: Any, role: str) -> tuple[Ints, list[str]]:
        """The number of each id, in the order of their first appearance, and the ids."""
        physical = _physical(values)
        if isinstance(physical, np.ndarray):
            _, first, codes = np.unique(physical, return_index=True, return_inverse=True)
            order = np.argsort(first)
            number = np.empty_like(order)
            number[order] = np.arange(order.size)
            heads = values[first[order].tolist()].to_list()
            return number[codes], [as_text(value) for value in heads]
        values = physical
        known: dict[Any, int] = {}
        numbers = (known.setdefault(value, len(known)) for value in values)
        try:
            codes = np.fromiter(numbers, np.int64, len(values))
        except TypeError as error:
            raise InputError(f"{self.where}: a {role} is no text or number: {error}.") from error
        for value, code in known.items():
            if value is None or value != value:
                row = int(np.argmax(codes == code)) + 1
                raise InputError(f"{self.where}: row {row} has no {role}.")
        return codes, [as_text(value) for value in known]

    def _check(self, bad: Bools, problem: str) -> None:
        if bad.any():
            raise InputError(f"{self.where}: row {int(np.argmax(bad)) + 1} {problem}.")

    def _per_impression(self, values: Floats, role: str) -> Floats:
        """One value per impression; it must be the same in all rows."""
        first = np.empty(len(self.impressions))
        first[self.impression[::-1]] = values[::-1]
        self._check(
            first[self.impression] != values, f"has another {role} than the rest of its impression"
        )
        return first

    def _check_once(self, values: Ints, problem: str) -> None:
        """Refuse a value that occurs twice in an impression."""
        order = np.lexsort((values, self.impression))
        same = (np.diff(self.impression[order]) == 0) & (np.diff(values[order]) == 0)
        if same.any():
            first = int(order[1:][same].min())
            name = self.impressions[self.impression[first]]
            raise InputError(f"{self.where}: row {first + 1}: impression {name} {problem}.")

    def log(
        self, data: Dataset | None, X: npt.NDArray[Any] | None, names: Sequence[str] | None
    ) -> ClickLog:
        """The log, its documents numbered as in the data, or in the order of the log."""
        pair = self.query * len(self.docid_texts) + self.docid
        pairs, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
        keys = [
            (self.query_texts[each // len(self.docid_texts)],
             self.docid_texts[each % len(self.docid_texts)])
            for each in pairs.tolist()
        ]  # fmt: skip
        if X is not None:
            if data is not None:
                raise InputError("Pass data or features, not both.")
            data = self._own_data(X, names, keys, first, inverse)
        if data is None:
            lists = Lists.from_sizes(np.bincount(pairs // len(self.docid_texts)))
            query_ids, docids = np.array(self.query_texts), np.array([d for _, d in keys])
            document = inverse
        else:
            lists, query_ids, docids = data.lists, data.query_ids, docids_of(data)
            document = self._numbers_in(data, docids, keys)[inverse]
            self._check(document < 0, self._unknown(document, keys, inverse))
        self._check_once(document, "shows a document twice")
        return ClickLog(
            impression=self.impression,
            document=document,
            position=self.position,
            clicked=self.clicked,
            lists=lists,
            query_ids=query_ids,
            docids=docids,
            weight=self.weight,
            propensity=self.propensity,
            randomised=self.randomised,
            data=data,
        )

    def _own_data(self, X: Any, names: Any, keys: Any, first: Ints, inverse: Ints) -> Dataset:
        """The features in the log, of the first row of each document."""
        same = (X[first][inverse] == X) | (np.isnan(X) & np.isnan(X[first][inverse]))
        self._check(
            ~same.all(axis=1),
            "has other features than an earlier row of its query and document; if features differ "
            "between impressions, pass the column of impressions as query",
        )
        queries = [query for query, _ in keys]
        docids = [docid for _, docid in keys]
        return Dataset.from_arrays(
            X[first], qid=queries, docids=docids, feature_names=names, unjudged="keep",
            non_finite="keep",
        )  # fmt: skip

    def _numbers_in(self, data: Dataset, docids: Any, keys: list[tuple[str, str]]) -> Ints:
        """The number of each pair of query and document in the data, −1 if it has none."""
        texts = [as_text(query) for query in data.query_ids.tolist()]
        known: dict[tuple[str, str], int] = {}
        for query, rows in zip(texts, data.lists, strict=True):
            for number, docid in zip(range(rows.start, rows.stop), docids[rows], strict=True):
                if known.setdefault((query, str(docid)), number) != number:
                    raise InputError(
                        f"The data has document {docid} of query {query} twice, so that clicks on "
                        f"it are ambiguous."
                    )
        return np.array([known.get(key, -1) for key in keys], np.int64)

    def _unknown(self, document: Ints, keys: list[tuple[str, str]], inverse: Ints) -> str:
        query, docid = keys[inverse[int(np.argmin(document))]]
        share = (document < 0).mean()
        return (
            f"shows document {docid} of query {query}, which the data does not have ({share:.1%} "
            f"of all rows are unknown)"
        )


def _first_text(values: Sequence[Any]) -> int:
    """The first row whose value is not a number."""
    for row, value in enumerate(values):
        try:
            float(0 if value is None else value)
        except (TypeError, ValueError):
            return row
    return 0


def _features(table: Any, names: Sequence[str], where: str) -> npt.NDArray[np.float64]:
    for name in names:
        if name not in table.columns:
            raise _missing_column("features", name, table.columns, where)
        if not (table[name].dtype.is_numeric() or table[name].dtype == nw.Boolean):
            raise InputError(f"{where}: feature {name!r} is not numeric; pass data instead.")
    columns = [table[name].cast(nw.Float64).to_numpy() for name in names]
    return np.stack(columns, axis=1)


def docids_of(data: Dataset) -> npt.NDArray[Any]:
    """The ids of documents; their numbers in the query, from 1, if there are none."""
    if data.docids is not None:
        return data.docids
    starts = np.repeat(data.lists.offsets[:-1], data.lists.sizes)
    return (np.arange(data.documents) - starts + 1).astype(np.str_)


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
