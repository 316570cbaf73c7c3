"""Exact ranks with the gradient of the twin-sigmoid, and the twin-sigmoid itself."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from twinrank.core.lists import Lists, check_lists
from twinrank.core.ranks.exact import check_finite, exact_ranks
from twinrank.core.ranks.kernels import check_kernel, pair_sum, path_of
from twinrank.core.ranks.strategies import RankStrategy, as_rank_strategy
from twinrank.support.arrays import as_float, device_path, on_cpu, to_numpy, untraced
from twinrank.support.errors import InputError, check_number


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
    """Ranks 1 … m within each list: exact in value, differentiable with respect to the scores.

    rank_i = 1 + Σ_{j≠i} (1 − σ⁺(y_i − y_j)), where the twin-sigmoid σ⁺ is a step forward and a
    sigmoid of steepness `alpha` backward (Yu 2020, sections 4.2 and 5). Tied scores are ordered at
    random. For any number of samples, backward visits the pairs of the unperturbed scores once.

    Parameters
    ----------
    scores : tensor of float, shape (n_documents,)
        Higher is better.
    labels : tensor, shape (n_documents,)
        Graded relevance ≥ 0, or −1 for unjudged documents, which count as 0.
    lists : Lists
        Which documents belong together.
    strategy : {"type1", "type2", "type3"}, default "type3"
        Which gradient to use: type1 is the slope of the sigmoid, type2 has also the sign of the
        label difference, type3 grows with the error.
    alpha : float, default 1.0
        Steepness of the backward sigmoid.
    generator : torch.Generator, optional
        Source of random ties and noise. Default: torch's global generator.
    perturbation : float, default 0.0
        Scale τ of Gumbel noise: the ranks are those of scores + τ·noise.
    samples : int, optional
        Number S of perturbed orders. Default: one, without the dimension of samples.
    kernel : str, default "auto"
        How the sum over pairs is computed: `"auto"`, `"torch"`, `"triton"`, `"numba"` or `"long"`.

    Returns
    -------
    tensor of float, shape (n_documents,) or (samples, n_documents)
        The ranks.

    Raises
    ------
    InputError
        If the arguments do not fit together, scores or labels are not finite, or an option is
        invalid.

    Examples
    --------
    >>> scores = torch.tensor([0.5, 2.0, 1.0], requires_grad=True)
    >>> labels = torch.tensor([1.0, 0.0, 0.0])
    >>> ranks = twin_ranks(scores, labels, Lists.from_sizes([3]))
    >>> ranks.tolist()
    [3.0, 1.0, 2.0]
    >>> ranks[0].backward()          # raising scores[0] lowers the rank of the relevant document
    >>> [round(x, 3) for x in scores.grad.tolist()]
    [-2.88, 1.635, 1.245]
    """
    for name, value in (("scores", scores), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a torch tensor, not {type(value).__name__}.")
    check_lists(lists)
    lists.check(scores=scores, labels=labels)
    as_rank_strategy(strategy)
    check_kernel(kernel)
    check_number("alpha", alpha)
    check_finite("labels", labels, lists)
    with device_path(path_of(kernel)):
        ranks = exact_ranks(
            scores.detach(), lists, generator=generator, perturbation=perturbation, samples=samples
        )
        labels = working_labels(labels, scores, lists)

    def rank_gradient(upstream: Tensor) -> Tensor:
        return upstream if upstream.ndim == 1 else upstream.sum(0)

    return attach(
        ranks, scores, through_ranks(rank_gradient, labels, lists, strategy, alpha, kernel)
    )


def through_ranks(
    rank_gradient: Callable[[Tensor], Tensor],
    labels: Tensor,
    lists: Lists,
    strategy: RankStrategy,
    alpha: float,
    kernel: str,
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of scores and ∂L/∂output that returns ∂L/∂score, for an output of the ranks.

    `rank_gradient` turns ∂L/∂output into ∂L/∂rank per document; the pair sum does the rest. Labels
    are those of `working_labels`.
    """
    path = path_of(kernel)

    def score_gradient(scores: Tensor, upstream: Tensor) -> Tensor:
        with device_path(path):
            return pair_sum(  # type: ignore[no-any-return]
                scores.to(working_dtype(scores)),
                labels,
                rank_gradient(upstream),
                lists,
                strategy=strategy,
                alpha=alpha,
                kernel=kernel,
            )

    return score_gradient


def attach(
    output: Tensor, scores: Tensor, score_gradient: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return `output` with the gradient `score_gradient(scores, upstream)`."""
    return _Attached.apply(scores, output, score_gradient)  # type: ignore[no-any-return, no-untyped-call]


def working_labels(labels: Tensor, scores: Tensor, lists: Lists) -> Tensor:
    """Labels on the device of the scores, which must be finite; unjudged labels (−1) are 0.

    Labels are compared, so they have double precision for any scores. On the CPU NumPy computes
    them: torch would use its OpenMP threads, and a child process forked later would hang.
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
    """Forward: the given output. Backward: `score_gradient`."""

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
    """The first derivative; differentiating it again raises an error."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, upstream: Tensor, scores: Tensor, score_gradient: Callable[..., Tensor]
    ) -> Tensor:
        return score_gradient(scores.detach(), upstream.detach()).to(scores.dtype)

    @staticmethod
    def backward(ctx: FunctionCtx, *upstream: Tensor) -> None:
        raise RuntimeError(
            "Twin ranks have a first derivative only: the strategies define a gradient, not a "
            "function to differentiate twice. Compute this loss without create_graph=True."
        )


def twin_sigmoid(
    z: Tensor,
    alpha: float = 1.0,
    forward_alpha: float = math.inf,
    *,
    strategy: RankStrategy = "type1",
    sign: Tensor | float = 1.0,
) -> Tensor:
    """σ⁺(z): a sigmoid of steepness `forward_alpha` in value and of steepness `alpha` in gradient.

    With the sigmoid σ of steepness α, the gradient with respect to z is (Yu 2020, Eqs. type1–type3)

        type1   α·σ(z)·(1 − σ(z))
        type2   u·α·σ(z)·(1 − σ(z))
        type3   2α·(1 − σ(z)) for u = 1,  −2α·σ(z) for u = −1,  0 for u = 0

    Parameters
    ----------
    z : tensor of float
        Difference of two scores.
    alpha : float, default 1.0
        Steepness α of the backward sigmoid.
    forward_alpha : float, default infinity
        Steepness of the forward sigmoid. With infinity the value is 0, ½ or 1.
    strategy : {"type1", "type2", "type3"}, default "type1"
        Which gradient to use.
    sign : tensor or float, default 1.0
        Sign u of the difference of the two labels.

    Returns
    -------
    tensor of float
        σ⁺(z), with the shape of `z`.

    Raises
    ------
    InputError
        If a steepness is not positive or the strategy is unknown.

    Examples
    --------
    >>> z = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
    >>> twin_sigmoid(z).tolist()
    [0.0, 0.5, 1.0]
    >>> twin_sigmoid(z).sum().backward()
    >>> [round(x, 3) for x in z.grad.tolist()]
    [0.105, 0.25, 0.105]
    """
    as_rank_strategy(strategy)
    for name, value in (("alpha", alpha), ("forward_alpha", forward_alpha)):
        if not value > 0:
            raise InputError(f"{name} must be positive, not {value}.")
    u = torch.as_tensor(sign, dtype=z.dtype, device=z.device)
    return _TwinSigmoid.apply(z, alpha, forward_alpha, strategy, u)  # type: ignore[no-any-return, no-untyped-call]


class _TwinSigmoid(Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, alpha: float, forward_alpha: float, strategy: RankStrategy, u: Tensor
    ) -> Tensor:
        ctx.save_for_backward(z, u)
        ctx.alpha, ctx.strategy = alpha, strategy
        if math.isinf(forward_alpha):
            return (torch.sign(z) + 1) / 2
        return torch.sigmoid(forward_alpha * z)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, u = ctx.saved_tensors
        x = ctx.alpha * z
        if ctx.strategy == "type3":
            slope = 2 * ctx.alpha * u * torch.sigmoid(-u * x)
        else:
            slope = ctx.alpha * torch.sigmoid(x) * torch.sigmoid(-x)
            slope = slope if ctx.strategy == "type1" else u * slope
        return upstream[0] * slope, None, None, None, None
