"""`TextCollection`, the columns for trainers, frames, the layout of BEIR, and BM25 candidates."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.from_frames import as_frame
from twinrank.support.errors import InputError, check_number, explained, unknown

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class TextCollection:
    """Queries, documents and judgements of a text collection.

    Parameters
    ----------
    queries : mapping of str to str
        The text of each query, by its identifier.
    corpus : mapping of str to str
        The text of each document, by its identifier.
    qrels : mapping of str to mapping of str to float
        The grades of the judged documents of each query. 0 means irrelevant. Documents without a
        grade count as irrelevant.

    Raises
    ------
    InputError
        If a judgement names an unknown query or document, or a grade is not a finite number.

    Examples
    --------
    >>> data = TextCollection({"q": "a cat"}, {"d": "cats", "e": "dogs"}, {"q": {"d": 1, "e": 0}})
    >>> data.columns()
    {'query': ['a cat'], 'documents': [['cats', 'dogs']], 'labels': [[1.0, 0.0]]}
    """

    queries: Mapping[str, str]
    corpus: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, float]]

    def __post_init__(self) -> None:
        for query, grades in self.qrels.items():
            if query not in self.queries:
                raise InputError(f"The judgements name query {query!r}, which queries lacks.")
            for document, grade in grades.items():
                if document not in self.corpus:
                    raise InputError(
                        f"Query {query!r} has a judgement of document {document!r}, which corpus "
                        f"lacks."
                    )
                if not math.isfinite(grade):
                    raise InputError(
                        f"Query {query!r} has grade {grade} for document {document!r}; grades must "
                        f"be finite."
                    )

    def __repr__(self) -> str:
        return (
            f"TextCollection({len(self.queries)} queries, {len(self.corpus)} documents, "
            f"{sum(map(len, self.qrels.values()))} judgements)"
        )

    def select(self, queries: Iterable[str]) -> "TextCollection":
        """The collection with some of the queries and all documents.

        Parameters
        ----------
        queries : iterable of str
            The identifiers of the queries to keep, in the new order.

        Returns
        -------
        TextCollection
            A new collection that shares the texts.
        """
        chosen = list(queries)
        for query in chosen:
            if query not in self.queries:
                raise InputError(unknown("query", query, self.queries))
        return TextCollection(
            {query: self.queries[query] for query in chosen},
            self.corpus,
            {query: self.qrels[query] for query in chosen if query in self.qrels},
        )

    def columns(
        self,
        candidates: Mapping[str, Sequence[str]] | None = None,
        *,
        negatives: int | None = None,
        seed: int = 0,
    ) -> Columns:
        """Columns `query`, `documents` and `labels`, with one row per query.

        `datasets.Dataset.from_dict` turns them into a dataset for `CrossEncoderTrainer`.

        Parameters
        ----------
        candidates : mapping of str to sequence of str, optional
            The documents of each query, such as those of `bm25_candidates`. The default is the
            judged documents.
        negatives : int, optional
            Draw this number of irrelevant candidates per query at random, after all relevant
            documents in order of their grades, for training. Queries without a relevant document
            are left out. The default keeps the candidates as they are, for evaluation.
        seed : int, default 0
            The seed of the draw.

        Returns
        -------
        dict of str to list
            The text of each query, and lists of its documents and labels.

        Raises
        ------
        InputError
            If a query has no documents, or a candidate is not in the corpus.
        """
        if negatives is not None:
            check_number("negatives", negatives, whole=True, least=0)
        random = np.random.default_rng(seed)
        columns: Columns = {"query": [], "documents": [], "labels": []}
        for query, text in self.queries.items():
            grades = self.qrels.get(query, {})
            documents = list(grades) if candidates is None else list(candidates.get(query, ()))
            if negatives is not None:
                by_grade = sorted(grades, key=lambda document: -grades[document])
                relevant = [document for document in by_grade if grades[document] > 0]
                if not relevant:
                    continue
                others = [document for document in documents if grades.get(document, 0) <= 0]
                drawn = random.permutation(len(others))[:negatives]
                documents = relevant + [others[i] for i in sorted(drawn)]
            if not documents:
                raise InputError(
                    f"Query {query!r} has no documents; pass candidates, or leave it out with "
                    f"select."
                )
            for document in documents:
                if document not in self.corpus:
                    raise InputError(
                        f"Candidate {document!r} of query {query!r} is not in the corpus."
                    )
            columns["query"].append(text)
            columns["documents"].append([self.corpus[document] for document in documents])
            columns["labels"].append([float(grades.get(document, 0)) for document in documents])
        if not columns["query"]:
            raise InputError("No query has a relevant document.")
        return columns


def columns_from_frame(
    frame: Any, query: str = "query", document: str = "document", label: str = "label"
) -> Columns:
    """Columns `query`, `documents` and `labels` from a frame with one row per pair.

    Rows of a query need not be adjacent. Queries and documents keep their order.

    Parameters
    ----------
    frame : pandas, polars or pyarrow frame, or mapping of str to sequence
        The pairs.
    query, document, label : str
        The names of the columns with the text of the query, the text of the document, and the
        label.

    Returns
    -------
    dict of str to list
        The text of each query, and lists of its documents and labels.

    Raises
    ------
    InputError
        If a column is missing, a text is empty, or a label is not a finite number.

    Examples
    --------
    >>> pairs = {"query": ["a", "b", "a"], "document": ["x", "y", "z"], "label": [1, 1, 0]}
    >>> columns_from_frame(pairs)
    {'query': ['a', 'b'], 'documents': [['x', 'z'], ['y']], 'labels': [[1.0, 0.0], [1.0]]}
    """
    names = [query, document, label]
    queries, documents, labels = _frame_columns(frame, names)
    if not len(queries) == len(documents) == len(labels):
        raise InputError(
            f"The columns have {len(queries)}, {len(documents)} and {len(labels)} rows; give one "
            f"row per pair."
        )
    if not queries:
        raise InputError("The frame has no rows.")
    lists: dict[str, tuple[list[str], list[float]]] = {}
    for row, values in enumerate(zip(queries, documents, labels, strict=True), 1):
        for name, value in zip(names, values[:2], strict=False):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"Row {row} has {value!r} in column {name!r}; expected a text.")
        texts, grades = lists.setdefault(values[0], ([], []))
        texts.append(values[1])
        grades.append(grade_of(values[2], f"Row {row}, column {label!r}"))
    return {
        "query": list(lists),
        "documents": [texts for texts, _ in lists.values()],
        "labels": [grades for _, grades in lists.values()],
    }


def list_columns(names: Sequence[str], labels: Sequence[str], user: str) -> tuple[str, str, str]:
    """The columns of queries, of lists of documents and of lists of labels of a data set."""
    label = next((name for name in labels if name in names), None)
    texts = [name for name in names if name != label]
    if label is None or len(texts) != 2:
        raise InputError(
            f"{user} needs a column of queries, a column of lists of documents and a column of "
            f"lists of labels named {' or '.join(labels)}; the columns are {', '.join(names)}."
        )
    return texts[0], texts[1], label


def check_list(query: Any, documents: Any, labels: Any) -> None:
    """Raise an error unless a query has a list of documents, and one label for each."""
    if isinstance(documents, str) or not isinstance(documents, Sequence):
        raise InputError(
            f"The query {query!r} has one text instead of a list of documents. Give a list; for "
            f"columns of single texts, use the trainer's own collator."
        )
    count = len(labels) if isinstance(labels, Sized) else "one label for all"
    if count != len(documents):
        raise InputError(
            f"The query {query!r} has {len(documents)} documents but {count} labels; give one "
            f"label per document."
        )


def _frame_columns(frame: Any, names: list[str]) -> list[list[Any]]:
    """The values of the named columns."""
    table = frame if isinstance(frame, Mapping) else as_frame(frame, "The frame")
    known = [str(name) for name in (table if isinstance(table, Mapping) else table.columns)]
    for name in names:
        if name not in known:
            raise InputError(unknown("column", name, known))
    if isinstance(table, Mapping):
        return [list(table[name]) for name in names]
    return [table.get_column(name).to_list() for name in names]


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
        qrels[query][document] = grade_of(grade, f"{path}, line {number}")
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


def grade_of(value: Any, where: str) -> float:
    """The grade in a field of a file, or in a row of a frame."""
    try:
        grade = float(value)
    except (TypeError, ValueError):
        grade = math.nan
    if not math.isfinite(grade):
        raise InputError(f"{where}: a grade must be a finite number; found {_short(value)}.")
    return grade


def _short(value: Any) -> str:
    return repr(f"{value[:60]}…" if isinstance(value, str) and len(value) > 60 else value)


def bm25_candidates(
    collection: TextCollection, top: int = 50, *, k1: float = 1.2, b: float = 0.75
) -> dict[str, list[str]]:
    """The documents of the corpus with the highest BM25 scores for each query, best first.

    Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009); the
    index is that of the package bm25s (Lù 2024), with its English stop words and without stemming.

    Parameters
    ----------
    collection : TextCollection
        The queries and the corpus.
    top : int, default 50
        The number of documents per query; at most the size of the corpus.
    k1, b : float
        The parameters of BM25: saturation of term frequency, and normalisation by length.

    Returns
    -------
    dict of str to list of str
        The identifiers of the documents by query, for `TextCollection.columns`.

    Raises
    ------
    InputError
        If bm25s is missing, the corpus is empty, or `top` is not positive.

    Examples
    --------
    ```python
    candidates = bm25_candidates(collection, top=50)
    train = collection.columns(candidates, negatives=7)
    ```
    """
    if find_spec("bm25s") is None:
        raise InputError(
            "bm25_candidates needs bm25s; install it with pip install 'twinrank[text]'."
        )
    import bm25s

    check_number("top", top, whole=True)
    if not collection.corpus or not collection.queries:
        raise InputError("The collection has no documents or no queries.")
    names = list(collection.corpus)
    index = bm25s.BM25(k1=k1, b=b)

    def tokens(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", show_progress=False)

    index.index(tokens(list(collection.corpus.values())), show_progress=False)
    found, _ = index.retrieve(
        tokens(list(collection.queries.values())), k=min(top, len(names)), show_progress=False
    )
    rows = zip(collection.queries, found.tolist(), strict=True)
    return {query: [names[i] for i in row] for query, row in rows}
