"""Ragged batches: whole queries up to a number of documents, large batches prepared in advance."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.data.transforms.transform_base import FeatureError, Transform
from twinrank.support.compiled import in_threads, spans
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_BLOCK = 1 << 22  # values of X in a block
_PER_THREAD = 200_000  # values; below that a second thread costs more than it saves


def blocks(data: "Dataset") -> list[npt.NDArray[np.int64]]:
    """Return blocks of adjacent query numbers for one pass over all features."""
    return Batches(data, max(_BLOCK // data.features, 1)).plan(0)


def rows_of(lists: Lists, queries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers of the documents of some queries, in the order of these queries."""
    sizes = lists.sizes[queries]
    starts = np.cumsum(sizes) - sizes
    rows: npt.NDArray[np.int64] = np.repeat(lists.offsets[queries] - starts, sizes)
    return rows + np.arange(rows.size)


@dataclass(frozen=True, eq=False)
class Batch:
    """The documents of some queries."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    lists: Lists
    queries: npt.NDArray[np.int64]  # their numbers in the dataset


class Batches:
    """The batches of a dataset, epoch by epoch: `for batch in batches.epoch(3)`.

    `Dataset.batches` documents the options. Shuffling depends only on `random_state` and the number
    of the epoch. A thread prepares batches in advance, unless they are cheap copies of kept ones.
    """

    def __init__(
        self,
        data: "Dataset",
        documents: int,
        *,
        random_state: int | None = None,
        transform: "Transform | None" = None,
        ahead: int = 2,
        keep: int = 0,
    ) -> None:
        if documents < 1:
            raise InputError(f"A batch needs one document or more, not {documents}.")
        if ahead < 0:
            raise InputError(f"ahead must be 0 or more, not {ahead}.")
        self._data = data
        self._budget = documents
        self._random_state = random_state
        self._transform = transform
        self._ahead = ahead
        self._kept: npt.NDArray[np.float32] | None = None
        self._columns = data.features
        if isinstance(transform, Transform):
            self._columns = transform.outputs(data.features)
        if transform is not None and data.documents * self._columns * 4 <= keep:
            self._kept = np.empty((data.documents, self._columns), np.float32)
            self._is_kept = np.zeros(data.queries, np.bool_)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Generator[Batch]:
        """Iterate over the batches of one epoch."""
        return self.made(self.plan(number))

    def made(self, plan: list[npt.NDArray[np.int64]]) -> Generator[Batch]:
        """Iterate over the batches of a plan, or of the rest of a plan."""
        # A thread does not help for one batch, nor for batches that cost less than the hand-over.
        if self._ahead == 0 or len(plan) == 1 or self._is_cheap():
            return (self._batch(queries) for queries in plan)
        return self._prefetched(plan)

    def _is_cheap(self) -> bool:
        """True if batches are copies of kept features, or small and about to be kept."""
        if self._kept is None:
            return False
        small = self._budget * self._columns < _PER_THREAD
        return small or bool(self._is_kept.all())

    def plan(self, number: int) -> list[npt.NDArray[np.int64]]:
        """Return the query numbers of each batch of an epoch."""
        order = np.flatnonzero(self._data.lists.sizes)  # queries without documents are left out
        if self._random_state is not None:
            order = np.random.default_rng([self._random_state, number]).permutation(order)
        starts, remaining = [], 0
        for i, size in enumerate(self._data.lists.sizes[order].tolist()):
            if size > remaining:
                starts.append(i)
                remaining = self._budget
            remaining -= size
        return np.split(order, starts[1:]) if order.size else []

    def _batch(self, queries: npt.NDArray[np.int64]) -> Batch:
        data = self._data
        lists = Lists.from_sizes(data.lists.sizes[queries])
        rows = rows_of(data.lists, queries)
        if self._kept is None:
            X = self._transformed(queries, lists)
        elif self._is_kept[queries].all():
            X = _copied_rows(self._kept, rows)
        else:
            X = self._transformed(queries, lists)
            self._kept[rows], self._is_kept[queries] = X, True
        return Batch(X, data.y[rows], lists, queries)

    def _transformed(self, queries: npt.NDArray[np.int64], lists: Lists) -> npt.NDArray[np.float32]:
        data = self._data
        X = data.take(queries)
        if self._transform is None:
            return X
        try:
            return self._transform(X, lists, out=X if self._columns == X.shape[1] else None)
        except FeatureError as error:
            raise error.named(data.query_ids[queries], data.feature_names) from None

    def _prefetched(self, plan: list[npt.NDArray[np.int64]]) -> Generator[Batch]:
        """Iterate over batches that a thread makes; it stops when the iterator is dropped."""
        pool = ThreadPoolExecutor(1, "twinrank-batches")
        waiting: deque[Future[Batch]] = deque()
        try:
            for queries in plan:
                waiting.append(pool.submit(self._batch, queries))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _copied_rows(
    X: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return X[rows], copied by all threads."""
    copies = np.empty((rows.size, X.shape[1]), X.dtype)

    def copy(start: int, stop: int) -> None:
        np.take(X, rows[start:stop], axis=0, out=copies[start:stop], mode="clip")

    in_threads(copy, spans(np.full(rows.size, X.shape[1]), per_thread=_PER_THREAD))
    return copies
