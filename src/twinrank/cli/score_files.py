"""Scores as files or on standard output: text, TREC runs, JSON lines, CSV or Parquet."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.cli.output_options import STANDARD_OUTPUT, check_free
from twinrank.core.ranks.exact import exact_ranks
from twinrank.data.dataset import Dataset
from twinrank.support.errors import InputError, needing, unknown
from twinrank.support.files import replacing

SCORE_FORMATS = ("txt", "run", "trec", "jsonl", "csv", "parquet")


def format_of(path: Path, chosen: str | None) -> str:
    """The format of a file: the chosen one, or that of its suffix; text on standard output."""
    if chosen is not None:
        if chosen not in SCORE_FORMATS:
            raise InputError(unknown("format", chosen, SCORE_FORMATS))
        return chosen
    if path == STANDARD_OUTPUT:
        return "txt"
    if path.suffix[1:] not in SCORE_FORMATS:
        endings = ", ".join(f".{name}" for name in SCORE_FORMATS)
        raise InputError(
            f"Can't write {path}. Choose a name with {endings}, pass --format, or write to - "
            f"(standard output)."
        )
    return path.suffix[1:]


def write_scores(
    scores: Any, data: Dataset, path: Path, kind: str, tag: str = "twinrank", overwrite: bool = True
) -> None:
    """Write the scores of a dataset to a file, or to standard output."""
    content = _content(scores, data, kind, tag)
    if path == STANDARD_OUTPUT:
        if kind == "parquet" and sys.stdout.isatty():
            raise InputError("Parquet is binary: choose a file, or pipe the output to a program.")
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    check_free(path, overwrite)  # again: it may have appeared since
    with replacing(path) as partial:
        partial.write_bytes(content)


def _content(scores: Any, data: Dataset, kind: str, tag: str) -> bytes:
    if kind == "txt":
        ordered = data.in_source_order(scores)
        return _lines(repr(float(score)) for score in ordered)
    docids = data.docids_or_numbers
    ranks = exact_ranks(scores, data.lists, ties="stable").astype(np.int64)
    if kind in ("run", "trec"):
        return _lines(_run_lines(scores, ranks, data, docids, tag))
    if kind == "jsonl":
        return _lines(_json_lines(scores, ranks, data, docids))
    columns = {"qid": data.qid, "docid": docids, "score": scores, "rank": ranks}
    ordered_columns = {name: data.in_source_order(values) for name, values in columns.items()}
    with needing(f"The format {kind}", "polars", "frames"):
        import polars as pl
    frame, content = pl.DataFrame(ordered_columns), io.BytesIO()
    (frame.write_csv if kind == "csv" else frame.write_parquet)(content)
    return content.getvalue()


def _lines(lines: Any) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _best_first(scores: Any, ranks: Any, data: Dataset) -> Any:
    """The documents of each query, in the order of their ranks."""
    return np.lexsort((ranks, data.lists.index(scores)))


def _run_lines(scores: Any, ranks: Any, data: Dataset, docids: Any, tag: str) -> list[str]:
    """The lines of a TREC run, the best document of each query first."""
    qid = data.qid
    for kind, ids in (("query id", data.query_ids), ("document id", docids), ("tag", [tag])):
        if any(not str(text) or any(c.isspace() for c in str(text)) for text in ids):
            raise InputError(f"A TREC run can't hold a {kind} that is empty or has blanks.")
    if len(set(zip(qid.tolist(), docids.tolist(), strict=True))) < docids.size:
        raise InputError("A TREC run can't hold the same document id twice for one query.")
    return [
        f"{qid[i]} Q0 {docids[i]} {ranks[i]} {float(scores[i])!r} {tag}"
        for i in _best_first(scores, ranks, data).tolist()
    ]


def _json_lines(scores: Any, ranks: Any, data: Dataset, docids: Any) -> list[str]:
    """A line for each query: its id, and its documents with scores, the best first."""
    order = _best_first(scores, ranks, data)
    lines = []
    for query, rows in zip(data.query_ids.tolist(), data.lists, strict=True):
        documents = [
            {"docid": str(docids[i]), "score": float(scores[i])} for i in order[rows].tolist()
        ]
        lines.append(json.dumps({"qid": query, "documents": documents}, ensure_ascii=False))
    return lines
