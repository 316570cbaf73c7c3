"""twinrank threshold: where to cut a model's predictions, and which queries to leave unanswered."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.data_options import load_data, show_notes, takes_data
from twinrank.cli.output_options import (
    show_done,
    show_json,
    show_paragraph,
    show_table,
    takes_output,
)
from twinrank.cli.predict_command import scores_of
from twinrank.support.errors import InputError


@takes_output
@takes_data(unjudged="keep")
def threshold(
    model: Path,
    data: Path,
    *,
    precision: float | None = None,
    target: str | None = None,
    relevant: float | None = None,
    guarantee: bool = False,
    measure: Annotated[str | None, typer.Option("-m", "--measure", metavar="NAME")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    architecture: str | None = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Choose where to cut the predictions of a calibrated model.

    With --precision, it is the lowest threshold above which this share of the
    documents of all queries is relevant, with 95 % intervals from resampled
    queries. The command also shows what is lost if only the queries with a high
    enough prediction are answered (risk and coverage).

    Example: twinrank threshold runs/ap test.txt --precision 0.8

    Parameters
    ----------
    model
        Folder of a calibrated model: see twinrank calibrate.
    data
        Judged queries on which the model was neither trained nor calibrated.
    precision
        The wanted share of relevant documents, between 0 and 1.
    target
        What is cut: probability or grade (default: what the model was calibrated for).
    relevant
        Lowest label that counts as relevant (default: that of the calibration).
    guarantee
        Choose the threshold whose interval starts at the wanted precision.
    measure
        Measure of the risk, 1 − its mean (default: P@1 with --relevant, whether the first
        document is relevant).
    plot
        Draw the risk by coverage, to a .png, .svg or .pdf file (default: no plot).
    seed
        Seed of the samples.
    architecture
        Your own net as package.module:name, if the model was trained with it.
    """
    from twinrank.core.measures import measure as measure_of
    from twinrank.evaluation.thresholds import risk_coverage, threshold_for_precision
    from twinrank.learning.estimators.saved_ranker import load_model

    measure_of(measure or "P@1")  # raises errors before anything is read
    ranker = load_model(model, architecture)
    known = ranker.model_.calibration
    own = ranker._calibration(target or next(iter(known), "probability"), "target")
    if own is None:
        raise InputError("--target must be probability or grade: scores differ between queries.")
    loaded = load_data(data, reading or {}, ranker._known_columns().text)
    show_notes(loaded)
    values = own(scores_of(ranker, loaded, data), loaded.lists)
    grade = own.relevant if relevant is None else relevant
    result: dict[str, Any] = {"target": own.target, "relevant": grade}
    if precision is not None:
        options: dict[str, Any] = {"guarantee": guarantee, "random_state": seed}
        found = threshold_for_precision(
            values, loaded.y, loaded.lists, precision, relevant=grade, **options
        )
        show_paragraph(str(found))
        show_done("")
        result["threshold"] = found.to_json()
    chosen = measure or f"P(rel={grade:g})@1"
    curve = risk_coverage(values, loaded.y, loaded.lists, measure=chosen)
    show_table(curve.table())
    if plot is not None:
        curve.draw(plot)
        show_done(f"Drawn to {plot}")
    show_json({**result, "coverage": curve.to_json()})
