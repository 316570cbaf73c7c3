"""A user's own objects by import path: `package.module:name`."""

import os
from importlib import import_module
from typing import Any

from twinrank.support.errors import Argument, InputError

VARIABLE = "TWINRANK_IMPORT"
"""Modules, separated by commas, that register measures and losses. Processes of a study import
them too."""


def imported(path: str, argument: str) -> Any:
    """The object at an import path; `argument` is what an error names."""
    module, _, name = path.partition(":")
    try:
        value: Any = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            Argument(argument, path),
            f" cannot be imported ({error}). Write package.module:name, and check that the package "
            f"is installed or on PYTHONPATH.",
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
