"""A check of the trees in a file before an engine reads it.

Engines trust the sizes and indices in their files: wrong ones read memory that they do not own.
The check is tolerant about everything else, so that it accepts what later versions write: lines and
fields that it does not know, infinite thresholds, and nodes that were pruned.
"""

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError

Ints = npt.NDArray[np.int64]
# Python also reads .5, 1_0 and the digits of other scripts, which LightGBM does not.
_NO_NUMBER = re.compile(r"[^-+.0-9a-z ]|(?<![0-9])[.]", re.IGNORECASE)
_WORDS = ("tree", "average_output")  # lines of LightGBM's header without a value
_NO_PARENT = 2**31 - 1  # XGBoost's mark of the root
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class _DamageError(Exception):
    """The trees are not valid; the text says why."""


def _require(condition: Any, problem: str) -> None:
    if not condition:
        raise _DamageError(problem)


def check_lightgbm(header: str, trees: list[str], name: str) -> int:
    """Check LightGBM's text, and return its number of features."""
    number = 0
    try:
        features = _lightgbm_features(_lines(header))
        for number, tree in enumerate(trees):  # noqa: B007
            _check_lightgbm_tree(_lines(tree), features)
    except (*_UNREADABLE, _DamageError) as error:
        where = f"tree {number}" if trees else "its header"
        raise InputError(f"{name} is damaged: {where} is not valid ({error}).") from error
    return features


def check_xgboost(content: bytes, name: str) -> int:
    """Check XGBoost's JSON, and return its number of features."""
    number = 0
    try:
        learner = json.loads(content)["learner"]
        features = _xgboost_features(learner)
        for number, tree in enumerate(_xgboost_trees(learner["gradient_booster"])):
            _require(tree["id"] == number, f"its id is {tree['id']!r:.40}")
            _check_xgboost_tree(tree, features)
    except (*_UNREADABLE, _DamageError) as error:
        raise InputError(f"{name} is damaged: tree {number} is not valid ({error}).") from error
    return features


def _check_tree(children: Ints, nodes: int) -> None:
    """Each node but the root, node 0, has at most one parent, so that there is no cycle."""
    within = ((children > 0) & (children < nodes)).all()
    _require(within and np.unique(children).size == children.size, "its nodes form no tree")


def _check_below(values: Ints, bound: int, what: str) -> None:
    _require(((values >= 0) & (values < bound)).all(), f"{what} is out of range")


def _finite(values: Any) -> bool:
    return bool(np.isfinite(values).all())


# LightGBM


def _lines(text: str) -> dict[str, str]:
    """The lines `key=value` up to the first empty one, where LightGBM stops."""
    _require("\nparameters:" not in text, "parameters come before the end of the trees")
    lines = text.partition("\n\n")[0].removesuffix("\n").split("\n")
    pairs = [line.split("=", 1) for line in lines if line not in _WORDS]
    _require(all(len(pair) == 2 for pair in pairs), "a line has no =")
    _require(len({key for key, _ in pairs}) == len(pairs), "a line is there twice")
    return dict(pairs)


def _numbers(lines: dict[str, str], key: str, size: int, kind: Any = np.int64) -> Any:
    words = lines[key]
    _require(kind is np.str_ or not _NO_NUMBER.search(words), f"{key} is not a list of numbers")
    values = np.array(words.split(), kind)
    _require(values.size == size, f"{key} has {values.size} values instead of {size}")
    return values


def _lightgbm_features(lines: dict[str, str]) -> int:
    _require(lines["num_class"] == lines["num_tree_per_iteration"] == "1", "several classes")
    features = int(lines["max_feature_idx"]) + 1
    _require(0 < features < 2**24, f"{features} features")
    for key in ("feature_names", "feature_infos"):
        _numbers(lines, key, features, np.str_)
    if "monotone_constraints" in lines:
        _numbers(lines, "monotone_constraints", features)
    return features


def _check_lightgbm_tree(lines: dict[str, str], features: int) -> None:
    leaves, categories = (_numbers(lines, key, 1)[0] for key in ("num_leaves", "num_cat"))
    for key in ("shrinkage", "is_linear"):
        if key in lines:
            _require(_finite(_numbers(lines, key, 1, np.float64)), f"{key} is not finite")
    _require(leaves >= 1, "it has no leaf")
    _require(_finite(_numbers(lines, "leaf_value", leaves, np.float64)), "a leaf is not finite")
    for key in ("leaf_weight", "leaf_count"):
        if lines.get(key):  # a tree of one leaf has none
            _numbers(lines, key, leaves, np.float64)
    inner = leaves - 1
    for key in ("split_gain", "internal_value", "internal_weight", "internal_count"):
        if key in lines:
            _numbers(lines, key, inner, np.float64)
    _check_below(_numbers(lines, "split_feature", inner), features, "a feature")
    thresholds = _numbers(lines, "threshold", inner, np.float64)
    _require(not np.isnan(thresholds).any(), "a threshold is not a number")
    decisions = _numbers(lines, "decision_type", inner)
    _check_below(decisions, 12, "a decision")
    children = np.append(
        _numbers(lines, "left_child", inner), _numbers(lines, "right_child", inner)
    )
    _check_tree(np.where(children < 0, inner + ~children, children), inner + leaves)
    if categories:
        bounds = _numbers(lines, "cat_boundaries", categories + 1)
        _require(bounds[0] == 0 and (np.diff(bounds) > 0).all(), "its categories are miscounted")
        _check_below(_numbers(lines, "cat_threshold", int(bounds[-1])), 2**32, "a category")
    chosen = thresholds[decisions % 2 == 1]
    _check_below(chosen, categories, "a set of categories")
    if lines.get("is_linear", "0") != "0":
        sizes = _numbers(lines, "num_features", leaves)
        _check_below(sizes, features + 1, "a number of features")
        total = int(sizes.sum())
        _check_below(_numbers(lines, "leaf_features", total), features, "a feature")
        values = [*_numbers(lines, "leaf_const", leaves, np.float64)]
        values += [*_numbers(lines, "leaf_coeff", total, np.float64)]
        _require(_finite(values), "a leaf is not finite")


# XGBoost


def _xgboost_features(learner: dict[str, Any]) -> int:
    shape = learner["learner_model_param"]
    features = int(shape["num_feature"])
    _require(0 < features < 2**24, f"{features} features")
    _require(
        int(shape["num_class"]) in (0, 1) and int(shape.get("num_target", 1)) == 1,
        "several classes",
    )
    for key in ("feature_names", "feature_types"):
        names = learner.get(key, [])
        _require(len(names) in (0, features), f"{key} has {len(names)} values")
        _require(all(isinstance(own, str) for own in names), f"{key} is not a list of texts")
    return features


def _xgboost_trees(booster: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trees, whose number must be that of their rounds."""
    _require(booster["name"] in ("gbtree", "dart"), f"its booster is {booster['name']!r:.40}")
    model = booster["model"] if booster["name"] == "gbtree" else booster["gbtree"]["model"]
    trees, about = model["trees"], model["gbtree_model_param"]
    count = len(trees)
    rounds = _array(model["iteration_indptr"], np.int64)
    _require(int(about["num_trees"]) == count, "the tree count does not match num_trees")
    _require(1 <= int(about["num_parallel_tree"]) <= max(count, 1), "a round has too many trees")
    _require(
        rounds[0] == 0 and rounds[-1] == count and (np.diff(rounds) > 0).all(),
        "the tree count does not match iteration_indptr",
    )
    _require(model["tree_info"] == [0] * count, "several outputs")
    if booster["name"] == "dart":
        weights = _array(booster["weight_drop"], np.float64)
        _require(weights.size == count and _finite(weights), "a weight is missing")
    return list(trees)


def _array(values: Any, kind: Any) -> Any:
    array = np.asarray(values)
    fits = array.ndim == 1 and (array.dtype.kind in ("iu" if kind is np.int64 else "iuf"))
    _require(fits or array.size == 0, "a list is not of numbers")
    return array.astype(kind)


def _check_xgboost_tree(tree: dict[str, Any], features: int) -> None:
    nodes = int(tree["tree_param"]["num_nodes"])
    _require(int(tree["tree_param"]["size_leaf_vector"]) in (0, 1), "leaves are vectors")
    _require(int(tree["tree_param"]["num_feature"]) == features, "it has other features")

    def values(key: str, kind: Any = np.int64) -> Any:
        array = _array(tree[key], kind)
        _require(array.size == nodes, f"{key} has {array.size} values instead of {nodes}")
        return array

    left, right = values("left_children"), values("right_children")
    inner = left != -1
    _require(nodes >= 1 and ((right != -1) == inner).all(), "a node has one child")
    children = np.append(left[inner], right[inner])
    _check_tree(children, nodes)
    owners = np.tile(np.flatnonzero(inner), 2)
    parents = values("parents")
    right_parents = parents[0] == _NO_PARENT and (parents[children] == owners).all()
    _require(right_parents, "a parent is wrong")
    _check_below(values("split_indices"), features, "a feature")
    by_category = values("split_type")
    _check_below(np.append(by_category, values("default_left")), 2, "a flag")
    with np.errstate(over="ignore"):  # XGBoost reads single precision
        thresholds = values("split_conditions", np.float64).astype(np.float32)
    _require(not np.isnan(thresholds).any(), "a threshold is not a number")
    _require(_finite(thresholds[~inner]), "a leaf is not finite")
    for key in ("base_weights", "loss_changes", "sum_hessian"):
        values(key, np.float64)
    found, owners, starts, sizes = (
        _array(tree[f"categories{key}"], np.int64) for key in ("", "_nodes", "_segments", "_sizes")
    )
    _require(np.array_equal(owners, np.flatnonzero(by_category)), "categories of other nodes")
    _require(inner[owners].all(), "a leaf splits by category")
    _require(starts.size == sizes.size == owners.size, "its categories are miscounted")
    _check_below(np.append(starts, starts + sizes), found.size + 1, "a range of categories")
    _require((sizes > 0).all(), "its categories are miscounted")
    _check_below(found, 2**24, "a category")  # XGBoost's own limit
