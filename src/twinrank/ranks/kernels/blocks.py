"""Sums over pairs in plain torch, on any device, in blocks of bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from twinrank.lists import Lists
from twinrank.ranks.strategies import RankStrategy

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
    results = [torch.zeros_like(arrays[0]) for _ in range(outputs)]
    device = arrays[0].device
    by_size = np.argsort(lists.sizes, kind="stable")
    by_size = by_size[lists.sizes[by_size] > 1]
    while by_size.size:
        longest = int(lists.sizes[by_size[-1]])
        together = max(1, block // longest**2)
        chosen, by_size = by_size[-together:], by_size[:-together]
        # Document i of each chosen list, and whether the list has that many.
        place = np.arange(longest) + lists.offsets[chosen][:, None]
        inside = np.arange(longest) < lists.sizes[chosen][:, None]
        index = torch.from_numpy(np.where(inside, place, lists.offsets[chosen][:, None]))
        index, mask = index.to(device), torch.from_numpy(inside).to(device)
        step = max(1, block // (longest * chosen.size))
        padded = [array[index] for array in arrays]
        for row in range(0, longest, step):
            rows = slice(row, row + step)
            pairs = mask[:, rows, None] & mask[:, None, :]
            for result, part in zip(results, terms(rows, *padded), strict=True):
                sums = torch.where(pairs, part, 0.0).sum(2)
                result[index[:, rows][mask[:, rows]]] = sums[mask[:, rows]]
    return results


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
    discounts: Any,
    nearness: Any,
    alpha: int | float,
) -> tuple[Any, Any]:
    """The weighted logistic loss of each list, and its gradient."""
    D, N = (torch.from_numpy(table).to(scores) for table in (discounts, nearness))

    def terms(rows: slice, y: Tensor, gain: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
        x = alpha * (y[:, rows, None] - y[:, None, :])
        better = gain[:, rows, None] - gain[:, None, :]
        discount, u = D[rank - 1], torch.sign(better)
        weight = (discount[:, rows, None] - discount[:, None, :]).abs()
        weight += N[(rank[:, rows, None] - rank[:, None, :]).abs()]
        weight *= better.abs()
        loss = torch.where(u > 0, -weight * logsigmoid(x), 0.0)
        return loss, -alpha * weight * u * torch.sigmoid(torch.nan_to_num(-u * x))

    arrays = (scores, gains.to(scores.dtype), ranks.long())
    values, slopes = sum_rows(terms, 2, arrays, lists)
    return lists.sum(values), slopes
