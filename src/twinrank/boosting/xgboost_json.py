"""A strict reader of XGBoost's JSON format: it checks a model before XGBoost parses it.

XGBoost checks most of a file, but trusts the indices of nodes and categories. This reader accepts
what `to_bytes` writes: boosted trees with one output, arrays of the same lengths, indices in range,
finite values, and children that form a tree.
"""

import json
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError

_FLOATS = ("base_weights", "split_conditions", "loss_changes", "sum_hessian")
_INTEGERS = ("left_children", "right_children", "parents", "split_indices")
_FLAGS = ("default_left", "split_type")
_CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
_ROOT = 2**31 - 1  # the parent of the root
_DEEPEST = 4096  # XGBoost's contributions recurse
_MOST_CATEGORIES = 2**24  # XGBoost's own limit


class _DamageError(Exception):
    """Something that XGBoost does not write."""


def check_json(content: bytes, name: str) -> int:
    """Check XGBoost's JSON, and return its number of features."""
    try:
        model = json.loads(content)
        return _check(model)
    except (ValueError, RecursionError, LookupError, TypeError, OverflowError) as error:
        raise InputError(f"{name} is damaged ({error}).") from error
    except _DamageError as error:
        raise InputError(f"{name} is damaged: {error}.") from None


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise _DamageError(message)


def _check(model: Any) -> int:
    _require(isinstance(model, dict) and model.keys() == {"learner", "version"}, "no model")
    learner, shape = model["learner"], model["learner"]["learner_model_param"]
    features = _count(shape["num_feature"])
    _require(0 < features < 2**24, f"it has {features} features")
    _require(_count(shape["num_class"]) <= 1, "it has several classes")
    _require(_count(shape.get("num_target", "1")) == 1, "it has several outputs")
    for names in (learner["feature_names"], learner["feature_types"]):
        texts = isinstance(names, list) and all(isinstance(item, str) for item in names)
        _require(texts and len(names) in (0, features), "feature names or types do not fit")
    types = set(learner["feature_types"])
    _require(types <= {"float", "int", "i", "q", "c"}, "it has a feature type of its own")
    booster = learner["gradient_booster"]
    kind = booster["name"]
    _require(kind in ("gbtree", "dart"), f"its booster is {kind!r:.40}")
    parts = booster["model"] if kind == "gbtree" else booster["gbtree"]["model"]
    known = {"num_parallel_tree", "num_trees"}
    own = parts["gbtree_model_param"]
    _require(known <= own.keys(), "it does not count its trees")
    trees, count = parts["trees"], _count(own["num_trees"])
    parallel = _count(own["num_parallel_tree"])
    rounds = _integers(parts["iteration_indptr"])
    _require(isinstance(trees, list) and len(trees) == count, "its trees are not as many as said")
    if kind == "dart":
        _require(_floats(booster["weight_drop"]).size == count, "its weights are miscounted")
    _require(parts["tree_info"] == [0] * count, "its trees are of several outputs")
    steps = np.diff(rounds)
    fits = rounds.size and rounds[0] == 0 and rounds[-1] == count and (steps > 0).all()
    _require(fits and 1 <= parallel <= max(count, 1), "its rounds do not fit its trees")
    cats = parts.get("cats", {})
    _require(not any(cats.values()), "it encodes categories itself")
    _require([tree["id"] for tree in trees] == list(range(count)), "its trees are misnumbered")
    _check_trees(trees, features)
    return features


def _count(text: Any) -> int:
    """A number, which XGBoost writes as text."""
    _require(
        isinstance(text, str) and text.isascii() and text.isdigit(), f"{text!r:.40} for a count"
    )
    _require(len(text) <= 9, f"{text:.40} for a count")
    return int(text)


def _integers(values: Any) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    _require(array.ndim == 1 and array.dtype.kind == "i", "a list is not of whole numbers")
    return array.astype(np.int64, copy=False)


def _floats(values: Any) -> npt.NDArray[np.float64]:
    array = np.asarray(values)
    _require(array.ndim == 1 and array.dtype.kind in "if", "a list is not of numbers")
    _require((np.abs(array) < 3.5e38).all(), "a value is not finite")
    return array.astype(np.float64, copy=False)


def _check_trees(trees: list[dict[str, Any]], features: int) -> None:
    """Check the nodes of all trees at once, which is faster than tree by tree."""
    if not trees:
        return
    about = [tree["tree_param"] for tree in trees]
    nodes = np.array([_count(own["num_nodes"]) for own in about])
    _require((nodes >= 1).all(), "a tree has no nodes")
    _require({_count(own["num_deleted"]) for own in about} == {0}, "a tree has deleted nodes")
    _require({_count(own["num_feature"]) for own in about} == {features}, "a tree is miscounted")
    _require({_count(own["size_leaf_vector"]) for own in about} <= {0, 1}, "leaves are vectors")

    def together(name: str) -> list[Any]:
        lists = [tree[name] for tree in trees]
        _require([len(own) for own in lists] == nodes.tolist(), f"{name} has a wrong length")
        return list(chain.from_iterable(lists))

    left, right, parents, split = (_integers(together(name)) for name in _INTEGERS)
    flags = {name: _integers(together(name)) for name in _FLAGS}
    for name in _FLOATS:
        _floats(together(name))
    _require(all(((own >= 0) & (own <= 1)).all() for own in flags.values()), "a flag is not 0 or 1")
    starts = np.cumsum(nodes) - nodes
    first, size = np.repeat(starts, nodes), np.repeat(nodes, nodes)
    inner = left != -1
    _require((inner == (right != -1)).all(), "a node has one child")
    owner = np.concatenate([np.flatnonzero(inner)] * 2)
    local = np.concatenate([left[inner], right[inner]])
    within = (local > owner - first[owner]) & (local < size[owner])  # children follow their parent
    _require(within.all(), "a child is out of range")
    children = local + first[owner]
    others = np.delete(np.arange(left.size), starts)
    _require(np.array_equal(np.sort(children), others), "the nodes form no tree")
    _require((parents[children] == owner - first[owner]).all(), "a parent is wrong")
    _require((parents[starts] == _ROOT).all(), "a root has a parent")
    _require(((split >= 0) & (split < features)).all(), "a feature is unknown")
    by_category = flags["split_type"] == 1
    _require(inner[by_category].all(), "a leaf splits by category")
    for number, (tree, start) in enumerate(zip(trees, starts.tolist(), strict=True)):
        own = slice(start, start + int(nodes[number]))
        _check_categories(tree, np.flatnonzero(by_category[own]))
        if nodes[number] > 2 * _DEEPEST:
            _check_depth(left[own], right[own])


def _check_categories(tree: dict[str, Any], chosen: npt.NDArray[np.int64]) -> None:
    """Check the categories of the nodes that split by them."""
    if not chosen.size:
        _require(not any(tree[name] for name in _CATEGORIES), "categories belong to no node")
        return
    values, owners, starts, sizes = (_integers(tree[name]) for name in _CATEGORIES)
    _require(np.array_equal(owners, chosen), "categories belong to other nodes")
    _require(starts.size == sizes.size == owners.size, "categories are miscounted")
    tight = np.array_equal(starts, np.cumsum(sizes) - sizes) and (sizes > 0).all()
    _require(tight and sizes.sum() == values.size, "categories are miscounted")
    _require(((values >= 0) & (values < _MOST_CATEGORIES)).all(), "a category is out of range")


def _check_depth(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> None:
    depth = np.zeros(left.size, np.int64)
    for node in np.flatnonzero(left != -1).tolist():
        depth[[left[node], right[node]]] = depth[node] + 1
    _require(depth.max() <= _DEEPEST, f"a tree is deeper than {_DEEPEST}")
