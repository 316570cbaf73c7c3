"""The versions that a result may depend on."""

import platform
from importlib.metadata import PackageNotFoundError, version

_ALTERNATIVES = {"xgboost": "xgboost-cpu"}  # packages that are published under two names


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, TwinRank, NumPy, numba and these packages."""
    names = dict.fromkeys(("twinrank", "numpy", "numba", *packages))
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return version(_ALTERNATIVES[name]) if name in _ALTERNATIVES else "unknown"
