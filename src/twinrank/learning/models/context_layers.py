"""Layers in which a document sees the other documents of its query: pooling and attention."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from twinrank.core.lists import Lists
from twinrank.learning.models.layers import DropoutLinear, needed, sum_by_query

_WASTE = 0.25  # padded pairs of a block, relative to its real ones
_FREE_WASTE = 4_000  # padded pairs that cost less than another block


class PooledLinear(nn.Module):
    """A linear layer that reads a document's values beside their mean and maximum in its query.

    z = W x + U [mean_q(x), max_q(x)] + b. This equals one product with the three side by side, but
    the product with U is computed once per query. Mean and maximum are taken before dropout, which
    would enlarge the maximum in training.

    Zaheer et al., "Deep sets" (NeurIPS 2017); Qi et al., "PointNet" (CVPR 2017).
    """

    def __init__(self, linear: DropoutLinear, context: DropoutLinear) -> None:
        super().__init__()
        self.linear, self.context = linear, context

    @property
    def weight(self) -> Tensor:
        """The weights of a document's own values."""
        return self.linear.weight

    @property
    def bias(self) -> Tensor:
        """The bias."""
        return self.linear.bias

    def forward(self, x: Tensor, lists: Lists | None) -> Tensor:
        """The outputs of every document."""
        return self.product(x, lists) + self.bias

    def product(self, x: Tensor, lists: Lists | None, dropped: bool = False) -> Tensor:  # noqa: ARG002
        """As `forward`, without the bias. The inputs never come dropped."""
        lists = needed(lists, "context='pool'")
        index, width = lists.index(x), self.linear.in_features
        rows = x if x.dtype == torch.float64 else x.float()  # sums in bfloat16 are too inexact
        sizes = torch.from_numpy(lists.sizes.copy()).to(rows).clamp(min=1)[:, None]
        pooled = _MeanMax.apply(rows, index, sizes)  # type: ignore[no-untyped-call]
        by_net = [values.view(len(lists), x.shape[1] // width, width) for values in pooled]
        of_query = self.context.product(torch.cat(by_net, dim=2).flatten(1))
        return self.linear.product(x) + of_query.index_select(0, index)


class _MeanMax(Function):
    """Mean and maximum of the rows of each query; 0 for an empty query.

    Rows that share the maximum share its gradient, so that their order doesn't matter. Torch's own
    gradient of a maximum per segment takes three times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        mean = sum_by_query(x, index, len(sizes)) / sizes
        columns = index[:, None].expand_as(x)
        maximum = torch.zeros_like(mean).scatter_reduce(0, columns, x, "amax", include_self=False)
        ctx.save_for_backward(x, index, sizes, maximum)
        return mean, maximum

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        x, index, sizes, maximum = ctx.saved_tensors
        of_mean, of_maximum = upstream
        is_maximum = (x == maximum.index_select(0, index)).to(x)
        count = sum_by_query(is_maximum, index, len(maximum)).clamp(min=1)
        shares = (of_maximum / count).index_select(0, index)
        return (
            torch.addcmul((of_mean / sizes).index_select(0, index), is_maximum, shares),
            None,
            None,
        )


class AttentionBlock(nn.Module):
    """Self-attention over the documents of a query, then a layer for each document by itself.

    x ← x + A(norm(x)), x ← x + F(norm(x)), with multi-head attention A and F of one hidden layer
    with twice the width. Norms come first, residual connections and dropout regularise: Pasumarthi
    et al. and Pobrotyn et al. found both necessary. There is no position, so the order of documents
    doesn't matter. With `induced` points, the points attend to the documents, and the documents to
    the points, at a linear cost.

    Pasumarthi, Zhuang, Wang, Bendersky & Najork, "Permutation equivariant document interaction
    network for neural learning to rank" (ICTIR 2020); Pobrotyn, Bartczak, Synowiec, Białobrzeski &
    Bojar, "Context-aware learning to rank with self-attention" (SIGIR eCom 2020); Lee et al.,
    "Set transformer" (ICML 2019).
    """

    def __init__(self, width: int, heads: int, p: float, induced: int = 0) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)  # queries, keys, values
        self.points = nn.Parameter(torch.empty(induced, width)) if induced else None
        self.reproject = nn.Linear(width, 2 * width) if induced else None  # keys, values of points
        self.mix = DropoutLinear(width, width, p)
        self.second_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = DropoutLinear(2 * width, width, p)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Points as far apart as projected documents."""
        if self.points is not None:
            nn.init.normal_(self.points, generator=generator)

    def forward(self, x: Tensor, lists: Lists | None) -> Tensor:
        """The documents of every query after attention, [documents, nets · width]."""
        lists = needed(lists, "context='attention'")
        # Nets that share weights attend separately.
        values = x.reshape(len(x), x.shape[1] // self.width, self.width)
        values = values + self.mix(self._attended(self.project(self.norm(values)), lists))
        hidden = functional.relu(self.widen(self.second_norm(values)))
        out: Tensor = values + self.narrow(hidden)
        return out.flatten(1)

    def _attended(self, projected: Tensor, lists: Lists) -> Tensor:
        """Attention within each query, block by block."""
        plan = _plan(lists, projected.device)
        if plan.place is None:  # all lists have one length
            return self._attend(projected, len(lists), None)
        if not plan.blocks:  # there are no documents
            return projected[..., : self.width]
        parts = [
            self._attend(projected.index_select(0, rows), queries, mask)
            for rows, queries, mask in plan.blocks
        ]
        return torch.cat(parts).index_select(0, plan.place)

    def _attend(self, projected: Tensor, queries: int, mask: Tensor | None) -> Tensor:
        """Attention in lists of one length, [queries · length, nets, width]."""
        nets = projected.shape[1]
        q, k, v = (self._heads(part, queries) for part in projected.chunk(3, dim=-1))
        if self.points is None or self.reproject is None:
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            points = self.points.to(q.dtype)[None, :, None].expand(queries, -1, nets, -1)
            points = self._heads(points.flatten(0, 1), queries)
            seen = functional.scaled_dot_product_attention(points, k, v, attn_mask=mask)
            merged = self._merged(seen, nets)
            k, v = (self._heads(p, queries) for p in self.reproject(merged).chunk(2, dim=-1))
            out = functional.scaled_dot_product_attention(q, k, v)
        return self._merged(out, nets)

    def _heads(self, x: Tensor, queries: int) -> Tensor:
        """[queries · length, nets, width] as [queries, nets · heads, length, width / heads]."""
        return x.reshape(queries, len(x) // queries, -1, self.width // self.heads).transpose(1, 2)

    def _merged(self, x: Tensor, nets: int) -> Tensor:
        """The inverse of `_heads`."""
        return x.transpose(1, 2).reshape(-1, nets, self.width)


class _Plan(NamedTuple):
    """How lists are laid out in padded blocks of similar length."""

    blocks: list[tuple[Tensor, int, Tensor | None]]
    """The rows of a block, one list after the other, the number of its lists, and a mask of real
    rows, [lists, 1, 1, length], if some are not."""
    place: Tensor | None
    """Where each document is in the concatenated blocks; None if nothing has to move."""


@lru_cache(maxsize=8)  # all blocks and nets ask for the same
def _plan(lists: Lists, device: torch.device) -> _Plan:
    if lists.documents == len(lists) * lists.longest > 0:
        return _Plan([], None)
    blocks, place, filled = [], np.empty(lists.documents, np.int64), 0
    for members in similar_lengths(lists.sizes):
        sizes, starts = lists.sizes[members], lists.offsets[:-1][members]
        steps = np.arange(sizes.max())
        mask = steps < sizes[:, None]
        rows = starts[:, None] + np.where(mask, steps, 0)
        place[rows[mask]] = filled + np.flatnonzero(mask)
        filled += mask.size
        visible = None if mask.all() else _tensor(mask[:, None, None], device)
        blocks.append((_tensor(rows.reshape(-1), device), len(mask), visible))
    return _Plan(blocks, _tensor(place, device))


def similar_lengths(sizes: Any) -> list[Any]:
    """The numbers of lists, in groups of nearly equal lengths; empty lists are in none.

    >>> [group.tolist() for group in similar_lengths(np.array([1000, 3, 0, 990, 4]))]
    [[0, 3], [4, 1]]
    """
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    lengths, first, counts = np.unique(-sizes[order], return_index=True, return_counts=True)
    starts: list[int] = []
    longest = real = padded = 0
    for length, start, count in zip(
        (-lengths).tolist(), first.tolist(), counts.tolist(), strict=True
    ):
        real, padded = real + count * length**2, padded + count * (longest**2 - length**2)
        if not starts or padded > max(_WASTE * real, _FREE_WASTE):
            starts.append(start)
            longest, real, padded = length, count * length**2, 0
    return np.split(order, starts[1:]) if starts else []


def _tensor(values: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device)
