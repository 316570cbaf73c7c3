"""twinrank inspect: what a data set holds."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.options import load_data, takes_data


@takes_data(unjudged="keep", non_finite="keep")
def inspect(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="LETOR text, CSV, Parquet, Feather, or a folder written by convert; "
            "without it, the built-in synthetic data."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw it, to a .png, .svg or .pdf file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Tell what a data set holds: queries, documents, labels, features, and what is odd about it.

    Unjudged documents and values that aren't finite are kept and counted, where training would
    refuse them until told what to do.

    Example: twinrank inspect MSLR-WEB10K/Fold1/train.txt --plot train.png
    """
    loaded = load_data(data, reading or {})
    if as_json:
        typer.echo(json.dumps(loaded.summary.to_json(), indent=1, ensure_ascii=False))
    else:
        _print(loaded.summary.name, loaded.summary.lines())
    if plot is not None:
        from twinrank.data.pictures import draw_dataset

        draw_dataset(loaded, plot)
        typer.echo(f"Drawn to {plot}", err=True)


def _print(name: str, lines: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(name, style="bold"),
        title_justify="left",
        box=None,
        show_header=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for what, much in lines:
        table.add_row(what, Text(much))
    Console().print(table)
