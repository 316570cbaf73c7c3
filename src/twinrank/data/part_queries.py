"""Queries over several parts: runs of query ids, and rows moved to the other rows of a query."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.array_source import by_appearance, plain_ids
from twinrank.data.letor import reorder
from twinrank.data.store import Arrays, Sink
from twinrank.data.table import Ints, grouped_rows, scattered_note, scattered_queries
from twinrank.support.errors import InputError
from twinrank.support.quantities import counted

_SHOWN = 3  # parts in a message


@dataclass(frozen=True, eq=False)
class PartRuns:
    """Runs of one query id in a part: their first rows among all rows, and the ids."""

    starts: Ints
    ids: npt.NDArray[Any]

    @classmethod
    def of(cls, starts: list[Ints], ids: list[npt.NDArray[Any]]) -> "PartRuns":
        """Join the runs of a part's blocks."""
        if not starts:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(np.concatenate(starts), _joined(ids))


def grouped_queries(
    sink: Sink, parts: list[PartRuns], documents: int, names: list[str], split_queries: str
) -> tuple[Arrays, list[str]]:
    """Append the arrays of queries, move the rows of a query together; return all arrays, notes."""
    ids = _joined([part.ids for part in parts if part.ids.size])
    starts = np.concatenate([part.starts for part in parts])
    part_of = np.repeat(np.arange(len(parts)), [part.starts.size for part in parts])
    numbers, query_ids = by_appearance(ids)
    spread = _in_several(numbers, part_of, len(parts))
    notes = []
    if spread.any():
        query = int(np.argmax(spread))
        own = [names[i] for i in np.unique(part_of[numbers == query]).tolist()]
        listed = ", ".join(own[:_SHOWN]) + (", …" if len(own) > _SHOWN else "")
        example = f"query {query_ids[query]} in {listed}"
        if split_queries == "error":
            raise InputError(
                f"the rows of {counted(int(spread.sum()), 'query')} are in several parts, for "
                f"example {example}; pass split_queries='join' to put them together"
            )
        notes.append(
            f"the rows of {counted(int(spread.sum()), 'query')} were in several parts and are now "
            f"together, for example {example}; different queries need different ids"
        )
    begins = np.append(True, numbers[1:] != numbers[:-1])  # a run may continue in the next piece
    starts, runs = starts[begins], numbers[begins]
    order, offsets = grouped_rows(starts, runs, documents)
    if order is not None and (scattered := int((scattered_queries(runs) & ~spread).sum())):
        notes.append(scattered_note(scattered))
    sink.append("offsets", offsets)
    sink.append("query_ids", query_ids)
    if order is not None:
        sink.append("rows", order)
    arrays = sink.finish()
    if order is not None:
        reorder(sink, arrays, order)
    return arrays, notes


def _in_several(numbers: Ints, part_of: Ints, parts: int) -> npt.NDArray[np.bool_]:
    """Mask of the queries with rows in more than one part."""
    pairs = np.unique(numbers * parts + part_of)
    return np.bincount(pairs // parts) > 1


def _joined(ids: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Ids of several blocks as int64, or as text if one block has text."""
    if all(block.dtype == np.int64 for block in ids):
        return np.concatenate(ids)
    return plain_ids(np.array([str(name) for block in ids for name in block.tolist()], object))
