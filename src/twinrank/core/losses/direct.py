"""Direct optimisation of a measure: minus its exact value, with the strategy's gradient."""

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import RankingLoss, Reduction, ScoreGradient, reduced
from twinrank.core.measures import Measure, MeasureSum
from twinrank.core.measures import measure as as_measure
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.core.measures.variety import VarietyMeasure
from twinrank.core.ranks.exact import check_labels, check_perturbation, exact_ranks
from twinrank.core.ranks.kernels import check_kernel, path_of
from twinrank.core.ranks.strategies import Strategy, as_strategy
from twinrank.core.ranks.twin import (
    through_ranks,
    working_dtype,
    working_labels,
)
from twinrank.support.arrays import (
    Array,
    all_true,
    as_float,
    at_least_zero,
    device_path,
    is_tensor,
    on_cpu,
    to_numpy,
)
from twinrank.support.errors import DataWarning, check_number, warn


class DirectLoss(RankingLoss):
    """Minus a measure of the exact ranking, differentiable with respect to the scores.

    L_q = −Σ_i credit_i · discount(rank_i) for each list q. The value is exact; the gradient follows
    `strategy`. Lists without a relevant document have loss 0 and do not count in the mean.

    Yu, "Optimize What You Evaluate With" (2020). The paper uses perturbation 0 and one sample.

    Parameters
    ----------
    measure : str or Measure
        What to optimise, such as `"nDCG@10"`.
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How ranks pass their gradient to the scores, see `twin_ranks`. With `"swap"` the gradient of
        a pair is the change of the measure if the two documents swapped places; for nDCG that is
        LambdaRank.
    alpha : float, default 1.0
        Steepness of the backward sigmoid.
    perturbation : float, default 0.0
        Scale τ of Gumbel noise: ranks are those of scores + τ·noise.
    samples : int, default 1
        Number of perturbed rankings, over which the loss is averaged.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list. With weights w, one per list, the
        mean is Σ w·L / Σ w.
    generator : torch.Generator, optional
        Orders tied scores and draws the noise. Default: torch's global generator.
    kernel : str, default "auto"
        How the sum over pairs is computed: `"auto"`, `"torch"`, `"triton"`, `"numba"` or `"long"`.
        `"auto"` uses Triton on CUDA devices if it is installed, torch on other devices, and
        compiled loops on the CPU. With `"torch"` and `"triton"` ranks and measures are tensors.
    validate : bool, default True
        Raise an error if a label or score is not valid. On a GPU these checks wait for the device.
        With False nothing waits, and scores that are not finite give the loss NaN. A CPU always
        checks.

    Examples
    --------
    >>> scores = torch.tensor([0.2, 0.9, 0.4, 0.1, 0.8], requires_grad=True)
    >>> labels = torch.tensor([2, 0, 1, 0, 1])
    >>> loss = DirectLoss("nDCG", strategy="type3")(scores, labels, Lists.from_sizes([3, 2]))
    >>> round(loss.item(), 4)
    -0.7934
    >>> loss.backward()
    >>> bool(scores.grad[0] < 0)     # descent raises the best document, which is ranked last
    True
    """

    def __init__(
        self,
        measure: str | Measure,
        strategy: Strategy = "type3",
        alpha: float = 1.0,
        perturbation: float = 0.0,
        samples: int = 1,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        kernel: str = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_perturbation(perturbation, samples)
        check_kernel(kernel)
        check_number("alpha", alpha)
        self.measure = as_measure(measure)
        self.strategy: Strategy = as_strategy(strategy)
        self.measure.check_strategy(self.strategy)
        self.alpha = alpha
        self.perturbation = perturbation
        self.samples = samples
        self.kernel = kernel

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        shown = f"{self.measure}, strategy={self.strategy}, alpha={self.alpha:g}"
        if self.perturbation:
            shown += f", perturbation={self.perturbation:g}, samples={self.samples}"
        return shown

    def counted(self, labels: Array, lists: Lists) -> Array:
        """True for each list that counts: those with a document that the measure calls relevant."""
        return lists.any(self.measure.relevant(labels))

    def check_document_weights(self) -> None:
        """Refuse weights if the measure takes none."""
        self.measure.check_takes_weights()

    def on_measure(self, measure: Measure) -> "DirectLoss":
        """The same loss on another measure."""
        if measure is self.measure:
            return self
        other = copy(self)
        other.measure = measure
        return other

    @property
    def takes_columns(self) -> bool:
        """True for a sum of measures."""
        return isinstance(self.measure, MeasureSum)

    @property
    def device_kernel(self) -> str | None:
        """The kernel if it is one for tensors of a device."""
        return path_of(self.kernel)

    def _computed(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists,
        weights: Tensor | None,
        documents: Tensor | None,
    ) -> tuple[Array, ScoreGradient]:
        for column in labels.unbind(1) if labels.ndim == 2 else (labels,):
            check_labels(column, lists)  # before a measure computes with them
        # On the CPU measures use NumPy views: for small arrays torch is slower.
        measure = self.measure
        numpy_views = on_cpu(scores) and measure.on_any_array
        plain = to_numpy if numpy_views else Tensor.detach
        if documents is not None:
            measure, known = measure.weighted(as_float(plain(labels)), plain(documents))
            labels = torch.as_tensor(known)
        ranks = exact_ranks(
            plain(scores),
            lists,
            generator=self.random_source(),
            perturbation=self.perturbation,
            samples=self.samples,
        )
        # S samples are S times as many lists. Their gradients are added before the one pair sum.
        known = plain(labels)
        if isinstance(measure, MeasureSum):
            measure, known = measure.prepared(known, lists)
        values, slopes, filled = measure.at_ranks(
            ranks, known, lists.tile(self.samples), gradient=True
        )
        total = values.reshape(self.samples, -1).sum(0)
        per_rank = slopes.reshape(self.samples, -1).sum(0) if self.samples > 1 else slopes
        self._explain_soft_labels(labels, filled)
        loss, share = reduced(total / -self.samples, filled[: len(lists)], weights, self.reduction)
        if isinstance(measure, MeasureSum | VarietyMeasure):
            labels = torch.as_tensor(measure.order(known, lists))
        labels = working_labels(labels, scores, lists)
        if self.strategy == "swap":
            grades = at_least_zero(as_float(known))
            return loss, self._swap_gradient(measure, share, grades, ranks, lists)
        share = share / -self.samples

        def rank_gradient(upstream: Tensor) -> Tensor:
            return torch.as_tensor(per_rank * lists.spread(share * plain(upstream)))

        return loss, through_ranks(
            rank_gradient, labels, lists, self.strategy, self.alpha, self.kernel
        )

    def _explain_soft_labels(self, labels: Tensor, relevant_lists: Array) -> None:
        """Warn if a binary measure finds nothing relevant because labels are probabilities."""
        if not isinstance(self.measure, BinaryMeasure) or all_true(relevant_lists.any()):
            return
        soft = labels[(labels > 0) & (labels != labels.floor())] if labels.numel() else labels
        if soft.numel() and labels.max() <= 1:
            example = replace(self.measure, rel=0.5)
            warn(
                DataWarning(
                    f"The loss is 0, because no label of this batch is relevant for "
                    f"{self.measure}: its option rel is {self.measure.rel:g}, but the highest "
                    f"label is {float(labels.max()):g}. For probabilities set rel, as in {example}."
                )
            )

    def _swap_gradient(
        self, measure: Measure, share: Any, grades: Any, ranks: Any, lists: Lists
    ) -> ScoreGradient:
        """The gradient of `strategy="swap"`."""

        def score_gradient(scores: Tensor, upstream: Tensor) -> Tensor:
            y: Array = scores.detach().to(working_dtype(scores))
            with device_path(self.device_kernel, self.validate):
                y = y if is_tensor(ranks) else to_numpy(y)
                slopes, _ = measure.swap_gradient(y, ranks, grades, lists, self.alpha)
                gradient = torch.as_tensor(slopes * lists.spread(share)).to(upstream)
                return gradient * (lists.spread(upstream) if upstream.ndim else upstream)

        return score_gradient
