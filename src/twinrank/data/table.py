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
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


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
        fits = (
            X.ndim == 2
            and X.dtype == y.dtype == np.dtype(np.float32)
            and (X.shape[0],) == y.shape == (lists.documents,)
            and query_ids.shape == lists.sizes.shape
            and (comments is None or len(comments) == y.size)
            and (names is None or (isinstance(names, list) and len(names) == X.shape[1]))
        )
        if not fits:
            raise InputError("its arrays don't fit one another")
        rows = arrays.get("rows")
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
        return np.array([int(name) for name in names], dtype=np.int64)
    return np.array(names, dtype=np.str_)


def together(starts: Ints, runs: Ints, documents: int) -> tuple[Ints | None, Ints]:
    """The order that puts each query's rows together, and the offsets in that order.

    Run r begins at row starts[r] and belongs to query runs[r], numbered by first appearance.
    The order is None where rows are together already.
    """
    ends = np.append(starts[1:], documents)
    sizes = ends - starts
    queries = int(runs.max()) + 1 if runs.size else 0
    offsets = np.zeros(queries + 1, np.int64)
    np.cumsum(np.bincount(runs, weights=sizes, minlength=queries).astype(np.int64), out=offsets[1:])
    if runs.size == queries:
        return None, offsets
    by_query = np.argsort(runs, kind="stable")
    return np.concatenate([np.arange(starts[r], ends[r]) for r in by_query]), offsets


def scattered_note(runs: Ints) -> str:
    """What is said of queries whose rows were put together."""
    scattered = int((np.bincount(runs) > 1).sum())
    subject = "1 query was" if scattered == 1 else f"{scattered:,} queries were"
    return f"the rows of {subject} scattered, and have been put together"
