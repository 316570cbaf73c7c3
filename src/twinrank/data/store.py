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

from twinrank.data.table import Arrays, Texts
from twinrank.support.checksums import check_seal, checksum, sealed
from twinrank.support.compiled import compiled
from twinrank.support.errors import InputError, Parts, explained
from twinrank.support.files import check_format, check_regular, read_json

MANIFEST = "manifest.json"
FORMAT = "twinrank-data"
VERSION = 1
FEATURES = "X"
DOCUMENTS = ("X", "y", "comments", "comment_ends")  # arrays in the order of the documents
_HEADER = 128  # bytes; NumPy pads short headers to this size
_KINDS = "fiuU"  # dtype kinds that can be stored: numbers and text
_BLOCK = 1 << 24


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
    hint: Parts = ()  # what to do if writing fails
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

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def rows(self, name: str) -> int:
        """Return the number of rows of an array."""
        return self._columns[name].rows if name in self else 0

    def take(self, name: str) -> npt.NDArray[Any]:
        """Return an array, and leave it out of the files."""
        column = self._columns.pop(name)
        column.file.close()
        path = self.folder / f"{name}.npy"
        array = np.fromfile(path, column.dtype, offset=_HEADER).reshape(-1, *column.shape)
        path.unlink()
        return array

    def finish(self, order: npt.NDArray[np.int64] | None = None) -> Arrays:
        """Complete the files and map them; `order` is a new order of the documents."""
        arrays = {}
        for name, column in self._columns.items():
            shape = (column.rows, *column.shape)
            column.file.seek(0)
            column.file.write(_header(column.dtype, shape))
            arrays[name] = _mapped(self.folder / f"{name}.npy", column.dtype, shape, "r+")
        self._files.close()
        if order is not None:
            for name in _reordered(arrays, order):
                self._columns[name].crc32 = _crc32(arrays[name])
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

    def close(self) -> None:
        """Close the files, complete or not."""
        self._files.close()


@dataclass
class MemorySink:
    """Arrays that grow block by block, in memory.

    A large bytearray grows by moving pages instead of copying them, so memory is never doubled. A
    sink that `borrows` keeps a single block as it is, without a copy.
    """

    borrows: bool = False
    _first: Arrays = field(default_factory=dict)  # the first block: dtype and shape
    _contents: dict[str, bytearray] = field(default_factory=dict)

    def append(self, name: str, block: npt.NDArray[Any]) -> None:
        """Add rows to the end of an array."""
        if name not in self._first:
            self._first[name] = block if self.borrows else block[:0].copy()
            if self.borrows:
                return
        if name not in self._contents:
            self._contents[name] = bytearray(_bytes(np.ascontiguousarray(self._first[name])))
        self._contents[name].extend(_bytes(np.ascontiguousarray(block)))

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def rows(self, name: str) -> int:
        """Return the number of rows of an array."""
        return len(self._array(name)) if name in self else 0

    def take(self, name: str) -> npt.NDArray[Any]:
        """Return an array, and leave it out."""
        array = self._array(name)
        del self._first[name]
        self._contents.pop(name, None)
        return array

    def finish(self, order: npt.NDArray[np.int64] | None = None) -> Arrays:
        """Return the arrays; `order` is a new order of the documents."""
        arrays = {name: self._array(name) for name in self._first}
        if order is not None:
            if self.borrows:
                arrays |= {name: arrays[name].copy() for name in DOCUMENTS if name in arrays}
            _reordered(arrays, order)
        return arrays

    def _array(self, name: str) -> npt.NDArray[Any]:
        """Return an array as a view of the filled memory."""
        first, content = self._first[name], self._contents.get(name)
        if not content:
            return first
        return np.frombuffer(content, first.dtype).reshape(-1, *first.shape[1:])

    def close(self) -> None:
        """Do nothing: there are no files."""


Sink = FolderSink | MemorySink


def _reordered(arrays: Arrays, order: npt.NDArray[np.int64]) -> list[str]:
    """Reorder the documents in place; return the names of the arrays that changed."""
    permute(arrays["X"], order)
    arrays["y"][:] = arrays["y"][order]
    if "comments" in arrays:
        moved = Texts(arrays["comments"], arrays["comment_ends"]).take(order)
        arrays["comments"][:], arrays["comment_ends"][:] = moved.content, moved.ends
    return [name for name in DOCUMENTS if name in arrays]


def permute(values: Any, order: Any) -> None:
    """Reorder the rows of a matrix in place."""
    _permute(values, order, np.zeros(order.size, np.bool_), np.empty_like(values[0]))


@compiled
def _permute(values: Any, order: Any, done: Any, spare: Any) -> None:
    """Assign values[i] = values[order[i]] for all i, cycle by cycle; `spare` holds one row."""
    for first in range(order.size):
        if done[first]:
            continue
        for c in range(values.shape[1]):
            spare[c] = values[first, c]
        i = first
        while True:
            done[i] = True
            source = order[i]
            if source == first:
                break
            for c in range(values.shape[1]):
                values[i, c] = values[source, c]
            i = source
        for c in range(values.shape[1]):
            values[i, c] = spare[c]


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
            raise InputError(f"{path} is damaged: it does not match the manifest.")
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
    expected, hint = "the manifest of TwinRank data", ["Convert the data again."]
    manifest = check_format(read_json(path), path, FORMAT, VERSION, expected, hint)
    check_seal(manifest, path, required=True)
    names, notes = manifest.get("feature_names"), manifest.get("notes")
    categories = manifest.get("categories", {})
    valid = (
        (names is None or _are_texts(names))
        and isinstance(notes, list)
        and all(isinstance(note, str) or _is_note(note) for note in notes)
        and isinstance(categories, dict)
        and all(key.isdecimal() and len(key) < 9 for key in categories)
        and all(map(_are_texts, categories.values()))
    )
    if not valid:
        raise InputError(f"{path} is damaged: feature_names, notes or categories are not text.")
    return manifest


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _is_note(note: Any) -> bool:
    """True for a list of texts and of arguments, which are pairs of a name and a value."""
    return isinstance(note, list) and all(
        isinstance(part, str) or (isinstance(part, list) and len(part) == 2) for part in note
    )


def read_arrays(folder: Path, manifest: dict[str, Any], verify: bool = False) -> Arrays:
    """Map the arrays of a manifest; each must match its description."""
    descriptions = manifest.get("arrays")
    if not isinstance(descriptions, dict):
        raise InputError(f"{folder / MANIFEST} is damaged: it lists no arrays.")
    arrays = {name: _read_array(folder, name, item) for name, item in descriptions.items()}
    for name, array in arrays.items():
        known = descriptions[name].get("checksum")  # None in folders of earlier versions
        changed = known is not None and checksum(_bytes(array)) != known
        if changed or (verify and _crc32(array) != descriptions[name].get("crc32")):
            raise InputError(f"{folder / name}.npy is damaged: its checksum is wrong.")
    if read_manifest(folder) != manifest:  # the arrays might be of different versions
        raise InputError(f"{folder} was replaced while it was read; load it again.")
    return arrays


def _read_array(folder: Path, name: str, description: Any) -> npt.NDArray[Any]:
    try:
        dtype, shape = np.dtype(description["dtype"]), tuple(description["shape"])
        valid = name.isidentifier() and dtype.str == description["dtype"] and dtype.kind in _KINDS
        valid = valid and all(type(size) is int and size >= 0 for size in shape)
    except (LookupError, TypeError, ValueError, SyntaxError):
        valid = False
    if not valid:
        raise InputError(f"{folder / MANIFEST} is damaged at array {name!r}.")
    path = folder / f"{name}.npy"
    with explained("read", path):
        if not path.exists():
            raise InputError(f"{path} is missing.")
        return _mapped(path, dtype, shape, "r")
