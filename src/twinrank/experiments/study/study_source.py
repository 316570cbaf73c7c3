"""The data of a study: a description that any process can open."""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from twinrank.data.dataset import Dataset
from twinrank.data.folds import Fold
from twinrank.data.layouts import incomplete_folds, load_folds
from twinrank.data.loading import load_table
from twinrank.data.options import ReadOptions
from twinrank.data.sources import address_of, fold_candidates, is_folder_of_parts
from twinrank.data.store import is_store
from twinrank.data.summary import fingerprint
from twinrank.data.synthetic import synthetic_web_search
from twinrank.support.errors import Argument, DataWarning, InputError, explained
from twinrank.support.quantities import counted

FOLD_PARTS = ("train", "validation", "test")
_CACHING = ("cache", "cache_dir", "verify")  # arguments of `load` that `ReadOptions` lacks
BUILT_IN = "built-in synthetic web search"


@dataclass(frozen=True)
class Source:
    """A folder with folds, files without folds, or (`path=None`) the built-in synthetic data.

    `reading` holds arguments of `load`. Data without folds is split into `cut` folds by query, as
    `Dataset.folds` does. `cut=1` is a single split: 60 % of the queries train, 20 % validate.
    Queries with fewer than `min_documents` documents or `min_relevant` relevant documents are left
    out of all parts. `queries` is the number of queries of the built-in data.

    >>> source = Source(queries=30, cut=3)
    >>> source.folds
    (1, 2, 3)
    >>> {name: data.queries for name, data in source.sets(1).items()}
    {'train': 10, 'validation': 10, 'test': 10}
    """

    path: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cut: int = 5
    min_documents: int = 1
    min_relevant: int = 0
    queries: int = 1_000

    def __post_init__(self) -> None:
        if self.cut < 1 or self.cut == 2:
            raise InputError(
                f"Data cannot be cut into {self.cut} folds: choose 1, a single split, or 3 or more."
            )

    @classmethod
    def of(cls, path: Path | str | None, reading: Mapping[str, Any], **choices: Any) -> "Source":
        """The source at a path, made absolute, with `reading` in JSON types."""
        place = None if path is None else absolute(path)
        return cls(place, json.loads(json.dumps(dict(reading), default=absolute)), **choices)

    @property
    def name(self) -> str:
        """The name of the folder or file."""
        return BUILT_IN if self.path is None else Path(self.path).name

    @cached_property
    def has_folds(self) -> bool:
        """True if it is a folder with folds."""
        if self.path is None:
            return False
        with explained("read", self.path):
            path = Path(self.path)
            return path.is_dir() and not is_store(path) and not is_folder_of_parts(path)

    @cached_property
    def folds(self) -> tuple[int, ...]:
        """The numbers of its folds, from 1 on; those of a folder have its own numbers."""
        return tuple(self._folds()) if self.has_folds else tuple(range(1, self.cut + 1))

    def check(self, folds: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """These folds, or all. Missing folds raise an error that names them."""
        known = self.folds
        chosen = folds or known
        if missing := [number for number in chosen if number not in known]:
            numbers = ", ".join(map(str, missing))
            listed = ", ".join(map(str, known))
            raise InputError(
                f"{self.path or self.name} has {counted(len(known), 'fold')} ({listed}), "
                f"but no fold {numbers}."
            )
        if self.has_folds and folds is None:
            self._check_complete()
        return tuple(chosen)

    def sets(self, fold: int) -> dict[str, Dataset]:
        """Training, validation and test data of a fold, mapped into memory if possible.

        If a fold has no validation data, a fifth of the training queries replaces it.
        """
        return _sets(self, fold)

    def fingerprint(self, fold: int) -> str:
        """A hash of the content of a fold; large features are sampled."""
        return _fingerprint(self, fold)

    def _folds(self) -> dict[int, Fold]:
        """The folds of a folder by number: that in their names, if all have one, else in order."""
        assert self.path is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # `check` repeats it
            folds = load_folds(self.path, **self.reading)
        own = [_number(fold.name) for fold in folds]
        numbered = None not in own and len(set(own)) == len(own)
        return {(own[i] or 0) if numbered else i + 1: fold for i, fold in enumerate(folds)}

    def _check_complete(self) -> None:
        """Raise an error if folds are missing or lack files."""
        assert self.path is not None
        known = self.folds
        gaps = [n for n in range(1, max(known)) if n not in known]
        folder = Path(self.path).expanduser()
        problem = "; ".join(incomplete_folds(folder, fold_candidates(folder, {})))
        if not problem and gaps and _number(self._folds()[known[0]].name):
            problem = f"{self.path}: fold {', '.join(map(str, gaps))} is missing"
        if problem:
            listed = ",".join(map(str, known))
            raise InputError(f"{problem}; complete it, or choose the others with --folds {listed}.")


def _number(name: str) -> int | None:
    """The number at the end of a fold's name: 3 of `Fold3`."""
    match = re.search(r"(\d+)$", name)
    return int(match[1]) if match and int(match[1]) > 0 else None


def absolute(path: Path | str) -> str:
    """The absolute path of a file or a folder, or an address, as text."""
    return address_of(path) or str(Path(path).expanduser().absolute())


@dataclass(frozen=True)
class Split:
    """The data of one training, as `twinrank train` and `twinrank tune` split it.

    It is a fold of a folder; or a file with validation and test data, or with a fifth of its
    queries as validation data; or the built-in data.

    >>> {name: data.queries for name, data in Split(Source(queries=30, cut=1)).sets().items()}
    {'train': 18, 'validation': 6, 'test': 6}
    """

    source: Source
    """With `cut=1`."""
    fold: int | None = None
    """The number of a fold of a folder, by default 1."""
    valid: str | None = None
    test: str | None = None
    """The paths of the data that belong to a file."""

    def __post_init__(self) -> None:
        for option, path in (("--valid", self.valid), ("--test", self.test)):
            if path is not None and (self.source.path is None or self.source.has_folds):
                raise InputError(f"{option} needs a file of training data.")
        if self.fold is not None and not self.source.has_folds:
            raise InputError(f"--fold needs a folder with folds; {self.source.name} has none.")

    def sets(self, progress: bool | None = None) -> dict[str, Dataset]:
        """Training, validation and perhaps test data; `progress` is that of `load`."""
        return _split_sets(self, progress)

    def fingerprint(self) -> str:
        """A hash of the content of training and validation data."""
        training = self.source.fingerprint(self.fold or 1)
        if self.valid is None:
            return training
        return f"{training}+{Source(self.valid, self.source.reading, cut=1).fingerprint(1)}"


@lru_cache(maxsize=1)
def _split_sets(split: Split, progress: bool | None) -> dict[str, Dataset]:
    path, reading = split.source.path, split.source.reading
    if path is None or split.source.has_folds:
        return split.source.sets(split.fold or 1)
    training = read_data(path, reading, progress=progress)
    text = text_columns(training)
    if split.valid is None:
        sets = dict(zip(FOLD_PARTS[:2], training.split(0.8), strict=True))
    else:
        sets = {"train": training, "validation": read_data(split.valid, reading, text, progress)}
    if split.test is not None:
        sets["test"] = read_data(split.test, reading, text, progress)
    # LETOR text does not say how many features there are if the last ones are absent.
    widths = {data.features for data in sets.values()}
    if len(widths) > 1 and any(data.feature_names is None for data in sets.values()):
        counts = ", ".join(f"{data.name}: {data.features}" for data in sets.values())
        hint = Argument("features", max(widths))
        raise InputError(f"The numbers of features differ ({counts}). Pass ", hint, ".")
    return sets


def read_data(
    path: str | Path,
    reading: Mapping[str, Any],
    text: Sequence[str] = (),
    progress: bool | None = None,
) -> Dataset:
    """Read data with arguments of `load`; `text` are columns that other data has as text."""
    caching = {name: value for name, value in reading.items() if name in _CACHING}
    columns = {name: value for name, value in reading.items() if name not in _CACHING}
    return load_table(path, ReadOptions.of(**columns, text=text), **caching, progress=progress)


def text_columns(data: Dataset) -> list[str]:
    """The names of the columns of text."""
    names = data.feature_names
    return [] if names is None else [names[column] for column in data.categories]


@lru_cache(maxsize=2)
def _whole(source: Source) -> Dataset:
    """The data of a source without folds."""
    if source.path is None:
        return synthetic_web_search(source.queries)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return read_data(source.path, source.reading)


@lru_cache(maxsize=2)
def _sets(source: Source, number: int) -> dict[str, Dataset]:
    source.check((number,))
    if not source.has_folds:
        whole = _kept(_whole(source), source)
        if source.cut == 1:
            return dict(zip(FOLD_PARTS, whole.split(0.6, 0.2), strict=True))
        return dict(zip(FOLD_PARTS, whole.folds(source.cut)[number - 1], strict=True))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        training, validation, test = source._folds()[number]
    assert training is not None
    assert test is not None
    if validation is None:
        training, validation = training.split(0.8)
    return {
        n: _kept(d, source) for n, d in zip(FOLD_PARTS, (training, validation, test), strict=True)
    }


@lru_cache(maxsize=64)
def _fingerprint(source: Source, fold: int) -> str:
    if source.has_folds:
        return ".".join(fingerprint(source.sets(fold)[part]) for part in FOLD_PARTS)
    kept = f"{source.min_documents}-{source.min_relevant}"
    return f"{_whole_fingerprint(source)}.{kept}.{source.cut}-{fold}"


@lru_cache(maxsize=2)
def _whole_fingerprint(source: Source) -> str:
    return fingerprint(_whole(source))


def forget() -> None:
    """Clear the caches of opened data: files may have changed."""
    for cached in (_whole, _sets, _split_sets, _fingerprint, _whole_fingerprint):
        cached.cache_clear()


def _kept(data: Dataset, source: Source) -> Dataset:
    if source.min_documents <= 1 and source.min_relevant <= 0:
        return data
    return data.filter(min_documents=source.min_documents, min_relevant=source.min_relevant)
