"""Exact ranks without a gradient, of NumPy arrays and torch tensors on any device."""

import sys
from typing import Any, Literal, get_args

import numpy as np

from twinrank.lists import Lists
from twinrank.support import random
from twinrank.support.arrays import Array, as_float, from_numpy, is_tensor, on_cpu, to_numpy
from twinrank.support.errors import InputError
from twinrank.support.suggest import unknown

Ties = Literal["random", "stable", "average"]


def exact_ranks(
    scores: Array,
    lists: Lists,
    *,
    ties: Ties = "random",
    generator: Any = None,
    perturbation: float = 0.0,
    samples: int | None = None,
) -> Array:
    """The rank of every document within its list: 1 for the highest score, m for the lowest.

    Tied scores are ordered by a random permutation (`ties="random"`, as in the paper), by their
    place in the array (`"stable"`), or share their mean rank (`"average"`). With `perturbation`
    τ > 0 the ranks are those of `scores + τ · Gumbel noise`; with `samples` S there are S such
    orders, and the result has shape (S, documents). The same generator in the same state gives
    the same ties and noise, on any number of threads.

    Table 1 of Yu (2020), z = (1, 3, 5, 4):

    >>> z = np.array([1.0, 3.0, 5.0, 4.0])
    >>> rank = exact_ranks(z, Lists.from_sizes([4]))
    >>> rank                                       # π(z)
    array([4., 3., 1., 2.])
    >>> np.sort(rank)                              # ŝ(π(z))
    array([1., 2., 3., 4.])
    >>> np.argsort(rank)                           # ŝ⁻¹(π(z))
    array([2, 3, 1, 0])
    >>> z[np.argsort(rank)]                        # z⟦ŝ⁻¹(π(z))⟧
    array([5., 4., 3., 1.])
    """
    if ties not in get_args(Ties):
        raise InputError(unknown("way to break ties", str(ties), get_args(Ties)))
    check_perturbation(perturbation, samples)
    scores = scores if is_tensor(scores) else np.asarray(scores)
    lists.check(scores=scores)
    _refuse_nan(scores, lists)
    orders = 1 if samples is None else samples
    random_numbers = ties == "random" or perturbation
    seed = random.draw_seed(generator, like=scores) if random_numbers else 0
    if on_cpu(scores):
        ranks = _ranks_by_loop(scores, lists, ties, seed, perturbation, orders)
    else:
        ranks = _ranks_by_sorting(scores, lists, ties, seed, perturbation, orders)
    return ranks[0] if samples is None else ranks


def check_perturbation(perturbation: float, samples: int | None) -> None:
    """Refuse a negative perturbation and a number of samples below one."""
    if not (perturbation >= 0 and np.isfinite(perturbation)):
        raise InputError(f"perturbation must be a number ≥ 0, not {perturbation}")
    if samples is not None and samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}")


def refuse(bad: Array, what: str, lists: Lists) -> None:
    """Raise an error that says how many entries are bad, and where the first one is."""
    count = int(bad.sum())
    if count:
        first = int(bad.nonzero()[0][0])
        raise InputError(
            f"{count} of {lists.documents} {what}; the first is document {first}, "
            f"in list {lists.list_of(first)}"
        )


def _refuse_nan(scores: Array, lists: Lists) -> None:
    refuse(scores != scores, "scores are NaN", lists)  # noqa: PLR0124


def _is_double(scores: Array) -> bool:
    if is_tensor(scores):
        return bool(scores.dtype == sys.modules["torch"].float64)
    return scores.dtype not in (np.float32, np.float16)


def _ranks_by_loop(
    scores: Array, lists: Lists, ties: Ties, seed: int, perturbation: float, orders: int
) -> Array:
    """The compiled loop: a radix sort per list, parallel over lists and samples."""
    from twinrank.ranks.sorted_ranks import rank_lists
    from twinrank.support.compiled import in_threads, spans

    values = np.ascontiguousarray(to_numpy(scores), dtype=np.float64)
    ranks = np.empty((orders, lists.documents))
    in_threads(
        rank_lists,
        spans(np.tile(lists.sizes, orders), per_thread=4096),
        values,
        lists.offsets,
        get_args(Ties).index(ties),
        seed,
        float(perturbation),
        not _is_double(scores),
        ranks.reshape(-1),
    )
    if not _is_double(scores):
        ranks = ranks.astype(np.float32)
    return from_numpy(ranks, like=scores)


def _ranks_by_sorting(
    scores: Array, lists: Lists, ties: Ties, seed: int, perturbation: float, orders: int
) -> Array:
    """Stable torch sorts by tie key, score and list, for tensors on any device."""
    import torch

    dtype = torch.float64 if _is_double(scores) else torch.float32
    many = lists.tile(orders)
    values = scores.detach().to(dtype).repeat(orders)
    document = torch.arange(values.numel(), device=values.device)
    if perturbation:
        bits = random.random_bits(seed, random.NOISE, document)
        uniform = random.open_uniform(as_float(random.kept_bits(bits)))
        noise = -torch.log(-torch.log(uniform))
        values = (values + perturbation * noise).to(dtype)
    order = document
    if ties == "random":
        order = torch.argsort(random.random_bits(seed, random.TIES, document) ^ -(2**63))
    order = order[torch.argsort(values[order], descending=True, stable=True)]
    order = order[torch.argsort(many.index(values)[order], stable=True)]
    position = many.positions(values)
    if ties == "average":
        position = _mean_over_ties(values[order], position, many)
    ranks = torch.empty(values.shape, dtype=dtype, device=values.device)
    ranks[order] = position.to(dtype)
    return ranks.reshape(orders, -1)


def _mean_over_ties(values: Array, position: Array, lists: Lists) -> Array:
    """Replace the positions of each run of equal values by their mean."""
    import torch

    new = torch.ones_like(values, dtype=torch.bool)
    new[1:] = (values[1:] != values[:-1]) | (lists.index(values).diff() != 0)
    run = new.cumsum(0) - 1
    return (position[new] + (torch.bincount(run) - 1) / 2)[run]
