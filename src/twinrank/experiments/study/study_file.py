"""Study files: a comparison described in TOML. Every key is optional.

data = "MQ2008"                          # relative to the file; without it, the built-in data
methods = ["LambdaMART", "AP-type3"]
measures = ["nDCG@5", "AP"]
folds = [1, 2, 3]
seeds = [0, 1, 2]
[parameters]                             # of all methods that have them
epochs = 50
[method."AP-type3"]                      # of one method
alpha = 2.0
[reading]                                # arguments of twinrank.load
unjudged = "drop"
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinrank.data.loading import load
from twinrank.experiments.study.methods import method
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import read_toml


@dataclass(frozen=True)
class StudyFile:
    """The content of a study file, None for absent keys."""

    data: str | None = None
    methods: Sequence[str] | None = None
    measures: Sequence[str] | None = None
    folds: Sequence[int] | None = None
    cut: int | None = None
    seeds: Sequence[int] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)


_KINDS: dict[str, tuple[type, type | None, str]] = {
    "data": (str, None, "the path of a file or folder"),
    "methods": (list, str, 'a list of names, such as ["AP-type3", "LambdaMART"]'),
    "measures": (list, str, 'a list of names, such as ["nDCG@5", "AP"]'),
    "folds": (list, int, "a list of numbers, such as [1, 2]"),
    "cut": (int, None, "how many folds a file is cut into, such as 5"),
    "seeds": (list, int, "a list of whole numbers, such as [0, 1, 2]"),
    "parameters": (dict, None, "a table of parameters"),
    "method": (dict, dict, 'tables by method, such as [method."AP-type3"]'),
    "reading": (dict, None, "a table of arguments of twinrank.load"),
}


def read_study_file(path: Path) -> StudyFile:
    """Read a study file. Unknown keys and wrong types raise an error with a suggestion."""
    content = read_toml(path)
    for key, value in content.items():
        if key not in _KINDS:
            raise InputError(f"{path}: {unknown('key', key, _KINDS)}")
        if not _fits(value, *_KINDS[key][:2]):
            raise InputError(f"{path}: {key} must be {_KINDS[key][2]}, not {value!r}.")
    known = list(inspect.signature(load).parameters)[1:]
    for key in content.get("reading", {}):
        if key not in known:
            raise InputError(f"{path}: {unknown('argument of twinrank.load', key, known)}")
    for name in [*content.get("methods", ()), *content.get("method", ())]:
        method(name)
    if "data" in content:
        content["data"] = str(path.absolute().parent / Path(content["data"]).expanduser())
    return StudyFile(**content)


def _fits(value: Any, kind: type, item: type | None) -> bool:
    """True if a value has exactly this type, and its items, at least one, have the other."""
    actual: type = type(value)  # exactly, since True is an int for isinstance
    if actual is not kind or item is None:
        return actual is kind
    items = list(value.values() if kind is dict else value)
    return bool(items) and all(type(value) is item for value in items)
