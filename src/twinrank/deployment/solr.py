"""Solr's MultipleAdditiveTreesModel, and its NeuralNetworkModel for nets.

Read in apache/solr 62863bc (modules/ltr): numbers are strings, a document goes to the left for
x ≤ t + 1e-6, added and compared in float32, and trees are added up in float32. With
`isNullSameAsZero` false, a missing value is NaN and takes the way of `missing`, which every split
must have. A split on a feature that the model does not list ends the tree with 0. SolrCloud keeps
models in ZooKeeper, which refuses more than 1 MB: larger ones go to a file of each node, and a
`DefaultWrapperModel` names it. A net has a matrix, a bias and an activation for each layer, and is
evaluated in float32.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.deployment.dense_net import Dense, dense_layers
from twinrank.deployment.export_format import (
    Files,
    TreeFormat,
    Written,
    as_json,
    checked_net,
    label_of,
)
from twinrank.deployment.forest import Feature, Forest, names_of
from twinrank.deployment.tree_list import Floats, Tree
from twinrank.deployment.tree_rules import Part, Rule, flattened, nested
from twinrank.support.errors import Argument, InputError

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

SLACK = np.float32(1e-6)
"""What Solr adds to each threshold."""
ZOOKEEPER = 1_000_000
"""Bytes of a model that SolrCloud accepts; larger ones need a wrapper."""

_CLASSES = "org.apache.solr.ltr"
_UPLOAD = """\
#!/bin/sh
# Upload the features and the model: sh upload.sh http://localhost:8983/solr/COLLECTION
# Edit features.json first: it has the value of a document's field for each feature.
# A feature without a value must be NaN, its defaultValue.
{hint}# Solr does not replace models. Export the next one to a folder with another name, or first
# delete this one:
#   curl -X DELETE http://localhost:8983/solr/COLLECTION/schema/model-store/{label}
#   curl -X DELETE http://localhost:8983/solr/COLLECTION/schema/feature-store/{label}
# Search with the model: rq={{!ltr model={label} reRankDocs=100}}
set -e
cd "$(dirname "$0")"
json='content-type: application/json'
curl -sS --fail-with-body -X PUT "$1/schema/feature-store" -H "$json" --data-binary @features.json
curl -sS --fail-with-body -X PUT "$1/schema/model-store" -H "$json" --data-binary @{file}
"""
_WRAPPED = "# Copy model.json to models/{label}.json in the home of each Solr node before.\n"


class Solr(TreeFormat):
    """A folder with the model, the feature store and the commands."""

    name = "solr"
    engine = "Solr"
    limits = "thresholds near 0 need data"
    target = "solr"
    rule = Rule(strict=False)

    def adapted(self, forest: Forest, data: Dataset | None) -> Forest:
        """The trees with thresholds that Solr reaches by adding 1e-6.

        A float32 threshold near 0 has neighbours that Solr cannot reach. Another one is as good if
        no value of the feature in `data` lies between the two.
        """
        columns = None if data is None else [np.unique(own.of(data)) for own in forest.features]
        trees = []
        for tree in forest.trees:
            value = tree.value.copy()
            reached = _reached(tree.value)
            exact = (reached == tree.value).any(axis=0)
            for node in np.flatnonzero(~tree.is_leaf & ~exact).tolist():
                feature = forest.features[tree.feature[node]]
                if feature.values is not None:
                    found = reached[0, node]  # any number between 0 and 1
                else:
                    own = None if columns is None else columns[tree.feature[node]]
                    found = _separating(own, tree.value[node], reached[:, node])
                if found is None:
                    raise _unreachable(feature, float(tree.value[node]), data)
                value[node] = found
            trees.append(replace(tree, value=value))
        return replace(forest, trees=trees)

    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """Trees, or a net: NeuralNetworkModel."""
        if model.kind != "net":
            return super().write(model, path, data)
        layers = dense_layers(model, self.engine)
        features = tuple(Feature(name, c, name) for c, name in enumerate(names_of(model)))
        params = {
            "layers": [
                {
                    "matrix": layer.matrix.tolist(),
                    "bias": layer.bias.tolist(),
                    "activation": layer.activation,
                }
                for layer in layers
            ]
        }
        files = _packed("NeuralNetworkModel", features, params, label_of(path))
        read = [
            Dense(np.array(layer["matrix"]), np.array(layer["bias"]), layer["activation"])
            for layer in json.loads(files["model.json"])["params"]["layers"]
        ]
        written = checked_net(self, model, read, files, data)
        return replace(written, notes=tuple(self.notes(Forest(features, []), data, files)))

    def files(self, forest: Forest, label: str) -> Files:
        """The model, the feature store and the commands."""
        trees = [{"weight": "1", "root": _root(tree, forest)} for tree in forest.trees]
        params = {"isNullSameAsZero": False, "trees": trees}
        return _packed("MultipleAdditiveTreesModel", forest.features, params, label)

    def read(self, files: Files, names: Sequence[str]) -> list[Tree]:
        """The trees of the model, with the thresholds that Solr compares with."""
        model = json.loads(files["model.json"])
        place = {name: number for number, name in enumerate(names)}

        def part(node: Mapping[str, Any]) -> Part:
            if "feature" not in node:
                return float(np.float32(node["value"]))
            threshold = float(np.float32(node["threshold"]) + SLACK)
            missing_left = node["missing"] == "left"
            left, right = node["left"], node["right"]
            return place[node["feature"]], threshold, missing_left, left, right

        return [flattened(tree["root"], part) for tree in model["params"]["trees"]]

    def notes(self, forest: Forest, data: Dataset | None, files: Files) -> Iterator[str]:
        """Larger models."""
        yield from super().notes(forest, data, files)
        if "wrapper.json" in files:
            yield (
                "The model has more than 1 MB, which SolrCloud refuses: copy model.json to each "
                "node, and upload wrapper.json, as upload.sh does."
            )


def _packed(kind: str, features: Sequence[Feature], params: Mapping[str, Any], label: str) -> Files:
    """The model, its feature store and the commands; a wrapper if the model is too large."""
    about = {"store": label, "name": label}
    names = [{"name": feature.name} for feature in features]
    model = {"class": f"{_CLASSES}.model.{kind}", **about, "features": names, "params": params}
    content = as_json(model).encode()
    store = as_json([_feature(feature, label) for feature in features], indent=1) + "\n"
    files = {"model.json": content, "features.json": store.encode()}
    if len(content) <= ZOOKEEPER:
        upload = _UPLOAD.format(file="model.json", hint="", label=label)
        return {**files, "upload.sh": upload.encode()}
    resource = {"resource": f"models/{label}.json"}
    wrapper = {"class": f"{_CLASSES}.model.DefaultWrapperModel", **about, "params": resource}
    hint = _WRAPPED.format(label=label)
    upload = _UPLOAD.format(file="wrapper.json", hint=hint, label=label)
    files["wrapper.json"] = (as_json(wrapper, indent=1) + "\n").encode()
    return {**files, "upload.sh": upload.encode()}


def _root(tree: Tree, forest: Forest) -> dict[str, Any]:
    thresholds = _shifted(tree.value)

    def leaf(node: int) -> dict[str, Any]:
        return {"value": repr(float(tree.value[node]))}

    def split(node: int, left: Any, right: Any) -> dict[str, Any]:
        return {
            "feature": forest.features[tree.feature[node]].name,
            "threshold": repr(float(thresholds[node])),
            "missing": "left" if tree.missing_left[node] else "right",
            "left": left,
            "right": right,
        }

    root: dict[str, Any] = nested(tree, leaf, split)
    return root


def _candidates(thresholds: Floats) -> npt.NDArray[np.float32]:
    """The float32 numbers from which Solr may reach each threshold: the nearest, and two others."""
    guess = thresholds.astype(np.float32) - SLACK
    with np.errstate(over="ignore"):
        sides = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.stack([guess, *sides])


def _reached(thresholds: Floats) -> Floats:
    """The thresholds that Solr compares with, for each candidate."""
    return np.asarray(_candidates(thresholds) + SLACK, np.float64)


def _shifted(thresholds: Floats) -> npt.NDArray[np.float32]:
    """The numbers that Solr turns into these thresholds, if there are any."""
    found = np.argmax(_reached(thresholds) == thresholds, axis=0)
    return np.asarray(np.take_along_axis(_candidates(thresholds), found[None], axis=0)[0])


def _separating(
    values: npt.NDArray[np.float32] | None, wanted: float, reached: Floats
) -> float | None:
    """The candidate that has the same values below it as the threshold; None if none is known."""
    if values is None:
        return None
    below = np.searchsorted(values, [wanted, *reached], "right")
    same = np.flatnonzero(below[1:] == below[0])
    return float(reached[same[0]]) if same.size else None


def _unreachable(feature: Feature, threshold: float, data: Dataset | None) -> InputError:
    why = (
        f"Not exported: Solr adds 1e-6 to each threshold in float32, which changes the threshold "
        f"{threshold:g} of feature {feature.name!r}. "
    )
    if data is None:
        return InputError(
            why,
            "Pass rows of the features as ",
            Argument("data"),
            ", so that another threshold can be chosen that separates the same values.",
        )
    return InputError(
        why,
        "A value of the data lies between this threshold and the one that Solr would use. "
        "Multiply the feature by 1,000 before training.",
    )


def _feature(feature: Feature, label: str) -> dict[str, Any]:
    """A feature of the store: a field, or a function query that is 1 for some categories."""
    about = {"store": label, "name": feature.name}
    if feature.values is None:
        params: dict[str, Any] = {"field": feature.field, "defaultValue": "NaN"}
        return {**about, "class": f"{_CLASSES}.feature.FieldValueFeature", "params": params}
    query = " ".join(_quoted(value) for value in feature.values)
    wanted = [f"{feature.field}:({query})"] if feature.values else []
    wanted += [f"(*:* -{feature.field}:*)"] if feature.missing else []
    params = {"fq": [" OR ".join(wanted)]}
    return {**about, "class": f"{_CLASSES}.feature.SolrFeature", "params": params}


def _quoted(value: str | int) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
