"""The rows of a log of clicks: checked, and numbered by impression, query and document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt

from twinrank.clicks.click_log import Bools, ClickLog, Floats, Ints
from twinrank.clicks.row_numbers import by_first_row, number_pairs, repeated_row
from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset
from twinrank.data.from_frames import as_text
from twinrank.support.errors import InputError

_DEEPEST = 10_000


class Place(NamedTuple):
    """A source of rows for messages, and the number of rows before these."""

    where: str
    start: int = 0
    sizes: Sequence[int] | None = None
    """The documents of each row, if a row is an impression."""

    def row(self, number: int) -> str:
        """A row, counted from 1."""
        if self.sizes is not None:
            number = int(np.searchsorted(np.cumsum(self.sizes), number, side="right"))
        return f"{self.where}: row {self.start + number + 1}"


class Ids:
    """A column of ids as numbers in the order of first appearance, and the texts of the ids."""

    def __init__(self, values: Any, role: str, place: Place) -> None:
        self._values = values
        self._known: list[str] | None = None
        physical = _physical(values)
        if isinstance(physical, np.ndarray):
            self.codes, self.first = by_first_row(physical)
            return
        known: dict[Any, int] = {}
        numbers = (known.setdefault(value, len(known)) for value in physical)
        try:
            self.codes = np.fromiter(numbers, np.int64, len(physical))
        except TypeError as error:
            raise InputError(f"{place.where}: a {role} is no text or number: {error}.") from error
        for value, code in known.items():
            if value is None or value != value:
                row = int(np.argmax(self.codes == code))
                raise InputError(f"{place.row(row)} has no {role}.")
        self._known = [as_text(value) for value in known]
        _, self.first = by_first_row(self.codes)

    def __len__(self) -> int:
        return self.first.size

    def text(self, code: int) -> str:
        """The text of an id."""
        return as_text(self._values[int(self.first[code])])

    def texts(self) -> list[str]:
        """The texts of all ids."""
        if self._known is not None:
            return self._known
        return [as_text(value) for value in self._values[self.first.tolist()].to_list()]


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


@dataclass(frozen=True, eq=False)
class LogRows:
    """Checked rows: a document that was shown, or in a sum all displays of one at a position."""

    place: Place
    impression: Ints
    query: Ids
    docid: Ids
    position: Ints
    clicked: Any
    weight: Floats  # of each impression
    propensity: Floats | None = None
    randomised: Bools | None = None  # of each impression
    displays: Floats | None = None  # in a sum
    impressions: Ids | None = None  # to name them in messages

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """The number of each row's document, and the first row of each."""
        return number_pairs(self.query.codes, self.docid.codes)

    def log(
        self, data: Dataset | None, X: npt.NDArray[Any] | None, names: Sequence[str] | None
    ) -> ClickLog:
        """The log, its documents numbered as in the data, or in the order of the log."""
        number, first = self.pairs
        owner = self.query.codes[first]
        queries, docids = self.query.texts(), np.array(self.docid.texts())[self.docid.codes[first]]
        keys = list(zip(map(queries.__getitem__, owner.tolist()), docids.tolist(), strict=True))
        if X is not None:
            if data is not None:
                raise InputError("Pass data or features, not both.")
            data = self._own_data(X, names, keys, first, number)
        if data is None:
            lists, query_ids = Lists.from_sizes(np.bincount(owner)), np.array(queries)
            document = number
        else:
            lists, query_ids, docids = data.lists, data.query_ids, data.docids_or_numbers
            own = _numbers_in(data, docids, keys)
            document = own[number]
            if (document < 0).any():
                raise self._unknown(document, keys, number)
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
            displays=self.displays,
        )

    def check_once(self) -> None:
        """Refuse an impression with two documents at one position, or with one twice."""
        for values, problem in (
            (self.position, "shows two documents at the same position"),
            (self.pairs[0], "shows a document twice"),
        ):
            if (row := repeated_row(self.impression, values)) >= 0:
                assert self.impressions is not None  # sums are not checked
                name = self.impressions.text(self.impression[row])
                raise InputError(f"{self.place.row(row)}: impression {name} {problem}.")

    def _own_data(self, X: Any, names: Any, keys: Any, first: Ints, number: Ints) -> Dataset:
        """The features in the log, of the first row of each document."""
        same = (X[first][number] == X) | (np.isnan(X) & np.isnan(X[first][number]))
        _check(
            ~same.all(axis=1),
            "has other features than an earlier row of its query and document; if features differ "
            "between impressions, pass the column of impressions as query",
            self.place,
        )
        queries = [query for query, _ in keys]
        docids = [docid for _, docid in keys]
        return Dataset.from_arrays(
            X[first], qid=queries, docids=docids, feature_names=names, unjudged="keep",
            non_finite="keep",
        )  # fmt: skip

    def _unknown(self, document: Ints, keys: list[tuple[str, str]], number: Ints) -> InputError:
        row = int(np.argmin(document))
        query, docid = keys[number[row]]
        share = (document < 0).mean()
        place = self.place.where if self.displays is not None else self.place.row(row)
        return InputError(
            f"{place} shows document {docid} of query {query}, which the data does not have "
            f"({share:.1%} of all rows are unknown)."
        )


def checked_rows(values: Mapping[str, Any], place: Place) -> LogRows:
    """Check the values of a log, by role; InputError names the row and the reason."""
    position, clicked = _positions_and_clicks(values, place)
    impression = Ids(values["impression"], "impression", place)
    query, docid = Ids(values["query"], "query", place), Ids(values["docid"], "docid", place)
    propensity: Floats | None = None
    if "propensity" in values:
        propensity = _numbers(values["propensity"], "propensity", place).astype(np.float64)
        bad = ~((propensity > 0) & (propensity <= 1))
        _check(bad, "has a propensity that is not above 0 and at most 1", place)
    weight = np.ones(len(impression))
    if "weight" in values:
        own = _numbers(values["weight"], "weight", place)
        bad = ~(np.isfinite(own) & (own >= 0))
        _check(bad, "has a weight that is negative or not finite", place)
        weight = _per_impression(own, impression, "weight", place)
    if not weight.any():
        raise InputError(f"{place.where}: all weights are 0.")
    randomised: Bools | None = None
    if "randomised" in values:
        flags = _numbers(values["randomised"], "randomised", place)
        _check((flags != 0) & (flags != 1), "has a value for randomised other than 0 or 1", place)
        randomised = _per_impression(flags, impression, "randomised", place) == 1
    _per_impression(query.codes, impression, "query", place)
    rows = LogRows(
        place, impression.codes, query, docid, position, clicked, weight, propensity, randomised,
        impressions=impression,
    )  # fmt: skip
    rows.check_once()
    return rows


def _positions_and_clicks(values: Mapping[str, Any], place: Place) -> tuple[Ints, Bools]:
    position = _numbers(values["position"], "position", place)
    clicked = _numbers(values["clicked"], "clicked", place)
    if not (_within(position, 1, _DEEPEST) and _within(clicked, 0, 1)):
        _check(np.isnan(clicked), "has no value for clicked; it must be 0 or 1", place)
        odd = (clicked != 0) & (clicked != 1)
        _check(odd, "has a value for clicked other than 0 and 1", place)
        _check(np.isnan(position) & (clicked == 1), "has a click without a position", place)
        missing = "has no position; leave out documents that were not shown"
        _check(np.isnan(position), missing, place)
        whole = (position >= 1) & (position == np.floor(position))
        _check(~whole, "has a position that is not a whole number from 1 on", place)
        beyond = f"has a position beyond {_DEEPEST:,}; it may be an id"
        _check(position > _DEEPEST, beyond, place)
    return position.astype(np.int64, copy=False), clicked.astype(np.bool_, copy=False)


def _within(values: npt.NDArray[Any], least: int, most: int) -> bool:
    """True for whole numbers of this range, of a type that has no others."""
    if values.dtype.kind not in "iub":
        return False
    return bool(values.min() >= least and values.max() <= most)


def _numbers(values: Any, role: str, place: Place) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values if values.dtype.kind in "iub" else values.astype(np.float64, copy=False)
    try:
        return np.array([np.nan if v is None else float(v) for v in values], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place.row(_first_text(values))} has a {role} that is not a number: {error}."
        ) from error


def _first_text(values: Sequence[Any]) -> int:
    """The first row whose value is not a number."""
    for row, value in enumerate(values):
        try:
            float(0 if value is None else value)
        except (TypeError, ValueError):
            return row
    return 0


def _per_impression(
    values: npt.NDArray[Any], impression: Ids, role: str, place: Place
) -> npt.NDArray[Any]:
    """One value per impression; it must be the same in all rows."""
    first = values[impression.first]
    problem = f"has another {role} than the rest of its impression"
    _check(first[impression.codes] != values, problem, place)
    return first.astype(np.float64)


def _check(bad: Bools, problem: str, place: Place) -> None:
    if bad.any():
        raise InputError(f"{place.row(int(np.argmax(bad)))} {problem}.")


def _numbers_in(data: Dataset, docids: Any, keys: list[tuple[str, str]]) -> Ints:
    """The number of each pair of query and document in the data, −1 if it has none."""
    texts = [as_text(query) for query in data.query_ids.tolist()]
    known: dict[tuple[str, str], int] = {}
    for query, rows in zip(texts, data.lists, strict=True):
        for number, docid in zip(range(rows.start, rows.stop), docids[rows], strict=True):
            if known.setdefault((query, str(docid)), number) != number:
                raise InputError(
                    f"The data has document {docid} of query {query} twice, so that clicks on it "
                    f"are ambiguous."
                )
    return np.array([known.get(key, -1) for key in keys], np.int64)
