"""Memory: keeping what a training frees and asks for again in every step, and the peak of it."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_MOST_KEPT, _LARGEST_KEPT = 2**31 - 1, 2**25


def keep_memory() -> None:
    """Let this process keep the memory it frees, where the C library is glibc.

    A step frees arrays of a few megabytes and asks for the same again; by default the pages go back
    to the system each time, and clearing them anew takes up to a fifth of a step. It is a setting
    of the whole process, so only commands choose it, never the library.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_TRIM_THRESHOLD, _MOST_KEPT)


class PeakMemory:
    """The most memory that the process held while in this context, in `bytes`.

    Linux can be asked to forget the peak so far; elsewhere it is that of the process's whole life.

    >>> with PeakMemory() as memory:
    ...     kept = bytearray(1_000)
    >>> memory.bytes > 1_000
    True
    """

    def __init__(self) -> None:
        self.bytes = 0

    def __enter__(self) -> Self:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = _peak()


def _peak() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) * (1 if sys.platform == "darwin" else 1024)
