"""Options and messages that `compare`, `reproduce` and `tune` share."""

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from twinrank.cli.output_options import show
from twinrank.experiments.study.scheduler import interrupted_once

Folds = Annotated[str | None, typer.Option(help="Folds to use: 1,2 or 1-3 (default: all).")]
Jobs = Annotated[
    int | None, typer.Option(help="Number of parallel trainings (default: one per core).", min=1)
]
Ray = Annotated[
    str | None,
    typer.Option(help="Address of a Ray cluster to train on: auto, local, host:port, ray://…"),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Seed of all random numbers (default: 0).", min=0, max=2**63 - 1, show_default=False
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Use the folder even if it contains other results.")
]


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
