"""One lock per folder, which the system releases when its holder ends, however that happens."""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from twinrank.support.errors import InputError, explained

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_BEYOND = 1 << 30  # on Windows, a locked byte cannot be read: one beyond the text is locked


@contextmanager
def locked(folder: Path, doing: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder; InputError names its holder if another has it.

    Several processes can hold a `shared` lock, but none beside the lock of one. A folder that does
    not exist is made, and removed again if it stays empty. On file systems without locks, such as
    some network drives, nothing is locked.
    """
    with explained("write", folder):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} exists and is not an empty folder. Choose another folder.")
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with _held(folder, doing, shared) as file:
            if shared:  # the file stays: others may hold it
                yield
                return
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            since = f"{holder} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
            try:
                with explained("write", folder / LOCK):
                    file.truncate(0)
                    os.write(file.fileno(), since.encode())  # not buffered: `close` writes nothing
                yield
            finally:  # while it is held, so that nobody else's file is removed
                if sys.platform != "win32":
                    with suppress(OSError):
                        (folder / LOCK).unlink()
    finally:
        with suppress(OSError):  # up to the first that is not empty
            for place in made:
                place.rmdir()


def is_empty(folder: Path) -> bool:
    """True for a folder without files except for a lock."""
    return folder.is_dir() and all(path.name == LOCK for path in folder.iterdir())


@contextmanager
def _held(folder: Path, doing: str, shared: bool) -> Iterator[IO[str]]:
    """The open file of a lock that this process holds."""
    path = folder / LOCK
    while True:
        with explained("write", folder, exactly=True):
            file = path.open("a+", encoding="utf-8", errors="replace")
        with file:
            if not _acquired(file, shared):
                file.seek(0)
                holder, since, start = file.read(200).strip().partition(" since ")
                holder = holder or "another process"
                raise InputError(
                    f"{holder[:1].upper()}{holder[1:]} has been {doing} in {folder}{since}{start}. "
                    f"Wait until it ends, or choose another folder."
                )
            if _names(path, file):  # else its last holder has just removed it
                yield file
                return


def _names(path: Path, file: IO[str]) -> bool:
    """True if a path leads to an open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _acquired(file: IO[str], shared: bool) -> bool:
    """Lock an open file; False if it is locked already."""
    try:
        if sys.platform == "win32":
            import msvcrt

            if shared:  # Windows has no shared locks of this kind
                return True

            file.seek(_BEYOND)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return True
