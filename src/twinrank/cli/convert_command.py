"""twinrank convert: convert data from one format to another."""

from pathlib import Path
from typing import Any

from twinrank.cli.command_signatures import Overwrite
from twinrank.cli.data_options import load_data, show_notes, takes_data
from twinrank.cli.output_options import check_free, show_done, show_json, takes_output
from twinrank.support.errors import explained


@takes_output
@takes_data(unjudged="keep", non_finite="keep")
def convert(
    data: Path,
    target: Path,
    *,
    overwrite: Overwrite = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Convert data from one format to another without loss.

    The suffixes of the two names choose the formats. Features keep every
    bit of a float32. Query ids, labels, document ids and feature names are
    kept. So are unjudged documents (label −1) and NaN; --unjudged and
    --non-finite change this.

    Example: twinrank convert MSLR-WEB10K/Fold1/train.txt train.parquet

    Parameters
    ----------
    data
        LETOR text, CSV, Parquet, Feather, a folder or pattern of tables, or a folder written
        by convert.
    target
        File to write: .txt, .letor, .svm, .csv or .tsv, also with .gz, .xz or .zst; .parquet;
        .feather. Without a suffix: a folder, which loads fastest.
    """
    from twinrank.data.saving import check_target
    from twinrank.support.quantities import counted

    with explained("write", target):
        check_target(target)
        check_free(target, overwrite)
    loaded = load_data(data, reading or {})
    show_notes(loaded)
    loaded.save(target)
    sizes = {"queries": loaded.queries, "documents": loaded.documents, "features": loaded.features}
    show_done(
        f"Wrote {target}: {counted(loaded.queries, 'query')}, "
        f"{counted(loaded.documents, 'document')}, {counted(loaded.features, 'feature')}"
    )
    show_json({"file": target, **sizes})
