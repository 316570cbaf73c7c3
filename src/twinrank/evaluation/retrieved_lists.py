"""Lists in rank order in which some judged documents were not retrieved and have no rank."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.lists.per_list import frozen
from twinrank.support.arrays import Array, Floats, Ints, is_tensor, namespace


class RetrievedLists(Lists):
    """Lists of which only the first `retrieved` documents have a rank.

    The other documents occur in the judgements only. They count in the divisor of a measure, that
    is in the ideal order or the number of relevant documents, and nowhere else. Intermediate
    results that several measures need are cached.
    """

    __slots__ = ("_cache", "retrieved", "weights")

    retrieved: Ints | None
    weights: Floats | None
    """The number of documents per row, where rows without a rank are summarised by grade."""
    _cache: dict[Any, Any]
    """Results that the measures of a block share."""

    def __init__(
        self, offsets: Ints, retrieved: Ints | None = None, weights: Floats | None = None
    ) -> None:
        super().__init__(offsets)
        if retrieved is not None and np.array_equal(retrieved, self.sizes):
            retrieved = weights = None
        object.__setattr__(self, "retrieved", retrieved)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "_cache", {})

    def part(self, start: int, stop: int) -> "RetrievedLists":
        """The lists start … stop − 1."""
        offsets = self.offsets[start : stop + 1] - self.offsets[start]
        retrieved = None if self.retrieved is None else self.retrieved[start:stop]
        rows = slice(int(self.offsets[start]), int(self.offsets[stop]))
        weights = None if self.weights is None else self.weights[rows]
        return RetrievedLists(offsets, retrieved, weights)

    def ranks(self, k: int | None) -> tuple[Ints, Lists]:
        """The number of documents of each list with a rank up to k; one list with these ranks."""
        if ("ranks", k) not in self._cache:
            ranked = self.sizes if self.retrieved is None else self.retrieved
            ranked = ranked if k is None else ranked.clip(max=k)
            self._cache["ranks", k] = ranked, Lists.from_sizes([int(ranked.max(initial=0))])
        return self._cache["ranks", k]  # type: ignore[no-any-return]

    def quiet(self) -> AbstractContextManager[Any]:
        """Ignore 0 / 0 in lists without retrieved documents; these values are not used."""
        if self.retrieved is None or self.retrieved.all():
            return nullcontext()
        return np.errstate(divide="ignore", invalid="ignore")

    def ranked(self, x: Array, k: int | None) -> Array:
        """Zeros beyond position k, and for documents without a rank."""
        x = self.first(x, k)
        if self.retrieved is None or (self.weights is not None and k is not None):
            return x  # rows that stand for several documents come after any cutoff
        limit = self.spread(np.asarray(self.retrieved, np.float64))
        return namespace(x).where(self.positions(x) <= limit, x, 0.0)

    def first(self, x: Array, k: int | None) -> Array:
        """As in `Lists`, with the positions cached."""
        if k is None or is_tensor(x):
            return super().first(x, k)
        if ("first", k) not in self._cache:
            self._cache["first", k] = self.positions(x) <= k
        return np.where(self._cache["first", k], x, 0.0)

    def by_position(self, table: Array) -> Array:
        """As in `Lists`, but cached: measures share their discounts."""
        if is_tensor(table):
            return super().by_position(table)
        key = table.tobytes()
        if key not in self._cache:
            self._cache[key] = frozen(super().by_position(table))
        return self._cache[key]

    def sum(self, x: Array) -> Array:
        """Sum per list, each row multiplied by its weight."""
        if self.weights is None:
            return super().sum(x)
        from twinrank.evaluation.topk import sum_weighted

        return sum_weighted(self._checked(x), self.weights, self.offsets)

    def sort(self, x: Array) -> Array:
        """As in `Lists`, with the last result cached: measures sort the same labels."""
        if self._cache.get("unsorted") is not x:
            self._cache["unsorted"], self._cache["sorted"] = x, self._sort(x)
        return self._cache["sorted"]

    def _sort(self, x: Array) -> Array:
        if self.weights is None:
            return super().sort(x)
        from twinrank.evaluation.topk import sort_weighted

        return sort_weighted(x, self.weights, self.offsets)
