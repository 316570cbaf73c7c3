"""The `Dataset` class: documents with features and labels, grouped by query."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.core.lists.row_weights import query_and_document_weights
from twinrank.data.batches import Batches, rows_of
from twinrank.data.folds import Fold, cut, rotate
from twinrank.data.from_arrays import table_from_arrays, table_of
from twinrank.data.from_frames import as_frame, frame_block
from twinrank.data.label_columns import main_label, with_columns
from twinrank.data.options import (
    MAX_FEATURES,
    ReadOptions,
    choose_columns,
    odd_feature_notes,
)
from twinrank.data.table import Categories, Floats, Ints, Table, Texts, docid_in
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError, rendered
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from pathlib import Path

    from twinrank.data.summary import Summary
    from twinrank.data.transforms import Transform


class Dataset:
    """Documents with features and labels, grouped by query.

    Create one with `twinrank.load`, `Dataset.from_arrays` or `Dataset.from_frame`, not with this
    constructor. Selecting, filtering and splitting work on whole queries and return a new
    `Dataset` on the same memory. Features are copied only if `X` is read and the selected queries
    are not adjacent.

    Parameters
    ----------
    table : Table
        The documents; internal.
    name : str, default ""
        The name in messages and reports.
    numbers : array of int, optional
        The selected queries, by number; all by default.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.1], [0.2], [0.3]], [0, 1, 2], qid=["a", "a", "b"])
    >>> data
    Dataset(2 queries, 3 documents, 1 feature)
    >>> data.select([1]).y
    array([2.], dtype=float32)
    """

    def __init__(self, table: Table, name: str = "", numbers: Ints | None = None) -> None:
        self.name, self._table = name, table
        self._chosen: Any = slice(None) if numbers is None else numbers

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        docids: Sequence[str] | None = None,
        weight: Any = None,
        feature_names: Sequence[str] | None = None,
        labels: Mapping[str, Any] | None = None,
        unjudged: str = "error",
        non_finite: str = "error",
    ) -> "Dataset":
        """Create a dataset from arrays.

        Rows of one query may be scattered: they are grouped, and `in_source_order` restores the
        original order.

        Parameters
        ----------
        X : array, scipy sparse matrix or frame, shape (n_documents, n_features)
            The features; they are stored as float32. The columns of a frame are all features.
        y : array of float, shape (n_documents,), optional
            The labels, at least 0, or −1 for unjudged. Without `y`, every document is unjudged.
        qid : array of int or str, shape (n_documents,), optional
            The query id of each document, in any order. Pass either `qid` or `group`.
        group : array of int, shape (n_queries,), optional
            The number of documents of each query, if rows are in the order of the queries.
        docids : sequence of str, shape (n_documents,), optional
            The id of each document.
        weight : array of float, shape (n_documents,), optional
            The weight of each document. A query has the mean weight of its rows. If they differ,
            a document also counts by its weight relative to that mean.
        feature_names : sequence of str, shape (n_features,), optional
            The name of each feature.
        labels : mapping of str to array, optional
            Instead of `y`: several columns of labels, such as clicks and orders. The first is the
            main one; objectives and measures name the others, as `nDCG(label=order)@10`.
        unjudged, non_finite
            What to do with label −1 and with values that are not finite; see `twinrank.load`.

        Raises
        ------
        InputError
            If shapes, labels or values are invalid; the message names the entry.
        """
        options = ReadOptions(unjudged=unjudged, non_finite=non_finite)
        queries = {"qid": qid, "group": group, "docids": docids, "weight": weight}
        own, names = main_label(y, labels), feature_names
        table = table_from_arrays(X, own, **queries, feature_names=names, options=options)
        return cls(with_columns(table, labels))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        query: str | int | None = None,
        label: str | int | None = None,
        docid: str | int | None = None,
        weight: str | int | None = None,
        features: Sequence[str | int] | None = None,
        ignore: Sequence[str | int] = (),
        categorical_features: Sequence[str | int] = (),
        unjudged: str = "error",
        non_finite: str = "error",
        max_features: int = MAX_FEATURES,
    ) -> "Dataset":
        """Create a dataset from a data frame.

        Parameters
        ----------
        frame : DataFrame
            A pandas, polars or pyarrow frame, or any other frame that narwhals supports.
        query, label, docid : str or int, optional
            The columns with query ids, labels and document ids. By default they are recognised by
            their names. Pass `label=False` if there are no labels.
        features : sequence of str, optional
            The feature columns. By default all remaining columns.
        weight : str or int, optional
            The column with weights of rows, as in `from_arrays`.
        ignore : sequence of str, default ()
            Columns to leave out.
        categorical_features : sequence of str, default ()
            Columns of categories, also if they hold numbers.
        unjudged, non_finite, max_features
            As in `twinrank.load`.

        Raises
        ------
        InputError
            If a column is missing, ambiguous or not numeric; the message names it.
        """
        options = ReadOptions.of(
            query=None if query is None else str(query),
            label=label if label is None or label is False else str(label),
            docid=None if docid is None else str(docid),
            weight=None if weight is None else str(weight),
            features=features,
            ignore=ignore,
            categorical_features=categorical_features,
            unjudged=unjudged,
            non_finite=non_finite,
            max_features=max_features,
        )
        where = "The frame"
        table = as_frame(frame, where)
        roles = choose_columns([str(name) for name in table.columns], options, where)
        block = frame_block(table, roles, options, where)
        notes = () if features else odd_feature_notes(roles.features)
        return cls(table_of(block, options, roles.features, notes, where))

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.query_ids.size

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.lists.documents

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self._table.X.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None if the source has no names."""
        return self._table.feature_names

    @property
    def categories(self) -> Mapping[int, tuple[str, ...]]:
        """Texts of the columns of text, by column number; `X` has their numbers, −1 if missing."""
        return self._table.categories

    @property
    def notes(self) -> tuple[str, ...]:
        """Changes made while reading, such as dropped documents; `load` warns about them."""
        return tuple(rendered(note) for note in self._table.notes)

    @property
    def from_clicks(self) -> bool:
        """True if labels are estimates from clicks; see `ClickLog.to_dataset`."""
        return self._table.from_clicks

    @cached_property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """Weight of each query, the mean of its rows', or None if the source has no weights."""
        return None if self._table.weights is None else self._table.weights[self._chosen]

    @cached_property
    def row_weights(self) -> npt.NDArray[np.float64] | None:
        """Weight of each document, or None if all rows of each query have the same."""
        if self._table.row_weights is None:
            return None
        rows = self._table.row_weights[self._rows]
        return None if query_and_document_weights(rows, self.lists)[1] is None else rows

    @cached_property
    def lists(self) -> Lists:
        """Grouping of the documents by query."""
        if isinstance(self._chosen, slice):
            return self._table.lists
        return Lists.from_sizes(self._table.lists.sizes[self._chosen])

    @cached_property
    def _rows(self) -> Any:
        """The table's rows of the queries: a slice if they are adjacent, or an array."""
        numbers, offsets = self._chosen, self._table.lists.offsets
        if isinstance(numbers, slice):
            return slice(None)
        if numbers.size == 0:
            return slice(0, 0)
        if (np.diff(numbers) == 1).all():
            return slice(int(offsets[numbers[0]]), int(offsets[numbers[-1] + 1]))
        return rows_of(self._table.lists, numbers)

    @cached_property
    def X(self) -> Floats:  # noqa: N802
        """Features, float32, one row per document; a view or a memory map if possible."""
        if isinstance(self._rows, slice):
            return self._table.X[self._rows]
        return self.take(np.arange(self.queries))

    @cached_property
    def y(self) -> Floats:
        """Labels, float32; −1 for unjudged documents that were kept."""
        labels: Floats = self._table.y[self._rows]
        return labels

    @cached_property
    def labels(self) -> dict[str, Floats]:
        """All columns of labels by name, the main one first; empty if there is a single one."""
        return {name: values[self._rows] for name, values in self._table.labels.items()}

    @cached_property
    def query_ids(self) -> npt.NDArray[Any]:
        """Id of each query."""
        ids: npt.NDArray[Any] = self._table.query_ids[self._chosen]
        return ids

    @cached_property
    def qid(self) -> npt.NDArray[Any]:
        """Query id of each document."""
        return np.repeat(self.query_ids, self.lists.sizes)

    @cached_property
    def comments(self) -> Texts | None:
        """Comment of each document, or None if the source has no comments."""
        comments = self._table.comments
        return None if comments is None else comments.take(self._rows)

    @cached_property
    def docids(self) -> npt.NDArray[np.str_] | None:
        """Id of each document: the value of `docid = …` in its comment, or the whole comment."""
        if self.comments is None:
            return None
        return np.array([docid_in(text) for text in self.comments], np.str_)

    @property
    def docids_or_numbers(self) -> npt.NDArray[np.str_]:
        """`docids`, or the number of each document within its query, from 1, if there are none."""
        if self.docids is not None:
            return self.docids
        firsts = self.lists.spread(self.lists.offsets[:-1])
        numbers: npt.NDArray[np.str_] = (np.arange(self.documents) - firsts + 1).astype(np.str_)
        return numbers

    def take(self, queries: Ints, out: Floats | None = None) -> Floats:
        """Copy the features of some queries into one matrix.

        Parameters
        ----------
        queries : array of int
            Numbers of queries, from 0; the result has their documents in this order.
        out : array of float32, optional
            Where to write the result.
        """
        numbers = self._numbers()[queries]
        starts, ends = (self._table.lists.offsets[numbers + i].tolist() for i in (0, 1))
        pieces = [self._table.X[start:end] for start, end in zip(starts, ends, strict=True)]
        if not pieces:
            return np.empty((0, self.features), np.float32)
        return np.concatenate(pieces, out=out)

    def _numbers(self) -> Ints:
        """The table's numbers of the queries."""
        numbers: Ints = np.arange(self._table.query_ids.size)[self._chosen]
        return numbers

    def in_source_order(self, values: Any) -> npt.NDArray[Any]:
        """Reorder one value per document, such as scores, to the order of the source.

        Parameters
        ----------
        values : array, shape (n_documents, ...)
            Values in the order of this dataset, which must not be a selection.
        """
        array = self._one_per_document(values)
        if not isinstance(self._chosen, slice):
            raise InputError("A selection has no source order; use the whole dataset.")
        if self._table.rows is None:
            return array
        ordered = np.empty_like(array)
        ordered[self._table.rows] = array
        return ordered

    def from_source_order(self, values: Any) -> npt.NDArray[Any]:
        """Reorder one value per row of the source to the order of this dataset.

        Parameters
        ----------
        values : array, shape (n_documents, ...)
            Values in the order of the source, which `in_source_order` gives back.
        """
        places = self.in_source_order(np.arange(self.documents))
        return self._one_per_document(values)[np.argsort(places)]

    def select(self, queries: Any) -> "Dataset":
        """Select queries, in the given order.

        Parameters
        ----------
        queries : array of int, array of bool or slice
            Numbers of queries, or a mask with one entry per query.
        """
        if not isinstance(queries, slice):
            queries = to_numpy(queries)
            queries = queries.astype(np.int64) if queries.size == 0 else queries
        try:
            numbers = self._numbers()[queries]
        except IndexError as error:
            raise InputError(f"select: {error}; there are {self.queries:,} queries.") from error
        if numbers.ndim != 1:
            raise InputError(
                f"select takes a one-dimensional array of query numbers, not shape {numbers.shape}."
            )
        return Dataset(self._table, self.name, numbers)

    def filter(
        self, *, min_documents: int = 1, min_relevant: int = 0, relevant: float = 1
    ) -> "Dataset":
        """Select the queries with enough documents and enough relevant documents.

        Parameters
        ----------
        min_documents : int, default 1
            The least number of documents.
        min_relevant : int, default 0
            The least number of relevant documents.
        relevant : float, default 1
            The lowest label that counts as relevant.
        """
        hits = self.lists.sum((self.y >= relevant).astype(np.float64))
        return self.select((self.lists.sizes >= min_documents) & (hits >= min_relevant))

    def split(self, *shares: float, random_state: int = 0) -> "list[Dataset]":
        """Split the queries at random into parts.

        Parameters
        ----------
        *shares : float
            The share of the queries in each part. The remaining queries form one more part.
        random_state : int, default 0
            The seed.

        Examples
        --------
        >>> data = Dataset.from_arrays(np.zeros((10, 1)), np.zeros(10), group=[1] * 10)
        >>> [part.queries for part in data.split(0.6, 0.2)]
        [6, 2, 2]
        """
        return [self.select(part) for part in cut(self.queries, shares, random_state)]

    def folds(self, k: int = 5, *, random_state: int = 0) -> list[Fold]:
        """Create k folds by query: part i tests, part i + 1 validates, the other parts train.

        Parameters
        ----------
        k : int, default 5
            The number of folds, at least 3.
        random_state : int, default 0
            The seed of the random assignment of queries to parts.
        """

        def parts(train: Ints, validation: Ints, test: Ints) -> "tuple[Dataset, Dataset, Dataset]":
            return self.select(train), self.select(validation), self.select(test)

        numbers = rotate(self.queries, k, random_state)
        return [Fold(f"Fold{i + 1}", partial(parts, *fold)) for i, fold in enumerate(numbers)]

    def batches(
        self,
        documents: int,
        *,
        random_state: int | None = None,
        transform: "Transform | None" = None,
        ahead: int = 2,
        keep: int = 0,
    ) -> Batches:
        """Create batches of whole queries; iterate over them with `batches.epoch(number)`.

        Parameters
        ----------
        documents : int
            The most documents in a batch. A query with more documents is a batch of its own.
        random_state : int, optional
            Seed for shuffling the queries in each epoch. By default they keep their order.
        transform : Transform, optional
            A fitted transform that is applied to each batch.
        ahead : int, default 2
            How many batches a thread prepares in advance.
        keep : int, default 0
            Keep all transformed features for later epochs if they need at most this many bytes.
        """
        return Batches(
            self, documents, random_state=random_state, transform=transform, ahead=ahead, keep=keep
        )

    def save(self, path: "str | Path") -> None:
        """Write the data to a file or folder; `twinrank.load` reads back exactly the same data.

        Parameters
        ----------
        path : path
            The suffix selects the format: `.csv`, `.tsv`, `.parquet`, `.feather`, LETOR text
            (`.txt`), or a folder if there is no suffix. Text may be compressed: `train.txt.gz`.

        Raises
        ------
        InputError
            If the format cannot represent the data, such as query ids with spaces in LETOR text.
        """
        from twinrank.data.saving import save

        save(self, path)

    @cached_property
    def summary(self) -> "Summary":
        """Statistics of the data, computed in one pass over the features."""
        from twinrank.data.summary import summarise

        return summarise(self)

    def __repr__(self) -> str:
        counts = ((self.queries, "query"), (self.documents, "document"), (self.features, "feature"))
        return f"Dataset({', '.join(counted(*count) for count in counts)})"

    def __str__(self) -> str:
        return str(self.summary)

    def _one_per_document(self, values: Any) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = to_numpy(values)
        if array.shape[:1] != (self.documents,):
            raise InputError(
                f"values has shape {array.shape} but the dataset has {self.documents} documents; "
                f"pass one value per document."
            )
        return array


def with_labels(data: Dataset, labels: npt.NDArray[Any]) -> Dataset:
    """Return the queries of a dataset with other labels, in the dataset's order."""
    own = with_features(data, data.X, data.feature_names, data.categories)
    single = np.asarray(labels, np.float32)
    return Dataset(replace(own._table, y=single, labels={}), data.name)


def with_features(
    data: Dataset,
    X: npt.NDArray[Any],
    names: Sequence[str] | None,
    categories: Categories | None = None,
) -> Dataset:
    """Return the queries of a dataset with other features, in the dataset's order."""
    table = Table(
        X=np.ascontiguousarray(X, np.float32),
        y=data.y,
        lists=data.lists,
        query_ids=data.query_ids,
        weights=data.weights,
        row_weights=data.row_weights,
        comments=data.comments,
        feature_names=None if names is None else tuple(names),
        notes=data._table.notes,
        categories=dict(categories or {}),
        labels=data.labels,
        from_clicks=data.from_clicks,
    )
    return Dataset(table, data.name)


def with_row_weights(data: Dataset, rows: npt.NDArray[np.float64]) -> Dataset:
    """Return the queries of a dataset with weights of rows, in the dataset's order."""
    whole = isinstance(data._chosen, slice)
    own = data if whole else with_features(data, data.X, data.feature_names, data.categories)
    weights = query_and_document_weights(rows, data.lists)[0]
    return Dataset(replace(own._table, weights=weights, row_weights=rows), data.name)
