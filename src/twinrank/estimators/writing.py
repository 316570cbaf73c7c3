"""Scores to files: plain, as a TREC run, or as a frame."""

from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.ranks.exact import exact_ranks
from twinrank.support.errors import InputError
from twinrank.support.files import replacing


def write_scores(scores: Any, data: Dataset, path: Path, tag: str = "twinrank") -> None:
    """Write the scores of a dataset in the form that the name asks for."""
    if path.suffix == ".txt":
        ordered = data.in_source_order(scores)
        _write(path, "\n".join(repr(float(s)) for s in ordered) + "\n")
        return
    documents = data.docids
    if documents is None:
        documents = data.from_source_order(np.arange(data.documents)).astype(np.str_)
    ranks = exact_ranks(scores, data.lists, ties="stable").astype(np.int64)
    if path.suffix in (".run", ".trec"):
        _write(path, "\n".join(_run_lines(scores, ranks, data, documents, tag)) + "\n")
        return
    columns = {"qid": data.qid, "docid": documents, "score": scores, "rank": ranks}
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


def _run_lines(scores: Any, ranks: Any, data: Dataset, documents: Any, tag: str) -> list[str]:
    """A run, each query's documents from the best on."""
    order = np.lexsort((ranks, data.lists.index(scores)))
    qid = data.qid
    for name, values in (("query id", data.query_ids), ("document id", documents)):
        if any(not str(v) or any(c.isspace() for c in str(v)) for v in values):
            raise InputError(f"a TREC run can't hold a {name} that is empty or has blanks in it")
    if len(set(zip(qid.tolist(), documents.tolist(), strict=True))) < documents.size:
        raise InputError("a TREC run can't hold the same document id twice for one query")
    return [
        f"{qid[i]} Q0 {documents[i]} {ranks[i]} {float(scores[i])!r} {tag}" for i in order.tolist()
    ]


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, "utf-8")
