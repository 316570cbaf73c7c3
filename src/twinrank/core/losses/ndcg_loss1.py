"""NDCG-Loss1 of the LambdaLoss framework."""

import math
from typing import Any, ClassVar

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.losses.pairwise import LambdaRank
from twinrank.core.losses.ranking_loss import on_host
from twinrank.core.measures.measure_base import ranks_to
from twinrank.core.ranks.exact import exact_ranks
from twinrank.support.arrays import Array, as_float
from twinrank.support.compiled import compiled, in_threads, spans


class NDCGLoss1(LambdaRank):
    """NDCG-Loss1: each document against all others of its list, weighted by what it contributes.

    L = Σ_i G_i · D(r_i) · Σ_{j≠i} log2(1 + e^{−σ(s_i − s_j)}) with the gains
    G = (2^label − 1) / idealDCG@k, the current ranks r and D(r) = 1 / log2(1 + r), 0 for r > k.
    Other than in LambdaRank, documents of higher labels are among those that i should precede. The
    gradient treats the weights as constants. Tied scores are ranked in random order.

    Wang, Li, Golbandi, Bendersky & Najork, "The LambdaLoss framework for ranking metric
    optimization" (CIKM 2018). allRank's `lambdaLoss(weighing_scheme="ndcgLoss1_scheme")` is the
    same for one list plus the constant Σ_i G_i · D(r_i), the pairs of a document with itself.

    Parameters
    ----------
    sigma : float, default 1.0
        Steepness σ of the logistic loss.
    k : int, optional
        Cutoff of nDCG. Default: the whole list.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Orders tied scores. Default: torch's global generator.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> import torch
    >>> scores = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> round(NDCGLoss1()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    1.1954
    """

    name: ClassVar[str] = "NDCGLoss1"

    @on_host
    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The weighted sum over pairs and its gradient."""
        ranks = exact_ranks(scores, lists, generator=self.random_source())
        discounts = self._ndcg.discount(ranks_to(lists.longest, scores))
        discounts = lists.first(lists.by_position(discounts), self.k)
        gains = self._ndcg.credit(labels, lists)  # nDCG's does not depend on the order
        weights = gains * lists.restore(discounts, ranks)
        losses, slopes = np.zeros(lists.documents), np.zeros(lists.documents)
        ranges = spans(lists.sizes**2, 100_000)
        in_threads(
            _sums, ranges, lists.offsets, self.sigma, as_float(scores), weights, losses, slopes
        )
        return lists.sum(losses) / math.log(2), slopes / math.log(2)


@compiled
def _sums(
    start: int, stop: int, offsets: Any, sigma: float, s: Any, w: Any, losses: Any, slopes: Any
) -> None:
    """Lists start … stop − 1: w_i Σ_j log(1 + e^{−σ(s_i − s_j)}) of each i, and the gradient."""
    for q in range(start, stop):
        for i in range(offsets[q], offsets[q + 1]):
            if w[i] == 0.0:
                continue
            for j in range(offsets[q], offsets[q + 1]):
                ahead = sigma * (s[i] - s[j])
                near = math.exp(-abs(ahead))
                if j != i:
                    losses[i] += w[i] * (math.log1p(near) + max(-ahead, 0.0))
                    force = sigma * w[i] * (near if ahead > 0 else 1.0) / (1.0 + near)
                    slopes[i] -= force
                    slopes[j] += force
