"""Memory of the process: the allocator's settings, and the peak."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_MOST_KEPT, _LARGEST_KEPT = 2**31 - 1, 2**25


def keep_memory() -> None:
    """Keep freed memory in the process, if the C library is glibc.

    A training step frees arrays of a few megabytes and allocates the same again. By default the
    pages return to the system each time, and clearing them takes up to 20 % of a step. The setting
    holds for the whole process, so only the commands use it.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_TRIM_THRESHOLD, _MOST_KEPT)


class PeakMemory:
    """The peak memory of the process within this context, in `bytes`.

    Linux can reset the peak. On other systems it is the peak since the process started.

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
