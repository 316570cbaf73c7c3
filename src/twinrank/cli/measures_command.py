"""twinrank measures: list the measures."""

from dataclasses import fields
from typing import Annotated

import typer

from twinrank.cli.data_options import show


def measures(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show only this measure, such as nDCG@10 or P(rel=2)@5 (default: all)."
        ),
    ] = None,
) -> None:
    """List the measures; each can be evaluated and optimised.

    A measure is written Name(option=value, …)@cutoff. Options and cutoff are
    optional.

    Example: twinrank measures nDCG@10
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from twinrank.measures import MEASURES, measure
    from twinrank.measures.measure_base import FunctionMeasure

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("measure", "options (defaults)", "definition"):
        table.add_column(column, overflow="fold")
    chosen = () if name is None or isinstance(measure(name), FunctionMeasure) else (name,)
    for kind in MEASURES if name is None else (type(measure(each)) for each in chosen):
        options = [f"{f.name}={f.default}" for f in fields(kind) if f.name != "cutoff"]
        names = ", ".join((kind.name, *kind.aliases))
        definition = (kind.__doc__ or "").split("\n\n")[0]
        table.add_row(Text(names, style="cyan"), ", ".join(options).lower(), Text(definition))
    Console().print(table)
    if name is not None:
        show(f"\n{measure(name)} is valid.")
