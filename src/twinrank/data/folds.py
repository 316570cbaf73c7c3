"""Folds: training, validation and test data of one part of a cross-validation."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

    Parts = tuple[Dataset, Dataset | None, Dataset]

Ints = npt.NDArray[np.int64]


class Fold:
    """Training, validation and test data of one fold, loaded at first use.

    Returned by `twinrank.load_folds` and `Dataset.folds`.

    Parameters
    ----------
    name : str
        The name of the fold, such as "Fold1".
    parts : callable
        A function without parameters that returns the three datasets.

    Examples
    --------
    >>> train, validation, test = fold                                           # doctest: +SKIP
    """

    def __init__(self, name: str, parts: "Callable[[], Parts]") -> None:
        self.name = name
        self._load = parts

    @cached_property
    def _parts(self) -> "Parts":
        return self._load()

    @property
    def train(self) -> "Dataset":
        """Training data."""
        return self._parts[0]

    @property
    def validation(self) -> "Dataset | None":
        """Validation data, or None if the fold has none."""
        return self._parts[1]

    @property
    def test(self) -> "Dataset":
        """Test data."""
        return self._parts[2]

    def __iter__(self) -> "Iterator[Dataset | None]":
        return iter(self._parts)

    def __repr__(self) -> str:
        return f"Fold({self.name!r})"


def cut(queries: int, shares: Sequence[float], random_state: int) -> list[Ints]:
    """Return random query numbers for each share, sorted within each part."""
    numbers = [float(share) for share in shares if isinstance(share, Real)]
    total = sum(numbers)
    if not shares or len(numbers) < len(shares) or not (min(numbers) > 0 and total <= 1 + 1e-9):
        raise InputError(
            f"shares must be positive numbers with a sum of at most 1, such as split(0.8, 0.1), "
            f"not {shares}."
        )
    bounds = np.round(np.cumsum(numbers) * queries).astype(np.int64).tolist()
    if total < 1 - 1e-9:
        bounds.append(queries)
    order = np.random.default_rng(random_state).permutation(queries)
    parts = np.split(order, bounds[:-1])
    if any(part.size == 0 for part in parts):
        raise InputError(
            f"{counted(queries, 'query')} cannot be cut into the shares {shares}: a part would be "
            f"empty. Use more queries, or pass each part, such as the validation data, itself."
        )
    return [np.sort(part) for part in parts]


def rotate(queries: int, k: int, random_state: int) -> list[tuple[Ints, Ints, Ints]]:
    """Return query numbers (train, validation, test) for each of k folds."""
    if not 3 <= k <= queries:
        raise InputError(
            f"{counted(queries, 'query')} cannot be cut into {k} folds; choose from 3 to as many "
            f"folds as queries."
        )
    order = np.random.default_rng(random_state).permutation(queries)
    part_of = np.empty(queries, np.int64)
    part_of[order] = np.arange(queries) % k
    folds = []
    for i in range(k):
        test, validation = part_of == i, part_of == (i + 1) % k
        masks = (~(test | validation), validation, test)
        folds.append(tuple(np.flatnonzero(mask) for mask in masks))
    return folds  # type: ignore[return-value]
