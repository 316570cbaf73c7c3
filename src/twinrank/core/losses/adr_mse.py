"""ADR-MSE: smooth ranks that learn the order of the labels."""

from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import Reduction, SmoothLoss
from twinrank.core.ranks.exact import exact_ranks
from twinrank.core.ranks.kernels import pair_sum
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.errors import check_number


class ADRMSE(SmoothLoss):
    """Approximate discounted rank mean squared error, for the order of a teacher.

    L = 1/m Σ_i (π_i − r_i)² / log2(1 + π_i) over the m documents of a list, with the ranks π by
    label, equal labels sharing their mean rank, and the smooth ranks r_i = ½ + Σ_j σ(α(s_j − s_i))
    of `ApproxNDCG`. Only the order of the labels counts, such as that of a large language model.

    Schlatt, Fröbe, Scells, Zhuang, Koopman, Zuccon, Stein, Potthast & Hagen, "Rank-DistiLLM:
    closing the effectiveness gap between cross-encoders and LLMs for passage re-ranking" (ECIR
    2025), arXiv:2405.07920.

    Parameters
    ----------
    alpha : float, default 1.0
        Steepness α of the sigmoid.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Unused: this loss is not random.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.zeros(2, requires_grad=True)
    >>> round(ADRMSE()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    0.2039
    """

    name: ClassVar[str] = "ADRMSE"

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("alpha", alpha)
        self.alpha = alpha

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The squares of differences of ranks, and the pair sum of type1."""
        from twinrank.core.ranks.kernels.logistic import soft_ranks

        scores = as_float(scores)
        xp = namespace(scores)
        ranks = as_float(soft_ranks(scores, lists, self.alpha))
        ideal = as_float(exact_ranks(as_float(labels), lists, ties="average"))
        sizes = lists.spread(lists.sum(xp.ones_like(ranks)))
        weights = 1.0 / (xp.log2(1.0 + ideal) * sizes)
        error = ranks - ideal
        slopes = pair_sum(
            scores, labels, 2.0 * weights * error, lists, strategy="type1", alpha=self.alpha
        )
        return lists.sum(weights * error * error), slopes
