"""Callbacks for `fit`: `Callback` is the base class of your own.

The other modules of this package are internal. They are imported when first used.
"""

from twinrank.training.callbacks import (
    Callback,
    EarlyStopping,
    HistoryFile,
    TensorBoard,
)

__all__ = ["Callback", "EarlyStopping", "HistoryFile", "TensorBoard"]
