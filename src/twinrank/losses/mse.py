"""Mean squared error: regression on the labels, document by document."""

from typing import ClassVar

from twinrank.lists import Lists
from twinrank.losses.ranking_loss import SmoothLoss
from twinrank.support.arrays import Array, as_float, namespace


class MSE(SmoothLoss):
    """L = Σ_i (s_i − y_i)² / m over the m documents of a list; ∂L/∂s_i = 2 (s_i − y_i) / m.

    The pointwise baseline. Lists with nothing relevant count as well, since they say what a score
    near 0 is; every list counts the same, however long it is.

    Cossock & Zhang, "Subset ranking using regression" (COLT 2006).

    >>> import torch
    >>> scores = torch.tensor([1.0, 1.0], requires_grad=True)
    >>> MSE()(scores, torch.tensor([3.0, 1.0]), Lists.from_sizes([2])).item()
    2.0
    """

    name: ClassVar[str] = "MSE"
    needs_relevant: ClassVar[bool] = False

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The mean of the squares, and the slope of each."""
        apart = as_float(scores) - labels
        sizes = lists.sum(namespace(apart).ones_like(apart)).clip(1)
        return lists.sum(apart * apart) / sizes, 2.0 * apart / lists.spread(sizes)
