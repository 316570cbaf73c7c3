"""Lists in rank order, cut into blocks that stay in the processor's cache."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.lists import Lists
from twinrank.lists.per_list import frozen
from twinrank.support.arrays import Array, is_tensor, namespace

Ints = npt.NDArray[np.int64]


class RankedLists(Lists):
    """Lists of which only the first `retrieved` documents have a rank.

    The others are known to the judgements alone: they count for what a measure is divided by, the
    ideal order or the number of relevant documents, and for nothing else.
    """

    __slots__ = ("_made", "retrieved")

    retrieved: Ints | None
    _made: dict[Any, Any]
    """What measures of one block ask for again and again, each with another cutoff."""

    def __init__(self, offsets: Ints, retrieved: Ints | None = None) -> None:
        super().__init__(offsets)
        if retrieved is not None and np.array_equal(retrieved, self.sizes):
            retrieved = None
        object.__setattr__(self, "retrieved", retrieved)
        object.__setattr__(self, "_made", {})

    def part(self, start: int, stop: int) -> "RankedLists":
        """The lists start … stop − 1."""
        offsets = self.offsets[start : stop + 1] - self.offsets[start]
        return RankedLists(offsets, None if self.retrieved is None else self.retrieved[start:stop])

    def top(self, k: int | None) -> tuple[Any, Lists]:
        """Which documents have a rank up to k, and the lists that they make."""
        if k is None and self.retrieved is None:
            return slice(None), self
        if ("top", k) not in self._made:
            sizes = self.sizes if self.retrieved is None else self.retrieved
            sizes = sizes if k is None else sizes.clip(max=k)
            top = Lists.from_sizes(sizes)
            rows = np.arange(top.documents) + top.spread(self.offsets[:-1] - top.offsets[:-1])
            self._made["top", k] = rows, top
        return self._made["top", k]  # type: ignore[no-any-return]

    def quiet(self) -> AbstractContextManager[Any]:
        """Where nothing was retrieved, a share of it is 0 / 0; it has no rank, and doesn't count."""
        if self.retrieved is None or self.retrieved.all():
            return nullcontext()
        return np.errstate(divide="ignore", invalid="ignore")

    def ranked(self, x: Array, k: int | None) -> Array:
        """Zeros beyond position k, and for documents without a rank."""
        x = self.first(x, k)
        if self.retrieved is None:
            return x
        limit = self.spread(np.asarray(self.retrieved, np.float64))
        return namespace(x).where(self.positions(x) <= limit, x, 0.0)

    def by_position(self, table: Array) -> Array:
        """As in any Lists, but remembered: measures share their discounts."""
        if is_tensor(table):
            return super().by_position(table)
        key = table.tobytes()
        if key not in self._made:
            self._made[key] = frozen(super().by_position(table))
        return self._made[key]

    def sort(self, x: Array) -> Array:
        """As in any Lists, but the last result is remembered: measures ask for the same one."""
        if self._made.get("unsorted") is not x:
            self._made["unsorted"], self._made["sorted"] = x, super().sort(x)
        return self._made["sorted"]
