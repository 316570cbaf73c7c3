"""Files and folders that appear whole or not at all."""

import errno
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinrank.support.errors import InputError, explained

_HALF, _REPLACED = "partial", "replaced"
_TEMPORARY = re.compile(
    rf"\.(?P<name>.+)\.twinrank-(?P<kind>{_HALF}|{_REPLACED})"
    r"-(?P<place>.+-\d+)-(?P<process>\d+)-[0-9a-f]{8}",
    re.DOTALL,
)
_LONGEST = 100  # bytes of a name that a temporary one repeats
_DAY = 86_400
_ATTEMPTS = 100
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # another process was faster


def shortened(name: str) -> str:
    """The beginning of a file's name, so that more can be added: a name has 255 bytes at most."""
    return name.encode(errors="surrogateescape")[:_LONGEST].decode(errors="ignore")


def check_regular(path: Path) -> None:
    """Refuse a pipe or a device: it can't be read twice, and may never end."""
    with explained("read", path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"{path} is {what}, not a file; write the data to a file first")


def read_json(path: Path) -> Any:
    """The content of a JSON file; what is no JSON is an error that names the file."""
    with explained("read", path):
        text = path.read_bytes()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; what is no TOML is an error that names the file."""
    with explained("read", path):
        text = path.read_bytes()
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error


def check_format(
    about: Any, name: str | Path, kind: str, version: int, what: str, hint: str = ""
) -> dict[str, Any]:
    """What a file of ours says about itself, if it is of this kind and version."""
    if not isinstance(about, dict) or about.get("format") != kind:
        raise InputError(f"{name} is not {what}")
    found = about.get("version")
    if found != version or isinstance(found, bool):
        raise InputError(
            f"{name} has version {found} of the format; this TwinRank reads {version}{hint}"
        )
    return about


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files. It appears whole, in place of what was there before."""
    with new_folder(folder) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)
        publish(partial, folder)


@contextmanager
def replacing(path: Path, hint: str = "") -> Iterator[Path]:
    """A temporary name to write a file to; it gets its real name when all went well.

    What was there before stays untouched until then, and for good if anything fails. A link stays
    a link: the file that it leads to is replaced.
    """
    real = Path(os.path.realpath(path))
    partial = _temporary(real, shortened(real.name), _HALF)
    with explained("write", path, hint, exactly=True):
        sweep(real.parent)
        try:
            yield partial
            partial.replace(real)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def new_folder(path: Path, hint: str = "") -> Iterator[Path]:
    """A temporary folder to fill; `publish` gives it its real name, else it is removed."""
    partial = _temporary(path, shortened(path.name), _HALF)
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
    """Give a filled folder its real name; what had that name before goes.

    Folders can't be exchanged in one step. For a moment the old one is aside and the new one isn't
    there yet; never is there a folder that is half old and half new. If the new one can't be moved,
    the old one comes back; if the process dies at that moment, `sweep` brings it back.
    """
    for attempt in range(_ATTEMPTS):
        aside = _temporary(path, path.name, _REPLACED)
        try:
            if os.path.lexists(path):
                with suppress(FileNotFoundError):
                    path.rename(aside)
            partial.rename(path)
            remove(aside)
            return
        except BaseException as error:
            _bring_back(aside, path)
            taken = isinstance(error, OSError) and error.errno in _TAKEN
            if not taken or attempt + 1 == _ATTEMPTS:
                raise


def _bring_back(aside: Path, path: Path) -> None:
    with suppress(OSError):
        if os.path.lexists(path):
            remove(aside)
        else:
            aside.rename(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if there; a memory map of it stays readable."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path, ignore_errors=True)
    except KeyboardInterrupt:  # after the work, not in the middle
        shutil.rmtree(path, ignore_errors=True)
        raise


def sweep(folder: Path) -> None:
    """Clear away what killed processes left in a folder: remove halves, bring back what they moved.

    The leftovers of processes that can't be asked, on other machines, have to be a day old.
    """
    for left in folder.glob(".*.twinrank-*"):
        if (match := _TEMPORARY.fullmatch(left.name)) is None:
            continue
        with suppress(OSError):
            old = time.time() - left.lstat().st_mtime > _DAY
            dead = match["place"] == _place() and not _alive(int(match["process"]))
            if not (old or dead):
                continue
            if match["kind"] == _REPLACED:
                _bring_back(left, folder / match["name"])
            else:
                remove(left)


def _temporary(path: Path, name: str, kind: str) -> Path:
    """A name beside the final one that says who is at work, for `sweep`."""
    who = f"{_place()}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".{name}.twinrank-{kind}-{who}")


def _place() -> str:
    """Where process numbers mean the same as here: the machine and, on Linux, the container."""
    space = 0
    with suppress(OSError):
        space = Path("/proc/self/ns/pid").stat().st_ino
    return f"{socket.gethostname()}-{space}"


def _alive(process: int) -> bool:
    if os.name == "nt":  # there, signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
