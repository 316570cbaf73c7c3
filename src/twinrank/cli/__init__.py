"""The command line: one module per command.

Internal: run `twinrank` or `python -m twinrank`.
"""

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, get_args

import typer
from typer.models import OptionInfo

from twinrank import __version__
from twinrank.cli import (
    compare_command,
    convert_command,
    evaluate_command,
    export_command,
    inspect_command,
    measures_command,
    predict_command,
    reproduce_command,
    simulate_clicks_command,
    train_command,
    tune_command,
)
from twinrank.cli.data_options import as_option
from twinrank.cli.output_options import show, show_error
from twinrank.support.errors import TwinRankError, needing_torch

EXIT_CODES = {
    0: "success",
    1: "some trainings of a study failed, or an unexpected error (with a traceback)",
    2: "an error of the user: options, files or data (one line on standard error)",
    130: "interrupted by Ctrl-C or SIGTERM; finished work is kept",
}

app = typer.Typer(
    name="twinrank",
    help="Learning to rank: optimise the measure that you evaluate with.",
    epilog="Exit codes: " + "; ".join(f"{code}: {text}" for code, text in EXIT_CODES.items()) + ".",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VALUES = {bool: " ", int: "N", float: "X", Path: "PATH"}


def _add(command: Callable[..., None]) -> None:
    """Add a command whose help names values in a word: N, X, PATH or TEXT; a flag has none."""
    for parameter in inspect.signature(command).parameters.values():
        kind, option = get_args(parameter.annotation)
        if isinstance(option, OptionInfo) and option.metavar is None:
            kinds = [each for each in get_args(kind) if each is not NoneType]
            option.metavar = _VALUES.get(kinds[0] if kinds else kind, "TEXT")
    app.command()(command)


_add(compare_command.compare)
_add(convert_command.convert)
_add(evaluate_command.evaluate)
_add(export_command.export)
_add(inspect_command.inspect)
_add(measures_command.measures)
_add(predict_command.predict)
_add(reproduce_command.reproduce)
_add(simulate_clicks_command.simulate_clicks)
_add(train_command.train)
_add(tune_command.tune)


def _print_version(requested: bool) -> None:
    if requested:
        show(f"twinrank {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; an error of the user prints one line and exits with code 2."""
    # OpenMP's threads spin while they wait for each other. On a busy machine this makes training
    # more than ten times slower, unless they stop early; on an idle one it makes no difference.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # torch reads it when it is imported
    sys.path.append(str(Path.cwd()))  # for a user's own net, package.module:name
    try:
        with needing_torch("This command"):
            app()
    except TwinRankError as error:
        show_error(error.render(as_option))
        sys.exit(2)
