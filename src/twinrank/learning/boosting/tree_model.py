"""Trained trees as a model: the engine's own file beside `config.json`."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import from_json as transform_from_json
from twinrank.learning.boosting.engines import ENGINES, Trees, engine
from twinrank.learning.boosting.tree_features import StreamedFeatures, tree_transform
from twinrank.learning.models.saved_model import CONFIG, Model, damaged, is_count, read_part
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.deployment.onnx_graph import Graph


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeModel(Model):
    """Boosted trees with their transform."""

    kind: ClassVar[str] = "trees"
    engine: str
    trees: Trees
    categorical: tuple[int, ...] = ()
    scale: float = 1.0
    """The mean standard deviation of the scores of an ensemble's models, which its trees are
    divided by. A training that continues the trees multiplies them by it."""

    @property
    def per_query(self) -> bool:
        """True if a score depends on the other documents of its query."""
        return self.transform.per_query

    def score(self, data: Dataset, n_jobs: int | None = None) -> npt.NDArray[np.float32]:
        """The score of every document."""
        parts = [self.trees.predict(X, n_jobs) for X in self.engine_features(data)]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def contributions(self, data: Dataset, n_jobs: int | None = None) -> npt.NDArray[np.float64]:
        """SHAP values: a column per feature, and the common base value in the last column."""
        parts = [
            self._by_feature(self.trees.contributions(X, n_jobs))
            for X in self.engine_features(data)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.features + 1))

    def gains(self) -> npt.NDArray[np.float64]:
        """The total gain of the splits on each feature."""
        return self._by_feature(self.trees.gains()[None]).ravel()

    def _by_feature(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Add up the columns that come from the same feature; further columns stay."""
        sources = self.transform.sources(self.features)
        if np.array_equal(sources, np.arange(self.features)):
            return values
        further = values[:, sources.size :]
        sums = np.zeros((len(values), self.features + further.shape[1]))
        np.add.at(sums.T, sources, values[:, : sources.size].T)
        sums[:, self.features :] = further
        return sums

    def engine_features(self, data: Dataset) -> Iterator[Any]:
        """The features as the engine takes them, block by block: codes, transforms applied."""
        return iter(StreamedFeatures(self.encoding(data), self.transform, self.categorical))

    def add_to(self, graph: "Graph") -> str:
        """Append the transforms and the trees to an ONNX graph."""
        from twinrank.deployment.onnx_trees import add_trees

        return add_trees(graph, self)

    def graph_metadata(self) -> dict[str, Any]:
        """The engine and the number of trees."""
        return {"engine": self.engine, "trees": self.trees.count}

    def parts(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The engine, the categorical columns and the trees."""
        content = self.trees.to_bytes()
        return {
            "engine": self.engine,
            "categorical": list(self.categorical),
            "scale": self.scale,
        }, {self.trees.file: content}

    @classmethod
    def from_parts(
        cls, config: dict[str, Any], folder: Path, common: dict[str, Any], architecture: Any
    ) -> Self:
        """Read the trees; the engine only gets a file that was checked."""
        if architecture is not None:
            raise InputError("It holds trees, which have no architecture.")
        if config.get("engine") not in ENGINES:
            raise damaged(f"there is no engine {config.get('engine')!r}")
        columns, features = config.get("categorical"), common["features"]
        if not isinstance(columns, list) or not all(is_count(c, features) for c in columns):
            raise damaged("categorical must be a list of columns")
        categorical = tuple(columns)
        if (known := common["encoding"].columns) and list(known) != columns:
            raise damaged("encoding does not fit the categorical columns")
        transform = tree_transform(transform_from_json(config.get("transform")), categorical)
        transform.check_features(features)
        module = engine(config["engine"])
        content = read_part(folder, module.FILE, config)
        known = config.get("sha256")  # models without checksums have it
        if known is not None and hashlib.sha256(content).hexdigest() != known:
            raise InputError(
                f"{module.FILE} is damaged: it is not the file that {CONFIG} was saved with."
            )
        trees = module.from_bytes(content, transform.outputs(features), categorical)
        if trees.count < common["ensemble_size"]:
            raise damaged(f"{trees.count} trees for ensemble_size {common['ensemble_size']}")
        scale = config.get("scale", 1.0)
        if type(scale) is not float or not 0 < scale < float("inf"):
            raise damaged(f"scale must be a positive number, not {scale!r}")
        return cls(
            engine=config["engine"],
            scale=scale,
            trees=trees,
            categorical=categorical,
            transform=transform,
            **common,
        )
