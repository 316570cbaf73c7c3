"""ListMLE: the likelihood of the ideal order under the Plackett–Luce model."""

from typing import ClassVar

from twinrank.lists import Lists
from twinrank.losses.base import SmoothLoss
from twinrank.losses.scans import log_cumsum_exp
from twinrank.ranks.exact import exact_ranks
from twinrank.support.arrays import Array, as_float, namespace


class ListMLE(SmoothLoss):
    """L = Σ_i (log Σ_{j ≥ i} exp(s_j) − s_i), documents in the order of their labels.

    That is −log P of the order in which the most relevant document is drawn first, from all with
    probability softmax(s), then the next from the rest, and so on. Documents of the same label
    have no order of their own: they are shuffled anew at each call. With Z_i = Σ_{j ≥ i} exp(s_j),
    ∂L/∂s_k = Σ_{i ≤ k} exp(s_k) / Z_i − 1.

    Xia, Liu, Wang, Zhang & Li, "Listwise approach to learning to rank: theory and algorithm"
    (ICML 2008).

    >>> import torch
    >>> scores = torch.zeros(3, requires_grad=True)
    >>> round(ListMLE()(scores, torch.tensor([2.0, 0.0, 1.0]), Lists.from_sizes([3])).item(), 4)
    1.7918
    """

    name: ClassVar[str] = "ListMLE"

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Two running sums: Z from the end, Σ 1 / Z from the front, both in logarithms."""
        ideal = exact_ranks(labels, lists, ties="random", generator=self.random_source())
        s = lists.arrange(as_float(scores), ideal)
        log_z = log_cumsum_exp(s, lists, reverse=True)
        chosen = namespace(s).exp(s + log_cumsum_exp(-log_z, lists))
        return lists.sum(log_z - s), lists.restore(chosen - 1.0, ideal)
