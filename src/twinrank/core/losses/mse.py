"""Mean squared error: pointwise regression on the labels."""

from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import SmoothLoss
from twinrank.support.arrays import Array, as_float, namespace


class MSE(SmoothLoss):
    """Mean squared error between scores and labels, the pointwise baseline.

    L = Σ_i (s_i − y_i)² / m over the m documents of a list; ∂L/∂s_i = 2 (s_i − y_i) / m. All lists
    with documents count equally, also those without a relevant document. Every finite label is a
    target, such as the scores of a teacher; a label of −1 is the target −1. In the training of a
    `Ranker`, unjudged documents have the target 0.

    Cossock & Zhang, "Subset ranking using regression" (COLT 2006).

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Unused: this loss is not random.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> import torch
    >>> scores = torch.tensor([1.0, 1.0], requires_grad=True)
    >>> MSE()(scores, torch.tensor([3.0, 1.0]), Lists.from_sizes([2])).item()
    2.0
    """

    name: ClassVar[str] = "MSE"
    needs_relevant: ClassVar[bool] = False
    takes_any_label: ClassVar[bool] = True

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The mean of the squares, and the slope of each."""
        return self.weighted_per_list(scores, labels, lists, namespace(labels).ones_like(labels))

    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """The weighted mean: a document of weight 2 counts as two."""
        error = as_float(scores) - labels
        sizes = lists.sum(weights).clip(1)
        slopes = 2.0 * weights * error / lists.spread(sizes)
        return lists.sum(weights * error * error) / sizes, slopes
