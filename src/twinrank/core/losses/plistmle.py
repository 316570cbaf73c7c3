"""p-ListMLE: ListMLE in which the first positions count most."""

from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.losses.listmle import log_cumsum_exp
from twinrank.core.losses.ranking_loss import SmoothLoss
from twinrank.core.ranks.exact import exact_ranks
from twinrank.support.arrays import Array, as_float, namespace

LEAST = 1e-300  # instead of 0, so that its logarithm is finite


class PListMLE(SmoothLoss):
    """ListMLE with a weight per position of the ideal order.

    L = Σ_i α_i · (log Z_i − s_i) with Z_i = Σ_{j ≥ i} exp(s_j), documents in descending order of
    labels, and ∂L/∂s_k = Σ_{i ≤ k} α_i · exp(s_k) / Z_i − α_k. The weights are the paper's
    2^(n−i) − 1 for a list of n documents, divided by that of the first position, so that they do
    not overflow: long lists count as much as short ones. Each call orders documents of equal labels
    at random.

    Lan, Zhu, Guo, Niu & Cheng, "Position-aware ListMLE: a sequential learning process for ranking"
    (UAI 2014).

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Orders documents of equal labels. Default: torch's global generator.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> import torch
    >>> scores = torch.zeros(3, requires_grad=True)
    >>> round(PListMLE()(scores, torch.tensor([2.0, 0.0, 1.0]), Lists.from_sizes([3])).item(), 4)
    1.3297
    """

    name: ClassVar[str] = "PListMLE"

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Two running sums, both in logarithms, as in ListMLE."""
        ideal = exact_ranks(labels, lists, ties="random", generator=self.random_source())
        s = lists.arrange(as_float(scores), ideal)
        xp = namespace(s)
        sizes = lists.spread(lists.sum(xp.ones_like(s)))
        last = xp.exp2(1.0 - sizes)
        weights = xp.exp2(1.0 - as_float(lists.positions(s))) - last
        weights = (weights / xp.where(sizes > 1, 1.0 - last, 1.0)).clip(LEAST)
        log_z = log_cumsum_exp(s, lists, reverse=True)
        chosen = xp.exp(s + log_cumsum_exp(xp.log(weights) - log_z, lists))
        return lists.sum(weights * (log_z - s)), lists.restore(chosen - weights, ideal)
