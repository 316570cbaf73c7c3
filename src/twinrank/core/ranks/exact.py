"""Exact ranks without a gradient, of NumPy arrays and torch tensors on any device."""

import sys
from typing import Any, Literal, get_args

import numpy as np

from twinrank.core.lists import Lists, check_lists
from twinrank.core.ranks.kernels.device_choice import device_kernel
from twinrank.support import random
from twinrank.support.arrays import (
    Array,
    all_true,
    cast,
    from_numpy,
    is_tensor,
    namespace,
    on_cpu,
    to_numpy,
    untraced,
)
from twinrank.support.errors import InputError, Parts, check_number

Ties = Literal["random", "stable", "average"]


@untraced
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

    The same generator in the same state gives the same ranks, on any number of threads.

    Parameters
    ----------
    scores : array or tensor of float, shape (n_documents,)
        Higher is better.
    lists : Lists
        Which documents belong together.
    ties : {"random", "stable", "average"}, default "random"
        How equal scores are ordered: at random as in the paper, by their place in the array, or
        all with their mean rank.
    generator : torch.Generator or numpy.random.Generator, optional
        Source of random ties and noise. Default: the global generator of the array's library.
    perturbation : float, default 0.0
        Scale τ of Gumbel noise: the ranks are those of scores + τ·noise.
    samples : int, optional
        Number S of perturbed orders. Default: one, without the dimension of samples.

    Returns
    -------
    array or tensor of float, shape (n_documents,) or (samples, n_documents)
        The ranks, float32 or float64 as the scores.

    Raises
    ------
    InputError
        If scores are NaN or do not fit the lists, or an option is invalid.

    Examples
    --------
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
        raise InputError(argument="ties", value=ties, choices=get_args(Ties))
    check_perturbation(perturbation, samples)
    check_lists(lists)
    original = scores
    scores = to_numpy(scores) if on_cpu(scores) else scores.detach()
    lists.check(scores=scores)
    scores = _in_working_precision(scores)
    refuse_unless(scores == scores, "scores are NaN", lists)
    seed = random.draw_seed(generator, like=original) if ties == "random" or perturbation else 0
    orders = 1 if samples is None else samples
    rank = _ranks_on_cpu if on_cpu(scores) else _ranks_on_device
    ranks = from_numpy(rank(scores, lists, ties, seed, perturbation, orders), like=original)
    return ranks if samples is None else ranks.reshape(samples, lists.documents)


def check_perturbation(perturbation: float, samples: int | None) -> None:
    """Raise an error for a negative perturbation or fewer than one sample."""
    check_number("perturbation", perturbation, least=0)
    if samples is not None:
        check_number("samples", samples, whole=True, least=1)


def check_finite(name: str, values: Array, lists: Lists) -> None:
    """Raise an error for ±∞ and NaN that says where they are."""
    if on_cpu(values):
        values = to_numpy(values)
        finite = np.isfinite(values)
    else:
        finite = namespace(values).isfinite(values.detach())
    refuse_unless(finite, f"{name} are not finite", lists)


def check_labels(labels: Array, lists: Lists) -> None:
    """Raise an error for labels that are not finite, or below 0 but not −1."""
    check_finite("labels", labels, lists)
    labels = to_numpy(labels) if on_cpu(labels) else labels.detach()
    advice = "Labels are at least 0, or -1 for unjudged documents; leave padding out with mask."
    good = (labels >= 0) | (labels == -1)
    refuse_unless(good, "labels are below 0, but not -1", lists, [advice])


def refuse_unless(good: Array, complaint: str, lists: Lists, advice: Parts = ()) -> None:
    """Raise an error that says how many entries are bad, and where the first is."""
    if not all_true(good):
        bad = to_numpy((~good).cpu() if is_tensor(good) else ~good)
        first = int(bad.argmax())
        raise InputError(
            f"{int(bad.sum())} of {lists.documents} {complaint}; the first is document {first}, "
            f"in list {lists.list_of(first)}.",
            *((" ", *advice) if advice else ()),
        )


def _in_working_precision(scores: Array) -> Array:
    """Scores as float32 if they have at most 32 bits, else as float64."""
    if not is_tensor(scores):
        return scores.astype(np.float32 if scores.dtype in (np.float16, np.float32) else np.float64)
    torch = sys.modules["torch"]
    double = scores.dtype == torch.float64 or not scores.is_floating_point()
    return scores.to(torch.float64 if double else torch.float32)


def _ranks_on_cpu(
    scores: Array, lists: Lists, ties: Ties, seed: int, perturbation: float, samples: int
) -> Array:
    """Rank NumPy arrays."""
    scores = _perturbed(scores, seed, perturbation, samples)
    return _ranks_by_loop(scores, lists.tile(samples), ties, seed)


def _ranks_on_device(
    scores: Array, lists: Lists, ties: Ties, seed: Any, perturbation: float, samples: int
) -> Array:
    """Rank tensors: short lists by counting in Triton, other lists by sorting in torch."""
    if device_kernel(scores) == "triton":
        from twinrank.core.ranks.kernels.tiles import COUNTED, counted_ranks, perturbed

        scores, keys = perturbed(scores, seed, perturbation, samples)
        if lists.longest <= COUNTED:
            return counted_ranks(scores, keys, lists, ties, samples)
    else:
        scores, keys = _perturbed(scores, seed, perturbation, samples), None
    return _ranks_by_sorting(scores, lists.tile(samples), ties, seed, keys)


def _perturbed(scores: Array, seed: Any, perturbation: float, samples: int) -> Array:
    """The scores of all samples one after the other, with Gumbel noise."""
    if samples > 1:
        scores = namespace(scores).tile(scores, (samples,))
    if perturbation:
        noise = random.gumbel_noise(seed, _numbered(scores))
        scores = cast(scores + perturbation * noise, like=scores)
    return scores


def _ranks_by_loop(scores: Array, lists: Lists, ties: Ties, seed: int) -> Array:
    """Rank by compiled loops, parallel over lists."""
    from twinrank.core.ranks.sorted_ranks import counters, rank_by_counting, rank_by_sorting
    from twinrank.support.compiled import in_threads, spans

    ranks, done = np.empty_like(scores), np.empty(len(lists), np.bool_)
    ranges, offsets = spans(lists.sizes, 16384), lists.offsets
    in_threads(rank_by_counting, ranges, scores, offsets, counters(scores), ranks, done)
    if not done.all():
        how = get_args(Ties).index(ties)
        in_threads(rank_by_sorting, ranges, scores, offsets, how, seed, ranks, done)
    return ranks


def _ranks_by_sorting(
    scores: Array, lists: Lists, ties: Ties, seed: Any, keys: Array | None = None
) -> Array:
    """Rank by stable torch sorts by tie key, score and list, on any device."""
    import torch

    order = _numbered(scores)
    if ties == "random":
        # The compiled loop compares the bits as unsigned numbers; flipping the sign does the same.
        bits = random.random_bits(seed, random.TIES, order) ^ -(2**63) if keys is None else keys
        order = torch.argsort(bits, stable=True)
    order = order[torch.argsort(scores[order], descending=True, stable=True)]
    order = order[torch.argsort(lists.index(scores)[order], stable=True)]
    position = lists.positions(scores)
    if ties == "average":
        position = _mean_over_ties(scores[order], position, lists)
    ranks = torch.empty_like(scores)
    ranks[order] = position.to(scores.dtype)
    return ranks


def _numbered(scores: Array) -> Array:
    """0, 1, 2, … as int64 on the device of the scores."""
    if is_tensor(scores):
        return sys.modules["torch"].arange(scores.shape[0], device=scores.device)
    return np.arange(scores.size)


def _mean_over_ties(values: Array, position: Array, lists: Lists) -> Array:
    """Replace the positions of each run of equal values by their mean."""
    import torch

    border = torch.ones(values.shape[0] + 1, dtype=torch.bool, device=values.device)
    border[1:-1] = (values[1:] != values[:-1]) | (lists.index(values).diff() != 0)
    place = _numbered(values)
    first = torch.where(border[:-1], place, 0).cummax(0).values
    last = torch.where(border[1:], place, values.shape[0]).flip(0).cummin(0).values.flip(0)
    return (position[first] + position[last]) / 2
