"""The heads of lists: all that a measure with a cutoff needs to know.

It asks for the order of the first k documents only. Of the others it asks how many there are of
each grade: for the number of relevant ones, and for the ideal order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.ranked import RankedLists
from twinrank.evaluation.ranking import Ranking
from twinrank.lists import Lists

Floats = npt.NDArray[np.float64]

_GRADES = 32
"""Labels that are whole numbers below this can be counted."""
_PER_THREAD = 1 << 16


@dataclass(frozen=True)
class Heads:
    """The first labels of every list, in rank order, and how often each grade occurs in all."""

    labels: Floats
    lists: Lists
    counts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, ranking: Ranking, labels: Floats, k: int) -> "Heads | None":
        """The heads of length k; None if the labels aren't grades."""
        from twinrank.evaluation.selecting import count_grades
        from twinrank.support.compiled import in_threads, spans

        grades = int(min(labels.max(initial=0), _GRADES - 1)) + 1
        counts = np.zeros((len(ranking.lists), grades), np.int32)
        ranges = spans(ranking.lists.sizes, _PER_THREAD)
        in_threads(count_grades, ranges, labels, ranking.lists.offsets, counts)
        if (counts[:, 0] < 0).any():
            return None
        chosen, lists = ranking.best(k)
        return cls(labels[chosen], lists, counts)

    def cut(self, k: int) -> tuple[Floats, RankedLists]:
        """Lists of their first k labels, and of one row for each grade among the others."""
        from twinrank.evaluation.selecting import count_rest, fill_in
        from twinrank.support.compiled import in_threads, spans

        ranges = spans(self.lists.sizes, _PER_THREAD)
        top, rest = self.lists.sizes.clip(max=k), self.counts.copy()
        rows = np.empty(len(self.lists), np.int64)
        in_threads(count_rest, ranges, self.labels, self.lists.offsets, top, rest, rows)
        offsets = np.append(0, np.cumsum(rows))
        labels, weights = np.empty(offsets[-1]), np.empty(offsets[-1])
        shared: tuple[Any, ...] = (self.labels, self.lists.offsets, top, rest, offsets)
        in_threads(fill_in, ranges, *shared, labels, weights)
        return labels, RankedLists(offsets, top, weights)
