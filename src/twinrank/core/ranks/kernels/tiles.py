"""Launches of the Triton kernels: sums over pairs, noise and ranks, for tensors on a GPU.

Each function computes what its counterpart in `blocks.py` computes in plain torch. One launch
handles all lists of any length: the tiles of `tile_table` share out the documents. Nothing waits
for the device, and no shape depends on values. With the environment variable `TRITON_INTERPRET=1`
the kernels run on CPU tensors.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels.pairs import SCALE
from twinrank.core.ranks.strategies import RankStrategy
from twinrank.support.errors import InputError

ROWS, COLUMNS = 32, 64
"""The documents of a tile, and those that it meets at once. Not tuned on a GPU."""

COUNTED = 2048
"""Up to this length ranks are counted; longer lists are sorted."""

_BLOCK = 1024
_TIES = ("random", "stable", "average")


@cache
def kernels() -> Any:
    """The module of the kernels, imported at its first use."""
    try:
        from twinrank.core.ranks.kernels import triton_kernels
    except ImportError:
        raise InputError(
            "The kernel 'triton' needs the package triton; install it with "
            "pip install 'twinrank[gpu]', or use kernel='torch'."
        ) from None
    return triton_kernels


def tile_table(lists: Lists, like: Tensor, rows: int) -> Tensor:
    """The first document of each tile, and the begin and end of its list: shape (tiles, 3).

    The number of tiles follows from the sizes, which the host knows; the entries are computed on
    the device.
    """
    key = ("tiles", rows, like.device)
    if key not in lists._derived:
        offsets, _ = lists._tensors(like.device)
        each = (offsets.diff() + (rows - 1)) // rows
        count = int((-(-lists.sizes // rows)).sum())
        number = torch.arange(len(lists), device=like.device)
        of_list = torch.repeat_interleave(number, each, output_size=count)
        step = torch.arange(count, device=like.device) - (each.cumsum(0) - each)[of_list]
        begin, end = offsets[:-1][of_list], offsets[1:][of_list]
        lists._derived[key] = torch.stack([begin + rows * step, begin, end], 1).contiguous()
    return lists._derived[key]  # type: ignore[no-any-return]


def order_keys(labels: Tensor) -> Tensor:
    """Integers in the order of the labels: GPUs compare int64 faster than float64."""
    bits = (labels.double() + 0.0).view(torch.int64)  # −0 + 0 is 0
    return bits ^ ((bits >> 63) & (2**63 - 1))


def launch(kernel: str, lists: Lists, like: Tensor, *arguments: Any, **constants: Any) -> None:
    """Run a kernel of tiles, all lists in one launch; `samples` is the second axis of programs."""
    longest = max(lists.longest, 16)
    rows, columns = (min(tile, 1 << (longest - 1).bit_length()) for tile in (ROWS, COLUMNS))
    table = tile_table(lists, like, rows)
    samples = constants.pop("axis", 1)
    if table.shape[0] and samples:
        run = getattr(kernels(), kernel)[(table.shape[0], samples)]
        with _current(like):
            run(table, *arguments, **constants, ROWS=rows, COLUMNS=columns, enable_fp_fusion=True)


def _current(like: Tensor) -> AbstractContextManager[Any]:
    """Make the device of a tensor the current one, on which Triton launches."""
    return torch.cuda.device(like.device) if like.device.type == "cuda" else nullcontext()


def _numbers(like: Tensor, *values: float) -> Tensor:
    """Numbers in the precision of the scores, in the memory of the device, without a copy."""
    full = [torch.full((1,), value, dtype=like.dtype, device=like.device) for value in values]
    return torch.cat(full)


def _limit(scores: Tensor) -> float:
    """The largest gap of two scores, so that sums stay finite."""
    return 1e300 if scores.dtype == torch.float64 else 1e30


def pair_sums(
    scores: Tensor,
    labels: Tensor,
    rank_gradient: Tensor,
    lists: Lists,
    strategy: RankStrategy,
    alpha: float,
    *,
    curvature: bool = False,
    done: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """∂L/∂score of every document and h (zeros without `curvature`), in the scores' precision.

    Lists whose documents are `done` get 0.
    """
    y, g = scores.contiguous(), rank_gradient.to(scores.dtype).contiguous()
    keys = y if strategy == "type1" else order_keys(labels)
    sums, curves = torch.zeros_like(y), torch.zeros_like(y)
    skip = keys if done is None else done.to(torch.int8)
    launch(
        "sum_pairs", lists, y, y, keys, g, skip, _numbers(y, alpha), sums, curves,
        STRATEGY=int(strategy[-1]), CURVES=curvature, SKIP=done is not None,
    )  # fmt: skip
    factor = SCALE[strategy] * alpha
    return factor * sums, abs(factor) * alpha * curves


def swap_sums_in_tiles(
    scores: Tensor, labels: Tensor, ranks: Tensor, swaps: Any, lists: Lists, alpha: float
) -> tuple[Tensor, Tensor]:
    """As `swap_sums`; `swaps` has tensors by document, of shape (samples, documents)."""
    y, samples = scores.contiguous(), ranks.shape[0]
    sums, curves = torch.zeros_like(y), torch.zeros_like(y)
    by_sample = [x.to(y.dtype).contiguous() for x in (swaps.scale, swaps.ahead, swaps.behind)]
    launch(
        "sum_swaps", lists, y, y, order_keys(labels), swaps.worth[0].to(y.dtype).contiguous(),
        ranks.to(torch.int32).contiguous(), *by_sample, _numbers(y, alpha), sums, curves, samples,
        lists.documents,
    )  # fmt: skip
    return alpha / samples * sums, alpha**2 / samples * curves


def lambda_sums_in_tiles(
    scores: Tensor,
    gains: Tensor,
    ranks: Tensor,
    lists: Lists,
    discounts: Tensor,
    nearness: Tensor | None,
    alpha: float,
) -> tuple[Tensor, Tensor]:
    """The weighted logistic loss of each list, and its gradient."""
    y, places = scores.contiguous(), ranks.to(torch.int32).contiguous()
    values, sums = torch.zeros_like(y), torch.zeros_like(y)
    near = discounts if nearness is None else nearness
    launch(
        "sum_lambdas", lists, y, y, gains.to(y.dtype).contiguous(), places,
        discounts[places.long() - 1].to(y.dtype), near.to(y.dtype), _numbers(y, alpha, _limit(y)),
        values, sums, NEAR=nearness is not None,
    )  # fmt: skip
    return lists.sum(values), alpha * sums


def logistic_sum_in_tiles(
    scores: Tensor, labels: Tensor, lists: Lists, alpha: float
) -> tuple[Tensor, Tensor]:
    """The logistic loss of each list, and the number of its pairs with different labels."""
    y = scores.contiguous()
    values, pairs = torch.zeros_like(y), torch.zeros_like(y)
    numbers = _numbers(y, alpha, _limit(y))
    launch("sum_logistic", lists, y, y, order_keys(labels), numbers, values, pairs, LOSSES=True)
    return lists.sum(values), lists.sum(pairs)


def soft_ranks_in_tiles(scores: Tensor, lists: Lists, alpha: float) -> Tensor:
    """The soft rank of every document."""
    y = scores.contiguous()
    values, numbers = torch.zeros_like(y), _numbers(y, alpha, _limit(y))
    launch("sum_logistic", lists, y, y, y, numbers, values, values, LOSSES=False)
    return values + 0.5  # a document paired with itself has counted ½


def perturbed(
    scores: Tensor, seed: int | Tensor, perturbation: float, samples: int
) -> tuple[Tensor, Tensor]:
    """Scores + perturbation · noise of all samples one after the other, and the keys of ties."""
    size, device = samples * scores.shape[0], scores.device
    result = torch.empty(size, dtype=scores.dtype, device=device)
    keys = torch.empty(size, dtype=torch.int64, device=device)
    if size:
        start = torch.full((1,), 0, dtype=torch.int64, device=device) + seed
        scale = torch.full((1,), perturbation, dtype=torch.float64, device=device)
        # Without fused multiply-add, so that the sum is rounded as on a CPU.
        with _current(scores):
            kernels().perturb[(-(-size // _BLOCK),)](
                scores.contiguous(), start, scale, result, keys, scores.shape[0], size,
                NOISE=perturbation > 0, BLOCK=_BLOCK, enable_fp_fusion=False,
            )  # fmt: skip
    return result, keys


def counted_ranks(scores: Tensor, keys: Tensor, lists: Lists, ties: str, samples: int) -> Tensor:
    """The rank of every document in each sample."""
    ranks = torch.empty_like(scores)
    launch(
        "count_ranks", lists, scores, scores, keys, ranks, lists.documents,
        TIES=_TIES.index(ties), axis=samples,
    )  # fmt: skip
    return ranks
