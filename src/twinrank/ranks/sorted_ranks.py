"""The compiled loop behind `exact_ranks` on the CPU: one radix sort per list."""

import math
from typing import Any

import numpy as np

from twinrank.support import random
from twinrank.support.compiled import compiled
from twinrank.support.sorting import COUNTS, descending_key, sort_keys

RANDOM, STABLE, AVERAGE = 0, 1, 2

random_bits = compiled(random.random_bits)
kept_bits = compiled(random.kept_bits)
open_uniform = compiled(random.open_uniform)


@compiled
def rank_lists(
    start: int,
    stop: int,
    scores: Any,
    offsets: Any,
    ties: int,
    seed: int,
    perturbation: float,
    single: bool,
    ranks: Any,
) -> None:
    """Rank the lists numbered start…stop − 1, counted through all samples (sample-major).

    `single` says that the scores are float32 numbers: perturbed ones are rounded to that again.
    """
    count, total = offsets.size - 1, scores.size
    longest = 0
    for q in range(count):
        longest = max(longest, offsets[q + 1] - offsets[q])
    values, counts = np.empty(longest), np.empty(COUNTS, np.int64)
    keys, order = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    tied_keys, tied = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    spare_keys, spare_order = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    bits = values.view(np.uint64)
    for unit in range(start, stop):
        sample, q = unit // count, unit % count
        size = offsets[q + 1] - offsets[q]
        place = sample * total + offsets[q]
        for i in range(size):
            values[i] = scores[offsets[q] + i]
            if perturbation != 0:
                uniform = open_uniform(kept_bits(random_bits(seed, random.NOISE, place + i)))
                values[i] -= perturbation * math.log(-math.log(uniform))  # Gumbel noise
                if single:
                    values[i] = np.float32(values[i])
            keys[i] = descending_key(bits[i])
            order[i] = i
        sort_keys(keys, order, size, spare_keys, spare_order, counts)
        begin = 0
        while begin < size:  # one run of tied scores after the other
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
                ranks[place + order[i]] = (begin + 1 + end) / 2 if ties == AVERAGE else i + 1.0
            begin = end
