"""One description of boosted trees for all export formats, read from the engines' own files.

Features are float32, so each split has one canonical form, x ≤ t, where t is the largest float32
value that goes to the left. LightGBM compares x ≤ t in float64, XGBoost x < t in float32; both
become this form, and no document changes its leaf.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.boosting.engines import Trees

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_CATEGORICAL, _DEFAULT_LEFT = 1, 2  # bits of LightGBM's decision_type
_ZERO_MISSING, _NAN_MISSING = 1, 2  # its bits 2 and 3
_ZERO = float(np.float32(1e-35))  # LightGBM takes values up to this size as 0
HALF = 0.5
"""The threshold of a split on a membership column, which is 0 or 1."""


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes of a tree: first the root. A leaf has no children (−1), and its value."""

    left: Integers
    right: Integers
    feature: Integers
    value: Floats
    """The threshold of a split (x ≤ value goes to the left), or the value of a leaf."""
    missing_left: Booleans
    """True if missing values (NaN) go to the left."""
    categories: dict[int, tuple[frozenset[int], bool]] = field(default_factory=dict)
    """The splits on categories: codes, and True if these go to the left, False for the others."""

    @property
    def is_leaf(self) -> Booleans:
        """True for each leaf."""
        return self.left < 0

    def scaled(self, factor: float) -> "Tree":
        """The tree with the values of its leaves multiplied."""
        if factor == 1:
            return self
        return replace(self, value=np.where(self.is_leaf, self.value * factor, self.value))

    def swapped(self, nodes: Booleans) -> "Tree":
        """The tree with the children of some nodes exchanged, and the way of missing values."""
        return replace(
            self,
            left=np.where(nodes, self.right, self.left),
            right=np.where(nodes, self.left, self.right),
            missing_left=self.missing_left != nodes,
        )


def single_leaf(value: float) -> Tree:
    """A tree of a single leaf."""
    none = np.array([-1])
    return Tree(none, none, none, np.array([value], np.float64), np.array([False]))


def trees_of(engine: str, trees: "Trees") -> tuple[float, list[Tree]]:
    """The constant that is added to every score, and the trees of an engine's model."""
    offset, grown = _READERS[engine](trees)
    return offset, list(grown)


def with_memberships(
    trees: list[Tree], inputs: int, counts: Mapping[int, int]
) -> tuple[list[tuple[int, Booleans]], list[Tree]]:
    """Replace each split on categories by a split on a column that is 0 or 1.

    Returns the columns, sorted by their feature, and the trees. Column i has number `inputs` + i.
    It is given by its feature, and for each code (the known values, unknown, missing) True if it is
    1. It is never 1 for unknown values, so that a list of values describes it.
    """
    keys = {
        (int(tree.feature[node]), *split)
        for tree in trees
        for node, split in tree.categories.items()
    }
    tables: dict[tuple[int, bytes], tuple[int, Booleans]] = {}
    meaning = {}
    for column, codes, to_left in sorted(keys, key=lambda key: (key[0], sorted(key[1]), key[2])):
        goes_left = np.isin(np.arange(counts[column]), list(codes)) == to_left
        swap = not goes_left[-2]  # the code of unknown values
        member = goes_left if swap else ~goes_left
        tables[column, member.tobytes()] = column, member
        meaning[column, codes, to_left] = (column, member.tobytes()), swap
    place = {key: inputs + number for number, key in enumerate(tables)}
    changed = []
    for tree in trees:
        feature, value = tree.feature.copy(), tree.value.copy()
        swapped = np.zeros(len(value), bool)
        for node, split in tree.categories.items():
            key, swapped[node] = meaning[int(tree.feature[node]), *split]
            feature[node], value[node] = place[key], HALF
        moved = replace(tree, feature=feature, value=value, categories={}).swapped(swapped)
        # A document that an engine does not match is missing, and goes to the left as 0 does.
        by_category = np.isin(np.arange(len(value)), list(tree.categories))
        changed.append(replace(moved, missing_left=moved.missing_left | by_category))
    return list(tables.values()), changed


def largest_float32(thresholds: Floats) -> Floats:
    """The largest float32 that is at most each number."""
    with np.errstate(over="ignore"):
        rounded = thresholds.astype(np.float32)
    lower = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > thresholds, lower, rounded).astype(np.float64)


def next_float32(values: Floats) -> Floats:
    """The next larger float32; 0 is not negative."""
    with np.errstate(over="ignore"):
        following = np.nextafter(values.astype(np.float32), np.float32(np.inf))
    return following.astype(np.float64) + 0.0


def _lightgbm(trees: "Trees") -> tuple[float, Iterator[Tree]]:
    """LightGBM's trees, from its text."""
    text = trees.to_bytes().decode()
    _, *blocks = re.split(r"^Tree=\d+\n", text.partition("end of trees")[0], flags=re.M)
    return 0.0, (_lightgbm_tree(block) for block in blocks)


def _lightgbm_tree(block: str) -> Tree:
    lines = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    if lines.get("is_linear", "0") != "0":
        raise unable("linear_tree has a linear model in each leaf; train without it")

    def numbers(name: str, dtype: Any) -> Any:
        return np.array(lines.get(name, "").split(), np.float64).astype(dtype)

    leaves = numbers("leaf_value", np.float64)
    if int(lines["num_leaves"]) == 1:
        return single_leaf(leaves[0])
    decision, threshold = numbers("decision_type", np.int64), numbers("threshold", np.float64)
    kind = decision >> 2
    by_category = decision & _CATEGORICAL > 0
    default_left = decision & _DEFAULT_LEFT > 0
    # zero_as_missing is a plain split where 0 takes the way of missing values anyway.
    agrees = (default_left == (threshold >= 0)) & (np.abs(threshold) >= _ZERO)
    if ((kind == _ZERO_MISSING) & ~by_category & ~agrees).any():
        raise unable("zero_as_missing treats 0 as missing; train without it")
    # Without missing values in training, LightGBM takes a missing value as 0.
    to_left = np.where(kind == _NAN_MISSING, default_left, threshold >= 0)
    # LightGBM numbers splits from 0, and leaf i as the child ~i. Here leaves follow the splits.
    splits = len(threshold)
    children = [numbers(name, np.int64) for name in ("left_child", "right_child")]
    left, right = (np.where(c < 0, splits + ~c, c) for c in children)
    none, no = np.full(len(leaves), -1), np.zeros(len(leaves), bool)
    return Tree(
        np.append(left, none),
        np.append(right, none),
        np.append(numbers("split_feature", np.int64), none),
        np.append(_beside_zero(largest_float32(threshold)), leaves),
        np.append(to_left, no),
        _lightgbm_categories(by_category, threshold, numbers),
    )


def _beside_zero(thresholds: Floats) -> Floats:
    """LightGBM's thresholds between values that it takes as 0, moved to the last of these."""
    negative = (thresholds >= -_ZERO) & (thresholds < 0)
    positive = (thresholds >= 0) & (thresholds < _ZERO)
    below = float(np.nextafter(np.float32(-_ZERO), np.float32(-np.inf)))
    return np.where(negative, below, np.where(positive, _ZERO, thresholds))


def _lightgbm_categories(
    by_category: Booleans, threshold: Floats, numbers: Callable[[str, Any], Any]
) -> dict[int, tuple[frozenset[int], bool]]:
    """The categories that go to the left, from words of 32 bits; the threshold counts them."""
    words = numbers("cat_threshold", np.uint32)
    bounds = numbers("cat_boundaries", np.int64)
    splits = {}
    for node in np.flatnonzero(by_category).tolist():
        number = int(threshold[node])
        own = words[bounds[number] : bounds[number + 1]]
        bits = np.unpackbits(own.astype("<u4").view(np.uint8), bitorder="little")
        splits[node] = frozenset(np.flatnonzero(bits).tolist()), True
    return splits


def _xgboost(trees: "Trees") -> tuple[float, Iterator[Tree]]:
    """XGBoost's trees, from its JSON."""
    learner = json.loads(trees.to_bytes(".json"))["learner"]
    booster = learner["gradient_booster"]
    weights: list[float] | None = booster.get("weight_drop")  # of DART
    if weights is not None:
        booster = booster["gbtree"]
    if "trees" not in booster.get("model", {}):
        raise unable(f"booster={booster.get('name')!r} has no trees; train with 'gbtree'")
    grown = booster["model"]["trees"]
    base = str(learner["learner_model_param"]["base_score"]).strip("[]")
    factors = weights or [1.0] * len(grown)
    pairs = zip(grown, factors, strict=True)
    return float(np.float32(base)), (_xgboost_tree(tree).scaled(factor) for tree, factor in pairs)


def _xgboost_tree(tree: dict[str, Any]) -> Tree:
    values, owners, starts, sizes = (
        tree.get(f"categories{part}", []) for part in ("", "_nodes", "_segments", "_sizes")
    )
    left = np.array(tree["left_children"], np.int64)
    value = np.array(tree["split_conditions"], np.float32)
    below = np.nextafter(value, np.float32(-np.inf))  # x < t is x ≤ the float32 before t
    return Tree(
        left,
        np.array(tree["right_children"], np.int64),
        np.array(tree["split_indices"], np.int64),
        np.where(left < 0, value, below).astype(np.float64),
        np.array(tree["default_left"]).astype(bool),
        {
            node: (frozenset(values[start : start + size]), False)
            for node, start, size in zip(owners, starts, sizes, strict=True)
        },
    )


def unable(reason: str) -> InputError:
    """The error for trees that no other format than the engine's own can hold."""
    return InputError(
        f"These trees cannot be exported: {reason}. Or export them in the engine's own format."
    )


_READERS = {"lightgbm": _lightgbm, "xgboost": _xgboost}
