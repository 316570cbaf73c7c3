"""Compiled loops of `exact_ranks` on the CPU: counting for short lists, sorting for others."""

from typing import Any

import numpy as np

from twinrank.support import random
from twinrank.support.compiled import compiled, compiled_sums
from twinrank.support.segments import COUNTS, descending_key, sort_keys

RANDOM, STABLE, AVERAGE = 0, 1, 2

_COUNTED = 256
"""Up to this length counting the higher scores, on vector units, is faster than sorting."""

random_bits = compiled(random.random_bits)


def counters(scores: Any) -> Any:
    """An empty array of the type that counts fastest on vector units for these scores."""
    return np.empty(0, np.int32 if scores.dtype == np.float32 else np.float64)


@compiled
def rank_by_counting(
    start: int, stop: int, scores: Any, offsets: Any, counter: Any, ranks: Any, done: Any
) -> None:
    """Rank the short lists without ties among start … stop − 1; `done` says which."""
    padded = np.empty(_COUNTED, scores.dtype)
    for q in range(start, stop):
        size = offsets[q + 1] - offsets[q]
        done[q] = size <= _COUNTED and _count_higher(
            offsets[q], size, scores, counter, padded, ranks
        )


@compiled
def rank_by_sorting(
    start: int,
    stop: int,
    scores: Any,
    offsets: Any,
    ties: int,
    seed: int,
    ranks: Any,
    done: Any,
) -> None:
    """Rank the lists among start … stop − 1 that are not done."""
    longest = 0
    for q in range(start, stop):
        if not done[q]:
            longest = max(longest, offsets[q + 1] - offsets[q])
    keys, order = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    tied_keys, tied = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    spare_keys, spare_order = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    counts = np.empty(COUNTS, np.int64)
    for q in range(start, stop):
        if done[q]:
            continue
        place, size = offsets[q], offsets[q + 1] - offsets[q]
        for i in range(size):
            keys[i] = descending_key(scores[place + i])
            order[i] = i
        sort_keys(keys, order, size, spare_keys, spare_order, counts)
        begin = 0
        while begin < size:  # one run of tied scores at a time
            end = begin + 1
            while end < size and keys[end] == keys[begin]:
                end += 1
            run = end - begin
            if run > 1 and ties == RANDOM:
                for i in range(run):
                    tied[i] = order[begin + i]
                    tied_keys[i] = np.uint64(random_bits(seed, random.TIES, place + tied[i]))
                sort_keys(tied_keys, tied, run, spare_keys, spare_order, counts)
                for i in range(run):
                    order[begin + i] = tied[i]
            for i in range(begin, end):
                ranks[place + order[i]] = (begin + 1 + end) / 2 if ties == AVERAGE else i + 1
            begin = end


@compiled_sums
def _count_higher(
    place: int, size: int, scores: Any, counter: Any, padded: Any, ranks: Any
) -> bool:
    """rank_i = 1 + the number of higher scores; returns False if there are ties.

    Padding with −∞ to whole vectors avoids the slow loop over the remainder.
    """
    whole = (size + 31) // 32 * 32
    for i in range(size):
        padded[i] = scores[place + i]
    for i in range(size, whole):
        padded[i] = -np.inf
    total = 0
    for i in range(size):
        higher = counter.dtype.type(0)
        for j in range(whole):
            higher = counter.dtype.type(higher + counter.dtype.type(padded[j] > padded[i]))
        ranks[place + i] = higher + 1
        total += int(higher)
    return total == size * (size - 1) // 2
