"""What a transform is: a value that turns features into features, list by list."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from twinrank.lists import Lists, check_lists
from twinrank.lists.per_list import frozen
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError
from twinrank.support.notation import Term, Value

Floats = np.ndarray[Any, np.dtype[np.float32]]

_PER_THREAD = 200_000
"""Below this many values a second thread costs more than it saves."""


class FeatureError(InputError):
    """A feature that a transform can't take; a dataset knows the names of what it belongs to."""

    feature, list, place, why = 0, 0, 0, ""  # numbers from 0; `place` is within the list

    def named(self, query_ids: Any, feature_names: Sequence[str] | None) -> InputError:
        """The same, with the query's id, and the feature's name or its number from 1 on."""
        name = self.feature + 1 if feature_names is None else repr(feature_names[self.feature])
        query = query_ids[self.list]
        return InputError(
            f"feature {name} of document {self.place + 1} of query {query} is {self.why}"
        )


class NotFiniteError(Exception):
    """Features without a finite result, in the first of some rows that a transform was given."""

    def __init__(self, transform: "Transform", x: Floats, row: int, wrong: Any) -> None:
        self.transform, self.row, self.feature = transform, row, int(wrong.argmax())
        self.value = x[row, self.feature]

    def within(self, lists: Lists, first: int = 0) -> FeatureError:
        """What to tell the user, if the rows began with document `first` of these lists."""
        document = first + self.row
        number = int(lists.list_of(document))
        why = f"{self.value:g}, which {self.transform} can't take; put Clip before it"
        error = FeatureError(
            f"feature {self.feature} of document {document} (list {number}) is {why}"
        )
        error.feature, error.list, error.why = self.feature, number, why
        error.place = document - int(lists.offsets[number])
        return error


@dataclass(frozen=True)
class Transform:
    """A value that names a transform of features and carries it out.

    `fit` gives a new transform that remembers what it needs of the training data, and calling that
    transforms any data. Subclasses say `apply`; those that remember something say `fit_after` and
    `check_features` too, and keep it in fields that end in `_`. Other fields are options.
    """

    per_query: ClassVar[bool] = False
    """Whether a document's result depends on the other documents of its list."""

    def fit(self, X: Any, lists: Lists) -> Self:
        """The transform with the statistics of this data, which should be training data only.

        `X` may be a memory map larger than memory: it is read in blocks of some megabytes, or of
        one list where that is longer.
        """
        return self.fit_after((), _matrix(X, lists), lists)

    def __call__(self, X: Any, lists: Lists, out: Floats | None = None) -> Floats:
        """The transformed features, float32, in a new array or in `out`, which may be `X` itself.

        `X` has a row per document of `lists`. Missing values are NaN. After an error, `out` holds
        a mixture of old and new rows.
        """
        X = _matrix(X, lists)
        self.check_features(X.shape[1])
        if out is None:
            out = np.empty(X.shape, np.float32)
        else:
            _check_out(out, X)
        try:
            apply_all([self], X, lists, out)
        except NotFiniteError as error:
            raise error.within(lists) from None
        return out

    def fit_after(self, before: "Sequence[Transform]", X: Any, lists: Lists) -> Self:  # noqa: ARG002
        """As `fit`, on what the transforms `before`, already fitted, make of `X`."""
        return self

    def check_features(self, features: int) -> None:
        """Refuse another number of features than that of the training data."""

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Transform rows into `out`, which may be `x` itself; both are contiguous float32."""
        raise NotImplementedError

    def options(self) -> dict[str, Value]:
        """The options that differ from their defaults."""
        mine = [f for f in fields(self) if not f.name.endswith("_")]
        return {f.name: v for f in mine if (v := getattr(self, f.name)) != f.default}

    def to_json(self) -> dict[str, Any]:
        """Options and statistics in plain JSON types; `from_json` gives the very same transform."""
        values = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self)}
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
        return {"name": type(self).__name__, **plain}

    def __str__(self) -> str:
        return str(Term(type(self).__name__, self.options()))


@dataclass(frozen=True)
class Compose(Transform):
    """Transforms in the order in which they are applied; none at all leave features as they are.

    Each is fitted on what those before it make of the training data. A `Compose` within another is
    laid out flat. It is written `SignedLog1p + QueryZScore`.
    """

    transforms: tuple[Transform, ...] = ()

    def __post_init__(self) -> None:
        flat: list[Transform] = []
        for one in self.transforms:
            if not isinstance(one, Transform):
                raise InputError(f"Compose takes transforms, not {one!r}; see transform(name)")
            flat += one.transforms if isinstance(one, Compose) else [one]
        object.__setattr__(self, "transforms", tuple(flat))

    @property
    def per_query(self) -> bool:  # type: ignore[override]
        """Whether one of them looks at a document's whole list."""
        return any(one.per_query for one in self.transforms)

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "Compose":
        """Each in turn, by blocks of X: no transformed copy of all of X is ever made."""
        fitted = list(before)
        for one in self.transforms:
            fitted.append(one.fit_after(fitted, X, lists))
        return Compose(tuple(fitted[len(before) :]))

    def check_features(self, features: int) -> None:
        """None of these transforms changes the number of features."""
        for one in self.transforms:
            one.check_features(features)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """All but the first in place."""
        apply_all(self.transforms, x, lists, out)

    def to_json(self) -> dict[str, Any]:
        """The transforms one by one."""
        return {"name": "Compose", "transforms": [one.to_json() for one in self.transforms]}

    def __str__(self) -> str:
        return " + ".join(map(str, self.transforms)) or "none"


def apply_all(transforms: Sequence[Transform], X: Any, lists: Lists, out: Floats) -> None:
    """One transform after the other, all but the first in place."""
    x, result = X.view(np.ndarray), out.view(np.ndarray)  # a memory map as a plain array
    if not transforms or not is_plain(x):
        np.copyto(result, x, casting="same_kind")
        x = result
    for one in transforms:
        one.apply(read_only(x), lists, result)
        x = result


def is_plain(x: Any) -> bool:
    """Whether the loops can read this array as it is."""
    return bool(x.dtype == np.float32 and x.flags.c_contiguous)


def read_only(x: Floats) -> Floats:
    """A view that can't be written to, as a memory map can't: loops are compiled for one kind."""
    return frozen(x.view())  # type: ignore[no-any-return]


def by_list(
    transform: Transform, loop: Callable[..., None], x: Floats, lists: Lists, out: Floats
) -> None:
    """Run a loop over cells: lists, or parts of their features if one list makes up most rows."""
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
    """Run a loop over tiles of `height` rows, each worth `cost`; threads don't change the tiles."""
    from twinrank.support.compiled import in_threads, spans

    tiles = -(-rows // height)
    in_threads(loop, spans(np.full(tiles, height * cost), _PER_THREAD), height, *shared)


def _matrix(X: Any, lists: Lists) -> Any:
    """X as an array of numbers with a row per document."""
    check_lists(lists)
    X = to_numpy(X)
    if X.ndim != 2:
        raise InputError(f"X must have shape (documents, features), but has shape {X.shape}")
    if X.dtype.kind not in "fiub":
        raise InputError(f"X must hold numbers, not {X.dtype}")
    if X.shape[0] != lists.documents:
        raise InputError(
            f"X {X.shape} and lists ({lists.documents} documents in {len(lists)} lists) must align"
        )
    return X


def _check_out(out: Any, X: Any) -> None:
    if not isinstance(out, np.ndarray):
        raise InputError(f"out must be a NumPy array, not {type(out).__name__}")
    if out.dtype != np.float32 or out.shape != X.shape:
        raise InputError(
            f"out must be float32 of shape {X.shape}, not {out.dtype} of shape {out.shape}"
        )
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise InputError("out must be C-contiguous and writeable")
    where = [a.__array_interface__["data"][0] for a in (X, out)]
    same = where[0] == where[1] and (X.dtype, X.strides) == (out.dtype, out.strides)
    if not same and np.may_share_memory(X, out):
        raise InputError("out may be X itself, but must not overlap with it otherwise")
