"""Columns that a transform leaves alone: a category's number must reach the net as it is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.data.transforms import Transform
from twinrank.data.transforms.transform_base import Floats
from twinrank.lists import Lists


@dataclass(frozen=True)
class Apart(Transform):
    """A transform of all columns but some, which stay as they are.

    It is saved as the transform within: a model's categories tell which columns are meant.
    """

    within: Transform
    columns: tuple[int, ...]

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "Apart":
        """Fit the transform within."""
        return Apart(self.within.fit_after(before, X, lists), self.columns)

    def check_features(self, features: int) -> None:
        """What the transform within checks."""
        self.within.check_features(features)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Transform everything, then put the columns back."""
        kept = x[:, np.array(self.columns, np.int64)]
        self.within.apply(x, lists, out)
        out[:, np.array(self.columns, np.int64)] = kept

    @property
    def per_query(self) -> bool:  # type: ignore[override]
        """As the transform within."""
        return self.within.per_query

    def to_json(self) -> dict[str, Any]:
        """The transform within."""
        return self.within.to_json()

    def __str__(self) -> str:
        return str(self.within)


def apart(transform: Transform, columns: Iterable[int]) -> Transform:
    """The transform, kept away from these columns."""
    numbers = tuple(columns)
    return Apart(transform, numbers) if numbers else transform
