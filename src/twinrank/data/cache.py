"""The cache of parsed files: arrays that can be memory-mapped, in the user's cache folder.

An entry belongs to files in their order, the values that their folders give to columns, and the
reading options. It is valid while size, time and inode of every file stay the same. Entries are
built under another name and then renamed, so an existing entry is always complete. If files in
several parts are being read and the reader is killed, the next one continues after the last
complete part.
"""

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from twinrank.data.options import ReadOptions
from twinrank.data.sources import Part
from twinrank.data.store import FolderSink, read_arrays, read_manifest, write_manifest
from twinrank.data.streams import FileState, file_crc32
from twinrank.data.table import Arrays, Table
from twinrank.support.checksums import check_seal, sealed
from twinrank.support.errors import Argument, DataWarning, FileError, InputError, Parts, explained
from twinrank.support.files import (
    append_line,
    is_writable,
    new_folder,
    private_folder,
    publish,
    remove,
    shortened,
)
from twinrank.support.locks import locked

PARSER = "tables 1"  # part of the cache key; change it to invalidate old caches
VARIABLE = "TWINRANK_CACHE_DIR"
HINT: Parts = (
    "Choose another cache folder (",
    Argument("cache_dir"),
    f" or {VARIABLE}), or pass ",
    Argument("cache", False),
    ".",
)
_JOURNAL = "journal.jsonl"
_told = False


class Reader(Protocol):
    """Reads files into a new sink; returns it, its arrays, metadata and checksums of the files."""

    def __call__(
        self, new_sink: Callable[[], FolderSink], journal: "Journal | None" = None
    ) -> tuple[FolderSink, Arrays, dict[str, Any], list[int]]:
        """Read the files; with a journal, record finished parts."""


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: `cache_dir`, TWINRANK_CACHE_DIR, or the user's cache folder.

    If the user's folder cannot be written, it is a temporary folder, with one warning.
    """
    global _told
    if cache_dir := cache_dir or os.environ.get(VARIABLE):
        try:
            return Path(cache_dir).expanduser().absolute()
        except RuntimeError as error:
            raise InputError(f"There is no folder {cache_dir}: {error} ", *HINT) from error
    try:
        folder = _user_cache() / "twinrank"
        if is_writable(folder):
            return folder
        reason = f"{folder} cannot be written"
    except RuntimeError as error:  # the user has no home folder
        reason = str(error).rstrip(".")
    temporary = private_folder("data")
    if not _told:
        _told = True
        text = f"Parsed files go to {temporary}: {reason}. "
        warnings.warn(DataWarning(text, f"{VARIABLE} sets another folder."), stacklevel=4)
    return temporary


def _user_cache() -> Path:
    """Return the platform's cache folder; a relative path in the variable is ignored."""
    if sys.platform == "win32":
        variable, home = "LOCALAPPDATA", ("AppData", "Local")
    elif sys.platform == "darwin":
        variable, home = "", ("Library", "Caches")
    else:
        variable, home = "XDG_CACHE_HOME", (".cache",)
    folder = Path(os.environ.get(variable, ""))
    return folder if folder.is_absolute() else Path.home().joinpath(*home)


def cached(
    parts: Sequence[Part], options: ReadOptions, base: Path, verify: bool, read: Reader
) -> Table:
    """Return the table of files from a valid cache entry, or read them and cache it."""
    with explained("read", parts[0].path):
        files = [[str(part.path.resolve(strict=True)), part.partition] for part in parts]
    identity = {"files": files, "parser": PARSER, "reading": options.to_json()}
    identity = json.loads(json.dumps(identity))  # lists instead of tuples, as in the manifest
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = base / f"{shortened(Path(str(files[0][0])).name)}-{len(files)}-{key}"
    expected = {**identity, "states": [FileState.of(part.path).to_json() for part in parts]}
    to_verify = parts if verify else ()
    if (table := _valid_entry(folder, expected, to_verify)) is not None:
        return table
    with explained("read", parts[0].path), parts[0].path.open("rb"):
        pass  # else the first error may be about the cache
    with _working_folder(folder, len(parts) > 1) as (work, resumable):
        journal = Journal(work, expected, folder, to_verify) if resumable else None
        new_sink = journal.sink if journal else (lambda: FolderSink(work, folder, HINT))
        sink, _, facts, checksums = read(new_sink, journal)
        source = {**expected, "checksums": checksums}
        write_manifest(work, {"source": source, "arrays": sink.describe(), **facts})
        with suppress(FileNotFoundError):
            (work / _JOURNAL).unlink()
        manifest = read_manifest(work)
        table = Table.of(read_arrays(work, manifest), manifest)
        publish(work, folder)  # the maps stay valid under the new name
    return table


def _valid_entry(folder: Path, expected: dict[str, Any], to_verify: Sequence[Part]) -> Table | None:
    """Return the table of a cache entry, or None if it is missing, outdated or damaged.

    The entry's source must have the `expected` values, and the content of these files.
    """
    try:
        manifest = read_manifest(folder)
        source = manifest.get("source")
        if not isinstance(source, dict) or any(
            source.get(key) != expected[key] for key in expected
        ):
            return None
        content = [file_crc32(part.path) for part in to_verify]
        if content and content != source.get("checksums"):
            return None
        return Table.of(read_arrays(folder, manifest, bool(to_verify)), manifest)
    except (FileError, InputError):
        return None


@contextmanager
def _working_folder(folder: Path, several: bool) -> Iterator[tuple[Path, bool]]:
    """A folder to fill, and True if a later process can continue there.

    This is for several parts; for a single one, and if another process is filling that folder, it
    is a temporary one.
    """
    place = folder.with_name(f"{folder.name}.unfinished")
    work = place / "arrays"
    with explained("write", folder, HINT):
        folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            try:
                if several:
                    stack.enter_context(locked(place, "reading"))
            except InputError:
                several = False
            if not several:
                yield stack.enter_context(new_folder(folder, HINT)), False
                return
            with explained("write", folder, HINT, exactly=True):
                try:
                    work.mkdir(exist_ok=True)
                    yield work, True
                except InputError:  # the data is wrong: to continue would not help
                    remove(work)
                    raise
    finally:
        with suppress(OSError):  # not empty: there is something to continue
            place.rmdir()


class Journal:
    """A file with a sealed line for every finished part, beside the arrays that it describes.

    `to_verify` are the parts whose content must be that of the line.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], shown_as: Path, to_verify: Sequence[Part]
    ) -> None:
        self._folder, self._identity, self._shown_as = folder, identity, shown_as
        self._to_verify = to_verify
        self._lines: list[dict[str, Any]] = []
        self._sink: FolderSink | None = None

    def sink(self) -> FolderSink:
        """Arrays that continue after the last finished part, or that begin with nothing."""
        self._sink = FolderSink(self._folder, self._shown_as, HINT)
        if not self._restored(self._sink):
            self._sink.close()
            for path in self._folder.iterdir():
                path.unlink()
            self._lines, self._sink = [], FolderSink(self._folder, self._shown_as, HINT)
            append_line(self._folder / _JOURNAL, json.dumps(sealed(self._identity)))
        return self._sink

    def counts(self) -> dict[str, Any]:
        """What the builder of the finished parts knew, with the texts of all lines."""
        texts: dict[str, list[str]] = {}
        for line in self._lines:
            for column, added in line["counts"]["texts"].items():
                texts.setdefault(column, []).extend(added)
        return {**self._lines[-1]["counts"], "texts": texts} if self._lines else {}

    def add(self, counts: dict[str, Any]) -> None:
        """Record that a part is complete in the sink."""
        assert self._sink is not None
        number = len(counts["checksums"])
        line = {"number": number, "columns": self._sink.state(), "counts": counts}
        append_line(self._folder / _JOURNAL, json.dumps(sealed(line)))

    def _restored(self, sink: FolderSink) -> bool:
        """Continue after the last line, if every line and all rows up to it are undamaged."""
        path = self._folder / _JOURNAL
        try:
            content = path.read_bytes()
            os.truncate(path, content.rfind(b"\n") + 1)  # the last line may be incomplete
            lines = [json.loads(line) for line in content.split(b"\n")[:-1]]
            for line in lines:
                check_seal(line, path, required=True)
            if len(lines) < 2 or lines[0] != self._identity:
                return False
            self._lines = lines[1:]
            if any(line["number"] != i for i, line in enumerate(self._lines, 1)):
                return False
            last = self._lines[-1]
            finished = self._to_verify[: len(self._lines)]
            own = [file_crc32(part.path) for part in finished]
            if own and own != last["counts"]["checksums"]:
                return False
            return sink.restore(last["columns"])
        except (OSError, InputError, LookupError, TypeError, ValueError, AttributeError):
            return False
