"""Combinations of transforms: one after the other, side by side, and for some columns only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms.transform_base import (
    Columns,
    Floats,
    Transform,
    apply_all,
    blocks_after,
    outputs_of,
    sources_of,
)
from twinrank.support.errors import InputError

_MOST_COLUMNS = 2**24
_BLOCK = 2**18
"""Values of a branch that are computed at a time; they fit into the processor's cache."""


@dataclass(frozen=True)
class _Combined(Transform):
    """What both combinations share: parts of the same kind are flattened."""

    transforms: tuple[Transform, ...] = ()

    def __post_init__(self) -> None:
        flat: list[Transform] = []
        for part in self.transforms:
            if not isinstance(part, Transform):
                raise InputError(
                    f"{type(self).__name__} needs Transform objects, not {part!r}; create them "
                    f"with transform()."
                )
            flat += part.transforms if isinstance(part, type(self)) else [part]
        object.__setattr__(self, "transforms", tuple(flat))

    @property
    def per_query(self) -> bool:  # type: ignore[override]
        """True if a part depends on the other documents of a list."""
        return any(part.per_query for part in self.transforms)

    @property
    def has_statistics(self) -> bool:
        """True if a part needs statistics of training data."""
        return any(part.has_statistics for part in self.transforms)

    def to_json(self) -> dict[str, Any]:
        """Return the parts as plain JSON."""
        parts = [part.to_json() for part in self.transforms]
        return {"name": type(self).__name__, "transforms": parts}

    def _check_columns(self, features: int) -> None:
        columns = self.outputs(features)
        if columns > max(_MOST_COLUMNS, features):
            raise InputError(
                f"The transforms make {columns} columns of {features} features; at most "
                f"{_MOST_COLUMNS} are possible. Leave some out."
            )


@dataclass(frozen=True)
class Compose(_Combined):
    """Transforms applied one after the other, written `SignedLog1p + QueryZScore`.

    Each is fitted on the output of those before it. Nested `Compose` objects are flattened. An
    empty `Compose` leaves features unchanged.
    """

    @property
    def keeps_missing(self) -> bool:  # type: ignore[override]
        """True if every step keeps missing values."""
        return all(step.keeps_missing for step in self.transforms)

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "Compose":
        """Fit each step in turn, in blocks of X, without a transformed copy of X."""
        fitted = list(before)
        for step in self.transforms:
            fitted.append(step.fit_after(fitted, X, lists))
        return Compose(tuple(fitted[len(before) :]))

    def check_features(self, features: int) -> None:
        """Check each step with the number of columns that it gets."""
        columns = features
        for step in self.transforms:
            step.check_features(columns)
            columns = step.outputs(columns)
        self._check_columns(features)

    def outputs(self, features: int) -> int:
        """Return the number of columns after the last step."""
        return outputs_of(self.transforms, features)

    def sources(self, features: int) -> Columns:
        """Return the feature from which each column comes."""
        return sources_of(self.transforms, features)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Apply the steps, in place where the number of columns allows it."""
        apply_all(self.transforms, x, lists, out)

    def __str__(self) -> str:
        steps = (f"({step})" if isinstance(step, Union) else str(step) for step in self.transforms)
        return " + ".join(steps) or "none"


@dataclass(frozen=True)
class Union(_Combined):
    """Transforms side by side, written `QueryZScore | SignedLog1p + Standardise`.

    Each branch gets the same features. The result has the columns of the first branch, then those
    of the second, and so on. Nested `Union` objects are flattened.

    >>> both = Union((Compose(), Compose()))
    >>> both(np.array([[1.0, 5.0]]), Lists.from_sizes([1]))
    array([[1., 5., 1., 5.]], dtype=float32)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.transforms:
            raise InputError("Union needs at least one transform.")

    @property
    def keeps_missing(self) -> bool:  # type: ignore[override]
        """True if a branch keeps missing values."""
        return any(branch.keeps_missing for branch in self.transforms)

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> Self:
        """Fit each branch on the same features."""
        fitted = tuple(branch.fit_after(before, X, lists) for branch in self.transforms)
        return type(self)(fitted)

    def check_features(self, features: int) -> None:
        """Check each branch."""
        for branch in self.transforms:
            branch.check_features(features)
        self._check_columns(features)

    def outputs(self, features: int) -> int:
        """Return the number of columns of all branches."""
        return sum(branch.outputs(features) for branch in self.transforms)

    def sources(self, features: int) -> Columns:
        """Return the feature from which each column comes, branch by branch."""
        return np.concatenate([branch.sources(features) for branch in self.transforms])

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Compute each branch in blocks of rows, and copy each block to its columns of `out`."""
        widths = [branch.outputs(x.shape[1]) for branch in self.transforms]
        ends = np.cumsum([0, *widths]).tolist()
        for branch, (low, high) in zip(self.transforms, pairwise(ends), strict=True):
            if branch == Compose():
                out[:, low:high] = x
                continue
            for begin, block in blocks_after([branch], x, lists, _BLOCK):
                out[begin : begin + len(block), low:high] = block

    def __str__(self) -> str:
        return " | ".join(map(str, self.transforms))


@dataclass(frozen=True)
class ExceptColumns(Transform):
    """A transform of all columns except some, which stay unchanged: models need categories so.

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
