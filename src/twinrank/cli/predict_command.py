"""twinrank predict: score data with a saved model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.data_options import load_data, show, show_notes, takes_data
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from twinrank.data.dataset import Dataset
    from twinrank.estimators.base_ranker import BaseRanker


@takes_data(unjudged="keep")
def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="Folder of a model: from twinrank train, or from save() in Python.",
            readable=False,
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Documents to score: LETOR text, CSV, Parquet, Feather, or a folder written by "
            "convert.",
            readable=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="File to write: .txt (one score per line, in the order of DATA), .run or .trec "
            "(TREC run), .csv or .parquet.",
        ),
    ] = Path("scores.txt"),
    tag: Annotated[
        str, typer.Option(help="Name of the system, the last column of a TREC run.")
    ] = "twinrank",
    architecture: Annotated[
        str | None,
        typer.Option(help="Your own net as package.module:name, if the model was trained with it."),
    ] = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Score documents with a trained model.

    Example: twinrank predict runs/ap test.txt -o test.run
    """
    from twinrank.cli.score_files import write_scores
    from twinrank.estimators.model_loading import load_model

    if output.suffix not in (".txt", ".run", ".trec", ".csv", ".parquet"):
        raise InputError(
            f"can't write {output}: choose a name with .txt, .run, .trec, .csv or .parquet"
        )
    ranker = load_model(model, architecture)
    loaded = load_data(data, reading or {})
    show_notes(loaded)
    write_scores(scores_of(ranker, loaded, data), loaded, output, tag)
    show(f"Wrote {output}: {loaded.documents:,} scores")


def scores_of(ranker: "BaseRanker", loaded: "Dataset", data: Path) -> "npt.NDArray[np.float32]":
    """A model's scores of a command's data."""
    expected = ranker.n_features_in_
    if loaded.features != expected:
        hint = ""
        if loaded.features < expected and loaded.feature_names is None:
            hint = f" If the last features are absent throughout, add --features {expected}."
        raise InputError(
            f"{data} has {loaded.features} features, but the model has {expected}.{hint}"
        )
    return ranker.predict(loaded)
