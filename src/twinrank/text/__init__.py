"""Losses and evaluators for text models: cross-encoders and bi-encoders of sentence-transformers.

Public names are imported on first use, since sentence-transformers takes seconds to load.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from twinrank.support.errors import InputError

if find_spec("sentence_transformers") is None:
    raise InputError("twinrank.text needs sentence-transformers: pip install 'twinrank[text]'")

if TYPE_CHECKING:
    from twinrank.text.bi_encoder import DirectRetrievalLoss, RetrievalCollator
    from twinrank.text.cross_encoder import DirectRankingLoss
    from twinrank.text.evaluators import Evaluator, RetrievalEvaluator

__all__ = [
    "DirectRankingLoss",
    "DirectRetrievalLoss",
    "Evaluator",
    "RetrievalCollator",
    "RetrievalEvaluator",
]

_MODULES = {
    "DirectRankingLoss": "cross_encoder",
    "DirectRetrievalLoss": "bi_encoder",
    "Evaluator": "evaluators",
    "RetrievalCollator": "bi_encoder",
    "RetrievalEvaluator": "evaluators",
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'twinrank.text' has no attribute {name!r}")
    public = getattr(import_module(f"twinrank.text.{_MODULES[name]}"), name)
    public.__module__ = __name__  # model cards and tracebacks show the public path
    return public


def __dir__() -> list[str]:
    return __all__
