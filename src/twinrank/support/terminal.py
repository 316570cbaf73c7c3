"""Progress bars on a terminal, and text as it can show it."""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STYLES = re.compile("(\033\\[[01]m)")  # our own: bold and its end


def printable(text: str) -> str:
    r"""Text with control characters, such as escape sequences, written as JSON writes them.

    Line ends, tabs and the sequences for bold text stay as they are.

    >>> print(printable("bm25\x1b]0;title\x07"))
    bm25\u001b]0;title\u0007
    """
    if text.isprintable():
        return text
    return "".join(
        part if _STYLES.fullmatch(part) else "".join(map(_escaped, part))
        for part in _STYLES.split(text)
    )


def _escaped(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    return json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f"


_INTERVAL = 0.5  # seconds between calls of `polling`
_SMALL = 50_000_000  # bytes; a smaller file is read before a bar is visible


@contextmanager
def reading_bar(name: str, size: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar for reading a file; call the function with the number of bytes read.

    `show=None` shows the bar if standard error is a terminal and the file is large.
    """
    if show is None:
        show = sys.stderr.isatty() and size > _SMALL
    if not show:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"Reading {name}", total=size)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def polling(update: Callable[[], None], close: Callable[[], None]) -> Iterator[None]:
    """Call `update` regularly on a thread and at the end of the context; then call `close`."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(_INTERVAL):
            update()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        try:
            update()
        finally:
            close()
