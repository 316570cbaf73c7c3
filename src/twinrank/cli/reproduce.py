"""twinrank reproduce: what the paper reports, beside the paper's numbers."""

from typing import Annotated

import typer

from twinrank.support.errors import InputError

_TABLES = (2, 3)


def reproduce(
    table: Annotated[
        list[int] | None,
        typer.Option("--table", help="Only this table of the paper (2 or 3; may be repeated)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random scores.", min=0, max=2**63 - 1)] = 0,
) -> None:
    """Reproduce the paper's rank-approximation tables; takes about ten seconds and needs no data.

    Tables 2 and 3 of "Optimize What You Evaluate With" (Yu 2020): the mean L1 distance between the
    ranks that a method derives from scores and the true ranks, over 100 lists of 123 and of 1,000
    uniform random scores. Published numbers stand beside the measured ones, with the standard error
    of the latter.
    """
    wanted = sorted(set(table or _TABLES))
    for number in wanted:
        if number not in _TABLES:
            raise InputError(f"table {number} is not available; choose from 2 and 3")
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from twinrank.study.rank_error import ALPHAS, SIZES, rank_errors

    console = Console()
    cells = []
    with Progress(console=console, transient=True) as progress:
        rows = {2: len(ALPHAS), 3: 2}
        task = progress.add_task("Ranking", total=len(SIZES) * sum(rows[t] for t in wanted))
        for cell in rank_errors(wanted, seed=seed):
            cells.append(cell)
            progress.update(
                task, advance=1, description=f"{cell.documents} documents: {cell.method}"
            )
    titles = {2: "Table 2: ranks by a sigmoid", 3: "Table 3: ranks by the twin-sigmoid"}
    for number in wanted:
        shown = Table(title=titles[number], title_justify="left", box=None, pad_edge=False)
        shown.add_column("method")
        for heading in ("documents", "measured L1", "± s.e.", "published"):
            shown.add_column(heading, justify="right")
        for cell in (cell for cell in cells if cell.table == number):
            numbers = (cell.measured, cell.standard_error, cell.published)
            shown.add_row(cell.method, f"{cell.documents:,}", *(f"{x:,.2f}" for x in numbers))
        console.print(shown)
        console.print()
