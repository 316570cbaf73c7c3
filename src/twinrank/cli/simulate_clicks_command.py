"""twinrank simulate-clicks: a log of clicks on graded data."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.data_options import load_data, show_notes, takes_data
from twinrank.cli.output_options import Overwrite, check_free, show_done, show_json, takes_output


@takes_output
@takes_data(unjudged="keep")
def simulate_clicks(
    data: Annotated[
        Path | None,
        typer.Argument(
            readable=False,
            help="Graded data: LETOR text, CSV, Parquet, Feather, a folder or pattern of tables "
            "(default: the built-in synthetic data).",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The log to write: .csv, .tsv or .parquet.", readable=False)
    ] = Path("clicks.csv"),
    logger: Annotated[
        str,
        typer.Option(
            help="What orders the documents: random, the name or number of a feature, or the "
            "folder of a model."
        ),
    ] = "random",
    eta: Annotated[float, typer.Option(help="The strength of position bias.", min=0)] = 1.0,
    noise: Annotated[
        float, typer.Option(help="Probability of a click on an irrelevant document.", min=0, max=1)
    ] = 0.1,
    impressions: Annotated[int, typer.Option(help="The number of lists shown.", min=1)] = 10_000,
    cutoff: Annotated[int, typer.Option(help="The documents shown in a list.", min=1)] = 10,
    temperature: Annotated[
        float, typer.Option(help="Noise on the logger's scores, so that documents move.", min=0)
    ] = 0.0,
    randomised: Annotated[
        float, typer.Option(help="The share of lists in random order.", min=0, max=1)
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The random seed.", min=0)] = 0,
    overwrite: Overwrite = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Simulate clicks on graded data, with position bias.

    A user sees position k with probability (1/k)^eta, and clicks on a document
    that he sees more likely the higher its label.

    Example: twinrank simulate-clicks train.txt --logger 25 --temperature 0.3
    """
    from twinrank.clicks.simulation import simulate_clicks as simulate

    check_free(out, overwrite)
    loaded = load_data(data, reading or {})
    show_notes(loaded)
    chosen: Any = logger
    if Path(logger).is_dir():
        from twinrank.learning.estimators.model_loading import load_model

        chosen = load_model(Path(logger))
    log = simulate(
        loaded,
        logger=chosen,
        eta=eta,
        noise=noise,
        impressions=impressions,
        cutoff=cutoff,
        temperature=temperature,
        randomised=randomised,
        random_state=seed,
    )
    log.save(out)
    clicks = int(log.clicked.sum())
    show_done(f"Wrote {out}: {log.impressions:,} impressions, {clicks:,} clicks")
    show_json({"file": out, "impressions": log.impressions, "clicks": clicks})
