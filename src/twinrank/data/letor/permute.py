"""Rows put in another order, in place."""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled


@compiled
def permute_rows(values: Any, order: Any, done: Any, spare: Any) -> None:
    """values[i] = values[order[i]] for all i at once, cycle by cycle, with room for one row."""
    for first in range(order.size):
        if done[first]:
            continue
        for c in range(values.shape[1]):
            spare[c] = values[first, c]
        i = first
        while True:
            done[i] = True
            source = order[i]
            if source == first:
                break
            for c in range(values.shape[1]):
                values[i, c] = values[source, c]
            i = source
        for c in range(values.shape[1]):
            values[i, c] = spare[c]


def permute(values: Any, order: Any) -> None:
    """Put the rows of a matrix in another order without a second matrix."""
    permute_rows(values, order, np.zeros(order.size, np.bool_), np.empty_like(values[0]))
