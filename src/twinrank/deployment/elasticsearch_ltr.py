"""The Elasticsearch learning-to-rank plugin: `model/xgboost+json` and `model/linear`.

Read in o19s/elasticsearch-learning-to-rank 1dfed57 (1.5.12): `XGBoostJsonParser` accepts a list of
trees and refuses unknown keys; `NaiveAdditiveDecisionTree` goes to the left if the threshold is
above the value, and adds up the trees, all in float32. A feature without a match is NaN and takes
the way of `missing` (since 1.5.9; the plugin fails without this key). No base score is added.
`LinearRanker` adds up weight · feature in float32, without a constant.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

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
from twinrank.deployment.forest import REMEDY, Feature, Forest, names_of
from twinrank.deployment.tree_list import Tree
from twinrank.deployment.tree_rules import Rule
from twinrank.deployment.xgboost_dump import dumped, undumped
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

SEARCH = """\
# The plugin does not replace models. Export the next one to a folder with another name, or first
# delete this one:
#   curl -X DELETE http://localhost:9200/_ltr/_model/{label}
#   curl -X DELETE http://localhost:9200/_ltr/_featureset/{label}
# Search with the model; query_weight leaves out the score of the query itself:
#   "rescore": {{"window_size": 100, "query": {{"query_weight": 0, "rescore_query":
#     {{"sltr": {{"model": "{label}", "params": {{}}}}}}}}}}
# window_size must be at least from + size: other documents have the score 0, above negative ones.
"""
"""The remarks on both plugins in `upload.sh`."""
_UPLOAD = """\
#!/bin/sh
# Upload the features and the model: sh upload.sh http://localhost:9200
# Needs {needs}.
# Edit featureset.json first. Each feature is a query whose score is the feature; the file has the
# value of a document's field for each. A document that does not match has a missing value.
{search}set -e
cd "$(dirname "$0")"
engine=${{1:-http://localhost:9200}}
json='content-type: application/json'
curl -s -X PUT "$engine/_ltr" > /dev/null  # the feature store, if there is none yet
curl -sS --fail-with-body -X PUT "$engine/_ltr/_featureset/{label}" -H "$json" -d @featureset.json
curl -sS --fail-with-body -X POST "$engine/_ltr/_featureset/{label}/_createmodel" \\
  -H "$json" -d @model.json
"""


class ElasticsearchLTR(TreeFormat):
    """A folder with the bodies of the two requests that create the feature set and the model."""

    name = "elasticsearch-ltr"
    engine = "the Elasticsearch learning-to-rank plugin"
    limits = "features must not be negative"
    target = "elasticsearch-ltr"
    rule = Rule(strict=True)
    needs: ClassVar[str] = "version 1.5.9 of the plugin or later"

    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """Trees, or a linear net: `model/linear`, a weight for each feature and no constant."""
        if model.kind != "net":
            return super().write(model, path, data)
        layers = dense_layers(model, self.engine)
        if len(layers) > 1 or layers[0].activation != "identity":
            raise InputError(
                f"Not exported: {self.engine} holds trees and linear nets, but this net has hidden "
                f"layers. ",
                *REMEDY,
            )
        names = names_of(model)
        forest = Forest(tuple(Feature(name, column, name) for column, name in enumerate(names)), [])
        weights = dict(zip(names, layers[0].matrix[0].tolist(), strict=True))
        files = self._bodies("model/linear", weights, forest, label_of(path))
        read = json.loads(files["model.json"])["model"]["model"]["definition"]
        matrix = np.array([[read[name] for name in names]])
        written = checked_net(self, model, [Dense(matrix, layers[0].bias)], files, data)
        note = f"The plugin has no constant: all scores are lower by {float(layers[0].bias[0]):g}."
        return replace(written, notes=(note, *negative_features(forest, data)))

    def files(self, forest: Forest, label: str) -> Files:
        """The model, the feature set and the commands."""
        return self._bodies("model/xgboost+json", dumped(forest), forest, label)

    def _bodies(self, kind: str, definition: Any, forest: Forest, label: str) -> Files:
        model = {"name": label, "model": {"type": kind, "definition": definition}}
        search = SEARCH.format(label=label)
        upload = _UPLOAD.format(label=label, needs=self.needs, search=search)
        return {
            "model.json": as_json({"model": model}).encode(),
            "featureset.json": feature_set(forest, label),
            "upload.sh": upload.encode(),
        }

    def read(self, files: Files, names: Sequence[str]) -> list[Tree]:
        """The trees of the model."""
        return undumped(json.loads(files["model.json"])["model"]["model"]["definition"], names)

    def notes(self, forest: Forest, data: Dataset | None, files: Files) -> Iterator[str]:
        """Negative features."""
        yield from super().notes(forest, data, files)
        yield from negative_features(forest, data)


def feature_set(forest: Forest, label: str) -> bytes:
    """The body of the request that creates a feature set: a template for each feature."""
    features = [
        {
            "name": feature.name,
            "params": [],
            "template_language": "mustache",
            "template": field_query(feature),
        }
        for feature in forest.features
    ]
    body = {"featureset": {"name": label, "features": features}}
    return (as_json(body, indent=1) + "\n").encode()


def field_query(feature: Feature) -> dict[str, Any]:
    """A query whose score is a document's field; or 1 for some categories, and no match else."""
    exists = {"exists": {"field": feature.field}}
    if feature.values is None:
        return {
            "function_score": {
                "query": exists,
                "field_value_factor": {"field": feature.field},
                "boost_mode": "replace",
            }
        }
    wanted: list[dict[str, Any]] = [{"terms": {feature.field: list(feature.values)}}]
    if feature.missing:
        wanted.append({"bool": {"must_not": exists}})
    return {"constant_score": {"filter": {"bool": {"should": wanted}}}}


def negative_features(forest: Forest, data: Dataset | None) -> Iterator[str]:
    """A note on features that no query of Lucene can give."""
    if data is None:
        return
    negative = (forest.matrix(data) < 0).any(axis=0)
    names = [forest.features[number].name for number in np.flatnonzero(negative)]
    if names:
        yield (
            f"Lucene refuses negative scores, and so negative features, but the data has some: "
            f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}. Add a constant to these "
            f"features before training."
        )
