"""The pair sum in plain torch, on any device, in blocks of bounded memory."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from twinrank.lists import Lists
from twinrank.ranks.strategies import Strategy
from twinrank.support.shapes import Float


@dataclass(frozen=True)
class TorchKernel:
    """Padded blocks of lists of like length, or of rows of one long list.

    No tensor holds more than `block` entries (or one row of the longest list, if that is more), and
    about eight such tensors live at once: 130 MB in float32 with the default, 270 MB in float64.
    """

    block: int = 2**22

    def __call__(
        self,
        scores: Float[Tensor, "docs"],
        labels: Float[Tensor, "docs"],
        rank_gradient: Float[Tensor, "docs"],
        lists: Lists,
        strategy: Strategy,
        alpha: float,
    ) -> Float[Tensor, "docs"]:
        """∂L/∂score of every document, in the precision of `scores`."""
        result = torch.zeros_like(scores)
        by_size = np.argsort(lists.sizes, kind="stable")
        by_size = by_size[lists.sizes[by_size] > 1]
        while by_size.size:
            longest = int(lists.sizes[by_size[-1]])
            together = max(1, self.block // longest**2)
            chosen, by_size = by_size[-together:], by_size[:-together]
            # Document i of each chosen list, and whether the list has that many.
            place = np.arange(longest) + lists.offsets[chosen][:, None]
            inside = np.arange(longest) < lists.sizes[chosen][:, None]
            index = torch.from_numpy(np.where(inside, place, lists.offsets[chosen][:, None]))
            index, mask = index.to(scores.device), torch.from_numpy(inside).to(scores.device)
            rows = max(1, self.block // (longest * chosen.size))
            y, label, g = scores[index], labels[index], rank_gradient[index]
            for row in range(0, longest, rows):
                block = slice(row, row + rows)
                pairs = mask[:, block, None] & mask[:, None, :]
                sums = torch.where(pairs, _terms(y, label, g, block, strategy, alpha), 0.0).sum(2)
                result[index[:, block][mask[:, block]]] = sums[mask[:, block]]
        return result


def _terms(
    y: Float[Tensor, "lists docs"],
    label: Float[Tensor, "lists docs"],
    g: Float[Tensor, "lists docs"],
    rows: slice,
    strategy: Strategy,
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
