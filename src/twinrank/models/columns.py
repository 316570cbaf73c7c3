"""A transform that leaves some columns unchanged: models need categories as they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.data.transforms import Transform
from twinrank.data.transforms.transform_base import Floats
from twinrank.lists import Lists


@dataclass(frozen=True)
class ExceptColumns(Transform):
    """A transform of all columns except some, which stay unchanged.

    It is saved as the inner transform: the model's configuration lists the columns.
    """

    inner: Transform
    columns: tuple[int, ...]

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "ExceptColumns":
        """Fit the inner transform."""
        return ExceptColumns(self.inner.fit_after(before, X, lists), self.columns)

    def check_features(self, features: int) -> None:
        """Check the inner transform."""
        self.inner.check_features(features)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Transform all columns, then restore the excepted ones."""
        columns = np.array(self.columns, np.int64)
        unchanged = x[:, columns]
        self.inner.apply(x, lists, out)
        out[:, columns] = unchanged

    @property
    def per_query(self) -> bool:  # type: ignore[override]
        """True if the inner transform works per query."""
        return self.inner.per_query

    def to_json(self) -> dict[str, Any]:
        """The inner transform as JSON."""
        return self.inner.to_json()

    def __str__(self) -> str:
        return str(self.inner)


def except_columns(transform: Transform, columns: Iterable[int]) -> Transform:
    """The transform, applied to all columns except these."""
    numbers = tuple(columns)
    return ExceptColumns(transform, numbers) if numbers else transform
