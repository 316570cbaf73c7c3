"""The bytes of a file, decompressed on the way, and the fingerprint by which it is known again."""

import gzip
import hashlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from twinrank.support.errors import InputError, explained

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".zst": zstd.open,
}
COMPRESSED = tuple(_OPENERS)
LETOR = (".txt", ".letor", ".svm", ".svmlight", ".libsvm", ".dat")
FRAMES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".ipc")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Fingerprint:
    """What tells one state of a file from another without reading it."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "Fingerprint":
        """The fingerprint of a file as it is now."""
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    def to_json(self) -> dict[str, int]:
        """The same as plain numbers."""
        return asdict(self)


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with explained("read", path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain_suffix(path: Path) -> str:
    """The suffix that tells the format, that of a compressed file's content included.

    >>> plain_suffix(Path("train.csv.gz")), plain_suffix(Path("train.txt"))
    ('.csv', '.txt')
    """
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower()


class _Hashed(io.RawIOBase):
    """A file that hashes what is read from it, in order."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.consumed = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        count = self._file.readinto(view)  # type: ignore[attr-defined]
        self._digest.update(view[:count])
        self.consumed += count
        return int(count)

    def finish(self) -> str:
        while self.read(_BLOCK):
            pass
        return self._digest.hexdigest()


class Source:
    """A file's content as a stream of bytes."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._raw = _Hashed(file)
        opener = _OPENERS.get(path.suffix.lower())
        self._content: Any = opener(self._raw, "rb") if opener else self._raw

    @property
    def consumed(self) -> int:
        """How many bytes of the file itself have been read."""
        return self._raw.consumed

    def fill(self, buffer: memoryview) -> int:
        """Read until the buffer is full or the file ends; how many bytes that were."""
        filled = 0
        try:
            while filled < len(buffer):
                count = self._content.readinto(buffer[filled:])
                if not count:
                    break
                filled += count
        except EOFError as error:
            raise InputError(f"{self.path} ends in the middle: the archive is truncated") from error
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
            raise InputError(
                f"{self.path} is damaged, or not what its name says: {error}"
            ) from error
        return filled

    def finish(self) -> str:
        """The hash of the whole file, read to its end."""
        return self._raw.finish()


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open a file, compressed or not; a plain OSError while reading says which file it was."""
    with explained("read", path), path.open("rb", buffering=0) as file:
        yield Source(path, file)


@contextmanager
def written(path: Path, name: Path) -> Iterator[IO[bytes]]:
    """Open `path` for writing, compressed as `name` asks for."""
    opener = _OPENERS.get(name.suffix.lower())
    with opener(path, "wb") if opener else path.open("wb") as file:
        yield file
