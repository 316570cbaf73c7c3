"""The feed-forward net that scores documents, and scoring in batches."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from twinrank.core.lists import Lists
from twinrank.learning.models.architecture import Architecture
from twinrank.learning.models.context_layers import AttentionBlock, PooledLinear
from twinrank.learning.models.devices import on_device, threads_for
from twinrank.learning.models.fused import can_fuse, fused
from twinrank.learning.models.layers import (
    DropoutLinear,
    NumericEmbedding,
    QueryNorm,
    SeparateLinear,
    SharedLinear,
)
from twinrank.support.errors import InputError

__all__ = ["QueryNorm", "Scorer", "SharedEnsemble", "checked_categories", "score_all"]

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.data.transforms import Transform
    from twinrank.learning.models.ensemble import Net

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
_WITH_LISTS = (QueryNorm, PooledLinear, AttentionBlock)


class Scorer(nn.Module):
    """A feed-forward net from features to a score; categorical columns go through embeddings.

    Documents may see the others of their query (`Architecture.context`). `categories` gives the
    number of categories of a column. Its values are whole numbers from 0 on; all other values
    (unknown, missing) share one embedding.
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
        of_number = 1 if architecture.embedding == "none" else architecture.embedding_size
        inputs = len(plain) * of_number + sum(sizes[n] for n in self.categories.values())
        with torch.random.fork_rng([]):  # torch's layers draw weights, which are replaced below
            self.embeddings = nn.ModuleList(
                nn.Embedding(n + 1, sizes[n]) for n in self.categories.values()
            )
            self.numbers: NumericEmbedding | None = None
            if architecture.embedding != "none" and plain:
                is_periodic = architecture.embedding == "periodic"
                self.numbers = NumericEmbedding(len(plain), of_number, is_periodic)
            self.layers = nn.ModuleList(_layers(inputs, architecture, self.ensemble_size))
        self._initialise(generator)

    ensemble_size = 1

    @property
    def per_query(self) -> bool:
        """True if a score depends on the other documents of its query."""
        return self.architecture.per_query

    def forward(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The score of every document; `lists` is needed if `per_query`."""
        return self._outputs(X, lists).squeeze(-1)

    def _outputs(self, X: Tensor, lists: Lists | None) -> Tensor:
        """The output of the last layer, [documents, 1 or the number of nets]."""
        x = self._embedded(X) if self.categories or self.numbers is not None else X
        left, dropped = list(self.layers), False
        while left:
            if self.training and can_fuse(x, left[:4], lists):
                x, left, dropped = fused(x, left[:4], lists, dropped), left[3:], True
                continue
            layer = left.pop(0)
            if isinstance(layer, DropoutLinear):
                x = layer(x, dropped)
            else:
                x = layer(x, lists) if isinstance(layer, _WITH_LISTS) else layer(x)
            dropped = False
        return x

    def _embedded(self, X: Tensor) -> Tensor:
        numbers = X[:, self._plain] if self.categories else X  # type: ignore[index]
        parts = [numbers if self.numbers is None else self.numbers(numbers)]
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
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1, generator=generator)
            if isinstance(module, _OWN_WEIGHTS):
                module.initialise(generator)


_OWN_WEIGHTS = (SharedLinear, SeparateLinear, AttentionBlock, NumericEmbedding)


class SharedEnsemble(Scorer):
    """Several nets that share the weights of their hidden layers; their mean ranks.

    One product computes all nets. In training each has its own column of scores. They are selected
    as a whole, since the best weights of one are also those of the others.
    """

    def __init__(
        self,
        features: int,
        architecture: Architecture,
        ensemble_size: int,
        categories: Mapping[int, int] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.ensemble_size = ensemble_size
        super().__init__(features, architecture, categories, generator)

    def forward(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The mean of the scores; in training a column for each net."""
        scores = self.columns(X, lists)
        return scores if self.training else scores.mean(dim=1)

    def columns(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The scores of each net, [documents, ensemble_size]."""
        return self._outputs(X, lists)


def checked_categories(categories: Any, features: int) -> dict[int, int]:
    """The number of categories by column; a column may be text, as in JSON and TOML."""
    if not isinstance(categories, Mapping | None):
        raise InputError(
            f"Categories must map columns to numbers of categories, not {categories!r}."
        )
    checked = {}
    for key, count in (categories or {}).items():
        column = int(key) if isinstance(key, str) and key.isdecimal() else key
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (column, count))
        if not whole or not 0 <= column < features or not 1 <= count < 2**31:
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
    batches: Any = None,
) -> npt.NDArray[np.float32]:
    """The scores of every document, batch by batch: [documents, ensemble_size].

    Part (i, n) scores every n-th batch from the i-th on and leaves 0 elsewhere, so that the sum of
    the parts equals what a single process computes, bit for bit. `batches` are those of the data
    in its order, transformed, if they were made before.
    """
    training, first_weight = net.training, next(net.parameters())
    if training:  # going through all layers costs as much as scoring a small query
        net.eval()
    score: Any = net.columns if net.ensemble_size > 1 else net
    scores = np.zeros((data.documents, net.ensemble_size), np.float32)
    offsets = data.lists.offsets
    batches = data.batches(documents, transform=transform) if batches is None else batches
    waiting = []  # on a GPU, scores are copied when all of them are there
    with threads_for(net, min(documents, data.documents)), torch.inference_mode():
        for batch in batches.made(batches.plan(0)[part[0] :: part[1]]):
            first, last = offsets[batch.queries[0]], offsets[batch.queries[-1] + 1]
            X = on_device(batch.X, first_weight.device).to(first_weight)
            columns = score(X, batch.lists).reshape(len(X), -1)
            if columns.device.type == "cpu":
                scores[first:last] = columns.numpy()
            else:
                waiting.append((first, last, columns))
        for first, last, columns in waiting:
            scores[first:last] = columns.cpu().numpy()
    if training:
        net.train()
    return scores


def _embedding_size(categories: int) -> int:
    """Half as many dimensions as categories, at most 16."""
    return min(16, (categories + 1) // 2 + 1)


def _layers(inputs: int, a: Architecture, models: int) -> list[nn.Module]:
    """The layers of a net, or of several that share weights; rows hold the values of all."""
    layers: list[nn.Module] = []
    for i in range(a.depth):
        layers += [
            _linear(inputs, a, models, i),
            *_norm(a.norm, a.width, models),
            _ACTIVATIONS[a.activation](),
        ]
        if i == 0 and a.context == "attention":
            layers += [
                AttentionBlock(a.width, a.heads, a.dropout, a.induced) for _ in range(a.blocks)
            ]
        inputs = a.width
    layers.append(nn.Linear(inputs, 1) if models == 1 else SeparateLinear(inputs, models))
    if a.last_norm:
        layers += _norm(a.norm, 1, models)
    if a.last_activation:
        layers.append(_ACTIVATIONS[a.activation]())
    return layers


def _linear(inputs: int, a: Architecture, models: int, number: int) -> nn.Module:
    """The linear layer of a hidden layer, counted from 0."""

    def linear(inputs: int, bias: bool = True) -> DropoutLinear:
        dropout = a.dropout if number else 0.0
        if models == 1:
            return DropoutLinear(inputs, a.width, dropout, bias)
        scaled = a.norm in ("layer", "none")
        return SharedLinear(
            inputs, a.width, dropout, models, first=not number, scaled=scaled, bias=bias
        )

    if a.context != "pool" or number != 1:
        return linear(inputs)
    return PooledLinear(linear(inputs), context=linear(2 * inputs, bias=False))


def _norm(kind: str, width: int, models: int) -> list[nn.Module]:
    if kind == "layer":
        return [nn.LayerNorm(width) if models == 1 else nn.GroupNorm(models, models * width)]
    kinds: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "query": QueryNorm}
    return [kinds[kind](models * width)] if kind in kinds else []
