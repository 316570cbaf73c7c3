"""Stable radix sort of 64-bit keys inside compiled loops.

The loops index whole arrays rather than take slices, which numba is slow to compile.
"""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled

_INSERTION = 24
"""Up to this length an insertion sort beats the histograms."""

COUNTS = 8 * 256
"""Size of the histograms that `sort_keys` needs, one per byte of a key."""


@compiled
def sort_keys(
    keys: Any, order: Any, size: int, spare_keys: Any, spare_order: Any, counts: Any
) -> None:
    """Sort keys[:size] in place, ascending and stably, and order[:size] along with them."""
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
            continue  # all keys share this byte, as float32 numbers share the lowest three
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
    """The key of a number: their ascending order is the descending order of the numbers.

    −0 and 0 get one key; NaN is not expected.
    """
    bits, sign = np.float64(value).view(np.uint64), np.uint64(1 << 63)
    if bits & sign and bits != sign:
        return bits
    return ~(bits | sign)


@compiled
def count_small(values: Any, begin: int, end: int, keys: Any, counts: Any) -> int:
    """Count values[begin:end], and write them to keys, if they are whole numbers below 256.

    Labels mostly are, and then counting beats sorting. Returns how many numbers 0, 1, 2, … the
    counts cover, or 0 if some value isn't one of those.
    """
    size = end - begin
    small, highest = True, np.uint64(0)
    for i in range(size):
        value = values[begin + i]
        small &= (value >= 0) & (value < 256)
        key = np.uint64(value) if small else np.uint64(0)
        small &= key == value
        highest = max(highest, key)
        keys[i] = key
    if not small:
        return 0
    for i in range(highest + np.uint64(1)):
        counts[i] = 0
    for i in range(size):
        counts[keys[i]] += 1
    return np.int64(highest) + 1  # type: ignore[return-value]


@compiled
def group_ascending(
    values: Any,
    begin: int,
    end: int,
    order: Any,
    ends: Any,
    keys: Any,
    spare_keys: Any,
    spare_order: Any,
    counts: Any,
) -> int:
    """Sort values[begin:end] stably, ascending, into groups of equal values; return their number.

    order[i] becomes the index of the i-th smallest; group k ends before place ends[k].
    """
    size = end - begin
    numbers = count_small(values, begin, end, keys, counts)
    if numbers:
        groups, place = 0, 0
        for i in range(numbers):
            if counts[i]:
                place, counts[i] = place + counts[i], place
                ends[groups] = place
                groups += 1
        for i in range(size):
            key = keys[i]
            order[counts[key]] = begin + i
            counts[key] += 1
        return groups
    for i in range(size):
        keys[i] = ~descending_key(values[begin + i])
        order[i] = begin + i
    sort_keys(keys, order, size, spare_keys, spare_order, counts)
    groups = 0
    for i in range(size):
        if i + 1 == size or keys[i + 1] != keys[i]:
            ends[groups] = i + 1
            groups += 1
    return groups
