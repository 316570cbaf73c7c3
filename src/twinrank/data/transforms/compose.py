"""One transform after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinrank.data.transforms.base import Floats, Transform, apply_all
from twinrank.lists import Lists
from twinrank.support.errors import InputError


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
