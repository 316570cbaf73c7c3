"""twinrank measures: list the measures."""

from dataclasses import fields
from typing import Any

from twinrank.cli.output_options import show, show_json, takes_output, wants_json


@takes_output
def measures(
    name: str | None = None,
) -> None:
    """List the measures; each can be evaluated and optimised.

    A measure is written Name(option=value, …)@cutoff. Options and cutoff are
    optional.

    Example: twinrank measures nDCG@10

    Parameters
    ----------
    name
        Show only this measure, such as nDCG@10 or P(rel=2)@5 (default: all).
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from twinrank.core.measures import MEASURES, measure
    from twinrank.core.measures.measure_base import FunctionMeasure

    kinds = MEASURES if name is None else (type(measure(name)),)
    kinds = tuple(kind for kind in kinds if kind is not FunctionMeasure)  # it has no options
    if wants_json():
        show_json([_described(kind) for kind in kinds])
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("measure", "options (defaults)", "definition"):
        table.add_column(column, overflow="fold")
    for kind in kinds:
        about = _described(kind)
        options = ", ".join(f"{key}={value}".lower() for key, value in about["options"].items())
        names = ", ".join((about["name"], *about["aliases"]))
        table.add_row(Text(names, style="cyan"), options, Text(about["definition"]))
    Console().print(table)
    if name is not None:
        show(f"\n{measure(name)} is valid.")


def _described(kind: Any) -> dict[str, Any]:
    """A measure's names, its options with their defaults, and its definition."""
    return {
        "name": kind.name,
        "aliases": list(kind.aliases),
        "options": {f.name: f.default for f in fields(kind) if f.name != "cutoff"},
        "definition": (kind.__doc__ or "").split("\n\n")[0],
    }
