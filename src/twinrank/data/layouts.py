"""Folders as published data sets come: which file is whose training, validation or test data."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinrank.data.folds import Fold
from twinrank.data.loading import load
from twinrank.data.sources import COMPRESSED, FRAMES, LETOR
from twinrank.support.errors import InputError, explained
from twinrank.support.suggest import unknown

# MSLR, MQ2007/2008, Istella: train, vali, test; OHSUMED: trainingset, …; Yahoo: set1.train, …
ROLES = ("train", "validation", "test")
_NAMES = {
    "train": r"train(?:ing)?(?:[-_]?set)?",
    "validation": r"(?:vali|valid|validation|dev)(?:[-_]?set)?",
    "test": r"test(?:ing)?(?:[-_]?set)?",
}


def load_folds(
    folder: str | os.PathLike[str], names: Mapping[str, str] | None = None, **choices: Any
) -> list[Fold]:
    """The folds of a data set's folder, such as MSLR-WEB30K's Fold1 … Fold5, each loaded when used.

    Understood are folders with a folder per fold (`Fold1/train.txt`, `vali.txt`, `test.txt`; also
    `trainingset.txt`, …), a folder with the files themselves, and files with a prefix
    (`set1.train.txt`, …), which then names the fold. `names` overrides what is looked for:
    `names={"train": "tr.txt", "validation": "va.txt", "test": "te.txt"}`. The other arguments are
    those of `load`. The files of one fold get the same number of features.
    """
    base = Path(folder).expanduser()
    with explained("read", base):
        folders = [base, *sorted((p for p in base.iterdir() if p.is_dir()), key=_by_number)]
    found: dict[str, dict[str, Path]] = {}
    for place in folders:
        for prefix, files in _files(place, names).items():
            parts = ("" if place == base else place.name, prefix)
            found["/".join(part for part in parts if part) or base.name] = files
    folds = {name: files for name, files in found.items() if {"train", "test"} <= files.keys()}
    if not folds:
        raise InputError(_nothing_found(base, found))
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
            if data.features < width and data.feature_names is None:
                wider = {**self._choices, "features": width}
                loaded[role] = load(self._files[role], **wider)
        if len({(data.features, data.feature_names) for data in loaded.values()}) > 1:
            counts = ", ".join(f"{self._files[r]}: {d.features}" for r, d in loaded.items())
            raise InputError(f"the files of one fold must have the same features ({counts})")
        return loaded["train"], loaded.get("validation"), loaded["test"]


def _by_number(path: Path) -> tuple[Any, ...]:
    """Fold2 before Fold10."""
    pieces = re.split(r"(\d+)", path.name)
    return tuple((int(p), "") if p.isdigit() else (-1, p) for p in pieces)


def _files(place: Path, names: Mapping[str, str] | None) -> dict[str, dict[str, Path]]:
    """The files of a folder by prefix and role."""
    if names is not None:
        for role in names:
            if role not in ROLES:
                raise InputError(unknown("part of a fold", role, ROLES))
        given = {role: place / name for role, name in names.items() if (place / name).is_file()}
        return {"": given} if given else {}
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(place.iterdir()):
        if not path.is_file():
            continue
        stem = path.name.removesuffix(path.suffix) if path.suffix in COMPRESSED else path.name
        if Path(stem).suffix in LETOR + FRAMES:
            stem = Path(stem).stem
        for role, pattern in _NAMES.items():
            if match := re.fullmatch(rf"(?:(.+)[._-])?{pattern}", stem, re.IGNORECASE):
                files = found.setdefault(match[1] or "", {})
                if role in files:
                    raise InputError(
                        f"{files[role]} and {path} both look like {role} data; "
                        f"say which: names={{'{role}': …}}"
                    )
                files[role] = path
    return found


def _nothing_found(base: Path, found: dict[str, dict[str, Path]]) -> str:
    if found:
        name, files = next(iter(found.items()))
        lacking = " and ".join(sorted({"train", "test"} - files.keys()))
        return f"{base}: {name} has no {lacking} file (found {', '.join(map(str, files.values()))})"
    return (
        f"no folds in {base}: looked for train, vali and test files there and in its folders; "
        f"names={{'train': …, 'validation': …, 'test': …}} says what they are called"
    )
