"""twinrank calibrate: learn what the scores of a saved model mean."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.data_options import load_data, show_notes, takes_data
from twinrank.cli.output_options import show_done, show_json, takes_output


@takes_output
@takes_data(unjudged="keep")
def calibrate(
    model: Path,
    data: Path,
    *,
    target: str = "probability",
    relevant: float = 1.0,
    query_features: bool = False,
    cross_fit: Annotated[int | None, typer.Option(min=2)] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    architecture: str | None = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Learn what scores mean: probabilities of relevance, or expected grades.

    The model's folder gets a strictly increasing map from scores to these values.
    twinrank predict --target returns them, twinrank threshold cuts at them, and
    twinrank evaluate reports the calibration error. The order of documents does not
    change.

    Example: twinrank calibrate runs/ap valid.txt --target probability --relevant 2

    Parameters
    ----------
    model
        Folder of a model: from twinrank train, or from save() in Python.
    data
        Judged queries on which the model was not trained, such as the validation data.
    target
        probability (default): the probability that the label is at least --relevant; or grade:
        the expected label. A model can learn both, one after the other.
    relevant
        Lowest label that counts as relevant.
    query_features
        Let the map depend on the number of documents of a query and on the level and spread of
        their scores.
    cross_fit
        For DATA on which the model was trained: train this number of models, each without one
        part of the queries, and learn from their scores of that part.
    seed
        Seed of the parts.
    architecture
        Your own net as package.module:name, if the model was trained with it.
    """
    from twinrank.evaluation.calibration_error import evaluate_calibration
    from twinrank.learning.estimators.saved_ranker import load_model
    from twinrank.learning.models.saved_model import model_folder

    ranker = load_model(model, architecture)
    loaded = load_data(data, reading or {}, ranker._known_columns().text)
    show_notes(loaded)
    options: dict[str, Any] = {"target": target, "relevant": relevant}
    options |= {"query_features": query_features, "cross_fit": cross_fit, "random_state": seed}
    ranker.calibrate(loaded, **options)
    ranker.save(model_folder(model))
    values = ranker.predict(loaded, output=target)
    of_data: dict[str, Any] = {"target": target, "relevant": relevant}
    quality = evaluate_calibration(values, loaded.y, loaded.lists, **of_data)
    knots = ranker.model_.calibration[target].scores.size
    show_done(
        f"Calibrated {model_folder(model)}: {target}, {knots:,} knots, from {values.min():.4g} to "
        f"{values.max():.4g}; ECE {quality.error:.4f} on the same queries."
    )
    show_json({"model": model_folder(model), "knots": knots, **quality.to_json()})
