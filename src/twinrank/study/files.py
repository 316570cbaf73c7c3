"""A study as a TOML file, all of whose keys may be left out.

data = "MQ2008"                          # from the file's own folder on; without it, built in
methods = ["LambdaMART", "AP-type3"]
measures = ["nDCG@5", "AP"]
folds = [1, 2, 3]
seeds = [0, 1, 2]
[parameters]                             # of every method that has them
epochs = 50
[method."AP-type3"]                      # of one
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
from twinrank.study.methods import method
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import read_toml


@dataclass(frozen=True)
class StudyFile:
    """What a study file says; None where it says nothing."""

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
    """Read a study file; what it can't say is refused with a hint at what was meant."""
    found = read_toml(path)
    for key, value in found.items():
        if key not in _KINDS:
            raise InputError(f"{path}: {unknown('key', key, _KINDS)}")
        if not _fits(value, *_KINDS[key][:2]):
            raise InputError(f"{path}: {key} must be {_KINDS[key][2]}, not {value!r}")
    known = list(inspect.signature(load).parameters)[1:]
    for key in found.get("reading", {}):
        if key not in known:
            raise InputError(f"{path}: {unknown('argument of twinrank.load', key, known)}")
    for name in [*found.get("methods", ()), *found.get("method", ())]:
        method(name)
    if "data" in found:
        found["data"] = str(path.absolute().parent / Path(found["data"]).expanduser())
    return StudyFile(**found)


def _fits(value: Any, kind: type, item: type | None) -> bool:
    """Whether a value is of a kind, and all it holds, which must be something, of another."""
    found: type = type(value)  # exactly: True is no whole number
    if found is not kind or item is None:
        return found is kind
    items = list(value.values() if kind is dict else value)
    return bool(items) and all(type(one) is item for one in items)
