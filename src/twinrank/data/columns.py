"""What each feature's values are like, in one pass."""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled


@compiled
def update(X: Any, low: Any, high: Any, zeros: Any, missing: Any, infinite: Any) -> None:
    """Carry each column's lowest and highest finite value; count zeros and what isn't finite."""
    for row in range(X.shape[0]):
        for column in range(X.shape[1]):
            value = X[row, column]
            if np.isfinite(value):
                low[column] = min(low[column], value)
                high[column] = max(high[column], value)
                zeros[column] += value == 0
            elif np.isnan(value):
                missing[column] += 1
            else:
                infinite[column] += 1
