"""The evaluation of exported trees as the engines' sources have it: one document, one node a time.

Written from o19s/elasticsearch-learning-to-rank 1dfed57 and
opensearch-project/opensearch-learning-to-rank-base af2d983 (`XGBoostJsonParser`,
`NaiveAdditiveDecisionTree`), apache/solr 62863bc (`MultipleAdditiveTreesModel`),
vespa-engine/vespa 503626c (`AbstractXGBoostParser`), codelibs/ranklib 378a17d (`Ensemble`, `Split`)
and elastic/elasticsearch (`TreeNode`, `WeightedSum`). Each function takes the text of the files by
name, and a document as a dictionary of features; a missing feature is not in it.
"""

import json
import math
import re
from xml.etree import ElementTree

import numpy as np

f32 = np.float32
NODE_KEYS = {
    "nodeid", "depth", "split", "split_condition", "no", "yes", "missing", "leaf", "children",
}  # fmt: skip


def elasticsearch_ltr(files, document):
    body = json.loads(files["model.json"])["model"]
    assert body["model"]["type"] == "model/xgboost+json"
    features = json.loads(files["featureset.json"])["featureset"]["features"]
    known = [feature["name"] for feature in features]
    total = f32(0)
    for node in body["model"]["definition"]:
        while True:
            assert set(node) <= NODE_KEYS
            if "leaf" in node:
                break
            left, right = node["children"]
            assert node["split"] in known
            assert (node["yes"], node["no"]) == (left["nodeid"], right["nodeid"])
            assert isinstance(node["depth"], int)
            value = f32(document.get(node["split"], np.nan))
            if np.isnan(value):
                node = left if node["missing"] == node["yes"] else right
            else:
                node = left if f32(node["split_condition"]) > value else right
        total = f32(total + f32(node["leaf"]))
    return total


def solr(files, document):
    model = json.loads(files["model.json"])
    names = [feature["name"] for feature in model["features"]]
    assert model["params"]["isNullSameAsZero"] is False
    total = f32(0)
    for tree in model["params"]["trees"]:
        node = tree["root"]
        while "feature" in node:
            assert node["feature"] in names  # else Solr ends the tree with 0
            value, threshold = f32(document.get(node["feature"], np.nan)), f32(node["threshold"])
            threshold = f32(threshold + f32(1e-6))
            if value <= threshold:
                node = node["left"]
            elif value > threshold:
                node = node["right"]
            else:
                node = node["left" if node["missing"] == "left" else "right"]
        total = f32(total + f32(tree["weight"]) * f32(node["value"]))
    return total


def ranklib(files, document):
    text = files["model.txt"]
    assert text.startswith("## LambdaMART\n")
    joined = "".join(x.strip() for x in text.splitlines() if not x.startswith("#"))
    assert "> <" not in joined
    features = json.loads(files["featureset.json"])["featureset"]["features"]
    values = [0.0, *(document.get(feature["name"], 0.0) for feature in features)]
    total = f32(0)
    for tree in ElementTree.fromstring(joined):
        node = tree[0]
        while node[0].tag == "feature":
            value = f32(values[int(node[0].text)])
            node = node[2] if value <= f32(node[1].text) else node[3]
        total = f32(float(total) + float(f32(node[0].text)) * float(tree.attrib["weight"]))
    return total


def vespa(files, document):
    """The ranking expression that Vespa's importer makes, evaluated in double precision."""
    (content,) = (text for name, text in files.items() if name.endswith(".json"))
    assert content.startswith("[")
    (profile,) = (text for name, text in files.items() if name.endswith(".profile"))
    known = re.findall(r"function (\w+)\(\)", profile)

    def expression(node):
        assert set(node) <= NODE_KEYS
        if "children" not in node:
            return repr(node["leaf"])
        assert node["split"] in known
        by_number = {child["nodeid"]: child for child in node["children"]}
        yes, no = (expression(by_number[node[way]]) for way in ("yes", "no"))
        threshold = float(f32(node["split_condition"]))
        assert threshold == node["split_condition"]
        if node["missing"] == node["yes"]:
            return f"({yes} if not ({node['split']} >= {threshold!r}) else {no})"
        return f"({yes} if {node['split']} < {threshold!r} else {no})"

    values = {name: float(document.get(name, math.nan)) for name in known}
    return sum(eval(expression(tree), {}, values) for tree in json.loads(content))


def elasticsearch(files, document):
    ensemble = json.loads(files["model.json"])["definition"]["trained_model"]["ensemble"]
    assert ensemble["aggregate_output"] == {"weighted_sum": {}}
    total = 0.0
    for one in ensemble["trained_models"]:
        nodes, names = one["tree"]["tree_structure"], one["tree"]["feature_names"]
        assert [node["node_index"] for node in nodes] == list(range(len(nodes)))
        node = nodes[0]
        while "leaf_value" not in node:
            assert node["decision_type"] == "lte"
            value = float(document.get(names[node["split_feature"]], math.nan))
            left = node["default_left"] if math.isnan(value) else value <= node["threshold"]
            node = nodes[node["left_child" if left else "right_child"]]
        total += node["leaf_value"]
    return total


REFERENCES = {
    "elasticsearch-ltr": elasticsearch_ltr,
    "opensearch-ltr": elasticsearch_ltr,
    "elasticsearch": elasticsearch,
    "solr": solr,
    "ranklib": ranklib,
    "vespa": vespa,
}
