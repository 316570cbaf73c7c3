"""Pointwise cross-entropy to the sigmoid of the scores, which makes scores log-odds."""

from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import Reduction, SmoothLoss
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.errors import check_number


class SigmoidCrossEntropy(SmoothLoss):
    """Cross-entropy between relevance and σ(scale · score), a term that calibrates scores.

    L = −Σ_i (b_i · log p_i + (1 − b_i) · log(1 − p_i)) / m over the m documents of a list, with
    p = σ(scale · s) and b_i = 1 if label_i ≥ `relevant`, else 0; ∂L/∂s_i = scale · (p_i − b_i) / m.
    All lists with documents count, also those without a relevant document: otherwise p would be
    too high. As a term of an objective, `"nDCG@10 + 0.5 * SigmoidCrossEntropy"`, it makes
    σ(scale · score) a probability, which `predict(…, output="probability")` returns.

    The term agrees with the pairs of strategy "type3", whose loss is logistic, too: if documents
    are relevant with independent probabilities, the pair is best ordered by the difference of
    their log-odds. Bai, Jagerman, Qin, Yan, Kar, Lin, Wang, Bendersky & Najork, "Regression
    compatible listwise objectives for calibrated ranking with binary relevance" (CIKM 2023), and
    Yan, Qin, Wang, Bendersky & Najork, "Scale calibration of deep ranking models" (KDD 2022), add
    it to listwise losses.

    Parameters
    ----------
    relevant : float, default 1
        The lowest label that counts as relevant.
    scale : float, default 1.0
        The factor of the scores. With a scale above 1, scores of the same probabilities are closer
        together.
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
    >>> labels = torch.tensor([1.0, 0.0])
    >>> round(SigmoidCrossEntropy()(scores, labels, Lists.from_sizes([2])).item(), 4)
    0.6931
    """

    name: ClassVar[str] = "SigmoidCrossEntropy"
    needs_relevant: ClassVar[bool] = False

    def __init__(
        self,
        relevant: float = 1,
        scale: float = 1.0,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("relevant of SigmoidCrossEntropy", relevant)
        check_number("scale of SigmoidCrossEntropy", scale)
        self.relevant, self.scale = relevant, float(scale)

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The mean cross-entropy, and the slope of each document."""
        return self.weighted_per_list(scores, labels, lists, namespace(labels).ones_like(labels))

    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """The weighted mean: a document of weight 2 counts as two."""
        xp = namespace(labels)
        z, relevant = self.scale * as_float(scores), as_float(labels >= self.relevant)
        sizes = lists.sum(weights).clip(1)
        small = xp.exp(-abs(z))  # never overflows
        losses = xp.log1p(small) + xp.where(z > 0, z, 0.0) - relevant * z
        p = xp.where(z > 0, 1.0, small) / (1.0 + small)
        slopes = self.scale * weights * (p - relevant) / lists.spread(sizes)
        return lists.sum(weights * losses) / sizes, slopes
