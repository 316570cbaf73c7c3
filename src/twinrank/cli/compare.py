"""twinrank compare: methods side by side."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.options import takes_data
from twinrank.cli.train import data_sets

if TYPE_CHECKING:
    from twinrank.study.methods import Method


@takes_data()
def compare(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A file, or a folder with folds (see --fold); "
            "without it, the built-in synthetic data.",
            readable=False,
        ),
    ] = None,
    fold: Annotated[int, typer.Option(help="Which fold of a folder with folds.", min=1)] = 1,
    methods: Annotated[
        str | None,
        typer.Option(help="Separated by ';': 'AP-type3; nDCG-type2 (R4.L)'."),
    ] = None,
    measures: Annotated[
        str | None, typer.Option(help="Separated by ';': 'nDCG@5; AP; nERR@10'.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs at most.", min=1)] = 30,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other parameter of Ranker, as key=value (may be repeated)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the table to a .md, .tex, .html, .txt or .json file.")
    ] = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Train methods on the same data and set them side by side, with significance.

    Each is trained on the training queries, its best epoch chosen on the validation queries, and
    measured on the test queries. The best of each column is bold; an asterisk marks what differs
    from it significantly.

    Example: twinrank compare MQ2008 --fold 1 --methods "AP-type3; nDCG-type3; nDCG-type1"
    """
    from twinrank.estimators.parameters import parameters_of
    from twinrank.estimators.ranker import Ranker
    from twinrank.measures import measure
    from twinrank.study.comparing import MEASURES, METHODS, compare_methods
    from twinrank.study.methods import method

    chosen = [method(name) for name in _several(methods, METHODS)]
    wanted = _several(measures, MEASURES)
    for name in wanted:
        measure(name)  # a misspelt one is known now, not after all the training
    parameters = {
        "transforms": "SignedLog1p + QueryZScore",
        **parameters_of(Ranker, None, settings),
    }
    parameters |= {"epochs": epochs, "random_state": seed}
    sets = data_sets(data, fold, reading or {})

    def begin(one: "Method") -> list[Any]:
        typer.echo(f"{one} …", err=True)
        from twinrank.training.reporting import Bar

        return [Bar()] if sys.stderr.isatty() else []

    found = compare_methods(chosen, sets, wanted, parameters, begin)
    typer.echo(found.table().to_text(colour=sys.stdout.isatty()))
    if out is not None:
        found.comparison.save(out)
        typer.echo(f"Wrote {out}", err=True)


def _several(text: str | None, default: tuple[str, ...]) -> list[str]:
    if text is None:
        return list(default)
    return [name.strip() for name in text.split(";") if name.strip()]
