"""Sums over pairs in plain torch, on any device, in blocks of bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from twinrank.lists import Lists
from twinrank.ranks.strategies import RankStrategy
from twinrank.support.shapes import Float

BLOCK = 2**22
"""The most entries that a tensor of terms has."""


@dataclass(frozen=True)
class TorchKernel:
    """The pair sum; no tensor holds more than `block` entries (or one row of the longest list)."""

    block: int = BLOCK

    def __call__(
        self,
        scores: Float[Tensor, "docs"],
        labels: Float[Tensor, "docs"],
        rank_gradient: Float[Tensor, "docs"],
        lists: Lists,
        strategy: RankStrategy,
        alpha: float,
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

    `terms(rows, *padded)` gets the arrays as [lists, docs] and gives tensors [lists, rows, docs],
    for padded blocks of lists of like length, or of rows of one long list. No such tensor holds
    more than `block` entries (or one row of the longest list, if that is more); with the eight or
    so that live at once these are 130 MB in float32, 270 MB in float64. A list of one document
    gets 0: a document and itself are no pair.
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
    alpha: float,
) -> Float[Tensor, "lists rows docs"]:
    """What each document j adds to the gradient of each document a among the rows."""
    x = alpha * (y[:, rows, None] - y[:, None, :])
    g_a, g_j = g[:, rows, None], g[:, None, :]
    if strategy == "type1":
        return (g_j - g_a) * (alpha * torch.sigmoid(x) * torch.sigmoid(-x))
    u = torch.sign(label[:, rows, None] - label[:, None, :]).to(y.dtype)
    if strategy == "type2":
        return -(g_a + g_j) * u * (alpha * torch.sigmoid(x) * torch.sigmoid(-x))
    return -2 * alpha * (g_a + g_j) * u * torch.sigmoid(torch.nan_to_num(-u * x))
