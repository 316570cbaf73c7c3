"""Files that appear whole or not at all."""

import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twinrank.support.errors import explained

_MARK = ".partial-"
_DAY = 86_400


def _partial(path: Path) -> Path:
    """A name beside the final one that says who is writing, for `sweep`."""
    owner = f"{socket.gethostname()}-{os.getpid()}"
    return path.with_name(f".{path.name}{_MARK}{owner}-{secrets.token_hex(4)}")


@contextmanager
def replacing(path: Path, hint: str = "") -> Iterator[Path]:
    """A temporary name to write a file to; it gets its real name when all went well.

    What was there before stays untouched until then, and for good if anything fails.
    """
    partial = _partial(path)
    with explained("write", path, hint):
        try:
            yield partial
            partial.replace(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def new_folder(path: Path, hint: str = "") -> Iterator[Path]:
    """A temporary folder to fill; `publish` gives it its real name, else it is removed."""
    partial = _partial(path)
    with explained("write", path, hint):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        partial.mkdir()
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def publish(partial: Path, path: Path) -> None:
    """Give a filled folder its real name; what had that name before goes.

    Folders can't be exchanged in one step. For a moment the old one is gone and the new one isn't
    there yet; never is there a folder that is half old and half new.
    """
    for _ in range(100):
        try:
            partial.rename(path)
            return
        except OSError:
            if not path.exists():
                raise
            old = _partial(path)
            with suppress(FileNotFoundError):  # another process was faster
                path.rename(old)
                remove(old)
    partial.rename(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder; a memory map of it stays readable."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder."""
    here = socket.gethostname()
    for left in folder.glob(f".*{_MARK}*"):
        host, _, rest = left.name.rpartition(_MARK)[2].rpartition("-")[0].rpartition("-")
        with suppress(OSError, ValueError):
            old = time.time() - left.stat().st_mtime > _DAY
            if old or (host == here and not _alive(int(rest))):
                remove(left)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
