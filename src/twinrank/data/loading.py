"""`load`: read files or a stream of ranking data as a `Dataset`."""

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinrank.data import frames, letor
from twinrank.data.array_source import checked_again
from twinrank.data.cache import HINT, cache_folder, cached
from twinrank.data.dataset import Dataset
from twinrank.data.part_cache import cached_parts
from twinrank.data.part_reader import Journal, polars_errors, read_parts
from twinrank.data.parts import Part, address_of, find_parts, is_source, is_stream, open_stream
from twinrank.data.saving import append_dataset, facts_of
from twinrank.data.store import (
    Arrays,
    FolderSink,
    MemorySink,
    Sink,
    is_store,
    read_arrays,
    read_manifest,
)
from twinrank.data.streams import FRAMES, FileState, content_hash, plain_suffix
from twinrank.data.table import MAX_FEATURES, ReadOptions, Table, column_names
from twinrank.display.progress_bars import reading_bar
from twinrank.support.errors import DataWarning, InputError, explained
from twinrank.support.files import check_regular, new_folder

SMALL = 1 << 26  # bytes of a table that is read at once


def load(
    path: Any,
    *,
    features: int | Sequence[str] | None = None,
    missing: str = "zero",
    zero_based: bool = False,
    unjudged: str = "error",
    non_finite: str = "error",
    max_features: int = MAX_FEATURES,
    query: str | None = None,
    label: str | bool | None = None,
    docid: str | None = None,
    ignore: Sequence[str] = (),
    split_queries: str = "join",
    cache: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    verify: bool = False,
    progress: bool | None = None,
) -> Dataset:
    """Load ranking data from a file, from many files, or from a stream.

    The suffix selects the format: `.csv`, `.tsv`, `.parquet` or `.feather`; any other file is LETOR
    / SVMlight text, `label qid:ID index:value … # comment`. Text may be compressed (`.gz`, `.xz`,
    `.zst`). The first call parses the files and caches their arrays, in bounded memory. If it is
    killed, the next call continues after the last finished file. Later calls map the cached arrays
    into memory, as long as the size, time and inode of every file stay the same.

    Parameters
    ----------
    path : path, list of paths, Arrow dataset, reader of record batches or polars LazyFrame
        A file; a folder written by `Dataset.save`; or tables in parts: a folder (its folders may be
        called `column=value`), a pattern such as "day=*/*.parquet", or a list. An address that
        polars reads (`s3://…`, `gs://…`) and a stream are read at every call; they are not cached.
    features : int or sequence of str, optional
        LETOR text: the number of features, if the file may lack the last ones. Other formats: the
        feature columns. By default, all columns without another role, except those that only the
        names of folders contain.
    missing : {"zero", "nan"}, default "zero"
        LETOR text: the value of features that a line leaves out.
    zero_based : bool, default False
        LETOR text: True if feature indices start at 0.
    unjudged : {"error", "keep", "drop"}, default "error"
        What to do with unjudged documents, whose label is −1. Measures count kept ones as 0.
    non_finite : {"error", "keep", "clip"}, default "error"
        What to do with NaN, infinities and values beyond the range of float32. "keep" turns values
        beyond the range into infinities. "clip" turns infinities into ±3.4e38 and keeps NaN.
    max_features : int, default 100,000
        The highest number of features; more raise an error.
    query : str, optional
        The column with query ids. By default it is recognised by its name.
    label : str or False, optional
        The column with labels, by default recognised by its name. False: there are no labels, and
        every document is unjudged.
    docid : str, optional
        The column with document ids, by default recognised by its name.
    ignore : sequence of str, default ()
        Columns to leave out.
    split_queries : {"join", "error"}, default "join"
        What to do with a query whose rows are in several files: put them together, in the order of
        the files, or raise an error that names the files.
    cache : bool, default True
        Whether to use the cache.
    cache_dir : path, optional
        The folder of the cache. By default the environment variable `TWINRANK_CACHE_DIR`, or else
        the user's cache folder.
    verify : bool, default False
        Compare the file's SHA-256 hash (of several files, their CRC-32) and the checksums of the
        cached arrays, not only size, time and inode.
    progress : bool, optional
        Whether to show a progress bar. By default for large files on a terminal.

    Returns
    -------
    Dataset
        The data, mapped into memory if it comes from the cache or a folder. Changes made while
        reading, such as dropped documents, are in its `notes` and raise a `DataWarning`.

    Raises
    ------
    InputError
        If the content is invalid or ambiguous; the message says where and what to do.
    FileError
        If the file cannot be read, or the cache cannot be written.

    Examples
    --------
    >>> data = load("Fold1/train.txt", unjudged="drop")                          # doctest: +SKIP
    """
    if not (features is None or isinstance(features, int)):
        features = column_names(features)
    options = ReadOptions(
        features=features,
        missing=missing,
        zero_based=zero_based,
        unjudged=unjudged,
        non_finite=non_finite,
        max_features=max_features,
        query=query,
        label=label,
        docid=docid,
        ignore=column_names(ignore),
        split_queries=split_queries,
    )
    base = cache_folder(cache_dir) if cache else None
    table, name = _table(path, options, base, verify, progress)
    for note in table.notes:
        warnings.warn(f"{name}: {note}", DataWarning, stacklevel=2)
    return Dataset(table, name=name)


def _table(
    source: Any, options: ReadOptions, base: Path | None, verify: bool, progress: bool | None
) -> tuple[Table, str]:
    """The table of any source, and its name."""
    if not is_source(source):
        raise InputError(
            f"load takes files, an Arrow dataset, a reader of record batches or a polars LazyFrame,"
            f" not {type(source).__name__}; for a frame in memory use Dataset.from_frame"
        )
    if is_stream(source) or address_of(source) is not None:
        return _from_stream(source, options, base)
    if isinstance(source, list | tuple):
        parts = find_parts(source)
        assert parts is not None
        return _from_parts(parts, options, base, verify, progress), _list_name(parts)
    path = Path(source).expanduser()
    with explained("read", path):
        if path.is_dir() and is_store(path):
            return _stored(path, options, verify), str(path)
    parts = find_parts(path)
    if parts is None and plain_suffix(path) in FRAMES:
        with explained("read", path):
            check_regular(path)
            if path.stat().st_size > SMALL:
                parts = [Part(path)]
    if parts is not None:
        return _from_parts(parts, options, base, verify, progress), str(path)
    return _from_file(path, options, base, verify, progress), str(path)


def _list_name(parts: list[Part]) -> str:
    return f"{parts[0].path}" + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")


def _from_parts(
    parts: list[Part], options: ReadOptions, base: Path | None, verify: bool, progress: bool | None
) -> Table:
    size = sum(FileState.of(part.path).size for part in parts)
    with reading_bar(_list_name(parts), size, progress) as advance:

        def read(sink: Sink, journal: Journal | None) -> tuple[Arrays, dict[str, Any]]:
            return read_parts(parts, options, sink, journal, advance)

        if base is not None:
            return cached_parts(parts, options, base, verify, read)
        return Table.of(*read(MemorySink(), None))


def _from_stream(source: Any, options: ReadOptions, base: Path | None) -> tuple[Table, str]:
    """Read a stream into memory, or into files of the cache that no name leads to."""
    name = address_of(source) or type(source).__name__
    pl = frames.polars_for(name)
    with explained("read", name), polars_errors(pl, name):
        stream = open_stream(source, pl, options)
    if base is None:
        return Table.of(*read_parts(stream, options, MemorySink(), None, _no_bar)), name
    with new_folder(base / "stream") as folder:
        sink = FolderSink(folder, base, HINT)
        try:
            arrays, facts = read_parts(stream, options, sink, None, _no_bar)
        finally:
            sink.close()
        return Table.of(arrays, facts), name  # open maps outlive their folder


def _no_bar(_: int) -> None:
    pass


def _stored(folder: Path, options: ReadOptions, verify: bool) -> Table:
    for name in ("query", "label", "docid", "ignore", "features"):
        if getattr(options, name) not in (None, ()):
            raise InputError(
                f"{folder} is a saved dataset, whose columns are fixed; remove {name}=, or load "
                f"the original files"
            )
    manifest = read_manifest(folder)
    try:
        table = Table.of(read_arrays(folder, manifest, verify), manifest)
    except InputError as error:
        raise InputError(f"{folder} is damaged: {error}") from error
    unjudged = options.unjudged != "keep" and bool((table.y < 0).any())
    if not unjudged and (options.non_finite == "keep" or manifest.get("finite") is True):
        return table
    return checked_again(table, options)  # copied into memory, because values may change


def _from_file(
    path: Path, options: ReadOptions, base: Path | None, verify: bool, progress: bool | None
) -> Table:
    with explained("read", path):
        check_regular(path)
        size = path.stat().st_size
    is_frame = plain_suffix(path) in FRAMES
    parser = frames.PARSER if is_frame else letor.PARSER
    with reading_bar(path.name, size, progress) as advance:

        def read(new_sink: Callable[[], Any]) -> tuple[Any, Arrays, dict[str, Any], str]:
            if is_frame:
                return _read_frame(path, options, new_sink)
            return letor.read_table(path, options, new_sink, advance)

        if base is not None:
            return cached(path, options, parser, base, verify, read)
        _, arrays, facts, _ = read(MemorySink)
        return Table.of(arrays, facts)


def _read_frame(
    path: Path, options: ReadOptions, new_sink: Callable[[], Sink]
) -> tuple[Sink, Arrays, dict[str, Any], str]:
    table = frames.read_file(path, options)
    sink = new_sink()
    try:
        append_dataset(Dataset(table), sink)
        if table.rows is not None:
            sink.append("rows", table.rows)
        names = None if table.feature_names is None else list(table.feature_names)
        facts = {"feature_names": names, "notes": list(table.notes)}
        facts |= facts_of(table.categories)
        return sink, sink.finish(), facts, content_hash(path)
    finally:
        sink.close()
