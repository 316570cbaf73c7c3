"""A strict reader of XGBoost's JSON format: it checks a model before XGBoost parses it.

XGBoost checks most of a file, but trusts the indices of nodes and categories. This reader accepts
what `to_bytes` writes: boosted trees with one output, arrays of the same lengths, indices in range,
finite values, and children that form a tree.
"""

import json
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
        raise InputError(f"{name} is damaged: {error}") from error
    except _DamageError as error:
        raise InputError(f"{name} is damaged: {error}") from None


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
    for number, tree in enumerate(trees):
        try:
            _require(tree["id"] == number and type(tree["id"]) is int, "its number is wrong")
            _check_tree(tree, features)
        except _DamageError as error:
            raise _DamageError(f"tree {number}: {error}") from None
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
    return array.astype(np.int64)


def _floats(values: Any) -> npt.NDArray[np.float64]:
    array = np.asarray(values)
    _require(array.ndim == 1 and array.dtype.kind in "if", "a list is not of numbers")
    _require((np.abs(array) < 3.5e38).all(), "a value is not finite")
    return array.astype(np.float64)


def _check_tree(tree: dict[str, Any], features: int) -> None:
    about = tree["tree_param"]
    nodes = _count(about["num_nodes"])
    _require(nodes >= 1 and _count(about["num_deleted"]) == 0, "its nodes are miscounted")
    _require(_count(about["num_feature"]) == features, "it has other features")
    _require(_count(about["size_leaf_vector"]) <= 1, "its leaves are vectors")
    arrays = {name: _integers(tree[name]) for name in _INTEGERS}
    flags = {name: _integers(tree[name]) for name in _FLAGS}
    floats = [_floats(tree[name]) for name in _FLOATS]
    lengths = {array.size for array in (*arrays.values(), *flags.values(), *floats)}
    _require(lengths == {nodes}, "its lists have different lengths")
    _require(all(((own >= 0) & (own <= 1)).all() for own in flags.values()), "a flag is not 0 or 1")
    left, right = arrays["left_children"], arrays["right_children"]
    inner = left != -1
    _require((inner == (right != -1)).all(), "a node has one child")
    children = np.concatenate([left[inner], right[inner]])
    _require(np.array_equal(np.sort(children), np.arange(1, nodes)), "its nodes form no tree")
    owner = np.concatenate([np.flatnonzero(inner)] * 2)
    _require((arrays["parents"][children] == owner).all(), "a parent is wrong")
    _require(arrays["parents"][0] == _ROOT and (children > owner).all(), "its nodes form no tree")
    split = arrays["split_indices"][inner]
    _require(((split >= 0) & (split < features)).all(), "a split is on an unknown feature")
    depth = np.zeros(nodes, np.int64)
    for node in np.flatnonzero(inner).tolist() if nodes > 2 * _DEEPEST else ():
        depth[[left[node], right[node]]] = depth[node] + 1
    _require(depth.max() <= _DEEPEST, f"it is deeper than {_DEEPEST}")
    values, owners, starts, sizes = (_integers(tree[name]) for name in _CATEGORIES)
    chosen = np.flatnonzero(inner & (flags["split_type"] == 1))
    _require(np.array_equal(owners, chosen), "its categories belong to other nodes")
    _require(starts.size == sizes.size == owners.size, "its categories are miscounted")
    tight = np.array_equal(starts, np.cumsum(sizes) - sizes) and (sizes > 0).all()
    _require(tight and sizes.sum() == values.size, "its categories are miscounted")
    _require(((values >= 0) & (values < _MOST_CATEGORIES)).all(), "a category is out of range")
