"""Parameters of an estimator as plain values: for training, and for a saved model."""

from dataclasses import asdict
from typing import Any

import numpy as np

from twinrank.data.transforms import Transform
from twinrank.measures import Measure
from twinrank.support.errors import InputError
from twinrank.support.notation import Term


def checked_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters as training takes them."""
    found = {**given}
    if "categories" in given:
        found["categories"] = _categories(given["categories"])
    if isinstance(given["validation_measure"], Measure):
        found["validation_measure"] = str(given["validation_measure"])
    return found


def saved_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters in JSON types; a callable objective can't be one, and is left out."""
    found = {name: _plain(value) for name, value in given.items()}
    return {name: value for name, value in found.items() if not callable(value)}


def loaded_parameters(provenance: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """The parameters that a saved model was trained with; JSON has text for keys."""
    saved = provenance.get("parameters")
    if not isinstance(saved, dict):
        return {}
    found = {name: value for name, value in saved.items() if name in known}
    if "categories" in found:
        found["categories"] = _categories(found["categories"])
    return found


def _plain(value: Any) -> Any:
    from twinrank.models.architecture import Architecture

    if isinstance(value, Transform | Measure):
        return str(value)
    if isinstance(value, Architecture):
        return str(Term("MLP", asdict(value)))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _categories(given: Any) -> dict[int, int] | None:
    if given is None:
        return None
    try:
        return {int(column): int(count) for column, count in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"categories must give the number of categories by column, such as {{3: 12}}, "
            f"not {given!r}"
        ) from error
