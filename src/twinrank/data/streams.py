"""The bytes of a file, decompressed on the way, and the fingerprint by which it is known again."""

import gzip
import hashlib
import io
import lzma
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_regular

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSED = (".gz", ".xz", ".zst")
LETOR = (".txt", ".letor", ".svm", ".svmlight", ".libsvm", ".dat")
FRAMES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".ipc")
_BLOCK = 1 << 20
_GZIP_LEVEL = 6
_TICK = 20_000_000  # nanoseconds; the clock of a file system may have steps of 10 ms


@dataclass(frozen=True)
class Fingerprint:
    """What tells one state of a file from another without reading it."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "Fingerprint":
        """The fingerprint of a file as it is now."""
        check_regular(path)
        with explained("read", path):
            status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @classmethod
    def settled(cls, path: Path) -> "Fingerprint":
        """The fingerprint of a file, taken when the next change is sure to get another time."""
        now = cls.of(path)
        if time.time_ns() - now.mtime_ns > _TICK:
            return now
        time.sleep(_TICK / 1e9)
        return cls.of(path)

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


class _Xz(io.RawIOBase):
    """What xz archives hold; unlike LZMAFile, it refuses anything else that follows them."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._archive = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            packed = b""
            if self._archive.eof:
                packed = self._following()
                if not packed:
                    return 0
                self._archive = lzma.LZMADecompressor()
            elif self._archive.needs_input:
                packed = self._file.read(_BLOCK) or b""
                if not packed:
                    raise EOFError
            content = self._archive.decompress(packed, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _following(self) -> bytes:
        """What comes after an archive and the zeros that may fill it up."""
        packed = self._archive.unused_data.lstrip(b"\0")
        while not packed and (more := self._file.read(_BLOCK)):
            packed = more.lstrip(b"\0")
        return packed


_READERS: dict[str, Callable[[io.RawIOBase], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".xz": _Xz,
    ".zst": zstd.ZstdFile,
}


class Source:
    """A file's content as a stream of bytes."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._raw = _Hashed(file)
        reader = _READERS.get(path.suffix.lower())
        self._content: Any = reader(self._raw) if reader else self._raw

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
    check_regular(path)
    with explained("read", path), path.open("rb", buffering=0) as file:
        yield Source(path, file)


@contextmanager
def written(path: Path, name: Path) -> Iterator[IO[bytes]]:
    """Open `path` for writing, compressed as `name` asks for; the same content, the same bytes."""
    kind = name.suffix.lower()
    with path.open("wb") as file, ExitStack() as stack:
        packed: Any = file
        if kind == ".gz":  # neither a name nor a time inside
            packed = stack.enter_context(gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0))
        elif kind == ".xz":
            packed = stack.enter_context(lzma.LZMAFile(file, "wb"))
        elif kind == ".zst":
            checked = {int(zstd.CompressionParameter.checksum_flag): 1}
            packed = stack.enter_context(zstd.ZstdFile(file, "wb", options=checked))
        yield packed
