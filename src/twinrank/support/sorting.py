"""A stable radix sort of 64-bit keys for compiled loops.

The loops index whole arrays, since numba compiles slices slowly.
"""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled

_INSERTION = 24
"""Up to this length an insertion sort is faster."""

COUNTS = 8 * 256
"""The size of the histograms of `sort_keys`, one per byte of a key."""


@compiled
def sort_keys(
    keys: Any, order: Any, size: int, spare_keys: Any, spare_order: Any, counts: Any
) -> None:
    """Sort keys[:size] in place, ascending and stable, and reorder order[:size] with them."""
    if size <= _INSERTION:
        for i in range(1, size):
            key, item = keys[i], order[i]
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j], order[j] = keys[j - 1], order[j - 1]
                j -= 1
            keys[j], order[j] = key, item
        return
    for i in range(COUNTS):
        counts[i] = 0
    for i in range(size):
        for byte in range(8):
            counts[256 * byte + ((keys[i] >> np.uint64(8 * byte)) & np.uint64(255))] += 1
    source, source_order, target, target_order = keys, order, spare_keys, spare_order
    swapped = False
    for byte in range(8):
        shift, histogram = np.uint64(8 * byte), 256 * byte
        if counts[histogram + ((source[0] >> shift) & np.uint64(255))] == size:
            continue  # all keys share this byte, as float32 values share the lowest three
        place = 0
        for i in range(histogram, histogram + 256):
            place, counts[i] = place + counts[i], place
        for i in range(size):
            bucket = histogram + ((source[i] >> shift) & np.uint64(255))
            place = counts[bucket]
            counts[bucket] = place + 1
            target[place], target_order[place] = source[i], source_order[i]
        source, source_order, target, target_order = target, target_order, source, source_order
        swapped = not swapped
    if swapped:
        for i in range(size):
            keys[i], order[i] = spare_keys[i], spare_order[i]


@compiled
def descending_key(value: float) -> Any:
    """The key of a number; ascending keys give descending numbers.

    −0 and 0 have the same key. NaN is not supported.
    """
    bits, sign = np.float64(value).view(np.uint64), np.uint64(1 << 63)
    if bits & sign and bits != sign:
        return bits
    return ~(bits | sign)
