"""Measures of variety: α-DCG, α-nDCG and ERR-IA over the sub-topics of a query.

Clarke, Kolla, Cormack, Vechtomova, Ashkan, Büttcher & MacKinnon, "Novelty and diversity in
information retrieval evaluation" (SIGIR 2008); Agrawal, Gollapudi, Halverson & Ieong, "Diversifying
search results" (WSDM 2009); Chapelle, Ji, Liao, Velipasaoglu, Lai & Wu, "Intent-based
diversification of web search results" (Information Retrieval 2011).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.measures.measure_base import Measure, shared
from twinrank.support.arrays import (
    Array,
    all_true,
    as_float,
    at_least_zero,
    is_tensor,
    namespace,
    to_numpy,
)
from twinrank.support.errors import InputError, check_number

MOST = 50
"""Sub-topics: a set of them is a whole number in double precision."""


@dataclass(frozen=True, kw_only=True)
class VarietyMeasure(Measure):
    """Σ_i discount(rank_i) · Σ_t βᶜ over the sub-topics t of document i, divided by a constant.

    c is the number of earlier documents with sub-topic t, and β = 1 − α.

    Parameters
    ----------
    subtopics : int, default 1
        What a label is: with 1, a label above 0 means that the document has the only sub-topic;
        else the label is a set of this many sub-topics, Σ 2^t. `label=[a, b]` of the notation
        makes these sets of columns of labels, one for each sub-topic.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    whole_lists: ClassVar[bool] = True
    subtopics: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(f"subtopics of {self.name}", self.subtopics, whole=True, least=1)
        if self.subtopics > MOST:
            raise InputError(f"{self.name} takes up to {MOST} sub-topics, not {self.subtopics}.")

    @property
    def beta(self) -> float:
        """The factor of a sub-topic for each earlier document that has it."""
        return 0.5

    @property
    def over_ideal(self) -> bool:
        """True if the divisor is the value of a greedy ideal order.

        Otherwise it is the value of a list whose documents have all sub-topics of the query.
        """
        return False

    def of_columns(self, columns: list[Array]) -> Array:
        """The sets of sub-topics of columns of labels; a label above 0 means that it has it."""
        return sum(as_float(column > 0) * 2.0**t for t, column in enumerate(columns))

    def sets(self, labels: Array) -> Array:
        """The sets of sub-topics of labels, as whole numbers."""
        if self.subtopics == 1:
            return as_float(labels > 0)
        sets = as_float(at_least_zero(labels))
        if not all_true((sets == namespace(sets).floor(sets)) & (sets < 2.0**self.subtopics)):
            raise InputError(
                f"A label of {self.name}(subtopics={self.subtopics}) is a set of sub-topics, a "
                f"whole number from 0 to {2**self.subtopics - 1}; the highest label is "
                f"{float(sets.max()):g}."
            )
        return sets

    def members(self, sets: Array) -> list[Array]:
        """1 for each document that has the sub-topic, for each sub-topic."""
        bits = sets.long() if is_tensor(sets) else sets.astype(np.int64)
        return [as_float(bits >> t & 1) for t in range(self.subtopics)]

    def credit(self, labels: Array, lists: Lists) -> Array:
        """Σ_t βᶜ over the document's sub-topics, over the divisor of the list."""
        sets = self.sets(labels)
        novelty = sum(m * self.beta ** (lists.cumsum(m) - m) for m in self.members(sets))
        return shared(novelty, self.divisor(sets, lists), lists)

    def divisor(self, sets: Array, lists: Lists) -> Array:
        """What the sum of each list is divided by; 0 for a list without sub-topics."""
        if self.over_ideal:
            from twinrank.core.ranks.kernels.subtopics import greedy_ideal

            table = self.table(lists)
            return greedy_ideal(lists.sort(sets), lists, self.subtopics, self.beta, table)
        count = sum(as_float(lists.any(m > 0)) for m in self.members(sets))
        if self.cutoff is not None:  # also beyond the end of a short list, as in ndeval
            ranks = np.arange(1.0, self.cutoff + 1)
            return count * float(np.sum(self.beta ** (ranks - 1) * self.discount(ranks)))
        position = lists.positions(sets)
        return count * lists.sum(self.beta ** (position - 1) * self.discounts(sets, lists))

    def table(self, lists: Lists) -> Any:
        """The discounts of ranks 1, 2, … up to the cutoff, for compiled loops."""
        last = lists.longest if self.cutoff is None else min(lists.longest, self.cutoff)
        return np.asarray(self.discount(np.arange(1.0, last + 1)))

    def relevant(self, labels: Array) -> Array:
        """Documents with a sub-topic."""
        return labels > 0

    def order(self, labels: Array, lists: Lists) -> Array:
        """What the strategies type2 and type3 compare: labels, or whether there is a sub-topic."""
        return labels if self.subtopics == 1 else as_float(labels > 0)

    def swap_gradient(
        self,
        scores: Array,
        ranks: Array,
        labels: Array,
        lists: Lists,
        alpha: float = 1.0,
        parallel: bool = True,
    ) -> tuple[Array, Array]:
        """Every pair pushed towards the better of its two orders; see `kernels/subtopics.py`."""
        from twinrank.core.ranks.kernels.subtopics import subtopic_swaps

        def plain(x: Array) -> Any:
            return to_numpy(x.cpu()) if is_tensor(x) else x

        y, sets = plain(scores), self.sets(plain(as_float(labels)))
        divisor = self.divisor(sets, lists)
        table = self.table(lists)
        discounts = np.concatenate([table, np.zeros(lists.longest - table.size)])
        gradient, curvature = subtopic_swaps(
            y, sets, plain(ranks), np.where(divisor > 0, 1 / np.where(divisor > 0, divisor, 1), 0),
            lists, self.subtopics, self.beta, discounts, alpha, parallel,
        )  # fmt: skip
        if not is_tensor(scores):
            return gradient, curvature
        import torch

        return torch.as_tensor(gradient).to(scores), torch.as_tensor(curvature).to(scores)


@dataclass(frozen=True, kw_only=True)
class AlphaDCG(VarietyMeasure):
    """α-DCG@k = Σ_{j≤k} Σ_t (1 − α)^c_jt / log2(1 + j), over that of documents with every t.

    t are the sub-topics of document j, and c_jt the number of earlier documents that have t. The
    divisor is the value of a list in which every document has all sub-topics of the query, as in
    ndeval.

    Parameters
    ----------
    alpha : float, default 0.5
        How much a sub-topic loses with each document that has it; at least 0 and below 1.
    subtopics : int, default 1
        The number of sub-topics in a label, a set Σ 2^t; `label=[a, b]` makes it of columns.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "alpha_DCG"
    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(f"alpha of {self.name}", self.alpha, least=0)
        if not self.alpha < 1:
            raise InputError(f"alpha of {self.name} must be below 1, not {self.alpha:g}.")

    @property
    def beta(self) -> float:
        """1 − α."""
        return 1.0 - self.alpha

    def discount(self, rank: Array) -> Array:
        """1 / log2(1 + r)."""
        return 1.0 / namespace(rank).log2(1.0 + rank)

    def slope(self, rank: Array) -> Array:
        """−1 / (ln 2 · (1 + r) · log2²(1 + r))."""
        return -1.0 / (math.log(2) * (1.0 + rank) * namespace(rank).log2(1.0 + rank) ** 2)


@dataclass(frozen=True, kw_only=True)
class AlphaNDCG(AlphaDCG):
    """α-nDCG@k = α-DCG@k / (α-DCG@k of a greedy ideal order).

    Parameters
    ----------
    alpha : float, default 0.5
        How much a sub-topic loses with each document that has it; at least 0 and below 1.
    subtopics : int, default 1
        The number of sub-topics in a label, a set Σ 2^t; `label=[a, b]` makes it of columns.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "alpha_nDCG"

    @property
    def over_ideal(self) -> bool:
        """True."""
        return True


@dataclass(frozen=True, kw_only=True)
class ERRIA(VarietyMeasure):
    """ERR-IA@k = Σ_{j≤k} Σ_t ½^c_jt / j, over that of documents with every t.

    t are the sub-topics of document j, and c_jt the number of earlier documents that have t. It is
    the mean of ERR over the sub-topics, for binary labels, divided by its highest value, as in
    ndeval. With graded labels or weights of sub-topics, write the sum of `ERR(label=…)` instead.

    Parameters
    ----------
    subtopics : int, default 1
        The number of sub-topics in a label, a set Σ 2^t; `label=[a, b]` makes it of columns.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "ERR_IA"

    def discount(self, rank: Array) -> Array:
        """1 / r."""
        return 1.0 / rank

    def slope(self, rank: Array) -> Array:
        """−1 / r²."""
        return -1.0 / rank**2


@dataclass(frozen=True, kw_only=True)
class NERRIA(ERRIA):
    """nERR-IA@k = ERR-IA@k / (ERR-IA@k of a greedy ideal order).

    Parameters
    ----------
    subtopics : int, default 1
        The number of sub-topics in a label, a set Σ 2^t; `label=[a, b]` makes it of columns.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "nERR_IA"

    @property
    def over_ideal(self) -> bool:
        """True."""
        return True
