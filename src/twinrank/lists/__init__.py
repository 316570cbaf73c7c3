"""Lists: a ragged batch of queries, each with its documents, as offsets into flat arrays."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.lists.per_list import Ints, PerList, frozen
from twinrank.support.arrays import Array, is_tensor, to_numpy
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import torch


class Lists(PerList):
    """Which documents of a flat array belong together: list q holds offsets[q] … offsets[q+1] − 1.

    Every score, label or rank in the library is a flat array with one entry per document, and a
    `Lists` says where one query's documents end. Lists may have any length, zero included.

    >>> lists = Lists.from_sizes([2, 3])
    >>> lists
    Lists(2 lists, 5 documents, longest 3)
    >>> lists.sum(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    array([ 3., 12.])
    """

    __slots__ = ()

    def __init__(self, offsets: Array) -> None:
        values = _whole_numbers(offsets, "offsets")
        if values.size == 0 or values[0] != 0:
            raise InputError(
                "offsets must start with 0 and hold one more entry than there are lists"
            )
        sizes = np.diff(values)
        if sizes.size and sizes.min() < 0:
            q = int(sizes.argmin())
            raise InputError(
                f"offsets must not decrease: offsets[{q}] = {values[q]}, "
                f"offsets[{q + 1}] = {values[q + 1]}"
            )
        object.__setattr__(self, "offsets", frozen(values))
        object.__setattr__(self, "sizes", frozen(sizes))
        object.__setattr__(self, "documents", int(values[-1]))
        object.__setattr__(self, "longest", int(sizes.max(initial=0)))
        for name in ("_derived", "_on_device"):  # what is computed at its first use
            object.__setattr__(self, name, {})

    @classmethod
    def from_offsets(cls, offsets: Array) -> "Lists":
        """Lists from CSR-style offsets: 0, end of list 0, end of list 1, …, number of documents."""
        return cls(offsets)

    @classmethod
    def from_sizes(cls, sizes: Array) -> "Lists":
        """Lists from the number of documents in each, LightGBM's `group`."""
        values = _whole_numbers(sizes, "sizes")
        if (bad := np.flatnonzero(values < 0)).size:
            raise InputError(f"sizes must not be negative: sizes[{bad[0]}] = {values[bad[0]]}")
        return cls(np.concatenate([[0], np.cumsum(values)]))

    @classmethod
    def from_qid(cls, qid: Array) -> "Lists":
        """Lists from one query id per document; a query's documents must be adjacent.

        >>> Lists.from_qid(["shoes", "shoes", "hats"]).sizes
        array([2, 1])
        """
        values, starts = query_runs(qid)
        unique, first = np.unique(values[starts], return_index=True)
        if unique.size < starts.size:
            again = int(starts[np.setdiff1d(np.arange(starts.size), first)[0]])
            raise InputError(
                f"documents of a query must be adjacent, but query {values[again]} starts again "
                f"at document {again}; sort first: order = np.argsort(qid, kind='stable')"
            )
        return cls(np.r_[starts, values.size])

    @classmethod
    def from_mask(cls, mask: Array) -> "Lists":
        """Lists from a padded batch's [lists, documents] mask, True where there is a document.

        `x[mask]` is the flat array that belongs to them.
        """
        values = to_numpy(mask.cpu() if is_tensor(mask) else mask)
        if values.ndim != 2 or values.dtype != np.bool_:
            raise InputError(
                f"mask must be boolean with shape (lists, documents), "
                f"not {values.dtype} with shape {values.shape}"
            )
        return cls.from_sizes(values.sum(axis=1))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Lists are immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Lists are immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Lists, (self.offsets,)

    def __iter__(self) -> Iterator[slice]:
        """Slices of the flat arrays, one per list."""
        ends = self.offsets.tolist()
        return (slice(start, end) for start, end in pairwise(ends))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lists) and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash(self.offsets.tobytes())

    def __repr__(self) -> str:
        return f"Lists({len(self)} lists, {self.documents} documents, longest {self.longest})"

    def list_of(self, document: int) -> int:
        """The number of the list that a document belongs to."""
        return int(np.searchsorted(self.offsets, document, side="right")) - 1

    def tile(self, times: int) -> "Lists":
        """The same lists, `times` times over: what S flat arrays laid end to end belong to."""
        if times == 1:
            return self
        if times not in self._derived:
            self._derived[times] = Lists.from_sizes(np.tile(self.sizes, times))
        return self._derived[times]  # type: ignore[no-any-return]

    def to(self, device: "torch.device | str") -> "Lists":
        """Copy the offsets to a device now; otherwise the first use there does."""
        import torch

        self._tensors(torch.empty(0, device=device))
        return self


def query_runs(qid: Array) -> tuple[Any, Ints]:
    """Query ids as an array, none of them missing, and where each run of equal ids begins."""
    values = to_numpy(qid.cpu() if is_tensor(qid) else qid)
    if values.ndim != 1:
        raise InputError(f"qid must have one dimension, but has shape {values.shape}")
    if values.dtype.kind == "O":
        values = _as_strings(values)
    if (missing := np.flatnonzero(values != values)).size:  # NaN, NaT
        raise InputError(f"qid of document {missing[0]} is missing ({values[missing[0]]})")
    return values, np.flatnonzero(np.r_[True, values[1:] != values[:-1]][: values.size])


def check_lists(lists: object) -> None:
    """Refuse sizes, query ids or anything else where Lists are due."""
    if not isinstance(lists, Lists):
        raise InputError(
            f"lists must be Lists, made by Lists.from_sizes(sizes) or Lists.from_qid(qid), "
            f"not {type(lists).__name__}"
        )


def _as_strings(values: Any) -> Any:
    """Query ids of mixed or unknown types as text, none of them missing."""
    for i, value in enumerate(values):
        if value is None or str(value) in ("nan", "NaT", "<NA>"):
            raise InputError(f"qid of document {i} is missing ({value})")
    return values.astype(str)


def _whole_numbers(values: Array, name: str) -> Ints:
    array = to_numpy(values.cpu() if is_tensor(values) else values)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, but has shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, not {array.dtype}")
    return array.astype(np.int64)
