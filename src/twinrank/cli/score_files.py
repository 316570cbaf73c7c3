"""Scores as files: text, TREC runs, CSV or Parquet."""

from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.ranks.exact import exact_ranks
from twinrank.support.errors import InputError
from twinrank.support.files import replacing


def write_scores(scores: Any, data: Dataset, path: Path, tag: str = "twinrank") -> None:
    """Write the scores of a dataset; the path's suffix chooses the format."""
    if path.suffix == ".txt":
        ordered = data.in_source_order(scores)
        _write(path, "\n".join(repr(float(score)) for score in ordered) + "\n")
        return
    docids = data.docids
    if docids is None:
        docids = data.from_source_order(np.arange(data.documents)).astype(np.str_)
    ranks = exact_ranks(scores, data.lists, ties="stable").astype(np.int64)
    if path.suffix in (".run", ".trec"):
        _write(path, "\n".join(_run_lines(scores, ranks, data, docids, tag)) + "\n")
        return
    columns = {"qid": data.qid, "docid": docids, "score": scores, "rank": ranks}
    ordered_columns = {name: data.in_source_order(values) for name, values in columns.items()}
    try:
        import polars as pl
    except ImportError as error:
        raise InputError(f"{path} needs polars: pip install 'twinrank[frames]'") from error
    frame = pl.DataFrame(ordered_columns)
    with replacing(path) as partial:
        if path.suffix == ".csv":
            frame.write_csv(partial)
        else:
            frame.write_parquet(partial)


def _run_lines(scores: Any, ranks: Any, data: Dataset, docids: Any, tag: str) -> list[str]:
    """The lines of a TREC run, the best document of each query first."""
    order = np.lexsort((ranks, data.lists.index(scores)))
    qid = data.qid
    for kind, ids in (("query id", data.query_ids), ("document id", docids)):
        if any(not str(text) or any(c.isspace() for c in str(text)) for text in ids):
            raise InputError(f"A TREC run can't hold a {kind} that is empty or has blanks.")
    if len(set(zip(qid.tolist(), docids.tolist(), strict=True))) < docids.size:
        raise InputError("A TREC run can't hold the same document id twice for one query.")
    return [
        f"{qid[i]} Q0 {docids[i]} {ranks[i]} {float(scores[i])!r} {tag}" for i in order.tolist()
    ]


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, "utf-8")
