"""Memory that is freed and asked for again in every step of a training."""

import ctypes
import sys
from contextlib import suppress

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
