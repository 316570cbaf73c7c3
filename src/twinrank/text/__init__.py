"""Losses for text models: cross-encoders of sentence-transformers."""

from importlib.util import find_spec

from twinrank.support.errors import InputError

if find_spec("sentence_transformers") is None:  # the import takes seconds, so it comes later
    raise InputError("twinrank.text needs sentence-transformers: pip install 'twinrank[text]'")

from twinrank.text.cross_encoder import DirectRankingLoss

__all__ = ["DirectRankingLoss"]

for _name in __all__:  # model cards and tracebacks show the public path
    globals()[_name].__module__ = __name__
