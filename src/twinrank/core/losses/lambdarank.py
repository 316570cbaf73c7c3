"""LambdaRank: the logistic loss of pairs, weighted by the change of nDCG if they swapped."""

from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import Reduction, SmoothLoss
from twinrank.core.measures.dcg import NDCG
from twinrank.core.measures.measure_base import ranks_to
from twinrank.core.ranks.exact import exact_ranks
from twinrank.support.arrays import Array
from twinrank.support.errors import check_number


class LambdaRank(SmoothLoss):
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
        Raise an error if a label or score is not valid. On a GPU these checks wait for the device.
        With False nothing waits, and scores that are not finite give the loss NaN. A CPU always
        checks.

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

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return f"sigma={self.sigma:g}" + ("" if self.k is None else f", k={self.k}")

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The weighted sum over pairs and its gradient."""
        from twinrank.core.ranks.kernels.lambdas import lambda_sums

        ranks = exact_ranks(scores, lists, generator=self.random_source())
        gains = self._ndcg.credit(labels, lists)  # nDCG's does not depend on the order
        discounts = self._ndcg.discount(ranks_to(lists.longest, scores))[: self.k]
        return lambda_sums(scores, gains, ranks, lists, discounts, None, self.sigma)
