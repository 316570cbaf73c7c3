"""twinrank simulate-clicks: a log of clicks on graded data."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.command_signatures import Overwrite
from twinrank.cli.data_options import load_data, show_notes, takes_data
from twinrank.cli.output_options import check_free, show_done, show_json, takes_output

_Share = Annotated[float, typer.Option(min=0, max=1)]
_Positive = Annotated[int, typer.Option(min=1)]


@takes_output
@takes_data(unjudged="keep")
def simulate_clicks(
    data: Path | None = None,
    *,
    out: Path = Path("clicks.csv"),
    logger: str = "random",
    model: str = "position",
    eta: Annotated[float, typer.Option(min=0)] = 1.0,
    noise: _Share = 0.1,
    impressions: _Positive = 10_000,
    cutoff: _Positive = 10,
    temperature: Annotated[float, typer.Option(min=0)] = 0.0,
    randomised: _Share = 0.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    overwrite: Overwrite = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Simulate clicks on graded data.

    By default a user sees position k with probability (1/k)^eta. A click on a document
    that is seen is more likely the higher its label.

    Example: twinrank simulate-clicks train.txt --logger 25 --temperature 0.3

    Parameters
    ----------
    data
        Graded data: LETOR text, CSV, Parquet, Feather, a folder or pattern of tables (default: the
        built-in synthetic data).
    out
        The log to write: .csv, .tsv or .parquet.
    logger
        What orders the documents: random, the name or number of a feature, or the folder of a
        model.
    model
        How users click: position, trust, cascade or dependent.
    eta
        The strength of position bias.
    noise
        Probability of a click on an irrelevant document.
    impressions
        The number of lists shown.
    cutoff
        The documents shown in a list.
    temperature
        Noise on the logger's scores, so that documents move.
    randomised
        The share of lists in random order.
    seed
        The random seed.
    """
    from twinrank.clicks.simulation import simulate_clicks as simulate

    check_free(out, overwrite)
    loaded = load_data(data, reading or {})
    show_notes(loaded)
    chosen: Any = logger
    if Path(logger).is_dir():
        from twinrank.learning.estimators.saved_ranker import load_model

        chosen = load_model(Path(logger))
    log = simulate(
        loaded,
        logger=chosen,
        model=model,
        eta=eta,
        noise=noise,
        impressions=impressions,
        cutoff=cutoff,
        temperature=temperature,
        randomised=randomised,
        random_state=seed,
    )
    log.save(out)
    show_done(f"Wrote {out}: {log.impressions:,} impressions, {log.clicks:,} clicks")
    show_json({"file": out, "impressions": log.impressions, "clicks": log.clicks})
