"""Readers of tables: files with columns and streams, as pieces that threads convert to blocks."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from twinrank.data.block import Block
from twinrank.data.builder import checked
from twinrank.data.from_csv import SEPARATORS, open_csv, separator_hint
from twinrank.data.from_frames import frame_block
from twinrank.data.options import ReadOptions, Roles, choose_columns, odd_feature_notes, role_of
from twinrank.data.sources import Part, address_of
from twinrank.data.streams import check_unchanged, plain_suffix, settled_state
from twinrank.support.errors import Argument, InputError, explained

PIECE = 1 << 24  # bytes of X in a piece
_SHOWN = 3  # columns in a message

Piece = tuple[float, Callable[[], Block]]
"""The share of the part up to the end of the piece, and a function that reads its block."""
Frames = Iterator[tuple[int, float, Any]]
"""Rows of a piece, the share of the part up to its end, and its frame or a function for it."""

_forked_after_polars = False


@dataclass(frozen=True)
class OpenTable:
    """A file or a stream with columns, whose rows can be read once."""

    name: str
    columns: list[str]
    frames: Callable[[Roles], Frames]
    """Reads the columns with a role."""
    state: list[int] = field(default_factory=list)
    """That of a file before it was opened."""
    partition: dict[str, Any] = field(default_factory=dict)
    """Values of columns that the names of folders give."""


class TableReader:
    """Reads the parts of one table: all have the columns of the first."""

    def __init__(self, first: Any, options: ReadOptions) -> None:
        self._options, self._first = options, first
        self._pl = polars_for(shown_name(first))
        self._opened = self._open(first)
        self.roles = self._choose(self._opened)
        self.notes = [] if options.features else odd_feature_notes(self.roles.features)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        return self.roles.features

    def pieces(self, source: Any) -> Iterator[Piece]:
        """The pieces of a part in order; its columns are checked."""
        table = self._opened if source is self._first else self._open(source)
        self._check(table)
        row = 0
        with read_errors(self._pl, table.name):
            for rows, share, frame in table.frames(self.roles):
                yield share, partial(self._block, table, frame, row)
                row += rows
        if table.state:
            check_unchanged(source.path, table.state)

    def _block(self, table: OpenTable, frame: Any, first_row: int) -> Block:
        with read_errors(self._pl, table.name):
            frame = frame() if callable(frame) else frame
        if table.partition:
            added = (self._pl.lit(value).alias(name) for name, value in table.partition.items())
            frame = frame.with_columns(added)
        block = frame_block(frame, self.roles, self._options, table.name, first_row)
        return checked(block, self._options)

    def _open(self, source: Any) -> OpenTable:
        name = shown_name(source)
        with read_errors(self._pl, name):
            if isinstance(source, Part):
                return self._open_file(source)
            if (address := address_of(source)) is not None:
                return self._lazy(self._scan(address), name)
            if hasattr(source, "collect_schema"):
                return self._lazy(source, name)
            return OpenTable(name, list(source.schema.names), partial(self._batches, source))

    def _open_file(self, part: Part) -> OpenTable:
        path, suffix = part.path, plain_suffix(part.path)
        state = settled_state(path)
        if state[0] == 0:
            raise InputError(f"{path} is empty.")
        if suffix in SEPARATORS:
            header, frames = open_csv(self._pl, path, SEPARATORS[suffix], self._options)
            table = OpenTable(str(path), header, frames)
        else:
            scan = self._pl.scan_parquet if suffix == ".parquet" else self._pl.scan_ipc
            table = self._lazy(scan(path, hive_partitioning=False, glob=False), str(path))
        partition = {name: value for name, value in part.partition if name not in table.columns}
        return OpenTable(table.name, [*table.columns, *partition], table.frames, state, partition)

    def _scan(self, address: str) -> Any:
        """A lazy frame of an address; polars knows how to reach it.

        As in local files, ids are text, and folders called `column=value` are no features.
        """
        pl, suffix = self._pl, plain_suffix(Path(address))
        if suffix in SEPARATORS:
            scan = partial(pl.scan_csv, address, separator=SEPARATORS[suffix])
            roles = choose_columns(scan().collect_schema().names(), self._options, address)
            ids = {name: pl.String for name in (roles.query, roles.docid) if name}
            return scan(schema_overrides=ids)
        scan = pl.scan_ipc if suffix in (".feather", ".arrow", ".ipc") else pl.scan_parquet
        return scan(address, hive_partitioning=False)

    def _lazy(self, frame: Any, name: str) -> OpenTable:
        """A lazy frame; polars decodes about one group of rows of a file at a time."""
        columns = frame.collect_schema().names()
        known = set(columns)

        def frames(roles: Roles) -> Frames:
            if not hasattr(frame, "collect_batches"):
                raise InputError(f"{name} needs polars 1.34 or newer; pip install -U polars.")
            chosen = frame.select([column for column in roles.used if column in known])
            rows = _rows_of_piece(roles)
            for batch in chosen.collect_batches(chunk_size=rows, maintain_order=True):
                if len(batch):
                    yield len(batch), 0.0, batch

        return OpenTable(name, columns, frames)

    def _batches(self, source: Any, roles: Roles) -> Frames:
        """The rows of an Arrow dataset or of a reader of record batches."""
        most = _rows_of_piece(roles)
        batches = source
        if hasattr(source, "scanner"):
            batches = source.to_batches(columns=roles.used, batch_size=most)
        for batch in batches:
            for start in range(0, batch.num_rows, most):
                piece = batch.select(roles.used).slice(start, most)
                yield len(piece), 0.0, self._pl.from_arrow(piece)

    def _choose(self, table: OpenTable) -> Roles:
        """Choose the roles of the columns; those that folders name are features only by choice."""
        options, suffix = self._options, plain_suffix(Path(table.name))
        chosen = {options.query, options.label, options.docid, options.weight, *options.ignore}
        chosen |= set(options.features) if isinstance(options.features, tuple) else set()
        unused = {n for n in table.partition if n not in chosen and role_of(n) is None}
        columns = [name for name in table.columns if name not in unused]
        try:
            return choose_columns(columns, options, table.name)
        except InputError as error:
            if suffix in SEPARATORS and (hint := separator_hint(columns, SEPARATORS[suffix])):
                raise InputError(f"{table.name}: {hint}.") from error
            raise

    def _check(self, table: OpenTable) -> None:
        """All parts need the columns of the first, in any order."""
        first = self._opened
        own, known = set(table.columns), {*first.columns, *self._options.ignore}
        if missing := [name for name in self.roles.used if name not in own]:
            raise InputError(
                f"{table.name} has no column {_listed(missing)}, which {first.name} has; all parts "
                f"need the same columns."
            )
        extra = [name for name in table.columns if name not in known]
        if extra and not self._options.features:
            raise InputError(
                f"{table.name} has the column {_listed(extra)}, which {first.name} does not have; "
                f"leave it out: ",
                Argument("ignore", extra[:1]),
                ".",
            )


def shown_name(source: Any) -> str:
    """The name of a part or a stream in messages."""
    if isinstance(source, Part):
        return str(source.path)
    return address_of(source) or type(source).__name__


def _rows_of_piece(roles: Roles) -> int:
    return max(PIECE // (4 * len(roles.features)), 1)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")


@contextmanager
def read_errors(pl: Any, name: str) -> Iterator[None]:
    """Raise errors of polars and of the disk as errors that name the part."""
    try:
        with explained("read", name, exactly=True):
            yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().split("\n")[0][:200]
        suffix = plain_suffix(Path(name))[1:].capitalize()
        problem = f"is not valid {suffix}" if suffix else "cannot be read"
        raise InputError(f"{name} {problem}: {reason}.") from error


def polars_for(path: object) -> Any:
    """Return the module polars; without it, an error names the file or source."""
    if _forked_after_polars:
        raise InputError(
            f"{path} cannot be read in this process: it was forked from one that had loaded "
            f"polars, whose threads a fork does not copy, so that polars would wait forever. Start "
            f"processes with multiprocessing.get_context('spawn'), or load the data before."
        )
    try:
        import polars
    except ImportError as error:
        raise InputError(
            f"{path} needs polars; install it with pip install 'twinrank[frames]', or use LETOR "
            f"text."
        ) from error
    return polars


def _note_fork() -> None:
    global _forked_after_polars
    _forked_after_polars = "polars" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
