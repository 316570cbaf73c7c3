"""The Elasticsearch learning-to-rank plugin: `model/xgboost+json`.

Read in o19s/elasticsearch-learning-to-rank 1dfed57 (1.5.12): `XGBoostJsonParser` accepts a list of
trees and refuses unknown keys; `NaiveAdditiveDecisionTree` goes to the left if the threshold is
above the value, and adds up the trees, all in float32. A feature without a match is NaN and takes
the way of `missing` (since 1.5.9; the plugin fails without this key). No base score is added.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.deployment.export_format import Files, TreeFormat, as_json
from twinrank.deployment.forest import Feature, Forest
from twinrank.deployment.tree_list import Tree
from twinrank.deployment.tree_rules import Rule
from twinrank.deployment.xgboost_dump import dumped, undumped

_UPLOAD = """\
#!/bin/sh
# Upload the features and the model: sh upload.sh http://localhost:9200
# Needs {needs}.
# Edit featureset.json first. Each feature is a query whose score is the feature; the file has the
# value of a document's field for each. A document that does not match has a missing value.
set -e
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

    def files(self, forest: Forest, label: str) -> Files:
        """The model, the feature set and the commands."""
        definition = {"type": "model/xgboost+json", "definition": dumped(forest)}
        return {
            "model.json": as_json({"model": {"name": label, "model": definition}}).encode(),
            "featureset.json": feature_set(forest, label),
            "upload.sh": _UPLOAD.format(label=label, needs=self.needs).encode(),
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
