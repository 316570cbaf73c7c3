"""Readers: the parts of a table, in any format, as pieces that threads convert to blocks."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from twinrank.data.block import Block
from twinrank.data.from_csv import SEPARATORS, csv_roles, open_csv
from twinrank.data.from_frames import Buffers, frame_block
from twinrank.data.options import ReadOptions, Roles, choose_columns, odd_feature_notes, role_of
from twinrank.data.sources import Part, Stream, lazy_stream
from twinrank.data.streams import FileState, plain_suffix
from twinrank.support.errors import Argument, InputError, Parts, explained

PIECE = 1 << 24  # bytes of X in a piece
_SHOWN = 3  # columns in a message

Piece = tuple[float, Callable[[], Block]]
"""The share of the part up to the end of the piece, and a function that reads its block."""

_forked_after_polars = False


class Reader(Protocol):
    """A part that is open: its name, its pieces, and at the end the names of its features."""

    name: str
    state: FileState | None

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order."""

    def features(self) -> Sequence[str] | None:
        """The names of the features, after all pieces were read."""


class Tables:
    """Opens the parts of one table: all have the columns of the first."""

    def __init__(self, options: ReadOptions, buffers: Buffers, where: str) -> None:
        self.options, self.buffers, self.pl = options, buffers, polars_for(where)
        self.first: TablePart | None = None
        self.notes: list[Parts] = []

    @property
    def features(self) -> Sequence[str]:
        """The names of the features."""
        assert self.first is not None
        return self.first.roles.features

    def open(self, source: Part | Stream) -> "TablePart":
        """Open a part, and check its columns."""
        part = TablePart(self, source)
        if self.first is None:
            self.first, part.roles = part, part.choose()
            if not self.options.features:
                self.notes += odd_feature_notes(part.roles.features)
        else:
            part.roles = self.first.roles
            part.check(self.first)
        return part


class TablePart:
    """A file or a stream with columns."""

    roles: Roles

    def __init__(self, tables: Tables, source: Part | Stream) -> None:
        self._options, self._pl, self._buffers = tables.options, tables.pl, tables.buffers
        self.name, self.state = source.name, None
        self._partition: dict[str, Any] = {}
        if isinstance(source, Stream):
            self.columns, self._frames = source.columns, partial(self._batches, source)
            return
        path, suffix = source.path, plain_suffix(source.path)
        self.state = FileState.settled(path)
        with read_errors(self._pl, self.name):
            if self.state.size == 0:
                raise InputError(f"{path} is empty.")
            if suffix in SEPARATORS:
                opened = open_csv(self._pl, path, SEPARATORS[suffix], self._options)
                self.columns, self._frames = opened[0], partial(self._texts, opened[1])
            else:
                scan = self._pl.scan_parquet if suffix == ".parquet" else self._pl.scan_ipc
                stream = lazy_stream(scan(path, hive_partitioning=False, glob=False), self.name)
                self.columns, self._frames = stream.columns, partial(self._batches, stream)
        self._partition = {k: v for k, v in source.partition if k not in self.columns}
        self.columns = [*self.columns, *self._partition]

    def choose(self) -> Roles:
        """Choose the roles of the columns; those that folders name are features only by choice."""
        options, suffix = self._options, plain_suffix(Path(self.name))
        chosen = {options.query, options.label, options.docid, options.weight, *options.ignore}
        chosen |= set(options.features) if isinstance(options.features, tuple) else set()
        unused = {n for n in self._partition if n not in chosen and role_of(n) is None}
        columns = [name for name in self.columns if name not in unused]
        if suffix in SEPARATORS:
            return csv_roles(columns, options, self.name, SEPARATORS[suffix])
        return choose_columns(columns, options, self.name)

    def check(self, first: "TablePart") -> None:
        """All parts need the columns of the first, in any order."""
        own, known = set(self.columns), {*first.columns, *self._options.ignore}
        if missing := [name for name in self.roles.used if name not in own]:
            raise InputError(
                f"{self.name} has no column {_listed(missing)}, which {first.name} has; all parts "
                f"need the same columns."
            )
        extra = [name for name in self.columns if name not in known]
        if extra and not self._options.features:
            raise InputError(
                f"{self.name} has the column {_listed(extra)}, which {first.name} does not have; "
                f"leave it out: ",
                Argument("ignore", extra[:1]),
                ".",
            )

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order."""
        row = 0
        for rows, share, read in self._frames():
            yield share, partial(self._block, read, row)
            row += rows

    def features(self) -> Sequence[str]:
        """The names of the features."""
        return self.roles.features

    def _block(self, read: Callable[[], Any], first_row: int) -> Block:
        with read_errors(self._pl, self.name):
            frame = read()
        if self._partition:
            added = (self._pl.lit(value).alias(name) for name, value in self._partition.items())
            frame = frame.with_columns(added)
        return frame_block(frame, self.roles, self._options, self.name, first_row, self._buffers)

    def _texts(self, pieces: Any) -> Iterator[tuple[int, float, Callable[[], Any]]]:
        assert self.state is not None
        for rows, consumed, read in pieces(self.roles):
            yield rows, consumed / self.state.size, read

    def _batches(self, stream: Stream) -> Iterator[tuple[int, float, Callable[[], Any]]]:
        """The batches of a stream, of which only the columns with a role are read."""
        own = set(stream.columns)
        columns = [name for name in self.roles.used if name in own]
        with read_errors(self._pl, self.name):
            for batch in stream.batches(columns, max(PIECE // (4 * len(self.roles.features)), 1)):
                if len(batch):
                    yield len(batch), 0.0, partial(self._as_frame, batch)

    def _as_frame(self, batch: Any) -> Any:
        return batch if isinstance(batch, self._pl.DataFrame) else self._pl.from_arrow(batch)


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
