"""Exact ranks whose gradient is that of the paper's twin-sigmoid."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from twinrank.lists import Lists, check_lists
from twinrank.ranks.exact import check_finite, exact_ranks
from twinrank.ranks.kernels import check_kernel, pair_sum
from twinrank.ranks.strategies import RankStrategy, as_rank_strategy
from twinrank.support.arrays import as_float, on_cpu, to_numpy, untraced
from twinrank.support.errors import InputError


@untraced
def twin_ranks(
    scores: Tensor,
    labels: Tensor,
    lists: Lists,
    *,
    strategy: RankStrategy = "type3",
    alpha: float = 1.0,
    generator: torch.Generator | None = None,
    perturbation: float = 0.0,
    samples: int | None = None,
    kernel: str = "auto",
) -> Tensor:
    """Ranks 1…m within each list: exact in value, differentiable with respect to the scores.

    rank_i = 1 + Σ_{j≠i} (1 − σ⁺(y_i − y_j)), where the twin-sigmoid σ⁺ is a step forward and a
    sigmoid of steepness `alpha` backward, by `strategy` (Yu 2020, sections 4.2 and 5). Ties,
    perturbation and samples are those of `exact_ranks`; whatever the number of samples, backward
    makes one pass over the pairs, of the unperturbed scores.

    >>> scores = torch.tensor([0.5, 2.0, 1.0], requires_grad=True)
    >>> labels = torch.tensor([1.0, 0.0, 0.0])
    >>> ranks = twin_ranks(scores, labels, Lists.from_sizes([3]))
    >>> ranks.tolist()
    [3.0, 1.0, 2.0]
    >>> ranks[0].backward()          # how the relevant document's rank wants to fall …
    >>> [round(x, 3) for x in scores.grad.tolist()]
    [-2.88, 1.635, 1.245]
    """
    for name, value in (("scores", scores), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a torch tensor, not {type(value).__name__}")
    check_lists(lists)
    lists.check(scores=scores, labels=labels)
    check_finite("labels", labels, lists)
    ranks = exact_ranks(
        scores.detach(), lists, generator=generator, perturbation=perturbation, samples=samples
    )

    def rank_gradient(upstream: Tensor) -> Tensor:
        return upstream if upstream.ndim == 1 else upstream.sum(0)

    return attach_gradient(ranks, rank_gradient, scores, labels, lists, strategy, alpha, kernel)


def attach_gradient(
    output: Tensor,
    rank_gradient: Callable[[Tensor], Tensor],
    scores: Tensor,
    labels: Tensor,
    lists: Lists,
    strategy: RankStrategy,
    alpha: float,
    kernel: str,
) -> Tensor:
    """Return `output`, a function of the ranks, with a gradient with respect to the scores.

    `rank_gradient` turns ∂L/∂output into ∂L/∂rank per document; the pair sum does the rest.
    """
    as_rank_strategy(strategy)
    check_kernel(kernel)
    check_alpha(alpha)
    lists.check(scores=scores, labels=labels)
    labels = working_labels(labels, scores, lists)

    def score_gradient(saved_scores: Tensor, upstream: Tensor) -> Tensor:
        return pair_sum(  # type: ignore[no-any-return]
            saved_scores.to(working_dtype(saved_scores)),
            labels,
            rank_gradient(upstream),
            lists,
            strategy=strategy,
            alpha=alpha,
            kernel=kernel,
        )

    return attach(output, scores, score_gradient)


def attach(
    output: Tensor, scores: Tensor, score_gradient: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return `output` with the gradient that `score_gradient(scores, upstream)` says."""
    return _Attached.apply(scores, output, score_gradient)  # type: ignore[no-any-return, no-untyped-call]


def check_alpha(alpha: float, name: str = "alpha") -> None:
    """Refuse a steepness that isn't a positive number."""
    if not (isinstance(alpha, Real) and 0 < alpha < math.inf):
        raise InputError(f"{name} must be a positive number, not {alpha!r}")


def working_labels(labels: Tensor, scores: Tensor, lists: Lists) -> Tensor:
    """Labels beside the scores, once these are known to be finite; unjudged ones (−1) are 0.

    In double precision whatever the scores have, since labels are compared. On the CPU by NumPy:
    torch would use its OpenMP threads, and a child forked later would hang.
    """
    labels = labels.detach().to(scores.device)
    check_finite("scores", scores, lists)
    if not on_cpu(labels):
        return as_float(labels).clamp(min=0)  # type: ignore[no-any-return]
    return torch.from_numpy(np.maximum(as_float(to_numpy(labels)), 0))


def working_dtype(scores: Tensor) -> torch.dtype:
    """The precision of ranks and sums: float64 for float64 scores, else float32."""
    return torch.float64 if scores.dtype == torch.float64 else torch.float32


class _Attached(Function):
    """Forward: `output` as it is. Backward: what `score_gradient` says."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, scores: Tensor, output: Tensor, score_gradient: Callable[..., Tensor]
    ) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.score_gradient = score_gradient  # type: ignore[attr-defined]
        return output.clone()

    @staticmethod
    @untraced
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (scores,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            once = _Once.apply(upstream[0], scores, ctx.score_gradient)  # type: ignore[no-untyped-call]
            return once, None, None
        return ctx.score_gradient(scores, upstream[0]).to(scores.dtype), None, None


class _Once(Function):
    """The first derivative, which refuses to be differentiated again."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, upstream: Tensor, scores: Tensor, score_gradient: Callable[..., Tensor]
    ) -> Tensor:
        return score_gradient(scores.detach(), upstream.detach()).to(scores.dtype)

    @staticmethod
    def backward(ctx: FunctionCtx, *upstream: Tensor) -> None:
        raise RuntimeError(
            "twin ranks have a first derivative only: the strategies define a gradient, not a "
            "function to differentiate twice. Compute this loss without create_graph=True."
        )
