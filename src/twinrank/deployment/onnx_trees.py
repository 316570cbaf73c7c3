"""Boosted trees as a node of an ONNX graph, with the transforms before them.

The nodes compare in float64 and add up in float64, so that every document reaches the leaves that
the engine gives it. A split on categories becomes a column of its own, 0 or 1: a row of a table,
found by the code.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.transforms import Compose, SignedLog1p
from twinrank.deployment.onnx_graph import Graph, encoded, transformed
from twinrank.deployment.tree_list import Booleans, Tree, trees_of, unable, with_memberships

if TYPE_CHECKING:
    from twinrank.learning.boosting.tree_model import TreeModel

DOMAIN = "ai.onnx.ml"


def add_trees(graph: Graph, model: "TreeModel") -> str:
    """Append the transforms and the trees, and return the name of the scores.

    A document with a value that `predict` refuses gets NaN. If a score depends on the other
    documents of the query, all of them get NaN.
    """
    transform, categorical = model.transform, model.categorical
    if categorical and not model.encoding.columns:
        raise unable("the model was saved without the codes of its categories; train it again")
    columns = np.delete(np.arange(model.features), categorical)
    given = x = graph("Gather", "X", columns, axis=1) if categorical and columns.size else "X"
    results = list[str]()
    if transform != Compose() and columns.size:
        x, results = transformed(graph, x, transform, model.features, columns)
    if model.engine == "xgboost" and SignedLog1p.__name__ in str(transform):
        raise unable(
            "XGBoost's thresholds are values of the training data, and logarithms of two libraries "
            "differ in the last bit; train without SignedLog1p, or with engine='lightgbm'"
        )
    for column in model.encoding.texts:  # an input also if no tree uses it
        graph.text_input(column, model.feature_names)
    offset, grown = trees_of(model.engine, model.trees)
    inputs = transform.outputs(model.features)
    memberships, grown = with_memberships(grown, inputs, model.encoding.counts)
    numeric = np.delete(np.arange(inputs), categorical)
    place = np.zeros(inputs + len(memberships), np.int64)
    place[numeric] = np.arange(numeric.size)
    place[inputs:] = numeric.size + np.arange(len(memberships))
    nodes = [replace(tree, feature=place[tree.feature]) for tree in grown]
    tables = _tables(memberships)
    codes = [graph.cast(encoded(graph, model, column), np.int64) for column in tables]
    found = zip(tables.values(), codes, strict=True)
    parts = [x] if columns.size or not tables else []
    parts += [graph("Gather", table, code, axis=0) for table, code in found]
    attributes = _attributes(graph, offset, nodes)
    wide = graph.cast(graph("Concat", *parts, axis=1) if len(parts) > 1 else parts[0], np.float64)
    scores = graph("TreeEnsembleRegressor", wide, domain=DOMAIN, **attributes)
    scores = graph("Squeeze", scores, np.array([1]))
    if not columns.size:
        return scores
    return graph("Add", scores, _refused(graph, given, x, results, model.per_query))


def _tables(memberships: list[tuple[int, Booleans]]) -> dict[int, npt.NDArray[np.float32]]:
    """A table for each categorical column: a row for each code, a column for each membership."""
    columns = sorted({column for column, _ in memberships})
    return {
        column: np.stack([m for own, m in memberships if own == column], axis=1).astype(np.float32)
        for column in columns
    }


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


def _attributes(graph: Graph, offset: float, trees: list[Tree]) -> dict[str, Any]:
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
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values_as_tensor": graph.tensor(np.where(leaf, 0.0, value)),
        "nodes_truenodeids": (left * zero).tolist(),
        "nodes_falsenodeids": (right * zero).tolist(),
        "nodes_missing_value_tracks_true": (missing & ~leaf).astype(int).tolist(),
        "target_treeids": tree_numbers[leaf].tolist(),
        "target_nodeids": node_numbers[leaf].tolist(),
        "target_ids": [0] * int(leaf.sum()),
        "target_weights_as_tensor": graph.tensor(value[leaf]),
    }
