"""Codes of categories: learned from training data, and saved with the model."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset, with_features
from twinrank.data.from_frames import as_text
from twinrank.support.errors import Argument, InputError, unknown

MOST = 255
"""Categories of a column with a code of their own: the most frequent ones."""

_WHOLE = re.compile(r"0|[1-9][0-9]*")
Values = tuple[str, ...] | tuple[int, ...]
Merge = Callable[[dict[Any, int]], dict[Any, int]]


@dataclass(frozen=True)
class Encoding:
    """The known values of categorical columns, by number: texts, or whole numbers from 0 on.

    The code of a value is its place. Unknown and rare values share the next code, and missing ones
    (empty, NaN or below 0, such as the −1 of pandas' `cat.codes`) the one after it.

    >>> data = Dataset.from_arrays([[7.0], [2.0], [-1.0]], [0, 1, 0], group=[3])
    >>> encoding = Encoding.learned(data, (0,))
    >>> encoding.columns
    {0: (2, 7)}
    >>> encoding(Dataset.from_arrays([[7.0], [5.0], [-1.0]], group=[3])).X.ravel().tolist()
    [1.0, 2.0, 3.0]
    """

    columns: Mapping[int, Values] = field(default_factory=dict)

    @classmethod
    def learned(
        cls, data: Dataset, chosen: tuple[int, ...] = (), merge: Merge = lambda counts: counts
    ) -> "Encoding":
        """The encoding of training data: of its columns of text, and of the chosen ones.

        On a cluster, `merge` adds up the counts of a column's values over the workers.
        """
        columns = sorted({*chosen, *data.categories})
        return cls({column: _learned(data, column, column in chosen, merge) for column in columns})

    @property
    def counts(self) -> dict[int, int]:
        """The number of codes of each column: its values, unknown and missing."""
        return {column: len(values) + 2 for column, values in self.columns.items()}

    @property
    def texts(self) -> list[int]:
        """The columns whose values are texts."""
        return [c for c, values in self.columns.items() if any(isinstance(v, str) for v in values)]

    def __call__(self, data: Dataset) -> Dataset:
        """The data with codes in all categorical columns; without any, the data itself."""
        for column in data.categories:
            if column not in self.columns:
                raise InputError(
                    f"Feature {_name(data, column)} is text here, but the model was trained with "
                    f"numbers."
                )
        for column in self.texts:
            if column not in data.categories and (data.X[:, column] >= 0).any():
                name = _name(data, column)
                raise InputError(
                    f"Feature {name} is a number here, but the model was trained with text. Give "
                    f"the column the same type; to load a CSV file: ",
                    Argument("categorical_features", [name.strip("'")]),
                    ".",
                )
        if not self.columns:
            return data
        X = np.array(data.X)
        for column in self.columns:
            X[:, column] = self._codes(data, column)
        return with_features(data, X, data.feature_names)

    def _codes(self, data: Dataset, column: int) -> npt.NDArray[np.float32]:
        values = self.columns[column]
        known = {str(value): code for code, value in enumerate(values)}
        raw = data.X[:, column]
        _check_categories(data, column, np.isinf(raw))
        if column in data.categories:
            found, place = data.categories[column], np.fmax(raw, 0).astype(np.int64)
        else:
            numbers, place = np.unique(raw, return_inverse=True)
            found = tuple(map(as_text, numbers.tolist()))
        codes = np.array([known.get(text, len(values)) for text in found] or [0], np.float32)
        missing = np.isnan(raw) | (raw < 0)
        return np.where(missing, np.float32(len(values) + 1), codes[place])

    def to_json(self) -> dict[str, list[Any]]:
        """Plain JSON."""
        return {str(column): list(values) for column, values in self.columns.items()}

    @classmethod
    def from_json(cls, plain: Any, features: int) -> "Encoding":
        """The inverse of `to_json`; InputError for anything that it did not write."""
        if not isinstance(plain, dict):
            raise InputError("The encoding must be an object.")
        columns: dict[int, Values] = {}
        for key, values in plain.items():
            column = int(key) if key.isdecimal() and len(key) < 10 else features
            if column >= features or not isinstance(values, list):
                raise InputError(f"The encoding has no column {key!r} with a list of values.")
            kinds = {type(value) for value in values}
            if kinds not in (set(), {str}, {int}) or len(set(values)) < len(values) > 0:
                raise InputError(
                    f"The encoding of column {key} must list different texts or numbers."
                )
            columns[column] = tuple(values)
        return cls(columns)


def _learned(data: Dataset, column: int, is_chosen: bool, merge: Merge) -> Values:
    """The most frequent values of a column, sorted; texts of whole numbers, if it was chosen."""
    raw = data.X[:, column]
    _check_categories(data, column, np.isinf(raw) | ((raw >= 0) & (raw != np.trunc(raw))))
    found, counts = np.unique(raw[raw >= 0], return_counts=True)
    numbers = found.astype(np.int64).tolist()
    texts = data.categories.get(column)
    values: list[Any] = numbers if texts is None else [texts[number] for number in numbers]
    merged = merge(dict(zip(values, counts.tolist(), strict=True)))
    if texts is not None and is_chosen and all(map(_WHOLE.fullmatch, merged)):
        merged = {int(text): count for text, count in merged.items()}
    by_count = sorted((-count, value) for value, count in merged.items())
    return tuple(sorted(value for _, value in by_count[:MOST]))


def _check_categories(data: Dataset, column: int, wrong: npt.NDArray[np.bool_]) -> None:
    """Refuse values that are no categories."""
    if wrong.any():
        raise InputError(
            f"Feature {_name(data, column)} is {data.X[wrong, column][0]:g} in a row, but a "
            f"category must be text or a whole number of at least 0, or missing."
        )


def _name(data: Dataset, column: int) -> str:
    names = data.feature_names
    return str(column + 1) if names is None else repr(names[column])


def columns_of(chosen: Any, features: int, names: tuple[str, ...] | None) -> tuple[int, ...]:
    """The numbers of columns, from column numbers (from 0) or names."""
    check_columns(chosen)
    if chosen is None:
        return ()
    return tuple(sorted({_column(column, features, names or ()) for column in chosen}))


def check_columns(chosen: Any) -> None:
    """Refuse anything but a list of column numbers and names."""
    if chosen is None:
        return
    if isinstance(chosen, str | int | Mapping) or not hasattr(chosen, "__iter__"):
        raise InputError(f"categorical_features must be a list of columns, not {chosen!r}.")
    for column in chosen:
        whole = isinstance(column, int | np.integer) and not isinstance(column, bool)
        if not isinstance(column, str) and not whole:
            raise InputError(
                f"categorical_features must list columns by number or name, not {column!r}."
            )


def _column(column: Any, features: int, names: tuple[str, ...]) -> int:
    if isinstance(column, str):
        if column not in names:
            raise InputError(unknown("feature", column, names))
        return names.index(column)
    if not 0 <= column < features:
        raise InputError(
            f"categorical_features has column {column}, but X has {features} features: columns "
            f"are 0 to {features - 1}."
        )
    return int(column)
