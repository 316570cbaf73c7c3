"""The order of the documents of each list: all of them, or the first k only."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.core.ranks.exact import exact_ranks
from twinrank.evaluation.conventions import Ties
from twinrank.support import random
from twinrank.support.arrays import Floats, Ints, as_float
from twinrank.support.errors import Argument, InputError

_LARGEST = float(np.finfo(np.float32).max)
_PER_THREAD = 1 << 16


@dataclass(frozen=True)
class Ranking:
    """Scores, and the rule that orders equal scores."""

    scores: Any
    lists: Lists
    ties: Ties
    ids: Any = None
    random_state: int = 0

    @classmethod
    def of(cls, scores: Any, lists: Lists, ties: Ties, docids: Any, random_state: int) -> "Ranking":
        """A ranking by scores in the precision of the convention: trec_eval compares float32."""
        if ties != "docid":
            small = scores.dtype in (np.float16, np.float32)
            scores = np.ascontiguousarray(scores, np.float32 if small else np.float64)
            return cls(scores, lists, ties, None, random_state)
        if docids is None:
            raise InputError(
                Argument("ties", "docid"),
                " needs the id of each document; pass ",
                Argument("docids"),
                ".",
            )
        ids = np.asarray(docids)
        lists.check(docids=ids)
        return cls(_as_float32(scores), lists, ties, ids)

    def in_order(self, labels: Any) -> Floats:
        """Labels in rank order."""
        if self.ties == "docid":
            return as_float(labels[self._by_id()])  # type: ignore[no-any-return]
        return self.lists.arrange(labels, self._ranks)  # type: ignore[no-any-return]

    def mean_over_ties(self) -> Callable[[slice], Callable[[Any], Any]] | None:
        """A function that averages equal scores within some rows; None if ties are not averaged."""
        if self.ties != "average":
            return None
        runs = self._runs()
        return lambda rows: _mean_over(runs, rows)

    def best(self, k: int) -> tuple[Ints, Lists]:
        """The first k documents of every list, the best first, and their lists."""
        from twinrank.evaluation.topk import select
        from twinrank.support.compiled import in_threads, spans

        top = Lists.from_sizes(self.lists.sizes.clip(max=k))
        chosen, tied = np.empty(top.documents, np.int64), np.zeros(len(top), np.bool_)
        seed = random.draw_seed(np.random.default_rng(self.random_state), self.scores)
        # A read-only array would be a second type to compile for.
        scores = self.scores if self.scores.flags.writeable else self.scores.copy()
        shared: tuple[Any, ...] = (scores, self.lists.offsets, self.ties == "random", seed)
        ranges = spans(self.lists.sizes, _PER_THREAD)
        in_threads(select, ranges, *shared, top.offsets, chosen, tied)
        if self.ties == "docid" and tied.any():  # order these lists by id
            where = np.flatnonzero(self.lists.spread(tied))
            lists = Lists.from_sizes(self.lists.sizes[tied])
            order = Ranking(self.scores[where], lists, "docid", self.ids[where])._by_id()
            chosen[top.spread(tied)] = where[order[lists.positions(order) <= k]]
        return chosen, top

    @cached_property
    def _ranks(self) -> Any:
        ties: Literal["random", "stable"] = "random" if self.ties == "random" else "stable"
        generator = np.random.default_rng(self.random_state)
        return exact_ranks(self.scores, self.lists, ties=ties, generator=generator)

    def _by_id(self) -> Ints:
        """The document at each rank, equal scores in descending order of document id."""
        order = self.lists.arrange(np.arange(self.lists.documents), self._ranks).astype(np.int64)
        starts = self._runs()
        sizes = np.diff(np.append(starts, self.lists.documents))
        tied = np.flatnonzero(np.repeat(sizes > 1, sizes))
        run = np.repeat(np.arange(starts.size), sizes)[tied]
        by_id = np.argsort(self.ids[order[tied]].astype(np.str_), kind="stable")[::-1]
        by_run = by_id[np.argsort(run[by_id], kind="stable")]
        order[tied] = order[tied[by_run]]
        return order  # type: ignore[no-any-return]

    def _runs(self) -> Ints:
        """The positions in rank order at which runs of equal scores begin."""
        in_order = self.lists.arrange(self.scores, self._ranks)
        new = np.ones(self.lists.documents, np.bool_)
        new[1:] = in_order[1:] != in_order[:-1]
        new[self.lists.offsets[:-1][self.lists.sizes > 0]] = True
        return np.flatnonzero(new)


def _as_float32(scores: Any) -> npt.NDArray[np.float32]:
    """Scores in single precision; finite scores stay finite."""
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
