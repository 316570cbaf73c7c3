"""Data to files: LETOR text, CSV, Parquet, Feather, or a folder of arrays."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from twinrank.data.sources import COMPRESSED, FRAMES, LETOR, plain_suffix
from twinrank.data.store import FolderSink, Sink, write_manifest
from twinrank.support.errors import InputError
from twinrank.support.files import new_folder, publish, replacing

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_BLOCK = 1 << 16  # documents


def save(data: "Dataset", path: "str | os.PathLike[str]") -> None:
    """Write a dataset in the form that the name asks for; the file appears when it is complete."""
    target = Path(path).expanduser()
    kind = plain_suffix(target)
    compressed = target.suffix.lower() in COMPRESSED
    if not target.parent.is_dir():
        raise InputError(f"can't write {target}: there is no folder {target.parent}")
    if kind in FRAMES:
        from twinrank.data.frames import write_frame

        if compressed and kind not in (".csv", ".tsv"):
            raise InputError(f"can't write {target}: {kind} compresses by itself")
        with replacing(target) as partial:
            write_frame(data, partial, target)
    elif kind in LETOR:
        from twinrank.data.letor.writing import write_letor

        with replacing(target) as partial:
            write_letor(data, partial, target)
    elif kind == "" and not compressed:
        _write_folder(data, target)
    else:
        known = ", ".join(LETOR[:3] + FRAMES[:4])
        raise InputError(
            f"can't write {target}: no format for {kind or target.suffix!r}; "
            f"choose from {known}, or no suffix for a folder"
        )


def _write_folder(data: "Dataset", target: Path) -> None:
    if target.exists() and not (target / "manifest.json").is_file():
        raise InputError(f"{target} exists and is not TwinRank data; choose another name")
    with new_folder(target) as partial:
        sink = FolderSink(partial)
        try:
            pour(data, sink)
            sink.finish()
        finally:
            sink.close()
        names = None if data.feature_names is None else list(data.feature_names)
        manifest = {"arrays": sink.describe(), "feature_names": names, "notes": []}
        write_manifest(partial, manifest)
        publish(partial, target)


def pour(data: "Dataset", sink: Sink) -> None:
    """Hand a dataset's arrays on to a sink, the features block by block."""
    for queries in data.batches(_BLOCK).plan(0):
        sink.append("X", data.take(queries))
    sink.append("y", data.y)
    sink.append("offsets", data.lists.offsets)
    sink.append("query_ids", data.query_ids)
    if data.comments is not None:
        sink.append("comments", data.comments.content)
        sink.append("comment_ends", data.comments.ends)
