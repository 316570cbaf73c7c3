"""The contract of every data source: `ReadOptions` in, a `Table` out."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.store import Arrays
from twinrank.lists import Lists
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError, unknown
from twinrank.support.quantities import counted

MISSING = ("zero", "nan")
UNJUDGED = ("error", "keep", "drop")
NON_FINITE = ("error", "keep", "clip")
SPLIT_QUERIES = ("join", "error")
MAX_FEATURES = 100_000
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64 = np.iinfo(np.int64)
_LONGEST_ID = 1000
_DOCID = re.compile(r"\bdocid\s*=\s*(\S+)")


def column_names(names: str | Sequence[str | int]) -> tuple[str, ...]:
    """Return column names as a tuple; a single string is one name."""
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of reading data; `twinrank.load` documents each of them."""

    features: int | tuple[str, ...] | None = None
    missing: str = "zero"
    zero_based: bool = False
    unjudged: str = "error"
    non_finite: str = "error"
    max_features: int = MAX_FEATURES
    query: str | None = None
    label: str | bool | None = None
    docid: str | None = None
    ignore: tuple[str, ...] = ()
    split_queries: str = "join"

    def __post_init__(self) -> None:
        for name, choices in (
            ("missing", MISSING),
            ("unjudged", UNJUDGED),
            ("non_finite", NON_FINITE),
            ("split_queries", SPLIT_QUERIES),
        ):
            if (value := getattr(self, name)) not in choices:
                raise InputError(f"{name}: " + unknown("choice", str(value), choices))
        if isinstance(self.features, int) and not 1 <= self.features <= self.max_features:
            raise InputError(f"features must be 1 to {self.max_features:,}, not {self.features:,}")
        if self.max_features >= 10**7 or self.max_features < 1:
            raise InputError(f"max_features must be 1 to 9,999,999, not {self.max_features:,}")

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain JSON."""
        return asdict(self)


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


@dataclass(frozen=True, eq=False)
class Table:
    """Documents in the order of their queries."""

    X: Floats
    y: Floats
    lists: Lists
    query_ids: npt.NDArray[Any]  # int64 or text
    comments: Texts | None
    feature_names: tuple[str, ...] | None
    rows: Ints | None  # source row of each document; None if the source order is kept
    notes: tuple[str, ...]
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The texts of columns by number; the columns have their numbers, −1 for missing ones."""

    @classmethod
    def of(cls, arrays: Arrays, facts: dict[str, Any]) -> "Table":
        """Make a table from a store's arrays and manifest, and check that they fit together."""
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
        categories = facts.get("categories") or {}
        for key, texts in categories.items():
            column = X[:, int(key)] if key.isdecimal() and int(key) < X.shape[1] else None
            fits = fits and column is not None and not np.any(column >= len(texts))
        if not fits:
            raise InputError("its arrays have shapes or types that do not fit together")
        return cls(
            X,
            y,
            lists,
            query_ids,
            comments,
            None if names is None else tuple(names),
            None if rows is None else np.array(rows),
            tuple(str(note) for note in notes),
            {int(key): tuple(texts) for key, texts in categories.items()},
        )


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
            raise InputError(f"select: {error}; there are {self.queries:,} queries") from error
        if numbers.ndim != 1:
            raise InputError(
                f"select takes a one-dimensional array of query numbers, not shape {numbers.shape}"
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


def as_ids(names: list[str]) -> npt.NDArray[Any]:
    """Return query ids as int64 if each is spelled as an integer, else as text.

    >>> as_ids(["7", "10"]), as_ids(["007", "10"])
    (array([ 7, 10]), array(['007', '10'], dtype='<U3'))
    """
    if all(_INTEGER.fullmatch(name) for name in names):
        numbers = [int(name) for name in names]
        if _INT64.min <= min(numbers, default=0) and max(numbers, default=0) <= _INT64.max:
            return np.array(numbers, dtype=np.int64)
    if (invalid := next((name for name in names if "\0" in name), None)) is not None:
        raise InputError(f"query id {invalid!r} contains a NUL character; remove it")
    longest = max(names, key=len, default="")
    if len(longest) > _LONGEST_ID:  # an array of text gives every id the space of the longest
        raise InputError(
            f"query id {longest[:20]!r}… has {len(longest):,} characters; shorten it to "
            f"{_LONGEST_ID:,} at most"
        )
    return np.array(names, dtype=np.str_)


def scattered_queries(runs: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the queries with several runs of rows."""
    return np.bincount(runs) > 1


def grouped_rows(starts: Ints, runs: Ints, documents: int) -> tuple[Ints | None, Ints]:
    """Return the order of rows that groups them by query, and the offsets in that order.

    Run r begins at row starts[r] and belongs to query runs[r], numbered by first appearance.
    The order is None if the rows are grouped already.
    """
    sizes = np.diff(starts, append=documents)
    counts = np.zeros(int(runs.max(initial=-1)) + 1, np.int64)
    np.add.at(counts, runs, sizes)
    offsets = np.append(0, np.cumsum(counts))
    if runs.size == counts.size:
        return None, offsets
    return np.argsort(np.repeat(runs, sizes), kind="stable"), offsets


def scattered_note(scattered: int) -> str:
    """Return the note about queries whose rows were not adjacent."""
    return f"the rows of {counted(scattered, 'query')} were scattered; they are now grouped"


def dropped_note(count: int) -> str:
    """Return the note about unjudged documents that were dropped."""
    was = "was" if count == 1 else "were"
    return f"{counted(count, 'document')} without a judgement (label −1) {was} dropped"


def not_finite_notes(missing: int, infinite: int) -> list[str]:
    """Return the notes about values that are not finite and were kept or clipped."""
    notes = []
    for count, problem in ((missing, "not a number (NaN)"), (infinite, "beyond a float32's range")):
        if count:
            notes.append(f"{counted(count, 'value')} {'is' if count == 1 else 'are'} {problem}")
    return notes
