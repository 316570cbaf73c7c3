"""`TextCollection`, the columns that the trainers of sentence-transformers take, and frames."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.data.from_frames import as_frame
from twinrank.support.errors import InputError, unknown

__all__ = ["TextCollection", "columns_from_frame"]

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
        if negatives is not None and (not isinstance(negatives, int) or negatives < 0):
            raise InputError(f"negatives must be a whole number of 0 or more, not {negatives!r}.")
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
        grades.append(_grade(values[2], f"Row {row}, column {label!r}"))
    return {
        "query": list(lists),
        "documents": [texts for texts, _ in lists.values()],
        "labels": [grades for _, grades in lists.values()],
    }


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


def _grade(value: Any, where: str) -> float:
    """A label as a finite number."""
    try:
        grade = float(value)
    except (TypeError, ValueError):
        grade = math.nan
    if not math.isfinite(grade):
        raise InputError(f"{where}: {value!r} is not a finite number.")
    return grade
