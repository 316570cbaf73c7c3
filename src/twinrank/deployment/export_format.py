"""What every export format has: a name, the files it writes, and a check of their scores."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.deployment.check_rows import generated, random_query, sample
from twinrank.deployment.dense_net import Dense, net_scores
from twinrank.deployment.forest import Forest, forest_of
from twinrank.deployment.tree_list import Tree
from twinrank.deployment.tree_rules import Rule, scores_of
from twinrank.support.errors import Argument, InputError
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model
    from twinrank.learning.models.score_map import ScoreMap

TOLERANCE = 1e-5
"""The largest accepted difference of scores, relative to the largest score."""
LARGEST = float(np.finfo(np.float32).max)

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Written:
    """The files of an export, checked."""

    files: Files
    """By name; a format that writes a single file has one entry."""
    description: str
    difference: float | None
    """The largest difference from `predict` on the checked rows."""
    rows: int
    """The number of checked rows."""
    notes: tuple[str, ...] = ()
    trees: int | None = None
    leaves: int | None = None


class Format(ABC):
    """An export format."""

    name: ClassVar[str]
    """Its name in `FORMATS`."""
    engine: ClassVar[str]
    """The software that reads it, as messages and documentation call it."""
    limits: ClassVar[str]
    """What it cannot hold, in a few words."""
    target: ClassVar[str]
    """The default name of the file or folder."""
    is_folder: ClassVar[bool] = False

    def holds(self, calibration: "ScoreMap") -> bool:  # noqa: ARG002
        """True if the files can turn scores into grades or probabilities."""
        return False

    @abstractmethod
    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """The files, checked on generated rows and on `data`; nothing is on the disk yet."""


def checked_net(
    target: Format, model: "Model", layers: list[Dense], files: Files, data: Dataset | None
) -> Written:
    """The files of a net; `layers` are those that the files hold."""
    parts = [random_query(model, 1000), *([] if data is None else [sample(data)])]
    difference = max(
        compared(model.score(part), net_scores(layers, part.X), target) for part in parts
    )
    about = f"{', '.join(files)} for {target.engine}"
    return Written(files, about, difference, sum(part.documents for part in parts))


class TreeFormat(Format):
    """A format for a sum of trees, in a folder with what else the engine needs."""

    rule: ClassVar[Rule]
    """How the engine evaluates the file."""
    is_folder = True

    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """Convert the trees, read the file back, and compare its scores with the model's."""
        plain = self.chosen(forest_of(model, self.engine))
        agrees = self._check_missing(plain, data)
        forest = self.adapted(_finite(plain, self.rule.strict), data)
        files = self.files(forest, label_of(path))
        trees = self.read(files, [feature.name for feature in forest.features])
        parts = [generated(model, plain, forest, data, missing=agrees)]
        parts += [] if data is None else [sample(data)]
        difference = max(
            compared(model.score(part), scores_of(trees, X, self.rule), self)
            for part in parts
            for X in forest.matrices(part)
        )
        notes = tuple(self.notes(forest, data, files))
        if not agrees:
            notes += (
                f"{self.engine} takes a missing value as 0, but the model does not. The scores are "
                f"the same only without missing values, as in the data of the check.",
            )
        about = f"{', '.join(files)} for {self.engine}"
        rows = sum(part.documents for part in parts)
        counts = len(forest.trees), forest.leaves
        return Written(files, about, difference, rows, notes, *counts)

    @abstractmethod
    def files(self, forest: Forest, label: str) -> Files:
        """The files by name; `label` is the name of the model in the engine."""

    @abstractmethod
    def read(self, files: Files, names: Sequence[str]) -> list[Tree]:
        """The trees in the files, with the thresholds that the engine compares with."""

    def chosen(self, forest: Forest) -> Forest:
        """The features that the engine computes, and their names."""
        return forest.without_unused()

    def adapted(self, forest: Forest, data: Dataset | None) -> Forest:  # noqa: ARG002
        """The trees with thresholds that the format can express."""
        return forest

    def notes(self, forest: Forest, data: Dataset | None, files: Files) -> Iterator[str]:  # noqa: ARG002
        """What the user should know."""
        members = [feature for feature in forest.features if feature.values is not None]
        if members:
            yield (
                f"{self.engine[0].upper()}{self.engine[1:]} must compute "
                f"{counted(len(members), 'feature')} that are 1 for some categories and 0 for the "
                f"others; the files list these categories."
            )
        single = {(one.field, value) for one in members for value in one.values or ()}
        if len(members) > len(single):
            yield (
                "If these are too many, train with engine_params={'max_cat_to_onehot': 10000}: "
                "each split then takes a single category."
            )

    def _check_missing(self, forest: Forest, data: Dataset | None) -> bool:
        """False if the engine takes missing values as 0 and the model does not, but data has none.

        Raises an error if there may be missing values.
        """
        if not self.rule.missing_is_zero or all(map(zero_is_missing, forest.trees)):
            return True
        if data is not None and not np.isnan(data.X).any():
            return False
        raise InputError(
            f"Not exported: {self.engine} takes a missing value as 0, but these trees do not. Fill "
            f"missing values with 0 before training; or, if no feature is ever missing, pass rows "
            f"without missing values as ",
            Argument("data"),
            ".",
        )


def zero_is_missing(tree: Tree) -> bool:
    """True if missing values go where 0 goes, at every split."""
    splits = ~tree.is_leaf
    return bool((tree.missing_left == (tree.value >= 0))[splits].all())


def compared(expected: npt.NDArray[Any], scores: npt.NDArray[Any], target: Format) -> float:
    """The largest difference of scores; an error if it is too large."""
    if not expected.size:
        return 0.0
    difference = float(np.abs(scores.astype(np.float64) - expected).max())
    limit = TOLERANCE * float(np.abs(expected).max())
    if not difference <= limit:
        raise InputError(
            f"Not exported: by the rules of {target.engine}, scores differ from predict by up to "
            f"{difference:.2g}; at most {limit:.2g} is accepted."
        )
    return difference


def label_of(path: Path) -> str:
    """The name of a model in an engine, from the name of its folder; a letter comes first.

    >>> label_of(Path("runs/My model")), label_of(Path("2026-11"))
    ('my_model', 'model_2026_11')
    """
    label = re.sub(r"[^a-z0-9]+", "_", path.name.lower()).strip("_") or "twinrank"
    return f"model_{label}" if label[0].isdigit() else label


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON in one line, or indented for people."""
    separators = (",", ":") if indent is None else None
    return json.dumps(
        value, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False
    )


def _finite(forest: Forest, strict: bool) -> Forest:
    """The trees without infinite thresholds in the file.

    A split that sends all numbers to one side compares with the largest float32, x ≤ t, or with the
    smallest, x < t, which is never true. Where that is the other side, the children are exchanged.
    """
    return replace(forest, trees=[_finite_tree(tree, strict) for tree in forest.trees])


def _finite_tree(tree: Tree, strict: bool) -> Tree:
    splits = ~tree.is_leaf
    always, never = splits & (tree.value >= LARGEST), splits & (tree.value < -LARGEST)
    if strict:  # the file has the next float32
        return replace(tree, value=np.where(always | never, -np.inf, tree.value)).swapped(always)
    return replace(tree, value=np.where(always | never, LARGEST, tree.value)).swapped(never)
