"""`load`: read files or a stream of ranking data as a `Dataset`."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from twinrank.data.block import Block
from twinrank.data.builder import TableBuilder
from twinrank.data.cache import HINT, cache_folder, cached
from twinrank.data.dataset import Dataset
from twinrank.data.from_arrays import checked_again
from twinrank.data.label_columns import split_columns
from twinrank.data.letor import LetorReader, TooNarrowError
from twinrank.data.options import MAX_FEATURES, ReadOptions
from twinrank.data.readers import TableReader, shown_name
from twinrank.data.sources import Part, address_of, find_parts, is_source, is_stream
from twinrank.data.store import Sink, is_store, read_manifest, read_table
from twinrank.data.streams import FRAMES, file_state, plain_suffix
from twinrank.data.table import Table
from twinrank.support.compiled import threads
from twinrank.support.errors import DataWarning, InputError, explained, warn
from twinrank.support.files import new_folder
from twinrank.support.terminal import reading_bar

_MOST_THREADS = 8  # with more threads, the disk is the limit


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
    label: str | Sequence[str] | bool | None = None,
    docid: str | None = None,
    weight: str | None = None,
    ignore: Sequence[str] = (),
    categorical_features: Sequence[str] = (),
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
    label : str, sequence of str or False, optional
        The column with labels, by default recognised by its name. Of several columns of numbers,
        the first is the main one; objectives name the others, as `nDCG(label=order)@10`. False:
        there are no labels, and every document is unjudged.
    docid : str, optional
        The column with document ids, by default recognised by its name.
    weight : str, optional
        The column with weights of rows. A query has the mean weight of its rows. If they differ,
        the gain of a document is multiplied by its weight relative to that mean. Training and
        evaluation use them. There are no weights by default.
    ignore : sequence of str, default ()
        Columns to leave out.
    categorical_features : sequence of str, default ()
        Columns of categories: their values, also numbers, are kept as text in `categories`. Columns
        of text need not be listed, unless a CSV file has digits in them.
    split_queries : {"join", "error"}, default "join"
        What to do with a query whose rows are in several files: put them together, in the order of
        the files, or raise an error that names the files.
    cache : bool, default True
        Whether to use the cache.
    cache_dir : path, optional
        The folder of the cache. By default the environment variable `TWINRANK_CACHE_DIR`, or else
        the user's cache folder.
    verify : bool, default False
        Compare the CRC-32 of every file and the checksums of the cached arrays, not only size,
        time and inode.
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
    options = ReadOptions.of(
        features=features,
        missing=missing,
        zero_based=zero_based,
        unjudged=unjudged,
        non_finite=non_finite,
        max_features=max_features,
        query=query,
        label=label,
        docid=docid,
        weight=weight,
        ignore=ignore,
        categorical_features=categorical_features,
        split_queries=split_queries,
    )
    data = load_table(path, options, cache, cache_dir, verify, progress)
    warn_about(data)
    return data


def warn_about(data: Dataset) -> None:
    """Warn about what was changed, or looks wrong, in data that was read."""
    for note in data._table.notes:
        warn(DataWarning(f"{data.name}: ", *note))


def load_table(
    source: Any,
    options: ReadOptions,
    cache: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    verify: bool = False,
    progress: bool | None = None,
) -> Dataset:
    """Read any source, from the cache if possible."""
    if options.more_labels:
        data = load_table(source, options.of_features, cache, cache_dir, verify, progress)
        return split_columns(data, (str(options.label), *options.more_labels))
    if not is_source(source):
        raise InputError(
            f"load takes files, an Arrow dataset, a reader of record batches or a polars LazyFrame,"
            f" not {type(source).__name__}; for a frame in memory use Dataset.from_frame."
        )
    base = cache_folder(cache_dir) if cache else None
    if is_stream(source) or address_of(source) is not None:
        if base is None:
            return Dataset(_read([source], options, Sink()), shown_name(source))
        with new_folder(base / "stream", HINT) as folder:  # open maps outlive it
            sink = Sink(folder, base, HINT)
            return Dataset(_read([source], options, sink), shown_name(source))
    if not isinstance(source, list | tuple):
        path = Path(source).expanduser()
        with explained("read", path):
            if path.is_dir() and is_store(path):
                return Dataset(_stored(path, options, verify), str(path))
    parts = find_parts(source)
    shown = f"{parts[0].path}" + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
    name = shown if isinstance(source, list | tuple) else str(path)
    sizes = [file_state(part.path)[0] for part in parts]
    with reading_bar(Path(shown).name, sum(sizes), progress) as advance:

        def show(number: int, share: float) -> None:
            advance(sum(sizes[:number]) + int(share * sizes[number]))

        if base is None:
            return Dataset(_read(parts, options, Sink(), show=show), name)
        read = partial(_read, parts, options, show=show)
        return Dataset(cached(parts, options, base, verify, read), name)


def _stored(folder: Path, options: ReadOptions, verify: bool) -> Table:
    options.refuse_columns(f"{folder} is a saved dataset, whose columns are fixed")
    if options.features is not None:
        raise InputError(f"{folder} is a saved dataset, whose features are fixed; remove features.")
    manifest = read_manifest(folder)
    try:
        table = read_table(folder, manifest, verify)
    except InputError as error:
        raise InputError(f"{folder} is damaged: ", *error.parts) from error
    unjudged = options.unjudged != "keep" and bool((table.y < 0).any())
    if not unjudged and (options.non_finite == "keep" or manifest.get("finite") is True):
        return table
    return checked_again(table, options)  # copied into memory, because values may change


def _read(
    parts: Sequence[Any],
    options: ReadOptions,
    sink: Sink,
    finished: Mapping[str, Any] | None = None,
    record: Callable[[TableBuilder], None] = lambda _: None,
    show: Callable[[int, float], None] = lambda *_: None,
) -> Table:
    """Read parts or a stream into a sink, and return the table of its arrays.

    Threads read and convert pieces, and the builder joins them in order. At most a few pieces are
    in memory. `record` gets the builder after each part; `finished` is the state of an earlier one.
    `show` gets the number of a part, and the share of it that was read.
    """
    workers = min(threads(), _MOST_THREADS)
    pool = ThreadPoolExecutor(workers, "twinrank-load")
    builder = TableBuilder(sink, options, finished)
    waiting: deque[tuple[int, float, Future[Block] | None]] = deque()
    try:
        reader: LetorReader | TableReader
        if isinstance(parts[0], Part) and plain_suffix(parts[0].path) not in FRAMES:
            reader = LetorReader(parts[0].path, options)
        else:
            reader = TableReader(parts[0], options)
        pieces = _pieces(reader, parts, builder.parts)
        while True:
            for number, share, read in islice(pieces, workers + 1 - len(waiting)):
                waiting.append((number, share, read and pool.submit(read)))
            if not waiting:
                break
            number, share, future = waiting.popleft()
            block = None if future is None else future.result()
            while block is not None:
                builder.add(block)
                block = None if block.rest is None else block.rest()
            if future is None:
                builder.end_part()
                record(builder)
            show(number, share)
        names = [shown_name(part) for part in parts]
        return builder.finish(names, reader.features, reader.notes)
    except TooNarrowError as error:
        sink.clear()
        return _read(parts, replace(options, features=error.features), sink, show=show)
    finally:
        pool.shutdown(cancel_futures=True)
        sink.close()


def _pieces(
    reader: LetorReader | TableReader, parts: Sequence[Any], finished: int
) -> Iterator[tuple[int, float, Callable[[], Block] | None]]:
    """The pieces of all parts that are not finished; None stands for the end of a part."""
    for number in range(finished, len(parts)):
        for share, read in reader.pieces(parts[number]):
            yield number, share, read
        yield number, 1.0, None
