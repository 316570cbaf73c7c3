"""twinrank predict: score data with a saved model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import Overwrite
from twinrank.cli.data_options import load_data, show_notes, takes_data
from twinrank.cli.output_options import (
    STANDARD_OUTPUT,
    check_free,
    show_done,
    show_json,
    takes_output,
    wants_json,
)
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from twinrank.data.dataset import Dataset
    from twinrank.learning.estimators.base_ranker import BaseRanker


@takes_output
@takes_data(unjudged="keep")
def predict(
    model: Path,
    data: Path,
    *,
    output: Annotated[Path, typer.Option("-o", "--output")] = Path("scores.txt"),
    kind: Annotated[str | None, typer.Option("--format")] = None,
    overwrite: Overwrite = False,
    tag: str = "twinrank",
    target: str = "score",
    architecture: str | None = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Score documents with a trained model.

    Examples:
    twinrank predict runs/ap test.txt -o test.run

    twinrank predict runs/ap - -o - --format run < test.txt

    Parameters
    ----------
    model
        Folder of a model: from twinrank train, or from save() in Python.
    data
        Documents to score: LETOR text, CSV, Parquet, Feather, a folder or pattern of tables, a
        folder written by convert, or - for standard input.
    output
        File to write: .txt (one score per line, in the order of DATA), .run or .trec (TREC
        run), .jsonl (a line per query), .csv or .parquet; or - for standard output. If DATA has
        no document ids, the id of a document is its number within its query, from 1.
    kind
        Format of the output, as its suffix names it (default: by the suffix; txt for -, or
        jsonl with --json).
    tag
        Name of the system, the last column of a TREC run.
    target
        What to write: score, or for a calibrated model probability or grade.
    architecture
        Your own net as package.module:name, if the model was trained with it.
    """
    from twinrank.cli.score_files import format_of, write_scores
    from twinrank.learning.estimators.saved_ranker import load_model

    if output == STANDARD_OUTPUT and wants_json():
        kind = kind or "jsonl"
    kind = format_of(output, kind)
    check_free(output, overwrite)
    ranker = load_model(model, architecture)
    calibration = ranker._calibration(target, "target")
    loaded = load_data(data, reading or {}, ranker._known_columns().text)
    show_notes(loaded)
    scores: npt.NDArray[Any] = scores_of(ranker, loaded, data)
    if calibration is not None:
        scores = calibration(scores, loaded.lists)
    write_scores(scores, loaded, output, kind, tag, overwrite)
    if output != STANDARD_OUTPUT:
        show_done(f"Wrote {output}: {loaded.documents:,} scores")
        show_json({"file": output, "queries": loaded.queries, "documents": loaded.documents})


def scores_of(ranker: "BaseRanker", loaded: "Dataset", data: Path) -> "npt.NDArray[np.float32]":
    """A model's scores of a command's data."""
    expected = ranker.n_features_in_
    named = loaded.feature_names is not None and hasattr(ranker, "feature_names_in_")
    if loaded.features != expected and not named:
        hint = []
        if loaded.features < expected and loaded.feature_names is None:
            hint = [f" If the last features are absent throughout, add --features {expected}."]
        raise InputError(
            f"{loaded.name or data} has {loaded.features} features, but the model has {expected}.",
            *hint,
        )
    return ranker.predict(loaded)
