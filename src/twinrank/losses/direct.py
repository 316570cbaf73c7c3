"""Direct optimisation of a measure: minus its exact value, with the strategy's gradient."""

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from twinrank.lists import Lists, check_lists
from twinrank.measures import Measure
from twinrank.measures import measure as as_measure
from twinrank.ranks.exact import check_finite, check_perturbation, exact_ranks
from twinrank.ranks.kernels import check_kernel
from twinrank.ranks.strategies import Strategy, as_strategy
from twinrank.ranks.twin import attach_gradient, check_alpha, working_dtype
from twinrank.support.arrays import Array, as_float, namespace, on_cpu, to_numpy
from twinrank.support.errors import InputError
from twinrank.support.graphs import untraced
from twinrank.support.suggest import unknown

Reduction = Literal["mean", "sum", "none"]


class DirectLoss(nn.Module):
    """Minus a measure of the exact ranking, differentiable with respect to the scores.

    L_q = −Σ_i credit_i · discount(rank_i), averaged over the lists q that have something relevant
    (`reduction="mean"`; the others count 0), or their "sum", or "none": one loss per list. With
    `weights`, one per list, the mean is Σ w·L / Σ w.

    `strategy` and `alpha` say how ranks pass their gradient on (see `twin_ranks`);
    `perturbation` τ and `samples` S average the loss over S rankings of scores + τ·Gumbel noise.

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
        super().__init__()
        if reduction not in get_args(Reduction):
            raise InputError(unknown("reduction", str(reduction), get_args(Reduction)))
        check_perturbation(perturbation, samples)
        check_kernel(kernel)
        check_alpha(alpha)
        self.measure = as_measure(measure)
        self.strategy: Strategy = as_strategy(strategy)
        self.alpha = alpha
        self.perturbation = perturbation
        self.samples = samples
        self.reduction: Reduction = reduction
        self.generator = generator
        self.kernel = kernel

    def extra_repr(self) -> str:
        """What distinguishes this loss when it is printed."""
        shown = f"{self.measure}, strategy={self.strategy}, alpha={self.alpha:g}"
        if self.perturbation:
            shown += f", perturbation={self.perturbation:g}, samples={self.samples}"
        return shown

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
            generator=torch.default_generator if self.generator is None else self.generator,
            perturbation=self.perturbation,
            samples=self.samples,
        )
        # Samples are S times as many lists; their gradients add up before the one pair pass.
        values, slopes, filled = self.measure.at_ranks(
            ranks, plain(labels), lists.tile(self.samples), gradient=True
        )
        total = values.reshape(self.samples, -1).sum(0)
        per_rank = slopes.reshape(self.samples, -1).sum(0) if self.samples > 1 else slopes
        loss, share = _reduce(total / -self.samples, filled[: len(lists)], weights, self.reduction)
        share = share / -self.samples

        def rank_gradient(upstream: Tensor) -> Tensor:
            return torch.as_tensor(per_rank * lists.spread(share * plain(upstream)))

        loss = torch.as_tensor(loss).to(working_dtype(scores))
        return attach_gradient(
            loss, rank_gradient, scores, labels, lists, self.strategy, self.alpha, self.kernel
        )


def flatten(
    scores: Tensor, labels: Tensor, lists: Lists | None, mask: Tensor | None
) -> tuple[Tensor, Tensor, Lists]:
    """Bring flat or padded input to the flat form, and refuse what doesn't fit together."""
    for name, value in (("scores", scores), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a torch tensor, not {type(value).__name__}")
    if not scores.is_floating_point():
        raise InputError(f"scores must be floating-point numbers, not {scores.dtype}")
    if scores.shape != labels.shape:
        raise InputError(
            f"scores {tuple(scores.shape)} and labels {tuple(labels.shape)} must align"
        )
    if scores.ndim == 2 and lists is None:
        if mask is None:
            mask = torch.ones_like(scores, dtype=torch.bool)
        if mask.shape != scores.shape:
            raise InputError(
                f"mask {tuple(mask.shape)} and scores {tuple(scores.shape)} must align"
            )
        lists = Lists.from_mask(mask)  # which refuses a mask that isn't boolean
        return scores[mask], labels[mask], lists
    if scores.ndim != 1 or mask is not None:
        raise InputError(
            f"give flat scores with lists, or padded (lists, documents) scores with a mask; "
            f"got scores {tuple(scores.shape)}, lists {lists!r}"
            f"{'' if mask is None else f' and mask {tuple(mask.shape)}'}"
        )
    if lists is None:
        raise InputError(
            "flat scores need lists, which say where a query's documents end: Lists.from_qid(qid), "
            "Lists.from_sizes(sizes), or Lists.from_sizes([len(scores)]) if they are one query's"
        )
    check_lists(lists)
    lists.check(scores=scores, labels=labels)
    return scores, labels, lists


def _reduce(
    losses: Array, counted: Array, weights: Tensor | None, reduction: Reduction
) -> tuple[Array, Array]:
    """The reduced loss, and the share that the loss of each list has in it."""
    xp, share = namespace(losses), as_float(counted)
    if weights is not None:
        if not isinstance(weights, Tensor):
            raise InputError(f"weights must be a torch tensor, not {type(weights).__name__}")
        if tuple(weights.shape) != tuple(losses.shape):
            raise InputError(
                f"weights {tuple(weights.shape)} must have one entry per list, {len(losses)} in all"
            )
        if bool((weights < 0).any()) or not bool(torch.isfinite(weights).all()):
            raise InputError("weights must be finite and not negative")
        share = share * as_float(to_numpy(weights.cpu()) if xp is np else weights)
    total = share.sum()
    if reduction == "mean" and bool(total > 0):
        share = share / total
    return (losses * share if reduction == "none" else (losses * share).sum()), share
