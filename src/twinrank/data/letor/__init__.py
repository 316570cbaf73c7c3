"""LETOR / SVMlight text, `label qid:ID index:value … # comment`, read into a table.

Internal: import public names from `twinrank`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.letor.letor_reader import Contents, peek, read_letor
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
    scattered_queries,
)
from twinrank.support.errors import InputError

PARSER = "letor 1"  # part of the cache key; change it to invalidate old caches


def read_table(
    path: Path,
    options: ReadOptions,
    new_sink: Callable[[], Sink],
    advance: Callable[[int], None],
) -> tuple[Sink, Arrays, dict[str, Any], str]:
    """Read a file; return the sink, its arrays, their metadata and the file's hash.

    The width is estimated from the beginning of the file. If a later index is higher, the file is
    read a second time with the width that is then known.
    """
    if options.features is not None and not isinstance(options.features, int):
        raise InputError(f"{path} has no column names; features= must be a number here")
    for name in ("query", "label", "docid", "ignore"):
        if getattr(options, name) not in (None, ()):
            raise InputError(f"{path} is LETOR text, which has no columns; remove {name}=")
    first = 0 if options.zero_based else 1
    highest, names = peek(path, options)
    width = options.features or max(highest - first + 1, 1)
    while True:
        sink = new_sink()
        try:
            with opened(path) as source:
                contents = read_letor(source, sink, width, options, advance)
                digest = source.finish()
            if contents.highest - first < width:
                _check(path, contents, options)
                arrays, notes = _completed(sink, contents)
                if names is not None and len(names) != width:
                    raise InputError(
                        f"{path}, line 1: there are {len(names)} feature names but {width} "
                        f"features; name each feature once"
                    )
                return sink, arrays, {"feature_names": names, "notes": notes}, digest
        finally:
            sink.close()
        width = contents.highest - first + 1


def _check(path: Path, contents: Contents, options: ReadOptions) -> None:
    if not contents.documents:
        dropped = (
            f" except {contents.dropped:,} unjudged ones, which unjudged='drop' leaves out"
            if contents.dropped
            else ""
        )
        raise InputError(f"{path} has no documents{dropped}")
    if contents.highest < 0 and options.features is None:
        raise InputError(
            f"{path} has no features: no line has an index:value; if this is intended, pass "
            f"features= with a number"
        )


def _completed(sink: Sink, contents: Contents) -> tuple[Arrays, list[str]]:
    """Group the rows by query and append the arrays of queries; return all arrays, and notes."""
    numbers: dict[bytes, int] = {}
    runs = np.array([numbers.setdefault(name, len(numbers)) for name in contents.ids])
    order, offsets = grouped_rows(np.array(contents.starts), runs, contents.documents)
    sink.append("offsets", offsets)
    sink.append("query_ids", as_ids([name.decode() for name in numbers]))
    if order is not None:
        sink.append("rows", order)
    if not contents.commented:
        sink.discard("comments")
        sink.discard("comment_ends")
    arrays = sink.finish()
    if order is not None:
        reorder(sink, arrays, order)
    notes = [scattered_note(int(scattered_queries(runs).sum()))] if order is not None else []
    if contents.dropped:
        notes.append(dropped_note(contents.dropped))
    return arrays, notes + not_finite_notes(contents.missing, contents.infinite)


def reorder(sink: Sink, arrays: Arrays, order: Any) -> None:
    """Reorder the rows of finished arrays in place."""
    permute(arrays["X"], order)
    arrays["y"][:] = arrays["y"][order]
    if "comments" in arrays:
        moved = Texts(arrays["comments"], arrays["comment_ends"]).take(order)
        arrays["comments"][:], arrays["comment_ends"][:] = moved.content, moved.ends
    for name in {"X", "y", "comments", "comment_ends"} & arrays.keys():
        sink.changed(name, arrays[name])
