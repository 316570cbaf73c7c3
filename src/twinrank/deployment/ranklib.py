"""RankLib's LambdaMART model, which the learning-to-rank plugins read as `model/ranklib`.

Read in codelibs/ranklib (`Split` and `Ensemble` 378a17d, `LambdaMART` 00ab47e) and in the plugin's
`RanklibModelParser` (o19s/elasticsearch-learning-to-rank 1dfed57): the first line names the
algorithm, features are numbered from 1 in the order of the feature set, a document goes to the left
for x ≤ t, a missing value is 0, and values are float32. The reader joins lines without the white
space around them, so that each element has a line of its own.
"""

from collections.abc import Sequence
from xml.etree import ElementTree

from twinrank.deployment.elasticsearch_ltr import SEARCH, feature_set
from twinrank.deployment.export_format import Files, TreeFormat
from twinrank.deployment.forest import Forest
from twinrank.deployment.tree_list import Tree
from twinrank.deployment.tree_rules import Part, Rule, flattened, nested

_HEADER = """\
## LambdaMART
## No. of trees = {trees}
## No. of leaves = {leaves}
## No. of threshold candidates = 256
## Learning rate = 1.0
## Stop early = 100

"""
_UPLOAD = """\
#!/bin/sh
# Upload the features and the model to a learning-to-rank plugin: sh upload.sh http://localhost:9200
# Edit featureset.json first, but keep the order of the features: the model has their numbers.
# RankLib itself reads model.txt: java -jar RankLib.jar -load model.txt -rank DATA -score SCORES
{search}set -e
cd "$(dirname "$0")"
engine=${{1:-http://localhost:9200}}
json='content-type: application/json'
curl -s -X PUT "$engine/_ltr" > /dev/null  # the feature store, if there is none yet
curl -sS --fail-with-body -X PUT "$engine/_ltr/_featureset/{label}" -H "$json" -d @featureset.json
{{
  printf '{{"model": {{"name": "{label}", "model": {{"type": "model/ranklib", "definition": "'
  sed 's/"/\\\\"/g; s/$/\\\\n/' model.txt | tr -d '\\n'  # as a string of JSON
  printf '"}}}}}}'
}} | curl -sS --fail-with-body -X POST "$engine/_ltr/_featureset/{label}/_createmodel" \\
  -H "$json" -d @-
"""


class RankLib(TreeFormat):
    """A folder with the model, the feature set in its order, and the commands."""

    name = "ranklib"
    engine = "RankLib"
    limits = "a missing value is 0"
    target = "ranklib"
    rule = Rule(strict=False, missing_is_zero=True)

    def chosen(self, forest: Forest) -> Forest:
        """All features, since the model has their numbers."""
        return forest

    def files(self, forest: Forest, label: str) -> Files:
        """The model, the feature set and the commands."""
        most = max(int(tree.is_leaf.sum()) for tree in forest.trees)
        header = _HEADER.format(trees=len(forest.trees), leaves=most)
        trees = "".join(
            f'<tree id="{number}" weight="1.0">\n<split>\n{_text(tree)}</split>\n</tree>\n'
            for number, tree in enumerate(forest.trees, 1)
        )
        return {
            "model.txt": f"{header}<ensemble>\n{trees}</ensemble>\n".encode(),
            "featureset.json": feature_set(forest, label),
            "upload.sh": _UPLOAD.format(label=label, search=SEARCH.format(label=label)).encode(),
        }

    def read(self, files: Files, names: Sequence[str]) -> list[Tree]:  # noqa: ARG002
        """The trees of the model."""
        lines = files["model.txt"].decode().splitlines()
        text = "".join(line.strip() for line in lines if not line.startswith("#"))
        # The file is ours: no entities, no document type.
        return [flattened(tree[0], _part) for tree in ElementTree.fromstring(text)]


def _text(tree: Tree) -> str:
    """The content of the element of the root."""

    def leaf(node: int) -> str:
        return f"<output> {float(tree.value[node])!r} </output>\n"

    def split(node: int, left: str, right: str) -> str:
        return (
            f"<feature> {tree.feature[node] + 1} </feature>\n"
            f"<threshold> {float(tree.value[node])!r} </threshold>\n"
            f'<split pos="left">\n{left}</split>\n<split pos="right">\n{right}</split>\n'
        )

    text: str = nested(tree, leaf, split)
    return text


def _part(element: ElementTree.Element) -> Part:
    if element[0].tag == "output":
        return float(element[0].text or "")
    feature, threshold, left, right = element
    return int(feature.text or "") - 1, float(threshold.text or ""), False, left, right
