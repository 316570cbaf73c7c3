"""The base class of transforms, and the functions that run their loops."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from twinrank.core.lists import Lists, check_lists
from twinrank.core.lists.per_list import frozen
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError
from twinrank.support.notation import Term, Value

Floats = np.ndarray[Any, np.dtype[np.float32]]
Columns = np.ndarray[Any, np.dtype[np.int64]]

_PER_THREAD = 200_000
"""Below this many values a second thread costs more than it saves."""
BLOCK = 2**22
"""Values in a block in memory."""


class FeatureError(InputError):
    """A feature value that a transform cannot use, with its position for a better message."""

    feature, list, place, reason = 0, 0, 0, ""  # numbers from 0; `place` is within the list

    def named(self, query_ids: Any, feature_names: Sequence[str] | None) -> InputError:
        """Return the error with the query's id and the feature's name, or its number from 1."""
        name = self.feature + 1 if feature_names is None else repr(feature_names[self.feature])
        query = query_ids[self.list]
        return InputError(
            f"Feature {name} of document {self.place + 1} of query {query} is {self.reason}."
        )


class NotFiniteError(Exception):
    """A row with a feature whose result is not finite; `invalid` is a mask of such features."""

    def __init__(self, transform: "Transform", x: Floats, row: int, invalid: Any) -> None:
        self.transform, self.row, self.feature = transform, row, int(invalid.argmax())
        self.value = x[row, self.feature]

    def within(self, lists: Lists) -> FeatureError:
        """Return the error for the user, if the rows are the documents of the lists."""
        document = self.row
        number = int(lists.list_of(document))
        reason = f"{self.value:g}, which {self.transform} can't use; add Clip before it"
        error = FeatureError(
            f"Feature {self.feature} of document {document} (list {number}) is {reason}."
        )
        error.feature, error.list, error.reason = self.feature, number, reason
        error.place = document - int(lists.offsets[number])
        return error


@contextmanager
def located(begin: int, before: "Sequence[Transform]" = (), features: int = 0) -> Iterator[None]:
    """Complete the place of a NotFiniteError in rows from `begin` on, after other transforms.

    It names a feature of the data, not a column that those transforms made.
    """
    try:
        yield
    except NotFiniteError as error:
        error.row += begin
        if before:
            error.feature = int(sources_of(before, features)[error.feature])
        raise


@dataclass(frozen=True)
class Transform:
    """Base class of feature transforms; `twinrank.transform` creates one by name.

    A transform is an immutable value. `fit` returns a new transform with the statistics of the
    training data, and calling that one transforms any data. Subclasses define `apply`. Subclasses
    with statistics also define `fit_after`, and store the statistics, an entry per feature, in
    fields whose names end in `_`. All other fields are options. Subclasses that do not make one
    column of each feature define `outputs` and `sources`.

    Examples
    --------
    >>> from twinrank import Lists, transform
    >>> lists = Lists.from_sizes([2])
    >>> transform("QueryZScore").fit([[1.0], [3.0]], lists)([[5.0], [9.0]], lists).ravel()
    array([-1.,  1.], dtype=float32)
    """

    per_query: ClassVar[bool] = False
    """True if a document's result depends on the other documents of its list."""

    keeps_missing: ClassVar[bool] = False
    """True if a missing value is still missing in the result."""

    @property
    def has_statistics(self) -> bool:
        """True if the transform needs statistics of training data."""
        return any(field.name.endswith("_") for field in fields(self))

    def fit(self, X: Any, lists: Lists) -> Self:
        """Return the transform with the statistics of the training data.

        Parameters
        ----------
        X : array, shape (n_documents, n_features)
            The features; NaN means missing. A memory map is read in blocks of some megabytes.
        lists : Lists
            Which documents belong together.

        Returns
        -------
        Transform
            A fitted transform; `self` does not change.
        """
        try:
            return self.fit_after((), _matrix(X, lists), lists)
        except NotFiniteError as error:
            raise error.within(lists) from None

    def __call__(self, X: Any, lists: Lists, out: Floats | None = None) -> Floats:
        """Return the transformed features.

        Parameters
        ----------
        X : array, shape (n_documents, n_features)
            The features; NaN means missing.
        lists : Lists
            Which documents belong together.
        out : array of float32, optional
            Where to write the result; may be `X` itself if the number of columns stays the same.
            After an error its content is undefined.

        Returns
        -------
        array of float32, shape (n_documents, outputs(n_features))
            The transformed features, in a new array or in `out`.

        Raises
        ------
        InputError
            If the transform is not fitted, a shape is wrong, or a result is not finite.
        """
        X = _matrix(X, lists)
        self.check_features(X.shape[1])
        shape = (X.shape[0], self.outputs(X.shape[1]))
        if out is None:
            out = np.empty(shape, np.float32)
        else:
            _check_out(out, X, shape)
        try:
            apply_all([self], X, lists, out)
        except NotFiniteError as error:
            raise error.within(lists) from None
        return out

    def fit_after(self, before: "Sequence[Transform]", X: Any, lists: Lists) -> Self:  # noqa: ARG002
        """Fit on the output of the fitted transforms `before`.

        Parameters
        ----------
        before : sequence of Transform
            Transforms that are applied to `X` first.
        X, lists
            As in `fit`.
        """
        return self

    def check_features(self, features: int) -> None:
        """Raise an error if unfitted, or if the number of features differs from training.

        Parameters
        ----------
        features : int
            The number of features of the data to transform.
        """
        name = type(self).__name__
        for field in fields(self):
            if not field.name.endswith("_"):
                continue
            if (statistics := getattr(self, field.name)) is None:
                raise InputError(
                    f"{name} is not fitted; call fit(X, lists) on training data first."
                )
            if len(statistics) != features:
                raise InputError(
                    f"{name} was fitted on {len(statistics)} features, but X has {features}."
                )

    def outputs(self, features: int) -> int:
        """Return the number of columns of the result; by default one per feature.

        Parameters
        ----------
        features : int
            The number of features of the data to transform.

        Returns
        -------
        int
            The number of columns.
        """
        return features

    def sources(self, features: int) -> Columns:
        """Return the feature from which each column of the result comes.

        Parameters
        ----------
        features : int
            The number of features of the data to transform.

        Returns
        -------
        array of int, shape (outputs(features),)
            Numbers of features, from 0.
        """
        return np.arange(features)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Write the transformed rows of `x` to `out`.

        Parameters
        ----------
        x : array of float32, shape (n_documents, n_features)
            A contiguous array.
        out : array of float32, shape (n_documents, outputs(n_features))
            A contiguous array, which may be `x` if the shape is the same.
        lists : Lists
            Which documents belong together.
        """
        raise NotImplementedError

    def options(self) -> dict[str, Value]:
        """Return the options that differ from their defaults."""
        options = [field for field in fields(self) if not field.name.endswith("_")]
        values = {field.name: getattr(self, field.name) for field in options}
        return {f.name: values[f.name] for f in options if values[f.name] != f.default}

    def to_json(self) -> dict[str, Any]:
        """Return options and statistics as plain JSON, from which the transform can be rebuilt."""
        values = {field.name.rstrip("_"): getattr(self, field.name) for field in fields(self)}
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
        return {"name": type(self).__name__, **plain}

    def __str__(self) -> str:
        return str(Term(type(self).__name__, self.options()))


def apply_all(transforms: Sequence[Transform], X: Any, lists: Lists, out: Floats) -> None:
    """Apply transforms one after the other, in place where the number of columns allows it.

    Results of another width than `out` are kept for one block of rows at a time.
    """
    x, result = X.view(np.ndarray), out.view(np.ndarray)  # a memory map as a plain array
    widths = [x.shape[1]]
    for step in transforms:
        widths.append(step.outputs(widths[-1]))
    between = widths[:-1] if not is_plain(x) else widths[1:-1]
    if all(width == widths[-1] for width in between):
        _apply_steps(transforms, x, lists, result)
        return
    per_query = any(step.per_query for step in transforms)
    for begin, end, part in row_blocks(lists, max(widths), per_query):
        with located(begin):
            _apply_steps(transforms, x[begin:end], part, result[begin:end])


def _apply_steps(transforms: Sequence[Transform], x: Any, lists: Lists, out: Floats) -> None:
    features = x.shape[1]
    if not transforms or not is_plain(x):
        plain = out if out.shape == x.shape else np.empty(x.shape, np.float32)
        np.copyto(plain, x, casting="same_kind")
        x = plain
    for i, step in enumerate(transforms):
        width = step.outputs(x.shape[1])
        target = out if width == out.shape[1] else np.empty((len(x), width), np.float32)
        with located(0, transforms[:i], features):
            step.apply(read_only(x), lists, target)
        x = target


def sources_of(transforms: Sequence[Transform], features: int) -> Columns:
    """Return the feature from which each column comes after several transforms."""
    sources = np.arange(features)
    for step in transforms:
        sources = sources[step.sources(sources.size)]
    return sources


def outputs_of(transforms: Sequence[Transform], features: int) -> int:
    """Return the number of columns after several transforms."""
    for step in transforms:
        features = step.outputs(features)
    return features


def row_blocks(
    lists: Lists, features: int, per_query: bool, values: int | None = None
) -> Iterator[tuple[int, int, Lists]]:
    """Cut rows into blocks of `values`, about: first row, end, and the lists of the block.

    A block has whole lists if `per_query`; otherwise its rows are one list.
    """
    ends = np.r_[0 : lists.documents : rows_for(values or BLOCK, features), lists.documents]
    units = lists if per_query else Lists(ends)  # rows that must stay in one block
    cuts = np.unique(np.searchsorted(units.offsets, ends)).tolist()
    for first, last in pairwise(cuts):
        offsets = units.offsets[first : last + 1]
        yield int(offsets[0]), int(offsets[-1]), Lists(offsets - offsets[0])


def blocks_after(
    before: Sequence[Transform], X: Any, lists: Lists, values: int | None = None
) -> Iterator[tuple[int, Floats]]:
    """Iterate over blocks of the transformed rows of X, each with the number of its first row.

    A block has about this many values. It is only valid until the next one.
    """
    width = outputs_of(before, X.shape[1])
    per_query = any(step.per_query for step in before)
    buffer = np.empty((0, width), np.float32)
    for begin, end, part in row_blocks(lists, width, per_query, values):
        block = X[begin:end].view(np.ndarray)
        if before or not is_plain(block):
            if len(buffer) < end - begin:
                buffer = np.empty((end - begin, width), np.float32)
            with located(begin):
                apply_all(before, block, part, buffer[: end - begin])
            block = buffer[: end - begin]
        yield begin, block


def rows_for(values: int, features: int) -> int:
    """Return the number of rows that contain about this many values."""
    return max(values // max(features, 1), 1)


def is_plain(x: Any) -> bool:
    """Return True if the loops can read the array without a copy."""
    return bool(x.dtype == np.float32 and x.flags.c_contiguous)


def read_only(x: Floats) -> Floats:
    """Return a read-only view, so loops are compiled for one type: memory maps are read-only."""
    return frozen(x.view())  # type: ignore[no-any-return]


def by_list(
    transform: Transform, loop: Callable[..., None], x: Floats, lists: Lists, out: Floats
) -> None:
    """Run a loop over cells: lists, or parts of their features if one list has most of the rows."""
    from twinrank.support.compiled import in_threads, spans, threads

    features, bad = x.shape[1], np.zeros(len(lists), np.bool_)
    parts = threads() if lists.longest * threads() > lists.documents else 1
    parts = max(min(parts, features), 1)
    ranges = spans(np.repeat(lists.sizes * features // parts, parts), _PER_THREAD)
    in_threads(loop, ranges, parts, x, lists.offsets, out, bad)
    if bad.any():
        start, end = lists.offsets[bad.argmax() :][:2]
        infinite = np.isinf(x[start:end])
        row = int(infinite.any(axis=1).argmax())
        raise NotFiniteError(transform, x, int(start) + row, infinite[row])


def by_tile(loop: Callable[..., None], rows: int, height: int, cost: int, *shared: Any) -> None:
    """Run a loop over tiles of `height` rows; tiles do not depend on the number of threads."""
    from twinrank.support.compiled import in_threads, spans

    tiles = -(-rows // height)
    in_threads(loop, spans(np.full(tiles, height * cost), _PER_THREAD), height, *shared)


def _matrix(X: Any, lists: Lists) -> Any:
    """Check that X is a numeric array with one row per document."""
    check_lists(lists)
    X = to_numpy(X)
    if X.ndim != 2:
        raise InputError(f"X must have shape (documents, features), but has shape {X.shape}.")
    if X.dtype.kind not in "fiub":
        raise InputError(f"X must contain numbers, not {X.dtype}.")
    if X.shape[0] != lists.documents:
        raise InputError(
            f"X has {X.shape[0]} rows but lists has {lists.documents} documents; pass one row per "
            f"document."
        )
    return X


def _check_out(out: Any, X: Any, shape: tuple[int, int]) -> None:
    if not isinstance(out, np.ndarray):
        raise InputError(f"out must be a NumPy array, not {type(out).__name__}.")
    if out.dtype != np.float32 or out.shape != shape:
        raise InputError(
            f"out must be float32 of shape {shape}, not {out.dtype} of shape {out.shape}."
        )
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise InputError("out must be C-contiguous and writeable.")
    addresses = [array.__array_interface__["data"][0] for array in (X, out)]
    same = addresses[0] == addresses[1] and X.shape == shape
    same = same and (X.dtype, X.strides) == (out.dtype, out.strides)
    if not same and np.may_share_memory(X, out):
        raise InputError("out overlaps X partly; pass X itself or a separate array.")
