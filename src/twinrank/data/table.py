"""A `Table`: checked arrays of documents in the order of their queries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.support.errors import Parts

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
    row_weights: npt.NDArray[np.float64] | None = None
    """Of documents, if they differ within a query; `weights` are then their means."""
    comments: Texts | None = None
    feature_names: tuple[str, ...] | None = None
    rows: Ints | None = None
    """The source row of each document; None if the source order is kept."""
    notes: tuple[Parts, ...] = ()
    categories: Categories = field(default_factory=dict)
    labels: Mapping[str, Floats] = field(default_factory=dict)
    """All columns of labels by name, if there are several; the first is `y`."""
    from_clicks: bool = False
    """True if labels are estimates from clicks, which only linear measures can use."""

    @classmethod
    def of(
        cls,
        arrays: Arrays,
        names: Iterable[str] | None,
        notes: Iterable[Parts],
        categories: Categories,
    ) -> "Table":
        """Make a table from the arrays of a sink or a store, and from what they do not hold."""
        rows, weights, comments = arrays.get("rows"), arrays.get("weights"), None
        row_weights = arrays.get("row_weights")
        if "comments" in arrays and "comment_ends" in arrays:
            comments = Texts(arrays["comments"], arrays["comment_ends"])
        return cls(
            X=arrays["X"],
            y=arrays["y"],
            lists=Lists(arrays["offsets"]),
            query_ids=np.array(arrays["query_ids"]),
            weights=None if weights is None else np.array(weights),
            row_weights=None if row_weights is None else np.array(row_weights),
            comments=comments,
            feature_names=None if names is None else tuple(names),
            rows=None if rows is None else np.array(rows),
            notes=tuple(notes),
            categories=categories,
        )

    def fits(self) -> bool:
        """True if the arrays fit together: those of a store may be damaged."""
        X, y, rows, weights, names = self.X, self.y, self.rows, self.weights, self.feature_names
        own = self.row_weights
        return (
            X.ndim == 2
            and X.dtype == y.dtype == np.dtype(np.float32)
            and (X.shape[0],) == y.shape == (self.lists.documents,)
            and self.query_ids.shape == self.lists.sizes.shape
            and (self.comments is None or self.comments.fits(y.size))
            and (rows is None or (rows.shape == y.shape and rows.dtype == np.int64))
            and (weights is None or weights.shape == self.query_ids.shape)
            and (own is None or (own.shape == y.shape and weights is not None))
            and (names is None or len(names) == X.shape[1])
            and all(
                column < X.shape[1] and not np.any(X[:, column] >= len(texts))
                for column, texts in self.categories.items()
            )
        )
