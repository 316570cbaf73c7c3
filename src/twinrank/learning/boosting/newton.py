"""The gradient and a positive diagonal hessian of a measure, for boosting."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.core.measures import Measure, MeasureSum
from twinrank.core.measures import measure as as_measure
from twinrank.core.measures.dcg import DCG, NDCG
from twinrank.core.measures.variety import VarietyMeasure
from twinrank.core.ranks.exact import check_finite, check_perturbation
from twinrank.core.ranks.kernels.curvature import curved_pair_sum
from twinrank.core.ranks.sorted_ranks import RANDOM, counters, rank_by_counting, rank_by_sorting
from twinrank.core.ranks.strategies import Strategy, as_strategy
from twinrank.support.arrays import to_numpy
from twinrank.support.compiled import in_threads, spans
from twinrank.support.errors import InputError, needing_torch

Floats = npt.NDArray[np.float32]

PERTURBATION, SAMPLES = 2.0, 5
"""The defaults of the functions for the engines; those of `BoostedRanker` are the same."""

FLOOR = 1e-3
"""Added to every hessian; the mean hessian is 1."""

_BY_LABEL = (DCG, NDCG)
_BLOCK = 1 << 16  # documents × samples that are ranked together and stay in the cache


@dataclass(frozen=True)
class Newton:
    """Gradient and hessian of L = −Σ_q w_q · M_q, for a measure M, at the scores of a round.

    The gradient is that of `DirectLoss` with α = 1 (for trees, α merely rescales the scores): ranks
    are those of scores + τ·Gumbel noise, g_i = ∂L/∂rank_i is averaged over S such orders, and one
    pass over the pairs turns it into ∂L/∂score_a. The hessian is the positive diagonal that
    `core/ranks/kernels/curvature.py` derives, with K(x) = σ(x)·(1 − σ(x)) and u_aj = sign(label_a −
    label_j):

        type1   Σ_j |g_j − g_a| · K(y_aj)               a bound: the bells' own slopes change sign
        type2   Σ_j |g_a + g_j| · |u_aj| · K(y_aj)      a bound, likewise
        type3   2 Σ_j |g_a + g_j| · |u_aj| · K(y_aj)    the diagonal itself, where g ≥ 0
        swap    Σ_j |ΔM_aj| · |u_aj| · K(y_aj)          the diagonal itself

    (swap has no g: a pair is weighted by the change of the measure if it swapped places.)

    Scale. The value of a leaf, −ΣG/ΣH, does not change if both are multiplied by a number, but its
    regularisation does: LightGBM's min_sum_hessian_in_leaf, XGBoost's lambda and min_child_weight.
    So both are divided by the mean hessian of the round. These settings then mean the same as for
    squared errors, for any measure, list length and unit of weights. `FLOOR` is added to the
    hessian, so that leaves of documents without a gradient have a value.

    Noise. It depends on `random_state` and the scores alone. Every round has fresh noise, since
    every tree changes the scores, and a resumed training has the same noise.

    Ensembles. Each model has its own number, `model`, and so its own noise.
    """

    measure: Measure
    strategy: Strategy = "type3"
    perturbation: float = PERTURBATION
    samples: int = SAMPLES
    random_state: int = 0
    model: int = 0
    """The number of the model in an ensemble."""
    labels: Any = field(default=None, repr=False, compare=False)
    """For a sum of measures, and for weights of documents: the labels of all documents, which
    replace those of the engine."""
    add_parts: Callable[[list[float]], list[float]] = field(default=list, repr=False, compare=False)
    """Adds up values over the workers of a cluster, which must divide by the same mean hessian."""

    @classmethod
    def of(
        cls,
        measure: str | Measure,
        strategy: str = "type3",
        perturbation: float = PERTURBATION,
        samples: int = SAMPLES,
        random_state: int = 0,
    ) -> "Newton":
        """Check the values, and look up names."""
        check_perturbation(perturbation, samples)
        whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
        if not whole or not 0 <= random_state < 2**63:
            raise InputError(
                f"random_state must be a whole number ≥ 0 and below 2^63, not {random_state!r}."
            )
        resolved, checked = as_measure(measure), as_strategy(strategy)
        resolved.check_strategy(checked)
        return cls(resolved, checked, perturbation, samples, int(random_state))

    def __call__(
        self, scores: Any, labels: Any, lists: Lists, weights: Any = None, queries: Any = None
    ) -> tuple[Floats, Floats]:
        """Gradient and hessian of every document, given a weight per list or None.

        `queries` are the numbers of the lists that count, in ascending order; None for all.
        """
        labels = labels if self.labels is None else self.labels
        if queries is not None:
            return self._of_queries(scores, labels, lists, weights, queries)
        gradient, hessian = self.sums(scores, labels, lists, weights)
        total, count = self.add_parts([float(hessian.sum(dtype=np.float64)), hessian.size])
        mean = total / count if count else 0.0
        scale = np.float32(1 / mean if mean > 0 else 1.0)
        gradient *= scale
        hessian *= scale
        hessian += np.float32(FLOOR)
        return gradient, hessian

    def _of_queries(
        self, scores: Any, labels: Any, lists: Lists, weights: Any, queries: Any
    ) -> tuple[Floats, Floats]:
        """As if there were no other queries, which get zeros: they change no tree."""
        drawn = np.zeros(len(lists), np.bool_)
        drawn[queries] = True
        documents = lists.spread(drawn)
        own = None if weights is None else np.asarray(weights)[drawn]
        gradient, hessian = np.zeros((2, lists.documents), np.float32)
        gradient[documents], hessian[documents] = replace(self, labels=None)(
            np.asarray(scores)[documents],
            np.asarray(labels)[documents],
            Lists.from_sizes(lists.sizes[drawn]),
            own,
        )
        return gradient, hessian

    def sums(
        self, scores: Any, labels: Any, lists: Lists, weights: Any = None
    ) -> tuple[Floats, Floats]:
        """Gradient and hessian before they are scaled."""
        lists.check(scores=scores, labels=labels if labels.ndim == 1 else labels[:, 0])
        check_finite("scores", scores, lists)
        check_finite("labels", labels, lists)
        with np.errstate(over="ignore"):
            y = np.ascontiguousarray(scores, np.float32)
        if np.isinf(y).any():
            raise InputError("Scores are too large for float32. Lower the learning rate.")
        grades = np.maximum(np.asarray(labels, np.float64), 0)  # unjudged documents count as 0
        factor = 1 if weights is None else lists.spread(np.asarray(weights, np.float32))
        if self.strategy == "swap":
            gradient, hessian = self._swap_sums(y, grades, lists)
            return gradient * factor, hessian * factor
        measure = self.measure
        if isinstance(measure, MeasureSum):
            measure, grades = measure.prepared(grades, lists)
        g = replace(self, measure=measure).rank_gradient(y, grades, lists) * factor
        if isinstance(measure, MeasureSum | VarietyMeasure):
            grades = measure.order(grades, lists)
        return curved_pair_sum(y, grades, g, lists, strategy=self.strategy)

    def rank_gradient(self, scores: Floats, labels: Any, lists: Lists) -> Floats:
        """∂L/∂rank of every document, for weights of 1."""
        result = np.empty(lists.documents, np.float32)

        def work(docs: slice, part: Lists, ranks: Any) -> None:
            result[docs] = self._of_block(ranks, labels[docs], part)

        self._ranked(scores, lists, work)
        return result

    def _swap_sums(self, scores: Floats, labels: Any, lists: Lists) -> tuple[Floats, Floats]:
        """Gradient and hessian of `strategy="swap"`."""
        gradient, hessian = np.empty_like(scores), np.empty_like(scores)

        def work(docs: slice, part: Lists, ranks: Any) -> None:
            gradient[docs], hessian[docs] = self.measure.swap_gradient(
                scores[docs], ranks, labels[docs], part, parallel=False
            )

        self._ranked(scores, lists, work)
        return gradient, hessian

    def _ranked(
        self, scores: Floats, lists: Lists, work: Callable[[slice, Lists, Any], None]
    ) -> None:
        """Rank blocks of lists S times, on several threads: work(documents, lists, their ranks)."""
        seed = zlib.crc32(scores.tobytes())
        blocks = _blocks(lists, self.samples)

        def run(start: int, stop: int) -> None:
            for first, last in blocks[start:stop]:
                docs = slice(int(lists.offsets[first]), int(lists.offsets[last]))
                part = Lists(lists.offsets[first : last + 1] - lists.offsets[first])
                generator = np.random.default_rng([self.random_state, seed, first, self.model])
                work(docs, part, self._ranks_of(scores[docs], part, generator))

        in_threads(run, spans(np.ones(len(blocks), np.int64), per_thread=1))

    def _ranks_of(self, scores: Floats, lists: Lists, generator: Any) -> Any:
        """S rankings of a block, one after the other."""
        several = np.tile(scores, self.samples)
        if self.perturbation:
            # Minus the logarithm of an exponential number is a Gumbel number, and far cheaper.
            noise = generator.standard_exponential(several.size, np.float32)
            with np.errstate(divide="ignore"):
                np.log(noise, out=noise)
            noise *= np.float32(self.perturbation)
            several -= noise
        return _ranks(several, lists.tile(self.samples), generator)

    def _of_block(self, ranks: Any, labels: Any, lists: Lists) -> Any:
        """∂L/∂rank of a block, averaged over its rankings."""
        slopes, filled = self._slopes(self.measure, ranks, labels, lists)
        return slopes * lists.spread(filled / -self.samples)

    def _steps(self, measure: Measure, ranks: Any, lists: Lists) -> Any:
        """The slope of the discount at each rank, summed over the rankings."""
        table = np.concatenate([[0.0], measure.slope(np.arange(1.0, lists.longest + 1))])
        if measure.cutoff is not None:
            table[measure.cutoff + 1 :] = 0.0
        return table[ranks.astype(np.intp)].reshape(-1, lists.documents).sum(0)

    def _slopes(self, measure: Measure, ranks: Any, labels: Any, lists: Lists) -> tuple[Any, Any]:
        """∂M/∂rank of a block, summed over its rankings, and which lists count."""
        if isinstance(measure, MeasureSum):  # all terms have the same ranks
            terms = [
                (g.weight, *self._slopes(g.measure, ranks, measure.column(labels, g), lists))
                for g in measure.loose
            ]
            terms += [
                (1.0, credit * self._steps(own, ranks, lists), lists.any(credit > 0))
                for own, credit in measure.fixed_credits(labels)
            ]
            total = sum(weight * slopes for weight, slopes, _ in terms)
            return total, np.logical_or.reduce([filled for *_, filled in terms])
        if type(measure) in _BY_LABEL:  # the credit is the same in any order
            credit = measure.credit(labels, lists)
            return credit * self._steps(measure, ranks, lists), lists.any(measure.relevant(labels))
        if not measure.on_any_array:  # a user's may be written with torch functions
            with needing_torch("Training on a measure of your own"):
                import torch
            ranks, labels = torch.from_numpy(ranks), torch.from_numpy(labels)
        times = lists.tile(self.samples)
        _, slopes, filled = measure.at_ranks(ranks, labels, times, gradient=True)
        summed = to_numpy(slopes).reshape(self.samples, -1).sum(0)
        return summed, to_numpy(filled)[: len(lists)]


def _ranks(scores: Floats, lists: Lists, generator: Any) -> Any:
    """`exact_ranks` on this thread: blocks have threads already."""
    ranks, done = np.empty_like(scores), np.empty(len(lists), np.bool_)
    rank_by_counting(0, len(lists), scores, lists.offsets, counters(scores), ranks, done)
    if not done.all():
        seed = int(generator.integers(2**62))
        rank_by_sorting(0, len(lists), scores, lists.offsets, RANDOM, seed, ranks, done)
    return ranks


def _blocks(lists: Lists, samples: int) -> list[tuple[int, int]]:
    """Ranges of lists with up to `_BLOCK` documents × samples, or of one list."""
    blocks, start = [], 0
    while start < len(lists):
        reach = lists.offsets[start] + _BLOCK // samples
        end = int(np.searchsorted(lists.offsets, reach, side="right")) - 1
        end = min(max(end, start + 1), len(lists))
        blocks.append((start, end))
        start = end
    return blocks
