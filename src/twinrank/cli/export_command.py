"""twinrank export: write a trained model as one file for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from twinrank.cli.command_signatures import Overwrite
from twinrank.cli.output_options import (
    check_free,
    show_done,
    show_json,
    show_note,
    takes_output,
)


@takes_output
def export(
    model: Path,
    *,
    output: Annotated[Path | None, typer.Option("-o", "--output")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a trained model as one file that scores without TwinRank.

    Nets, trees and blends become ONNX files. The input is a float32 matrix of the features
    in the training data, one row per document. The output is one score per
    document. Transforms are part of the file. By default (z-scores within the
    query) a score depends on the other documents of its query; then each call
    takes the documents of one query. The command checks the file: onnxruntime must
    compute the same scores as TwinRank. This needs the packages onnx and
    onnxruntime.

    Boosted trees can also be written in the format of LightGBM or XGBoost,
    which many languages can read. That file contains no transforms.

    Example: twinrank export runs/ap -o model.onnx

    Parameters
    ----------
    model
        Folder of a model: from twinrank train, or from save() in Python.
    output
        File to write: .onnx for any model; for trees also .txt (LightGBM), .json or .ubj
        (XGBoost). Default: model.onnx; for trees without transforms and categories, model.txt
        or model.json.
    """
    from twinrank.learning.estimators.base_ranker import load_model

    ranker = load_model(model)
    default_name, description, note = ranker.model_.describe_export(output)
    output = output or Path(default_name)
    check_free(output, overwrite)
    ranker.export(output)
    show_done(f"Wrote {output}: {description}")
    if note is not None:
        show_note(note)
    show_json({"file": output, "content": description, "note": note})
