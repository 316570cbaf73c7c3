"""Memory of the process: the allocator's settings, the peak, and what is available."""

import ctypes
import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from twinrank.support.errors import InputError

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


_CGROUPS = (  # of version 2 and 1: the folder, the names of limit, usage and reclaimable pages
    ("", "memory.max", "memory.current", ("active_file", "inactive_file")),
    (
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
    ),
)
_UNLIMITED = 1 << 60
_UNITS = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def memory_in_use() -> int:
    """The memory of the process that is not pages of files, in bytes; 0 if unknown."""
    return _status().get("RssAnon", 0)


def available_memory(root: Path = Path("/")) -> int | None:
    """The bytes that the process can still take; None if unknown.

    It is the least of what the system, the control groups of a container or of systemd, and the
    limits of `ulimit` leave. Pages of files do not count, because the system can drop them. The
    variable TWINRANK_MEMORY, such as "8GB", replaces all this: the memory of the whole process.
    """
    if text := os.environ.get("TWINRANK_MEMORY"):
        return max(bytes_of(text) - memory_in_use(), 0)
    left = [*_system(root), *_control_groups(root), *_limits()]
    return max(min(left), 0) if left else None


def bytes_of(text: str) -> int:
    """A size with its unit, in bytes.

    >>> bytes_of("1.5 GB"), bytes_of("300")
    (1500000000, 300)
    """
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise InputError(f"TWINRANK_MEMORY must be a size such as 8GB, not {text!r}.")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _system(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _control_groups(root: Path) -> Iterator[int]:
    """What the groups of the process and those above them leave."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller, limit, usage, reclaimable in _CGROUPS:
            if controller != controllers and controller not in controllers.split(","):
                continue
            base = root / "sys/fs/cgroup" / controller
            own = base / path.lstrip("/")
            # In a container, the path may be that of the host, and its own group the base.
            for folder in (own, *own.parents):
                with suppress(OSError, ValueError):
                    most = int((folder / limit).read_text())
                    if most < _UNLIMITED:
                        lines_of = (folder / "memory.stat").read_text().splitlines()
                        counts = dict(each.split() for each in lines_of)
                        files = sum(int(counts.get(name, 0)) for name in reclaimable)
                        yield most - int((folder / usage).read_text()) + files
                if folder == base:
                    break


def _limits() -> Iterator[int]:
    """What the limits of the process leave."""
    try:
        import resource
    except ImportError:  # Windows
        return
    status = _status()
    for limit, kind in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY and kind in status:
            yield most - status[kind]
