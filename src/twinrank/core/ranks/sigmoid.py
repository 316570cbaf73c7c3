"""The twin-sigmoid of the paper: a step in value, a sigmoid in gradient."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from twinrank.core.ranks.strategies import RankStrategy, as_rank_strategy
from twinrank.support.errors import InputError


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
