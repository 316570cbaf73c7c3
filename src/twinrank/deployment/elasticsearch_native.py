"""Elasticsearch's own learning to rank: a trained model, as eland uploads it.

Read in elastic/eland 02e9eb5 (9.2.0; `_model_serializer.py`, and the transformers of LightGBM and
XGBoost) and in elastic/elasticsearch (`TreeNode`, `EnsembleInferenceModel`,
`BoundedWindowInferenceModel`): a split has a `decision_type`, here x ≤ t (`lte`), and
`default_left` for missing values; all is computed in double precision. If the smallest possible
score is negative, Elasticsearch adds its absolute value to all scores.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.deployment.elasticsearch_ltr import field_query, negative_features
from twinrank.deployment.export_format import Files, TreeFormat, as_json
from twinrank.deployment.forest import Forest
from twinrank.deployment.tree_list import Tree
from twinrank.deployment.tree_rules import Part, Rule, flattened

_UPLOAD = """\
#!/bin/sh
# Upload the model: sh upload.sh http://localhost:9200
# Needs Elasticsearch 8.15 or later, and a licence with learning to rank.
# Edit inference_config in model.json first. Each feature is a query whose score is the feature; the
# file has the value of a document's field for each. Without a match the value is missing.
# Elasticsearch does not replace models. Export the next one to a folder with another name, or first
# delete this one:
#   curl -X DELETE http://localhost:9200/_ml/trained_models/{label}
# Search with the model:
#   "rescore": {{"window_size": 100, "learning_to_rank": {{"model_id": "{label}", "params": {{}}}}}}
set -e
cd "$(dirname "$0")"
engine=${{1:-http://localhost:9200}}
curl -sS --fail-with-body -X PUT "$engine/_ml/trained_models/{label}" \\
  -H 'content-type: application/json' -d @model.json
"""


class ElasticsearchNative(TreeFormat):
    """A folder with the body of the request that creates the model."""

    name = "elasticsearch"
    engine = "Elasticsearch"
    limits = "features must not be negative; a constant is added to all scores"
    target = "elasticsearch"
    rule = Rule(strict=False, number=np.float64, total=np.float64)

    def files(self, forest: Forest, label: str) -> Files:
        """The model with its features, and the command."""
        extractors = [
            {"query_extractor": {"feature_name": feature.name, "query": field_query(feature)}}
            for feature in forest.features
        ]
        config = {"learning_to_rank": {"feature_extractors": extractors}}
        head = as_json({"inference_config": config}, indent=1).removesuffix("\n}")
        body = f'{head},\n "definition": {as_json(_definition(forest))}\n}}\n'
        upload = _UPLOAD.format(label=label)
        return {"model.json": body.encode(), "upload.sh": upload.encode()}

    def read(self, files: Files, names: Sequence[str]) -> list[Tree]:
        """The trees of the model."""
        model = json.loads(files["model.json"])["definition"]["trained_model"]
        own = model["ensemble"]["feature_names"]
        place = [list(names).index(name) for name in own]
        trees = [one["tree"]["tree_structure"] for one in model["ensemble"]["trained_models"]]
        return [flattened(nodes[0], _reader(nodes, place)) for nodes in trees]

    def notes(self, forest: Forest, data: Dataset | None, files: Files) -> Iterator[str]:
        """Negative features, and the constant that is added."""
        yield from super().notes(forest, data, files)
        yield from negative_features(forest, data)
        least = sum(float(tree.value[tree.is_leaf].min()) for tree in forest.trees)
        if least < 0:
            yield f"Elasticsearch adds {-least:g} to all scores, so that none is negative."


def _definition(forest: Forest) -> dict[str, Any]:
    names = [feature.name for feature in forest.features]
    about = {"feature_names": names, "target_type": "regression"}
    trees = [{"tree": {**about, "tree_structure": _nodes(tree)}} for tree in forest.trees]
    ensemble = {**about, "aggregate_output": {"weighted_sum": {}}, "trained_models": trees}
    return {"trained_model": {"ensemble": ensemble}}


def _nodes(tree: Tree) -> list[dict[str, Any]]:
    return [
        {"node_index": node, "leaf_value": float(tree.value[node])}
        if tree.left[node] < 0
        else {
            "node_index": node,
            "decision_type": "lte",
            "left_child": int(tree.left[node]),
            "right_child": int(tree.right[node]),
            "split_feature": int(tree.feature[node]),
            "threshold": float(tree.value[node]),
            "default_left": bool(tree.missing_left[node]),
        }
        for node in range(len(tree.left))
    ]


def _reader(nodes: Sequence[Mapping[str, Any]], place: Sequence[int]) -> Any:
    by_index = {node["node_index"]: node for node in nodes}

    def part(node: Mapping[str, Any]) -> Part:
        if "leaf_value" in node:
            return float(node["leaf_value"])
        left, right = by_index[node["left_child"]], by_index[node["right_child"]]
        feature = place[node["split_feature"]]
        return feature, node["threshold"], node["default_left"], left, right

    return part
