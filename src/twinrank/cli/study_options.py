"""Messages that `compare`, `reproduce` and `tune` share."""

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from twinrank.cli.output_options import show
from twinrank.experiments.study.scheduler import interrupted_once


def command_line() -> str:
    """The command as it was typed, for reports."""
    return shlex.join(["twinrank", *sys.argv[1:]])


def show_failures(failures: Sequence[str]) -> None:
    """Print a line for each training that failed, also with --quiet."""
    for failure in failures:
        show(f"Failed: {failure}", err=True)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Exit with code 130 and a hint if Ctrl-C or SIGTERM interrupts the training."""
    try:
        with interrupted_once(signal.SIGTERM):
            yield
    except KeyboardInterrupt:
        show(
            f"Stopped. Finished trainings are kept in {out}; the same command continues.", err=True
        )
        raise typer.Exit(130) from None
