"""A reference evaluator for the trees in a written file, by the rules of the engine that reads it.

The engines differ in how they compare, in which precision they compare and add up, and in what they
do with missing values. One walk over all documents serves all of these rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.deployment.tree_list import Tree

Part = float | tuple[int, float, bool, Any, Any]
"""The value of a leaf; or the feature of a split, its threshold, whether missing values go to the
left, and its children."""


@dataclass(frozen=True)
class Rule:
    """How an engine evaluates trees."""

    strict: bool
    """True if a document goes to the left for x < t, False for x ≤ t."""
    number: type[np.floating[Any]] = np.float32
    """The precision of features and thresholds."""
    total: type[np.floating[Any]] = np.float32
    """The precision of the sum, tree by tree."""
    missing_is_zero: bool = False
    """True if the engine takes missing values as 0."""


def scores_of(trees: Sequence[Tree], X: npt.NDArray[np.float32], rule: Rule) -> npt.NDArray[Any]:
    """The score of every document, by an engine's rule; thresholds are those of the file."""
    if rule.missing_is_zero:
        X = np.where(np.isnan(X), np.float32(0), X)
    numbers = X.astype(rule.number)
    total = np.zeros(len(X), rule.total)
    for tree in trees:
        total += tree.value[_leaves(tree, numbers, rule)].astype(rule.total)
    return total


def _leaves(tree: Tree, X: npt.NDArray[Any], rule: Rule) -> npt.NDArray[np.int64]:
    """The leaf of every document."""
    rows, node = np.arange(len(X)), np.zeros(len(X), np.int64)
    with np.errstate(over="ignore"):
        thresholds = tree.value.astype(rule.number)
    while True:
        active = ~tree.is_leaf[node]
        if not active.any():
            return node
        own = node[active]
        x, threshold = X[rows[active], tree.feature[own]], thresholds[own]
        left = x < threshold if rule.strict else x <= threshold
        left = np.where(np.isnan(x), tree.missing_left[own], left)
        node[active] = np.where(left, tree.left[own], tree.right[own])


def nested(
    tree: Tree,
    leaf: Callable[[int], Any],
    split: Callable[[int, Any, Any], Any],
    node: int = 0,
) -> Any:
    """A tree as nested objects: `leaf(node)` and `split(node, left, right)` make them."""
    if tree.left[node] < 0:
        return leaf(node)
    left = nested(tree, leaf, split, int(tree.left[node]))
    return split(node, left, nested(tree, leaf, split, int(tree.right[node])))


def flattened(root: Any, part: Callable[[Any], Part]) -> Tree:
    """The tree of nested objects; `part` reads one of them."""
    objects: list[Any] = [root]
    rows: list[tuple[Any, ...]] = []
    for own in objects:  # which grows meanwhile
        read = part(own)
        if isinstance(read, tuple):
            *split, first, second = read
            rows.append((len(objects), len(objects) + 1, *split))
            objects += [first, second]
        else:
            rows.append((-1, -1, -1, read, False))
    left, right, feature, value, missing = (np.array(own) for own in zip(*rows, strict=True))
    return Tree(left, right, feature, value.astype(np.float64), missing.astype(bool))
