"""The kernel for tensors of a device: Triton's on CUDA, once it agrees with plain torch there."""

from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from twinrank.core.lists import Lists
from twinrank.support.arrays import chosen_kernel, device_path
from twinrank.support.errors import warn

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_SIZES = [5, 0, 1, 40]
_TOLERANCE = 1e-4
"""The largest difference of float32 results, relative to the largest value."""


def device_kernel(x: "Tensor") -> str:
    """The kernel of `device_path`, else "triton" on CUDA if it works there, else "torch"."""
    chosen = chosen_kernel()
    if chosen is not None:
        return chosen
    return "triton" if x.device.type == "cuda" and triton_works(x.device) else "torch"


@cache
def triton_works(device: "torch.device") -> bool:
    """True if Triton is installed and its kernels agree with plain torch on a small input.

    The first call for a device compiles the kernels and waits for the device. If they raise an
    error or give other results, there is a warning, and plain torch is used.
    """
    if find_spec("triton") is None:
        return False
    try:
        problem = _difference(device)
    except Exception as error:  # of the compiler, the driver or the device
        problem = f"they raise {type(error).__name__}: {error}"
    if problem is not None:
        message = (
            f"The Triton kernels do not work on {device}: {problem:.500}. Losses use plain torch, "
            f"which is slower. Pass kernel='torch' to avoid this warning."
        )
        warn(RuntimeWarning(message))
    return problem is None


def _difference(device: "torch.device") -> str | None:
    """Where the two kernels differ, if they do."""
    expected = _results("torch", device)
    for name, result in _results("triton", device).items():
        scale = float(expected[name].abs().max())
        error = float((result - expected[name]).abs().max())
        if not error <= _TOLERANCE * scale:  # NaN is wrong, too
            return f"{name} differs from plain torch by {error:.2g}, with values up to {scale:.2g}"
    return None


def _results(kernel: str, device: "torch.device") -> "dict[str, Tensor]":
    """The results of all kernels for a small input."""
    import torch

    from twinrank.core.ranks.exact import exact_ranks
    from twinrank.core.ranks.kernels import blocks, pair_sum, tiles
    from twinrank.core.ranks.kernels.lambdas import lambda_sums
    from twinrank.core.ranks.kernels.logistic import logistic_sum, soft_ranks

    lists, draw = Lists.from_sizes(_SIZES), torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, lists.documents, generator=draw).to(device)

    scores, g, (scale, ahead, behind) = normal(), normal(), normal(3, 2)
    labels = normal().abs().round()
    discounts = 1 / torch.arange(1, max(_SIZES) + 1, device=device)
    swap_sums = tiles.swap_sums_in_tiles if kernel == "triton" else blocks.swap_sums_in_blocks
    with device_path(kernel, validate=False):
        ranks = exact_ranks(scores, lists, perturbation=0.5, samples=2, generator=draw)
        sums = {
            strategy: pair_sum(scores, labels, g, lists, strategy=strategy)
            for strategy in ("type1", "type2", "type3")
        }
        swaps = SimpleNamespace(worth=labels[None], scale=scale, ahead=ahead, behind=behind)
        lambdas = lambda_sums(scores, labels, ranks[0], lists, discounts, None, 1.0)
        return {
            "exact_ranks": ranks,
            **{f"the pair sum of {strategy}": values for strategy, values in sums.items()},
            "the sum over swaps": swap_sums(scores, labels, ranks, swaps, lists, 1.0)[0],
            "LambdaRank": torch.cat(lambdas),
            "RankNet": logistic_sum(scores, labels, lists, 1.0)[0],
            "soft ranks": soft_ranks(scores, lists, 1.0),
        }
