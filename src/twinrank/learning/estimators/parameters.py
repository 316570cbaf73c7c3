"""Parameters of estimators: from TOML and `key=value`, and as JSON in saved models."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from twinrank.core.measures import Measure
from twinrank.data.transforms import Transform
from twinrank.learning.models.architecture import Architecture, is_custom
from twinrank.learning.models.encoding import check_columns
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import read_toml
from twinrank.support.notation import Term

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

_PLAIN = (int, float, str, bool, NoneType, Sequence, dict, Mapping)


def parameters_of(
    estimator: type[Any], config: Path | None = None, settings: list[str] | None = None
) -> dict[str, Any]:
    """Parameters of an estimator: those of a TOML file, then those of `key=value` settings.

    A value is read as TOML (`0.5`, `true`, `["SignedLog1p", "QueryZScore"]`), and as text if that
    fails. TOML has no null: "none" is None, or no transform.
    """
    parameters: dict[str, Any] = {} if config is None else read_toml(config)
    parameters |= settings_of(settings or [])
    known = list(estimator().get_params())
    for key in parameters:
        if key not in known and not ("rankers" in parameters and "__" in key):
            raise InputError(unknown(f"parameter of {estimator.__name__}", key, known))
    return {key: _or_none(key, value) for key, value in parameters.items()}


def settings_of(settings: list[str]) -> dict[str, Any]:
    """Settings `key=value` as parameters of any estimator."""
    parameters: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write key=value.")
        parameters[key.strip()] = _or_none(key.strip(), _value(value.strip()))
    return parameters


def _or_none(key: str, value: Any) -> Any:
    none = isinstance(value, str) and value.strip().lower() == "none"
    return None if none and key.rpartition("__")[2] != "transforms" else value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def named_columns(ranker: "BaseRanker") -> tuple[int | str, ...]:
    """The columns of categories that the parameters name."""
    parameters = ranker.get_params()
    chosen: dict[int | str, None] = {}
    for key in ranker._named("categorical_features"):
        check_columns(parameters[key])
        chosen |= dict.fromkeys(parameters[key] or ())
    return tuple(chosen)


def own_net(ranker: "BaseRanker") -> Any:
    """The architecture of a user's own net, if the ranker has one."""
    parameters = ranker.get_params()
    chosen = [parameters[name] for name in ranker._named("architecture")]
    return next((own for own in chosen if is_custom(own)), None)


def saved_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON. A callable objective cannot be saved, and is left out."""
    plain = {name: _plain(value) for name, value in parameters.items()}
    architecture = plain.get("architecture")
    if architecture is not None and not isinstance(architecture, str):
        from twinrank.learning.models.ensemble import import_path

        plain["architecture"] = import_path(architecture)
    return {name: value for name, value in plain.items() if not callable(value)}


def loaded_parameters(provenance: Mapping[str, Any], estimator: type[Any]) -> dict[str, Any]:
    """The parameters that a saved model was trained with; keys are text in JSON.

    Values of other types than the estimator's annotations say raise InputError.
    """
    saved = provenance.get("parameters")
    if not isinstance(saved, dict):
        return {}
    known = estimator._get_param_names()
    parameters = {name: value for name, value in saved.items() if name in known}
    try:
        hints = get_type_hints(estimator.__init__)
    except (NameError, TypeError):  # a user's subclass
        hints = {}
    for name, value in parameters.items():
        if not _is_one_of(value, hints.get(name, Any)):
            raise InputError(f"Parameter {name} cannot be {value!r:.60}.")
    if isinstance(older := saved.get("categories"), dict):  # the name until 0.1
        columns = [int(column) for column in older if column.isdecimal()]
        parameters.setdefault("categorical_features", columns or None)
    return parameters


def _is_one_of(value: Any, hint: Any) -> bool:
    """True if a value from JSON fits an annotation; objects are saved as their names.

    >>> _is_one_of(3, float | str), _is_one_of([3], float | str), _is_one_of(True, int)
    (True, False, False)
    """
    if hint is Any:
        return value is None or isinstance(value, str | list | dict)
    kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    for kind in kinds:
        plain = get_origin(kind) or kind
        if plain in (int, float) and isinstance(value, int) and not isinstance(value, bool):
            return -(2**63) <= value < 2**64
        if plain is float and isinstance(value, float):
            return True
        if plain in (str, bool, NoneType) and type(value) is plain:
            return True
        if plain is Sequence and isinstance(value, list):
            inner = get_args(kind)[0]
            return all(_is_one_of(item, inner) for item in value)
        if plain in (dict, Mapping) and isinstance(value, dict):
            return True
    others = [kind for kind in kinds if (get_origin(kind) or kind) not in _PLAIN]
    return bool(others) and isinstance(value, str)


def _plain(value: Any) -> Any:
    if isinstance(value, Transform | Measure):
        return str(value)
    if isinstance(value, Architecture):
        return str(Term("MLP", asdict(value)))
    if hasattr(value, "check_parameters"):  # a ranker of a blend
        return {"kind": value.kind, **saved_parameters(value._parameters())}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
