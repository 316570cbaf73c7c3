"""`load`: any file or folder of ranking data as a `Dataset`."""

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinrank.data import frames, letor
from twinrank.data.arrays import checked_again
from twinrank.data.cache import cache_folder, cached
from twinrank.data.dataset import Dataset
from twinrank.data.options import MAX_FEATURES, Reading, several
from twinrank.data.saving import pour
from twinrank.data.sources import FRAMES, content_hash, plain_suffix
from twinrank.data.store import Arrays, MemorySink, Sink, is_store, read_arrays, read_manifest
from twinrank.data.table import Table
from twinrank.display.progress_bars import reading_bar
from twinrank.support.errors import DataWarning, InputError, explained
from twinrank.support.files import check_regular


def load(
    path: str | os.PathLike[str],
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
    cache: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    verify: bool = False,
    progress: bool | None = None,
) -> Dataset:
    """Load ranking data: LETOR / SVMlight text, CSV, Parquet, Feather, or a folder saved before.

    The format follows from the name: `.csv`, `.tsv`, `.parquet`, `.feather`; anything else is
    LETOR text, `label qid:ID index:value … # comment`. Text may be compressed (`.gz`, `.xz`,
    `.zst`). The first time a file is parsed and its arrays are kept in a cache; from then on they
    are mapped into memory, as long as the file's size, time and inode stay the same.

    features: LETOR: how many there are, for a file in which the last ones happen to be absent.
        Other formats: the columns that are features; without it, all that are nothing else.
    missing: LETOR: what a feature is that a line leaves out, "zero" or "nan".
    zero_based: LETOR: whether feature indices begin with 0.
    unjudged: what becomes of documents with label −1: "error", "keep" or "drop".
    non_finite: what becomes of NaN, infinities and values that a float32 can't hold: "error",
        "keep" (too large is infinite), or "clip" (infinite is ±3.4e38; NaN stays).
    max_features: the highest number of features that is believed.
    query, label, docid: the columns of a frame that hold these; without them, guessed by name.
        label=False: there are none, and every document is unjudged.
    ignore: columns of a frame to leave out.
    cache, cache_dir: whether to keep the arrays, and where: by default TWINRANK_CACHE_DIR or the
        user's cache folder.
    verify: don't trust size and time: compare the file's hash and the cache's checksums.
    progress: show a bar; by default on a terminal, for long files.
    """
    reading = Reading(
        features=features if features is None or isinstance(features, int) else several(features),
        missing=missing,
        zero_based=zero_based,
        unjudged=unjudged,
        non_finite=non_finite,
        max_features=max_features,
        query=query,
        label=label,
        docid=docid,
        ignore=several(ignore),
    )
    source = Path(path).expanduser()
    with explained("read", source):
        folder = source.is_dir()
    if folder:
        table = _stored(source, reading, verify)
    else:
        base = cache_folder(cache_dir) if cache else None
        table = _from_file(source, reading, base, verify, progress)
    for note in table.notes:
        warnings.warn(f"{source}: {note}", DataWarning, stacklevel=2)
    return Dataset(table, name=str(source))


def _stored(folder: Path, reading: Reading, verify: bool) -> Table:
    if not is_store(folder):
        raise InputError(
            f"{folder} is a folder without {'manifest.json'!r}; for folds such as Fold1/train.txt "
            f"use load_folds, or name a file in it"
        )
    manifest = read_manifest(folder)
    try:
        table = Table.of(read_arrays(folder, manifest, verify), manifest)
    except InputError as error:
        raise InputError(f"{folder} is damaged: {error}") from error
    unjudged = reading.unjudged != "keep" and bool((table.y < 0).any())
    if not unjudged and (reading.non_finite == "keep" or manifest.get("finite") is True):
        return table
    return checked_again(table, reading)  # in memory: something in it may have to change


def _from_file(
    path: Path, reading: Reading, base: Path | None, verify: bool, progress: bool | None
) -> Table:
    with explained("read", path):
        check_regular(path)
        size = path.stat().st_size
    framed = plain_suffix(path) in FRAMES
    parser = frames.PARSER if framed else letor.PARSER
    with reading_bar(path.name, size, progress) as advance:

        def read(new_sink: Callable[[], Any]) -> tuple[Any, Arrays, dict[str, Any], str]:
            if framed:
                return _read_frame(path, reading, new_sink)
            return letor.read_table(path, reading, new_sink, advance)

        if base is not None:
            return cached(path, reading, parser, base, verify, read)
        _, arrays, facts, _ = read(MemorySink)
        return Table.of(arrays, facts)


def _read_frame(
    path: Path, reading: Reading, new_sink: Callable[[], Sink]
) -> tuple[Sink, Arrays, dict[str, Any], str]:
    table = frames.read_file(path, reading)
    sink = new_sink()
    try:
        pour(Dataset(table), sink)
        if table.rows is not None:
            sink.append("rows", table.rows)
        names = None if table.feature_names is None else list(table.feature_names)
        facts = {"feature_names": names, "notes": list(table.notes)}
        return sink, sink.finish(), facts, content_hash(path)
    finally:
        sink.close()
