"""Soft ranks and the losses of pairs in plain torch, on any device, in blocks of bounded memory.

`soft_ranks.py`, `logistic.py` and `lambdas.py` say what is summed.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from twinrank.lists import Lists
from twinrank.ranks.kernels.blocks import sum_rows


def soft_ranks_in_blocks(scores: Tensor, lists: Lists, alpha: float) -> Tensor:
    """The soft rank of every document."""

    def terms(rows: slice, y: Tensor) -> tuple[Tensor]:
        # σ(x) − ½: nothing for a document and itself, as for a list of one.
        return (torch.tanh(alpha / 2 * (y[:, None, :] - y[:, rows, None])) / 2,)

    (leads,) = sum_rows(terms, 1, (scores,), lists)
    middle: Tensor = lists.spread((lists.sum(torch.ones_like(scores)) + 1) / 2)
    return leads + middle


def logistic_sum_in_blocks(
    scores: Tensor, labels: Tensor, lists: Lists, alpha: float
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
    alpha: float,
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
