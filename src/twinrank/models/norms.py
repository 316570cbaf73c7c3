"""Batch normalisation with the statistics of each query."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from twinrank.lists import Lists
from twinrank.support.errors import InputError


class QueryNorm(nn.Module):
    """Batch normalisation with the statistics of each query, in training and afterwards.

    x̂ = (x − mean_q) / √(var_q + ε), then scaled and shifted by learned weights.
    """

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor, lists: Lists | None) -> Tensor:
        """Normalise [documents, width], query by query."""
        if lists is None:
            raise InputError("a scorer with norm='query' needs to know the queries: pass lists")
        x = x if x.dtype == torch.float64 else x.float()  # bfloat16 can't sum
        if len(lists) == 1 and lists.documents > 1:  # the paper's one query a step
            return functional.batch_norm(
                x, None, None, self.weight, self.bias, training=True, eps=self.epsilon
            )
        index = lists.index(x)
        sizes = torch.from_numpy(lists.sizes.copy()).to(x).clamp(min=1)[:, None]
        mean = _sums(x, index, len(lists)) / sizes
        centred = x - mean[index]
        variance = _sums(centred**2, index, len(lists)) / sizes
        scale = torch.rsqrt(variance + self.epsilon) * self.weight
        return torch.addcmul(self.bias, centred, scale[index])


def _sums(x: Tensor, index: Tensor, lists: int) -> Tensor:
    return x.new_zeros(lists, x.shape[1]).index_add(0, index, x)
