"""A ranking table: what every source of data is turned into, and what a store holds."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.store import Arrays
from twinrank.data.texts import Texts
from twinrank.lists import Lists
from twinrank.support.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_RANGE = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False)
class Table:
    """Documents, one query after the other."""

    X: Floats
    y: Floats
    lists: Lists
    query_ids: npt.NDArray[Any]  # int64 or text
    comments: Texts | None
    feature_names: tuple[str, ...] | None
    rows: Ints | None  # of the source, where queries were put together; None: as they came
    notes: tuple[str, ...]

    @classmethod
    def of(cls, arrays: Arrays, facts: dict[str, Any]) -> "Table":
        """The table that a store's arrays and manifest make; they must fit one another."""
        try:
            X, y = arrays["X"], arrays["y"]
            lists, query_ids = Lists(arrays["offsets"]), np.array(arrays["query_ids"])
        except KeyError as error:
            raise InputError(f"array {error} is missing") from error
        names, notes = facts.get("feature_names"), facts.get("notes", [])
        comments = None
        if "comments" in arrays and "comment_ends" in arrays:
            comments = Texts(arrays["comments"], arrays["comment_ends"])
        rows = arrays.get("rows")
        fits = (
            X.ndim == 2
            and X.dtype == y.dtype == np.dtype(np.float32)
            and (X.shape[0],) == y.shape == (lists.documents,)
            and query_ids.shape == lists.sizes.shape
            and (comments is None or comments.fits(y.size))
            and (rows is None or (rows.shape == y.shape and rows.dtype == np.int64))
            and (names is None or (isinstance(names, list) and len(names) == X.shape[1]))
        )
        if not fits:
            raise InputError("its arrays don't fit one another")
        return cls(
            X,
            y,
            lists,
            query_ids,
            comments,
            None if names is None else tuple(names),
            None if rows is None else np.array(rows),
            tuple(str(note) for note in notes),
        )


def as_ids(names: list[str]) -> npt.NDArray[Any]:
    """Query ids as whole numbers if each is spelled as one, else as text.

    >>> as_ids(["7", "10"]), as_ids(["007", "10"])
    (array([ 7, 10]), array(['007', '10'], dtype='<U3'))
    """
    if all(_WHOLE.fullmatch(name) for name in names):
        numbers = [int(name) for name in names]
        if _RANGE.min <= min(numbers, default=0) and max(numbers, default=0) <= _RANGE.max:
            return np.array(numbers, dtype=np.int64)
    if (bad := next((name for name in names if "\0" in name), None)) is not None:
        raise InputError(f"the query id {bad!r} has a NUL character in it")
    return np.array(names, dtype=np.str_)


def together(starts: Ints, runs: Ints, documents: int) -> tuple[Ints | None, Ints]:
    """The order that puts each query's rows together, and the offsets in that order.

    Run r begins at row starts[r] and belongs to query runs[r], numbered by first appearance.
    The order is None where rows are together already.
    """
    sizes = np.diff(starts, append=documents)
    counts = np.zeros(int(runs.max(initial=-1)) + 1, np.int64)
    np.add.at(counts, runs, sizes)
    offsets = np.append(0, np.cumsum(counts))
    if runs.size == counts.size:
        return None, offsets
    return np.argsort(np.repeat(runs, sizes), kind="stable"), offsets


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "query"), counted(2000, "query"), counted(3, "document")
    ('1 query', '2,000 queries', '3 documents')
    """
    plural = {"query": "queries"}.get(what, what + "s")
    return f"{count:,} {what if count == 1 else plural}"


def scattered_note(runs: Ints) -> str:
    """What is said of queries whose rows were put together."""
    scattered = int((np.bincount(runs) > 1).sum())
    return f"the rows of {counted(scattered, 'query')} were scattered, and have been put together"


def dropped_note(count: int) -> str:
    """What is said of unjudged documents that were dropped."""
    was = "was" if count == 1 else "were"
    return f"{counted(count, 'document')} without a judgement (label −1) {was} dropped"


def not_finite_notes(missing: int, infinite: int) -> list[str]:
    """What is said of values that aren't finite, and were kept or clipped."""
    notes = []
    for count, what in ((missing, "not a number (NaN)"), (infinite, "beyond a float32's range")):
        if count:
            notes.append(f"{counted(count, 'value')} {'is' if count == 1 else 'are'} {what}")
    return notes
