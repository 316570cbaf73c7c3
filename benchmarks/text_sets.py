"""Readers of WikiQA and SciFact, the text collections of these benchmarks."""

import ast
import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.support.errors import InputError, explained
from twinrank.text import TextCollection
from twinrank.text.text_data import grade_of, numbered_lines

_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_LONGEST_FIELD = 1 << 27


def read_wikiqa(folder: str | os.PathLike[str], split: str = "train") -> TextCollection:
    """Read a part of WikiQA (Yang, Yih & Meek, EMNLP 2015): questions and judged sentences.

    The folder has four files per split, with one line per pair: `SPLIT.a.toks` (question),
    `SPLIT.b.toks` (sentence), `SPLIT.id.txt` (number of the question) and `SPLIT.sim.txt` (label).

    Parameters
    ----------
    folder : path
        The folder.
    split : {"train", "dev", "test"}, default "train"
        The part.

    Returns
    -------
    TextCollection
        The questions; sentence i of question q is document `q-i`.

    Raises
    ------
    FileError
        If a file cannot be read.
    InputError
        If the split is unknown or the files do not match.
    """
    _check_split(split)
    root = Path(folder).expanduser()
    names = [f"{split}.{end}" for end in ("id.txt", "a.toks", "b.toks", "sim.txt")]
    columns = [[line for _, line in numbered_lines(root / name)] for name in names]
    sizes = [len(column) for column in columns]
    if len(set(sizes)) > 1:
        counts = ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))
        raise InputError(f"The files in {root} need the same number of lines: {counts}.")
    queries: dict[str, str] = {}
    corpus: dict[str, str] = {}
    qrels: dict[str, dict[str, float]] = {}
    for number, (key, question, sentence, label) in enumerate(zip(*columns, strict=True), 1):
        query = key.strip()
        if queries.setdefault(query, question) != question:
            raise InputError(
                f"{root / names[1]}, line {number}: question {query!r} has another text before."
            )
        grades = qrels.setdefault(query, {})
        document = f"{query}-{len(grades) + 1}"
        corpus[document] = sentence
        grades[document] = grade_of(label, f"{root / names[3]}, line {number}")
    if not queries:
        raise InputError(f"{root / names[0]} is empty.")
    return TextCollection(queries, corpus, qrels)


def read_scifact(
    folder: str | os.PathLike[str], split: str = "train", *, dev_share: float = 0.15
) -> TextCollection:
    """Read a part of SciFact (Wadden et al., EMNLP 2020): claims and abstracts.

    The folder has `corpus_train.csv`, `claims_train.csv` and `claims_validation.csv`. The published
    test claims have no labels, so the validation claims are the test part, and a fixed random share
    of the training claims is the development part. Evidence has grade 2; an abstract that is only
    cited has grade 1.

    Parameters
    ----------
    folder : path
        The folder.
    split : {"train", "dev", "test"}, default "train"
        The part.
    dev_share : float, default 0.15
        The share of the training claims for "dev".

    Returns
    -------
    TextCollection
        The claims of the part and all abstracts, each with its title first.

    Raises
    ------
    FileError
        If a file cannot be read.
    InputError
        If the split is unknown or a file is invalid.
    """
    _check_split(split)
    if not 0 < dev_share < 1:
        raise InputError(f"dev_share must be between 0 and 1, not {dev_share}.")
    root = Path(folder).expanduser()
    corpus = {
        row["doc_id"]: " ".join([row["title"], *_strings(row["abstract"])])
        for _, row in _csv(root / "corpus_train.csv", ["doc_id", "title", "abstract"])
    }
    path = root / ("claims_validation.csv" if split == "test" else "claims_train.csv")
    claims: dict[str, str] = {}
    qrels: dict[str, dict[str, float]] = {}
    for number, row in _csv(path, ["id", "claim", "evidence_doc_id", "cited_doc_ids"]):
        claims[row["id"]] = row["claim"]
        grades = qrels.setdefault(row["id"], {})
        for document in re.findall(r"\d+", row["cited_doc_ids"]):
            grades.setdefault(document, 1.0)
        if row["evidence_doc_id"]:
            grades[row["evidence_doc_id"]] = 2.0
        for document in grades:
            if document not in corpus:
                raise InputError(f"{path}, line {number}: document {document!r} has no abstract.")
    if not claims:
        raise InputError(f"{path} has no claims.")
    whole = TextCollection(claims, corpus, qrels)
    if split == "test":
        return whole
    names = list(claims)
    order = np.random.default_rng(0).permutation(len(names))
    dev = {names[i] for i in order[: round(dev_share * len(names))]}
    return whole.select(name for name in names if (name in dev) == (split == "dev"))


def _check_split(split: str) -> None:
    if split not in ("train", "dev", "test"):
        raise InputError(argument="split", value=split, choices=["train", "dev", "test"])


def _csv(path: Path, needed: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The last line and the fields of each row of a CSV file."""
    limit = csv.field_size_limit(_LONGEST_FIELD)  # a setting of the module: set it back
    try:
        with explained("read", path), path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            for name in needed:
                if name not in (rows.fieldnames or ()):
                    raise InputError(f"{path} has no column {name!r}.")
            for row in rows:
                if None in row or None in row.values():
                    raise InputError(
                        f"{path}, line {rows.line_num}: the row does not have "
                        f"{len(rows.fieldnames or ())} fields, as the header has."
                    )
                yield rows.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def _strings(array: str) -> list[str]:
    """The strings of a NumPy array in printed form, as SciFact's CSV has them."""
    return [ast.literal_eval(literal) for literal in _STRING.findall(array)] or [array]
