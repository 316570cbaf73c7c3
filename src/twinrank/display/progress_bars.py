"""Progress of long work, on a terminal only."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY = 0.5  # seconds between looks at work that runs elsewhere
_SHORT = 50_000_000  # bytes that are read before a bar could be seen


@contextmanager
def reading_bar(what: str, size: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of a file: the function that it gives is told how many were read.

    `show=None` shows it where standard error is a terminal and the file is long.
    """
    if show is None:
        show = sys.stderr.isatty() and size > _SHORT
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
        task = progress.add_task(f"Reading {what}", total=size)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def polling(look: Callable[[], None], close: Callable[[], None]) -> Iterator[None]:
    """Call `look` now and then while work runs elsewhere, and at its end; then `close`."""
    stop = threading.Event()

    def keep_looking() -> None:
        while not stop.wait(_EVERY):
            look()

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        look()
        close()
