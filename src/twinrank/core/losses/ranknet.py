"""RankNet: the mean logistic loss of pairs."""

from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import Reduction, SmoothLoss
from twinrank.core.ranks.kernels import pair_sum
from twinrank.support.arrays import Array, namespace
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
        Raise an error if a label or score is not valid. On a GPU these checks wait for the device.
        With False nothing waits, and scores that are not finite give the loss NaN. A CPU always
        checks.

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

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return f"sigma={self.sigma:g}"

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The mean over pairs, and the pair sum."""
        from twinrank.core.ranks.kernels.logistic import logistic_sum

        total, pairs = logistic_sum(scores, labels, lists, self.sigma)
        share = 1.0 / namespace(pairs).where(pairs > 0, pairs, 1.0)
        # −2σ Σ_j (g_a + g_j) · u_aj · σ(…) with g = ¼ is the gradient of the sum.
        quarter = lists.spread(share / 4)
        slopes = pair_sum(scores, labels, quarter, lists, strategy="type3", alpha=self.sigma)
        return total * share, slopes
