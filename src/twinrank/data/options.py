"""The choices that a reader of data has to be told about."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinrank.support.errors import InputError, unknown

MISSING = ("zero", "nan")
UNJUDGED = ("error", "keep", "drop")
NON_FINITE = ("error", "keep", "clip")
MAX_FEATURES = 100_000


def several(names: str | Sequence[str | int]) -> tuple[str, ...]:
    """Names of columns, of which one may come by itself."""
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How data is to be read; `twinrank.load` explains each choice."""

    features: int | tuple[str, ...] | None = None
    missing: str = "zero"
    zero_based: bool = False
    unjudged: str = "error"
    non_finite: str = "error"
    max_features: int = MAX_FEATURES
    query: str | None = None
    label: str | bool | None = None
    docid: str | None = None
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, choices in (
            ("missing", MISSING),
            ("unjudged", UNJUDGED),
            ("non_finite", NON_FINITE),
        ):
            if (given := getattr(self, name)) not in choices:
                raise InputError(f"{name}: " + unknown("choice", str(given), choices))
        if isinstance(self.features, int) and not 1 <= self.features <= self.max_features:
            raise InputError(f"features must be 1 to {self.max_features:,}, not {self.features:,}")
        if self.max_features >= 10**7 or self.max_features < 1:
            raise InputError(f"max_features must be 1 to 9,999,999, not {self.max_features:,}")

    def to_json(self) -> dict[str, Any]:
        """The choices as plain JSON."""
        return asdict(self)
