"""Boosted trees as a node of an ONNX graph, with the transforms before them.

The nodes compare in float64 and add up in float64, so that every document reaches the leaves that
the engine gives it. Features are float32: LightGBM compares them with float64 thresholds (x ≤ t),
XGBoost with float32 ones (x < t).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.boosting.engines import Trees
from twinrank.data.transforms import Compose, SignedLog1p, Transform
from twinrank.models.onnx_graph import Graph, transformed
from twinrank.support.errors import InputError

DOMAIN = "ai.onnx.ml"
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_CATEGORICAL, _DEFAULT_LEFT = 1, 2  # bits of LightGBM's decision_type
_ZERO_MISSING, _NAN_MISSING = 1, 2  # its bits 2 and 3
_ADVICE = "Or export them in the engine's own format."


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes of a tree: first the root. A leaf has no children (−1), and its value."""

    left: Integers
    right: Integers
    feature: Integers
    value: Floats
    """The threshold of a split, or the value of a leaf."""
    missing_left: npt.NDArray[np.bool_]
    """True if missing values (NaN) go to the left."""


def add_trees(
    graph: Graph, engine: str, trees: Trees, transform: Transform, features: int, per_query: bool
) -> str:
    """Append the transforms and the trees, and return the name of the scores.

    A document with a value that `predict` refuses gets NaN. If a score depends on the other
    documents of the query, all of them get NaN.
    """
    columns = np.arange(features, dtype=np.int64)
    x, results = "X", list[str]()
    if transform != Compose():
        x, results = transformed(graph, "X", transform, features, columns)
    mode, offset, nodes = _READERS[engine](trees)
    if mode == "BRANCH_LT" and SignedLog1p.__name__ in str(transform):
        raise _unable(
            "XGBoost's thresholds are values of the training data, and logarithms of two libraries "
            "differ in the last bit; train without SignedLog1p, or with engine='lightgbm'"
        )
    attributes = _attributes(graph, mode, offset, list(nodes))
    wide = graph.cast(x, np.float64)
    scores = graph("TreeEnsembleRegressor", wide, domain=DOMAIN, **attributes)
    return graph(
        "Add",
        graph("Squeeze", scores, np.array([1])),
        _refused(graph, x, results, per_query),
    )


def _refused(graph: Graph, x: str, results: list[str], per_query: bool) -> str:
    """NaN for documents with an infinite value, or one that a transform cannot use, else 0.

    Trees take missing values. A result of a transform that is not finite counts if the query has
    an infinite value.
    """
    infinite = _any(graph, graph("IsInf", x), per_query)
    given = _any(graph, graph("IsInf", "X"), per_query) if results else ""
    for result in results:
        zero = graph("Mul", result, np.float32(0))  # NaN if not finite
        unusable = graph("And", _any(graph, graph("IsNaN", zero), per_query), given)
        infinite = graph("Or", infinite, unusable)
    return graph("Where", infinite, np.float32(np.nan), np.float32(0))


def _any(graph: Graph, mask: str, per_query: bool) -> str:
    """True for each document with such a value; with `per_query`, for all if one has it."""
    found = graph("ReduceMax", graph.cast(mask, np.float32), axes=[1], keepdims=0)
    if per_query:
        found = graph("ReduceMax", found, axes=[0], keepdims=1)
    return graph("Greater", found, np.float32(0))


def _attributes(graph: Graph, mode: str, offset: float, trees: list[Tree]) -> dict[str, Any]:
    """The attributes of `TreeEnsembleRegressor`: all nodes of all trees in a row."""
    sizes = [len(tree.left) for tree in trees]
    left, right, feature, value, missing = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("left", "right", "feature", "value", "missing_left")
    )
    tree_numbers = np.repeat(np.arange(len(trees)), sizes)
    node_numbers = np.concatenate([np.arange(size) for size in sizes])
    leaf = left < 0
    zero = np.where(leaf, 0, 1)
    return {
        "n_targets": 1,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "base_values_as_tensor": graph.tensor(np.array([offset])),
        "nodes_treeids": tree_numbers.tolist(),
        "nodes_nodeids": node_numbers.tolist(),
        "nodes_featureids": (feature * zero).tolist(),
        "nodes_modes": np.where(leaf, "LEAF", mode).tolist(),
        "nodes_values_as_tensor": graph.tensor(np.where(leaf, 0.0, value)),
        "nodes_truenodeids": (left * zero).tolist(),
        "nodes_falsenodeids": (right * zero).tolist(),
        "nodes_missing_value_tracks_true": (missing & ~leaf).astype(int).tolist(),
        "target_treeids": tree_numbers[leaf].tolist(),
        "target_nodeids": node_numbers[leaf].tolist(),
        "target_ids": [0] * int(leaf.sum()),
        "target_weights_as_tensor": graph.tensor(value[leaf]),
    }


def _lightgbm(trees: Trees) -> tuple[str, float, Iterator[Tree]]:
    """LightGBM's trees, from its text."""
    text = trees.to_bytes().decode()
    _, *blocks = re.split(r"^Tree=\d+\n", text.partition("end of trees")[0], flags=re.M)
    return "BRANCH_LEQ", 0.0, (_lightgbm_tree(block) for block in blocks)


def _lightgbm_tree(block: str) -> Tree:
    lines = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    if lines.get("is_linear", "0") != "0":
        raise _unable("linear_tree has a linear model in each leaf; train without it")

    def numbers(name: str, dtype: Any) -> Any:
        return np.array(lines.get(name, "").split(), np.float64).astype(dtype)

    leaves = numbers("leaf_value", np.float64)
    if int(lines["num_leaves"]) == 1:
        return _leaf(leaves[0])
    decision, threshold = numbers("decision_type", np.int64), numbers("threshold", np.float64)
    kind = decision >> 2
    if (decision & _CATEGORICAL).any():
        raise _unable("it splits on categories; encode them as numbers instead")
    if (kind == _ZERO_MISSING).any():
        raise _unable("zero_as_missing treats 0 as missing; train without it")
    # Without missing values in training, LightGBM takes a missing value as 0.
    to_left = np.where(kind == _NAN_MISSING, decision & _DEFAULT_LEFT > 0, threshold >= 0)
    # LightGBM numbers splits from 0, and leaf i as the child ~i. Here leaves follow the splits.
    splits = len(threshold)
    children = [numbers(name, np.int64) for name in ("left_child", "right_child")]
    left, right = (np.where(c < 0, splits + ~c, c) for c in children)
    none, no = np.full(len(leaves), -1), np.zeros(len(leaves), bool)
    return Tree(
        np.append(left, none),
        np.append(right, none),
        np.append(numbers("split_feature", np.int64), none),
        np.append(threshold, leaves),
        np.append(to_left, no),
    )


def _leaf(value: float) -> Tree:
    """A tree of a single leaf."""
    none = np.array([-1])
    return Tree(none, none, none, np.array([value]), np.array([False]))


def _xgboost(trees: Trees) -> tuple[str, float, Iterator[Tree]]:
    """XGBoost's trees, from its JSON."""
    learner = json.loads(trees.to_bytes(".json"))["learner"]
    booster = learner["gradient_booster"]
    weights: list[float] | None = booster.get("weight_drop")  # of DART
    if weights is not None:
        booster = booster["gbtree"]
    if "trees" not in booster.get("model", {}):
        raise _unable(f"booster={booster.get('name')!r} has no trees; train with 'gbtree'")
    grown = booster["model"]["trees"]
    base = str(learner["learner_model_param"]["base_score"]).strip("[]")
    factors = weights or [1.0] * len(grown)
    pairs = zip(grown, factors, strict=True)
    return "BRANCH_LT", float(np.float32(base)), (_xgboost_tree(*pair) for pair in pairs)


def _xgboost_tree(tree: dict[str, Any], factor: float) -> Tree:
    if any(tree.get("split_type", ())):
        raise _unable("it splits on categories; encode them as numbers instead")
    left = np.array(tree["left_children"], np.int64)
    value = np.array(tree["split_conditions"], np.float32).astype(np.float64)
    return Tree(
        left,
        np.array(tree["right_children"], np.int64),
        np.array(tree["split_indices"], np.int64),
        np.where(left < 0, value * factor, value),
        np.array(tree["default_left"]).astype(bool),
    )


def _unable(reason: str) -> InputError:
    return InputError(f"These trees cannot be exported to ONNX: {reason}. {_ADVICE}")


_READERS = {"lightgbm": _lightgbm, "xgboost": _xgboost}
