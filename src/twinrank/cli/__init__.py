"""The command line: one module per command.

Internal: run `twinrank` or `python -m twinrank`.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

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
    train_command,
    tune_command,
)
from twinrank.cli.command_signatures import add_command
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

add_command(app, compare_command.compare)
add_command(app, convert_command.convert)
add_command(app, evaluate_command.evaluate, evaluate_command.PANELS)
add_command(app, export_command.export)
add_command(app, inspect_command.inspect)
add_command(app, measures_command.measures)
add_command(app, predict_command.predict)
add_command(app, reproduce_command.reproduce)
add_command(app, train_command.train, train_command.PANELS)
add_command(app, tune_command.tune)


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
