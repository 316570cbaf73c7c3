"""Reading LETOR / SVMlight text: pieces of the file are parsed by threads and joined in order."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twinrank.data.letor import rows
from twinrank.data.letor.numbers import POWERS
from twinrank.data.letor.problems import problem
from twinrank.data.options import NON_FINITE, UNJUDGED, Reading
from twinrank.data.sources import Source, opened
from twinrank.data.store import Sink
from twinrank.support.compiled import threads
from twinrank.support.errors import InputError

_PIECE = 1 << 22  # bytes of text that one thread parses at a time
_BLOCK = 1 << 23  # bytes of X that it may fill
_LONGEST_LINE = 1 << 28
_MOST_THREADS = 8  # beyond that, reading and writing are the limit
_PADDING = 16  # bytes after the text that the parser may look at
_BOM = b"\xef\xbb\xbf"
NAMES = b"# features = "


@dataclass
class Found:
    """What a text held besides the arrays that went to the sink."""

    ids: list[bytes]  # of each run of rows with one query id
    starts: list[int]  # the first row of each run
    documents: int
    highest: int  # feature index
    commented: bool
    missing: int
    infinite: int
    dropped: int


@dataclass
class _Text:
    """Whole lines of a file: content[:size], a line break at their end, padding after it."""

    content: bytearray
    size: int


@dataclass
class _Block:
    """The rows of a text from one place on, and what the parser says about them."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    ids: list[bytes]
    comments: npt.NDArray[np.uint8]
    comment_ends: npt.NDArray[np.int64]
    report: npt.NDArray[np.int64]


def read_letor(
    source: Source, sink: Sink, width: int, reading: Reading, advance: Callable[[int], None]
) -> Found:
    """Parse a whole file into a sink: X, y, comments and where each ends.

    Features from column `width` on are left out, but `highest` tells of them.
    """
    found = Found([], [], 0, -1, False, 0, 0, 0)
    lines = comment_bytes = 0
    parse = partial(_parse, width=width, reading=reading)
    workers = min(threads(), _MOST_THREADS)
    with ThreadPoolExecutor(workers, thread_name_prefix="twinrank-letor") as pool:
        waiting: deque[tuple[_Text, Future[_Block]]] = deque()
        texts = _texts(source)
        try:
            while True:
                while len(waiting) <= workers and (text := next(texts, None)) is not None:
                    waiting.append((text, pool.submit(parse, text, 0)))
                if not waiting:
                    break
                text, future = waiting.popleft()
                block = future.result()
                while True:
                    _refuse(block, text, source.path, lines, reading)
                    lines += int(block.report[rows.LINES])
                    comment_bytes = _take(block, sink, found, comment_bytes)
                    if (resume := int(block.report[rows.RESUME])) >= text.size:
                        break
                    block = parse(text, resume)  # more rows than one block holds
                advance(source.consumed)
        finally:
            for _, future in waiting:
                future.cancel()
    return found


def glimpse(path: Path, reading: Reading) -> tuple[int, list[str] | None]:
    """Look at a file's beginning: its highest feature index, and names of features if it has any.

    Names stand in a first line `# features = ["name", …]`, which other readers skip.
    """
    with opened(path) as source:
        text = next(_texts(source), None)
    if text is None:
        return -1, None
    names = None
    if text.content.startswith(NAMES + b"["):  # any other comment is one
        line = bytes(text.content[len(NAMES) : text.content.index(b"\n")])
        try:
            names = json.loads(line)
            good = isinstance(names, list) and all(isinstance(name, str) for name in names)
        except (ValueError, RecursionError):
            good = False
        if not good:
            raise InputError(
                f"{path}, line 1: expected a JSON list of names after {NAMES.decode()!r}"
            )
    block = _parse(text, 0, width=1, reading=reading)
    return int(block.report[rows.HIGHEST]), names


def _texts(source: Source) -> Iterator[_Text]:
    """Cut a file at line breaks into pieces; the last line may lack its own."""
    rest, size = b"", _PIECE
    first = True
    while True:
        content = bytearray(len(rest) + size + _PADDING)
        content[: len(rest)] = rest
        filled = source.fill(memoryview(content)[len(rest) : len(rest) + size])
        end = len(rest) + filled
        if first and end >= len(_BOM):
            first = False
            if content.startswith(_BOM):
                del content[: len(_BOM)]
                content += bytes(len(_BOM))
                end -= len(_BOM)
        if filled < size:
            if end:
                content[end] = ord("\n")
                yield _Text(content, end + 1)
            return
        cut = content.rfind(b"\n", 0, end) + 1
        if cut == 0 and end > _LONGEST_LINE:
            raise InputError(
                f"{source.path} has a line of more than {_LONGEST_LINE >> 20} MB; is it text?"
            )
        rest = bytes(memoryview(content)[cut:end])
        size = _PIECE if cut else 2 * size
        if cut:
            yield _Text(content, cut)


def _parse(text: _Text, begin: int, *, width: int, reading: Reading) -> _Block:
    """Parse a text from a place on, as far as the block has room."""
    # The shortest line is "0 qid:1"; a row may be wider than a block.
    room = min(max(_BLOCK // (4 * width), 1), (text.size - begin) // 8 + 1)
    X = np.empty((room, width), np.float32)
    y = np.empty(room, np.float32)
    starts, ids = np.empty(room, np.int64), np.empty((room, 2), np.int64)
    comments = np.empty(text.size - begin, np.uint8)
    comment_ends = np.empty(room, np.int64)
    doubts = np.empty((max(1024, 2 * width), 4), np.int64)
    report = np.zeros(rows.REPORT_SIZE, np.int64)
    rows.parse_rows(
        np.frombuffer(text.content, np.uint8),
        begin,
        text.size,
        0 if reading.zero_based else 1,
        width if isinstance(reading.features, int) else reading.max_features,
        np.float32(np.nan if reading.missing == "nan" else 0),
        UNJUDGED.index(reading.unjudged),
        NON_FINITE.index(reading.non_finite),
        POWERS,
        X,
        y,
        starts,
        ids,
        comments,
        comment_ends,
        doubts,
        report,
    )
    for row, column, start, end in doubts[: report[rows.DOUBTS]].tolist():
        value = np.float32(float(text.content[start:end]))
        if column < 0:
            y[row] = value
        else:
            X[row, column] = value
    count, queries = int(report[rows.ROWS]), int(report[rows.QUERIES])
    return _Block(
        X[:count],
        y[:count],
        starts[:queries],
        [bytes(text.content[a:b]) for a, b in ids[:queries].tolist()],
        comments[: report[rows.COMMENTED]],
        comment_ends[:count],
        report,
    )


def _refuse(block: _Block, text: _Text, path: Path, lines: int, reading: Reading) -> None:
    what, begin, end = block.report[: rows.END + 1].tolist()
    if what == rows.FINE:
        return
    limit = reading.features if isinstance(reading.features, int) else reading.max_features
    line = int(block.report[rows.RESUME])
    number = lines + int(block.report[rows.LINES]) + 1
    raise problem(path, number, line, bytes(text.content[: text.size]), what, begin, end, limit)


def _take(block: _Block, sink: Sink, found: Found, comment_bytes: int) -> int:
    """Hand a block's rows on; the number of bytes of comments so far."""
    sink.append("X", block.X)
    sink.append("y", block.y)
    sink.append("comments", block.comments)
    sink.append("comment_ends", block.comment_ends + comment_bytes)
    for start, name in zip(block.starts.tolist(), block.ids, strict=True):
        if start or not found.ids or found.ids[-1] != name:
            found.ids.append(name)
            found.starts.append(found.documents + start)
    found.documents += block.y.size
    found.commented |= block.comments.size > 0
    found.highest = max(found.highest, int(block.report[rows.HIGHEST]))
    found.missing += int(block.report[rows.MISSING])
    found.infinite += int(block.report[rows.INFINITE])
    found.dropped += int(block.report[rows.DROPPED])
    return comment_bytes + block.comments.size
