"""A weighted sum of trained models as one model: a folder for each beside `config.json`."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose
from twinrank.data.transforms import from_json as transform_from_json
from twinrank.learning.models.saved_model import (
    CONFIG,
    Model,
    damaged,
    model_files,
    needs_architecture,
    read_model,
)
from twinrank.support.checksums import checksum
from twinrank.support.errors import Argument, InputError
from twinrank.support.files import read_json

if TYPE_CHECKING:
    from twinrank.deployment.onnx_graph import Graph

Scores = npt.NDArray[np.float32]

_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")


@dataclass(frozen=True, eq=False, kw_only=True)
class BlendModel(Model):
    """Score = Σ weight · score / scale over the models of the blend."""

    kind: ClassVar[str] = "blend"
    models: Mapping[str, Model]
    weights: tuple[float, ...]
    scales: tuple[float, ...]
    """The standard deviation of each model's scores within queries, which divides them."""

    @property
    def per_query(self) -> bool:
        """True if a score depends on the other documents of its query."""
        return any(model.per_query for model in self.models.values())

    @property
    def categories(self) -> Mapping[int, int]:
        """The categorical columns of all nets, each with its largest number of categories."""
        largest: dict[int, int] = {}
        for model in self.models.values():
            for column, count in model.categories.items():
                largest[column] = max(count, largest.get(column, 0))
        return largest

    def score(self, data: Dataset, n_jobs: int | None = None) -> Scores:
        """The weighted sum of the models' scores."""
        return self.combined([model.score(data, n_jobs) for model in self.models.values()])

    def combined(self, scores: Iterable[Scores]) -> Scores:
        """The weighted sum of scores, one array for each model."""
        return weighted_sum(scores, self.weights, self.scales)

    def transforms(self) -> str:
        """The transforms of every model."""
        return "; ".join(f"{name}: {model.transforms()}" for name, model in self.models.items())

    def add_to(self, graph: "Graph") -> str:
        """Append all models and their weighted sum to an ONNX graph."""
        terms = []
        for model, weight, scale in self._terms():
            term = graph.cast(model.add_to(graph), np.float64)
            terms.append(graph("Mul", term, np.float64(weight / scale)))
        return graph.cast(graph("Sum", *terms), np.float32)

    def graph_metadata(self) -> dict[str, Any]:
        """The weights, and what each model adds."""
        models = {name: model.graph_metadata() for name, model in self.models.items()}
        weights = dict(zip(self.models, self.weights, strict=True))
        return {"weights": weights, "models": models}

    def parts(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Weights and scales, and the files of every model in a folder of its name."""
        files = {
            f"{name}/{file}": content
            for name, model in self.models.items()
            for file, content in model_files(model).items()
        }
        described = {
            name: {
                "weight": weight,
                "scale": scale,
                "checksum": checksum(files[f"{name}/{CONFIG}"]),
            }
            for name, weight, scale in zip(self.models, self.weights, self.scales, strict=True)
        }
        return {"models": described}, files

    @classmethod
    def from_parts(
        cls, config: dict[str, Any], folder: Path, common: dict[str, Any], architecture: Any
    ) -> Self:
        """Read every model; a user's own net goes to the models that need it."""
        described = config.get("models")
        if not isinstance(described, dict) or not described:
            raise damaged("models must be an object with a model or more")
        if transform_from_json(config.get("transform")) != Compose():
            raise damaged("a blend has no transform of its own")
        try:
            check_names(described)
        except InputError as error:
            raise InputError(f"{CONFIG} is damaged: ", *error.parts) from error
        weights, scales = zip(*map(_weight_and_scale, described.values()), strict=True)
        if not sum(weights) > 0:
            raise damaged("all weights are 0")
        models = {
            name: _part(folder / name, architecture, common, about.get("checksum"))
            for name, about in described.items()
        }
        own = any(needs_architecture(folder / name) for name in described)
        if architecture is not None and not own:
            raise InputError(
                "It holds no net of your own; load it without ", Argument("architecture"), "."
            )
        return cls(models=models, weights=weights, scales=scales, **common)

    def _terms(self) -> Iterable[tuple[Model, float, float]]:
        return zip(self.models.values(), self.weights, self.scales, strict=True)


def deviation(
    scores: Any, lists: Lists, add_parts: Callable[[list[float]], list[float]] = list
) -> float:
    """The standard deviation of scores within lists; 1 if it is 0.

    On a cluster, `add_parts` adds up values over the workers.

    >>> deviation([1.0, 3.0, 7.0, 9.0], Lists.from_sizes([2, 2]))
    1.0
    """
    values = np.asarray(scores, np.float64)
    centred = values - lists.spread(lists.sum(values) / np.maximum(lists.sizes, 1))
    total, count = add_parts([float(np.sum(centred**2)), values.size])
    root = float(np.sqrt(total / count)) if count else 0.0
    return root if root > 0 and np.isfinite(root) else 1.0


def weighted_sum(
    scores: Iterable[Scores], weights: Sequence[float], scales: Sequence[float]
) -> Scores:
    """Σ weight · score / scale, summed in float64."""
    factors = [weight / scale for weight, scale in zip(weights, scales, strict=True)]
    terms = [f * np.asarray(s, np.float64) for f, s in zip(factors, scores, strict=True)]
    return np.asarray(np.sum(terms, axis=0), np.float32)


def check_names(names: Iterable[str]) -> None:
    """Refuse names that cannot be those of folders and of nested parameters."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 60:
            raise InputError(
                f"A ranker of a blend cannot be called {name!r}. Use letters and digits, with "
                f"single _ or - between them."
            )
        if name.lower() in seen:  # some file systems ignore case
            raise InputError(
                f"Two rankers of a blend are called {seen[name.lower()]!r} and {name!r}; their "
                f"names must differ by more than case."
            )
        seen[name.lower()] = name


def _part(folder: Path, architecture: Any, common: Mapping[str, Any], expected: Any) -> Model:
    """A model of the blend; a blend in a blend is refused before it is read.

    `expected` is the checksum of its configuration; blends of older versions have none.
    """
    path = folder / CONFIG
    config = read_json(path) if path.is_file() else None
    if expected is not None and config is not None and checksum(path.read_bytes()) != expected:
        raise InputError(
            f"{folder.name} is not the model that the blend was saved with. Copy the whole folder "
            f"of the blend, or train it again."
        )
    if isinstance(config, dict) and config.get("kind") == BlendModel.kind:
        raise damaged(f"{folder.name} is a blend in a blend")
    model = read_model(folder, architecture if needs_architecture(folder) else None)
    if model.features != common["features"]:
        raise damaged(f"{folder.name} has {model.features} features, not {common['features']}")
    return model


def _weight_and_scale(described: Any) -> tuple[float, float]:
    if not isinstance(described, dict) or described.keys() - {"checksum"} != {"weight", "scale"}:
        raise damaged("each model must have a weight and a scale")
    weight, scale = described["weight"], described["scale"]
    for value in (weight, scale):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise damaged(f"weights and scales must be numbers, not {value!r}")
    if not (0 <= weight < math.inf and 0 < scale < math.inf):
        raise damaged("weights must be at least 0 and scales above 0")
    return float(weight), float(scale)
