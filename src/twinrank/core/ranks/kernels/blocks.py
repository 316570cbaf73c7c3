"""Sums over pairs in plain torch, on any device, in blocks of bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from twinrank.core.lists import Lists
from twinrank.core.ranks.strategies import RankStrategy

if TYPE_CHECKING:
    from jaxtyping import Float
else:
    try:  # the tests check shapes; without jaxtyping Float[Tensor, "docs"] is Tensor
        from jaxtyping import Float
    except ImportError:

        class Float:
            """Float[Tensor, "docs"] means Tensor."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]


BLOCK = 2**22
"""The maximum number of entries of a tensor of terms."""


@dataclass(frozen=True)
class TorchKernel:
    """The pair sum; no tensor has more than `block` entries (or one row of the longest list)."""

    block: int = BLOCK

    def __call__(
        self,
        scores: Float[Tensor, "docs"],
        labels: Float[Tensor, "docs"],
        rank_gradient: Float[Tensor, "docs"],
        lists: Lists,
        strategy: RankStrategy,
        alpha: int | float,
    ) -> Float[Tensor, "docs"]:
        """∂L/∂score of every document, in the precision of `scores`."""

        def terms(rows: slice, y: Tensor, label: Tensor, g: Tensor) -> tuple[Tensor, ...]:
            return (_terms(y, label, g, rows, strategy, alpha),)

        (result,) = sum_rows(terms, 1, (scores, labels, rank_gradient), lists, self.block)
        return result


def sum_rows(
    terms: Callable[..., tuple[Tensor, ...]],
    outputs: int,
    arrays: tuple[Tensor, ...],
    lists: Lists,
    block: int = BLOCK,
) -> list[Tensor]:
    """Σ_j terms(a, j) over the list of each document a, for each of the `outputs` of `terms`.

    `terms(rows, *padded)` maps the arrays as [lists, docs] to tensors [lists, rows, docs], for
    padded blocks of lists of similar length, or for rows of one long list. No such tensor has more
    than `block` entries (or one row of the longest list, if that is more). About eight exist at
    once: 130 MB in float32, 270 MB in float64. A list of one document gets 0, since a document and
    itself are no pair.
    """
    size = lists.documents
    # A last entry takes the sums of padding, so that no shape depends on values.
    results = [arrays[0].new_zeros(size + 1) for _ in range(outputs)]
    sizes = np.sort(lists.sizes)
    sizes = sizes[sizes > 1]
    offsets, _ = lists._tensors(arrays[0].device)
    by_size = torch.argsort(offsets.diff(), stable=True)
    while sizes.size:
        longest = int(sizes[-1])
        together = min(max(1, block // longest**2), sizes.size)
        sizes, chosen, by_size = sizes[:-together], by_size[-together:], by_size[:-together]
        # Document i of each chosen list, and whether the list has that many.
        index = offsets[chosen][:, None] + torch.arange(longest, device=offsets.device)
        mask = index < offsets[chosen + 1][:, None]
        step = max(1, block // (longest * together))
        padded = [array[torch.where(mask, index, offsets[chosen][:, None])] for array in arrays]
        index = torch.where(mask, index, size)
        for row in range(0, longest, step):
            rows = slice(row, row + step)
            pairs = mask[:, rows, None] & mask[:, None, :]
            for result, part in zip(results, terms(rows, *padded), strict=True):
                result[index[:, rows]] = torch.where(pairs, part, 0.0).sum(2)
    return [result[:size] for result in results]


def _terms(
    y: Float[Tensor, "lists docs"],
    label: Float[Tensor, "lists docs"],
    g: Float[Tensor, "lists docs"],
    rows: slice,
    strategy: RankStrategy,
    alpha: int | float,
) -> Float[Tensor, "lists rows docs"]:
    """The contribution of each document j to the gradient of each document a among the rows."""
    x = alpha * (y[:, rows, None] - y[:, None, :])
    g_a, g_j = g[:, rows, None], g[:, None, :]
    if strategy == "type1":
        return (g_j - g_a) * (alpha * torch.sigmoid(x) * torch.sigmoid(-x))
    u = torch.sign(label[:, rows, None] - label[:, None, :]).to(y.dtype)
    if strategy == "type2":
        return -(g_a + g_j) * u * (alpha * torch.sigmoid(x) * torch.sigmoid(-x))
    return -2 * alpha * (g_a + g_j) * u * torch.sigmoid(torch.nan_to_num(-u * x))


# Soft ranks and losses of pairs; `logistic.py` and `lambdas.py` have the formulas.


def soft_ranks_in_blocks(scores: Tensor, lists: Lists, alpha: int | float) -> Tensor:
    """The soft rank of every document."""

    def terms(rows: slice, y: Tensor) -> tuple[Tensor]:
        # σ(x) − ½: 0 for a document and itself, as for a list of one.
        return (torch.tanh(alpha / 2 * (y[:, None, :] - y[:, rows, None])) / 2,)

    (leads,) = sum_rows(terms, 1, (scores,), lists)
    middle: Tensor = lists.spread((lists.sum(torch.ones_like(scores)) + 1) / 2)
    return leads + middle


def logistic_sum_in_blocks(
    scores: Tensor, labels: Tensor, lists: Lists, alpha: int | float
) -> tuple[Any, Any]:
    """The logistic loss of each list, and the number of its pairs with different labels."""

    def terms(rows: slice, y: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        x = alpha * (y[:, rows, None] - y[:, None, :])
        better = label[:, rows, None] > label[:, None, :]
        return torch.where(better, -logsigmoid(x), 0.0), better.to(y.dtype)

    values, pairs = sum_rows(terms, 2, (scores, labels), lists)
    return lists.sum(values), lists.sum(pairs)


def lambda_sums_in_blocks(
    scores: Tensor,
    gains: Tensor,
    ranks: Tensor,
    lists: Lists,
    discounts: Tensor,
    nearness: Tensor | None,
    alpha: int | float,
) -> tuple[Any, Any]:
    """The weighted logistic loss of each list, and its gradient."""
    D = discounts.to(scores.dtype)
    N = None if nearness is None else nearness.to(scores.dtype)

    def terms(rows: slice, y: Tensor, gain: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
        x = alpha * (y[:, rows, None] - y[:, None, :])
        better = gain[:, rows, None] - gain[:, None, :]
        discount, u = D[rank - 1], torch.sign(better)
        weight = (discount[:, rows, None] - discount[:, None, :]).abs()
        if N is not None:
            weight += N[(rank[:, rows, None] - rank[:, None, :]).abs()]
        weight *= better.abs()
        loss = torch.where(u > 0, -weight * logsigmoid(x), 0.0)
        return loss, -alpha * weight * u * torch.sigmoid(torch.nan_to_num(-u * x))

    arrays = (scores, gains.to(scores.dtype), ranks.long())
    values, slopes = sum_rows(terms, 2, arrays, lists)
    return lists.sum(values), slopes


def swap_sums_in_blocks(
    scores: Tensor, labels: Tensor, ranks: Tensor, swaps: Any, lists: Lists, alpha: float
) -> tuple[Tensor, Tensor]:
    """As `swap_sums`; `swaps` has tensors by document, of shape (samples, documents)."""
    samples = ranks.shape[0]
    by_sample = (ranks, swaps.scale, swaps.ahead, swaps.behind)

    def terms(rows: slice, y: Tensor, label: Tensor, worth: Tensor, *rest: Tensor) -> Any:
        x = alpha * (y[:, rows, None] - y[:, None, :])
        u = torch.sign(label[:, rows, None] - label[:, None, :]).to(y.dtype)
        change = torch.zeros_like(x)
        for number in range(samples):
            rank, scale, ahead, behind = rest[number::samples]
            change += torch.where(
                rank[:, rows, None] < rank[:, None, :],
                scale[:, rows, None] * (ahead[:, rows, None] - behind[:, None, :]).abs(),
                scale[:, None, :] * (ahead[:, None, :] - behind[:, rows, None]).abs(),
            )
        weight = (worth[:, rows, None] - worth[:, None, :]).abs() * change
        force = -weight * u * torch.sigmoid(torch.nan_to_num(-u * x))
        return force, weight * u.abs() * torch.sigmoid(x) * torch.sigmoid(-x)

    rest = [x[number].to(scores.dtype) for x in by_sample for number in range(samples)]
    arrays = (scores, labels, swaps.worth[0].to(scores.dtype), *rest)
    sums, curves = sum_rows(terms, 2, arrays, lists)
    return alpha / samples * sums, alpha**2 / samples * curves
