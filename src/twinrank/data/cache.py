"""The cache: a file's arrays, ready to be mapped, in a folder of the user's cache.

A cache is found by the file's path and the choices made in reading it, and it counts only while the
file's size, time and inode are those it was made from. It is built under another name and
renamed, so that a cache that is there is whole.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinrank.data.store import Arrays, FolderSink, read_arrays, read_manifest, write_manifest
from twinrank.data.streams import Fingerprint, content_hash
from twinrank.data.table import ReadOptions, Table
from twinrank.support.errors import FileError, InputError, explained
from twinrank.support.files import check_regular, new_folder, publish, shortened

VARIABLE = "TWINRANK_CACHE_DIR"
_HINT = f"choose another cache folder (cache_dir=, --cache-dir or {VARIABLE}), or cache=False"

# Reads a file into sinks that the given function makes: the last sink, its arrays, facts, hash.
Reader = Callable[[Callable[[], FolderSink]], tuple[FolderSink, Arrays, dict[str, Any], str]]


def cache_folder(chosen: str | os.PathLike[str] | None = None) -> Path:
    """Where caches live: the folder asked for, TWINRANK_CACHE_DIR, or the user's cache."""
    try:
        if chosen or (chosen := os.environ.get(VARIABLE)):
            return Path(chosen).expanduser().absolute()
        return _user_cache() / "twinrank"
    except RuntimeError as error:  # nobody's home
        raise InputError(f"no cache folder: {error}; {_HINT}") from error


def _user_cache() -> Path:
    """The platform's folder for caches of this user; a relative path in a variable is void."""
    if sys.platform == "win32":
        variable, home = "LOCALAPPDATA", ("AppData", "Local")
    elif sys.platform == "darwin":
        variable, home = "", ("Library", "Caches")
    else:
        variable, home = "XDG_CACHE_HOME", (".cache",)
    told = Path(os.environ.get(variable, ""))
    return told if told.is_absolute() else Path.home().joinpath(*home)


def cached(
    path: Path, reading: ReadOptions, parser: str, base: Path, verify: bool, read: Reader
) -> Table:
    """The table of a file, from its cache if that is still good, else read and cached."""
    check_regular(path)
    with explained("read", path):
        real = path.resolve(strict=True)
    about = {"path": str(real), "parser": parser, "reading": reading.to_json()}
    about = json.loads(json.dumps(about))  # as it comes back: lists for tuples
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    folder = base / f"{shortened(real.name)}-{key}"
    if (table := _good(folder, real, about, verify)) is not None:
        return table
    with explained("read", path), path.open("rb"):
        fingerprint = Fingerprint.settled(path)
    with new_folder(folder, _HINT) as partial:
        sink, _, facts, digest = read(lambda: FolderSink(partial, folder, _HINT))
        if Fingerprint.of(path) != fingerprint:
            raise InputError(f"{path} changed while it was read; load it again")
        source = {**about, **fingerprint.to_json(), "sha256": digest}
        write_manifest(partial, {"source": source, "arrays": sink.describe(), **facts})
        manifest = read_manifest(partial)
        table = Table.of(read_arrays(partial, manifest), manifest)
        publish(partial, folder)  # the maps stay valid under the new name
    return table


def _good(folder: Path, path: Path, about: dict[str, Any], verify: bool) -> Table | None:
    """The table of a cache, or None: not there, out of date, damaged, or something else."""
    expected = {**about, **Fingerprint.of(path).to_json()}
    try:
        manifest = read_manifest(folder)
        source = manifest.get("source")
        if not isinstance(source, dict) or any(source.get(k) != expected[k] for k in expected):
            return None
        if verify and content_hash(path) != source.get("sha256"):
            return None
        return Table.of(read_arrays(folder, manifest, verify), manifest)
    except (FileError, InputError):
        return None
