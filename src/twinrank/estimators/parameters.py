"""An estimator's own parameters from a TOML file or key=value, unknown ones refused."""

import inspect
import tomllib
from pathlib import Path
from typing import Any

from twinrank.support.errors import InputError, unknown
from twinrank.support.files import read_toml


def parameters_of(
    estimator: type, config: Path | None = None, settings: list[str] | None = None
) -> dict[str, Any]:
    """Parameters of an estimator: those of a TOML file, then those of `key=value` settings.

    A value is read as TOML (`0.5`, `true`, `["SignedLog1p", "QueryZScore"]`), and as text where
    that fails; "none" is nothing, which TOML has no word for, or no transform.
    """
    found: dict[str, Any] = {}
    if config is not None:
        found = read_toml(config)
    found |= settings_of(settings or [])
    known = list(inspect.signature(estimator).parameters)
    for key in found:
        if key not in known:
            raise InputError(unknown(f"parameter of {estimator.__name__}", key, known))
    return {key: _or_none(key, value) for key, value in found.items()}


def settings_of(settings: list[str]) -> dict[str, Any]:
    """Settings `key=value` as parameters, of whatever estimator."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write key=value")
        found[key.strip()] = _or_none(key.strip(), _value(value.strip()))
    return found


def _or_none(key: str, value: Any) -> Any:
    said = isinstance(value, str) and value.strip().lower() == "none"
    return None if said and key != "transforms" else value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
