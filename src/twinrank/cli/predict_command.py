"""twinrank predict: score data with a saved model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.options import load_data, show_notes, takes_data
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from twinrank.data.dataset import Dataset
    from twinrank.estimators.base import BaseRanker


@takes_data(unjudged="keep")
def predict(
    model: Annotated[
        Path, typer.Argument(help="A run's folder, or one that save wrote.", readable=False)
    ],
    data: Annotated[Path, typer.Argument(help="What to score, in any form.", readable=False)],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="scores.txt (a score a line, in the file's order), .run or .trec (a TREC run), "
            ".csv or .parquet.",
        ),
    ] = Path("scores.txt"),
    tag: Annotated[str, typer.Option(help="The last column of a TREC run.")] = "twinrank",
    reading: dict[str, Any] | None = None,
) -> None:
    """Score documents with a trained model, one line a document.

    Example: twinrank predict runs/ap test.txt -o test.run
    """
    from twinrank.estimators.models import model_in
    from twinrank.estimators.writing import write_scores

    if output.suffix not in (".txt", ".run", ".trec", ".csv", ".parquet"):
        raise InputError(
            f"can't write {output}: choose a name with .txt, .run, .trec, .csv or .parquet"
        )
    ranker = model_in(model)
    loaded = load_data(data, reading or {})
    show_notes(loaded)
    write_scores(scores_of(ranker, loaded, data), loaded, output, tag)
    typer.echo(f"Wrote {output}: {loaded.documents:,} scores")


def scores_of(ranker: "BaseRanker", loaded: "Dataset", data: Path) -> "npt.NDArray[np.float32]":
    """A model's scores of the data that a command was given."""
    expected = ranker.n_features_in_
    if loaded.features < expected and loaded.feature_names is None:
        raise InputError(
            f"{data} has {loaded.features} features, the model {expected}; if the "
            f"last ones are absent throughout, say --features {expected}"
        )
    return ranker.predict(loaded)
