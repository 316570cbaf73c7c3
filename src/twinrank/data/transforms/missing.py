"""Columns that say which values are missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms.transform_base import (
    Columns,
    Floats,
    Transform,
    blocks_after,
    outputs_of,
)
from twinrank.support.errors import InputError


@dataclass(frozen=True)
class MissingIndicator(Transform):
    """1 where a value is missing, 0 elsewhere, for features with missing training values.

    A feature without missing values in the training data gets no column, as in scikit-learn's
    `MissingIndicator(features="missing-only")`. Write it beside a transform of the values:
    `Standardise | MissingIndicator`.

    >>> lists = Lists.from_sizes([2])
    >>> fitted = MissingIndicator().fit(np.array([[1.0, 2.0], [np.nan, 3.0]]), lists)
    >>> fitted(np.array([[np.nan, 2.0], [4.0, np.nan]]), lists)
    array([[1.],
           [0.]], dtype=float32)
    """

    missing_: tuple[bool, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.missing_ is None:
            return
        if not isinstance(self.missing_, list | tuple) or not all(
            isinstance(value, bool) for value in self.missing_
        ):
            raise InputError(
                f"The statistics of MissingIndicator must be a list of booleans, not "
                f"{self.missing_!r:.80}."
            )
        object.__setattr__(self, "missing_", tuple(self.missing_))

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "MissingIndicator":
        """Find the features with missing values, after the transforms `before`."""
        missing = np.zeros(outputs_of(before, X.shape[1]), np.bool_)
        for _, block in blocks_after(before, X, lists):
            missing |= np.isnan(block).any(axis=0)
        return MissingIndicator(tuple(missing.tolist()))

    def outputs(self, features: int) -> int:
        """Return the number of features with missing values."""
        return self.sources(features).size

    def sources(self, features: int) -> Columns:
        """Return the features with missing values."""
        self.check_features(features)
        return np.flatnonzero(self.missing_ or ())

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:  # noqa: ARG002
        """Compare with NumPy."""
        out[:] = np.isnan(x[:, self.sources(x.shape[1])])
