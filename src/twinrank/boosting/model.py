"""A boosted model as a folder: the engine's own file and `config.json`; loading runs nothing."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.boosting.engine import ENGINES, Trees, engine
from twinrank.boosting.rows import features_of, kept_from
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose, Transform
from twinrank.data.transforms import from_json as transform_from_json
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, read_json, write_model

FORMAT, VERSION, CONFIG = "twinrank-boosted-model", 1, "config.json"


@dataclass(frozen=True, eq=False)
class BoostedModel:
    """All that is needed to score: trees, the transform before them, and where they come from."""

    engine: str
    trees: Trees
    features: int
    transform: Transform = field(default_factory=Compose)
    categorical: tuple[int, ...] = ()
    feature_names: tuple[str, ...] | None = None
    members: int = 1  # whose trees they are, so many for each
    provenance: dict[str, Any] = field(default_factory=dict)  # how it was trained, for people

    @property
    def per_query(self) -> bool:
        """Whether a score depends on the other documents of its query."""
        return self.transform.per_query

    @property
    def rounds(self) -> int:
        """How many trees each member has."""
        return self.trees.count // self.members

    def score(self, data: Dataset, n_jobs: int | None = None) -> npt.NDArray[np.float32]:
        """The score of every document."""
        parts = [self.trees.predict(X, n_jobs) for X in self._features(data)]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def contributions(self, data: Dataset, n_jobs: int | None = None) -> npt.NDArray[np.float64]:
        """SHAP values, a column per feature, and what they add to in the last."""
        parts = [self.trees.contributions(X, n_jobs) for X in self._features(data)]
        return np.concatenate(parts) if parts else np.empty((0, self.features + 1))

    def _features(self, data: Dataset) -> Iterator[Any]:
        return features_of(data, self.transform, self.categorical)

    def config(self) -> dict[str, Any]:
        """Everything but the trees, as plain JSON."""
        names = self.feature_names
        return {
            "format": FORMAT,
            "version": VERSION,
            "twinrank": version("twinrank"),
            "engine": self.engine,
            "sha256": hashlib.sha256(self.trees.to_bytes()).hexdigest(),
            "features": self.features,
            "feature_names": None if names is None else list(names),
            "categorical": list(self.categorical),
            "members": self.members,
            "transform": self.transform.to_json(),
            "provenance": self.provenance,
        }


def save_boosted(model: BoostedModel, folder: Path) -> None:
    """Write a model's folder; it appears whole, in place of a model that was there before."""
    write_model(folder, CONFIG, model.config(), model.trees.file, model.trees.to_bytes())


def load_boosted(folder: Path) -> BoostedModel:
    """Read a model's folder, every part of it checked."""
    with explained("read", folder / CONFIG):
        if not (folder / CONFIG).is_file():
            raise InputError(f"{folder} is not a model: there is no {CONFIG} in it")
    config = read_json(folder / CONFIG)
    try:
        return _from_config(config, folder)
    except InputError as error:
        raise InputError(f"{folder} can't be loaded: {error}") from error


def _from_config(config: Any, folder: Path) -> BoostedModel:
    config = check_format(config, CONFIG, FORMAT, VERSION, "that of boosted trees")
    if config.get("engine") not in ENGINES:
        raise InputError(f"{CONFIG} is damaged: there is no engine {config.get('engine')!r}")
    features, names, categorical = _columns(config)
    provenance = config.get("provenance")
    if not isinstance(provenance, dict) or not isinstance(provenance.get("parameters", {}), dict):
        raise InputError(f"{CONFIG} is damaged: provenance must be an object")
    transform = kept_from(transform_from_json(config.get("transform")), categorical)
    transform.check_features(features)
    module = engine(config["engine"])
    path = folder / module.FILE
    with explained("read", path):
        content = path.read_bytes()
    # Engines trust their files, and may fail badly on others: they only get what was saved.
    if hashlib.sha256(content).hexdigest() != config.get("sha256"):
        raise InputError(f"{path.name} is damaged: it is not the file that {CONFIG} was saved with")
    trees = module.from_bytes(content, features, categorical)
    members = config.get("members", 1)
    if not _is_count(members, trees.count + 1) or not members or trees.count % members:
        raise InputError(f"{CONFIG} is damaged: {trees.count} trees of {members!r} members")
    return BoostedModel(
        config["engine"], trees, features, transform, categorical, names, members, provenance
    )


def _columns(config: dict[str, Any]) -> tuple[int, tuple[str, ...] | None, tuple[int, ...]]:
    """The number of features, their names, if any, and which are categories."""
    features: Any = config.get("features")
    names, chosen = config.get("feature_names"), config.get("categorical")
    if not _is_count(features, 2**31) or features < 1:
        raise InputError(f"{CONFIG} is damaged: features must be a whole number, not {features!r}")
    if not isinstance(chosen, list) or not all(_is_count(one, features) for one in chosen):
        raise InputError(f"{CONFIG} is damaged: categorical must be a list of columns")
    if names is None:
        return features, None, tuple(chosen)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{CONFIG} is damaged: feature_names must be a list of names")
    if len(names) != features:
        raise InputError(f"{CONFIG} is damaged: {len(names)} names of {features} features")
    return features, tuple(names), tuple(chosen)


def _is_count(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below
