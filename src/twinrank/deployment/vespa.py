"""Vespa: trees as XGBoost dumps them, with a rank profile.

Read in vespa-engine/vespa: `XGBoostParser` (503626c) turns each split into `feature < t`, or
`!(feature >= t)` if missing values go to the left, and refuses unknown keys. Ranking expressions
are evaluated in double precision, or with fast-forest in float32 (`fast_forest.cpp`, 0c55dc9); a
threshold that is a float32 separates the same float32 features in both. An attribute without a
value is NaN if it is a number, and empty if it is text (`attributefeature.cpp`, 05a27fa).
`LightGBMParser` (089e174) reads LightGBM's x ≤ t as x < t, so that this format is not used.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.deployment.export_format import Files, TreeFormat, Written, as_json, label_of
from twinrank.deployment.forest import Feature, Forest
from twinrank.deployment.tree_list import Tree
from twinrank.deployment.tree_rules import Rule
from twinrank.deployment.xgboost_dump import dumped, undumped
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model
    from twinrank.learning.models.score_map import ScoreMap

_PROFILE = """\
# upload.sh copies this file to schemas/SCHEMA/ of an application. Edit the functions: each gives a
# feature as in the training data. They read attributes of the same names. A missing value must be
# NaN, as that of an attribute of numbers without a value.
# If many documents match, rank them by a cheap expression first, and move this one to
#   second-phase {{ expression: xgboost("{label}.json")  rerank-count: 100 }}
# Search with ranking={label}.
rank-profile {label} {{
{functions}
    first-phase {{
        expression: xgboost("{label}.json")
    }}
}}
"""
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "abs acos argmax argmin asin atan atan2 avg bit case ceil concat cos cosh count default "
        "diag elu erf exp expand f fabs false floor fmod hamming if in isnan join ldexp log log10 "
        "map matmul max median merge min pow prod random range reduce relu rename round sigmoid "
        "sign sin sinh softmax sqrt square sum switch tan tanh tensor top true",
    )
)
"""Words of ranking expressions (`RankingExpressionParser.jj`, 1f79d33), in small letters."""
_CALIBRATED = """\
    function {score}() {{
        expression: xgboost("{label}.json")
    }}
{functions}
    first-phase {{
        expression: {score}
    }}
    summary-features {{
{names}
    }}
}}
"""
_SCORE = "ranker_score"
_UPLOAD = """\
#!/bin/sh
# Add the model to an application, and deploy it: sh upload.sh APPLICATION SCHEMA
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/models" "$1/schemas/$2"
cp "$here/{label}.json" "$1/models/"
cp "$here/{label}.profile" "$1/schemas/$2/"
vespa deploy "$1"
"""


class Vespa(TreeFormat):
    """A folder with the model, the rank profile and the commands."""

    name = "vespa"
    engine = "Vespa"
    limits = "names become identifiers"
    target = "vespa"
    rule = Rule(strict=True, number=np.float64, total=np.float64)

    def chosen(self, forest: Forest) -> Forest:
        """The features that are used, with names of functions."""
        forest = forest.without_unused()
        names = [re.sub(r"\W", "_", feature.name, flags=re.ASCII) for feature in forest.features]
        names = [
            name if re.match(r"[A-Za-z_]", name) and name.lower() not in _RESERVED else f"f_{name}"
            for name in names
        ]
        if len(set(names)) < len(names):
            raise InputError(
                "Not exported: two features have the same name in Vespa, where names consist of "
                "letters, digits and _. Rename the columns of the training data."
            )
        return forest.renamed(names)

    def holds(self, calibration: "ScoreMap") -> bool:
        """An expression sees one document, not the scores of its query."""
        return not calibration.per_query

    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """The folder; maps from scores to grades and probabilities are functions of the profile."""
        written = super().write(model, path, data)
        maps = {name: own for name, own in model.calibration.items() if self.holds(own)}
        if not maps:
            return written
        label = label_of(path)
        profile = written.files[f"{label}.profile"].decode()
        for name in (_SCORE, *maps):
            if f"    function {name}() " in profile:
                raise InputError(
                    f"Not exported: a feature is called {name}, as a function of the calibrated "
                    f"model. Rename the column of the training data."
                )
        added = _CALIBRATED.format(
            label=label,
            score=_SCORE,
            functions="\n".join(_function(name, calibrated(own)) for name, own in maps.items()),
            names="\n".join(f"        {name}" for name in maps),
        )
        profile = profile.partition("    first-phase {")[0] + added
        return replace(written, files={**written.files, f"{label}.profile": profile.encode()})

    def files(self, forest: Forest, label: str) -> Files:
        """The model, the rank profile and the commands."""
        functions = "\n".join(_function(f.name, _expression(f)) for f in forest.features)
        return {
            f"{label}.json": as_json(dumped(forest)).encode(),
            f"{label}.profile": _PROFILE.format(label=label, functions=functions).encode(),
            "upload.sh": _UPLOAD.format(label=label).encode(),
        }

    def read(self, files: Files, names: Sequence[str]) -> list[Tree]:
        """The trees of the model."""
        (content,) = (content for name, content in files.items() if name.endswith(".json"))
        return undumped(json.loads(content), names)


def _function(name: str, expression: str) -> str:
    """A function of the rank profile."""
    return f"    function {name}() {{\n        expression: {expression}\n    }}"


def calibrated(own: "ScoreMap") -> str:
    """The piecewise-linear map of the score, by a binary search of its knots."""
    x, y = own.scores.tolist(), own.values.tolist()

    def between(low: int, high: int) -> str:
        if low == high:
            if low in (0, len(x)):
                return repr(y[min(low, len(x) - 1)])
            slope = (y[low] - y[low - 1]) / (x[low] - x[low - 1])
            away = f"{_SCORE} {'-' if x[low - 1] >= 0 else '+'} {abs(x[low - 1])!r}"
            return f"{y[low - 1]!r} + {slope!r} * ({away})"
        middle = (low + high) // 2
        left, right = between(low, middle), between(middle + 1, high)
        return f"if ({_SCORE} < {x[middle]!r}, {left}, {right})"

    return between(0, len(x))


def _expression(feature: Feature) -> str:
    """The feature as a ranking expression: an attribute, or 1 for some of its values."""
    field = re.sub(r"\W", "_", feature.field, flags=re.ASCII)
    if feature.values is None:
        return f"attribute({field})"
    empty = [""] if feature.is_text and feature.missing else []
    values = [*empty, *feature.values]
    listed = ", ".join(as_json(value) for value in values)
    found = f"if (attribute({field}) in [{listed}], 1, 0)" if values else "0"
    if feature.is_text or not feature.missing:
        return found
    return f"if (isNan(attribute({field})) == 1, 1, {found})"
