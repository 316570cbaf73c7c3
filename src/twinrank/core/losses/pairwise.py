"""Logistic losses of pairs: RankNet, LambdaRank and LambdaLoss."""

import math
from typing import Any, ClassVar

import numpy as np
import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import GainLoss, Reduction, SmoothLoss, on_host
from twinrank.core.measures.dcg import NDCG
from twinrank.core.measures.measure_base import ranks_to, shared
from twinrank.core.ranks.exact import exact_ranks
from twinrank.core.ranks.kernels import pair_sum
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.compiled import compiled, in_threads, spans
from twinrank.support.errors import check_number


class RankNet(SmoothLoss):
    """Mean logistic loss of the pairs with different labels.

    L = mean over the pairs of a list with label_i > label_j of log(1 + e^{−σ(s_i − s_j)}). A mean
    gives a list of 1,000 documents the same weight as one of 10. The gradient is the pair sum of
    type3 with a constant ∂L/∂rank.

    Burges, Shaked, Renshaw, Lazier, Deeds, Hamilton & Hullender, "Learning to rank using gradient
    descent" (ICML 2005). For one list, allRank's `rankNet` and rax's `pairwise_logistic_loss` are
    the same; for a batch they take the mean over all pairs. ptranking's also counts pairs of equal
    labels.

    Parameters
    ----------
    sigma : float, default 1.0
        Steepness σ of the logistic loss.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Unused: this loss is not random.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.zeros(2, requires_grad=True)
    >>> round(RankNet()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    0.6931
    """

    name: ClassVar[str] = "RankNet"

    def __init__(
        self,
        sigma: float = 1.0,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("sigma", sigma)
        self.sigma = sigma

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The mean over pairs, and the pair sum."""
        from twinrank.core.ranks.kernels.logistic import logistic_sum

        total, pairs = logistic_sum(scores, labels, lists, self.sigma)
        share = 1.0 / namespace(pairs).where(pairs > 0, pairs, 1.0)
        # −2σ Σ_j (g_a + g_j) · u_aj · σ(…) with g = ¼ is the gradient of the sum.
        quarter = lists.spread(share / 4)
        slopes = pair_sum(scores, labels, quarter, lists, strategy="type3", alpha=self.sigma)
        return total * share, slopes

    @on_host
    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """The weighted mean over pairs; a pair has the weight of the more relevant document."""
        pairs, losses, slopes = np.zeros((3, lists.documents))
        arrays = (as_float(scores), labels, weights, pairs, losses, slopes)
        in_threads(
            _weighted_pairs, spans(lists.sizes**2, 100_000), lists.offsets, self.sigma, *arrays
        )
        total = lists.sum(pairs)
        share = shared(np.ones(lists.documents), total, lists)
        return lists.sum(losses * share), slopes * share


@compiled
def _weighted_pairs(
    start: int, stop: int, offsets: Any, sigma: float, s: Any, y: Any, w: Any, pairs: Any,
    losses: Any, slopes: Any,
) -> None:  # fmt: skip
    """Lists start … stop − 1: the weights of the pairs in which i is better, and their losses."""
    for q in range(start, stop):
        for i in range(offsets[q], offsets[q + 1]):
            for j in range(offsets[q], offsets[q + 1]):
                if w[i] > 0.0 and y[i] > y[j]:
                    ahead = sigma * (s[i] - s[j])
                    near = math.exp(-abs(ahead))
                    pairs[i] += w[i]
                    losses[i] += w[i] * (math.log1p(near) + max(-ahead, 0.0))
                    force = sigma * w[i] * (near if ahead > 0 else 1.0) / (1.0 + near)
                    slopes[i] -= force
                    slopes[j] += force


class LambdaRank(GainLoss):
    """The logistic loss of pairs, weighted by the change of nDCG@k if the two swapped places.

    L = Σ_{label_i > label_j} |ΔnDCG@k_ij| · log(1 + e^{−σ(s_i − s_j)}) with
    ΔnDCG@k_ij = (gain_i − gain_j) · (D(r_i) − D(r_j)) / idealDCG@k in the current ranking, where
    D(r) = 1 / log2(1 + r), and 0 for r > k. The gradient treats the weights as constants. Tied
    scores are ranked in random order.

    Burges, "From RankNet to LambdaRank to LambdaMART: an overview" (MSR-TR-2010-82). With the
    whole list, allRank's `lambdaLoss(weighing_scheme="lambdaRank_scheme")` is the same in natural
    logarithms; its k keeps a pair only if *both* documents are among the first k. LightGBM's
    truncation keeps a pair if one of them is, with D beyond k.

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
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("sigma", sigma)
        self.sigma = sigma
        self._ndcg = NDCG(cutoff=k)  # raises an error if k is not a whole number ≥ 1
        self.k = k

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The weighted sum over pairs and its gradient."""
        from twinrank.core.ranks.kernels.lambdas import lambda_sums

        ranks = exact_ranks(scores, lists, generator=self.random_source())
        gains = self._ndcg.credit(labels, lists)  # nDCG's does not depend on the order
        discounts = self._ndcg.discount(ranks_to(lists.longest, scores))[: self.k]
        return lambda_sums(scores, gains, ranks, lists, discounts, None, self.sigma)


class LambdaLoss(GainLoss):
    """NDCG-Loss2++: the logistic loss of pairs with two kinds of weights from the ranking.

    L = Σ_{label_i > label_j} (ρ_ij + µ·δ_ij) · |G_i − G_j| · log2(1 + e^{−σ(s_i − s_j)}) with the
    gains G = (2^label − 1) / idealDCG, the current ranks r and D(r) = 1 / log2(1 + r).
    ρ_ij = |D(r_i) − D(r_j)| are the weights of LambdaRank, and
    δ_ij = D(|r_i − r_j|) − D(|r_i − r_j| + 1) those of NDCG-Loss2. The gradient treats the weights
    as constants. Tied scores are ranked in random order.

    Wang, Li, Golbandi, Bendersky & Najork, "The LambdaLoss framework for ranking metric
    optimization" (CIKM 2018). allRank's `lambdaLoss(weighing_scheme="ndcgLoss2PP_scheme")` is the
    same for one list, except that it limits the loss of a pair to log2(10¹⁰).

    Parameters
    ----------
    sigma : float, default 1.0
        Steepness σ of the logistic loss.
    mu : float, default 10.0
        Weight µ of δ; the default is that of the paper.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Orders tied scores. Default: torch's global generator.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.zeros(2, requires_grad=True)
    >>> round(LambdaLoss()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    4.0598
    """

    name: ClassVar[str] = "LambdaLoss"

    def __init__(
        self,
        sigma: float = 1.0,
        mu: float = 10.0,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("sigma", sigma)
        check_number("mu", mu, least=0)
        self.sigma = sigma
        self.mu = mu

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The weighted sum over pairs and its gradient."""
        from twinrank.core.ranks.kernels.lambdas import lambda_sums

        ndcg = NDCG()
        ranks = exact_ranks(scores, lists, generator=self.random_source())
        gains = ndcg.credit(labels, lists)  # nDCG's does not depend on the order
        discounts = ndcg.discount(ranks_to(lists.longest + 1, scores))
        near = discounts * 0.0
        near[1:] = self.mu * (discounts[:-1] - discounts[1:])  # by distance
        values, slopes = lambda_sums(scores, gains, ranks, lists, discounts[:-1], near, self.sigma)
        return values / math.log(2), slopes / math.log(2)
