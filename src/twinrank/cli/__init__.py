"""The command line: one module per command.

Internal: run `twinrank` or `python -m twinrank`.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank import __version__
from twinrank.cli.calibrate_command import calibrate
from twinrank.cli.command_signatures import Command, Panels, add_command
from twinrank.cli.compare_command import compare
from twinrank.cli.convert_command import convert
from twinrank.cli.data_options import as_option
from twinrank.cli.evaluate_command import PANELS as EVALUATE_PANELS
from twinrank.cli.evaluate_command import evaluate
from twinrank.cli.export_command import export
from twinrank.cli.inspect_command import inspect
from twinrank.cli.measures_command import measures
from twinrank.cli.output_options import show, show_error
from twinrank.cli.predict_command import predict
from twinrank.cli.reproduce_command import reproduce
from twinrank.cli.simulate_clicks_command import simulate_clicks
from twinrank.cli.threshold_command import threshold
from twinrank.cli.train_command import PANELS as TRAIN_PANELS
from twinrank.cli.train_command import train
from twinrank.cli.tune_command import tune
from twinrank.cli.verify_command import verify
from twinrank.support.errors import TwinRankError, needing_torch

EXIT_CODES = {
    0: "success",
    1: (
        "verify found scores that differ, some trainings of a study failed, or an unexpected "
        "error (with a traceback)"
    ),
    2: "an error of the user: options, files or data (one line on standard error)",
    3: "the new model of train --gate is significantly worse; --out is unchanged",
    130: "interrupted by Ctrl-C or SIGTERM; finished work is kept",
}

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer has its own copy of click

app = typer.Typer(
    name="twinrank",
    help="Learning to rank: optimise the measure that you evaluate with.",
    epilog="Exit codes: " + "; ".join(f"{code}: {text}" for code, text in EXIT_CODES.items()) + ".",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PANELS: dict[Command, Panels] = {evaluate: EVALUATE_PANELS, train: TRAIN_PANELS}
for _command in (
    *(calibrate, compare, convert, evaluate, export, inspect, measures),
    *(predict, reproduce, simulate_clicks, threshold, train, tune, verify),
):
    add_command(app, _command, _PANELS.get(_command, {}))


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
            sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0)
    except _UsageError as error:
        show_error(_usage(error))
        sys.exit(2)
    except TwinRankError as error:
        show_error(error.render(as_option))
        sys.exit(2)


def _usage(error: Any) -> str:
    """The message for an unknown command or option, or a value out of range."""
    command = "twinrank" if error.ctx is None else error.ctx.command_path
    text = error.format_message()
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} See {command} --help."
