"""A model as a folder: `model.safetensors` and `config.json`; loading executes nothing."""

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform
from twinrank.data.transforms import from_json as transform_from_json
from twinrank.models.architecture import Architecture
from twinrank.models.columns import apart
from twinrank.models.ensemble import Net, net
from twinrank.models.scorer import score_all
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, read_json, write_model

FORMAT, VERSION = "twinrank-model", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True, eq=False)
class Model:
    """All that is needed to score: the net, the transform before it, and where it comes from."""

    scorer: Net
    transform: Transform
    feature_names: tuple[str, ...] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)  # how it was trained, for people

    @property
    def features(self) -> int:
        """How many features it was trained on."""
        return self.scorer.features

    @property
    def per_query(self) -> bool:
        """Whether a score depends on the other documents of its query."""
        return self.scorer.architecture.per_query or self.transform.per_query

    def score(self, data: Dataset, documents: int = 12_000) -> npt.NDArray[np.float32]:
        """The score of every document, batch by batch."""
        return score_all(self.scorer, data, self.transform, documents)

    def config(self) -> dict[str, Any]:
        """Everything but the weights, as plain JSON."""
        names = self.feature_names
        return {
            "format": FORMAT,
            "version": VERSION,
            "twinrank": version("twinrank"),
            "features": self.scorer.features,
            "feature_names": None if names is None else list(names),
            "architecture": self.scorer.architecture.to_json(),
            "categories": {str(c): n for c, n in self.scorer.categories.items()},
            "transform": self.transform.to_json(),
            "provenance": self.provenance,
        }


def save_model(model: Model, folder: Path) -> None:
    """Write a model's folder; it appears whole, in place of a model that was there before."""
    state = model.scorer.state_dict()
    tensors = {name: t.detach().cpu().contiguous() for name, t in state.items()}
    write_model(folder, CONFIG, model.config(), WEIGHTS, save(tensors))


def load_model(folder: Path) -> Model:
    """Read a model's folder, every part of it checked."""
    for name in (CONFIG, WEIGHTS):
        with explained("read", folder / name):
            if not (folder / name).is_file():
                raise InputError(f"{folder} is not a model: there is no {name} in it")
    config = read_json(folder / CONFIG)
    try:
        return _from_config(config, folder)
    except InputError as error:
        raise InputError(f"{folder} can't be loaded: {error}") from error


def _from_config(config: Any, folder: Path) -> Model:
    config = check_format(config, CONFIG, FORMAT, VERSION, "that of a TwinRank model")
    features, names = _features(config)
    provenance = config.get("provenance")
    if not isinstance(provenance, dict) or not isinstance(provenance.get("parameters", {}), dict):
        raise InputError(f"{CONFIG} is damaged: provenance must be an object")
    if not isinstance(config.get("categories"), dict):
        raise InputError(f"{CONFIG} is damaged: categories must be an object")
    chosen = Architecture.from_json(config.get("architecture"))
    scorer = _scorer(features, chosen, config["categories"], folder / WEIGHTS)
    transform = apart(transform_from_json(config.get("transform")), scorer.categories)
    transform.check_features(features)
    return Model(scorer, transform, names, provenance)


def _features(config: dict[str, Any]) -> tuple[int, tuple[str, ...] | None]:
    """The number of features and their names, if any."""
    features, names = config.get("features"), config.get("feature_names")
    if not isinstance(features, int) or isinstance(features, bool) or features < 1:
        raise InputError(f"{CONFIG} is damaged: features must be a whole number, not {features!r}")
    if names is None:
        return features, None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{CONFIG} is damaged: feature_names must be a list of names")
    if len(names) != features:
        raise InputError(f"{CONFIG} is damaged: {len(names)} names of {features} features")
    return features, tuple(names)


def _scorer(features: int, chosen: Architecture, categories: Any, path: Path) -> Net:
    """The net with its weights; nothing is made before all shapes are known to fit."""
    with explained("read", path):
        content = path.read_bytes()
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{path.name} is damaged: {error}") from error
    if max(max(chosen.depth, 1) * chosen.members, len(categories)) > len(tensors):
        raise InputError(f"{path.name} has {len(tensors)} tensors, too few for {CONFIG}")
    widest = max((max(t.shape, default=0) for t in tensors.values()), default=0)
    if max(features - len(categories), chosen.width if chosen.depth else 0) > widest:
        raise InputError(f"{path.name} holds weights of another shape than {CONFIG} says")
    with torch.device("meta"):
        expected = net(features, chosen, categories).state_dict()
    _check_tensors(tensors, expected, path.name)
    scorer = net(features, chosen, categories, torch.Generator())
    scorer.load_state_dict(tensors)
    return scorer.eval()


def _check_tensors(
    tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], file: str
) -> None:
    for name in sorted(expected.keys() ^ tensors.keys()):
        what = "lacks" if name in expected else "has an unknown"
        raise InputError(f"{file} {what} tensor {name}")
    for name, tensor in tensors.items():
        shape, kind = expected[name].shape, expected[name].dtype
        if tensor.shape != shape or tensor.dtype != kind:
            raise InputError(
                f"{file}: {name} has shape {tuple(tensor.shape)} and type {tensor.dtype}, "
                f"the architecture needs {tuple(shape)} and {kind}"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{file}: {name} holds values that aren't finite")
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise InputError(f"{file}: {name} holds a negative variance")
