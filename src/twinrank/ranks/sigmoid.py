"""The paper's twin-sigmoid: a step in value, a sigmoid in gradient."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from twinrank.ranks.strategies import RankStrategy, as_rank_strategy
from twinrank.support.errors import InputError


def twin_sigmoid(
    z: Tensor,
    alpha: float = 1.0,
    forward_alpha: float = math.inf,
    *,
    strategy: RankStrategy = "type1",
    sign: Tensor | float = 1.0,
) -> Tensor:
    """σ⁺(z): the sigmoid with steepness `forward_alpha` in value, with `alpha` in gradient.

    With an infinite `forward_alpha` the value is 0, ½ or 1. `sign` is u, the sign of the
    difference of the two labels. The gradient with respect to z is, σ being the sigmoid of
    steepness α (Yu 2020, Eqs. type1–type3),

        type1   α·σ(z)·(1 − σ(z))
        type2   u·α·σ(z)·(1 − σ(z))
        type3   2α·(1 − σ(z)) for u = 1,  −2α·σ(z) for u = −1,  0 for u = 0

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
            raise InputError(f"{name} must be positive, not {value}")
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
