"""Arithmetic per list on flat arrays: sums, scans, sorts, rank order."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.support.arrays import (
    Array,
    Ints,
    as_float,
    from_numpy,
    is_tensor,
    namespace,
    on_cpu,
    to_numpy,
)
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import torch


class PerList:
    """Base of `Lists`: arithmetic per list on arrays and tensors, in double precision."""

    __slots__ = (
        "__weakref__",
        "_derived",
        "_on_device",
        "count",
        "documents",
        "handle",
        "longest",
        "offsets",
        "sizes",
    )

    offsets: Ints
    """0, end of list 0, end of list 1, …"""
    sizes: Ints
    """The number of documents in each list."""
    documents: int
    """The number of documents in all lists together."""
    longest: int
    """The length of the longest list."""
    count: int
    """The number of lists, as `len`, for torch.compile."""
    handle: int
    """The number of this object, see `support/arrays.py`."""
    _derived: dict[Any, Any]
    _on_device: "dict[torch.device, tuple[torch.Tensor, torch.Tensor]]"

    def __len__(self) -> int:
        return len(self.sizes)

    def check(self, **arrays: Array) -> None:
        """Raise an error for arrays that do not have one entry per document.

        Parameters
        ----------
        **arrays : array or tensor
            The arrays by name.
        """
        for name, array in arrays.items():
            if array.shape != (self.documents,):  # a torch.Size is a tuple as well
                raise InputError(
                    f"{name} has shape {tuple(array.shape)} but lists has {self.documents} "
                    f"documents in {len(self)} lists; {name} needs one entry per document."
                )

    def index(self, like: Array) -> Array:
        """The list of each document, 0-based, as integers on the device of `like`."""
        if is_tensor(like):
            return self._tensors(like.device)[1]
        return np.repeat(np.arange(len(self)), self.sizes)

    def spread(self, per_list: Array) -> Array:
        """Repeat the value of each list for its documents.

        Parameters
        ----------
        per_list : array or tensor, shape (n_lists,)
            One value per list.

        Examples
        --------
        >>> from twinrank.core.lists import Lists
        >>> Lists.from_sizes([2, 1]).spread(np.array([5.0, 7.0]))
        array([5., 5., 7.])
        """
        if is_tensor(per_list):
            return per_list[self.index(per_list)]
        return np.repeat(per_list, self.sizes)

    def positions(self, like: Array) -> Array:
        """1, 2, …, m in every list, on the device of `like`.

        Parameters
        ----------
        like : array or tensor
            Gives the library and the device of the result.

        Examples
        --------
        >>> from twinrank.core.lists import Lists
        >>> Lists.from_sizes([2, 3]).positions(np.empty(0))
        array([1., 2., 1., 2., 3.])
        """
        if is_tensor(like):
            return as_float(self._steps(like) + 1)
        if "positions" not in self._derived:
            positions = np.arange(1.0, self.documents + 1) - self.starts(like)
            self._derived["positions"] = frozen(positions)
        return self._derived["positions"]

    def first(self, x: Array, k: int | None) -> Array:
        """`x` with zeros beyond position k of every list; `k=None` changes nothing.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        k : int or None
            Number of documents to keep per list.

        Examples
        --------
        >>> from twinrank.core.lists import Lists
        >>> Lists.from_sizes([2, 3]).first(np.ones(5), 2)
        array([1., 1., 1., 1., 0.])
        """
        return x if k is None else namespace(x).where(self.positions(x) <= k, x, 0.0)

    def ranked(self, x: Array, k: int | None) -> Array:
        """As `first`; a subclass in which some documents have no rank also sets these to 0."""
        return self.first(x, k)

    def starts(self, like: Array) -> Array:
        """The start of each document's list, as integers on the device of `like`."""
        if is_tensor(like):
            offsets, index = self._tensors(like.device)
            return offsets[index]
        return self.spread(self.offsets[:-1])

    def by_position(self, table: Array) -> Array:
        """Entry i of a table for the document at position i + 1 of every list.

        Parameters
        ----------
        table : array or tensor
            At least as long as the longest list.

        Examples
        --------
        >>> from twinrank.core.lists import Lists
        >>> Lists.from_sizes([2, 3]).by_position(np.array([0.5, 0.3, 0.2]))
        array([0.5, 0.3, 0.5, 0.3, 0.2])
        """
        if table.shape[0] < self.longest:
            raise InputError(
                f"A table of {table.shape[0]} entries is too short for a list of {self.longest}."
            )
        if is_tensor(table):
            return table[self._steps(table)]
        from twinrank.support.segments import lay_out

        return lay_out(as_float(table), self.offsets)

    def arrange(self, x: Array, ranks: Array) -> Array:
        """Values in rank order: the best-ranked document comes first in every list.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        ranks : array or tensor, shape (n_documents,)
            Ranks 1 … m within each list, as from `exact_ranks`.

        Examples
        --------
        >>> from twinrank.core.lists import Lists
        >>> Lists.from_sizes([2, 3]).arrange(np.arange(5.0), np.array([2, 1, 3, 1, 2]))
        array([1., 0., 3., 4., 2.])
        """
        return self._move(x, ranks, back=False)

    def restore(self, x: Array, ranks: Array) -> Array:
        """Undo `arrange`: values in the order of the documents.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document, in rank order.
        ranks : array or tensor, shape (n_documents,)
            Ranks 1 … m within each list, as from `exact_ranks`.
        """
        return self._move(x, ranks, back=True)

    def settle(
        self, credit: Array, discounts: Array, slopes: Array, ranks: Array
    ) -> tuple[Array, Array]:
        """Σ credit · discount per list, and credit · slope per document.

        Credit is in rank order, the second result in the order of the documents. The tables have
        one entry per rank 1, 2, …. `arrange` has checked the ranks.
        """
        if is_tensor(ranks):
            values = self.sum(credit * self.by_position(discounts))
            return values, self.restore(credit * self.by_position(slopes), ranks)
        from twinrank.support.segments import settle

        return settle(credit, as_float(discounts), as_float(slopes), ranks, self.offsets)

    def sum(self, x: Array) -> Array:
        """Sum per list; differentiable for tensors.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        """
        x = self._checked(x)
        if not is_tensor(x):
            return self._reduce(np.add, x)
        if x.requires_grad or not on_cpu(x):
            return self._reduce_tensor(x, "sum")
        return from_numpy(self._reduce(np.add, to_numpy(x)), like=x)

    def any(self, x: Array) -> Array:
        """True for each list with a true entry.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        """
        if is_tensor(x):
            return self.sum(x) > 0
        self.check(values=x)
        return self._reduce(np.logical_or, x).astype(np.bool_)

    def max(self, x: Array) -> Array:
        """Maximum per list, 0 for an empty list; without a gradient.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        """
        return self._extreme(x, "max", np.maximum)

    def min(self, x: Array) -> Array:
        """Minimum per list, 0 for an empty list; without a gradient.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        """
        return self._extreme(x, "min", np.minimum)

    def cumsum(self, x: Array, *, reverse: bool = False) -> Array:
        """Cumulative sum per list, from the front or from the back; without a gradient.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        reverse : bool, default False
            Sum from the back.

        Examples
        --------
        >>> from twinrank.core.lists import Lists
        >>> Lists.from_sizes([2, 3]).cumsum(np.ones(5))
        array([1., 2., 1., 2., 3.])
        """
        return self._scan(x, product=False, reverse=reverse)

    def cumprod(self, x: Array) -> Array:
        """Cumulative product per list; without a gradient.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        """
        return self._scan(x, product=True, reverse=False)

    def sort(self, x: Array) -> Array:
        """The values of every list in descending order; without a gradient.

        Parameters
        ----------
        x : array or tensor, shape (n_documents,)
            One value per document.
        """
        x = self._checked(x)
        if on_cpu(x):
            from twinrank.support.segments import sort_descending

            return from_numpy(sort_descending(to_numpy(x), self.offsets), like=x)
        import torch

        x = x.detach()
        by_value = torch.argsort(x, descending=True)
        return x[by_value[torch.argsort(self.index(x)[by_value], stable=True)]]

    def _move(self, x: Array, ranks: Array, *, back: bool) -> Array:
        x = self._checked(x)
        self.check(ranks=ranks)
        if not is_tensor(ranks):
            from twinrank.support.segments import move_to_rank

            return move_to_rank(x, ranks, self.offsets, back)
        place = ranks.long() + self.starts(ranks) - 1
        if back:
            return x[place]
        result = namespace(x).empty_like(x)
        result[place] = x
        return result

    def _steps(self, like: Array) -> Array:
        """0, 1, …, m − 1 in every list, as a tensor of integers."""
        import torch

        return torch.arange(self.documents, device=like.device) - self.starts(like)

    def _checked(self, x: Array) -> Array:
        """`x` in double precision; raise an error unless it has one entry per document."""
        x = as_float(x)
        self.check(values=x)
        return x

    def _extreme(self, x: Array, name: str, operation: np.ufunc) -> Array:
        x = self._checked(x)
        if not is_tensor(x):
            return self._reduce(operation, x)
        if on_cpu(x):
            return from_numpy(self._reduce(operation, to_numpy(x)), like=x)
        extreme = self._reduce_tensor(x.detach(), name)
        return namespace(x).where(self._tensors(x.device)[0].diff() > 0, extreme, 0.0)

    def _reduce_tensor(self, x: Any, name: str) -> Any:
        from twinrank.core.lists.tensor_lists import reduce_lists

        return reduce_lists(x, name, *self._tensors(x.device))

    def _reduce(self, operation: np.ufunc, x: Any) -> Any:
        if "filled" not in self._derived:  # reduceat cannot handle empty lists
            filled = np.flatnonzero(self.sizes)
            self._derived["filled"] = filled, self.offsets[filled]
        filled, starts = self._derived["filled"]
        if filled.size == len(self) > 0:
            return operation.reduceat(x, starts)
        result = np.zeros(len(self))
        if filled.size:
            result[filled] = operation.reduceat(x, starts)
        return result

    def _scan(self, x: Array, *, product: bool, reverse: bool) -> Array:
        x = self._checked(x)
        if on_cpu(x):
            from twinrank.support.segments import scan

            return from_numpy(scan(to_numpy(x), self.offsets, product, reverse), like=x)
        combine = namespace(x).mul if product else namespace(x).add
        return self.scan_by_doubling(x.detach(), combine, reverse=reverse)

    def scan_by_doubling(
        self, x: Array, combine: Callable[[Array, Array], Array], *, reverse: bool = False
    ) -> Array:
        """Cumulative `combine` per list of a tensor on any device, in log₂(longest) steps.

        Each step combines every entry with the one 1, 2, 4, … documents before it.
        """
        position = self.positions(x)
        if reverse:  # counted from the other end
            offsets, index = self._tensors(x.device)
            position = offsets.diff()[index] + 1 - position
        step = 1
        while step < self.longest:
            before = namespace(x).roll(x, -step if reverse else step)
            x = namespace(x).where(position > step, combine(x, before), x)
            step *= 2
        return x

    def _tensors(self, device: "torch.device") -> "tuple[torch.Tensor, torch.Tensor]":
        """The offsets and the list of each document, on a device."""
        if device not in self._on_device:
            from twinrank.core.lists.tensor_lists import tensors_of

            self._on_device[device] = tensors_of(self, device)  # type: ignore[arg-type]
        return self._on_device[device]


def frozen(values: Any) -> Any:
    """Make an array read-only and return it."""
    values.flags.writeable = False
    return values
