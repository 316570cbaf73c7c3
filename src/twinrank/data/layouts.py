"""Folders as published data sets come: which file is whose training, validation or test data."""

import os
import re
import warnings
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from twinrank.data.folds import Fold
from twinrank.data.loading import load
from twinrank.data.store import is_store
from twinrank.data.streams import COMPRESSED, FRAMES, LETOR, plain_suffix
from twinrank.support.errors import DataWarning, InputError, explained, unknown

# MSLR, MQ2007/2008, Istella: train, vali, test; OHSUMED: trainingset, …; Yahoo: set1.train, …
ROLES = ("train", "validation", "test")
_NAMES = {
    "train": r"train(?:ing)?(?:[-_]?set)?",
    "validation": r"(?:vali|valid|validation|dev)(?:[-_]?set)?",
    "test": r"test(?:ing)?(?:[-_]?set)?",
}
_NEEDED = {"train", "test"}


def load_folds(
    folder: str | os.PathLike[str], names: Mapping[str, str] | None = None, **choices: Any
) -> list[Fold]:
    """The folds of a data set's folder, such as MSLR-WEB30K's Fold1 … Fold5, each loaded when used.

    Understood are folders with a folder per fold (`Fold1/train.txt`, `vali.txt`, `test.txt`; also
    `trainingset.txt`, …), a folder with the files themselves, and files with a prefix
    (`set1.train.txt`, …), which then names the fold. `names` overrides what is looked for:
    `names={"train": "tr.txt", "validation": "va.txt", "test": "te.txt"}`, or some of them. The
    other arguments are those of `load`. The files of one fold get the same number of features.
    """
    base = Path(folder).expanduser()
    if unexpected := [name for name in choices if name not in signature(load).parameters]:
        raise TypeError(f"load_folds() got an unexpected keyword argument {unexpected[0]!r}")
    for role in names or ():
        if role not in ROLES:
            raise InputError(unknown("part of a fold", role, ROLES))
    with explained("read", base):
        folders = [base, *sorted((p for p in base.iterdir() if _is_place(p)), key=_by_number)]
    found: dict[str, dict[str, Path]] = {}
    for place in folders:
        for prefix, files in _files(place, names or {}).items():
            parts = ("" if place == base else place.name, prefix)
            found["/".join(part for part in parts if part) or base.resolve().name] = files
    folds = {name: files for name, files in found.items() if files.keys() >= _NEEDED}
    if not folds:
        raise InputError(_nothing_found(base, found, names))
    for name in found.keys() - folds.keys():
        said = f"{base}: {_lacking(name, found[name])}; it is left out"
        warnings.warn(said, DataWarning, stacklevel=2)
    return [Fold(name, _Loader(files, choices)) for name, files in folds.items()]


class _Loader:
    """Loads a fold's files, all with the width of the widest."""

    def __init__(self, files: dict[str, Path], choices: dict[str, Any]) -> None:
        self._files = files
        self._choices = choices

    def __call__(self) -> Any:
        loaded = {role: load(path, **self._choices) for role, path in self._files.items()}
        width = max(data.features for data in loaded.values())
        for role, data in loaded.items():
            path = self._files[role]
            as_text = path.is_file() and plain_suffix(path) not in FRAMES
            if as_text and data.features < width and data.feature_names is None:
                loaded[role] = load(path, **{**self._choices, "features": width})
        if len({(data.features, data.feature_names) for data in loaded.values()}) > 1:
            counts = ", ".join(f"{self._files[r]}: {d.features}" for r, d in loaded.items())
            raise InputError(
                f"the files of one fold must have the same features, by number, name and order "
                f"({counts})"
            )
        return loaded["train"], loaded.get("validation"), loaded["test"]


def _is_place(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".") and not is_store(path)


def _by_number(path: Path) -> tuple[Any, ...]:
    """Fold2 before Fold10."""
    pieces = re.split(r"(\d+)", path.name)
    return tuple((int(p), "") if p.isdecimal() else (-1, p) for p in pieces)


def _files(place: Path, names: Mapping[str, str]) -> dict[str, dict[str, Path]]:
    """The files of a folder by prefix and role; data saved as a folder counts as a file."""
    given = {role: place / name for role, name in names.items() if (place / name).exists()}
    found: dict[str, dict[str, Path]] = {"": given} if given else {}
    with explained("read", place):
        content = sorted(place.iterdir())
    for path in content:
        if path.name.startswith(".") or not (path.is_file() or is_store(path)):
            continue
        for role in ROLES:
            match = re.fullmatch(rf"(?:(.+)[._-])?{_NAMES[role]}", _stem(path), re.IGNORECASE)
            if match is None or role in names:
                continue
            files = found.setdefault(match[1] or "", {})
            if role in files:
                raise InputError(
                    f"{files[role]} and {path} both look like {role} data; "
                    f"say which: names={{'{role}': …}}"
                )
            files[role] = path
    return found


def _stem(path: Path) -> str:
    """A file's name without the suffixes that tell its format."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.stem if name.suffix.lower() in LETOR + FRAMES else name.name


def _lacking(name: str, files: dict[str, Path]) -> str:
    lacking = " and ".join(sorted(_NEEDED - files.keys()))
    return f"{name} has no {lacking} file (found {', '.join(path.name for path in files.values())})"


def _nothing_found(
    base: Path, found: dict[str, dict[str, Path]], names: Mapping[str, str] | None
) -> str:
    if found:
        return f"{base}: {_lacking(*next(iter(found.items())))}"
    sought = ", ".join(map(repr, names.values())) if names else "train, vali and test files"
    return (
        f"no folds in {base}: looked for {sought} there and in its folders; "
        f"names={{'train': …, 'validation': …, 'test': …}} says what they are called"
    )
