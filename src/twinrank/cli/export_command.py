"""twinrank export: write a trained model for other programs."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.command_signatures import Overwrite
from twinrank.cli.data_options import load_data, takes_data
from twinrank.cli.output_options import (
    check_free,
    show_done,
    show_json,
    show_note,
    takes_output,
)


@takes_output
@takes_data(unjudged="keep")
def export(
    model: Path,
    *,
    output: Annotated[Path | None, typer.Option("-o", "--output")] = None,
    kind: Annotated[str | None, typer.Option("--format")] = None,
    check: Annotated[Path | None, typer.Option(metavar="DATA")] = None,
    overwrite: Overwrite = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Write a trained model that scores without TwinRank.

    Search engines get a folder with the model, a description of its features and
    the commands that upload both. They score each document alone: train trees
    with --set transforms=none. Nets, trees and blends of any kind become ONNX files
    with their transforms.

    The command evaluates the files by the rules of the program that reads them.
    If a score differs from that of twinrank predict, nothing is written.

    Examples:
    twinrank export runs/ap -o model.onnx

    twinrank export runs/trees --format opensearch-ltr --check test.txt

    Parameters
    ----------
    model
        Folder of a model: from twinrank train, or from save() in Python.
    output
        File or folder to write. Without --format: .onnx for any model; for trees also .txt
        (LightGBM), .json or .ubj (XGBoost). Default: the name of the format, or model with its
        suffix.
    kind
        Format: elasticsearch-ltr, opensearch-ltr, elasticsearch, solr, vespa, ranklib, lightgbm,
        xgboost or onnx (default: by the suffix of -o; else onnx, or for trees without transforms
        and categories the engine's own).
    check
        Data on whose rows the scores are compared too, such as the test data.
    """
    from twinrank.deployment.model_export import FORMATS, default_format
    from twinrank.learning.estimators.base_ranker import load_model

    ranker = load_model(model)
    if output is None:
        kind = kind or default_format(ranker.model_)
        output = Path(FORMATS[kind].target if kind in FORMATS else kind)
    check_free(output, overwrite)
    data = None if check is None else load_data(check, reading or {}, ranker._known_columns().text)
    done = ranker.export(output, kind, data)
    show_done(f"Wrote {output}: {done.description}")
    show_done(str(done))
    for note in done.notes:
        show_note(note)
    about = asdict(done)
    show_json({"file": about.pop("path"), "content": about.pop("description"), **about})
