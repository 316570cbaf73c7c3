"""Arrays in a folder: one `.npy` file each and a JSON manifest, opened as memory maps.

Nothing is pickled. A folder is valid only if the sizes of its files match the manifest, and so do
the checksums of all arrays but the features, which are large; `verify` compares those as well.
"""

import io
import json
import math
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from twinrank.data.table import Arrays, Categories, Table, Texts
from twinrank.support.checksums import check_seal, checksum, sealed
from twinrank.support.compiled import compiled
from twinrank.support.errors import Argument, InputError, Parts, explained
from twinrank.support.files import check_format, check_regular, read_json

MANIFEST = "manifest.json"
FORMAT = "twinrank-data"
VERSION = 1
FEATURES = "X"
DOCUMENTS = ("X", "y", "comments", "comment_ends")  # arrays in the order of the documents
REQUIRED = ("X", "y", "offsets", "query_ids")
_HEADER = 128  # bytes; NumPy pads short headers to this size
_KINDS = "fiuU"  # dtype kinds that can be stored: numbers and text
_BLOCK = 1 << 24


@dataclass
class _Column:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # shape of one row
    file: IO[bytes]
    rows: int = 0
    crc32: int = 0


@dataclass
class Sink:
    """Arrays that grow block by block, in the files of a folder, or in memory without a folder.

    Memory grows by moving pages instead of copying them, so it is never doubled.
    """

    folder: Path | None = None
    shown_as: Path | str = "memory"
    """The name in error messages."""
    hint: Parts = ()
    """What to do if writing fails."""
    _columns: dict[str, _Column] = field(default_factory=dict)
    _arrays: Arrays = field(default_factory=dict)

    def append(self, name: str, block: npt.NDArray[Any]) -> None:
        """Add rows to the end of an array."""
        with explained("write", self.shown_as, self.hint, exactly=True):
            if (column := self._columns.get(name)) is None:
                column = _Column(block.dtype, block.shape[1:], self._opened(name, "wb"))
                self._columns[name] = column
                _write(column.file, bytes(_HEADER))
            content = _bytes(np.ascontiguousarray(block))
            _write(column.file, content)
        column.rows += block.shape[0]
        if self.folder is not None:
            column.crc32 = zlib.crc32(content, column.crc32)

    def _opened(self, name: str, mode: str) -> Any:
        if self.folder is None:
            return io.BytesIO()
        return (self.folder / f"{name}.npy").open(mode, buffering=0)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def take(self, name: str) -> npt.NDArray[Any]:
        """Return an array, and leave it out of the result."""
        array = self._array(name).copy()
        self._columns.pop(name).file.close()
        if self.folder is not None:
            (self.folder / f"{name}.npy").unlink()
        return array

    def _array(self, name: str) -> npt.NDArray[Any]:
        """Return an array: a map of its file, or a view of the filled memory."""
        column = self._columns[name]
        shape = (column.rows, *column.shape)
        if self.folder is not None:
            column.file.seek(0)
            _write(column.file, _header(column.dtype, shape))
            return _mapped(self.folder / f"{name}.npy", column.dtype, shape, "r+")
        content: Any = column.file
        return np.frombuffer(content.getbuffer(), column.dtype, offset=_HEADER).reshape(shape)

    def finish(self, order: npt.NDArray[np.int64] | None = None) -> Arrays:
        """Complete the arrays and return them; `order` is a new order of the documents."""
        self._arrays = {name: self._array(name) for name in self._columns}
        self.close()
        if order is not None:
            for name in _reordered(self._arrays, order):
                self._columns[name].crc32 = _crc32(self._arrays[name])
        return self._arrays

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue after the rows written so far."""
        return {
            name: [column.dtype.str, list(column.shape), column.rows, column.crc32]
            for name, column in self._columns.items()
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Continue the files of another process, up to its `state`; False if they are damaged."""
        for name, (dtype, shape, rows, crc32) in state.items():
            column = _Column(np.dtype(dtype), tuple(shape), self._opened(name, "r+b"), rows)
            self._columns[name] = column
            end = _HEADER + rows * math.prod(shape) * column.dtype.itemsize
            column.file.truncate(end)
            column.file.seek(_HEADER)
            while block := column.file.read(_BLOCK):
                column.crc32 = zlib.crc32(block, column.crc32)
            if column.crc32 != crc32 or column.file.tell() != end:
                return False
        return True

    def write_manifest(
        self,
        names: Sequence[str] | None,
        notes: Iterable[Parts],
        categories: Categories,
        **others: Any,
    ) -> None:
        """Describe the finished arrays, and what they do not hold; this makes the folder valid."""
        assert self.folder is not None
        described: dict[str, Any] = {}
        for name, array in self._arrays.items():
            crc32 = self._columns[name].crc32
            described[name] = {"dtype": array.dtype.str, "shape": [*array.shape], "crc32": crc32}
            if name != FEATURES:
                described[name]["checksum"] = checksum(_bytes(array))
        content = {"format": FORMAT, "version": VERSION, "arrays": described, **others}
        content["feature_names"] = names
        content["notes"] = [
            [[part.name, part.value] if isinstance(part, Argument) else part for part in note]
            for note in notes
        ]
        if categories:
            content["categories"] = {str(column): texts for column, texts in categories.items()}
        text = json.dumps(sealed(content), indent=1)
        (self.folder / MANIFEST).write_text(text + "\n", "utf-8")

    def clear(self) -> None:
        """Begin again with nothing."""
        self.close()
        self._columns.clear()

    def close(self) -> None:
        """Close the files, complete or not; views of memory stay valid."""
        for column in self._columns.values() if self.folder else ():
            column.file.close()


class BlockSink(dict[str, npt.NDArray[Any]]):
    """The arrays of a single block, which are not copied."""

    append = dict.__setitem__
    take = dict.pop

    def finish(self, order: npt.NDArray[np.int64] | None = None) -> Arrays:
        """Return the arrays, in a new order of the documents if there is one."""
        arrays = dict(self)
        if order is not None:
            arrays |= {name: arrays[name].copy() for name in DOCUMENTS if name in arrays}
            _reordered(arrays, order)
        return arrays


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
    """Map a file, after checking that it has the size and header that a `Sink` writes."""
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


def read_table(folder: Path, manifest: dict[str, Any], verify: bool = False) -> Table:
    """Map the arrays of a manifest as a table; each must match its description."""
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
    if missing := [name for name in REQUIRED if name not in arrays]:
        raise InputError(f"Array {missing[0]!r} is missing.")
    categories = {int(key): tuple(own) for key, own in manifest.get("categories", {}).items()}
    notes = (_note(note) for note in manifest["notes"])
    table = Table.of(arrays, manifest.get("feature_names"), notes, categories)
    table = replace(table, from_clicks=manifest.get("from_clicks") is True)
    if not table.fits():
        raise InputError("Its arrays have shapes or types that do not fit together.")
    return table


def _note(plain: Any) -> Parts:
    """Return a note of a manifest; data of earlier versions has notes as text."""
    if isinstance(plain, str):
        return [plain]
    return [part if isinstance(part, str) else Argument(str(part[0]), part[1]) for part in plain]


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
