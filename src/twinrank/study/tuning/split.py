"""What a search learns from and is judged by: cut as `twinrank train` cuts it."""

import json
import warnings
from dataclasses import asdict, dataclass
from functools import lru_cache

from twinrank.data.dataset import Dataset
from twinrank.data.loading import load
from twinrank.study.source import Source
from twinrank.support.errors import DataWarning, InputError


@dataclass(frozen=True)
class Split:
    """A fold of a folder, or a file with its validation data or four fifths of its queries.

    The test queries of a fold, and of the built-in data, stay unseen.

    >>> {name: data.queries for name, data in Split(Source(queries=30, cut=1)).sets().items()}
    {'train': 18, 'validation': 6}
    """

    source: Source
    """Of one cut."""
    fold: int = 1
    valid: str | None = None
    """The path of the validation data that goes with a file."""

    def __post_init__(self) -> None:
        if self.valid is not None and (self.source.path is None or self.source.has_folds):
            raise InputError("--valid goes with a file of training data")
        if self.fold != 1 and not self.source.has_folds:
            raise InputError(f"--fold goes with a folder of folds, and {self.source.name} is none")

    def sets(self) -> dict[str, Dataset]:
        """Training and validation data."""
        return _sets(self.to_text())

    def fingerprint(self) -> str:
        """A hash of the content that other data wouldn't have."""
        own = self.source.fingerprint(self.fold)
        if self.valid is None:
            return own
        return f"{own}+{Source(self.valid, self.source.reading, cut=1).fingerprint(1)}"

    def to_text(self) -> str:
        """Canonical JSON, from which `from_text` makes the same."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Split":
        """The inverse of `to_text`."""
        plain = json.loads(text)
        return cls(**{**plain, "source": Source(**plain["source"])})


@lru_cache(maxsize=1)
def _sets(text: str) -> dict[str, Dataset]:
    split = Split.from_text(text)
    source = split.source
    if source.path is None or source.has_folds:
        fold = source.sets(split.fold)
        return {name: fold[name] for name in ("train", "validation")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        whole = load(source.path, **source.reading)
        if split.valid is None:
            return dict(zip(("train", "validation"), whole.split(0.8), strict=True))
        held = load(split.valid, **source.reading)
    if whole.features != held.features:
        counts = f"{whole.name}: {whole.features}, {held.name}: {held.features}"
        most = max(whole.features, held.features)
        raise InputError(f"numbers of features differ ({counts}); say --features {most}")
    return {"train": whole, "validation": held}
