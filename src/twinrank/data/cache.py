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
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from twinrank.data.builder import TableBuilder
from twinrank.data.options import ReadOptions
from twinrank.data.sources import Part
from twinrank.data.store import Sink, read_manifest, read_table
from twinrank.data.streams import file_crc32, file_state
from twinrank.data.table import Table
from twinrank.support.errors import (
    Argument,
    DataWarning,
    FileError,
    InputError,
    Parts,
    explained,
    warn,
)
from twinrank.support.files import (
    is_writable,
    new_folder,
    private_folder,
    publish,
    remove,
    replacing,
    shortened,
)
from twinrank.support.locks import locked

PARSER = "tables 2"  # part of the cache key; change it to invalidate old caches
VARIABLE = "TWINRANK_CACHE_DIR"
HINT: Parts = (
    "Choose another cache folder (",
    Argument("cache_dir"),
    f" or {VARIABLE}), or pass ",
    Argument("cache", False),
    ".",
)
_PROGRESS = "progress.json"
_told = False


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
        warn(DataWarning(text, f"{VARIABLE} sets another folder."))
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
    parts: Sequence[Part],
    options: ReadOptions,
    base: Path,
    verify: bool,
    read: Callable[..., Table],
) -> Table:
    """Return the table of files from a valid cache entry, or read them and cache it.

    `read` reads the files into a sink; it continues after finished parts, and records them.
    """
    with explained("read", parts[0].path):
        files = [[str(part.path.resolve(strict=True)), part.partition] for part in parts]
    identity = {"files": files, "parser": PARSER, "reading": options.to_json()}
    identity = json.loads(json.dumps(identity))  # lists instead of tuples, as in the manifest
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = base / f"{shortened(Path(str(files[0][0])).name)}-{len(files)}-{key}"
    expected = {**identity, "states": [file_state(part.path) for part in parts]}
    if (table := _valid_entry(folder, expected, parts if verify else ())) is not None:
        return table
    with explained("read", parts[0].path), parts[0].path.open("rb"):
        pass  # else the first error may be about the cache
    pool = ThreadPoolExecutor(1, "checksums")
    checksums = [pool.submit(file_crc32, part.path) for part in parts]
    try:
        with _working_folder(folder, len(parts) > 1) as (work, resumable):
            sink, progress = Sink(work, folder, HINT), work / _PROGRESS
            if resumable:
                finished = _finished(progress, None if verify else expected, sink)
                table = read(sink, finished, partial(_record, progress, expected, sink))
            else:
                table = read(sink)
            source = {**expected, "checksums": [checksum.result() for checksum in checksums]}
            sink.write_manifest(table.feature_names, table.notes, table.categories, source=source)
            progress.unlink(missing_ok=True)
            table = read_table(work, read_manifest(work))
            publish(work, folder)  # the maps stay valid under the new name
    finally:
        pool.shutdown(cancel_futures=True)
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
        return read_table(folder, manifest, bool(to_verify))
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


def _record(progress: Path, expected: dict[str, Any], sink: Sink, builder: TableBuilder) -> None:
    """Record that the rows in a sink are those of finished parts; the record replaces the last."""
    text = json.dumps({"source": expected, "columns": sink.state(), "builder": builder.state()})
    with replacing(progress, HINT) as partial_file:
        partial_file.write_text(f"{zlib.crc32(text.encode())}\n{text}", "utf-8")


def _finished(progress: Path, expected: dict[str, Any] | None, sink: Sink) -> dict[str, Any]:
    """Continue a sink after the last record; return what the builder knew.

    Without a record of these files, or if it or the arrays are damaged, begin with nothing.
    """
    try:
        checksum, _, text = progress.read_text("utf-8").partition("\n")
        if checksum == str(zlib.crc32(text.encode())):
            record = json.loads(text)
            if record["source"] == expected and sink.restore(record["columns"]):
                return record["builder"]  # type: ignore[no-any-return]
    except (OSError, ValueError, LookupError, TypeError):
        pass
    sink.clear()
    for path in progress.parent.iterdir():
        path.unlink()
    return {}
