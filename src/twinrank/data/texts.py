"""Many short texts as two arrays, so that they can be memory-mapped."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_DOCID = re.compile(r"\bdocid\s*=\s*(\S+)")


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
