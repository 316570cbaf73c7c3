"""`read_beir`: text collections in the layout of BEIR."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

from twinrank.support.errors import InputError, explained
from twinrank.text.text_data import TextCollection

__all__ = ["read_beir"]


def read_beir(folder: str | os.PathLike[str], split: str = "test") -> TextCollection:
    """Read a collection in the layout of BEIR (Thakur et al. 2021).

    The folder has `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and
    `qrels/SPLIT.tsv` (query, document, grade, with a header). The title precedes the text of a
    document. Queries without judgements in the split are left out.

    Parameters
    ----------
    folder : path
        The folder.
    split : str, default "test"
        The name of the file of judgements.

    Returns
    -------
    TextCollection
        The queries of the split and all documents.

    Raises
    ------
    FileError
        If a file cannot be read.
    InputError
        If a file is invalid; the message names the line.
    """
    root = Path(folder).expanduser()
    corpus = _jsonl(root / "corpus.jsonl")
    texts = _jsonl(root / "queries.jsonl")
    path = root / "qrels" / f"{split}.tsv"
    qrels: dict[str, dict[str, float]] = {}
    for number, line in numbered_lines(path):
        fields = line.split("\t")
        if number == 1 and fields[-1].strip().lower() == "score":
            continue
        if len(fields) != 3:
            raise InputError(
                f"{path}, line {number}: expected query, document and grade with tabs between "
                f"them; found {_short(line)}."
            )
        query, document, grade = (field.strip() for field in fields)
        for kind, name, known in (("query", query, texts), ("document", document, corpus)):
            if name not in known:
                raise InputError(f"{path}, line {number}: {kind} {name!r} has no text.")
        if document in qrels.setdefault(query, {}):
            raise InputError(
                f"{path}, line {number}: query {query!r} has document {document!r} twice."
            )
        qrels[query][document] = grade_of(grade, path, number)
    if not qrels:
        raise InputError(f"{path} has no judgements.")
    return TextCollection({query: texts[query] for query in qrels}, corpus, qrels)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The number and text of each line; blank lines at the end are left out."""
    try:
        with explained("read", path):
            text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error}).") from error
    for number, line in enumerate(text.rstrip("\r\n").split("\n") if text.strip() else [], 1):
        yield number, line.rstrip("\r")


def _jsonl(path: Path) -> dict[str, str]:
    """The texts of a file of JSON objects, by their `_id`."""
    texts: dict[str, str] = {}
    for number, line in numbered_lines(path):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: the line is not JSON ({error}).") from error
        if not isinstance(entry, dict) or "_id" not in entry or "text" not in entry:
            raise InputError(
                f"{path}, line {number}: expected an object with '_id' and 'text'; found "
                f"{_short(line)}."
            )
        key = str(entry["_id"])
        if key in texts:
            raise InputError(f"{path}, line {number}: the identifier {key!r} appears twice.")
        texts[key] = f"{entry.get('title') or ''} {entry['text'] or ''}".strip()
    if not texts:
        raise InputError(f"{path} is empty.")
    return texts


def grade_of(text: str, path: Path, line: int) -> float:
    """The grade in a field of a file."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{path}, line {line}: a grade must be a finite number; found {_short(text)}."
        )
    return number


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
