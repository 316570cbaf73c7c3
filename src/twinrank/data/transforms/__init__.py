"""Feature transforms: created by name, fitted on training data, saved as plain JSON.

Internal: import public names from `twinrank`.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from twinrank.data.transforms.combined import Compose, Union
from twinrank.data.transforms.missing import MissingIndicator
from twinrank.data.transforms.quantiles import PiecewiseLinear, Quantile
from twinrank.data.transforms.standardise import Standardise
from twinrank.data.transforms.transform_base import Transform
from twinrank.data.transforms.unfitted import (
    Clip,
    QueryMinMax,
    QueryZScore,
    SignedLog1p,
)
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import check_options, parse

TRANSFORMS: tuple[type[Transform], ...] = (
    QueryZScore, Standardise, SignedLog1p, QueryMinMax, Clip, Quantile, PiecewiseLinear,
    MissingIndicator,
)  # fmt: skip

__all__ = [
    "TRANSFORMS",
    "Clip",
    "Compose",
    "MissingIndicator",
    "PiecewiseLinear",
    "Quantile",
    "QueryMinMax",
    "QueryZScore",
    "SignedLog1p",
    "Standardise",
    "Transform",
    "Union",
    "from_json",
    "transform",
]

_BY_NAME = {kind.__name__: kind for kind in TRANSFORMS}
_COMBINED: dict[str, type[Compose | Union]] = {"Compose": Compose, "Union": Union}
_DEEPEST = 20


def transform(name: str | Transform | Sequence[str | Transform]) -> Transform:
    """Create a transform from its name.

    The names are `QueryZScore`, `QueryMinMax`, `Standardise`, `SignedLog1p`, `Clip`, `Quantile`,
    `PiecewiseLinear` and `MissingIndicator`. Options follow in brackets. `+` joins transforms that
    are applied one after the other, and `|` joins transforms whose results stand side by side. `+`
    binds more tightly; brackets group.

    Parameters
    ----------
    name : str, Transform, or sequence of these
        A name such as `"QueryZScore"`, or several in the order in which they are applied. `"none"`
        leaves the features unchanged.

    Returns
    -------
    Transform
        The transform; call its `fit` with training data before use.

    Raises
    ------
    InputError
        If a name or an option is unknown or invalid.

    Examples
    --------
    >>> transform("Clip(low=-5,high=5)")
    Clip(low=-5, high=5)
    >>> str(transform(["SignedLog1p", "QueryZScore"]))
    'SignedLog1p + QueryZScore'
    >>> transform("SignedLog1p + QueryZScore") == transform(["SignedLog1p", "QueryZScore"])
    True
    >>> transform("QueryZScore | SignedLog1p + Standardise").outputs(46)
    92
    """
    if isinstance(name, Transform):
        return name
    if isinstance(name, list | tuple):
        steps = Compose(tuple(transform(step) for step in name))
        return steps.transforms[0] if len(steps.transforms) == 1 else steps
    if not isinstance(name, str):
        raise InputError(
            f"A transform must be a name, a Transform or a list of these, not {name!r}."
        )
    if len(branches := _split(name, "|")) > 1:
        return Union(tuple(map(transform, branches)))
    if len(steps_of := _split(name, "+")) > 1:
        return transform(steps_of)
    text = name.strip()
    if text == "none":
        return Compose()
    if text.startswith("(") and text.endswith(")"):
        return transform(text[1:-1])
    return _by_notation(name)


def _split(text: str, sign: str) -> list[str]:
    """Split at a sign outside brackets.

    >>> _split("(A | B) + C | D", "|")
    ['(A | B) + C ', ' D']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def from_json(data: Any, depth: int = 0) -> Transform:
    """Create the transform that `to_json` describes, and check every part.

    >>> from_json({"name": "Clip", "low": 0, "high": None})
    Clip(low=0, high=None)
    """
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in _COMBINED:
        return _from_object(data)
    parts = data.get("transforms")
    if not isinstance(parts, list) or len(data) != 2:
        raise InputError(f"A saved {name} must have only a list of transforms.")
    if depth == _DEEPEST:
        raise InputError(f"A saved transform has more than {_DEEPEST} levels.")
    return _COMBINED[name](tuple(from_json(part, depth + 1) for part in parts))


def _by_notation(text: str) -> Transform:
    term = parse(text)
    kind = _kind(term.name)
    if term.cutoff is not None:
        raise InputError(f"A transform has no cutoff; remove @{term.cutoff} from {text!r}.")
    check_options(term.name, term, [f.name for f in fields(kind) if not f.name.endswith("_")])
    return kind(**term.options)


def _from_object(data: Any) -> Transform:
    """Create a single transform from its options and statistics."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise InputError(f"A saved transform must be an object with a name, not {data!r:.80}.")
    kind = _kind(data["name"])
    names = {f.name.rstrip("_"): f.name for f in fields(kind)}
    if data.keys() != {"name", *names}:
        raise InputError(
            f"A saved {kind.__name__} must have the keys {', '.join(['name', *names])}, "
            f"not {', '.join(map(str, data))}."
        )
    return kind(**{name: data[key] for key, name in names.items()})


def _kind(name: str) -> type[Transform]:
    if name not in _BY_NAME:
        raise InputError(unknown("transform", name, _BY_NAME))
    return _BY_NAME[name]
