"""Data to files: LETOR text, CSV, Parquet, Feather, or a folder of arrays."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twinrank.data.batches import blocks
from twinrank.data.store import FolderSink, Sink, is_store, write_manifest
from twinrank.data.streams import COMPRESSED, FRAMES, LETOR, plain_suffix
from twinrank.support.errors import InputError, explained
from twinrank.support.files import new_folder, publish, replacing

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset


def save(data: "Dataset", path: "str | os.PathLike[str]") -> None:
    """Write a dataset in the form that the name asks for; the file appears when it is complete."""
    target = Path(path).expanduser()
    with explained("write", target):
        check_target(target)
    if data.documents == 0:
        raise InputError(f"can't write {target}: there are no documents")
    kind = plain_suffix(target)
    if kind == "":
        _write_folder(data, target)
        return
    _check_queries(data, target)
    with replacing(target) as partial:
        if kind in FRAMES:
            from twinrank.data.frames import write_frame

            write_frame(data, partial, target)
        else:
            from twinrank.data.letor.letor_writer import write_letor

            write_letor(data, partial, target)


def check_target(target: Path) -> None:
    """Refuse a name that data can't be written to."""
    kind = plain_suffix(target)
    compressed = target.suffix.lower() in COMPRESSED
    if not target.parent.is_dir():
        raise InputError(f"can't write {target}: there is no folder {target.parent}")
    if kind in FRAMES and compressed and kind not in (".csv", ".tsv"):
        raise InputError(f"can't write {target}: {kind} compresses by itself")
    if kind == "" and not compressed:
        if target.exists() and not (target.is_dir() and is_store(target)):
            raise InputError(f"{target} exists and is not TwinRank data; choose another name")
    elif kind not in FRAMES + LETOR:
        known = ", ".join(LETOR[:3] + FRAMES[:4])
        raise InputError(
            f"can't write {target}: no format for {kind or target.suffix!r}; "
            f"choose from {known}, or no suffix for a folder"
        )


def _check_queries(data: "Dataset", target: Path) -> None:
    """Refuse what only a folder can hold, which has the sizes of queries beside their ids."""
    if (data.lists.sizes == 0).any():
        raise InputError(
            f"can't write {target}: some queries have no documents; `filter()` leaves these out"
        )
    names, counts = np.unique(data.query_ids, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"can't write {target}: the query {names[counts > 1][0]} was selected twice"
        )


def _write_folder(data: "Dataset", target: Path) -> None:
    with new_folder(target) as partial:
        sink = FolderSink(partial)
        try:
            finite = pour(data, sink)
            sink.finish()
        finally:
            sink.close()
        names = None if data.feature_names is None else list(data.feature_names)
        facts = {"feature_names": names, "finite": finite, "notes": []}
        manifest = {"arrays": sink.describe(), **facts}
        write_manifest(partial, manifest)
        publish(partial, target)


def pour(data: "Dataset", sink: Sink) -> bool:
    """Hand a dataset's arrays on to a sink, block by block; whether all features are finite."""
    finite = True
    for queries in blocks(data):
        block = data.take(queries)
        finite = finite and bool(np.isfinite(block).all())
        sink.append("X", block)
    sink.append("y", data.y)
    sink.append("offsets", data.lists.offsets)
    sink.append("query_ids", data.query_ids)
    if data.comments is not None:
        sink.append("comments", data.comments.content)
        sink.append("comment_ends", data.comments.ends)
    return finite
