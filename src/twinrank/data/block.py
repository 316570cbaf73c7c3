"""A block: consecutive rows of any source, as its reader leaves them, with runs of query ids."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.table import Floats, Ints, Texts
from twinrank.support.errors import InputError

_EXACT = float(1 << 24)  # float32 holds all whole numbers up to this one
_INTEGERS = "integer"


@dataclass(frozen=True)
class Place:
    """How messages name a row of the source.

    Arrays count from 0, like subscripts. Tables have column names and count rows from 1.

    >>> Place().feature(3, 0), Place(("bm25",)).label(3)
    ('X[3, 0]', 'y[3]')
    >>> Place(("bm25",), "train.csv").feature(3, 0)
    "train.csv: column 'bm25' in row 4"
    """

    features: Sequence[str] | None = None
    table: str = ""
    """The name of the table; empty for arrays."""
    label_column: str = ""
    query_column: str = ""
    weight_column: str = ""
    first_row: int = 0
    """Of a block in its part."""

    def name(self, column: int) -> str:
        """Return the name of a feature, or its number."""
        return str(column) if self.features is None else repr(self.features[column])

    def feature(self, row: int, column: int) -> str:
        """Return the place of a feature value."""
        if self.table:
            return self._cell(self.name(column), row)
        suffix = "" if self.features is None else f" ({self.name(column)})"
        return f"X[{row}, {column}]{suffix}"

    def label(self, row: int) -> str:
        """Return the place of a label."""
        return self._cell(repr(self.label_column), row) if self.table else f"y[{row}]"

    def weight(self, row: int) -> str:
        """Return the place of a weight."""
        return self._cell(repr(self.weight_column), row) if self.table else f"weight[{row}]"

    def missing_query(self, row: int) -> InputError:
        """Return the error for a row without a query id."""
        if not self.table:
            return InputError(f"qid[{row}] is missing; every row needs a query id.")
        number, column = self.first_row + row + 1, self.query_column
        return InputError(f"{self.table}: row {number} has no query id in column {column!r}.")

    def wrong_queries(self, kind: str) -> InputError:
        """Return the error for query ids of a type that has no canonical form."""
        where = f"{self.table}: column {self.query_column!r}" if self.table else "qid"
        problem = f"{where} has query ids of type {kind}"
        return InputError(problem, ". Convert them to text or whole numbers.")

    def _cell(self, column: str, row: int) -> str:
        return f"{self.table}: column {column} in row {self.first_row + row + 1}"


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of rows with one query id: their first rows, and their ids in canonical form."""

    starts: Ints
    ids: npt.NDArray[Any]
    """int64, or text as objects."""
    kind: str = _INTEGERS
    """The type of the ids, unless all are whole numbers."""

    def kept(self, rows: npt.NDArray[np.bool_]) -> "Runs":
        """Return the runs of the rows that are kept."""
        sizes = np.add.reduceat(rows, self.starts, dtype=np.int64)
        stays = sizes > 0
        return Runs((np.cumsum(sizes) - sizes)[stays], self.ids[stays], self.kind)


@dataclass(frozen=True, eq=False, kw_only=True)
class Block:
    """Consecutive rows: features as float32, everything else as in the source."""

    X: Floats
    y: npt.NDArray[Any] | None
    """Labels, numbers of any type; None if the source has none."""
    runs: Runs
    place: Place
    docids: Texts | None = None
    weights: npt.NDArray[np.float64] | None = None
    """One per row."""
    categories: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The texts of columns of text; these columns have the numbers of their texts, or −1."""
    numeric: npt.NDArray[np.bool_] | None = None
    """Columns with numbers; those without any value may be text elsewhere. None: all."""
    inexact: npt.NDArray[np.bool_] | None = None
    """Columns with whole numbers that lose digits. None: no column."""
    inexact_values: int = 0
    """Their number, if the columns are not known."""
    inexact_labels: bool = False
    finite: bool = False
    """True if all features are finite, except for those that the reader counted itself."""
    missing: int = 0
    infinite: int = 0
    dropped: int = 0
    """The number of unjudged rows that the builder left out."""
    rest: "Callable[[], Block] | None" = None
    """Reads the rows that follow, if they did not fit into this block."""


def lost_digits(
    values: npt.NDArray[Any], low: Any = None, high: Any = None
) -> npt.NDArray[np.bool_]:
    """Return whether float32 does not hold some whole number; for a matrix, a mask of columns.

    `low` and `high` are the bounds of the values, if they are known.
    """
    none = np.zeros(values.shape[1:], np.bool_)
    if values.dtype.kind not in "iuf" or values.dtype.itemsize < 4 or values.dtype == np.float32:
        return none
    low, high = (values.min(initial=0), values.max(initial=0)) if low is None else (low, high)
    if low >= -_EXACT and high <= _EXACT:
        return none
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
        if values.dtype.kind in "iu":
            lost = single.astype(values.dtype) != values
        else:
            lost = (values == np.rint(values)) & (single != values) & np.isfinite(single)
    return np.asarray(lost.any(axis=0))


def by_appearance(values: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[Any]]:
    """Return the number of each value by first appearance, and the values in that order."""
    found, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number_of = np.empty_like(order)
    number_of[order] = np.arange(order.size)
    return number_of[inverse], found[order]


def runs_in(values: npt.NDArray[Any], place: Place) -> Runs:
    """Return the runs of an array of query ids; a missing id raises an error."""
    missing = _missing(values)
    if missing.any():
        raise place.missing_query(int(missing.argmax()))
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: values.size])
    heads = values[starts]
    if heads.dtype.kind in "iu" and not (heads.dtype == np.uint64 and _too_large(heads)):
        return Runs(starts, heads.astype(np.int64))
    if heads.dtype.kind == "f" and (heads == np.rint(heads)).all() and not _too_large(heads):
        return Runs(starts, heads.astype(np.int64))
    if heads.dtype.kind not in "biufUSOM":
        raise place.wrong_queries(str(heads.dtype))
    if heads.dtype.kind == "M":
        ids, kind = _times(heads)
    else:
        ids = [canonical_id(value, place) for value in heads.tolist()]
        kind = f"Float{8 * heads.dtype.itemsize}" if heads.dtype.kind == "f" else "text"
    return Runs(starts, np.array([*ids, None], object)[:-1], kind)


def _too_large(heads: npt.NDArray[Any]) -> bool:
    """True if a number does not fit into int64."""
    return bool((np.abs(heads) >= 2**63).any())


def _missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if values.dtype.kind == "O":
        return np.array([_is_missing(value) for value in values.tolist()], np.bool_)
    return np.asarray(values != values) if values.dtype.kind in "fM" else np.zeros(1, np.bool_)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or not bool(value == value)
    except TypeError:  # pandas.NA == pandas.NA has no truth value
        return True


def canonical_id(value: Any, place: Place) -> str:
    """Return the one form of a query id: equal values of any type have the same.

    >>> [canonical_id(value, Place()) for value in (2.0, 1.5, Decimal("1.50"), "007", True)]
    ['2', '1.5', '1.5', '007', 'True']
    """
    if isinstance(value, Decimal):
        return str(int(value)) if value == value.to_integral_value() else f"{value.normalize():f}"
    if isinstance(value, float | np.floating) and value == value // 1:
        return str(int(value))
    if not isinstance(value, Hashable) or isinstance(value, timedelta | time):
        raise place.wrong_queries(type(value).__name__)
    return value.decode() if isinstance(value, bytes) else str(value)


def _times(heads: npt.NDArray[Any]) -> tuple[list[str], str]:
    """Return dates, or times to the nanosecond, as text; and their type."""
    if np.datetime_data(heads.dtype)[0] in "YMWD":
        return np.datetime_as_string(heads, "D").tolist(), "Date"
    seconds = heads.astype("datetime64[s]")
    rest = (heads - seconds).astype("timedelta64[ns]").astype(np.int64).tolist()
    texts = np.char.replace(np.datetime_as_string(seconds), "T", " ").tolist()
    return [with_fraction(text, n) for text, n in zip(texts, rest, strict=True)], "Datetime"


def with_fraction(time: str, nanoseconds: int) -> str:
    """Insert the fraction of a second into a time, in as many digits as Python and pandas write.

    >>> with_fraction("2024-01-01 00:00:00+01:00", 5)
    '2024-01-01 00:00:00.000000005+01:00'
    """
    if nanoseconds == 0:
        return time
    digits = f"{nanoseconds:09}"
    return f"{time[:19]}.{digits.removesuffix('000')}{time[19:]}"
