"""Cross-entropy to the softmax of the scores: ListNet and SoftmaxCrossEntropy."""

from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import SmoothLoss
from twinrank.core.measures.measure_base import shared
from twinrank.support.arrays import Array, as_float, namespace


class ListNet(SmoothLoss):
    """Cross-entropy between the softmax of the labels and that of the scores.

    L = −Σ_i p_i · log q_i with p = softmax(labels) and q = softmax(scores); ∂L/∂s = q − p.

    Cao, Qin, Liu, Tsai & Li, "Learning to rank: from pairwise approach to listwise approach"
    (ICML 2007), with the top-one distribution.

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
    >>> scores = torch.zeros(2, requires_grad=True)
    >>> round(ListNet()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    0.6931
    """

    name: ClassVar[str] = "ListNet"

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Cross-entropy and q − p."""
        return _cross_entropy(scores, namespace(labels).exp(log_softmax(labels, lists)), lists)

    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """Weights multiply p, which is then divided by its sum."""
        p = weights * namespace(labels).exp(labels - lists.spread(lists.max(labels)))
        return _cross_entropy(scores, shared(p, lists.sum(p), lists), lists)


def _cross_entropy(scores: Array, p: Array, lists: Lists) -> tuple[Array, Array]:
    """The cross-entropy of p and q = softmax(scores), and q − p."""
    log_q = log_softmax(as_float(scores), lists)
    return -lists.sum(p * log_q), namespace(log_q).exp(log_q) - p


def log_softmax(x: Array, lists: Lists) -> Array:
    """log(exp(x) / Σ exp(x)) within each list, for x of any size."""
    xp = namespace(x)
    x = x - lists.spread(lists.max(x))
    total = lists.sum(xp.exp(x))
    return x - lists.spread(xp.log(xp.where(total > 0, total, 1.0)))  # 0: a list without documents


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
        Check labels and scores, as in `DirectLoss`.

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
        return _cross_entropy(scores, p, lists)

    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """Weights multiply labels."""
        return self.per_list(scores, labels * weights, lists)
