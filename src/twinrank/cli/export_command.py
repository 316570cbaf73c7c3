"""twinrank export: a trained model as one file for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twinrank.estimators.base import BaseRanker


def export(
    model: Annotated[
        Path, typer.Argument(help="A run's folder, or one that save wrote.", readable=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="A net: .onnx. Trees: .txt (LightGBM), .json or .ubj (XGBoost). "
            "Else model.onnx, model.txt or model.json here.",
        ),
    ] = None,
) -> None:
    """Write a trained model as one file that scores without TwinRank.

    A net becomes an ONNX file that holds everything: features go in as they
    were in the training data, float32, a row a document; transforms are part of
    the graph; a score a document comes out. Where a score depends on the other
    documents of its query, as it does by default (QueryZScore), a call takes
    one query. Before the file is left, onnxruntime runs it on made queries, and
    its scores must be ours. This needs the extra "onnx".

    Boosted trees are written in the format of LightGBM or XGBoost, whose
    libraries read it in many languages; it holds no transforms.

    Example: twinrank export runs/ap -o model.onnx
    """
    from twinrank.estimators.models import model_in

    ranker = model_in(model)
    usual, described, note = _about(ranker)
    output = output or Path(usual)
    ranker.export(output)
    typer.echo(f"Wrote {output}: {described}")
    if note is not None:
        typer.echo(f"Note: {note}", err=True)


def _about(ranker: "BaseRanker") -> tuple[str, str, str | None]:
    """The name of a file if none is given, what it will hold, and what one should know of it."""
    from twinrank.boosting.model import BoostedModel

    model = ranker.model_
    if not isinstance(model, BoostedModel):
        from twinrank.models.onnx_file import summary

        return "model.onnx", summary(model), None
    from twinrank.boosting.exporting import NAMES, left_out
    from twinrank.support.text import counted

    held = f"{counted(model.trees.count, 'tree')} in {NAMES[model.engine]}'s own format"
    return model.trees.file, held, left_out(model)
