"""twinrank export: write a trained model for other programs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import AtLeastOne, Overwrite
from twinrank.cli.data_options import load_data, takes_data
from twinrank.cli.output_options import (
    check_free,
    is_quiet,
    show_done,
    show_json,
    show_note,
    takes_output,
)
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset


@takes_output
@takes_data(unjudged="keep")
def export(
    model: Path,
    *,
    output: Annotated[Path | None, typer.Option("-o", "--output")] = None,
    kind: Annotated[str | None, typer.Option("--format")] = None,
    check: Annotated[Path | None, typer.Option(metavar="DATA")] = None,
    distill: Annotated[Path | None, typer.Option(metavar="DATA")] = None,
    valid: Annotated[Path | None, typer.Option(metavar="DATA")] = None,
    max_trees: AtLeastOne = None,
    max_leaves: Annotated[int | None, typer.Option(min=2)] = None,
    cv: Annotated[int | None, typer.Option(min=2)] = None,
    overwrite: Overwrite = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Write a trained model that scores without TwinRank.

    Search engines get a folder with the model, a description of its features and
    the commands that upload both. They score each document alone: train trees
    with twinrank train --per-document. Nets, trees and blends of any kind become ONNX files
    with their transforms.

    The command evaluates the files by the rules of the program that reads them.
    If a score differs from that of twinrank predict, nothing is written.

    Examples:
    twinrank export runs/ap -o model.onnx

    twinrank export runs/trees --format opensearch-ltr --check test.txt

    twinrank export runs/blend --format solr --distill train.txt --max-trees 500

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
        Data on whose rows the scores are also compared, such as the test data (default: that of
        --distill).
    distill
        Judged data. Train trees that score each document alone on the scores of the model, print
        what they lose, and export them instead.
    valid
        With --distill: judged queries that the model has not seen, to measure the loss on
        (default: a fifth of the queries).
    max_trees
        With --distill: the maximum number of trees.
    max_leaves
        With --distill: the maximum number of leaves of a tree.
    cv
        With --distill: learn the scores of copies of the model that have not seen the query, with
        this number of folds (usually 3). Default: learn the scores of the model itself.
    """
    from twinrank.deployment.model_export import FORMATS, default_format, format_of
    from twinrank.learning.estimators.distill import engine_of
    from twinrank.learning.estimators.saved_ranker import load_model

    ranker = load_model(model)
    if output is None:
        kind = kind or default_format(ranker.model_)
        output = Path(FORMATS[kind].target if kind in FORMATS else kind)
    check_free(output, overwrite)

    def loaded(path: Path | None) -> "Dataset | None":
        if path is None:
            return None
        return load_data(path, reading or {}, ranker._known_columns().text)

    # The formats of the engines hold only their own trees.
    engine = kind if kind in ("lightgbm", "xgboost") else engine_of(ranker)
    if distill is not None:
        format_of(engine, output, kind)  # raises an error before the training
    data = loaded(check)
    if (learned := loaded(distill)) is not None:
        from twinrank.learning.training.console import console

        limits: dict[str, Any] = {"max_trees": max_trees, "max_leaves": max_leaves}
        shown = console(is_quiet())
        data = learned if data is None else data
        ranker = ranker.distill(
            learned, loaded(valid), engine=engine, cv=cv, callbacks=shown, **limits
        )
        show_done(f"Distilled into trees:\n{ranker.distillation_}")
        if valid is None:
            show_note(
                f"Compared on a fifth of {distill}. If the model was trained on these queries, its "
                f"own figures are too high: pass others with --valid."
            )
    elif valid or max_trees or max_leaves or cv:
        raise InputError("--valid, --max-trees, --max-leaves and --cv need --distill.")
    done = ranker.export(output, kind, data)
    show_done(f"Wrote {output}: {done.description}")
    show_done(str(done))
    for note in done.notes:
        show_note(note)
    about = asdict(done)
    show_json({"file": about.pop("path"), "content": about.pop("description"), **about})
