"""The trees of a model as one list for search engines: per document, on named raw features."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose
from twinrank.deployment.tree_list import Tree, single_leaf, trees_of, unable, with_memberships
from twinrank.support.errors import Argument, InputError, Parts

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

REMEDY: Parts = (
    "Train a BoostedRanker with ",
    Argument("mode", "per-document"),
    ", distill this model into such trees (ranker.distill, or twinrank export --distill), or "
    "export it to ONNX and score the documents outside the engine.",
)
"""What to do if a model is not a sum of trees on raw features."""
DEEPEST = 400
"""Levels of a tree: JSON parsers in Java refuse more than 1,000 nested brackets, two per level."""


@dataclass(frozen=True)
class Feature:
    """A number that the engine computes for each document.

    With `values`, it is 1 if the categorical feature has one of these values, else 0. If it is
    missing, the number is 1 if `missing` is true.
    """

    name: str
    column: int
    """The column of the training data."""
    field: str
    """The name of this column."""
    values: tuple[str | int, ...] | None = None
    missing: bool = False
    is_text: bool = False
    """True if the column has texts."""

    def of(self, data: Dataset) -> npt.NDArray[np.float32]:
        """The feature of every document."""
        raw = data.X[:, self.column]
        if self.values is None:
            return raw
        known = np.array(data.categories.get(self.column, ()), object)
        number = np.where(raw >= 0, raw, 0)
        if known.size:
            member = np.isin(known, list(map(str, self.values)))[number.astype(np.int64)]
        else:
            member = np.isin(number, np.array([float(value) for value in self.values]))
        return np.where(raw >= 0, member, self.missing).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose values add up to the score; a split's feature is a place in `features`."""

    features: tuple[Feature, ...]
    trees: list[Tree]

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return sum(int(tree.is_leaf.sum()) for tree in self.trees)

    def matrix(self, data: Dataset) -> npt.NDArray[np.float32]:
        """The features of every document, a column each."""
        return np.stack([feature.of(data) for feature in self.features], axis=1)

    def matrices(self, data: Dataset) -> Iterator[npt.NDArray[np.float32]]:
        """The features; then also with a missing value for each category that does not match."""
        X = self.matrix(data)
        yield X
        members = np.array([feature.values is not None for feature in self.features])
        if members.any():
            yield np.where(members & (X == 0), np.float32(np.nan), X)

    def renamed(self, names: Sequence[str]) -> "Forest":
        """The forest with other names of features."""
        pairs = zip(self.features, names, strict=True)
        return replace(self, features=tuple(replace(own, name=name) for own, name in pairs))

    def without_unused(self) -> "Forest":
        """The forest with the features that some tree uses, and one at least."""
        used = np.unique(np.concatenate([tree.feature[~tree.is_leaf] for tree in self.trees]))
        used = used if used.size else np.array([0])
        place = np.zeros(len(self.features), np.int64)
        place[used] = np.arange(used.size)
        trees = [replace(tree, feature=place[tree.feature]) for tree in self.trees]
        return Forest(tuple(self.features[column] for column in used), trees)


def forest_of(model: "Model", target: str) -> Forest:
    """The trees of a model, or of all models of a blend, if its scores are a sum of trees.

    `target` is what an error calls the engine.
    """
    names = names_of(model)
    features = [Feature(name, column, name) for column, name in enumerate(names)]
    trees: list[Tree] = []
    offset = 0.0
    for part, factor in _terms(model):
        _check(part, target)
        own, grown = trees_of(part.engine, part.trees)
        offset += factor * own
        memberships, grown = with_memberships(grown, len(features), part.encoding.counts)
        for column, member in memberships:
            features.append(_membership(part, column, member, features))
        trees += [tree.scaled(factor) for tree in grown]
    if offset:
        trees.append(single_leaf(offset))
    if any(_depth(tree) > DEEPEST for tree in trees):
        raise unable(f"a tree has more than {DEEPEST} levels; train with fewer leaves")
    return Forest(tuple(features), trees)


def names_of(model: "Model") -> list[str]:
    """The names of the features: those of the data, or feature_1 and so on, as LETOR counts."""
    if model.feature_names is not None:
        return list(model.feature_names)
    return [f"feature_{column + 1}" for column in range(model.features)]


def _terms(model: Any) -> list[tuple[Any, float]]:
    """The models of a blend with their factors, or the model itself."""
    if model.kind != "blend":
        return [(model, 1.0)]
    parts = zip(model.models.values(), model.weights, model.scales, strict=True)
    return [(part, weight / scale) for part, weight, scale in parts if weight]


def _check(part: Any, target: str) -> None:
    """Refuse everything but trees on raw features."""
    if part.per_query:
        why = f"{target} scores each document alone, but these scores depend on the whole query"
    elif part.kind != "trees":
        why = f"{target} holds trees, but this model contains a net"
    elif part.transform != Compose():
        why = f"{target} has no transforms, but these trees need {part.transform}"
    elif part.categorical and not part.encoding.columns:
        raise unable("the model was saved without the codes of its categories; train it again")
    else:
        return
    raise InputError(f"Not exported: {why}. ", *REMEDY)


def _membership(part: Any, column: int, member: Any, features: Sequence[Feature]) -> Feature:
    """The feature of a split on categories; blends repeat those of other models."""
    values = part.encoding.columns[column]
    chosen = tuple(value for value, own in zip(values, member, strict=False) if own)
    missing = bool(member[-1])
    name, number = features[column].name, 1
    taken = {feature.name for feature in features}
    while f"{name}_in_{number}" in taken:
        number += 1
    is_text = column in part.encoding.texts
    return Feature(f"{name}_in_{number}", column, name, chosen, missing, is_text)


def _depth(tree: Tree) -> int:
    """The number of levels of a tree."""
    level, depth = np.array([0]), 0
    while level.size:
        splits = level[~tree.is_leaf[level]]
        level = np.concatenate([tree.left[splits], tree.right[splits]])
        depth += 1
    return depth
