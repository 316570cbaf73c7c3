"""Where a study's data comes from: a description in JSON types that any process can open."""

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from twinrank.data.dataset import Dataset
from twinrank.data.folds import Fold
from twinrank.data.layouts import load_folds
from twinrank.data.loading import load
from twinrank.data.store import is_store
from twinrank.data.summary import fingerprint
from twinrank.data.synthetic import synthetic_web_search
from twinrank.support.errors import DataWarning, InputError, explained
from twinrank.support.plurals import counted

PARTS = ("train", "validation", "test")
BUILT_IN = "built-in synthetic web search"


@dataclass(frozen=True)
class Source:
    """A folder with folds, a file, or (`path=None`) the built-in synthetic data.

    `reading` holds arguments of `load`. What has no folds of its own is cut into `cut` folds by
    query, as `Dataset.folds` does; `cut=1` is one split, of which 60 % train and 20 % validate.
    Queries with fewer documents, or fewer relevant ones, than asked for are left out everywhere.
    `queries` is how many of the built-in data there are.

    >>> source = Source(queries=30, cut=3)
    >>> source.folds
    (1, 2, 3)
    >>> {name: data.queries for name, data in source.sets(1).items()}
    {'train': 10, 'validation': 10, 'test': 10}
    """

    path: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    cut: int = 5
    min_documents: int = 1
    min_relevant: int = 0
    queries: int = 1_000

    @classmethod
    def of(cls, path: Path | str | None, reading: Mapping[str, Any], **choices: Any) -> "Source":
        """The source at a path, which from any folder is the same, and with plain values."""
        where = None if path is None else str(Path(path).expanduser().absolute())
        return cls(where, json.loads(json.dumps(dict(reading), default=_plain)), **choices)

    @property
    def name(self) -> str:
        """What to call it."""
        return BUILT_IN if self.path is None else Path(self.path).name

    @cached_property
    def has_folds(self) -> bool:
        """Whether it is a folder with folds of its own."""
        if self.path is None:
            return False
        with explained("read", self.path):
            return Path(self.path).is_dir() and not is_store(Path(self.path))

    @property
    def folds(self) -> tuple[int, ...]:
        """The numbers of its folds, from 1 on; of folders by their own numbers."""
        return tuple(self._folds) if self.has_folds else tuple(range(1, self.cut + 1))

    def check(self, folds: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The folds asked for, or all; those that aren't there are an error that says which."""
        there = self.folds
        wanted = folds or there
        if lacking := [number for number in wanted if number not in there]:
            which = ", ".join(map(str, lacking))
            listed = ", ".join(map(str, there))
            raise InputError(
                f"{self.path or self.name} has {counted(len(there), 'fold')} ({listed}), "
                f"no fold {which}"
            )
        if self.has_folds and folds is None:
            self._check_complete()
        return tuple(wanted)

    def sets(self, fold: int) -> dict[str, Dataset]:
        """Training, validation and test data of a fold, mapped into memory where that is possible.

        Where a fold has no validation data, a fifth of the training queries takes its place.
        """
        return _sets(self.to_text(), fold)

    def fingerprint(self, fold: int) -> str:
        """A hash of a fold's content that other data wouldn't have; large features are sampled."""
        return _fingerprint(self.to_text(), fold)

    def to_text(self) -> str:
        """Canonical JSON, from which `from_text` makes the same source."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Source":
        """The inverse of `to_text`."""
        return cls(**json.loads(text))

    @cached_property
    def _folds(self) -> dict[int, Fold]:
        """The folds of a folder by number: their own where each has one, else in order."""
        assert self.path is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # `check` says it
            found = load_folds(self.path, **self.reading)
        own = [_number(fold.name) for fold in found]
        numbered = None not in own and len(set(own)) == len(own)
        return {(own[i] or 0) if numbered else i + 1: fold for i, fold in enumerate(found)}

    def _check_complete(self) -> None:
        """Refuse a folder of which folds are missing or lack files, so that nobody overlooks it."""
        assert self.path is not None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            load_folds(self.path, **self.reading)
        there = self.folds
        gaps = [n for n in range(1, max(there)) if n not in there]
        problem = "; ".join(str(one.message).partition("; it is left")[0] for one in said)
        if not problem and gaps and _number(self._folds[there[0]].name):
            problem = f"{self.path}: fold {', '.join(map(str, gaps))} is missing"
        if problem:
            listed = ",".join(map(str, there))
            raise InputError(f"{problem}; complete it, or choose the others: --folds {listed}")


def _number(name: str) -> int | None:
    """The number at the end of a fold's name: 3 of `Fold3`."""
    match = re.search(r"(\d+)$", name)
    return int(match[1]) if match and int(match[1]) > 0 else None


def _plain(value: Any) -> str:
    return str(value.expanduser().absolute()) if isinstance(value, Path) else str(value)


@lru_cache(maxsize=2)
def _whole(source: str) -> Dataset:
    """The data of a source without folds of its own."""
    given = Source.from_text(source)
    if given.path is None:
        return synthetic_web_search(given.queries)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return load(given.path, **given.reading)


@lru_cache(maxsize=2)
def _sets(source: str, number: int) -> dict[str, Dataset]:
    given = Source.from_text(source)
    given.check((number,))
    if not given.has_folds:
        whole = _kept(_whole(source), given)
        if given.cut == 1:
            return dict(zip(PARTS, whole.split(0.6, 0.2), strict=True))
        return dict(zip(PARTS, whole.folds(given.cut)[number - 1], strict=True))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        training, validation, test = given._folds[number]
    assert training is not None
    assert test is not None
    if validation is None:
        training, validation = training.split(0.8)
    return {n: _kept(d, given) for n, d in zip(PARTS, (training, validation, test), strict=True)}


@lru_cache(maxsize=64)
def _fingerprint(source: str, fold: int) -> str:
    given = Source.from_text(source)
    if given.has_folds:
        return ".".join(fingerprint(given.sets(fold)[part]) for part in PARTS)
    kept = f"{given.min_documents}-{given.min_relevant}"
    return f"{fingerprint(_whole(source))}.{kept}.{given.cut}-{fold}"


def forget() -> None:
    """Open data anew when it is next asked for: it may have changed since."""
    for remembered in (_whole, _sets, _fingerprint):
        remembered.cache_clear()


def _kept(data: Dataset, given: Source) -> Dataset:
    if given.min_documents <= 1 and given.min_relevant <= 0:
        return data
    return data.filter(min_documents=given.min_documents, min_relevant=given.min_relevant)
