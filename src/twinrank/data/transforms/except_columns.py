"""A transform that leaves some columns unchanged: models need categories as they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms import Transform
from twinrank.data.transforms.transform_base import Columns, Floats


@dataclass(frozen=True)
class ExceptColumns(Transform):
    """A transform of all columns except some, which stay unchanged.

    An excepted column appears once in the result, and keeps its number. The other columns fill the
    remaining places in their order. It is saved as the inner transform: the model's configuration
    lists the columns.
    """

    inner: Transform
    columns: tuple[int, ...]

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "ExceptColumns":
        """Fit the inner transform."""
        return ExceptColumns(self.inner.fit_after(before, X, lists), self.columns)

    def check_features(self, features: int) -> None:
        """Check the inner transform."""
        self.inner.check_features(features)

    def outputs(self, features: int) -> int:
        """The columns of the other features, and one of each excepted feature."""
        if self.inner.outputs(features) == features:
            return features
        return self.transformed_columns(features).size + len(self.columns)

    def sources(self, features: int) -> Columns:
        """The feature from which each column comes."""
        sources = np.arange(self.outputs(features))
        sources[self._places(features)] = self.inner.sources(features)[
            self.transformed_columns(features)
        ]
        return sources

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Transform all columns, and put the excepted ones in their places."""
        columns, features = np.array(self.columns, np.int64), x.shape[1]
        unchanged = x[:, columns]
        if self.inner.outputs(features) == features:
            self.inner.apply(x, lists, out)
        else:
            whole = np.empty((len(x), self.inner.outputs(features)), np.float32)
            self.inner.apply(x, lists, whole)
            out[:, self._places(features)] = whole[:, self.transformed_columns(features)]
        out[:, columns] = unchanged

    def transformed_columns(self, features: int) -> Columns:
        """The columns of the inner transform's result that do not come from excepted ones."""
        return np.flatnonzero(~np.isin(self.inner.sources(features), self.columns))

    def _places(self, features: int) -> Columns:
        """The places of these columns in the result."""
        return np.delete(np.arange(self.outputs(features)), self.columns)

    @property
    def per_query(self) -> bool:  # type: ignore[override]
        """True if the inner transform works per query."""
        return self.inner.per_query

    @property
    def keeps_missing(self) -> bool:  # type: ignore[override]
        """True if the inner transform keeps missing values."""
        return self.inner.keeps_missing

    @property
    def has_statistics(self) -> bool:
        """True if the inner transform has statistics."""
        return self.inner.has_statistics

    def to_json(self) -> dict[str, Any]:
        """The inner transform as JSON."""
        return self.inner.to_json()

    def __str__(self) -> str:
        return str(self.inner)


def except_columns(transform: Transform, columns: Iterable[int]) -> Transform:
    """The transform, applied to all columns except these."""
    numbers = tuple(columns)
    return ExceptColumns(transform, numbers) if numbers else transform
