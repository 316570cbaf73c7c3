"""LambdaLoss: NDCG-Loss2++, a pairwise bound on nDCG."""

import math
from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import Reduction, SmoothLoss
from twinrank.core.measures.dcg import NDCG
from twinrank.core.measures.measure_base import ranks_to
from twinrank.core.ranks.exact import exact_ranks
from twinrank.support.arrays import Array
from twinrank.support.errors import check_number


class LambdaLoss(SmoothLoss):
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
        Raise an error if a label or score is not valid. On a GPU these checks wait for the device.
        With False nothing waits, and scores that are not finite give the loss NaN. A CPU always
        checks.

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

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return f"sigma={self.sigma:g}, mu={self.mu:g}"

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
