"""Standard input as a file that `load` can read."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinrank.support.errors import InputError, TwinRankError, explained

STANDARD_INPUT = Path("-")
_SUFFIXES = {b"PAR1": ".parquet", b"ARROW1": ".feather"}
_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # gzip, xz, zstd
_SAMPLE = 4096


@contextmanager
def standard_input() -> Iterator[Path]:
    """A temporary copy of standard input; its content decides on the suffix."""
    with tempfile.TemporaryDirectory(prefix="twinrank-") as folder:
        copy = Path(folder) / "stdin"
        with explained("write", copy), copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with copy.open("rb") as file:
            path = copy.rename(copy.with_suffix(_suffix(file.read(_SAMPLE))))
        try:
            yield path
        except TwinRankError as error:
            parts = [
                p.replace(str(path), "standard input") if isinstance(p, str) else p
                for p in error.parts
            ]
            raise type(error)(*parts) from error


def _suffix(start: bytes) -> str:
    """The suffix of a format, from the beginning of a file.

    >>> _suffix(b"2 qid:1 1:0.5 2:3"), _suffix(b"qid,label,bm25"), _suffix(b"PAR1...")
    ('.txt', '.csv', '.parquet')
    """
    if start.startswith(_COMPRESSED):
        raise InputError(
            "Standard input is compressed. Decompress it first, as in zcat data.gz | …."
        )
    for magic, suffix in _SUFFIXES.items():
        if start.startswith(magic):
            return suffix
    lines = [line for line in start.splitlines() if line.strip() and not line.startswith(b"#")]
    if not lines or b"qid:" in lines[0]:
        return ".txt"
    return ".tsv" if b"\t" in lines[0] else ".csv"
