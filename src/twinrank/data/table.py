"""The contract of every data source: `ReadOptions` in, a `Table` out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.store import Arrays
from twinrank.lists import Lists
from twinrank.support.errors import InputError, unknown
from twinrank.support.text import counted

MISSING = ("zero", "nan")
UNJUDGED = ("error", "keep", "drop")
NON_FINITE = ("error", "keep", "clip")
MAX_FEATURES = 100_000
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_RANGE = np.iinfo(np.int64)
_DOCID = re.compile(r"\bdocid\s*=\s*(\S+)")


def several(names: str | Sequence[str | int]) -> tuple[str, ...]:
    """Names of columns, of which one may come by itself."""
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How data is to be read; `twinrank.load` explains each choice."""

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

    def __post_init__(self) -> None:
        for name, choices in (
            ("missing", MISSING),
            ("unjudged", UNJUDGED),
            ("non_finite", NON_FINITE),
        ):
            if (given := getattr(self, name)) not in choices:
                raise InputError(f"{name}: " + unknown("choice", str(given), choices))
        if isinstance(self.features, int) and not 1 <= self.features <= self.max_features:
            raise InputError(f"features must be 1 to {self.max_features:,}, not {self.features:,}")
        if self.max_features >= 10**7 or self.max_features < 1:
            raise InputError(f"max_features must be 1 to 9,999,999, not {self.max_features:,}")

    def to_json(self) -> dict[str, Any]:
        """The choices as plain JSON."""
        return asdict(self)


class Texts:
    """Texts end to end as bytes; text i is content[ends[i−1]:ends[i]].

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
        """Texts from strings, or from bytes in any encoding."""
        pieces = [text.encode() if isinstance(text, str) else text for text in texts]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        return cls(np.frombuffer(b"".join(pieces), dtype=np.uint8), ends)

    def __len__(self) -> int:
        return self.ends.size

    def fits(self, count: int) -> bool:
        """Whether these are so many texts, each of them within the content."""
        kinds = (self.content.dtype, self.ends.dtype) == (np.dtype(np.uint8), np.dtype(np.int64))
        if not kinds or self.content.ndim != 1 or self.ends.shape != (count,):
            return False
        return bool((np.diff(self.ends, prepend=0) >= 0).all()) and self.ends[-1:].tolist() in (
            [],
            [self.content.size],
        )

    def raw(self, i: int) -> bytes:
        """Text i as bytes."""
        start = self.ends[i - 1] if i else 0
        return self.content[start : self.ends[i]].tobytes()

    def __getitem__(self, i: int) -> str:
        return _decoded(self.raw(i))

    def __iter__(self) -> Iterator[str]:
        return (_decoded(piece) for piece in self.all_raw())

    def all_raw(self) -> Iterator[bytes]:
        """Every text as bytes."""
        start = 0
        for end in self.ends.tolist():
            yield self.content[start:end].tobytes()
            start = end

    def take(self, rows: Any) -> "Texts":
        """The texts of some rows, in their order."""
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
    """UTF-8, with any other byte spelled out in hexadecimal: a comment may hold anything."""
    return piece.decode("utf-8", errors="backslashreplace")


def docid_in(comment: str) -> str:
    """The id that a comment calls `docid = …`, or else the whole comment.

    >>> docid_in("docid = GX008-86 inc = 1"), docid_in(" GX008-86")
    ('GX008-86', 'GX008-86')
    """
    match = _DOCID.search(comment)
    return match[1] if match else comment.strip()


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
