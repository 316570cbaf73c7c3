"""ApproxNDCG: minus nDCG of smooth ranks."""

from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import GainLoss, Reduction
from twinrank.core.measures.dcg import NDCG
from twinrank.core.ranks.kernels import pair_sum
from twinrank.support.arrays import Array, as_float
from twinrank.support.errors import check_number


class ApproxNDCG(GainLoss):
    """Minus nDCG with ranks that are smooth functions of the scores.

    L = −Σ_i (2^label_i − 1) / idealDCG / log2(1 + r_i) with r_i = ½ + Σ_j σ(α(s_j − s_i)). The sum
    runs over the whole list and includes i itself, which counts ½. So r_i is 1 plus a smooth count
    of the documents before i. L is between −1 and 0.

    Qin, Liu & Li, "A general approximation framework for direct optimization of information
    retrieval measures" (Information Retrieval 2010); Bruch, Zoghi, Bendersky & Najork, "Revisiting
    approximate metric optimization in the age of deep neural networks" (SIGIR 2019).
    Yu (2020) uses α = 10; allRank and rax (where it is 1/temperature) use 1.

    Parameters
    ----------
    alpha : float, default 10.0
        Steepness α of the sigmoid.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Unused: this loss is not random.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.tensor([0.0, 100.0], requires_grad=True)
    >>> round(ApproxNDCG()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    -0.6309
    """

    name: ClassVar[str] = "ApproxNDCG"

    def __init__(
        self,
        alpha: float = 10.0,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("alpha", alpha)
        self.alpha = alpha

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Minus the smoothed nDCG, and the pair sum of type1."""
        from twinrank.core.ranks.kernels.logistic import soft_ranks

        ndcg, scores = NDCG(), as_float(scores)
        ranks = as_float(soft_ranks(scores, lists, self.alpha))
        credit = ndcg.credit(labels, lists)  # nDCG's does not depend on the order
        rank_gradient = -credit * ndcg.slope(ranks)
        slopes = pair_sum(scores, labels, rank_gradient, lists, strategy="type1", alpha=self.alpha)
        return -lists.sum(credit * ndcg.discount(ranks)), slopes
