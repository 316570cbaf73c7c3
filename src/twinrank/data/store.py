"""Arrays in a folder: one `.npy` file each and a manifest in JSON, opened as memory maps.

No pickle anywhere. A folder counts only with a manifest that fits its files, byte for byte in size;
`verify` compares checksums too.
"""

import json
import zlib
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError, explained

MANIFEST = "manifest.json"
FORMAT = "twinrank-data"
VERSION = 1
_HEADER = 128  # bytes, as NumPy pads a short one
_BLOCK = 1 << 24

Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class _Column:
    file: IO[bytes]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one row
    rows: int = 0
    checksum: int = 0


@dataclass
class FolderSink:
    """Arrays that grow block by block, on disk."""

    folder: Path
    _columns: dict[str, _Column] = field(default_factory=dict)
    _files: ExitStack = field(default_factory=ExitStack)

    def append(self, name: str, block: npt.NDArray[Any]) -> None:
        """Add rows to the end of an array."""
        column = self._columns.get(name)
        if column is None:
            file = self._files.enter_context((self.folder / f"{name}.npy").open("wb", buffering=0))
            file.write(bytes(_HEADER))
            column = self._columns[name] = _Column(file, block.dtype, block.shape[1:])
        content = _bytes(np.ascontiguousarray(block))
        written = 0
        while written < len(content):  # one write takes 2 GB at most
            written += column.file.write(content[written:])
        column.checksum = zlib.crc32(content, column.checksum)
        column.rows += block.shape[0]

    def discard(self, name: str) -> None:
        """Leave an array out after all."""
        self._columns.pop(name).file.close()
        (self.folder / f"{name}.npy").unlink()

    def finish(self) -> Arrays:
        """Complete the files and open them for reading and writing."""
        for column in self._columns.values():
            column.file.seek(0)
            column.file.write(_header(column.dtype, (column.rows, *column.shape)))
        self._files.close()
        return {name: _mapped(self.folder / f"{name}.npy", "r+") for name in self._columns}

    def describe(self) -> dict[str, Any]:
        """The arrays' part of a manifest."""
        return {
            name: {
                "dtype": column.dtype.str,
                "shape": [column.rows, *column.shape],
                "crc32": column.checksum,
            }
            for name, column in self._columns.items()
        }

    def changed(self, name: str, array: npt.NDArray[Any]) -> None:
        """Note that an array was changed in place after `finish`."""
        self._columns[name].checksum = _checksum(array)

    def close(self) -> None:
        """Close the files, however far they got."""
        self._files.close()


@dataclass
class MemorySink:
    """Arrays that grow block by block, in memory."""

    _blocks: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)

    def append(self, name: str, block: npt.NDArray[Any]) -> None:
        """Add rows to the end of an array."""
        self._blocks.setdefault(name, []).append(block.copy())

    def discard(self, name: str) -> None:
        """Leave an array out after all."""
        del self._blocks[name]

    def finish(self) -> Arrays:
        """Join the blocks, letting go of each as soon as it has been copied."""
        return {name: _joined(blocks) for name, blocks in self._blocks.items()}

    def changed(self, name: str, array: npt.NDArray[Any]) -> None:
        """Nothing is kept about the arrays."""

    def close(self) -> None:
        """There is nothing to close."""


Sink = FolderSink | MemorySink


def _joined(blocks: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    rows = sum(block.shape[0] for block in blocks)
    whole = np.empty((rows, *blocks[0].shape[1:]), blocks[0].dtype)
    row = 0
    for i, block in enumerate(blocks):
        whole[row : row + block.shape[0]] = block
        row += block.shape[0]
        blocks[i] = block[:0].copy()
    return whole


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file, version 1.0, always of the same length."""
    described = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    size = _HEADER - 10
    content = described.encode().ljust(size - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + content


def _bytes(array: npt.NDArray[Any]) -> Any:
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def _checksum(array: npt.NDArray[Any]) -> int:
    checksum, content = 0, _bytes(array)
    for start in range(0, len(content), _BLOCK):
        checksum = zlib.crc32(content[start : start + _BLOCK], checksum)
    return checksum


def _mapped(path: Path, mode: Any) -> npt.NDArray[Any]:
    if path.stat().st_size == _HEADER:  # nothing to map
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    return np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, last of all: it makes the folder count."""
    whole = {"format": FORMAT, "version": VERSION, **manifest}
    (folder / MANIFEST).write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf-8")


def is_store(path: Path) -> bool:
    """Whether a folder looks like one of ours."""
    return (path / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, checked for being one."""
    path = folder / MANIFEST
    with explained("read", path):
        text = path.read_bytes()
    try:
        manifest = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{path} is not the manifest of TwinRank data")
    if manifest.get("version") != VERSION:
        raise InputError(
            f"{path} has version {manifest.get('version')} of the format; "
            f"this TwinRank reads version {VERSION}: convert the data again"
        )
    return manifest


def read_arrays(folder: Path, manifest: dict[str, Any], verify: bool = False) -> Arrays:
    """Map the arrays of a manifest; each must be exactly as described."""
    described = manifest.get("arrays")
    if not isinstance(described, dict):
        raise InputError(f"{folder / MANIFEST} is damaged: it lists no arrays")
    arrays = {}
    for name, facts in described.items():
        path = folder / f"{name}.npy"
        if not str(name).isidentifier() or not isinstance(facts, dict):
            raise InputError(f"{folder / MANIFEST} is damaged at array {name!r}")
        with explained("read", path):
            try:
                array = _mapped(path, "r")
            except (ValueError, EOFError) as error:
                raise InputError(f"{path} is damaged: {error}") from error
            size = path.stat().st_size
        found = [array.dtype.str, list(array.shape)]
        if found != [facts.get("dtype"), facts.get("shape")] or size != _HEADER + array.nbytes:
            raise InputError(f"{path} is damaged: it doesn't fit the manifest")
        if verify and _checksum(array) != facts.get("crc32"):
            raise InputError(f"{path} is damaged: its checksum is wrong")
        arrays[name] = array
    return arrays
