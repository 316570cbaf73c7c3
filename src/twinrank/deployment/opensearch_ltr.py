"""The OpenSearch learning-to-rank plugin: `model/xgboost+json`.

Read in opensearch-project/opensearch-learning-to-rank-base af2d983 (3.8.0): the parser and the
evaluation are those of the Elasticsearch plugin. Missing features take the way of `missing` since
3.8 (#379); from 3.2 on they always went to the right (#206), before that they were 0.
"""

from collections.abc import Iterator

from twinrank.data.dataset import Dataset
from twinrank.deployment.elasticsearch_ltr import ElasticsearchLTR
from twinrank.deployment.export_format import Files, zero_is_missing
from twinrank.deployment.forest import Forest


class OpenSearchLTR(ElasticsearchLTR):
    """As for Elasticsearch, with a note on older versions."""

    name = "opensearch-ltr"
    engine = "the OpenSearch learning-to-rank plugin"
    limits = "features must not be negative; missing values need version 3.8"
    target = "opensearch-ltr"
    needs = "OpenSearch 3.8 or later; older versions score documents with missing values otherwise"

    def notes(self, forest: Forest, data: Dataset | None, files: Files) -> Iterator[str]:
        """Versions that treat missing values in another way."""
        yield from super().notes(forest, data, files)
        right = not any((tree.missing_left & ~tree.is_leaf).any() for tree in forest.trees)
        zero = all(map(zero_is_missing, forest.trees))
        if not right:
            yield "OpenSearch 3.2 to 3.7 score documents with missing features otherwise."
        if not zero:
            yield "OpenSearch before 3.2 takes missing features as 0, which this model does not."
