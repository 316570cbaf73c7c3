"""TwinRank: learning to rank on the metric you are judged by.

Exact ranks that carry a gradient: train directly on nDCG, AP, Precision, nERR or your own measure.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twinrank.lists import Lists
    from twinrank.losses.direct import DirectLoss
    from twinrank.measures import Measure, measure
    from twinrank.ranks.exact import exact_ranks
    from twinrank.ranks.sigmoid import twin_sigmoid
    from twinrank.ranks.twin import twin_ranks
    from twinrank.support.errors import InputError, TwinRankError

__all__ = [
    "DirectLoss",
    "InputError",
    "Lists",
    "Measure",
    "TwinRankError",
    "exact_ranks",
    "measure",
    "twin_ranks",
    "twin_sigmoid",
]

_HOME = {
    "DirectLoss": "losses.direct",
    "InputError": "support.errors",
    "Lists": "lists",
    "Measure": "measures",
    "TwinRankError": "support.errors",
    "exact_ranks": "ranks.exact",
    "measure": "measures",
    "twin_ranks": "ranks.twin",
    "twin_sigmoid": "ranks.sigmoid",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch and numba take seconds to load."""
    if name not in _HOME:
        raise AttributeError(f"module 'twinrank' has no attribute {name!r}")
    return getattr(import_module(f"twinrank.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
