"""Lists: a ragged batch of queries as offsets into flat arrays.

Internal: import public names from `twinrank`.
"""

import weakref
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.core.lists.per_list import PerList, frozen
from twinrank.support.arrays import Array, Ints, handle_for, is_tensor, to_numpy
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import torch


class Lists(PerList):
    """Which documents of a flat array belong together: list q has offsets[q] … offsets[q+1] − 1.

    Scores, labels and ranks are flat arrays with one entry per document. A `Lists` says where the
    documents of each query begin and end. Lists may have any length, also 0. Use `from_sizes`,
    `from_qid`, `from_offsets` or `from_mask` to create one.

    Parameters
    ----------
    offsets : array of int, shape (n_lists + 1,)
        0, end of list 0, end of list 1, …, number of documents.

    Attributes
    ----------
    offsets : array of int64, shape (n_lists + 1,)
        The offsets, read-only.
    sizes : array of int64, shape (n_lists,)
        Number of documents of each list.
    documents : int
        Number of documents of all lists.
    longest : int
        Length of the longest list.

    Raises
    ------
    InputError
        If the offsets do not start with 0 or decrease.

    Examples
    --------
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
                "offsets must start with 0 and hold one more entry than there are lists."
            )
        sizes = np.diff(values)
        if sizes.size and sizes.min() < 0:
            q = int(sizes.argmin())
            raise InputError(
                f"offsets must not decrease: offsets[{q}] = {values[q]}, "
                f"offsets[{q + 1}] = {values[q + 1]}."
            )
        object.__setattr__(self, "offsets", frozen(values))
        object.__setattr__(self, "sizes", frozen(sizes))
        object.__setattr__(self, "documents", int(values[-1]))
        object.__setattr__(self, "longest", int(sizes.max(initial=0)))
        object.__setattr__(self, "count", len(sizes))
        object.__setattr__(self, "handle", handle_for(self))
        for name in ("_derived", "_on_device"):  # computed at their first use
            object.__setattr__(self, name, {})

    @classmethod
    def from_offsets(cls, offsets: Array) -> "Lists":
        """Create lists from CSR-style offsets.

        Parameters
        ----------
        offsets : array of int, shape (n_lists + 1,)
            0, end of list 0, end of list 1, …, number of documents.

        Returns
        -------
        Lists
        """
        return cls(offsets)

    @classmethod
    def from_sizes(cls, sizes: Array) -> "Lists":
        """Create lists from the number of documents of each, as LightGBM's `group`.

        Parameters
        ----------
        sizes : array of int, shape (n_lists,)
            Number of documents of each list.

        Returns
        -------
        Lists
        """
        values = _whole_numbers(sizes, "sizes")
        if (bad := np.flatnonzero(values < 0)).size:
            raise InputError(f"sizes must not be negative: sizes[{bad[0]}] = {values[bad[0]]}.")
        return cls(np.concatenate([[0], np.cumsum(values)]))

    @classmethod
    def from_qid(cls, qid: Array) -> "Lists":
        """Create lists from one query id per document.

        Parameters
        ----------
        qid : array of int or str, shape (n_documents,)
            Query of each document. The documents of a query must be adjacent.

        Returns
        -------
        Lists

        Raises
        ------
        InputError
            If the documents of a query are not adjacent, or an id is missing.

        Examples
        --------
        >>> Lists.from_qid(["shoes", "shoes", "hats"]).sizes
        array([2, 1])
        """
        values, starts = query_runs(qid)
        unique, first = np.unique(values[starts], return_index=True)
        if unique.size < starts.size:
            again = int(starts[np.setdiff1d(np.arange(starts.size), first)[0]])
            raise InputError(
                f"The documents of a query must be adjacent, but query {values[again]} starts "
                f"again at document {again}; sort first: order = np.argsort(qid, kind='stable')."
            )
        return cls(np.r_[starts, values.size])

    @classmethod
    def from_mask(cls, mask: Array) -> "Lists":
        """Create lists from the mask of a padded batch; `x[mask]` is the flat array.

        Parameters
        ----------
        mask : array or tensor of bool, shape (n_lists, longest)
            True where there is a document.

        Returns
        -------
        Lists
        """
        values = to_numpy(mask.cpu() if is_tensor(mask) else mask)
        if values.ndim != 2 or values.dtype != np.bool_:
            raise InputError(
                f"mask must be boolean with shape (lists, documents), "
                f"not {values.dtype} with shape {values.shape}."
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
        """The number of the list of a document.

        Parameters
        ----------
        document : int
            Place of the document in the flat array.

        Returns
        -------
        int
        """
        return int(np.searchsorted(self.offsets, document, side="right")) - 1

    def tile(self, times: int) -> "Lists":
        """The same lists repeated, for flat arrays that are concatenated.

        Parameters
        ----------
        times : int
            Number of repetitions.

        Returns
        -------
        Lists
        """
        if times == 1:
            return self
        if times not in self._derived:
            self._derived[times] = tiled = Lists.from_sizes(np.tile(self.sizes, times))
            tiled._derived["tiled"] = weakref.ref(self), times
        return self._derived[times]  # type: ignore[no-any-return]

    def to(self, device: "torch.device | str") -> "Lists":
        """Copy the offsets to a device now instead of at their first use there.

        Parameters
        ----------
        device : torch.device or str
            The device.

        Returns
        -------
        Lists
            The same object.
        """
        import torch

        self._tensors(torch.empty(0, device=device).device)
        return self


def query_runs(qid: Array) -> tuple[Any, Ints]:
    """Query ids as an array without missing ids, and the start of each run of equal ids."""
    if isinstance(qid, list | tuple) and any(isinstance(value, str) for value in qid):
        qid = np.array([*qid, None], object)[:-1]  # NumPy's text loses NUL characters at the end
    values = to_numpy(qid.cpu() if is_tensor(qid) else qid)
    if values.ndim != 1:
        raise InputError(f"qid must have one dimension, but has shape {values.shape}.")
    if values.dtype.kind == "O":
        values = _as_strings(values)
    if values.dtype.kind != "O" and (missing := np.flatnonzero(values != values)).size:  # NaN, NaT
        raise InputError(f"qid of document {missing[0]} is missing ({values[missing[0]]}).")
    return values, np.flatnonzero(np.r_[True, values[1:] != values[:-1]][: values.size])


def check_lists(lists: object) -> None:
    """Raise an error unless `lists` is a `Lists`."""
    if not isinstance(lists, Lists):
        raise InputError(
            f"lists must be Lists, made by Lists.from_sizes(sizes) or Lists.from_qid(qid), "
            f"not {type(lists).__name__}."
        )


def _as_strings(values: Any) -> Any:
    """Query ids of mixed or unknown types as text; raise an error if one is missing."""
    for i, value in enumerate(values):
        if not isinstance(value, str) and str(value) in ("None", "nan", "NaT", "<NA>"):
            raise InputError(f"qid of document {i} is missing ({value}).")
    # One long id would make all ids as long in an array of NumPy's text.
    return np.array([*map(str, values), None], object)[:-1]


def _whole_numbers(values: Array, name: str) -> Ints:
    array = to_numpy(values.cpu() if is_tensor(values) else values)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, but has shape {array.shape}.")
    whole = array.dtype.kind == "f" and bool((array == np.rint(array)).all())
    if whole and (np.abs(array) < 2**53).all():  # as np.loadtxt reads them
        return array.astype(np.int64)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, not {array.dtype}.")
    return array.astype(np.int64)


def flat_input(
    scores: Array, labels: Array, lists: Lists | None, mask: Array | None, name: str = "labels"
) -> tuple[Array, Array, Lists]:
    """Convert flat or padded input to flat input; raise an error if it does not fit together.

    `name` is that of the second array in messages.
    """
    if scores.shape != labels.shape:
        raise InputError(
            f"scores has shape {tuple(scores.shape)} but {name} has shape {tuple(labels.shape)}; "
            f"both need one entry per document."
        )
    if scores.ndim == 2 and lists is None:
        if mask is None:
            return scores.reshape(-1), labels.reshape(-1), _equal_lists(*scores.shape)
        if mask.shape != scores.shape:
            raise InputError(
                f"mask has shape {tuple(mask.shape)} but scores has shape {tuple(scores.shape)}; "
                f"both must be the same."
            )
        lists = Lists.from_mask(mask)  # raises an error if the mask is not boolean
        return _selected(scores, mask), _selected(labels, mask), lists
    if scores.ndim != 1 or mask is not None:
        raise InputError(
            f"Pass flat scores with lists, or padded (lists, documents) scores with a mask; "
            f"got scores {tuple(scores.shape)}, lists {lists!r}"
            f"{'' if mask is None else f' and mask {tuple(mask.shape)}'}."
        )
    if lists is None:
        raise InputError(
            "Flat scores need lists, which say where each query ends: Lists.from_qid(qid), "
            "Lists.from_sizes(sizes), or Lists.from_sizes([len(scores)]) for a single query."
        )
    check_lists(lists)
    lists.check(**{"scores": scores, name: labels})
    return scores, labels, lists


@lru_cache(16)
def _equal_lists(count: int, size: int) -> Lists:
    """Lists of the same size; kept, because they may have been copied to a GPU."""
    return Lists.from_sizes([size] * count)


def _selected(x: Array, mask: Array) -> Array:
    """The values where a mask is True. With a mask on the CPU, a GPU does not wait."""
    if not is_tensor(x) or not is_tensor(mask) or mask.device.type != "cpu":
        return x[mask]
    places = mask.reshape(-1).nonzero()[:, 0]
    return x.reshape(-1)[places.to(x.device, non_blocking=True)]
