"""Memory of the process: the allocator's settings, and the peak."""

import ctypes
import gc
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

    `added` is the memory that the context needed at its peak above what the process had before,
    without pages of files. Linux can reset the peak. On other systems `bytes` is the peak since the
    process started, and `added` is 0: unknown.

    >>> with PeakMemory() as memory:
    ...     kept = bytearray(1_000)
    >>> memory.bytes > 1_000
    True
    """

    def __init__(self) -> None:
        self.bytes = self.added = 0

    def __enter__(self) -> Self:
        gc.collect(1)  # a full collection takes a third of a second in a large process
        _return_memory()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _status()
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes, before, now = _peak(), self._before, _status()
        if before and now:
            files = sum(now[name] - before[name] for name in ("RssFile", "RssShmem"))
            self.added = max(self.bytes - before["VmRSS"] - max(files, 0), 0)


def _return_memory() -> None:
    """Return freed memory to the system, so that its next use counts; glibc only."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def _status() -> dict[str, int]:
    """The kinds of memory of the process on Linux, in bytes; empty elsewhere."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        pairs = (line.split(":", 1) for line in lines if line.startswith(("Vm", "Rss")))
        return {name: int(value.split()[0]) * 1024 for name, value in pairs}
    return {}


def _peak() -> int:
    if (peak := _status().get("VmHWM")) is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) * (1 if sys.platform == "darwin" else 1024)
