"""Softmax cross-entropy: normalised labels against the softmax of the scores."""

from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.losses.listnet import log_softmax
from twinrank.core.losses.ranking_loss import SmoothLoss
from twinrank.support.arrays import Array, as_float, namespace


class SoftmaxCrossEntropy(SmoothLoss):
    """Cross-entropy between the normalised labels and the softmax of the scores.

    L = −Σ_i p_i · log q_i with p = labels / Σ labels and q = softmax(scores); ∂L/∂s = q − p. With
    one relevant document per list it is the usual classification loss. ListNet uses
    p = softmax(labels) instead. By default, the losses of rax and TensorFlow Ranking weigh each
    list by Σ labels. `reduction="sum"` with `weights=lists.sum(labels)` gives the same.

    Bruch, Wang, Bendersky & Najork, "An analysis of the softmax cross entropy loss for
    learning-to-rank with binary relevance" (ICTIR 2019).

    Parameters
    ----------
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
    >>> import torch
    >>> scores = torch.zeros(4, requires_grad=True)
    >>> labels = torch.tensor([2.0, 0.0, 1.0, 0.0])
    >>> round(SoftmaxCrossEntropy()(scores, labels, Lists.from_sizes([4])).item(), 4)
    1.3863
    """

    name: ClassVar[str] = "SoftmaxCrossEntropy"

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Cross-entropy and q − p."""
        # Divide by the largest label first: a sum of huge labels could overflow.
        largest = lists.max(labels)
        xp = namespace(labels)
        p = labels / lists.spread(xp.where(largest > 0, largest, 1.0))
        total = lists.sum(p)
        p = p / lists.spread(xp.where(total > 0, total, 1.0))
        log_q = log_softmax(as_float(scores), lists)
        return -lists.sum(p * log_q), xp.exp(log_q) - p
