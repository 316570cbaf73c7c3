"""Ragged batches: whole queries up to a budget of documents, large ones prepared ahead of use."""

import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.transforms.transform_base import FeatureError
from twinrank.lists import Lists
from twinrank.support.compiled import in_threads, spans
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.data.transforms import Transform

_BLOCK = 1 << 22  # values of X that are looked at together
_WORTH_A_THREAD = 200_000  # values: fewer are handled sooner than handed over
_PATIENCE = 0.05  # seconds between looks at whether anybody still wants batches


def blocks(data: "Dataset") -> list[npt.NDArray[np.int64]]:
    """Numbers of neighbouring queries, block by block, for one pass over all features."""
    return Batches(data, max(_BLOCK // data.features, 1)).plan(0)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some queries' documents."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    lists: Lists
    queries: npt.NDArray[np.int64]  # their numbers in the dataset


class Batches:
    """The batches of a dataset, epoch by epoch: `for batch in batches.epoch(3)`.

    A batch holds whole queries with at most `documents` documents in all; a query that has more is
    a batch by itself. With a `random_state` the queries are shuffled, differently in every epoch
    and always the same for the same state and epoch; without, they come in order. A `transform`
    is applied to each batch. `ahead` batches are prepared by a thread while one is used, unless
    they are quickly made from what is kept.

    What a transform makes of a query is the same in every epoch. Where all of it takes at most
    `keep` bytes, it is kept.
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
            raise InputError(f"documents of a batch must be at least 1, not {documents}")
        if ahead < 0:
            raise InputError(f"ahead must not be negative: {ahead}")
        self._data = data
        self._budget = documents
        self._random_state = random_state
        self._transform = transform
        self._ahead = ahead
        self._kept: npt.NDArray[np.float32] | None = None
        if transform is not None and data.documents * data.features * 4 <= keep:
            self._kept = np.empty((data.documents, data.features), np.float32)
            self._done = np.zeros(data.queries, np.bool_)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Generator[Batch]:
        """The batches of one epoch."""
        return self.made(self.plan(number))

    def made(self, plan: list[npt.NDArray[np.int64]]) -> Generator[Batch]:
        """The batches of a plan, or of the rest of one."""
        # Nothing to be ahead of, or less work than what a thread beside the steps costs them.
        if self._ahead == 0 or len(plan) == 1 or self._quickly_made():
            return (self._batch(queries) for queries in plan)
        return self._prefetched(plan)

    def _quickly_made(self) -> bool:
        """Whether batches are copies of what is kept, or small ones that will be kept."""
        if self._kept is None:
            return False
        small = self._budget * self._data.features < _WORTH_A_THREAD
        return small or bool(self._done.all())

    def plan(self, number: int) -> list[npt.NDArray[np.int64]]:
        """The numbers of the queries in each batch of an epoch."""
        order = np.flatnonzero(self._data.lists.sizes)  # a query without documents trains nothing
        if self._random_state is not None:
            order = np.random.default_rng([self._random_state, number]).permutation(order)
        starts, room = [], 0
        for i, size in enumerate(self._data.lists.sizes[order].tolist()):
            if size > room:
                starts.append(i)
                room = self._budget
            room -= size
        return np.split(order, starts[1:]) if order.size else []

    def _batch(self, queries: npt.NDArray[np.int64]) -> Batch:
        data = self._data
        lists = Lists.from_sizes(data.lists.sizes[queries])
        starts = data.lists.offsets[queries]
        rows = np.arange(lists.documents) + np.repeat(starts - lists.offsets[:-1], lists.sizes)
        if self._kept is None:
            X = self._transformed(queries, lists)
        elif self._done[queries].all():
            X = _copied(self._kept, rows)
        else:
            X = self._transformed(queries, lists)
            self._kept[rows], self._done[queries] = X, True
        return Batch(X, data.y[rows], lists, queries)

    def _transformed(self, queries: npt.NDArray[np.int64], lists: Lists) -> npt.NDArray[np.float32]:
        data = self._data
        X = data.take(queries)
        if self._transform is None:
            return X
        try:
            return self._transform(X, lists, out=X)
        except FeatureError as error:
            raise error.named(data.query_ids[queries], data.feature_names) from None

    def _prefetched(self, plan: list[npt.NDArray[np.int64]]) -> Generator[Batch]:
        """Batches in their order, made by a thread that stops when the iterator is dropped."""
        ready: Queue[Batch | BaseException | None] = Queue(self._ahead)
        unwanted = threading.Event()

        def put(item: Any) -> None:
            while not unwanted.is_set():
                with suppress(Full):
                    ready.put(item, timeout=_PATIENCE)
                    break

        def work() -> None:
            try:
                for queries in plan:
                    if unwanted.is_set():
                        return
                    put(self._batch(queries))
                put(None)
            except BaseException as error:
                put(error)

        thread = threading.Thread(target=work, name="twinrank-batches", daemon=True)
        thread.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            unwanted.set()
            thread.join()  # a thread that still runs when Python ends can take the process down


def _copied(X: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """X[rows], by all threads."""
    found = np.empty((rows.size, X.shape[1]), X.dtype)

    def copy(start: int, stop: int) -> None:
        np.take(X, rows[start:stop], axis=0, out=found[start:stop], mode="clip")

    in_threads(copy, spans(np.full(rows.size, X.shape[1]), per_thread=_WORTH_A_THREAD))
    return found
