"""Reader of LETOR text: threads parse pieces of a file, and the pieces are joined in order."""

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
from twinrank.data.streams import ByteStream, opened
from twinrank.data.table import NON_FINITE, UNJUDGED, ReadOptions
from twinrank.support.compiled import threads
from twinrank.support.errors import InputError

_PIECE = 1 << 22  # bytes of text that one thread parses at a time
_BLOCK = 1 << 23  # bytes of X that a thread fills at a time
_LONGEST_LINE = 1 << 28
_MOST_THREADS = 8  # with more threads, the disk is the limit
_PADDING = 16  # bytes after the text that the parser may read
_LONGEST_SHOWN = 60  # characters of an invalid token that a message shows
_BOM = b"\xef\xbb\xbf"
NAMES = b"# features = "


@dataclass
class Contents:
    """Contents of a file besides the arrays in the sink."""

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
    """Whole lines of a file: content[:size] ends with a line break, and padding follows."""

    content: bytearray
    size: int


@dataclass
class _Block:
    """Rows parsed from one position of a text, and the parser's report."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    ids: list[bytes]
    comments: npt.NDArray[np.uint8]
    comment_ends: npt.NDArray[np.int64]
    report: npt.NDArray[np.int64]


def read_letor(
    source: ByteStream, sink: Sink, width: int, options: ReadOptions, advance: Callable[[int], None]
) -> Contents:
    """Parse a whole file into a sink: X, y, comments and the end of each comment.

    Features from column `width` on are left out, but `highest` includes them.
    """
    contents = Contents([], [], 0, -1, False, 0, 0, 0)
    lines = comment_bytes = 0
    parse = partial(_parse, width=width, options=options)
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
                    _check(block, text, source.path, lines, options)
                    lines += int(block.report[rows.LINES])
                    comment_bytes = _append(block, sink, contents, comment_bytes)
                    if (resume := int(block.report[rows.RESUME])) >= text.size:
                        break
                    block = parse(text, resume)  # the text has more rows than a block
                advance(source.consumed)
        finally:
            for _, future in waiting:
                future.cancel()
    return contents


def peek(path: Path, options: ReadOptions) -> tuple[int, list[str] | None]:
    """Return the highest feature index in the beginning of a file, and the feature names or None.

    The first line `# features = ["name", …]` contains the names; other readers skip it.
    """
    with opened(path) as source:
        text = next(_texts(source), None)
    if text is None:
        return -1, None
    names = None
    if text.content.startswith(NAMES + b"["):  # otherwise it is an ordinary comment
        line = bytes(text.content[len(NAMES) : text.content.index(b"\n")])
        try:
            names = json.loads(line)
            valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
        except (ValueError, RecursionError):
            valid = False
        if not valid:
            raise InputError(
                f"{path}, line 1: expected a JSON list of names after {NAMES.decode()!r}"
            )
    block = _parse(text, 0, width=1, options=options)
    return int(block.report[rows.HIGHEST]), names


def _texts(source: ByteStream) -> Iterator[_Text]:
    """Split a file at line breaks into pieces; the last line may have no line break."""
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
                f"{source.path} has a line of more than {_LONGEST_LINE >> 20} MB; "
                f"check that it is a text file"
            )
        rest = bytes(memoryview(content)[cut:end])
        size = _PIECE if cut else 2 * size
        if cut:
            yield _Text(content, cut)


def _parse(text: _Text, begin: int, *, width: int, options: ReadOptions) -> _Block:
    """Parse a text from a position on, until it ends or the block is full."""
    # The shortest line is "0 qid:1"; a row may be wider than a block.
    most_rows = min(max(_BLOCK // (4 * width), 1), (text.size - begin) // 8 + 1)
    X = np.empty((most_rows, width), np.float32)
    y = np.empty(most_rows, np.float32)
    starts, ids = np.empty(most_rows, np.int64), np.empty((most_rows, 2), np.int64)
    comments = np.empty(text.size - begin, np.uint8)
    comment_ends = np.empty(most_rows, np.int64)
    doubts = np.empty((max(1024, 2 * width), 4), np.int64)
    report = np.zeros(rows.REPORT_SIZE, np.int64)
    rows.parse_rows(
        np.frombuffer(text.content, np.uint8),
        begin,
        text.size,
        0 if options.zero_based else 1,
        width if isinstance(options.features, int) else options.max_features,
        np.float32(np.nan if options.missing == "nan" else 0),
        UNJUDGED.index(options.unjudged),
        NON_FINITE.index(options.non_finite),
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


def _check(block: _Block, text: _Text, path: Path, lines: int, options: ReadOptions) -> None:
    """Raise an error if the parser reports a problem."""
    code, begin, end = block.report[: rows.END + 1].tolist()
    if code == rows.FINE:
        return
    limit = options.features if isinstance(options.features, int) else options.max_features
    line = int(block.report[rows.RESUME])
    number = lines + int(block.report[rows.LINES]) + 1
    raise _problem(path, number, line, bytes(text.content[: text.size]), code, begin, end, limit)


def _append(block: _Block, sink: Sink, contents: Contents, comment_bytes: int) -> int:
    """Append a block to the sink; return the number of bytes of all comments so far."""
    sink.append("X", block.X)
    sink.append("y", block.y)
    sink.append("comments", block.comments)
    sink.append("comment_ends", block.comment_ends + comment_bytes)
    for start, name in zip(block.starts.tolist(), block.ids, strict=True):
        if start or not contents.ids or contents.ids[-1] != name:
            contents.ids.append(name)
            contents.starts.append(contents.documents + start)
    contents.documents += block.y.size
    contents.commented |= block.comments.size > 0
    contents.highest = max(contents.highest, int(block.report[rows.HIGHEST]))
    contents.missing += int(block.report[rows.MISSING])
    contents.infinite += int(block.report[rows.INFINITE])
    contents.dropped += int(block.report[rows.DROPPED])
    return comment_bytes + block.comments.size


def _problem(
    path: Path, line: int, begin: int, text: bytes, code: int, place: int, end: int, limit: int
) -> InputError:
    """Return the error for `text[place:end]` in line number `line`, which starts at `begin`."""
    column = len(text[begin:place].decode("utf-8", errors="replace")) + 1
    token = text[place:end]
    where = f"{path}, line {line}, column {column}"
    return InputError(f"{where}: {_message(code, _shown(token), token, limit)}")


def _shown(token: bytes) -> str:
    text = token[: 4 * _LONGEST_SHOWN + 4].decode("utf-8", errors="backslashreplace")
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "…"
    return repr(text) if not text.isprintable() else f"'{text}'"


def _message(code: int, shown: str, token: bytes, limit: int) -> str:
    if code == rows.LABEL:
        if token.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "this is UTF-16 text; save the file as UTF-8"
        hint = "; check that the file is UTF-8 text" if b"\0" in token else ""
        return f"expected a label (a number), found {shown}{hint}"
    if code == rows.LABEL_RANGE:
        return f"a label must be a finite number ≥ 0 (or −1 for unjudged), not {shown}"
    if code == rows.UNJUDGED:
        return (
            "label −1 means unjudged; pass unjudged='keep' (measures count such documents as 0) "
            "or unjudged='drop'"
        )
    if code == rows.QID:
        return f"expected qid:ID after the label, found {shown if token else 'nothing'}"
    if code == rows.ID_TEXT:
        return f"a query id must be UTF-8 without control characters, found {shown}"
    if code == rows.ID_LENGTH:
        return f"a query id must have at most {rows.LONGEST_ID:,} bytes, found {shown}"
    if code == rows.INDEX:
        return f"expected a feature as index:value, found {shown}"
    if code == rows.ZERO:
        return (
            f"feature indices start at 1, found {shown}; if they start at 0, pass zero_based=True"
        )
    if code == rows.ORDER:
        return f"feature indices must increase within a line, but {shown} repeats or goes back"
    if code == rows.LIMIT:
        hint = "features= and max_features= set the limit"
        return f"the index exceeds the limit of {limit:,} features: {shown}; {hint}"
    if code == rows.VALUE:
        return f"the value of a feature must be a number, found {shown}"
    return (
        f"{shown} is not a finite float32; fix the value, or pass non_finite='keep' or "
        f"non_finite='clip' (infinities become ±3.4e38)"
    )
