"""A `Table`: checked arrays of documents in the order of their queries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import Argument, InputError, Parts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Arrays = dict[str, npt.NDArray[Any]]
Categories = Mapping[int, tuple[str, ...]]
"""The texts of columns, by number; the column has their numbers, and −1 for missing values."""
_DOCID = re.compile(r"\bdocid\s*=\s*(\S+)")


class Texts:
    """Many short texts as two arrays, which can be memory-mapped.

    `content` holds the bytes of all texts, and text i is content[ends[i−1]:ends[i]].

    >>> texts = Texts.of(["first", "", "third"])
    >>> texts[2], len(texts), list(texts.take(np.array([2, 0])))
    ('third', 3, ['third', 'first'])
    """

    __slots__ = ("content", "ends")

    def __init__(self, content: npt.NDArray[np.uint8], ends: Ints) -> None:
        self.content = content
        self.ends = ends

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> "Texts":
        """Make texts from strings, or from bytes in any encoding."""
        pieces = [text.encode() if isinstance(text, str) else text for text in texts]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        return cls(np.frombuffer(b"".join(pieces), dtype=np.uint8), ends)

    @classmethod
    def empty(cls, count: int) -> "Texts":
        """Make empty texts."""
        return cls(np.empty(0, np.uint8), np.zeros(count, np.int64))

    def __len__(self) -> int:
        return self.ends.size

    def fits(self, count: int) -> bool:
        """Check that the arrays describe `count` texts, each within the content."""
        dtypes = (self.content.dtype, self.ends.dtype) == (np.dtype(np.uint8), np.dtype(np.int64))
        if not dtypes or self.content.ndim != 1 or self.ends.shape != (count,):
            return False
        return bool((np.diff(self.ends, prepend=0) >= 0).all()) and self.ends[-1:].tolist() in (
            [],
            [self.content.size],
        )

    def raw(self, i: int) -> bytes:
        """Return text i as bytes."""
        start = self.ends[i - 1] if i else 0
        return self.content[start : self.ends[i]].tobytes()

    def __getitem__(self, i: int) -> str:
        return _decoded(self.raw(i))

    def __iter__(self) -> Iterator[str]:
        return (_decoded(piece) for piece in self.all_raw())

    def all_raw(self) -> Iterator[bytes]:
        """Iterate over all texts as bytes."""
        start = 0
        for end in self.ends.tolist():
            yield self.content[start:end].tobytes()
            start = end

    def take(self, rows: Any) -> "Texts":
        """Return the texts of the given rows (a slice or an array), in that order."""
        if isinstance(rows, slice):
            begin, stop, _ = rows.indices(len(self))
            first = int(self.ends[begin - 1]) if begin else 0
            last = int(self.ends[stop - 1]) if stop else 0
            return Texts(self.content[first:last], self.ends[begin:stop] - first)
        starts = np.concatenate([[0], self.ends[:-1]])[rows]
        sizes = self.ends[rows] - starts
        ends = np.cumsum(sizes)
        within = np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - sizes, sizes)
        return Texts(self.content[np.repeat(starts, sizes) + within], ends)


def _decoded(piece: bytes) -> str:
    """Decode UTF-8; other bytes become escapes, because a comment may contain any bytes."""
    return piece.decode("utf-8", errors="backslashreplace")


def docid_in(comment: str) -> str:
    """Return the id that a comment states as `docid = …`, or else the whole comment.

    >>> docid_in("docid = GX008-86 inc = 1"), docid_in(" GX008-86")
    ('GX008-86', 'GX008-86')
    """
    match = _DOCID.search(comment)
    return match[1] if match else comment.strip()


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """Documents in the order of their queries."""

    X: Floats
    y: Floats
    lists: Lists
    query_ids: npt.NDArray[Any]
    """int64 or text."""
    weights: npt.NDArray[np.float64] | None = None
    """Of queries."""
    comments: Texts | None = None
    feature_names: tuple[str, ...] | None = None
    rows: Ints | None = None
    """The source row of each document; None if the source order is kept."""
    notes: tuple[Parts, ...] = ()
    categories: Categories = field(default_factory=dict)
    from_clicks: bool = False
    """True if labels are estimates from clicks, which only linear measures can use."""

    @classmethod
    def of(cls, arrays: Arrays, facts: Mapping[str, Any]) -> "Table":
        """Make a table from a store's arrays and manifest, and check that they fit together."""
        try:
            X, y = arrays["X"], arrays["y"]
            lists, query_ids = Lists(arrays["offsets"]), np.array(arrays["query_ids"])
        except KeyError as error:
            raise InputError(f"Array {error} is missing.") from error
        names, rows, weights = facts.get("feature_names"), arrays.get("rows"), arrays.get("weights")
        comments = None
        if "comments" in arrays and "comment_ends" in arrays:
            comments = Texts(arrays["comments"], arrays["comment_ends"])
        fits = (
            X.ndim == 2
            and X.dtype == y.dtype == np.dtype(np.float32)
            and (X.shape[0],) == y.shape == (lists.documents,)
            and query_ids.shape == lists.sizes.shape
            and (comments is None or comments.fits(y.size))
            and (rows is None or (rows.shape == y.shape and rows.dtype == np.int64))
            and (weights is None or weights.shape == query_ids.shape)
            and (names is None or len(names) == X.shape[1])
        )
        categories = {int(key): tuple(own) for key, own in facts.get("categories", {}).items()}
        for column, own in categories.items():
            fits = fits and column < X.shape[1] and not np.any(X[:, column] >= len(own))
        if not fits:
            raise InputError("Its arrays have shapes or types that do not fit together.")
        return cls(
            X=X,
            y=y,
            lists=lists,
            query_ids=query_ids,
            weights=None if weights is None else np.array(weights),
            comments=comments,
            feature_names=None if names is None else tuple(names),
            rows=None if rows is None else np.array(rows),
            notes=tuple(_note(note) for note in facts.get("notes", ())),
            categories=categories,
            from_clicks=facts.get("from_clicks") is True,
        )

    def facts(self) -> dict[str, Any]:
        """Return what a manifest holds besides the arrays."""
        return facts(self.feature_names, self.notes, self.categories)


def facts(
    names: Iterable[str] | None, notes: Iterable[Parts], categories: Categories
) -> dict[str, Any]:
    """Return what a manifest holds besides arrays, as plain JSON."""
    listed = {str(column): list(texts) for column, texts in categories.items()}
    return {
        "feature_names": None if names is None else list(names),
        "notes": [
            [[part.name, part.value] if isinstance(part, Argument) else part for part in note]
            for note in notes
        ],
        **({"categories": listed} if listed else {}),
    }


def _note(plain: Any) -> Parts:
    """The inverse of what `facts` makes of a note; data of earlier versions has notes as text."""
    if isinstance(plain, str):
        return [plain]
    return [part if isinstance(part, str) else Argument(str(part[0]), part[1]) for part in plain]


class Selection:
    """Queries of a table, in any order: those with the given numbers, or all for None."""

    def __init__(self, table_lists: Lists, numbers: Ints | None = None) -> None:
        self.numbers = numbers
        self._table_lists = table_lists

    @property
    def queries(self) -> int:
        """Number of selected queries."""
        return self._table_lists.sizes.size if self.numbers is None else self.numbers.size

    def select(self, queries: Any) -> Ints:
        """Return the table's numbers of selected queries, given by number, mask or slice."""
        numbers: Ints = np.arange(self.queries)
        if not isinstance(queries, slice):
            queries = to_numpy(queries)
            queries = queries.astype(np.int64) if queries.size == 0 else queries
        try:
            numbers = numbers[queries]
        except IndexError as error:
            raise InputError(f"select: {error}; there are {self.queries:,} queries.") from error
        if numbers.ndim != 1:
            raise InputError(
                f"select takes a one-dimensional array of query numbers, not shape {numbers.shape}."
            )
        return numbers if self.numbers is None else self.numbers[numbers]

    @cached_property
    def lists(self) -> Lists:
        """The lists of the selected queries."""
        if self.numbers is None:
            return self._table_lists
        return Lists.from_sizes(self._table_lists.sizes[self.numbers])

    @cached_property
    def rows(self) -> Any:
        """The table's rows of the selected queries: a slice if they are adjacent, or an array."""
        if self.numbers is None:
            return slice(None)
        numbers, offsets = self.numbers, self._table_lists.offsets
        if numbers.size == 0:
            return slice(0, 0)
        if (np.diff(numbers) == 1).all():
            return slice(int(offsets[numbers[0]]), int(offsets[numbers[-1] + 1]))
        shifts = offsets[numbers] - self.lists.offsets[:-1]
        return np.arange(self.lists.documents) + np.repeat(shifts, self.lists.sizes)

    def slices(self, queries: Any) -> list[slice]:
        """Return the table's rows of selected queries, given by number."""
        numbers = np.asarray(queries, np.int64)
        numbers = numbers if self.numbers is None else self.numbers[numbers]
        starts = self._table_lists.offsets[numbers].tolist()
        ends = self._table_lists.offsets[numbers + 1].tolist()
        return [slice(start, end) for start, end in zip(starts, ends, strict=True)]
