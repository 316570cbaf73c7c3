"""LambdaRank: RankNet's pairs, weighted by what swapping the two would do to nDCG."""

from typing import ClassVar

import numpy as np
import torch

from twinrank.lists import Lists
from twinrank.losses.ranking_loss import Reduction, SmoothLoss
from twinrank.measures.dcg import NDCG
from twinrank.ranks.exact import exact_ranks
from twinrank.ranks.twin import check_alpha
from twinrank.support.arrays import Array


class LambdaRank(SmoothLoss):
    """L = Σ_{label_i > label_j} |ΔnDCG@k_ij| · log(1 + e^{−σ(s_i − s_j)}).

    ΔnDCG@k_ij = (gain_i − gain_j) · (D(r_i) − D(r_j)) / idealDCG@k is what swapping i and j in the
    current ranking changes, with D(r) = 1 / log2(1 + r), and 0 for r > k; `k=None` is the whole
    list. The weights are constants of the ranking: the gradient is that of the logarithm alone.
    Tied scores are ranked in a random order.

    Burges, "From RankNet to LambdaRank to LambdaMART: an overview" (MSR-TR-2010-82). With the
    whole list this is allRank's `lambdaLoss(weighing_scheme="lambdaRank_scheme")` in natural
    logarithms; its k leaves out a pair unless *both* are among the first k. LightGBM's truncation
    leaves out a pair unless one of them is, but keeps D beyond k.

    >>> scores = torch.zeros(2, requires_grad=True)
    >>> round(LambdaRank()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    0.2558
    """

    name: ClassVar[str] = "LambdaRank"

    def __init__(
        self,
        sigma: float = 1.0,
        k: int | None = None,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator)
        check_alpha(sigma, "sigma")
        self.sigma = sigma
        self._ndcg = NDCG(cutoff=k)  # which refuses a k that isn't a whole number from 1 on
        self.k = k

    def extra_repr(self) -> str:
        """What distinguishes this loss when it is printed."""
        return f"sigma={self.sigma:g}" + ("" if self.k is None else f", k={self.k}")

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The weighted sum over pairs and its gradient."""
        from twinrank.ranks.kernels.lambdas import lambda_sums  # numba takes its time to load

        ranks = exact_ranks(scores, lists, generator=self.random_source())
        gains = self._ndcg.credit(labels, lists)  # that of nDCG is the same in any order
        discounts = self._ndcg.discount(np.arange(1.0, lists.longest + 1))[: self.k]
        return lambda_sums(scores, gains, ranks, lists, discounts, None, self.sigma)
