"""Boosted trees as a node of an ONNX graph, with the transforms before them.

The nodes compare in float64 and add up in float64, so that every document reaches the leaves that
the engine gives it. Features are float32: LightGBM compares them with float64 thresholds (x ≤ t),
XGBoost with float32 ones (x < t). A split on categories becomes a column of its own, 0 for the
categories that go to the left and 1 for the others: a row of a table, found by the code.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.transforms import Compose, SignedLog1p
from twinrank.deployment.onnx_graph import Graph, encoded, transformed
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.boosting.engines import Trees
    from twinrank.learning.boosting.tree_model import TreeModel

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
    categories: dict[int, tuple[frozenset[int], bool]] = field(default_factory=dict)
    """The splits on categories: codes, and True if these go to the left, False for the others."""


def add_trees(graph: Graph, model: "TreeModel") -> str:
    """Append the transforms and the trees, and return the name of the scores.

    A document with a value that `predict` refuses gets NaN. If a score depends on the other
    documents of the query, all of them get NaN.
    """
    transform, categorical = model.transform, model.categorical
    if categorical and not model.encoding.columns:
        raise _unable("the model was saved without the codes of its categories; train it again")
    columns = np.delete(np.arange(model.features), categorical)
    given = x = graph("Gather", "X", columns, axis=1) if categorical and columns.size else "X"
    results = list[str]()
    if transform != Compose() and columns.size:
        x, results = transformed(graph, x, transform, model.features, columns)
    mode, offset, grown = _READERS[model.engine](model.trees)
    if mode == "BRANCH_LT" and SignedLog1p.__name__ in str(transform):
        raise _unable(
            "XGBoost's thresholds are values of the training data, and logarithms of two libraries "
            "differ in the last bit; train without SignedLog1p, or with engine='lightgbm'"
        )
    for column in model.encoding.texts:  # an input also if no tree uses it
        graph.text_input(column, model.feature_names)
    tables, nodes = _tabulated(list(grown), model)
    codes = [graph.cast(encoded(graph, model, column), np.int64) for column in tables]
    found = zip(tables.values(), codes, strict=True)
    parts = [x] if columns.size or not tables else []
    parts += [graph("Gather", table, code, axis=0) for table, code in found]
    attributes = _attributes(graph, mode, offset, nodes)
    wide = graph.cast(graph("Concat", *parts, axis=1) if len(parts) > 1 else parts[0], np.float64)
    scores = graph("TreeEnsembleRegressor", wide, domain=DOMAIN, **attributes)
    scores = graph("Squeeze", scores, np.array([1]))
    if not columns.size:
        return scores
    return graph("Add", scores, _refused(graph, given, x, results, model.per_query))


def _tabulated(
    trees: list[Tree], model: "TreeModel"
) -> tuple[dict[int, npt.NDArray[np.float32]], list[Tree]]:
    """Tables of the splits on each categorical column, and trees that split on their columns.

    A table has a row for each code. The columns of all tables follow the numeric columns.
    """
    if not model.categorical:
        return {}, trees
    inputs = model.transform.outputs(model.features)
    place = np.full(inputs, -1)
    numeric = np.delete(np.arange(inputs), model.categorical)
    place[numeric] = np.arange(numeric.size)
    splits = [
        (int(tree.feature[node]), *split)
        for tree in trees
        for node, split in tree.categories.items()
    ]
    tables, found = {}, dict[Any, int]()
    for column in sorted({column for column, _, _ in splits}):
        own = [split for split in dict.fromkeys(splits) if split[0] == column]
        codes = np.arange(model.encoding.counts[column])
        tables[column] = np.stack(
            [np.isin(codes, list(chosen)) != to_left for _, chosen, to_left in own], axis=1
        ).astype(np.float32)
        found |= {split: numeric.size + len(found) + i for i, split in enumerate(own)}
    moved = []
    for tree in trees:
        feature, value = place[tree.feature], tree.value.copy()
        for node, split in tree.categories.items():
            feature[node] = found[int(tree.feature[node]), *split]
            value[node] = 0.5
        moved.append(replace(tree, feature=feature, value=value))
    return tables, moved


def _refused(graph: Graph, given: str, x: str, results: list[str], per_query: bool) -> str:
    """NaN for documents with an infinite value, or one that a transform cannot use, else 0.

    Trees take missing values. A result of a transform that is not finite counts if the query has
    an infinite value.
    """
    infinite = _any(graph, graph("IsInf", x), per_query)
    was = _any(graph, graph("IsInf", given), per_query) if results else ""
    for result in results:
        zero = graph("Mul", result, np.float32(0))  # NaN if not finite
        unusable = graph("And", _any(graph, graph("IsNaN", zero), per_query), was)
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


def _lightgbm(trees: "Trees") -> tuple[str, float, Iterator[Tree]]:
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
    by_category = decision & _CATEGORICAL > 0
    if (kind[~by_category] == _ZERO_MISSING).any():
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
        _lightgbm_categories(by_category, threshold, numbers),
    )


def _lightgbm_categories(
    by_category: npt.NDArray[np.bool_], threshold: Floats, numbers: Callable[[str, Any], Any]
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


def _leaf(value: float) -> Tree:
    """A tree of a single leaf."""
    none = np.array([-1])
    return Tree(none, none, none, np.array([value]), np.array([False]))


def _xgboost(trees: "Trees") -> tuple[str, float, Iterator[Tree]]:
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
    values, owners, starts, sizes = (
        tree.get(f"categories{part}", []) for part in ("", "_nodes", "_segments", "_sizes")
    )
    left = np.array(tree["left_children"], np.int64)
    value = np.array(tree["split_conditions"], np.float32).astype(np.float64)
    return Tree(
        left,
        np.array(tree["right_children"], np.int64),
        np.array(tree["split_indices"], np.int64),
        np.where(left < 0, value * factor, value),
        np.array(tree["default_left"]).astype(bool),
        {
            node: (frozenset(values[start : start + size]), False)
            for node, start, size in zip(owners, starts, sizes, strict=True)
        },
    )


def _unable(reason: str) -> InputError:
    return InputError(f"These trees cannot be exported to ONNX: {reason}. {_ADVICE}")


_READERS = {"lightgbm": _lightgbm, "xgboost": _xgboost}
