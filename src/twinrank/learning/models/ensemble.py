"""Nets of every kind: one scorer, an ensemble of them, or a user's own module."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from twinrank.core.lists import Lists
from twinrank.learning.models.architecture import Architecture, architecture
from twinrank.learning.models.scorer import Scorer, SharedEnsemble
from twinrank.support.errors import Argument, InputError
from twinrank.support.imports import imported


class CustomNet(nn.Module):
    """A user's own module, called as `module(X, lists)` or `module(X)`.

    It gets transformed features, [documents, features], and returns one score per document.
    """

    architecture = None
    ensemble_size = 1
    categories: Mapping[int, int] = {}

    def __init__(self, features: int, module: nn.Module) -> None:
        super().__init__()
        self.features, self.module = features, module
        self.per_query = _takes_lists(module)

    def forward(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The score of every document."""
        scores: Any = self.module(X, lists) if self.per_query else self.module(X)
        shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        if shape not in ((len(X),), (len(X), 1)):
            raise InputError(
                f"{type(self.module).__name__} returned {shape} for {len(X)} documents; it must "
                f"return one score per document, shape ({len(X)},) or ({len(X)}, 1)."
            )
        flat: Tensor = scores.reshape(-1)
        return flat


class Ensemble(nn.Module):
    """Several nets of one architecture with different initial weights; their mean ranks.

    In training each net has its own column of scores and learns as if it were alone.
    """

    def __init__(self, models: Sequence["Scorer | CustomNet"]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        first = models[0]
        self.features, self.categories = first.features, first.categories
        self.architecture, self.per_query = first.architecture, first.per_query
        self.ensemble_size = len(models)

    def forward(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The mean of the scores; in training a column for each net."""
        scores = self.columns(X, lists)
        return scores if self.training else scores.mean(dim=1)

    def columns(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The scores of each net, [documents, ensemble_size]."""
        return torch.stack([model(X, lists) for model in self.models], dim=1)


Net = Scorer | Ensemble | SharedEnsemble | CustomNet


def build_net(
    features: int,
    chosen: "Architecture | nn.Module | Callable[[int], nn.Module]",
    ensemble_size: int = 1,
    categories: Mapping[int, int] | None = None,
    generator: torch.Generator | None = None,
) -> Net:
    """A net with fresh weights, or an ensemble of nets."""
    if isinstance(chosen, Architecture) and chosen.shared and ensemble_size > 1:
        return SharedEnsemble(features, chosen, ensemble_size, categories, generator)
    build: Callable[[], Scorer | CustomNet]
    if isinstance(chosen, Architecture):

        def build() -> Scorer:
            return Scorer(features, chosen, categories, generator)

    else:
        if categories:
            raise InputError("Categorical features need one of TwinRank's own architectures.")
        if isinstance(chosen, nn.Module) and ensemble_size > 1:
            raise InputError(
                "ensemble_size > 1 needs a function or class that makes a net, such as "
                "architecture=MyNet, not a finished module: its copies would be equal."
            )

        def build() -> CustomNet:
            return CustomNet(features, _fresh(features, chosen, generator))

    models = [build() for _ in range(ensemble_size)]
    return models[0] if ensemble_size == 1 else Ensemble(models)


def models_of(net: Net) -> list[Any]:
    """The nets of an ensemble; the net itself if it is one, or if its nets share weights."""
    return list(net.models) if isinstance(net, Ensemble) else [net]


def resolve_architecture(
    value: Any, mode: str = "default"
) -> "Architecture | nn.Module | Callable[[int], nn.Module]":
    """What `architecture=` means: a name, an `Architecture`, or a user's own net.

    A user's own net is a module, a function or class called with the number of features, or the
    import path of one of these, "package.module:name".
    """
    if isinstance(value, str) and ":" in value:
        value = imported(value, "architecture")
    if isinstance(value, nn.Module) or (callable(value) and not isinstance(value, Architecture)):
        return value
    return architecture(value, mode)


def import_path(value: Any) -> str:
    """The import path of a user's own net, for people and for `Ranker.load`.

    >>> import_path(nn.Linear)
    'torch.nn.modules.linear:Linear'
    """
    if isinstance(value, str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _fresh(features: int, chosen: Any, generator: torch.Generator | None) -> nn.Module:
    """A module of its own: a copy of a finished one, or what a function makes, with our seed."""
    if isinstance(chosen, nn.Module):
        module: Any = deepcopy(chosen)
    else:
        seed = torch.randint(2**62, (), generator=generator)
        with torch.random.fork_rng([]):
            torch.manual_seed(int(seed))
            try:
                module = chosen(features)
            except TypeError as error:
                raise InputError(
                    Argument("architecture", import_path(chosen)),
                    f" must take the number of features and return a torch.nn.Module ({error}).",
                ) from error
    if not isinstance(module, nn.Module):
        raise InputError(
            Argument("architecture", import_path(chosen)),
            f" returned {type(module).__name__}; it must return a torch.nn.Module.",
        )
    if not any(weight.requires_grad for weight in module.parameters()):
        raise InputError(Argument("architecture", import_path(chosen)), " has no weights to train.")
    return module


def _takes_lists(module: nn.Module) -> bool:
    """True if `forward` takes a second argument."""
    parameters = inspect.signature(module.forward).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    return len(required) > 1 or any(p.name == "lists" for p in positional)
