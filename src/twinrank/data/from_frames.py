"""Frames of any library as blocks: one loop over columns, for tables in memory and in files."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt

from twinrank.data.block import (
    Block,
    Place,
    Runs,
    by_appearance,
    canonical_id,
    lost_digits,
    runs_in,
    with_fraction,
)
from twinrank.data.options import ReadOptions, Roles
from twinrank.data.table import Floats, Texts
from twinrank.support.arrays import refuse_clusters
from twinrank.support.errors import Argument, InputError

Series = nw.Series[Any]
_TEXT = (nw.String, nw.Categorical, nw.Enum)
_WIDE = (nw.Int128, nw.UInt128, nw.Decimal)  # numbers that NumPy has no type for
_LIBRARIES = ("polars", "pyo3_runtime", "pyarrow", "narwhals")
_TILE = 4096  # rows that are transposed at a time; their values fit into a processor's cache
_LARGEST = float(np.finfo(np.float32).max)


class Columns(NamedTuple):
    """Features, and what the conversion to float32 showed about each column."""

    X: Floats
    categories: dict[int, tuple[str, ...]]
    numeric: npt.NDArray[np.bool_] | None
    inexact: npt.NDArray[np.bool_]
    finite: bool


def is_frame(value: Any) -> bool:
    """True for a data frame; of the type, because a lazy frame would compute its columns."""
    return hasattr(type(value), "columns")


def as_frame(frame: Any, where: str) -> "nw.DataFrame[Any]":
    """Return any frame as a narwhals frame; a lazy frame is computed."""
    refuse_clusters(where, frame)
    try:
        native = nw.from_native(frame)
        table = native.collect() if isinstance(native, nw.LazyFrame) else native
        table.columns  # noqa: B018
    except nw.exceptions.DuplicateError as error:
        names = " ".join(str(error).rpartition("got:")[2].split())
        raise InputError(f"{where} has columns of the same name; rename them: {names}.") from error
    except TypeError as error:
        raise InputError(
            f"Expected a frame (pandas, polars, pyarrow, …), not {type(frame).__name__}."
        ) from error
    return table


def frame_block(
    frame: Any, roles: Roles, options: ReadOptions, where: str, first_row: int = 0
) -> Block:
    """Convert rows of a frame, which begin at row `first_row` of their part."""
    table = frame if isinstance(frame, nw.DataFrame) else nw.from_native(frame, eager_only=True)
    series = dict(zip(map(str, table.columns), table.iter_columns(), strict=True))
    named = (roles.label or "", roles.query, roles.weight or "")
    place = Place(roles.features, where, *named, first_row)
    categorical, text = {*options.categorical_features}, {*options.text}
    columns = read_columns(
        [series[name] for name in roles.features],
        place,
        categorical={i for i, name in enumerate(roles.features) if name in categorical},
        text={i for i, name in enumerate(roles.features) if name in text},
    )

    def column(name: str | None, convert: Callable[[Series, Place], Any]) -> Any:
        if name is None:
            return None
        with converting(repr(name), where):
            return convert(_dense(series[name]), place)

    return Block(
        **columns._asdict(),
        y=column(roles.label, _numbers),
        runs=column(roles.query, series_runs),
        place=place,
        docids=column(roles.docid, _texts),
        weights=column(roles.weight, lambda own, at: _numbers(own, at).astype(np.float64)),
    )


def read_columns(
    columns: Sequence[Any],
    place: Place,
    categorical: AbstractSet[int] = frozenset(),
    text: AbstractSet[int] = frozenset(),
) -> Columns:
    """Convert columns, which are series or arrays, to features.

    Text becomes codes, and so do the values of `categorical` columns. In `text` columns, text that
    looks like numbers becomes codes too.
    """
    rows = len(columns[0])
    if rows == 0:
        raise InputError(f"{place.table or 'X'} has no rows.")
    arrays: list[npt.NDArray[Any]] = []
    categories = {}
    inexact, numeric = np.zeros((2, len(columns)), np.bool_)
    finite = True
    for i, column in enumerate(columns):
        with converting(place.name(i), place.table or "X"):
            values = _dense(column) if isinstance(column, nw.Series) else column
            name = place.name(i) if place.features else str(i + 1)
            if (coded := _codes(values, name, i in categorical, i in text)) is not None:
                values, categories[i] = coded
            else:
                if isinstance(values, nw.Series):
                    values = _numbers(values, place, Argument("ignore", [str(values.name)]))
                low, high = float(values.min()), float(values.max())
                inexact[i] = lost_digits(values, low, high)
                bounded = bool(low >= -_LARGEST and high <= _LARGEST)
                numeric[i] = bounded or not np.isnan(values).all()
                finite = finite and bounded
            arrays.append(values)
    X = np.empty((rows, len(columns)), np.float32)
    with np.errstate(over="ignore"):  # values that are too large become infinite; checked later
        for start in range(0, rows, _TILE):  # six times as fast as column by column
            tile = X[start : start + _TILE]
            for i, values in enumerate(arrays):
                tile[:, i] = values[start : start + _TILE]
    return Columns(X, categories, numeric, inexact, finite)


@contextmanager
def converting(column: str, where: str) -> Iterator[None]:
    """Raise a library's own error, such as that for a date beyond its calendar, as InputError."""
    try:
        yield
    except BaseException as error:  # polars' panics are no Exceptions
        if type(error).__module__.split(".")[0] not in _LIBRARIES and not isinstance(
            error, OverflowError
        ):
            raise
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{where}: can't read column {column}: {reason}.") from error


def _dense(series: Series) -> Series:
    """Return a series as it is, unless it is a sparse one of pandas."""
    native = series.to_native()
    if type(getattr(native, "dtype", None)).__name__ == "SparseDtype":
        return nw.from_native(native.sparse.to_dense(), series_only=True)
    return series


def _numbers(series: Series, place: Place, hint: Argument | None = None) -> npt.NDArray[Any]:
    """Return a column as numbers, with NaN for missing values; text raises an error."""
    kind = series.dtype
    if kind.is_float():
        return series.to_numpy()
    if kind.is_numeric() or kind == nw.Boolean:
        if kind in _WIDE:
            return _wide(series)
        return _nullable(series) if series.null_count() else series.to_numpy()
    values, missing = series.to_list(), series.is_null().to_list()
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if not missing[row]:
            try:
                numbers[row] = _number(value)
            except (TypeError, ValueError) as error:
                raise _not_a_number(series, values, missing, place, hint) from error
    return numbers


def _wide(series: Series) -> npt.NDArray[Any]:
    """Return decimals and wide integers as floats, in extended precision if they need it."""
    numbers = series.cast(nw.Float64).to_numpy()
    if not np.any(np.abs(numbers) >= 2**53):
        return numbers
    texts = ("nan" if value is None else str(value) for value in series.to_list())
    return np.array([np.longdouble(text) for text in texts])


def _nullable(series: Series) -> npt.NDArray[Any]:
    """Return whole numbers as floats with NaN, in extended precision if they need it."""
    numbers = series.fill_null(0 if series.dtype != nw.Boolean else False).to_numpy()
    kind = np.longdouble if lost_digits(numbers) else np.float64
    return np.where(series.is_null().to_numpy(), kind(np.nan), numbers.astype(kind))


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("text")
    return float(value)


def _not_a_number(
    series: Series, values: list[Any], missing: list[bool], place: Place, hint: Argument | None
) -> InputError:
    """The error for the first row that is not a number even as text, or for the first text."""
    present = [row for row in range(len(values)) if not missing[row]]
    tries = ((convert, row) for convert in (float, _number) for row in present)
    row = next(row for convert, row in tries if not _converts(convert, values[row]))
    what = f"column {series.name!r} contains {values[row]!r} in row {place.first_row + row + 1}"
    kind = "text, not a number" if isinstance(values[row], str) else "not a number"
    start = f"{place.table or 'X'}: {what}, which is {kind}"
    if hint is None:
        return InputError(start, ". Convert the column to numbers.")
    advice = ". Convert the column to numbers or to a categorical type, or leave it out"
    return InputError(start, advice, *((": ", hint) if place.table else ()), ".")


def _converts(convert: Callable[[Any], float], value: Any) -> bool:
    try:
        convert(value)
    except (TypeError, ValueError):
        return False
    return True


def _codes(
    column: Any, name: str, categorical: bool, text: bool
) -> tuple[Floats, tuple[str, ...]] | None:
    """Return the codes of a column, and its texts in the order of their first appearance.

    Empty texts are missing, and so are numbers below 0. The result is None for numbers, unless the
    column is `categorical`, and for text with numbers in it: these may be meant as numbers, unless
    the column has a frame's type for categories or was chosen.
    """
    is_series = isinstance(column, nw.Series)
    if not is_series or column.dtype.is_numeric() or column.dtype == nw.Boolean:
        if not categorical:
            return None
        numbers = _numbers(column, Place()) if is_series else column
        return _codes_of_numbers(numbers, name)
    if column.dtype not in _TEXT and not (categorical or text):
        return None
    known: dict[str, int] = {"": -1}
    missing = column.is_null().to_list()
    codes = np.empty(len(missing), np.float32)
    for row, value in enumerate(column.to_list()):
        own = "" if missing[row] else as_text(value)
        codes[row] = known.setdefault(own, len(known) - 1)
    texts = tuple(known)[1:]
    chosen = categorical or text or column.dtype != nw.String
    return None if not chosen and any(map(is_number, texts)) else (codes, texts)


def _codes_of_numbers(values: npt.NDArray[Any], name: str) -> tuple[Floats, tuple[str, ...]]:
    """Return the codes of whole numbers; missing and negative ones have −1."""
    present = values >= 0
    odd = np.isinf(values) | (present & (values != np.trunc(values)))
    if odd.any():
        raise InputError(
            f"Feature {name} is {values[odd][0]:g} in a row, but a category must be text or a "
            f"whole number of at least 0, or missing."
        )
    codes = np.full(values.shape, -1, np.float32)
    codes[present], found = by_appearance(values[present])
    return codes, tuple(str(int(value)) for value in found.tolist())


def as_text(value: Any) -> str:
    """Return a category as text; a whole number has no point.

    >>> as_text(3.0), as_text("3.0"), as_text(0.5)
    ('3', '3.0', '0.5')
    """
    if isinstance(value, float | np.floating) and value == value // 1:
        return str(int(value))
    return str(value)


def is_number(text: str) -> bool:
    """True if a text can be read as a number."""
    return _converts(float, text)


def _texts(series: Series, _: Place) -> Texts:
    """Return a column as text, with "" for missing values.

    Integers in a column with missing values come as floats; they are written without a point.
    """
    pairs = zip(series.to_list(), series.is_null().to_list(), strict=True)
    values = [None if null else value for value, null in pairs]
    if series.dtype.is_float() and all(
        value == value // 1 for value in values if value is not None
    ):
        values = [None if value is None else int(value) for value in values]
    return Texts.of("" if value is None else str(value) for value in values)


def series_runs(series: Series, place: Place) -> Runs:
    """Return the runs of a column of query ids."""
    kind = series.dtype
    missing = series.is_null()
    if kind.is_float():
        missing = missing | series.is_nan().fill_null(True)
    if missing.any():
        raise place.missing_query(missing.to_list().index(True))
    if kind.is_numeric() and kind not in _WIDE:
        return runs_in(series.to_numpy(), place)
    if kind == nw.Object:
        return runs_in(np.array([*series.to_list(), None], object)[:-1], place)
    if kind not in (*_TEXT, *_WIDE, nw.Boolean, nw.Date, nw.Datetime):
        raise place.wrong_queries(str(kind))
    changes = (series != series.shift(1)).fill_null(True).to_numpy()
    starts = np.flatnonzero(changes)
    heads = series[starts.tolist()]
    if kind == nw.Datetime:
        seconds = [value.isoformat(" ", "seconds") for value in heads.to_list()]
        pairs = zip(seconds, heads.dt.nanosecond().to_list(), strict=True)
        ids = [with_fraction(text, nanoseconds) for text, nanoseconds in pairs]
        zone = getattr(kind, "time_zone", None)
        return Runs(starts, _objects(ids), f"Datetime in {zone}" if zone else "Datetime")
    ids = [canonical_id(value, place) for value in heads.to_list()]
    name = "text" if kind in _TEXT else type(kind).__name__
    return Runs(starts, _objects(ids), "integer" if kind in _WIDE and _are_whole(ids) else name)


def _objects(ids: list[str]) -> npt.NDArray[Any]:
    return np.array([*ids, None], object)[:-1]


def _are_whole(ids: list[str]) -> bool:
    return all(name.removeprefix("-").isdecimal() for name in ids)
