"""The options for output that all commands share, and the functions that print."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.support.errors import InputError, unknown
from twinrank.support.files import json_text
from twinrank.support.terminal import printable

if TYPE_CHECKING:
    from twinrank.support.tables import Table

FORMATS = ("text", "json")
STANDARD_OUTPUT = Path("-")
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")]


@dataclass
class _Output:
    """What the running command prints."""

    json: bool = False
    quiet: bool = False


_output = _Output()

_OPTIONS: dict[str, tuple[Any, Any]] = {  # type and declaration; False or "text" by default
    "as_json": (
        bool,
        typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout."),
    ),
    "quiet": (bool, typer.Option("--quiet", help="Print results and errors only.")),
    "output": (
        str,
        typer.Option(
            "-o", "--output", help="Output format: text or json (the same as --json).", metavar="F"
        ),
    ),
}
_DEFAULTS: dict[str, Any] = {"as_json": False, "quiet": False, "output": "text"}


def takes_output(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json and --quiet to a command, and -o json if it has no -o of its own."""
    signature = inspect.signature(command)
    own = signature.parameters
    added = [name for name in _OPTIONS if name != "output" or name not in own]

    @wraps(command)
    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in added}
        chosen = values.get("output", "text")
        if chosen not in FORMATS:
            raise InputError(unknown("output", chosen, FORMATS))
        _output.json = values["as_json"] or chosen == "json"
        _output.quiet = values["quiet"]
        try:
            command(**arguments)
        finally:
            _output.json = _output.quiet = False

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.values()]
    parameters += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS[name],
            annotation=Annotated[_OPTIONS[name]],
        )
        for name in added
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


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


def show_table(table: "Table", end: str = "") -> None:
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
