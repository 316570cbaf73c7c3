"""Writing a dataset: LETOR text, CSV, Parquet, Feather, or a folder of arrays."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.batches import blocks
from twinrank.data.store import FolderSink, Sink, is_store, write_manifest
from twinrank.data.streams import COMPRESSED, FRAMES, LETOR, plain_suffix
from twinrank.support.errors import InputError, explained
from twinrank.support.files import new_folder, publish, replacing

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.data.text_columns import Categories


def save(data: "Dataset", path: "str | os.PathLike[str]") -> None:
    """Write a dataset in the format of the suffix; the file appears when it is complete."""
    target = Path(path).expanduser()
    with explained("write", target):
        check_target(target)
    if data.documents == 0:
        raise InputError(f"Can't write {target}: the dataset has no documents.")
    suffix = plain_suffix(target)
    if suffix == "":
        _write_folder(data, target)
        return
    _check_queries(data, target)
    with replacing(target) as partial:
        if suffix in FRAMES:
            from twinrank.data.frames import write_frame

            write_frame(data, partial, target)
        elif data.categories:
            raise InputError(
                f"Can't write {target}: LETOR text has numbers only, but the data has columns of "
                f"text; choose .parquet or .csv, or no suffix for a folder."
            )
        else:
            from twinrank.data.letor.letor_writer import write_letor

            write_letor(data, partial, target)


def check_target(target: Path) -> None:
    """Raise an error if data can't be written to this path."""
    suffix = plain_suffix(target)
    compressed = target.suffix.lower() in COMPRESSED
    if not target.parent.is_dir():
        raise InputError(f"Can't write {target}: the folder {target.parent} does not exist.")
    if suffix in FRAMES and compressed and suffix not in (".csv", ".tsv"):
        raise InputError(
            f"Can't write {target}: {suffix} files are compressed already; remove {target.suffix}."
        )
    if suffix == "" and not compressed:
        if target.exists() and not (target.is_dir() and is_store(target)):
            raise InputError(f"{target} exists and is not TwinRank data; choose another name.")
    elif suffix not in FRAMES + LETOR:
        known = ", ".join(LETOR[:3] + FRAMES[:4])
        raise InputError(
            f"Can't write {target}: {suffix or target.suffix!r} is not a known format; "
            f"choose from {known}, or no suffix for a folder."
        )


def _check_queries(data: "Dataset", target: Path) -> None:
    """Raise an error for queries that only a folder can represent: empty or repeated ones."""
    if (data.lists.sizes == 0).any():
        raise InputError(
            f"Can't write {target}: some queries have no documents; remove them with `filter()`."
        )
    names, counts = np.unique(data.query_ids, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"Can't write {target}: query {names[counts > 1][0]} is selected twice; select each "
            f"query once, or write a folder."
        )


def _write_folder(data: "Dataset", target: Path) -> None:
    with new_folder(target) as partial:
        sink = FolderSink(partial)
        try:
            finite = append_dataset(data, sink)
            sink.finish()
        finally:
            sink.close()
        names = None if data.feature_names is None else list(data.feature_names)
        facts = {"feature_names": names, "finite": finite, "notes": []}
        facts |= facts_of(data.categories)
        write_manifest(partial, {"arrays": sink.describe(), **facts})
        publish(partial, target)


def facts_of(categories: "Categories") -> dict[str, Any]:
    """Return what a manifest has about columns of text: nothing if there are none."""
    listed = {str(column): list(texts) for column, texts in categories.items()}
    return {"categories": listed} if listed else {}


def append_dataset(data: "Dataset", sink: Sink) -> bool:
    """Append a dataset's arrays to a sink in blocks; return True if all features are finite."""
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
