"""Checksums against damage by disks and copies; they do not protect against tampering."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.support.errors import InputError

SEAL = "crc32"
"""The key of an object's own checksum."""
_MARK = "has_crc32"
_WIDTH = 1024  # words


def checksum(content: Any) -> int:
    """A number that changes with the bytes of a buffer or an array.

    The words of a large buffer are first added up in columns, at 10 GB/s and more; a CRC of all
    bytes runs at 1.5 GB/s. A flipped bit always changes its column.
    """
    array = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else np.asarray(content)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size - data.size % (8 * _WIDTH)
    columns = data[:whole].view("<u8").reshape(-1, _WIDTH).sum(axis=0, dtype=np.uint64)
    start = zlib.crc32(columns.astype("<u8").tobytes(), data.size & 0xFFFFFFFF)
    return zlib.crc32(data[whole:].tobytes(), start)


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """An object of JSON values with its own checksum."""
    marked = {**content, _MARK: True}
    return {**marked, SEAL: _seal(json.loads(json.dumps(marked, default=str)))}


def check_seal(content: dict[str, Any], path: str | Path, required: bool = False) -> None:
    """Check the object's own checksum and remove it.

    Unless it is required, null is allowed in its place, and files of earlier versions have none.
    """
    expected = content.pop(SEAL, "missing")
    right = type(expected) is int and expected == _seal(content)
    marked = content.pop(_MARK, None)  # else damage to the checksum's own name would hide it
    optional = expected is None or (expected == "missing" and marked is None)
    if not right and (required or not optional):
        hint = [] if required else [f" If you have edited it, write {SEAL!r}: null."]
        raise InputError(f"{path} is damaged: its checksum is wrong.", *hint)


def _seal(plain: Mapping[str, Any]) -> int:
    """The checksum of an object that was read from JSON."""
    return zlib.crc32(json.dumps(plain, sort_keys=True).encode())
