"""The command line, one file a command."""

import os
import sys
from typing import Annotated

import typer

from twinrank import __version__
from twinrank.cli.compare_command import compare
from twinrank.cli.convert_command import convert
from twinrank.cli.evaluate_command import evaluate
from twinrank.cli.export_command import export
from twinrank.cli.inspect_command import inspect
from twinrank.cli.measures_command import measures
from twinrank.cli.options import show_error
from twinrank.cli.predict_command import predict
from twinrank.cli.reproduce_command import reproduce
from twinrank.cli.train_command import train
from twinrank.cli.tune_command import tune
from twinrank.support.errors import TwinRankError

app = typer.Typer(
    name="twinrank",
    help="Learning to rank on the metric you are judged by.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(compare)
app.command()(convert)
app.command()(evaluate)
app.command()(export)
app.command()(inspect)
app.command()(measures)
app.command()(predict)
app.command()(reproduce)
app.command()(train)
app.command()(tune)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"twinrank {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; a user's mistake is one line and exit code 2, not a traceback."""
    # OpenMP's threads spin while they wait for each other. On a busy machine that slows training
    # down ten times and more, unless they give up early; on a quiet one it makes no difference.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # read when torch is loaded
    try:
        app()
    except TwinRankError as error:
        show_error(error)
        sys.exit(2)
