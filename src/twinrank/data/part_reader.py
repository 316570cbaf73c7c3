"""Reader of tables in parts: threads read and convert pieces, which are joined in order.

At most a few pieces are in memory. The arrays grow in the order of the rows; at the end, rows of a
query that are not adjacent are moved together.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from twinrank.data.array_source import rounded_note
from twinrank.data.column_roles import Roles, choose_columns, looks_like
from twinrank.data.delimited import SEPARATORS, delimited_pieces, delimited_roles
from twinrank.data.frames import polars_for, suspicious_names
from twinrank.data.part_blocks import Block, Buffers, block_of
from twinrank.data.part_queries import PartRuns, grouped_queries
from twinrank.data.parts import Part, Stream, lazy_stream
from twinrank.data.saving import facts_of
from twinrank.data.store import Arrays, Sink
from twinrank.data.streams import FileState, file_crc32, plain_suffix
from twinrank.data.table import ReadOptions, dropped_note, not_finite_notes
from twinrank.data.text_columns import JoinedTexts, many_texts_note
from twinrank.support.compiled import threads
from twinrank.support.errors import InputError, explained

PARSER = "parts 2"  # part of the cache key; change it to invalidate old caches
PIECE = 1 << 24  # bytes of X in a piece
_MOST_THREADS = 4
_SHOWN = 3  # columns in a message

# A piece: its first row, the share of the part up to its end, and a function that reads a frame.
Piece = tuple[int, float, Callable[[], Any]]


class Journal(Protocol):
    """A record of finished parts, so that a killed reader can continue."""

    def finished(self) -> tuple[list[PartRuns], dict[str, Any]]:
        """The finished parts and the counts up to them."""

    def add(self, runs: PartRuns, counts: dict[str, Any]) -> None:
        """Record that a part is complete in the sink."""


class OpenPart(NamedTuple):
    """A part whose columns are known."""

    name: str
    columns: list[str]
    partition: dict[str, Any]
    pieces: Callable[[Roles], Iterator[Piece]]
    state: FileState | None = None


def read_parts(
    source: Sequence[Part] | Stream,
    options: ReadOptions,
    sink: Sink,
    journal: Journal | None,
    advance: Callable[[int], None],
) -> tuple[Arrays, dict[str, Any]]:
    """Read all parts into a sink; return its arrays and their metadata."""
    names = [source.name] if isinstance(source, Stream) else [str(part.path) for part in source]
    sizes = [0] if isinstance(source, Stream) else [FileState.of(p.path).size for p in source]
    pl = polars_for(names[0])
    runs, counts = ([], {}) if journal is None else journal.finished()
    reading = _Reading(sink, options, runs, counts)
    workers = min(threads(), _MOST_THREADS)
    with ThreadPoolExecutor(workers, "twinrank-parts") as pool:
        waiting: deque[_Task] = deque()
        tasks = _tasks(pl, source, options, reading, pool)
        try:
            while True:
                while len(waiting) <= workers and (task := next(tasks, None)) is not None:
                    waiting.append(task)
                if not waiting:
                    break
                task = waiting.popleft()
                if isinstance(result := task.future.result(), Block):
                    reading.append(result, task.part.name)
                else:
                    _check_unchanged(task.part)
                    reading.complete(journal, result)
                advance(sum(sizes[: task.number]) + int(task.share * sizes[task.number]))
        finally:
            for task in waiting:
                task.future.cancel()
    return reading.finish(names)


class _Task(NamedTuple):
    """Work on a part: a block, or after the last block the checksum of its file."""

    number: int
    part: OpenPart
    share: float
    future: Future[Block] | Future[int]


class _Reading:
    """The state of reading: arrays in the sink, runs of query ids, and counts for notes."""

    def __init__(
        self, sink: Sink, options: ReadOptions, runs: list[PartRuns], counts: dict[str, Any]
    ) -> None:
        self.sink, self.options, self.runs = sink, options, runs
        self.roles: Roles | None = None
        self.notes: list[str] = []
        self._counts = {
            "documents": 0, "comment_bytes": 0, "missing": 0, "infinite": 0, "dropped": 0,
            "inexact": [], "numeric": [], "checksums": [], **counts,
        }  # fmt: skip
        self._texts = JoinedTexts(self._counts.pop("texts", {}))
        self.buffers = Buffers(PIECE)
        self._starts: list[Any] = []
        self._ids: list[Any] = []

    def append(self, block: Block, where: str) -> None:
        """Add a block of a part to the arrays."""
        assert self.roles is not None
        counts = self._counts
        numeric = {*counts["numeric"], *np.flatnonzero(block.numeric).tolist()}
        counts["numeric"] = sorted(numeric)
        self._texts.join(block.X, block.texts, numeric, self.roles.features, where)
        self.sink.append("X", block.X)
        self.buffers.give(block.X)
        self.sink.append("y", block.y)
        if self.roles.docid is not None:
            assert block.docids is not None
            self.sink.append("comments", block.docids.content)
            self.sink.append("comment_ends", block.docids.ends + counts["comment_bytes"])
            counts["comment_bytes"] += block.docids.content.size
        self._starts.append(block.starts + counts["documents"])
        self._ids.append(block.ids)
        counts["documents"] += len(block.y)
        for name in ("missing", "infinite", "dropped"):
            counts[name] += getattr(block, name)
        inexact = {*counts["inexact"], *np.flatnonzero(block.inexact).tolist()}
        counts["inexact"] = sorted(inexact)

    def complete(self, journal: Journal | None, checksum: int) -> None:
        """Close a part."""
        self._counts["checksums"].append(checksum)
        self.runs.append(PartRuns.of(self._starts, self._ids))
        self._starts, self._ids = [], []
        if journal is not None:
            journal.add(self.runs[-1], {**self._counts, "texts": self._texts.added()})

    def finish(self, names: list[str]) -> tuple[Arrays, dict[str, Any]]:
        """Group the rows by query; return the arrays and their metadata."""
        counts, roles, sink = self._counts, self.roles, self.sink
        if not counts["documents"]:
            dropped = (
                f" except {counts['dropped']:,} unjudged ones, which unjudged='drop' leaves out"
                if counts["dropped"]
                else ""
            )
            where = names[0] if len(names) == 1 else f"{names[0]} and the other parts"
            verb = "has" if len(names) == 1 else "have"
            raise InputError(f"{where} {verb} no rows{dropped}")
        assert roles is not None
        if roles.docid is not None and not counts["comment_bytes"]:
            sink.discard("comments")
            sink.discard("comment_ends")
        arrays, grouping = grouped_queries(
            sink, self.runs, counts["documents"], names, self.options.split_queries
        )
        features = list(roles.features)
        notes = [*self.notes, *(rounded_note(repr(features[i])) for i in counts["inexact"])]
        notes += not_finite_notes(counts["missing"], counts["infinite"]) + grouping
        if counts["dropped"]:
            notes.append(dropped_note(counts["dropped"]))
        numbered = features == [str(i + 1) for i in range(len(features))]
        texts = self._texts.categories()
        for column, own in texts.items():
            if len(own) > max(counts["documents"] / 2, 9):
                notes.append(many_texts_note(features[column], len(own), counts["documents"]))
        facts = {"feature_names": None if numbered else features, "notes": notes}
        facts |= facts_of(texts)
        return arrays, {**facts, "checksums": counts["checksums"]}


def _tasks(
    pl: Any,
    source: Sequence[Part] | Stream,
    options: ReadOptions,
    reading: _Reading,
    pool: ThreadPoolExecutor,
) -> Iterator[_Task]:
    """Submit the pieces of all parts that are not finished, and the checksums of their files."""
    count, done = 1 if isinstance(source, Stream) else len(source), len(reading.runs)
    first: OpenPart | None = None
    for number in range(count):
        if first is not None and number < done:
            continue
        if isinstance(source, Stream):
            part = OpenPart(source.name, source.columns, {}, partial(_batches, pl, source))
        else:
            part = _file(pl, source[number])
        if first is None:
            first, reading.roles = part, _roles(part, options, reading.notes)
        else:
            _check_columns(part, first, reading.roles, options)
        if number < done:
            continue
        roles = reading.roles
        assert roles is not None
        checksum = pool.submit(_checksum, part)
        for row, share, read in part.pieces(roles):
            task = partial(_block, pl, part, read, roles, options, row, reading.buffers)
            yield _Task(number, part, share, pool.submit(task))
        yield _Task(number, part, 1.0, checksum)


def _checksum(part: OpenPart) -> int:
    return 0 if part.state is None else file_crc32(Path(part.name))


def _block(
    pl: Any,
    part: OpenPart,
    read: Callable[[], Any],
    roles: Roles,
    options: ReadOptions,
    first_row: int,
    buffers: Buffers,
) -> Block:
    with polars_errors(pl, part.name):
        frame = read()
    if part.partition:
        frame = frame.with_columns(pl.lit(v).alias(k) for k, v in part.partition.items())
    return block_of(frame, roles, options, part.name, first_row, buffers)


def _roles(part: OpenPart, options: ReadOptions, notes: list[str]) -> Roles:
    """The roles of the columns; those that folders name are features only by choice."""
    chosen = {options.query, options.label, options.docid, *options.ignore}
    chosen |= set(options.features) if isinstance(options.features, tuple) else set()
    unused = [n for n in part.partition if n not in chosen and looks_like(n) is None]
    columns = [name for name in part.columns if name not in unused]
    suffix = plain_suffix(Path(part.name))
    if suffix in SEPARATORS:
        roles = delimited_roles(columns, options, part.name, SEPARATORS[suffix])
    else:
        roles = choose_columns(columns, options, part.name)
    if not options.features:
        notes += suspicious_names(roles.features)
    return roles


def _check_columns(
    part: OpenPart, first: OpenPart, roles: Roles | None, options: ReadOptions
) -> None:
    """All parts need the columns of the first, in any order."""
    assert roles is not None
    needed = [roles.query, roles.label, roles.docid, *roles.features]
    if missing := [name for name in needed if name is not None and name not in part.columns]:
        raise InputError(
            f"{part.name} has no column {_listed(missing)}, which {first.name} has; all parts need "
            f"the same columns"
        )
    known = {*first.columns, *options.ignore}
    extra = [name for name in part.columns if name not in known]
    if extra and not options.features:
        raise InputError(
            f"{part.name} has the column {_listed(extra)}, which {first.name} does not have; leave "
            f"it out: ignore=[{extra[0]!r}]"
        )


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")


def _check_unchanged(part: OpenPart) -> None:
    if part.state is not None and FileState.of(Path(part.name)) != part.state:
        raise InputError(f"{part.name} changed while it was read; load it again")


# Formats


@contextmanager
def polars_errors(pl: Any, name: str) -> Iterator[None]:
    """Raise errors of polars as InputError that names the part."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().split("\n")[0][:200]
        suffix = plain_suffix(Path(name))[1:].capitalize()
        problem = f"is not valid {suffix}" if suffix else "cannot be read"
        raise InputError(f"{name} {problem}: {reason}") from error


def _file(pl: Any, part: Part) -> OpenPart:
    """Open a file; its columns are those in it and those that its folders name."""
    path, suffix, state = part.path, plain_suffix(part.path), FileState.settled(part.path)
    with explained("read", path), polars_errors(pl, str(path)):
        if state.size == 0:
            raise InputError(f"{path} is empty")
        if suffix in SEPARATORS:
            columns, pieces = delimited_pieces(pl, path, SEPARATORS[suffix])
            own = partial(_delimited, pieces, state.size)
        else:
            scan = pl.scan_parquet if suffix == ".parquet" else pl.scan_ipc
            stream = lazy_stream(scan(path, hive_partitioning=False, glob=False), str(path))
            columns, own = stream.columns, partial(_batches, pl, stream)
    partition = {name: value for name, value in part.partition if name not in columns}
    return OpenPart(str(path), [*columns, *partition], partition, own, state)


def _delimited(pieces: Any, size: int, roles: Roles) -> Iterator[Piece]:
    row = 0
    for rows, consumed, read in pieces(roles):
        yield row, consumed / size, read
        row += rows


def _batches(pl: Any, stream: Stream, roles: Roles) -> Iterator[Piece]:
    """The batches of a stream, of which only the columns with a role are read."""
    columns = [name for name in _needed(roles) if name in stream.columns]
    row = 0
    with polars_errors(pl, stream.name):
        for batch in stream.batches(columns, _rows(roles)):
            if rows := len(batch):
                yield row, 0.0, partial(_as_frame, pl, batch)
                row += rows


def _as_frame(pl: Any, batch: Any) -> Any:
    return batch if isinstance(batch, pl.DataFrame) else pl.from_arrow(batch)


def _needed(roles: Roles) -> list[str]:
    names = (roles.query, roles.label, roles.docid, *roles.features)
    return [name for name in names if name is not None]


def _rows(roles: Roles) -> int:
    return max(PIECE // (4 * len(roles.features)), 1)
