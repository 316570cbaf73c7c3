"""The files of LightGBM and XGBoost themselves, which their libraries read in several languages."""

import re
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose
from twinrank.deployment.check_rows import random_query, sample
from twinrank.deployment.export_format import Format, Written, compared
from twinrank.deployment.forest import names_of
from twinrank.support.errors import InputError
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.learning.boosting.tree_model import TreeModel
    from twinrank.learning.models.saved_model import Model

_ROWS = 1000
_REPLACED = re.compile(r'[\s",:\[\]{}]')
"""LightGBM replaces white space in names by _, and refuses the characters of JSON."""


class EngineFile(Format):
    """One file with the trees, but without transforms."""

    suffixes: ClassVar[tuple[str, ...]]

    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """The engine's own file, which the engine reads again."""
        if model.kind != "trees" or model.engine != self.name:  # type: ignore[attr-defined]
            raise InputError(
                f"Not exported: the format {self.name} holds trees that {self.engine} grew. Choose "
                f"another format, such as onnx."
            )
        trees: TreeModel = model  # type: ignore[assignment]
        content = self.content(trees, path.suffix)
        parts = [random_query(trees, _ROWS), *([] if data is None else [sample(data)])]
        difference = 0.0
        for part in parts:
            features = np.concatenate(list(trees.engine_features(part)))
            scores = self.scores(content, features, trees).astype(np.float32)
            difference = max(difference, compared(trees.score(part), scores, self))
        about = f"{counted(trees.trees.count, 'tree')} in {self.engine}'s own format"
        rows = sum(part.documents for part in parts)
        return Written({path.name: content}, about, difference, rows, _lacking(trees))

    @abstractmethod
    def content(self, model: "TreeModel", suffix: str) -> bytes:
        """The file."""

    @abstractmethod
    def scores(self, content: bytes, X: Any, model: "TreeModel") -> npt.NDArray[Any]:
        """The scores that the engine computes from the file."""


class LightGBMFile(EngineFile):
    """LightGBM's text, with the names of the features."""

    name = "lightgbm"
    engine = "LightGBM"
    limits = "trees by LightGBM; no transforms"
    target = "model.txt"
    suffixes = (".txt",)

    def content(self, model: "TreeModel", suffix: str) -> bytes:  # noqa: ARG002
        """The text with names instead of Column_0, Column_1 and so on."""
        text = model.trees.to_bytes().decode()
        names = lightgbm_names(model)
        text = re.sub(
            r"^feature_names=.*$", f"feature_names={' '.join(names)}", text, count=1, flags=re.M
        )
        head, end, tail = text.partition("\nfeature_importances:\n")
        tail = re.sub(r"^Column_(\d+)=", lambda found: f"{names[int(found[1])]}=", tail, flags=re.M)
        return (head + end + tail).encode()

    def scores(self, content: bytes, X: Any, model: "TreeModel") -> npt.NDArray[Any]:  # noqa: ARG002
        """LightGBM's raw scores."""
        import lightgbm

        booster = lightgbm.Booster(model_str=content.decode())
        return np.asarray(booster.predict(X, raw_score=True))


class XGBoostFile(EngineFile):
    """XGBoost's JSON or UBJSON. It has no names, so that it scores matrices and frames alike."""

    name = "xgboost"
    engine = "XGBoost"
    limits = "trees by XGBoost; no transforms, no names"
    target = "model.json"
    suffixes = (".json", ".ubj")

    def content(self, model: "TreeModel", suffix: str) -> bytes:
        """UBJSON for .ubj, else JSON."""
        return model.trees.to_bytes(".ubj" if suffix == ".ubj" else ".json")

    def scores(self, content: bytes, X: Any, model: "TreeModel") -> npt.NDArray[Any]:
        """XGBoost's margins."""
        import xgboost

        booster = xgboost.Booster()
        booster.load_model(bytearray(content))
        types = ["c" if c in model.categorical else "float" for c in range(X.shape[1])]
        rows = xgboost.DMatrix(X, feature_types=types, enable_categorical=True)
        return np.asarray(booster.predict(rows, output_margin=True))


def lightgbm_names(model: "TreeModel") -> list[str]:
    """The names of the engine's columns as LightGBM allows them.

    If a transform makes several columns of a feature, all but the first get a number.
    """
    own = [_REPLACED.sub("_", name) for name in names_of(model)]
    seen: dict[int, int] = {}
    names = []
    for source in model.transform.sources(model.features).tolist():
        seen[source] = seen.get(source, 0) + 1
        names.append(own[source] if seen[source] == 1 else f"{own[source]}_{seen[source]}")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(
            f"Not exported: two features are called {repeated!r} in LightGBM's file, which has _ "
            f"for white space and for the characters of JSON. Rename the columns of the training "
            f"data."
        )
    return names


def _lacking(model: "TreeModel") -> tuple[str, ...]:
    """A note on what the engine's own file does not hold."""
    lacking = ["the codes of categories, which config.json has"] if model.encoding.columns else []
    if model.transform != Compose():
        each = ", query by query" if model.per_query else ""
        lacking.append(f"the transform: apply {model.transform} first{each}")
    return (f"The file does not hold {' and '.join(lacking)}.",) if lacking else ()
