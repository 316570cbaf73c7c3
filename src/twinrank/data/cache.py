"""The cache of parsed files: arrays that can be memory-mapped, in the user's cache folder.

The file's path and the reading options identify a cache entry. An entry is valid while the file's
size, time and inode stay the same. Entries are built under a temporary name and then renamed, so
an existing entry is always complete.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinrank.data.store import Arrays, FolderSink, read_arrays, read_manifest, write_manifest
from twinrank.data.streams import FileState, content_hash
from twinrank.data.table import ReadOptions, Table
from twinrank.support.errors import FileError, InputError, explained
from twinrank.support.files import check_regular, new_folder, publish, shortened

VARIABLE = "TWINRANK_CACHE_DIR"
HINT = f"choose another cache folder (cache_dir=, --cache-dir or {VARIABLE}), or cache=False"

# Takes a function that creates sinks; returns the last sink, its arrays, metadata and the hash.
Reader = Callable[[Callable[[], FolderSink]], tuple[FolderSink, Arrays, dict[str, Any], str]]


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: `cache_dir`, TWINRANK_CACHE_DIR, or the user's cache folder."""
    try:
        if cache_dir or (cache_dir := os.environ.get(VARIABLE)):
            return Path(cache_dir).expanduser().absolute()
        return _user_cache() / "twinrank"
    except RuntimeError as error:  # the user has no home folder
        raise InputError(f"there is no cache folder: {error}; {HINT}") from error


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
    path: Path, options: ReadOptions, parser: str, base: Path, verify: bool, read: Reader
) -> Table:
    """Return the table of a file from a valid cache entry, or read the file and cache it."""
    check_regular(path)
    with explained("read", path):
        real = path.resolve(strict=True)
    identity = {"path": str(real), "parser": parser, "reading": options.to_json()}
    identity = json.loads(json.dumps(identity))  # lists instead of tuples, as in the manifest
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = base / f"{shortened(real.name)}-{key}"
    expected = {**identity, **FileState.of(path).to_json()}
    content = (lambda: content_hash(path)) if verify else None
    if (table := valid_entry(folder, expected, content)) is not None:
        return table
    with explained("read", path), path.open("rb"):
        state = FileState.settled(path)
    with new_folder(folder, HINT) as partial:
        sink, _, facts, digest = read(lambda: FolderSink(partial, folder, HINT))
        if FileState.of(path) != state:
            raise InputError(f"{path} changed while it was read; load it again")
        source = {**identity, **state.to_json(), "sha256": digest}
        write_manifest(partial, {"source": source, "arrays": sink.describe(), **facts})
        manifest = read_manifest(partial)
        table = Table.of(read_arrays(partial, manifest), manifest)
        publish(partial, folder)  # the maps stay valid under the new name
    return table


def valid_entry(
    folder: Path, expected: dict[str, Any], content: Callable[[], Any] | None
) -> Table | None:
    """Return the table of a cache entry, or None if it is missing, outdated or damaged.

    The entry's source must have the `expected` values. With `content`, which computes a hash of the
    files or a list of their checksums, the content is compared too.
    """
    try:
        manifest = read_manifest(folder)
        source = manifest.get("source")
        if not isinstance(source, dict) or any(
            source.get(key) != expected[key] for key in expected
        ):
            return None
        if content is not None and content() not in (source.get("sha256"), source.get("checksums")):
            return None
        return Table.of(read_arrays(folder, manifest, content is not None), manifest)
    except (FileError, InputError):
        return None
