"""The pair sum: the gradient with respect to scores from that with respect to ranks.

With g_i = ∂L/∂rank_i, y_aj = y_a − y_j, K(x) = α·σ(αx)·(1 − σ(αx)) and u_aj = sign(label_a −
label_j), the chain rule through the paper's twin-sigmoid folds into one sum per document:

    type1   ∂L/∂y_a = Σ_j (g_j − g_a) · K(y_aj)
    type2   ∂L/∂y_a = −Σ_j (g_a + g_j) · u_aj · K(y_aj)
    type3   ∂L/∂y_a = −2α Σ_j (g_a + g_j) · u_aj · σ(−α · u_aj · y_aj)

Four kernels compute it: `torch` on any device, `triton` on CUDA devices, `numba` (every pair) and
`long` (interpolated) on the CPU. `auto` uses `triton` on CUDA devices if it is installed, `torch`
on other devices, and on the CPU `numba` for short lists; it interpolates long lists where that is
possible. Internal: import public names from `twinrank`.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels.device_choice import device_kernel
from twinrank.core.ranks.strategies import RankStrategy
from twinrank.support.arrays import (
    Array,
    cast,
    from_numpy,
    is_tensor,
    on_cpu,
    to_numpy,
)
from twinrank.support.errors import InputError
from twinrank.support.notation import parse

LONG = 1500
"""From this length on `auto` interpolates if that is cheaper."""

DEVICE_LONG = 8192
"""From this length on `auto` interpolates on other devices. Not tuned on a GPU."""

KERNELS = ("auto", "torch", "triton", "numba", "long")

DEVICE_KERNELS = ("torch", "triton")
"""The kernels for tensors on any device; the others run on the CPU."""

Kernel = Callable[[Any, Any, Any, Lists, RankStrategy, float], Any]


def pair_sum(
    scores: Array,
    labels: Array,
    rank_gradient: Array,
    lists: Lists,
    *,
    strategy: RankStrategy,
    alpha: float = 1.0,
    kernel: str = "auto",
) -> Array:
    """∂L/∂score from ∂L/∂rank, in the precision of the scores: float32 or float64.

    `kernel` is "auto", "torch", "triton", "numba" or "long", with options in parentheses:
    "long(accuracy=1e-5)", "torch(block=100000)".
    """
    name, options = _read(kernel)
    by_length = name == "auto" and not on_cpu(scores)
    if by_length:
        name = device_kernel(scores)
    if name in DEVICE_KERNELS:
        import torch

        y, label, g = map(torch.as_tensor, (scores, labels, rank_gradient))
        run = _on_device(name, options, by_length and lists.longest >= DEVICE_LONG)
        result = run(y, label, g.to(y.dtype), lists, strategy, alpha)
        return result if is_tensor(scores) else result.numpy()
    if not on_cpu(scores):
        raise InputError(
            f"The kernel {kernel!r} runs on the CPU, but the scores are on {scores.device}."
        )
    values = to_numpy(scores)
    gradient = np.ascontiguousarray(cast(to_numpy(rank_gradient), values))
    run = _on_cpu(name, options)
    return from_numpy(run(values, to_numpy(labels), gradient, lists, strategy, alpha), like=scores)


def check_kernel(kernel: str) -> None:
    """Raise an error for an unknown kernel or option."""
    _read(kernel)


def path_of(kernel: str) -> str | None:
    """The kernel if a whole loss runs on tensors with it, for `device_path`, else None."""
    name, _ = _read(kernel)
    return name if name in DEVICE_KERNELS else None


@lru_cache
def _read(kernel: str) -> tuple[str, dict[str, Any]]:
    known = {name: set[str]() for name in KERNELS}
    known |= {"torch": {"block"}, "long": {"accuracy"}}
    term = parse(kernel)
    if term.name not in KERNELS or term.cutoff is not None:
        raise InputError(argument="kernel", value=kernel, choices=KERNELS)
    for option, value in term.options.items():
        if option not in known[term.name]:
            listed = ", ".join(sorted(known[term.name])) or "none"
            raise InputError(
                f"The kernel {term.name} has no option {option!r}. Its options: {listed}."
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"The option {option} of a kernel must be a number, not {value!r}.")
        if option == "block" and not (isinstance(value, int) and value >= 1):
            raise InputError(
                f"The option block of a kernel must be a whole number of at least 1, not {value}."
            )
        if option == "accuracy" and not 1e-14 <= value <= 0.1:
            raise InputError(
                f"The option accuracy of a kernel must be between 1e-14 and 0.1, not {value}."
            )
    return term.name, term.options


def _on_device(name: str, options: dict[str, Any], long: bool) -> Kernel:
    if long:
        from twinrank.core.ranks.kernels.device_panels import panels_and_pairs

        return partial(panels_and_pairs, name)
    if name == "torch":
        from twinrank.core.ranks.kernels.blocks import TorchKernel

        return TorchKernel(**options)
    from twinrank.core.ranks.kernels.tiles import pair_sums

    return lambda *arguments: pair_sums(*arguments)[0]


def _on_cpu(name: str, options: dict[str, Any]) -> Kernel:
    if name == "numba":
        return _direct
    from twinrank.core.ranks.kernels.panels import LongKernel

    return LongKernel(**options) if name == "long" else _by_length


def _direct(*arguments: Any) -> Any:
    from twinrank.core.ranks.kernels.pairs import direct_sums

    return direct_sums(*arguments)[0]


def _by_length(
    scores: Any, labels: Any, rank_gradient: Any, lists: Lists, strategy: RankStrategy, alpha: float
) -> Any:
    """Short lists pair by pair, long lists interpolated where that is cheaper."""
    if lists.longest < LONG:
        return _direct(scores, labels, rank_gradient, lists, strategy, alpha)
    from twinrank.core.ranks.kernels.panels import LongKernel

    result = np.empty_like(scores)
    long = lists.sizes >= LONG
    for kernel, chosen in ((LongKernel(always=False), long), (_direct, ~long)):
        docs = lists.spread(chosen)
        part = Lists.from_sizes(lists.sizes[chosen])
        result[docs] = kernel(
            scores[docs], labels[docs], rank_gradient[docs], part, strategy, alpha
        )
    return result
