"""twinrank convert: data from one form to another."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinrank.cli.options import load_data, show_notes, takes_data
from twinrank.support.errors import InputError, explained


@takes_data(unjudged="keep", non_finite="keep")
def convert(
    data: Annotated[
        Path,
        typer.Argument(readable=False, help="LETOR text, CSV, Parquet, Feather, or a folder."),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            readable=False,
            help="What to write: .txt/.letor/.svm, .csv, .tsv, .parquet, .feather, "
            "text also with .gz/.xz/.zst; without a suffix, a folder that loads at once.",
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a target that exists.")] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Convert data from one form to another, losslessly, as the two names' suffixes say.

    Features keep every bit of a float32; query ids, labels, document ids and the names of features
    are kept too. Unjudged documents (−1) and NaN are kept unless told otherwise.

    Example: twinrank convert MSLR-WEB10K/Fold1/train.txt train.parquet
    """
    from twinrank.data.saving import check_target
    from twinrank.support.text import counted

    with explained("write", target):
        check_target(target)
        if target.exists() and not force:
            raise InputError(f"{target} exists; --force replaces it")
    loaded = load_data(data, reading or {})
    show_notes(loaded)
    loaded.save(target)
    typer.echo(
        f"Wrote {target}: {counted(loaded.queries, 'query')}, "
        f"{counted(loaded.documents, 'document')}, {counted(loaded.features, 'feature')}"
    )
