"""The options for output that all commands share, the functions that print, and Ctrl-C."""

import inspect
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import Command, declared, with_options
from twinrank.experiments.study.scheduler import interrupted_once
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import json_text
from twinrank.support.terminal import printable

if TYPE_CHECKING:
    from twinrank.support.tables import ResultTable

OUTPUT_FORMATS = ("text", "json")
STANDARD_OUTPUT = Path("-")


@dataclass
class _Output:
    """What the running command prints."""

    json: bool = False
    quiet: bool = False


_output = _Output()


def _set_output(
    *,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    quiet: bool = False,
    output: Annotated[str, typer.Option("-o", "--output", metavar="F")] = "text",
) -> None:
    """Set what is printed.

    Parameters
    ----------
    as_json
        Print the result as JSON, and nothing else, on stdout.
    quiet
        Print results and errors only.
    output
        Output format: text or json (the same as --json).
    """
    if output not in OUTPUT_FORMATS:
        raise InputError(unknown("output", output, OUTPUT_FORMATS))
    _output.json, _output.quiet = as_json or output == "json", quiet


def takes_output(command: Command) -> Command:
    """Add --json and --quiet to a command, and -o json if it has no -o of its own."""
    own = inspect.signature(command).parameters

    def run(rest: Command, **values: Any) -> None:
        _set_output(**values)
        try:
            rest()
        finally:
            _output.json = _output.quiet = False

    options = [p for p in declared(_set_output, {}) if p.name != "output" or "output" not in own]
    return with_options(command, options, run)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error if a file or a folder would be replaced unasked."""
    if path != STANDARD_OUTPUT and not overwrite and path.exists():
        raise InputError(f"{path} exists; add --overwrite to replace it, or choose another name.")


def wants_json() -> bool:
    """True if the result is printed as JSON."""
    return _output.json


def is_quiet() -> bool:
    """True if only results and errors are printed."""
    return _output.quiet


def show(text: str, err: bool = False) -> None:
    """Print text, with control characters from data and file names escaped.

    With --json, standard output gets no text.
    """
    if err or not _output.json:
        typer.echo(printable(text), err=err)


def show_table(table: "ResultTable", end: str = "") -> None:
    """Print a table no wider than the terminal; 80 columns where there is none."""
    width = get_terminal_size().columns
    show(table.to_text(colour=sys.stdout.isatty(), width=width) + end)


def show_paragraph(text: str) -> None:
    """Print sentences in lines no longer than the terminal is wide."""
    show(fill(text, get_terminal_size().columns, break_on_hyphens=False, break_long_words=False))


def show_done(text: str) -> None:
    """Print what the command has done, such as the file it wrote, unless it is quiet."""
    if not _output.quiet:
        show(text)


def show_note(text: str) -> None:
    """Print on standard error what the user should know, unless the command is quiet."""
    if not _output.quiet:
        show(f"Note: {text}", err=True)


def show_drawn(plot: Path) -> None:
    """Print the file of a plot on standard error, unless the command is quiet."""
    if not _output.quiet:
        show(f"Drawn to {plot}", err=True)


def show_json(value: Any) -> None:
    """Print the result of a command if it is wanted as JSON."""
    if _output.json:
        print_json(value)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(printable(json_text(value)))


def show_csv(text: str) -> None:
    """Print CSV: unchanged to a file or a pipe, escaped to a terminal."""
    typer.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def show_error(error: object) -> None:
    """Print an error."""
    show(f"Error: {error}", err=True)


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
