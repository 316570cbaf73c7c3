"""Transforms of features: found by name, fitted on training data, saved as plain JSON.

A transform is called with features and lists, as in `transform("QueryZScore")(X, lists)`. Those
that learn from the training data are fitted first, and a new transform comes back:
`fitted = transform("Standardise").fit(X, lists)`.
"""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from twinrank.data.transforms.per_query import QueryMinMax, QueryZScore
from twinrank.data.transforms.per_value import Clip, SignedLog1p
from twinrank.data.transforms.standardise import Standardise
from twinrank.data.transforms.transform_base import Compose, Transform
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import check_options, parse

TRANSFORMS: tuple[type[Transform], ...] = (
    QueryZScore, Standardise, SignedLog1p, QueryMinMax, Clip,
)  # fmt: skip

__all__ = [
    "TRANSFORMS",
    "Clip",
    "Compose",
    "QueryMinMax",
    "QueryZScore",
    "SignedLog1p",
    "Standardise",
    "Transform",
    "from_json",
    "transform",
]

_BY_NAME = {kind.__name__: kind for kind in TRANSFORMS}
_PLUS_OUTSIDE_BRACKETS = re.compile(r"\+(?![^(]*\))")


def transform(name: str | Transform | Sequence[str | Transform]) -> Transform:
    """The transform of this name, or several in a row; `none` leaves features as they are.

    >>> transform("Clip(low=-5,high=5)")
    Clip(low=-5, high=5)
    >>> str(transform(["SignedLog1p", "QueryZScore"]))
    'SignedLog1p + QueryZScore'
    >>> transform("SignedLog1p + QueryZScore") == transform(["SignedLog1p", "QueryZScore"])
    True
    """
    if isinstance(name, Transform):
        return name
    if isinstance(name, list | tuple):
        several = [transform(one) for one in name]
        return several[0] if len(several) == 1 else Compose(tuple(several))
    if not isinstance(name, str):
        raise InputError(f"a transform is a name, a Transform or a list of these, not {name!r}")
    if name.strip() == "none":
        return Compose()
    parts = _PLUS_OUTSIDE_BRACKETS.split(name)
    return transform(parts) if len(parts) > 1 else _by_notation(name)


def from_json(data: Any) -> Transform:
    """The transform that `to_json` wrote, every part of it checked.

    >>> from_json({"name": "Clip", "low": 0, "high": None})
    Clip(low=0, high=None)
    """
    if isinstance(data, dict) and data.get("name") == "Compose":
        parts = data.get("transforms")
        if not isinstance(parts, list) or len(data) != 2:
            raise InputError("a saved Compose must have a list of transforms, and nothing else")
        return Compose(tuple(map(_from_object, parts)))
    return _from_object(data)


def _by_notation(text: str) -> Transform:
    term = parse(text)
    kind = _kind(term.name)
    if term.cutoff is not None:
        raise InputError(f"a transform has no cutoff, but {text!r} sets @{term.cutoff}")
    check_options(term.name, term, [f.name for f in fields(kind) if not f.name.endswith("_")])
    return kind(**term.options)


def _from_object(data: Any) -> Transform:
    """A single transform from its options and statistics."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise InputError(f"a saved transform must be an object with a name, not {data!r:.80}")
    kind = _kind(data["name"])
    names = {f.name.rstrip("_"): f.name for f in fields(kind)}
    if data.keys() != {"name", *names}:
        raise InputError(
            f"a saved {kind.__name__} must have the keys {', '.join(['name', *names])}, "
            f"not {', '.join(map(str, data))}"
        )
    return kind(**{name: data[key] for key, name in names.items()})


def _kind(name: str) -> type[Transform]:
    if name not in _BY_NAME:
        raise InputError(unknown("transform", name, _BY_NAME))
    return _BY_NAME[name]
