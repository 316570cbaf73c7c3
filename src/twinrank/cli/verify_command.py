"""twinrank verify: compare logged scores of production with a model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.data_options import load_unlabelled, show_notes, takes_data
from twinrank.cli.output_options import show_json, show_paragraph, show_table, takes_output


@takes_output
@takes_data(unjudged="keep", non_finite="keep")
def verify(
    model: Path,
    log: Path,
    *,
    score: Annotated[str, typer.Option(metavar="NAME")] = "score",
    other: Annotated[list[Path] | None, typer.Option(metavar="MODEL")] = None,
    measure: Annotated[str, typer.Option("-m", "--measure", metavar="NAME")] = "nDCG@10",
    tolerance: float = 1e-5,
    architecture: str | None = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Check that logged scores of production are those of a model.

    The exit code is 0 if all scores are equal, and 1 if any differs. The command
    then searches for the cause: rounding, a constant or a factor, missing values
    and 0, a feature that is absent, renamed or swapped, values at thresholds,
    another model. It shows what changes in the order, and in a measure if the log
    has labels.

    Examples:
    twinrank verify runs/trees log.parquet

    twinrank verify runs/trees log.csv --score ltr_score --other runs/may

    Parameters
    ----------
    model
        Folder of the model that production should use.
    log
        Logged documents: query, document id, features and score; with labels if known. LETOR
        text, CSV, Parquet or Feather.
    score
        Column of the logged scores; in LETOR text the number of the feature.
    other
        Another model, such as an older one, whose scores production may show; may be repeated.
    measure
        Measure that compares both orders, if LOG has labels.
    tolerance
        Largest difference of equal scores, relative to the largest score.
    architecture
        Your own net as package.module:name, if the model was trained with it.
    """
    from twinrank.data.options import odd_feature_notes
    from twinrank.deployment.verification import verify as verify_log
    from twinrank.learning.estimators.saved_ranker import load_model

    ranker = load_model(model, architecture)
    others = {str(path): load_model(path) for path in other or ()}
    text = {name for own in (ranker, *others.values()) for name in own._known_columns().text}
    loaded = load_unlabelled(log, reading or {}, sorted(text))
    show_notes(loaded, odd_feature_notes(loaded.feature_names or ()))  # the model has the features
    found = verify_log(ranker, loaded, score, others=others, measure=measure, tolerance=tolerance)
    if found.first:
        show_table(found.table(), end="\n")
    for sentence in found.sentences():
        show_paragraph(sentence)
    show_json(found.to_json())
    if not found.is_equal:
        raise typer.Exit(1)
