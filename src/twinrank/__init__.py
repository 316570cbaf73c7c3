"""TwinRank: learning to rank on the metric you are judged by.

Exact ranks that carry a gradient: train directly on nDCG, AP, Precision, nERR or your own measure.
`__init__.pyi` lists the public names and their modules. They are imported on first use, since torch
and numba take seconds to load.
"""

import ast
from importlib import import_module

from twinrank.support.errors import needing_torch

__version__ = "0.1.0"

_stub = ast.parse(__loader__.get_data(f"{__path__[0]}/__init__.pyi"))
_imports = [node for node in _stub.body if isinstance(node, ast.ImportFrom)]
_modules = {alias.name: node.module for node in _imports for alias in node.names}
__all__ = sorted(name for name, module in _modules.items() if module is not None)


def __getattr__(name: str) -> object:
    """Import a public name, or a module that the stub imports as `from . import name`."""
    if name not in _modules:
        raise AttributeError(f"module 'twinrank' has no attribute {name!r}")
    module = _modules[name]
    if module is None:
        with needing_torch(f"twinrank.{name}"):
            return import_module(f"twinrank.{name}")
    with needing_torch(name):
        return getattr(import_module(f"twinrank.{module}"), name)


def __dir__() -> list[str]:
    return [*_modules, "__version__"]
