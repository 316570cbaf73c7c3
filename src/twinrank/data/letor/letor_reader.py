"""Reader of LETOR text: threads parse pieces of the file, the pieces are joined in order."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twinrank.data.letor import letor_rows as rows
from twinrank.data.letor.tokens import POWERS
from twinrank.data.store import Sink
from twinrank.data.streams import Source, opened
from twinrank.data.table import NON_FINITE, UNJUDGED, ReadOptions
from twinrank.support.compiled import threads
from twinrank.support.errors import InputError

_PIECE = 1 << 22  # bytes of text that one thread parses at a time
_BLOCK = 1 << 23  # bytes of X that it may fill
_LONGEST_LINE = 1 << 28
_MOST_THREADS = 8  # beyond that, reading and writing are the limit
_PADDING = 16  # bytes after the text that the parser may look at
_LONGEST_SHOWN = 60  # characters of the offending text that are shown
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
    source: Source, sink: Sink, width: int, reading: ReadOptions, advance: Callable[[int], None]
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


def glimpse(path: Path, reading: ReadOptions) -> tuple[int, list[str] | None]:
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


def _parse(text: _Text, begin: int, *, width: int, reading: ReadOptions) -> _Block:
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


def _refuse(block: _Block, text: _Text, path: Path, lines: int, reading: ReadOptions) -> None:
    what, begin, end = block.report[: rows.END + 1].tolist()
    if what == rows.FINE:
        return
    limit = reading.features if isinstance(reading.features, int) else reading.max_features
    line = int(block.report[rows.RESUME])
    number = lines + int(block.report[rows.LINES]) + 1
    raise _problem(path, number, line, bytes(text.content[: text.size]), what, begin, end, limit)


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


def _problem(
    path: Path, line: int, begin: int, text: bytes, what: int, place: int, end: int, limit: int
) -> InputError:
    """The error for `text[place:end]`, in the line that begins at `begin` and has this number."""
    column = len(text[begin:place].decode("utf-8", errors="replace")) + 1
    offending = _shown(text[place:end])
    where = f"{path}, line {line}, column {column}"
    return InputError(f"{where}: {_words(what, offending, text[place:end], limit)}")


def _shown(piece: bytes) -> str:
    text = piece[: 4 * _LONGEST_SHOWN + 4].decode("utf-8", errors="backslashreplace")
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "…"
    return repr(text) if not text.isprintable() else f"'{text}'"


def _words(what: int, shown: str, piece: bytes, limit: int) -> str:
    if what == rows.LABEL:
        if piece.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "this is UTF-16 text; save the file as UTF-8"
        doubt = "; is this a text in UTF-8?" if b"\0" in piece else ""
        return f"expected a label (a number), found {shown}{doubt}"
    if what == rows.LABEL_RANGE:
        return f"a label must be a finite number ≥ 0 (or −1, unjudged), not {shown}"
    if what == rows.UNJUDGED:
        return (
            "label −1 says unjudged; choose what becomes of such documents: "
            "unjudged='keep' (they count as 0 where measured) or unjudged='drop'"
        )
    if what == rows.QID:
        return f"expected qid:ID after the label, found {shown if piece else 'nothing'}"
    if what == rows.ID_TEXT:
        return f"a query id must be UTF-8 without control characters, found {shown}"
    if what == rows.ID_LENGTH:
        return f"a query id must have at most {rows.LONGEST_ID:,} bytes, found {shown}"
    if what == rows.INDEX:
        return f"expected a feature as index:value, found {shown}"
    if what == rows.ZERO:
        return f"feature indices begin with 1, found {shown}; zero_based=True if not"
    if what == rows.ORDER:
        return f"feature indices must increase within a line, but {shown} repeats or goes back"
    if what == rows.LIMIT:
        choose = "features= and max_features= set it"
        return f"index beyond the limit of {limit:,} features: {shown}; {choose}"
    if what == rows.VALUE:
        return f"the value of a feature must be a number, found {shown}"
    return (
        f"{shown} is not a finite float32; choose what becomes of such values: "
        f"non_finite='keep' or non_finite='clip' (infinities to ±3.4e38)"
    )
