"""Callbacks for `fit`: `Callback` is the base class of your own.

`fit(run=…)` raises `TrainingInterrupted` after Ctrl-C or SIGTERM.
"""

from twinrank.learning.training.callbacks import (
    Callback,
    EarlyStopping,
    HistoryFile,
    TensorBoard,
    TrainingInterrupted,
)

__all__ = ["Callback", "EarlyStopping", "HistoryFile", "TensorBoard", "TrainingInterrupted"]
