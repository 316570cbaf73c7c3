"""LETOR / SVMlight text, `label qid:ID index:value … # comment`, into a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.letor.letor_reader import Found, glimpse, read_letor
from twinrank.data.letor.letor_rows import permute
from twinrank.data.store import Arrays, Sink
from twinrank.data.streams import opened
from twinrank.data.table import (
    ReadOptions,
    Texts,
    as_ids,
    dropped_note,
    grouped_rows,
    not_finite_notes,
    scattered_note,
)
from twinrank.support.errors import InputError

PARSER = "letor 1"  # another name makes old caches void


def read_table(
    path: Path,
    reading: ReadOptions,
    new_sink: Callable[[], Sink],
    advance: Callable[[int], None],
) -> tuple[Sink, Arrays, dict[str, Any], str]:
    """Read a file: the sink, its arrays, what goes with them, and the file's hash.

    The width is guessed from the beginning of the file. If an index further on is higher, the file
    is read again, this time with the width that is now known.
    """
    if reading.features is not None and not isinstance(reading.features, int):
        raise InputError(f"{path} has no columns to choose by name; features= is a number here")
    for name in ("query", "label", "docid", "ignore"):
        if getattr(reading, name) not in (None, ()):
            raise InputError(f"{path} is LETOR text, which has no columns: {name}= is of no use")
    first = 0 if reading.zero_based else 1
    highest, names = glimpse(path, reading)
    width = reading.features or max(highest - first + 1, 1)
    while True:
        sink = new_sink()
        try:
            with opened(path) as source:
                found = read_letor(source, sink, width, reading, advance)
                digest = source.finish()
            if found.highest - first < width:
                _check(path, found, reading)
                arrays, notes = _completed(sink, found)
                if names is not None and len(names) != width:
                    raise InputError(
                        f"{path} names {len(names)} features in line 1, but has {width}"
                    )
                return sink, arrays, {"feature_names": names, "notes": notes}, digest
        finally:
            sink.close()
        width = found.highest - first + 1


def _check(path: Path, found: Found, reading: ReadOptions) -> None:
    if not found.documents:
        unjudged = f" but {found.dropped:,} unjudged, dropped" if found.dropped else ""
        raise InputError(f"{path} holds no documents{unjudged}")
    if found.highest < 0 and reading.features is None:
        raise InputError(
            f"{path} holds no features: no line has an index:value; features= if that is right"
        )


def _completed(sink: Sink, found: Found) -> tuple[Arrays, list[str]]:
    """Put each query's rows together and add what belongs to queries; the arrays, and notes."""
    numbers: dict[bytes, int] = {}
    runs = np.array([numbers.setdefault(name, len(numbers)) for name in found.ids])
    order, offsets = grouped_rows(np.array(found.starts), runs, found.documents)
    sink.append("offsets", offsets)
    sink.append("query_ids", as_ids([name.decode() for name in numbers]))
    if order is not None:
        sink.append("rows", order)
    if not found.commented:
        sink.discard("comments")
        sink.discard("comment_ends")
    arrays = sink.finish()
    if order is not None:
        _reorder(sink, arrays, order)
    notes = [scattered_note(runs)] if order is not None else []
    if found.dropped:
        notes.append(dropped_note(found.dropped))
    return arrays, notes + not_finite_notes(found.missing, found.infinite)


def _reorder(sink: Sink, arrays: Arrays, order: Any) -> None:
    permute(arrays["X"], order)
    arrays["y"][:] = arrays["y"][order]
    if "comments" in arrays:
        moved = Texts(arrays["comments"], arrays["comment_ends"]).take(order)
        arrays["comments"][:], arrays["comment_ends"][:] = moved.content, moved.ends
    for name in {"X", "y", "comments", "comment_ends"} & arrays.keys():
        sink.changed(name, arrays[name])
