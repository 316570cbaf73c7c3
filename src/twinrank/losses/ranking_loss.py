"""What all losses share: flat or padded input, lists that count, weights, the reduction."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from twinrank.lists import Lists, check_lists
from twinrank.ranks.exact import check_finite
from twinrank.ranks.twin import working_dtype
from twinrank.support.arrays import (
    Array,
    as_float,
    at_least_zero,
    from_numpy,
    namespace,
    on_cpu,
    to_numpy,
)
from twinrank.support.compiled import untraced
from twinrank.support.errors import InputError, unknown

Reduction = Literal["mean", "sum", "none"]


class RankingLoss(nn.Module):
    """A loss of flat scores and labels with lists, or of padded ones with a mask.

    The losses of the lists are averaged over those that have something relevant
    (`reduction="mean"`; the others count 0), or summed, or returned one per list ("none"). With
    `weights`, one per list, the mean is Σ w·L / Σ w. `generator` is where anything random comes
    from; None: torch's global one.
    """

    def __init__(
        self, *, reduction: Reduction = "mean", generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise InputError(unknown("reduction", str(reduction), get_args(Reduction)))
        self.reduction: Reduction = reduction
        self.generator = generator

    def counted(self, labels: Array, lists: Lists) -> Array:
        """Which lists have a share in the mean: those with something relevant."""
        return lists.any(labels > 0)

    def random_source(self) -> torch.Generator:
        """Where random numbers come from."""
        return torch.default_generator if self.generator is None else self.generator


class SmoothLoss(RankingLoss):
    """A loss that is a smooth function of the scores: its value and gradient in closed form.

    A subclass gives both at once, list by list; autograd meets them as one node.
    """

    name: ClassVar[str]
    needs_relevant: ClassVar[bool] = True
    """Whether a list with nothing relevant is left out."""

    def counted(self, labels: Array, lists: Lists) -> Array:
        """Which lists have a share in the mean; labels are those of `per_list`."""
        return super().counted(labels, lists) if self.needs_relevant else lists.any(labels >= 0)

    @abstractmethod
    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The loss L_q of each list, and ∂L_q/∂score of each document, in float64 or float32.

        Arrays are NumPy's on the CPU and tensors elsewhere: scores in float32 or float64, finite;
        labels in float64, finite, unjudged ones as 0. Lists may be empty, and where
        `needs_relevant` is true, those with nothing relevant may get anything finite.
        """

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
        check_finite("labels", labels, lists)
        check_finite("scores", scores, lists)
        plain = to_numpy if on_cpu(scores) else Tensor.detach
        grades = at_least_zero(as_float(plain(labels.to(scores.device))))
        values, slopes = self.per_list(plain(scores.to(working_dtype(scores))), grades, lists)
        counted = self.counted(grades, lists)
        loss, share = reduced(
            as_float(values), as_float(from_numpy(counted, values)), weights, self.reduction
        )
        slopes = slopes * lists.spread(share)
        loss = torch.as_tensor(loss).to(working_dtype(scores))
        return _WithGradient.apply(scores, loss, torch.as_tensor(slopes), lists)  # type: ignore[no-any-return, no-untyped-call]


class _WithGradient(Function):
    """Forward: the loss as it is. Backward: the slopes, times what comes from above."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, scores: Tensor, loss: Tensor, slopes: Tensor, lists: Lists
    ) -> Tensor:
        ctx.save_for_backward(slopes)
        ctx.lists = lists  # type: ignore[attr-defined]
        ctx.dtype = scores.dtype  # type: ignore[attr-defined]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "ranking losses have a first derivative only: compute them without "
                "create_graph=True"
            )
        (slopes,) = ctx.saved_tensors
        above = upstream[0].to(slopes.dtype)
        if above.ndim:
            above = ctx.lists.spread(above)
        return (slopes * above).to(ctx.dtype), None, None, None


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


def reduced(
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
