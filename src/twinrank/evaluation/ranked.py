"""Lists in rank order, some of whose documents have no rank; what measures share is remembered."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.lists import Lists
from twinrank.lists.per_list import frozen
from twinrank.support.arrays import Array, is_tensor, namespace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class RankedLists(Lists):
    """Lists of which only the first `retrieved` documents have a rank.

    The others are known to the judgements alone: they count for what a measure is divided by, the
    ideal order or the number of relevant documents, and for nothing else.
    """

    __slots__ = ("_made", "retrieved", "weights")

    retrieved: Ints | None
    weights: Floats | None
    """How many documents a row without a rank stands for, where they are summarised by grade."""
    _made: dict[Any, Any]
    """What measures of one block ask for again and again, each with another cutoff."""

    def __init__(
        self, offsets: Ints, retrieved: Ints | None = None, weights: Floats | None = None
    ) -> None:
        super().__init__(offsets)
        if retrieved is not None and np.array_equal(retrieved, self.sizes):
            retrieved = weights = None
        object.__setattr__(self, "retrieved", retrieved)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "_made", {})

    def part(self, start: int, stop: int) -> "RankedLists":
        """The lists start … stop − 1."""
        offsets = self.offsets[start : stop + 1] - self.offsets[start]
        retrieved = None if self.retrieved is None else self.retrieved[start:stop]
        rows = slice(int(self.offsets[start]), int(self.offsets[stop]))
        return RankedLists(offsets, retrieved, None if self.weights is None else self.weights[rows])

    def ranks(self, k: int | None) -> tuple[Ints, Lists]:
        """How many documents of each list have a rank up to k; one list with all those ranks."""
        if ("ranks", k) not in self._made:
            ranked = self.sizes if self.retrieved is None else self.retrieved
            ranked = ranked if k is None else ranked.clip(max=k)
            self._made["ranks", k] = ranked, Lists.from_sizes([int(ranked.max(initial=0))])
        return self._made["ranks", k]  # type: ignore[no-any-return]

    def quiet(self) -> AbstractContextManager[Any]:
        """A share of nothing retrieved is 0 / 0, which has no rank and doesn't count."""
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
        """As in any Lists; which positions these are is remembered."""
        if k is None or is_tensor(x):
            return super().first(x, k)
        if ("first", k) not in self._made:
            self._made["first", k] = self.positions(x) <= k
        return np.where(self._made["first", k], x, 0.0)

    def by_position(self, table: Array) -> Array:
        """As in any Lists, but remembered: measures share their discounts."""
        if is_tensor(table):
            return super().by_position(table)
        key = table.tobytes()
        if key not in self._made:
            self._made[key] = frozen(super().by_position(table))
        return self._made[key]

    def sum(self, x: Array) -> Array:
        """Sum per list, a row as often as it counts."""
        if self.weights is None:
            return super().sum(x)
        from twinrank.evaluation.selecting import sum_weighted

        return sum_weighted(self._checked(x), self.weights, self.offsets)

    def sort(self, x: Array) -> Array:
        """As in any Lists, but the last result is remembered: measures ask for the same one."""
        if self._made.get("unsorted") is not x:
            self._made["unsorted"], self._made["sorted"] = x, self._sort(x)
        return self._made["sorted"]

    def _sort(self, x: Array) -> Array:
        if self.weights is None:
            return super().sort(x)
        from twinrank.evaluation.selecting import sort_weighted

        return sort_weighted(x, self.weights, self.offsets)
