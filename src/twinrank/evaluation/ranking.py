"""Documents in rank order: all of them, or only the first of every list."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.conventions import Ties
from twinrank.lists import Lists
from twinrank.ranks.exact import exact_ranks
from twinrank.support import random
from twinrank.support.arrays import as_float
from twinrank.support.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_LARGEST = float(np.finfo(np.float32).max)
_PER_THREAD = 1 << 16


@dataclass(frozen=True)
class Ranking:
    """Scores, and what orders equal ones."""

    scores: Any
    lists: Lists
    ties: Ties
    ids: Any = None
    random_state: int = 0

    @classmethod
    def of(cls, scores: Any, lists: Lists, ties: Ties, docids: Any, random_state: int) -> "Ranking":
        """A ranking in the precision in which scores are compared: trec_eval's is float32."""
        if ties != "docid":
            small = scores.dtype in (np.float16, np.float32)
            scores = np.ascontiguousarray(scores, np.float32 if small else np.float64)
            return cls(scores, lists, ties, None, random_state)
        if docids is None:
            raise InputError("ties by document id need docids=, one per document")
        ids = np.asarray(docids)
        lists.check(docids=ids)
        return cls(_as_float32(scores), lists, ties, ids)

    def in_order(self, labels: Any) -> Floats:
        """Labels in rank order."""
        if self.ties == "docid":
            return as_float(labels[self._by_name()])  # type: ignore[no-any-return]
        return self.lists.arrange(labels, self._ranks)  # type: ignore[no-any-return]

    def mean_over_ties(self) -> Callable[[slice], Callable[[Any], Any]] | None:
        """What averages over runs of equal scores within some rows, if ties are averaged."""
        if self.ties != "average":
            return None
        runs = self._runs()
        return lambda rows: _mean_over(runs, rows)

    def best(self, k: int) -> tuple[Ints, Lists]:
        """The first k documents of every list, the best first, and the lists that they make."""
        from twinrank.evaluation.selecting import select
        from twinrank.support.compiled import in_threads, spans

        top = Lists.from_sizes(self.lists.sizes.clip(max=k))
        chosen, tied = np.empty(top.documents, np.int64), np.zeros(len(top), np.bool_)
        seed = random.draw_seed(np.random.default_rng(self.random_state), self.scores)
        # One kind of array to compile for.
        scores = self.scores if self.scores.flags.writeable else self.scores.copy()
        shared: tuple[Any, ...] = (scores, self.lists.offsets, self.ties == "random", seed)
        ranges = spans(self.lists.sizes, _PER_THREAD)
        in_threads(select, ranges, *shared, top.offsets, chosen, tied)
        if self.ties == "docid" and tied.any():  # order these by name
            where = np.flatnonzero(self.lists.spread(tied))
            lists = Lists.from_sizes(self.lists.sizes[tied])
            order = Ranking(self.scores[where], lists, "docid", self.ids[where])._by_name()
            chosen[top.spread(tied)] = where[order[lists.positions(order) <= k]]
        return chosen, top

    @cached_property
    def _ranks(self) -> Any:
        how = "random" if self.ties == "random" else "stable"
        generator = np.random.default_rng(self.random_state)
        return exact_ranks(self.scores, self.lists, ties=how, generator=generator)  # type: ignore[arg-type]

    def _by_name(self) -> Ints:
        """Which document is at each place, equal scores by name, the last name first."""
        order = self.lists.arrange(np.arange(self.lists.documents), self._ranks).astype(np.int64)
        starts = self._runs()
        sizes = np.diff(np.append(starts, self.lists.documents))
        tied = np.flatnonzero(np.repeat(sizes > 1, sizes))
        run = np.repeat(np.arange(starts.size), sizes)[tied]
        by_name = np.argsort(self.ids[order[tied]].astype(np.str_), kind="stable")[::-1]
        by_run = by_name[np.argsort(run[by_name], kind="stable")]
        order[tied] = order[tied[by_run]]
        return order  # type: ignore[no-any-return]

    def _runs(self) -> Ints:
        """Where, in rank order, runs of equal scores begin."""
        in_order = self.lists.arrange(self.scores, self._ranks)
        new = np.ones(self.lists.documents, np.bool_)
        new[1:] = in_order[1:] != in_order[:-1]
        new[self.lists.offsets[:-1][self.lists.sizes > 0]] = True
        return np.flatnonzero(new)


def _as_float32(scores: Any) -> npt.NDArray[np.float32]:
    """Scores in single precision; finite ones stay finite."""
    scores = as_float(scores)
    if max(scores.max(initial=0), -scores.min(initial=0)) > _LARGEST:
        within = np.clip(scores, -_LARGEST, _LARGEST)
        scores = np.where(np.isfinite(scores), within, scores)
    single: npt.NDArray[np.float32] = scores.astype(np.float32)
    return single


def _mean_over(runs: Ints, rows: slice) -> Callable[[Any], Any]:
    first, last = np.searchsorted(runs, [rows.start, rows.stop])
    starts = runs[first:last] - rows.start
    sizes = np.diff(np.append(starts, rows.stop - rows.start))
    return lambda x: np.repeat(np.add.reduceat(x, starts) / sizes, sizes)
