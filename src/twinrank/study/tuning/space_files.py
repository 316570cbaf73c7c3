"""What a user changes about a search: `key=value` that is held fixed, and a TOML file of ranges.

[net]                                    # or [trees]
objective = ["nDCG", "AP"]               # one of these
learning_rate = {low = 1e-4, high = 1e-2, log = true}
depth = {low = 1, high = 3}              # whole numbers, since both ends are
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from twinrank.estimators.parameters import settings_of
from twinrank.study.tuning.space import MODELS, NET, PARTS, Choice, Dimension, Space, Span
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import read_toml

_ELSEWHERE = {
    "random_state": "--seed",
    "validation_measure": "--measure",
    "epochs": "--epochs",
    "n_estimators": "--rounds",
    "n_jobs": "--jobs",
}
_NONE = ("norm", "transforms")  # where "none" is a name, not nothing
_RANGE = ("low", "high", "log", "step")


def spaces_of(
    models: Sequence[str], settings: Sequence[str] = (), path: Path | None = None
) -> list[Space]:
    """The space of each model, with `key=value` settings held fixed and the ranges of a file."""
    ranges = {} if path is None else _read(path)
    fixed: dict[str, dict[str, Any]] = {model: {} for model in models}
    for setting in settings:
        if "=" not in setting:
            raise InputError(f"--fix {setting}: write key=value")
        for key, value in settings_of([setting]).items():
            for model in _having(key, models):
                fixed[model][key] = "none" if key in _NONE and value is None else value
    return [Space(model, fixed[model], ranges.get(model, {})) for model in models]


def known_names(model: str) -> list[str]:
    """What can be searched or fixed: the estimator's parameters, and parts of one of them."""
    if model == NET:
        from twinrank.estimators.ranker import Ranker as Estimator
    else:
        from twinrank.estimators.boosted import BoostedRanker as Estimator  # type: ignore[assignment]
    own = [name for name in inspect.signature(Estimator).parameters if name not in _ELSEWHERE]
    return [*own, *(one.name for one in fields(PARTS[model]))]


def _having(key: str, models: Sequence[str]) -> list[str]:
    """The models that have a parameter, one at least."""
    if key in _ELSEWHERE:
        raise InputError(f"{key} can't be fixed or searched here: say {_ELSEWHERE[key]}")
    names = {model: known_names(model) for model in models}
    found = [model for model in models if key in names[model]]
    if not found:
        every = dict.fromkeys(name for known in names.values() for name in known)
        raise InputError(unknown(f"parameter of {' or '.join(models)}", key, every))
    return found


def _read(path: Path) -> dict[str, dict[str, Dimension]]:
    """The ranges of a TOML file by model; what it can't say is refused."""
    found = read_toml(path)
    for model, ranges in found.items():
        if model not in MODELS:
            raise InputError(f"{path}: {unknown('model', model, MODELS)}")
        if not isinstance(ranges, dict):
            raise InputError(f"{path}: {model} must be a table, such as [{model}]")
        for key in ranges:
            try:
                _having(key, [model])
            except InputError as error:
                raise InputError(f"{path}: {error}") from error
    return {
        model: {
            key: _dimension(f"{path}: {model}.{key}", one, key in _NONE)
            for key, one in ranges.items()
        }
        for model, ranges in found.items()
    }


def _dimension(where: str, value: Any, keeps_none: bool) -> Dimension:
    if isinstance(value, list):
        if not value:
            raise InputError(f"{where} is an empty list: there is nothing to choose from")
        if not all(isinstance(one, str | int | float) for one in value):
            raise InputError(f"{where} must be a list of words and numbers, not {value!r}")
        options = tuple(None if one == "none" and not keeps_none else one for one in value)
        return Choice(options, options[0])
    if isinstance(value, Mapping):
        return _span(where, value)
    raise InputError(
        f"{where} must be a list of choices or {{low = …, high = …}}, not {value!r}; "
        "hold a value fixed with --fix"
    )


def _span(where: str, value: Mapping[str, Any]) -> Span:
    for key in value:
        if key not in _RANGE:
            raise InputError(f"{where}: {unknown('key', key, _RANGE)}")
    log, step = value.get("log", False), value.get("step")
    low: Any = value.get("low")
    high: Any = value.get("high")
    if not (_number(low) and _number(high) and (step is None or (_number(step) and step > 0))):
        raise InputError(f"{where} must have numbers as low and high, and a positive step if any")
    if low >= high or (log and low <= 0):
        least = "0 < low < high where log = true" if log else "low < high"
        raise InputError(f"{where} must have {least}, not {low} and {high}")
    if not isinstance(log, bool) or (log and step is not None):
        raise InputError(f"{where}: log is true or false, and goes without a step")
    return Span(low, high, log, step, start=low)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
