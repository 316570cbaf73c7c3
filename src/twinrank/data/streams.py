"""Byte streams of files, compressed or not, and the state that identifies a file's version."""

import gzip
import io
import lzma
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
_TICK = 20_000_000  # nanoseconds; some file systems store times in steps of 10 ms


def file_state(path: Path) -> list[int]:
    """Return size, time and inode of a file, which detect a change without reading it."""
    check_regular(path)
    with explained("read", path):
        status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def settled_state(path: Path) -> list[int]:
    """Return the state of a file; wait if the next change could get the same time."""
    state = file_state(path)
    age = time.time_ns() - state[1]
    if age > _TICK:
        return state
    time.sleep((_TICK - max(age, 0)) / 1e9)
    return file_state(path)


def check_unchanged(path: Path, state: list[int]) -> None:
    """Raise an error if a file is no longer in a state."""
    if file_state(path) != state:
        raise InputError(f"{path} changed while it was read; load it again.")


def file_crc32(path: Path) -> int:
    """Return the CRC-32 of a file."""
    total = 0
    with explained("read", path), path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            total = zlib.crc32(block, total)
    return total


def plain_suffix(path: Path) -> str:
    """Return the suffix of the format, without the suffix of the compression.

    >>> plain_suffix(Path("train.csv.gz")), plain_suffix(Path("train.txt"))
    ('.csv', '.txt')
    """
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower()


class _Xz(io.RawIOBase):
    """Content of xz archives; unlike LZMAFile, it raises an error for other data after them."""

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
        """Return the bytes after an archive and its padding of zeros."""
        packed = self._archive.unused_data.lstrip(b"\0")
        while not packed and (block := self._file.read(_BLOCK)):
            packed = block.lstrip(b"\0")
        return packed


_READERS: dict[str, Callable[[io.RawIOBase], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".xz": _Xz,
    ".zst": zstd.ZstdFile,
}


class ByteStream:
    """The decompressed content of a file."""

    def __init__(self, path: Path, file: io.FileIO) -> None:
        self.path, self._file = path, file
        reader = _READERS.get(path.suffix.lower())
        self._content: Any = reader(file) if reader else file

    @property
    def share(self) -> float:
        """The share of the file, compressed or not, that has been read."""
        return self._file.tell() / max(os.fstat(self._file.fileno()).st_size, 1)

    def fill(self, buffer: memoryview) -> int:
        """Read until the buffer is full or the file ends; return the number of bytes."""
        filled = 0
        try:
            while filled < len(buffer):
                count = self._content.readinto(buffer[filled:])
                if not count:
                    break
                filled += count
        except EOFError as error:
            raise InputError(f"{self.path} is truncated: the archive is incomplete.") from error
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
            raise InputError(
                f"{self.path} is damaged, or its suffix is wrong ({error})."
            ) from error
        return filled


@contextmanager
def opened(path: Path) -> Iterator[ByteStream]:
    """Open a file, compressed or not; an OSError becomes a FileError that names the file."""
    check_regular(path)
    with explained("read", path), path.open("rb", buffering=0) as file:
        yield ByteStream(path, file)


@contextmanager
def written(path: Path, name: Path) -> Iterator[IO[bytes]]:
    """Open `path` for writing, compressed by the suffix of `name`; the output is reproducible."""
    suffix = name.suffix.lower()
    with path.open("wb") as file, ExitStack() as stack:
        packed: Any = file
        if suffix == ".gz":  # without a name or a time in the header
            packed = stack.enter_context(gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0))
        elif suffix == ".xz":
            packed = stack.enter_context(lzma.LZMAFile(file, "wb"))
        elif suffix == ".zst":
            checksum = {int(zstd.CompressionParameter.checksum_flag): 1}
            packed = stack.enter_context(zstd.ZstdFile(file, "wb", options=checksum))
        yield packed
