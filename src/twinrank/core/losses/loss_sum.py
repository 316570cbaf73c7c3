"""Weighted sums of measures and losses: an objective that ranks and is calibrated."""

from copy import copy
from typing import Any

import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.losses.direct import DirectLoss
from twinrank.core.losses.ranking_loss import RankingLoss, Reduction, ScoreGradient, reduced
from twinrank.core.measures import Measure
from twinrank.core.ranks.strategies import Strategy
from twinrank.support.arrays import Array, as_float, is_tensor, on_cpu, to_numpy
from twinrank.support.errors import InputError
from twinrank.support.notation import summands


class LossSum(RankingLoss):
    """A weighted sum of measures, which are maximised, and losses, which are minimised.

    L_q = −Σ weight · measure + Σ weight · loss for each list q. A list counts if it counts for one
    of the terms; the others are 0 there. All measures share one ranking; with several columns of
    labels, losses take the main ones.

    Parameters
    ----------
    objective : str
        Such as `"nDCG@10 + 0.5 * SigmoidCrossEntropy"`, with weights above 0.
    strategy, alpha, perturbation, samples
        Those of the measures, as in `DirectLoss`.
    mode : {"default", "paper"}, default "default"
        The default of losses with an option of this name, such as WassRank.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Orders tied scores and draws the noise. Default: torch's global generator.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.zeros(2, requires_grad=True)
    >>> own = LossSum("RR + 0.5 * SigmoidCrossEntropy")
    >>> loss = own(scores, torch.tensor([1.0, 1.0]), Lists.from_sizes([2]))
    >>> round(loss.item(), 4)    # −1 + 0.5 · log 2
    -0.6534
    """

    def __init__(
        self,
        objective: str,
        strategy: Strategy = "type3",
        alpha: float = 1.0,
        perturbation: float = 0.0,
        samples: int = 1,
        *,
        mode: str = "default",
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        from twinrank.core.losses import is_loss, loss

        super().__init__(reduction=reduction, generator=generator, validate=validate)
        self.objective = objective
        measures: list[tuple[float, str]] = []
        self.terms: list[tuple[float, RankingLoss]] = []
        for weight, text in summands(objective):
            if not is_loss(text):
                measures.append((weight, text))
                continue
            own = loss(text, mode)
            if not isinstance(own, RankingLoss):
                raise InputError(
                    f"{text} in {objective!r} is a loss of your own, which cannot be a term of a "
                    f"sum; add the other terms in its code."
                )
            self.terms.append((weight, own))
        if measures:
            factor, notation = measures[0]
            if len(measures) > 1:
                factor, notation = 1.0, " + ".join(f"{w!r} * {text}" for w, text in measures)
            direct = DirectLoss(notation, strategy, alpha, perturbation, samples)
            self.terms.insert(0, (factor, direct))
        for _, own in self.terms:
            own.reduction = "none"

    def extra_repr(self) -> str:
        """The objective, for `repr`."""
        return self.objective

    @property
    def measure(self) -> Any:
        """The sum of the measures; None without one."""
        return getattr(self.terms[0][1], "measure", None)

    def on_measure(self, measure: Measure) -> "LossSum":
        """The same loss with another measure in the place of the sum of the measures."""
        other, (weight, direct) = copy(self), self.terms[0]
        assert isinstance(direct, DirectLoss)
        other.terms = [(weight, direct.on_measure(measure)), *self.terms[1:]]
        return other

    @property
    def takes_columns(self) -> bool:
        """True if the measures take several columns of labels."""
        return self.terms[0][1].takes_columns

    def counted(self, labels: Array, lists: Lists) -> Array:
        """True for each list that counts for one of the terms."""
        found = [own.counted(_of(own, labels), lists) for _, own in self.terms]
        total = found[0]
        for one in found[1:]:
            total = total | one
        return total

    def check_document_weights(self) -> None:
        """Raise InputError if a term takes no weights that differ within a list."""
        for _, own in self.terms:
            own.check_document_weights()

    def _computed(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists,
        weights: Tensor | None,
        documents: Tensor | None,
    ) -> tuple[Array, ScoreGradient]:
        gradients: list[tuple[float, ScoreGradient]] = []
        total: Any = 0.0
        for weight, own in self.terms:
            own.generator, own.validate = self.generator, self.validate
            values, score_gradient = own.value_and_gradient(
                scores, _of(own, labels), lists, documents
            )
            total = total + weight * as_float(values)
            gradients.append((weight, score_gradient))
        plain = to_numpy if on_cpu(scores) else Tensor.detach
        if documents is not None:
            labels = labels * (documents > 0).reshape(-1, *[1] * (labels.ndim - 1))
        counted = torch.as_tensor(self.counted(plain(labels).clip(0), lists))
        loss, share = reduced(total, counted.to(total.device), weights, self.reduction)

        def score_gradient_of_sum(scores: Tensor, upstream: Tensor) -> Tensor:
            factor = share * upstream
            return sum(w * own(scores, factor).to(scores.dtype) for w, own in gradients)  # type: ignore[return-value]

        return loss, score_gradient_of_sum


def _of(own: RankingLoss, labels: Any) -> Any:
    """The labels of a term: all columns, or the main one."""
    if labels.ndim == 1 or own.takes_columns:
        return labels
    main = labels[:, 0]
    return main.contiguous() if is_tensor(main) else main.copy()
