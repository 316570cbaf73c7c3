"""Writing a dataset: LETOR text, CSV, Parquet, Feather, or a folder of arrays."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.batches import blocks
from twinrank.data.builder import numbered
from twinrank.data.from_csv import SEPARATORS
from twinrank.data.from_frames import is_number
from twinrank.data.options import role_of
from twinrank.data.readers import polars_for
from twinrank.data.store import Sink, is_store
from twinrank.data.streams import COMPRESSED, FRAMES, LETOR, plain_suffix, written
from twinrank.data.table import docid_in
from twinrank.support.errors import InputError, explained
from twinrank.support.files import new_folder, publish, replacing

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset


def save(data: "Dataset", path: "str | os.PathLike[str]") -> None:
    """Write a dataset in the format of the suffix; the file appears when it is complete."""
    target = Path(path).expanduser()
    with explained("write", target):
        check_target(target)
    if data.documents == 0:
        raise InputError(f"Can't write {target}: the dataset has no documents.")
    suffix = plain_suffix(target)
    if data.labels and suffix not in FRAMES:
        raise InputError(
            f"Can't write {target}: the data has several columns of labels; choose .parquet or "
            f".csv, and read it with label={list(data.labels)}."
        )
    if suffix == "":
        _write_folder(data, target)
        return
    _check_queries(data, target)
    with replacing(target) as partial:
        if suffix in FRAMES:
            _write_frame(data, partial, target)
        elif data.categories or data.weights is not None:
            kind = "columns of text" if data.categories else "weights"
            raise InputError(
                f"Can't write {target}: LETOR text has labels and numbers only, but the data has "
                f"{kind}; choose .parquet or .csv, or no suffix for a folder."
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
        sink = Sink(partial, target)
        try:
            finite = _append(data, sink)
            sink.finish()
        finally:
            sink.close()
        others = {"finite": finite} | ({"from_clicks": True} if data.from_clicks else {})
        sink.write_manifest(data.feature_names, (), data.categories, **others)
        publish(partial, target)


def _append(data: "Dataset", sink: Sink) -> bool:
    """Append a dataset's arrays to a sink in blocks; return True if all features are finite."""
    finite = True
    for queries in blocks(data):
        block = data.take(queries)
        finite = finite and bool(np.isfinite(block).all())
        sink.append("X", block)
    sink.append("y", data.y)
    sink.append("offsets", data.lists.offsets)
    sink.append("query_ids", data.query_ids)
    if data.weights is not None:
        sink.append("weights", data.weights)
    if data.row_weights is not None:
        sink.append("row_weights", data.row_weights)
    if data.comments is not None:
        sink.append("comments", data.comments.content)
        sink.append("comment_ends", data.comments.ends)
    return finite


def _write_frame(data: "Dataset", path: Path, name: Path) -> None:
    """Write a dataset to `path` in the format of the file called `name`."""
    pl = polars_for(name)
    features = data.feature_names or numbered(data.features)
    for feature in features:
        if (role := role_of(feature)) is not None:
            raise InputError(
                f"Can't write {name}: `load` would read feature {feature!r} as the {role}; "
                f"rename it, or write LETOR text or a folder."
            )
    comment_column = None
    if data.comments is not None:
        only_ids = all(docid_in(text) == text for text in data.comments)
        comment_column = "docid" if only_ids else "comment"
    suffix = plain_suffix(name)
    try:
        if suffix == ".parquet":
            _frame(pl, data, features, comment_column).write_parquet(path)
        elif suffix not in SEPARATORS:
            _frame(pl, data, features, comment_column).write_ipc(path)
        else:
            _check_texts(data, features, name)
            with written(path, name) as file:
                for i, queries in enumerate(blocks(data)):
                    part = _frame(pl, data.select(queries), features, comment_column)
                    part.write_csv(file, separator=SEPARATORS[suffix], include_header=i == 0)
    except pl.exceptions.PolarsError as error:  # such as a full disk
        raise OSError(str(error)) from error


def _check_texts(data: "Dataset", features: tuple[str, ...], name: Path) -> None:
    """Raise an error for categories that `load` would read as numbers."""
    for column, texts in data.categories.items():
        if number := next(filter(is_number, texts), None):
            raise InputError(
                f"Can't write {name}: feature {features[column]!r} has the category {number!r}, "
                f"which `load` would read as a number; write Parquet, Feather or a folder."
            )


def _frame(pl: Any, data: "Dataset", features: tuple[str, ...], comment_column: str | None) -> Any:
    columns: dict[str, Any] = {"qid": data.qid, **(data.labels or {"label": data.y})}
    if data.weights is not None:
        rows = data.row_weights
        columns["weight"] = data.lists.spread(data.weights) if rows is None else rows
    if comment_column is not None and data.comments is not None:
        columns[comment_column] = list(data.comments)
    values = pl.from_numpy(data.X, schema=list(features))
    for column, texts in data.categories.items():
        own = [texts[int(code)] if code >= 0 else None for code in data.X[:, column].tolist()]
        # `load` takes text that looks like numbers for a mistake, unless its type says otherwise.
        kind = pl.Categorical if any(map(is_number, texts)) else pl.String
        values.replace_column(column, pl.Series(features[column], own, kind))
    return pl.concat([pl.DataFrame(columns), values], how="horizontal")
