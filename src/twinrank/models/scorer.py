"""The feed-forward net that scores documents, and scoring in batches."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from twinrank.lists import Lists
from twinrank.models.architecture import Architecture
from twinrank.models.fused import can_fuse, fused
from twinrank.models.layers import DropoutLinear, QueryNorm
from twinrank.models.threads import threads_for
from twinrank.support.errors import InputError

__all__ = ["QueryNorm", "Scorer", "checked_categories", "score_all"]

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.data.transforms import Transform
    from twinrank.models.ensemble import Net

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    # In place where backward needs the result alone: fresh memory costs more than arithmetic.
    "relu": partial(nn.ReLU, inplace=True),
    "celu": partial(nn.CELU, inplace=True),
    "leaky_relu": partial(nn.LeakyReLU, inplace=True),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class Scorer(nn.Module):
    """A feed-forward net from features to a score; categorical columns go through embeddings.

    `categories` gives the number of categories of a column. Its values are whole numbers from 0 on;
    all other values (unknown, missing) share one embedding.
    """

    def __init__(
        self,
        features: int,
        architecture: Architecture,
        categories: Mapping[int, int] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if features < 1:
            raise InputError(f"A net needs at least one feature, not {features}.")
        self.features, self.architecture = features, architecture
        self.categories = checked_categories(categories, features)
        sizes = {count: _embedding_size(count) for count in self.categories.values()}
        plain = [c for c in range(features) if c not in self.categories]
        self.register_buffer("_plain", torch.tensor(plain, dtype=torch.long), persistent=False)
        inputs = len(plain) + sum(sizes[n] for n in self.categories.values())
        with torch.random.fork_rng([]):  # torch's layers draw weights, which are replaced below
            self.embeddings = nn.ModuleList(
                nn.Embedding(n + 1, sizes[n]) for n in self.categories.values()
            )
            self.layers = nn.ModuleList(_layers(inputs, architecture))
        self._initialise(generator)

    ensemble_size = 1

    @property
    def per_query(self) -> bool:
        """True if a score depends on the other documents of its query."""
        return self.architecture.per_query

    def forward(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The score of every document; `lists` is needed if `per_query`."""
        x = self._embedded(X) if self.categories else X
        left, dropped = list(self.layers), False
        while left:
            if self.training and can_fuse(x, left[:4], lists):
                x, left, dropped = fused(x, left[:4], lists, dropped), left[3:], True
                continue
            layer = left.pop(0)
            if dropped and type(layer) is DropoutLinear:
                x = functional.linear(x, layer.weight, layer.bias)
            else:
                x = layer(x, lists) if isinstance(layer, QueryNorm) else layer(x)
            dropped = False
        return x.squeeze(-1)

    def _embedded(self, X: Tensor) -> Tensor:
        parts = [X[:, self._plain]]  # type: ignore[index]
        for (column, count), table in zip(self.categories.items(), self.embeddings, strict=True):
            value = X[:, column]
            known = (value >= 0) & (value < count) & (value == value.floor())
            parts.append(table(torch.where(known, value, count).long()))
        return torch.cat(parts, dim=1)

    def _initialise(self, generator: torch.Generator | None) -> None:
        """Xavier-normal weights, zero biases, small embeddings, from one generator."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1, generator=generator)


def checked_categories(categories: Any, features: int) -> dict[int, int]:
    """The number of categories by column; a column may be text, as in JSON and TOML."""
    if not isinstance(categories, Mapping | None):
        raise InputError(
            f"categories must map columns to numbers of categories, not {categories!r}"
        )
    checked = {}
    for key, count in (categories or {}).items():
        column = int(key) if isinstance(key, str) and key.isdecimal() else key
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (column, count))
        if not whole or not 0 <= column < features or count < 1:
            raise InputError(
                f"Categorical column {key} with {count} categories: columns are 0 to "
                f"{features - 1}, and a column needs at least 1 category."
            )
        checked[column] = count
    return checked


def score_all(
    net: "Net",
    data: "Dataset",
    transform: "Transform",
    documents: int,
    part: tuple[int, int] = (0, 1),
) -> npt.NDArray[np.float32]:
    """The scores of every document, batch by batch: [documents, ensemble_size].

    Part (i, n) scores every n-th batch from the i-th on and leaves 0 elsewhere, so that the sum of
    the parts equals what a single process computes, bit for bit.
    """
    training, first_weight = net.training, next(net.parameters())
    if training:  # going through all layers costs as much as scoring a small query
        net.eval()
    score: Any = net.columns if net.ensemble_size > 1 else net
    scores = np.zeros((data.documents, net.ensemble_size), np.float32)
    offsets = data.lists.offsets
    batches = data.batches(documents, transform=transform)
    with threads_for(net, min(documents, data.documents)), torch.inference_mode():
        for batch in batches.made(batches.plan(0)[part[0] :: part[1]]):
            first, last = offsets[batch.queries[0]], offsets[batch.queries[-1] + 1]
            X = torch.from_numpy(batch.X).to(first_weight)
            columns = score(X, batch.lists)
            scores[first:last] = columns.reshape(len(X), -1).cpu().numpy()
    if training:
        net.train()
    return scores


def _embedding_size(categories: int) -> int:
    """Half as many dimensions as categories, at most 16."""
    return min(16, (categories + 1) // 2 + 1)


def _layers(inputs: int, a: Architecture) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i in range(a.depth):
        dropout = a.dropout if i else 0.0
        layers += [
            DropoutLinear(inputs, a.width, dropout),
            *_norm(a.norm, a.width),
            _ACTIVATIONS[a.activation](),
        ]
        inputs = a.width
    layers.append(nn.Linear(inputs, 1))
    if a.last_norm:
        layers += _norm(a.norm, 1)
    if a.last_activation:
        layers.append(_ACTIVATIONS[a.activation]())
    return layers


def _norm(kind: str, width: int) -> list[nn.Module]:
    kinds: dict[str, type[nn.Module]] = {
        "batch": nn.BatchNorm1d,
        "query": QueryNorm,
        "layer": nn.LayerNorm,
    }
    return [kinds[kind](width)] if kind in kinds else []
