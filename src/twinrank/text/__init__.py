"""Text models: losses for cross-encoders of sentence-transformers, and readers of text data."""

from importlib.util import find_spec

from twinrank.support.errors import InputError

if find_spec("sentence_transformers") is None:  # the import takes seconds, so it comes later
    raise InputError("twinrank.text needs sentence-transformers: pip install 'twinrank[text]'")

from twinrank.text.bm25 import bm25_candidates
from twinrank.text.cross_encoder import DirectRankingLoss
from twinrank.text.text_data import TextCollection, columns_from_frame
from twinrank.text.text_files import read_beir, read_scifact, read_wikiqa
from twinrank.text.text_teacher import DistillRankingLoss

__all__ = [
    "DirectRankingLoss",
    "DistillRankingLoss",
    "TextCollection",
    "bm25_candidates",
    "columns_from_frame",
    "read_beir",
    "read_scifact",
    "read_wikiqa",
]

for _name in __all__:  # model cards and tracebacks show the public path
    globals()[_name].__module__ = __name__
