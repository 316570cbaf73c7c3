"""Numbers for the ids of rows, and rows that occur twice: loops that need no sort."""

from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.support.compiled import compiled

Ints = npt.NDArray[np.int64]
_SPARSE = 4  # a table of whole numbers may be so many times as long as there are rows


def by_first_row(values: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """The number of each value, in the order of first appearance, and the first row of each."""
    if values.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > _SPARSE * values.size + 1000:
        _, first, codes = np.unique(values, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(order.size)
        return number[codes], first[order]
    offsets = (values.astype(np.int64) - low) if low else values.astype(np.int64)
    first = np.empty(min(span, values.size), np.int64)
    count = _number(offsets, np.full(span, -1, np.int64), first)
    return offsets, first[:count]


def number_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """The number of each pair, and the first row of each.

    Pairs are in the order of their first code, and then of first appearance. Both codes count
    from 0.
    """
    rows = np.empty(first.size, np.int64)
    starts = np.zeros(int(first.max()) + 2, np.int64)
    np.cumsum(np.bincount(first), out=starts[1:])
    _rows_by_code(first, starts, rows)
    numbers, firsts = np.empty(first.size, np.int64), np.empty(first.size, np.int64)
    seen = np.full((2, int(second.max()) + 1), -1, np.int64)
    count = _number_pairs(first, second, rows, seen, numbers, firsts)
    return numbers, firsts[:count].copy()


def repeated_row(group: Ints, values: Ints) -> int:
    """The first row whose value occurs earlier in its group; −1 if there is none."""
    order = None
    if (np.diff(group) < 0).any():
        order = np.argsort(group, kind="stable")
        group, values = group[order], values[order]
    rows = np.arange(group.size) if order is None else order
    return int(_repeated(group, values, rows, np.full(int(values.max()) + 1, -1, np.int64)))


@compiled
def _number(values: Any, table: Any, first: Any) -> Any:
    """Replace whole numbers by their numbers in the order of first appearance."""
    count = 0
    for row in range(values.size):
        value = values[row]
        if table[value] < 0:
            table[value] = count
            first[count] = row
            count += 1
        values[row] = table[value]
    return count


@compiled
def _rows_by_code(codes: Any, starts: Any, rows: Any) -> None:
    """A counting sort; the starts of each code end as those of the next."""
    for row in range(codes.size):
        code = codes[row]
        rows[starts[code]] = row
        starts[code] += 1


@compiled
def _number_pairs(first: Any, second: Any, rows: Any, seen: Any, numbers: Any, firsts: Any) -> Any:
    """`seen` has the last first code with which a second code occurred, and the pair's number."""
    count = 0
    for i in range(rows.size):
        row = rows[i]
        a, b = first[row], second[row]
        if seen[0, b] != a:
            seen[0, b] = a
            seen[1, b] = count
            firsts[count] = row
            count += 1
        numbers[row] = seen[1, b]
    return count


@compiled
def _repeated(group: Any, values: Any, rows: Any, seen: Any) -> Any:
    """`seen` has the last group in which a value occurred; groups are sorted."""
    found = -1
    for i in range(values.size):
        value = values[i]
        if seen[value] == group[i] and (found < 0 or rows[i] < found):
            found = rows[i]
        seen[value] = group[i]
    return found
