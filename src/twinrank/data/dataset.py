"""The dataset object: documents with features and labels, query by query."""

import zlib
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.array_source import table_from_arrays
from twinrank.data.batches import Batches
from twinrank.data.folds import Fold, cut, rotate
from twinrank.data.table import (
    MAX_FEATURES,
    Floats,
    Ints,
    ReadOptions,
    Table,
    Texts,
    docid_in,
    several,
)
from twinrank.lists import Lists
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError
from twinrank.support.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from twinrank.data.summary import Summary

_LOOKED_AT = 1 << 22  # feature values at most


class Dataset:
    """Documents with features and labels, query by query.

    Made by `twinrank.load`, `Dataset.from_arrays` or `Dataset.from_frame`. Selecting, filtering and
    splitting go by query and give another Dataset on the same memory: features are copied only when
    `X` is asked for and the queries chosen aren't neighbours.

    >>> data = Dataset.from_arrays([[0.1], [0.2], [0.3]], [0, 1, 2], qid=["a", "a", "b"])
    >>> data
    Dataset(2 queries, 3 documents, 1 feature)
    >>> data.select([1]).y
    array([2.], dtype=float32)
    """

    def __init__(self, table: Table, name: str = "", chosen: Ints | None = None) -> None:
        self.name = name
        self._table = table
        self._chosen = chosen  # numbers of the table's lists; None for all of them

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        docids: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        unjudged: str = "error",
        non_finite: str = "error",
    ) -> "Dataset":
        """A dataset from a matrix of features (dense, or scipy sparse), labels, and queries.

        Queries are given by `qid`, one id per document in any order, or by `group`, the number of
        documents of each query, one after the other. Rows of one query that are scattered are put
        together; `in_source_order` undoes that. Without y, every document is unjudged.
        `unjudged` and `non_finite` are as in `twinrank.load`.
        """
        return cls(
            table_from_arrays(
                X,
                y,
                qid=qid,
                group=group,
                docids=docids,
                feature_names=feature_names,
                unjudged=unjudged,
                non_finite=non_finite,
            )
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        query: str | int | None = None,
        label: str | int | None = None,
        docid: str | int | None = None,
        features: Sequence[str | int] | None = None,
        ignore: Sequence[str | int] = (),
        unjudged: str = "error",
        non_finite: str = "error",
        max_features: int = MAX_FEATURES,
    ) -> "Dataset":
        """A dataset from a frame: pandas, polars, pyarrow, anything that narwhals takes.

        Columns are chosen by name, as in `twinrank.load`, or guessed: `query`, `label` and `docid`
        each name one (`label=False`: there is none), `features` some, without which all the others
        are features but those in `ignore`. The other arguments are those of `twinrank.load` too.
        """
        from twinrank.data.frames import table_from_frame

        reading = ReadOptions(
            query=None if query is None else str(query),
            label=label if label is None or label is False else str(label),
            docid=None if docid is None else str(docid),
            features=None if features is None else several(features),
            ignore=several(ignore),
            unjudged=unjudged,
            non_finite=non_finite,
            max_features=max_features,
        )
        return cls(table_from_frame(frame, reading))

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self._table.lists.sizes.size if self._chosen is None else self._chosen.size

    @property
    def documents(self) -> int:
        """The number of documents."""
        return self.lists.documents

    @property
    def features(self) -> int:
        """The number of features."""
        return int(self._table.X.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, where the source has any."""
        return self._table.feature_names

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know about how the data was read."""
        return self._table.notes

    @cached_property
    def lists(self) -> Lists:
        """Which documents belong to which query."""
        lists = self._table.lists
        return lists if self._chosen is None else Lists.from_sizes(lists.sizes[self._chosen])

    @cached_property
    def X(self) -> Floats:  # noqa: N802
        """The features, float32, one row per document; a view or a memory map where possible."""
        if isinstance(self._rows, slice):
            return self._table.X[self._rows]
        return self.take(np.arange(self.queries))

    @cached_property
    def y(self) -> Floats:
        """The labels, float32; −1 where a document is unjudged and was kept."""
        labels: Floats = self._table.y[self._rows]
        return labels

    @cached_property
    def query_ids(self) -> npt.NDArray[Any]:
        """The id of every query."""
        ids = self._table.query_ids
        return ids if self._chosen is None else ids[self._chosen]

    @cached_property
    def qid(self) -> npt.NDArray[Any]:
        """The query id of every document."""
        return np.repeat(self.query_ids, self.lists.sizes)

    @cached_property
    def comments(self) -> Texts | None:
        """The comment of every document, where the source has any."""
        comments = self._table.comments
        return None if comments is None else comments.take(self._rows)

    @cached_property
    def docids(self) -> npt.NDArray[np.str_] | None:
        """The id of every document: what a comment calls `docid = …`, or else the whole comment."""
        if self.comments is None:
            return None
        return np.array([docid_in(text) for text in self.comments], np.str_)

    def take(self, queries: Ints, out: Floats | None = None) -> Floats:
        """Copy the features of some queries, by number, into one matrix."""
        queries = np.asarray(queries, np.int64)
        chosen = queries if self._chosen is None else self._chosen[queries]
        ends = self._table.lists.offsets[chosen + 1].tolist()
        starts = self._table.lists.offsets[chosen].tolist()
        pieces = [self._table.X[a:b] for a, b in zip(starts, ends, strict=True)]
        if not pieces:
            return np.empty((0, self.features), np.float32)
        return np.concatenate(pieces, out=out)

    def in_source_order(self, values: Any) -> npt.NDArray[Any]:
        """Put one value per document, such as scores, in the order that the source had."""
        given: npt.NDArray[Any] = to_numpy(values)
        if given.shape[:1] != (self.documents,):
            raise InputError(
                f"values {given.shape} must have one entry for each of {self.documents} documents"
            )
        if self._chosen is not None:
            raise InputError("the source's order is that of the whole data set, not of a selection")
        if self._table.rows is None:
            return given
        ordered = np.empty_like(given)
        ordered[self._table.rows] = given
        return ordered

    def from_source_order(self, values: Any) -> npt.NDArray[Any]:
        """The inverse: put one value per document of the source in the order that is used here."""
        places = self.in_source_order(np.arange(self.documents))
        given: npt.NDArray[Any] = to_numpy(values)
        if given.shape[:1] != (self.documents,):
            raise InputError(
                f"values {given.shape} must have one entry for each of {self.documents} documents"
            )
        return given[np.argsort(places)]

    def select(self, queries: Any) -> "Dataset":
        """The queries with these numbers (or True in a mask, or in a slice), in that order."""
        numbers = np.arange(self.queries)
        if not isinstance(queries, slice):
            queries = to_numpy(queries)
            queries = queries.astype(np.int64) if queries.size == 0 else queries
        try:
            numbers = numbers[queries]
        except IndexError as error:
            raise InputError(f"select: {error}; there are {self.queries:,} queries") from error
        if numbers.ndim != 1:
            raise InputError(f"select takes numbers of queries, not shape {numbers.shape}")
        chosen = numbers if self._chosen is None else self._chosen[numbers]
        return Dataset(self._table, self.name, chosen)

    def filter(
        self, *, min_documents: int = 1, min_relevant: int = 0, relevant: float = 1
    ) -> "Dataset":
        """The queries with so many documents, and so many with at least the label `relevant`."""
        good = self.lists.sum((self.y >= relevant).astype(np.float64))
        return self.select((self.lists.sizes >= min_documents) & (good >= min_relevant))

    def split(self, *shares: float, random_state: int = 0) -> "list[Dataset]":
        """Cut the queries at random into parts; what the shares leave over is one part more.

        >>> data = Dataset.from_arrays(np.zeros((10, 1)), np.zeros(10), group=[1] * 10)
        >>> [part.queries for part in data.split(0.6, 0.2)]
        [6, 2, 2]
        """
        return [self.select(part) for part in cut(self.queries, shares, random_state)]

    def folds(self, k: int = 5, *, random_state: int = 0) -> list[Fold]:
        """k-fold cross-validation by query: part i tests, part i + 1 validates, the rest trains."""

        def parts(train: Ints, validation: Ints, test: Ints) -> "tuple[Dataset, Dataset, Dataset]":
            return self.select(train), self.select(validation), self.select(test)

        numbers = rotate(self.queries, k, random_state)
        return [Fold(f"Fold{i + 1}", partial(parts, *fold)) for i, fold in enumerate(numbers)]

    def batches(self, documents: int, **choices: Any) -> Batches:
        """Ragged batches of about so many documents; `Batches` has the choices."""
        return Batches(self, documents, **choices)

    def save(self, path: "str | Path") -> None:
        """Write the data: `.csv`, `.parquet`, `.feather`, LETOR text, or without suffix a folder.

        Text may be compressed: `train.txt.gz`. All forms keep everything, to the last bit; what a
        form can't hold, such as a query id with blanks in LETOR text, is refused.
        """
        from twinrank.data.saving import save

        save(self, path)

    @cached_property
    def summary(self) -> "Summary":
        """Facts and figures about the data, for people; takes one pass over the features."""
        from twinrank.data.summary import summarise

        return summarise(self)

    def __repr__(self) -> str:
        counts = ((self.queries, "query"), (self.documents, "document"), (self.features, "feature"))
        return f"Dataset({', '.join(counted(*count) for count in counts)})"

    def __str__(self) -> str:
        return str(self.summary)

    @cached_property
    def _rows(self) -> Any:
        """The table's rows that belong here: a slice where the lists chosen are neighbours."""
        if self._chosen is None:
            return slice(None)
        chosen, offsets = self._chosen, self._table.lists.offsets
        if chosen.size == 0:
            return slice(0, 0)
        if (np.diff(chosen) == 1).all():
            return slice(int(offsets[chosen[0]]), int(offsets[chosen[-1] + 1]))
        starts, sizes = offsets[chosen], self.lists.sizes
        return np.arange(self.documents) + np.repeat(starts - self.lists.offsets[:-1], sizes)


def fingerprint(data: Dataset) -> str:
    """Checksums of sizes, labels and features; of many, of those of queries evenly spread."""
    crc = zlib.crc32(data.y.tobytes(), zlib.crc32(data.lists.offsets.tobytes()))
    step = max(1, data.documents * data.features // _LOOKED_AT)
    crc = zlib.crc32(data.take(np.arange(0, data.queries, step)).tobytes(), crc)
    return f"{data.queries}-{data.features}-{crc:08x}"
