"""Atomic, durable writes of files and folders, and readers of JSON and TOML with clear errors.

Content is flushed to the disk before a rename, and the folder with its names after it. So a power
failure leaves the old content or the new, as the death of a process does.
"""

import errno
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinrank.support.errors import InputError, Parts, explained

_PARTIAL, _REPLACED = "partial", "replaced"
_TEMPORARY = re.compile(
    rf"\.(?P<name>.+)\.twinrank-(?P<kind>{_PARTIAL}|{_REPLACED})"
    r"-(?P<place>.+-\d+)-(?P<process>\d+)-[0-9a-f]{8}",
    re.DOTALL,
)
_LONGEST = 100  # bytes of a name that a temporary name repeats
_DAY = 86_400
_ATTEMPTS = 100
_EXISTS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # another process was faster
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP)  # some file systems, and pipes


def shortened(name: str) -> str:
    """The beginning of a file name, so that a suffix fits into the limit of 255 bytes."""
    return name.encode(errors="surrogateescape")[:_LONGEST].decode(errors="ignore")


def check_regular(path: Path) -> None:
    """Raise an error for a pipe or a device: it cannot be read twice and may never end."""
    with explained("read", path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"{path} is {kind}, not a file; write the data to a file first.")


def read_json(path: Path) -> Any:
    """Read a JSON file; an error names the file."""
    with explained("read", path):
        text = path.read_bytes()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}).") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; an error names the file."""
    with explained("read", path):
        text = path.read_bytes()
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error}).") from error


def check_format(
    about: Any, name: str | Path, kind: str, version: int, what: str, hint: Parts = ()
) -> dict[str, Any]:
    """Check that the header of a TwinRank file has this kind and version, and return it."""
    if not isinstance(about, dict) or about.get("format") != kind:
        raise InputError(f"{name} is not {what}.")
    actual = about.get("version")
    if actual != version or isinstance(actual, bool):
        raise InputError(
            f"{name} has version {actual} of the format; this TwinRank reads {version}.",
            *((" ", *hint) if hint else ()),
        )
    return about


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files, or of folders of files ("folder/file").

    It appears whole, in place of what was there before.
    """
    with new_folder(folder) as partial:
        for name, content in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_bytes(content)
        publish(partial, folder)


def write_text(path: Path, text: str) -> Path:
    """Write a text that ends with one line break."""
    with replacing(path) as partial:
        partial.write_text(text.rstrip("\n") + "\n", "utf-8")
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write a value as JSON."""
    return write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """A value as JSON: paths as text, and numbers that are not finite as null.

    >>> json_text([Path("run"), math.nan]).split()
    ['[', '"run",', 'null', ']']
    """
    return json.dumps(json_types(value), indent=1, ensure_ascii=False, allow_nan=False)


def json_types(value: Any) -> Any:
    """A value in JSON types."""
    if isinstance(value, Mapping):
        return {str(key): json_types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_types(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


@contextmanager
def replacing(path: Path, hint: Parts = ()) -> Iterator[Path]:
    """A temporary path to write to; the file is renamed if the context ends without an error.

    An existing file stays unchanged until then, and if an error occurs. A link is kept; its target
    is replaced.
    """
    real = Path(os.path.realpath(path))
    partial = _temporary(real, shortened(real.name), _PARTIAL)
    with explained("write", path, hint, exactly=True):
        sweep(real.parent)
        try:
            yield partial
            _flush(partial)
            partial.replace(real)
            _flush(real.parent)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def new_folder(path: Path, hint: Parts = ()) -> Iterator[Path]:
    """A temporary folder to fill; it is removed unless `publish` renames it."""
    partial = _temporary(path, shortened(path.name), _PARTIAL)
    with explained("write", path, hint):
        path.parent.mkdir(parents=True, exist_ok=True)
    with explained("write", path, hint, exactly=True):
        sweep(path.parent)
        try:
            partial.mkdir()
            yield partial
        finally:
            remove(partial)


def publish(partial: Path, path: Path) -> None:
    """Rename a filled folder to its final name, replacing an existing folder.

    Folders cannot be exchanged atomically. The old folder is moved aside, then the new folder is
    renamed, so a folder is never partly old and partly new. If the rename fails, the old folder is
    restored. If the process dies in between, `sweep` restores it.
    """
    for place, _, names in os.walk(partial, topdown=False):
        for name in names:
            _flush(Path(place, name))
        _flush(Path(place))
    for attempt in range(_ATTEMPTS):
        aside = _temporary(path, path.name, _REPLACED)
        try:
            if os.path.lexists(path):
                with suppress(FileNotFoundError):
                    path.rename(aside)
            partial.rename(path)
            _flush(path.parent)
            remove(aside)
            return
        except BaseException as error:
            _restore(aside, path)
            exists = isinstance(error, OSError) and error.errno in _EXISTS
            if not exists or attempt + 1 == _ATTEMPTS:
                raise


def is_writable(folder: Path) -> bool:
    """True for a folder in which files can be made; it is made if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def private_folder(name: str) -> Path:
    """A folder among the temporary files that only this user can read and write.

    Others could have made a folder of that name: it is used only if it belongs to this user.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"twinrank-{user}")
    with explained("write", folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
            return Path(tempfile.mkdtemp(prefix="twinrank-"), name)
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    return folder / name


def _flush(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk; wait until that is done."""
    try:
        number = os.open(path, os.O_RDONLY if os.name != "nt" or path.is_dir() else os.O_RDWR)
    except (IsADirectoryError, PermissionError):  # Windows opens no folders
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(number)


def _restore(aside: Path, path: Path) -> None:
    with suppress(OSError):
        if os.path.lexists(path):
            remove(aside)
        else:
            aside.rename(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder if it exists; open memory maps stay readable."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path, ignore_errors=True)
    except KeyboardInterrupt:  # finish first
        shutil.rmtree(path, ignore_errors=True)
        raise


def sweep(folder: Path) -> None:
    """Clean up after killed processes: remove partial files, restore replaced folders.

    Files of processes on other machines are cleaned up when they are a day old.
    """
    for leftover in folder.glob(".*.twinrank-*"):
        if (match := _TEMPORARY.fullmatch(leftover.name)) is None:
            continue
        with suppress(OSError):
            old = time.time() - leftover.lstat().st_mtime > _DAY
            dead = match["place"] == _place() and not _alive(int(match["process"]))
            if not (old or dead):
                continue
            if match["kind"] == _REPLACED:
                _restore(leftover, folder / match["name"])
            else:
                remove(leftover)


def _temporary(path: Path, name: str, kind: str) -> Path:
    """A name in the same folder that identifies the process, for `sweep`."""
    process = f"{_place()}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".{name}.twinrank-{kind}-{process}")


def _place() -> str:
    """The scope of process ids: the machine and, on Linux, the container."""
    namespace = 0
    with suppress(OSError):
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"{socket.gethostname()}-{namespace}"


def _alive(process: int) -> bool:
    if os.name == "nt":  # on Windows, signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
