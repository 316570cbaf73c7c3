"""twinrank inspect: summarise a dataset."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.cli.command_signatures import AtLeastOne
from twinrank.cli.data_options import as_option, load_data, takes_data
from twinrank.cli.output_options import show, show_drawn, show_json, takes_output, wants_json
from twinrank.support.errors import rendered
from twinrank.support.terminal import printable

if TYPE_CHECKING:
    from twinrank.data.summary import Summary


@takes_output
@takes_data(unjudged="keep", non_finite="keep")
def inspect(
    data: Path | None = None,
    *,
    plot: Path | None = None,
    clicks: Path | None = None,
    save_propensities: Path | None = None,
    positions: AtLeastOne = None,
    curve: str = "free",
    reading: dict[str, Any] | None = None,
) -> None:
    """Summarise a dataset: queries, documents, labels, features and problems.

    Unjudged documents and values that aren't finite are kept and counted,
    whereas training raises an error for them by default.

    With --clicks, it shows clicks by position and how likely each position is
    seen, or why the log cannot tell.

    Example: twinrank inspect MSLR-WEB10K/Fold1/train.txt --plot train.png

    Parameters
    ----------
    data
        LETOR text, CSV, Parquet, Feather, a folder or pattern of tables, or a folder written
        by convert (default: the built-in synthetic data).
    plot
        Also draw the summary, or the propensities of --clicks, to a .png, .svg or .pdf file
        (default: no plot).
    clicks
        Summarise this log of clicks instead: .csv, .tsv, .parquet, a folder of Parquet files, or
        one with ubi_queries.ndjson and ubi_events.ndjson; DATA has the features, if there are any.
    save_propensities
        Write the propensities of --clicks to a JSON file.
    positions
        The positions of --clicks to compare (default: all).
    curve
        The propensities of --clicks: free, or power for (1/k)^η.
    """
    from twinrank.support.plots import check_drawable

    if plot is not None:
        check_drawable(plot)
    if clicks is not None:
        from twinrank.cli.click_files import inspect_clicks

        inspect_clicks(clicks, data, reading or {}, save_propensities, plot, positions, curve)
        return
    loaded = load_data(data, reading or {})
    if wants_json():
        show_json(loaded.summary.to_json())
    else:
        notes = [rendered(note, as_option) for note in loaded._table.notes]
        _print(replace(loaded.summary, notes=notes))
    if plot is not None:
        from twinrank.cli.dataset_plots import draw_dataset

        draw_dataset(loaded, plot)
        show_drawn(plot)


def _print(summary: "Summary") -> None:
    """Print a summary: in colour and wrapped on a terminal, otherwise one line per fact."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        show(str(summary))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in summary.lines():
        table.add_row(name, Text(printable(value)))
    console.print(Text(printable(summary.name), style="bold"), soft_wrap=True)
    console.print(table)
