"""Trees as XGBoost's `dump_model` writes them to JSON, which three engines read.

A split is x < t in float32, so the file has the float32 after the largest value that goes to the
left. Numbers are written with all digits of a double, so that each reader gets the same float32.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from twinrank.deployment.forest import Forest
from twinrank.deployment.tree_list import Tree, next_float32
from twinrank.deployment.tree_rules import Part, flattened, nested


def dumped(forest: Forest) -> list[dict[str, Any]]:
    """A nested object for each tree."""
    return [_dumped_tree(tree, forest) for tree in forest.trees]


def _dumped_tree(tree: Tree, forest: Forest) -> dict[str, Any]:
    thresholds = next_float32(tree.value).tolist()

    def leaf(node: int) -> dict[str, Any]:
        return {"nodeid": node, "leaf": float(tree.value[node])}

    def split(node: int, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {
            "nodeid": node,
            "depth": 0,  # required, but not used
            "split": forest.features[tree.feature[node]].name,
            "split_condition": thresholds[node],
            "yes": left["nodeid"],
            "no": right["nodeid"],
            "missing": (left if tree.missing_left[node] else right)["nodeid"],
            "children": [left, right],
        }

    root: dict[str, Any] = nested(tree, leaf, split)
    return root


def undumped(trees: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Tree]:
    """The trees of a dump."""
    place = {name: number for number, name in enumerate(names)}

    def part(node: Mapping[str, Any]) -> Part:
        if "leaf" in node:
            return float(node["leaf"])
        children = {child["nodeid"]: child for child in node["children"]}
        left, right = children[node["yes"]], children[node["no"]]
        threshold, missing_left = node["split_condition"], node["missing"] == node["yes"]
        return place[node["split"]], threshold, missing_left, left, right

    return [flattened(tree, part) for tree in trees]
