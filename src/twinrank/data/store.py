"""Arrays in a folder: one `.npy` file each and a JSON manifest, opened as memory maps.

Nothing is pickled. A folder is valid only if the sizes of its files match the manifest, and so do
the checksums of all arrays but the features, which are large; `verify` compares those as well.
"""

import json
import math
import os
import zlib
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from twinrank.support.checksums import check_seal, checksum, sealed
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, check_regular, read_json

MANIFEST = "manifest.json"
FORMAT = "twinrank-data"
VERSION = 1
FEATURES = "X"
_HEADER = 128  # bytes; NumPy pads short headers to this size
_KINDS = "fiuU"  # dtype kinds that can be stored: numbers and text
_BLOCK = 1 << 24

Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class _Column:
    file: IO[bytes]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # shape of one row
    rows: int = 0
    crc32: int = 0


@dataclass
class FolderSink:
    """Arrays that grow block by block, in files."""

    folder: Path
    shown_as: Path | None = None  # the folder's name in error messages
    hint: str = ""  # what to do if writing fails
    _columns: dict[str, _Column] = field(default_factory=dict)
    _files: ExitStack = field(default_factory=ExitStack)

    def append(self, name: str, block: npt.NDArray[Any]) -> None:
        """Add rows to the end of an array."""
        with self._explained():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = self._new(name, block)
            content = _bytes(np.ascontiguousarray(block))
            _write(column.file, content)
        column.crc32 = zlib.crc32(content, column.crc32)
        column.rows += block.shape[0]

    def _explained(self) -> AbstractContextManager[None]:
        """Report a full disk as a problem of this folder, not of the file that is read."""
        if self.shown_as is None:
            return nullcontext()
        return explained("write", self.shown_as, self.hint, exactly=True)

    def _new(self, name: str, block: npt.NDArray[Any]) -> _Column:
        file = self._files.enter_context((self.folder / f"{name}.npy").open("wb", buffering=0))
        _write(file, bytes(_HEADER))
        return _Column(file, block.dtype, block.shape[1:])

    def discard(self, name: str) -> None:
        """Leave an array out after all."""
        self._columns.pop(name).file.close()
        (self.folder / f"{name}.npy").unlink()

    def finish(self) -> Arrays:
        """Complete the files and map them for reading and writing."""
        arrays = {}
        for name, column in self._columns.items():
            shape = (column.rows, *column.shape)
            column.file.seek(0)
            column.file.write(_header(column.dtype, shape))
            arrays[name] = _mapped(self.folder / f"{name}.npy", column.dtype, shape, "r+")
        self._files.close()
        return arrays

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue after the rows written so far."""
        return {
            name: [column.dtype.str, list(column.shape), column.rows, column.crc32]
            for name, column in self._columns.items()
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Continue arrays of another process, up to its `state`; False if they are damaged."""
        for name, (dtype, shape, rows, crc32) in state.items():
            column = _Column(
                self._files.enter_context((self.folder / f"{name}.npy").open("r+b", buffering=0)),
                np.dtype(dtype),
                tuple(shape),
            )
            end = _HEADER + rows * math.prod(shape) * column.dtype.itemsize
            column.file.truncate(end)
            column.file.seek(_HEADER)
            while block := column.file.read(_BLOCK):
                column.crc32 = zlib.crc32(block, column.crc32)
            column.rows = rows
            if column.crc32 != crc32 or column.file.tell() != end:
                return False
            self._columns[name] = column
        return True

    def describe(self) -> dict[str, Any]:
        """Return the description of the finished arrays for the manifest."""
        described: dict[str, Any] = {}
        for name, column in self._columns.items():
            shape = (column.rows, *column.shape)
            described[name] = {"dtype": column.dtype.str, "shape": [*shape], "crc32": column.crc32}
            if name != FEATURES:
                array = _mapped(self.folder / f"{name}.npy", column.dtype, shape, "r")
                described[name]["checksum"] = checksum(_bytes(array))
        return described

    def changed(self, name: str, array: npt.NDArray[Any]) -> None:
        """Update the checksum of an array that was changed in place after `finish`."""
        self._columns[name].crc32 = _crc32(array)

    def close(self) -> None:
        """Close the files, complete or not."""
        self._files.close()


@dataclass
class MemorySink:
    """Arrays that grow block by block, in memory.

    A large bytearray grows by moving pages instead of copying them, so memory is never doubled.
    """

    _contents: dict[str, bytearray] = field(default_factory=dict)
    _empty: Arrays = field(default_factory=dict)  # arrays without rows: dtype and shape

    def append(self, name: str, block: npt.NDArray[Any]) -> None:
        """Add rows to the end of an array."""
        self._empty.setdefault(name, block[:0].copy())
        self._contents.setdefault(name, bytearray()).extend(_bytes(np.ascontiguousarray(block)))

    def discard(self, name: str) -> None:
        """Leave an array out after all."""
        del self._contents[name], self._empty[name]

    def finish(self) -> Arrays:
        """Return the arrays as views of the filled memory."""
        return {
            name: np.frombuffer(self._contents[name], empty.dtype).reshape(-1, *empty.shape[1:])
            if self._contents[name]
            else empty
            for name, empty in self._empty.items()
        }

    def changed(self, name: str, array: npt.NDArray[Any]) -> None:
        """Do nothing: arrays in memory have no checksums."""

    def close(self) -> None:
        """Do nothing: there are no files."""


Sink = FolderSink | MemorySink


def _write(file: IO[bytes], content: Any) -> None:
    written = 0
    while written < len(content):  # one write takes 2 GB at most
        written += file.write(content[written:])


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a `.npy` file, version 1.0, padded to `_HEADER` bytes."""
    described = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    size = _HEADER - 10
    content = described.encode().ljust(size - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + content


def _bytes(array: npt.NDArray[Any]) -> Any:
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def _crc32(array: npt.NDArray[Any]) -> int:
    total, content = 0, _bytes(array)
    for start in range(0, len(content), _BLOCK):
        total = zlib.crc32(content[start : start + _BLOCK], total)
    return total


def _mapped(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], mode: Literal["r", "r+"]
) -> npt.NDArray[Any]:
    """Map a file, after checking that it has the size and header that `FolderSink` writes."""
    check_regular(path)
    with path.open("rb" if mode == "r" else "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        content = math.prod(shape) * dtype.itemsize
        if size != _HEADER + content or file.read(_HEADER) != _header(dtype, shape):
            raise InputError(f"{path} is damaged: it does not match the manifest")
        if content:
            return np.asarray(np.memmap(file, dtype, mode, _HEADER, shape))
    empty = np.empty(shape, dtype)
    empty.flags.writeable = mode == "r+"
    return empty


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest; do this last, because it makes the folder valid."""
    content = {"format": FORMAT, "version": VERSION, **manifest}
    text = json.dumps(sealed(content), indent=1)
    (folder / MANIFEST).write_text(text + "\n", "utf-8")


def is_store(path: Path) -> bool:
    """Return True if a folder has a manifest."""
    with explained("read", path):
        return (path / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the manifest of a folder."""
    path = folder / MANIFEST
    check_regular(path)
    expected, hint = "the manifest of TwinRank data", ": convert the data again"
    manifest = check_format(read_json(path), path, FORMAT, VERSION, expected, hint)
    check_seal(manifest, path, required=True)
    names, notes = manifest.get("feature_names"), manifest.get("notes")
    if not (names is None or _are_texts(names)) or not _are_texts(notes):
        raise InputError(f"{path} is damaged: feature_names and notes must be lists of text")
    categories = manifest.get("categories", {})
    if not isinstance(categories, dict) or not all(map(_are_texts, categories.values())):
        raise InputError(f"{path} is damaged: categories must be lists of text")
    return manifest


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def read_arrays(folder: Path, manifest: dict[str, Any], verify: bool = False) -> Arrays:
    """Map the arrays of a manifest; each must match its description."""
    descriptions = manifest.get("arrays")
    if not isinstance(descriptions, dict):
        raise InputError(f"{folder / MANIFEST} is damaged: it lists no arrays")
    arrays = {name: _read_array(folder, name, item) for name, item in descriptions.items()}
    for name, array in arrays.items():
        known = descriptions[name].get("checksum")  # None in folders of earlier versions
        changed = known is not None and checksum(_bytes(array)) != known
        if changed or (verify and _crc32(array) != descriptions[name].get("crc32")):
            raise InputError(f"{folder / name}.npy is damaged: its checksum is wrong")
    if read_manifest(folder) != manifest:  # the arrays might be of different versions
        raise InputError(f"{folder} was replaced while it was read; load it again")
    return arrays


def _read_array(folder: Path, name: str, description: Any) -> npt.NDArray[Any]:
    try:
        dtype, shape = np.dtype(description["dtype"]), tuple(description["shape"])
        valid = name.isidentifier() and dtype.str == description["dtype"] and dtype.kind in _KINDS
        valid = valid and all(type(size) is int and size >= 0 for size in shape)
    except (LookupError, TypeError, ValueError, SyntaxError):
        valid = False
    if not valid:
        raise InputError(f"{folder / MANIFEST} is damaged at array {name!r}")
    path = folder / f"{name}.npy"
    with explained("read", path):
        if not path.exists():
            raise InputError(f"{path} is missing")
        return _mapped(path, dtype, shape, "r")
