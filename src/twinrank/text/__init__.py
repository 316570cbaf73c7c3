"""Text models: losses and evaluators for sentence-transformers, and readers of text data."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from twinrank.support.errors import InputError

if find_spec("sentence_transformers") is None:  # the import takes seconds, so it comes later
    raise InputError(
        "twinrank.text needs sentence-transformers; install it with pip install 'twinrank[text]'."
    )

from twinrank.text.cross_encoder import DirectRankingLoss, DistillRankingLoss
from twinrank.text.text_data import TextCollection, bm25_candidates, columns_from_frame, read_beir

if TYPE_CHECKING:
    from twinrank.text.bi_encoder import DirectRetrievalLoss, RetrievalCollator
    from twinrank.text.evaluators import Evaluator, RetrievalEvaluator

__all__ = [
    "DirectRankingLoss",
    "DirectRetrievalLoss",
    "DistillRankingLoss",
    "Evaluator",
    "RetrievalCollator",
    "RetrievalEvaluator",
    "TextCollection",
    "bm25_candidates",
    "columns_from_frame",
    "read_beir",
]

_SUBCLASSES = {  # of classes of sentence-transformers; imported on first use
    "DirectRetrievalLoss": "bi_encoder",
    "Evaluator": "evaluators",
    "RetrievalCollator": "bi_encoder",
    "RetrievalEvaluator": "evaluators",
}

for _name in set(__all__) - set(_SUBCLASSES):  # model cards and tracebacks show the public path
    globals()[_name].__module__ = __name__


def __getattr__(name: str) -> Any:
    """Import a subclass of a class of sentence-transformers."""
    if name not in _SUBCLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = getattr(import_module(f"{__name__}.{_SUBCLASSES[name]}"), name)
    public.__module__ = __name__
    return public


def __dir__() -> list[str]:
    return __all__
