"""ListMLE: minus the log-likelihood of the ideal order under the Plackett–Luce model."""

from typing import Any, ClassVar

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import SmoothLoss
from twinrank.core.ranks.exact import exact_ranks
from twinrank.support.arrays import Array, as_float, namespace, on_cpu
from twinrank.support.compiled import compiled


class ListMLE(SmoothLoss):
    """Minus the log-likelihood of the ideal order under the Plackett–Luce model.

    L = Σ_i (log Z_i − s_i) with Z_i = Σ_{j ≥ i} exp(s_j), documents in descending order of labels,
    and ∂L/∂s_k = Σ_{i ≤ k} exp(s_k) / Z_i − 1. The model draws the first document from all with
    probability softmax(s), the second from the rest, and so on. Each call orders documents of equal
    labels at random.

    Xia, Liu, Wang, Zhang & Li, "Listwise approach to learning to rank: theory and algorithm"
    (ICML 2008).

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


def log_cumsum_exp(x: Array, lists: Lists, *, reverse: bool = False) -> Array:
    """log Σ_{j ≤ i} exp(x_j) of each document i within its list; `reverse`: Σ_{j ≥ i}.

    Every sum is relative to its own largest term. Relative to the largest term of the list, the sum
    over the end of a list whose scores are 1,000 below the best would be 0.

    >>> log_cumsum_exp(np.array([0.0, 0.0, 1e4]), Lists.from_sizes([3])).round(4)[:2]
    array([0.    , 0.6931])
    """
    x = as_float(x)
    if not on_cpu(x):
        return lists.scan_by_doubling(x, namespace(x).logaddexp, reverse=reverse)
    result = np.empty_like(x)
    _log_cumsum_exp(x, lists.offsets, reverse, result)
    return result


@compiled
def _log_cumsum_exp(x: Any, offsets: Any, reverse: bool, result: Any) -> None:
    for q in range(offsets.size - 1):
        top, total = -np.inf, 0.0  # the largest so far; Σ exp(x − top)
        for step in range(offsets[q + 1] - offsets[q]):
            i = offsets[q + 1] - 1 - step if reverse else offsets[q] + step
            if x[i] > top:
                total = total * np.exp(top - x[i]) + 1.0
                top = x[i]
            else:
                total += np.exp(x[i] - top)
            result[i] = top + np.log(total)
