"""A user's own objects by import path: `package.module:name`."""

import os
from importlib import import_module
from typing import Any

from twinrank.support.errors import InputError

VARIABLE = "TWINRANK_IMPORT"
"""Modules, separated by commas, that register measures and losses. Processes of a study import
them too."""


def imported(path: str, what: str) -> Any:
    """The object at an import path; `what` is what an error names."""
    module, _, name = path.partition(":")
    try:
        value: Any = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"The {what} {path!r} cannot be imported ({error}). Write package.module:name, and "
            f"check that the package is installed or on PYTHONPATH."
        ) from error
    return value


def import_registered() -> None:
    """Import the modules in TWINRANK_IMPORT, which register a user's own measures and losses."""
    for module in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            import_module(module)
        except ImportError as error:
            raise InputError(
                f"{VARIABLE} names {module!r}, which cannot be imported ({error})."
            ) from error
