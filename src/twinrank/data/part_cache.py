"""The cache of data in parts, and a journal with which a killed reader continues."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.cache import HINT, valid_entry
from twinrank.data.part_queries import PartRuns
from twinrank.data.part_reader import PARSER, Journal
from twinrank.data.parts import Part
from twinrank.data.store import (
    Arrays,
    FolderSink,
    read_arrays,
    read_manifest,
    write_manifest,
)
from twinrank.data.streams import FileState, file_crc32
from twinrank.data.table import ReadOptions, Table
from twinrank.support.errors import InputError, explained
from twinrank.support.files import new_folder, publish, remove, shortened
from twinrank.support.locks import locked

_JOURNAL = "journal.jsonl"

Reader = Callable[[FolderSink, Journal | None], tuple[Arrays, dict[str, Any]]]


def cached_parts(
    parts: Sequence[Part], options: ReadOptions, base: Path, verify: bool, read: Reader
) -> Table:
    """Return the table of files from a valid cache entry, or read them and cache it.

    An entry belongs to the files in their order, and the reading options. It is valid while size,
    time and inode of every file stay the same. A killed reader leaves a folder `….unfinished`; the
    next one continues there, after the last part that was complete.
    """
    with explained("read", parts[0].path):
        files = [str(part.path.resolve(strict=True)) for part in parts]
    identity = {"files": files, "parser": PARSER, "reading": options.to_json()}
    identity = json.loads(json.dumps(identity))
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = base / f"{shortened(Path(files[0]).name)}-{len(files)}-{key}"
    states = [FileState.of(part.path).to_json() for part in parts]
    expected = {**identity, "states": states}
    content = (lambda: [file_crc32(part.path) for part in parts]) if verify else None
    if (table := valid_entry(folder, expected, content)) is not None:
        return table
    with _working_folder(folder) as (work, resumable):
        journal = PartJournal(work, expected) if resumable else None
        sink = journal.sink(folder) if journal else FolderSink(work, folder, HINT)
        try:
            _, facts = read(sink, journal)
        finally:
            sink.close()
        source = {**expected, "checksums": facts.pop("checksums")}
        if [FileState.of(part.path).to_json() for part in parts] != states:
            raise InputError(f"the files in {parts[0].path.parent} changed while they were read")
        write_manifest(work, {"source": source, "arrays": sink.describe(), **facts})
        if journal is not None:
            journal.discard()
        manifest = read_manifest(work)
        table = Table.of(read_arrays(work, manifest), manifest)
        publish(work, folder)  # the maps stay valid under the new name
    return table


@contextmanager
def _working_folder(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A folder to fill, and True if a later process can continue there.

    If another process is filling it, a temporary folder replaces it.
    """
    place = folder.with_name(f"{folder.name}.unfinished")
    work = place / "arrays"
    with explained("write", folder, HINT):
        folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(place, "reading"))
            except InputError:
                yield stack.enter_context(new_folder(folder, HINT)), False
                return
            with explained("write", folder, HINT, exactly=True):
                try:
                    work.mkdir(exist_ok=True)
                    yield work, True
                except InputError:  # the data is wrong: to continue would not help
                    remove(work)
                    raise
    finally:
        with suppress(OSError):  # not empty: there is something to continue
            place.rmdir()


class PartJournal:
    """A file with a line for every finished part, beside the arrays that it describes."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self._folder, self._identity = folder, identity
        self._lines: list[dict[str, Any]] = []
        self._sink: FolderSink | None = None

    def sink(self, shown_as: Path) -> FolderSink:
        """Arrays that continue after the last finished part, or that begin with nothing."""
        sink = FolderSink(self._folder, shown_as, HINT)
        if not self._restored(sink):
            sink.close()
            for path in self._folder.iterdir():
                path.unlink()
            self._lines, sink = [], FolderSink(self._folder, shown_as, HINT)
            self._write(self._identity, "w")
        self._sink = sink
        return sink

    def _restored(self, sink: FolderSink) -> bool:
        lines = self._read()
        if len(lines) < 2 or lines[0] != self._identity:
            return False
        self._lines = lines[1:]
        try:
            return sink.restore(self._lines[-1]["columns"])
        except (OSError, LookupError, TypeError, ValueError):
            return False

    def finished(self) -> tuple[list[PartRuns], dict[str, Any]]:
        """The finished parts and the counts up to them."""
        numbers = range(len(self._lines))
        runs = [PartRuns(*(np.load(path) for path in self._files(i))) for i in numbers]
        texts: dict[str, list[str]] = {}
        for line in self._lines:
            for column, added in line["counts"]["texts"].items():
                texts.setdefault(column, []).extend(added)
        return runs, {**self._lines[-1]["counts"], "texts": texts} if self._lines else {}

    def add(self, runs: PartRuns, counts: dict[str, Any]) -> None:
        """Record that a part is complete in the sink."""
        assert self._sink is not None
        for path, values in zip(
            self._files(len(self._lines)), (runs.starts, runs.ids), strict=True
        ):
            np.save(path, values, allow_pickle=False)
        line = {"columns": self._sink.state(), "counts": dict(counts)}
        self._lines.append(line)
        self._write(line, "a")

    def discard(self) -> None:
        """Remove the record of a complete entry."""
        for path in self._folder.iterdir():
            if path.name == _JOURNAL or path.name.startswith("run-"):
                path.unlink()

    def _files(self, number: int) -> tuple[Path, Path]:
        return tuple(  # type: ignore[return-value]
            self._folder / f"run-{name}-{number}.npy" for name in ("starts", "ids")
        )

    def _write(self, line: dict[str, Any], mode: str) -> None:
        with (self._folder / _JOURNAL).open(mode, encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _read(self) -> list[dict[str, Any]]:
        """The lines of the record; the last may be incomplete."""
        lines = []
        with suppress(OSError, ValueError):
            for line in (self._folder / _JOURNAL).read_text("utf-8").splitlines():
                lines.append(json.loads(line))
        return lines
