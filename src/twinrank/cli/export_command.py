"""twinrank export: write a trained model as one file for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twinrank.estimators.base import BaseRanker


def export(
    model: Annotated[
        Path,
        typer.Argument(
            help="Folder of a model: from twinrank train, or from save() in Python.",
            readable=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="File to write: .onnx for a net, .txt for LightGBM trees, .json or .ubj for "
            "XGBoost trees (default: model.onnx, model.txt or model.json).",
        ),
    ] = None,
) -> None:
    """Write a trained model as one file that scores without TwinRank.

    A net becomes an ONNX file. Its input is a float32 matrix of the features
    in the training data, one row per document. Its output is one score per
    document. Transforms are part of the file. By default (QueryZScore) a
    score depends on the other documents of its query; then each call takes
    the documents of one query. The command checks the file: onnxruntime must
    compute the same scores as TwinRank. This needs the packages onnx and
    onnxruntime.

    Boosted trees are written in the format of LightGBM or XGBoost, which
    many languages can read. That file contains no transforms.

    Example: twinrank export runs/ap -o model.onnx
    """
    from twinrank.estimators.models import model_in

    ranker = model_in(model)
    default_name, description, note = _describe(ranker)
    output = output or Path(default_name)
    ranker.export(output)
    typer.echo(f"Wrote {output}: {description}")
    if note is not None:
        typer.echo(f"Note: {note}", err=True)


def _describe(ranker: "BaseRanker") -> tuple[str, str, str | None]:
    """The default name of the file, a description of its content, and a note for the user."""
    from twinrank.boosting.model import BoostedModel

    model = ranker.model_
    if not isinstance(model, BoostedModel):
        from twinrank.models.onnx_export import summary

        return "model.onnx", summary(model), None
    from twinrank.boosting.exporting import NAMES, left_out
    from twinrank.support.plurals import counted

    description = f"{counted(model.trees.count, 'tree')} in {NAMES[model.engine]}'s own format"
    return model.trees.file, description, left_out(model)
