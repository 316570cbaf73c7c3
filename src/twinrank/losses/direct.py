"""Direct optimisation of a measure: minus its exact value, with the strategy's gradient."""

from typing import Any

import torch
from torch import Tensor

from twinrank.lists import Lists
from twinrank.losses.ranking_loss import RankingLoss, Reduction, flatten, reduced
from twinrank.measures import Measure
from twinrank.measures import measure as as_measure
from twinrank.ranks.exact import check_finite, check_perturbation, exact_ranks
from twinrank.ranks.kernels import check_kernel
from twinrank.ranks.strategies import Strategy, as_strategy
from twinrank.ranks.twin import (
    attach,
    attach_gradient,
    check_alpha,
    working_dtype,
    working_labels,
)
from twinrank.support.arrays import Array, on_cpu, to_numpy
from twinrank.support.compiled import untraced


class DirectLoss(RankingLoss):
    """Minus a measure of the exact ranking, differentiable with respect to the scores.

    L_q = −Σ_i credit_i · discount(rank_i), averaged over the lists q that have something relevant
    (`reduction="mean"`; the others count 0), or their "sum", or "none": one loss per list. With
    `weights`, one per list, the mean is Σ w·L / Σ w.

    `strategy` and `alpha` say how ranks pass their gradient on (see `twin_ranks`); or, with
    `strategy="swap"`, every pair of documents is pushed apart by what swapping the two would change
    (`ranks/kernels/swaps.py`): for nDCG that is LambdaRank. `perturbation` τ and `samples` S
    average the loss over S rankings of scores + τ·Gumbel noise.

    Yu, "Optimize What You Evaluate With" (2020); the paper is τ = 0, S = 1.

    >>> scores = torch.tensor([0.2, 0.9, 0.4, 0.1, 0.8], requires_grad=True)
    >>> labels = torch.tensor([2, 0, 1, 0, 1])
    >>> loss = DirectLoss("nDCG", strategy="type3")(scores, labels, Lists.from_sizes([3, 2]))
    >>> round(loss.item(), 4)
    -0.7934
    >>> loss.backward()
    >>> bool(scores.grad[0] < 0)     # descent lifts the best document, which is ranked last
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
    ) -> None:
        super().__init__(reduction=reduction, generator=generator)
        check_perturbation(perturbation, samples)
        check_kernel(kernel)
        check_alpha(alpha)
        self.measure = as_measure(measure)
        self.strategy: Strategy = as_strategy(strategy)
        self.measure.check_strategy(self.strategy)
        self.alpha = alpha
        self.perturbation = perturbation
        self.samples = samples
        self.kernel = kernel

    def extra_repr(self) -> str:
        """What distinguishes this loss when it is printed."""
        shown = f"{self.measure}, strategy={self.strategy}, alpha={self.alpha:g}"
        if self.perturbation:
            shown += f", perturbation={self.perturbation:g}, samples={self.samples}"
        return shown

    def counted(self, labels: Array, lists: Lists) -> Array:
        """Which lists have a share in the mean: those with something relevant to the measure."""
        return lists.any(self.measure.relevant(labels))

    @untraced
    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists | None = None,
        weights: Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The loss of flat scores and labels with lists, or of padded ones with a mask."""
        scores, labels, lists = flatten(scores, labels, lists, mask)
        check_finite("labels", labels, lists)  # before a measure computes with them
        # On the CPU measures work on NumPy views: the arrays are small, and torch slower.
        numpy_views = on_cpu(scores) and self.measure.on_any_array
        plain = to_numpy if numpy_views else Tensor.detach
        ranks = exact_ranks(
            plain(scores),
            lists,
            generator=self.random_source(),
            perturbation=self.perturbation,
            samples=self.samples,
        )
        # Samples are S times as many lists; their gradients add up before the one pair pass.
        values, slopes, filled = self.measure.at_ranks(
            ranks, plain(labels), lists.tile(self.samples), gradient=True
        )
        total = values.reshape(self.samples, -1).sum(0)
        per_rank = slopes.reshape(self.samples, -1).sum(0) if self.samples > 1 else slopes
        loss, share = reduced(total / -self.samples, filled[: len(lists)], weights, self.reduction)
        loss = torch.as_tensor(loss).to(working_dtype(scores))
        if self.strategy == "swap":
            return self._pushed_apart(loss, share, ranks, scores, labels, lists)
        share = share / -self.samples

        def rank_gradient(upstream: Tensor) -> Tensor:
            return torch.as_tensor(per_rank * lists.spread(share * plain(upstream)))

        return attach_gradient(
            loss, rank_gradient, scores, labels, lists, self.strategy, self.alpha, self.kernel
        )

    def _pushed_apart(
        self, loss: Tensor, share: Any, ranks: Any, scores: Tensor, labels: Tensor, lists: Lists
    ) -> Tensor:
        """The loss with the gradient of `strategy="swap"`, which is made on the CPU."""
        grades = to_numpy(working_labels(labels, scores, lists).cpu())
        ranks, share = (to_numpy(torch.as_tensor(x).cpu()) for x in (ranks, share))

        def score_gradient(saved_scores: Tensor, upstream: Tensor) -> Tensor:
            from twinrank.ranks.kernels.swaps import swap_sums  # numba takes its time to load

            y = to_numpy(saved_scores.detach().to(working_dtype(saved_scores)).cpu())
            found = self.measure.swaps_at(ranks, grades, lists.tile(self.samples))
            slopes, _ = swap_sums(y, grades, ranks, found, lists, self.alpha)
            each = torch.as_tensor(slopes * lists.spread(share)).to(upstream)
            return each * (lists.spread(upstream) if upstream.ndim else upstream)

        return attach(loss, scores, score_gradient)
