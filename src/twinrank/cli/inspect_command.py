"""twinrank inspect: what a data set holds."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.options import as_options, load_data, takes_data
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.summary import Summary


@takes_data(unjudged="keep", non_finite="keep")
def inspect(
    data: Annotated[
        Path | None,
        typer.Argument(
            readable=False,  # the reader says it better
            help="LETOR text, CSV, Parquet, Feather, or a folder written by convert; "
            "without it, the built-in synthetic data.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(readable=False, help="Draw it, to a .png, .svg or .pdf file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Tell what a data set holds: queries, documents, labels, features, and what is odd about it.

    Unjudged documents and values that aren't finite are kept and counted, where training would
    refuse them until told what to do.

    Example: twinrank inspect MSLR-WEB10K/Fold1/train.txt --plot train.png
    """
    from twinrank.display.plots import FORMATS

    if plot is not None and plot.suffix.lower() not in FORMATS:
        raise InputError(f"can't draw to {plot}: choose a name with {', '.join(FORMATS)}")
    loaded = load_data(data, reading or {})
    if as_json:
        typer.echo(json.dumps(loaded.summary.to_json(), indent=1, ensure_ascii=False))
    else:
        _print(loaded.summary)
    if plot is not None:
        from twinrank.data.data_plots import draw_dataset

        draw_dataset(loaded, plot)
        typer.echo(f"Drawn to {plot}", err=True)


def _print(summary: "Summary") -> None:
    """Print a page: on a terminal in colour and wrapped, elsewhere one line a fact."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        typer.echo(as_options(str(summary)))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for what, much in summary.lines():
        table.add_row(what, Text(as_options(much)))
    console.print(Text(summary.name, style="bold"), soft_wrap=True)
    console.print(table)
