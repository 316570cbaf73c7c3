"""Names of files in a dataset's folder that say which part of a fold a file holds."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twinrank.data.store import is_store
from twinrank.data.streams import COMPRESSED, FRAMES, LETOR, plain_suffix
from twinrank.support.errors import InputError, explained

ROLES = ("train", "validation", "test")
# MSLR, MQ2007/2008, Istella: train, vali, test; OHSUMED: trainingset, …; Yahoo: set1.train, …
_NAMES = {
    "train": r"train(?:ing)?(?:[-_]?set)?",
    "validation": r"(?:vali|valid|validation|dev)(?:[-_]?set)?",
    "test": r"test(?:ing)?(?:[-_]?set)?",
}


def fold_candidates(base: Path, names: Mapping[str, str]) -> dict[str, dict[str, Path]]:
    """Return the files of each fold in a folder and its subfolders, by fold and role."""
    with explained("read", base):
        folders = [base, *sorted((p for p in base.iterdir() if _is_folder(p)), key=by_number)]
    candidates: dict[str, dict[str, Path]] = {}
    for directory in folders:
        for prefix, files in _files(directory, names).items():
            parts = ("" if directory == base else directory.name, prefix)
            candidates["/".join(part for part in parts if part) or base.resolve().name] = files
    return candidates


def _is_folder(path: Path) -> bool:
    """True for a visible folder that is not itself a saved dataset."""
    return path.is_dir() and not path.name.startswith(".") and not is_store(path)


def by_number(path: Path) -> tuple[Any, ...]:
    """Return a sort key that puts Fold2 before Fold10."""
    pieces = re.split(r"(\d+)", path.name)
    return tuple((int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces)


def tables_in(folder: Path) -> Iterator[Path]:
    """Return the tables in a folder and its folders, without hidden and underscored names."""
    for path in sorted(folder.iterdir(), key=by_number):
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            yield from tables_in(path)
        elif plain_suffix(path) in FRAMES:
            yield path


def _files(folder: Path, names: Mapping[str, str]) -> dict[str, dict[str, Path]]:
    """Return the data files of a folder by prefix and role.

    A saved folder counts as a file, and so does a folder of tables.
    """
    named = {role: folder / name for role, name in names.items() if (folder / name).exists()}
    by_prefix: dict[str, dict[str, Path]] = {"": named} if named else {}
    with explained("read", folder):
        paths = sorted(folder.iterdir())
    for path in paths:
        if path.name.startswith("."):
            continue
        if not (path.is_file() or is_store(path) or (path.is_dir() and any(tables_in(path)))):
            continue
        for role in ROLES:
            match = re.fullmatch(rf"(?:(.+)[._-])?{_NAMES[role]}", _stem(path), re.IGNORECASE)
            if match is None or role in names:
                continue
            files = by_prefix.setdefault(match[1] or "", {})
            if role in files:
                raise InputError(
                    f"{files[role]} and {path} both look like {role} data; "
                    f"choose one: names={{'{role}': …}}."
                )
            files[role] = path
    return by_prefix


def _stem(path: Path) -> str:
    """Return a file's name without the suffixes of its format."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.stem if name.suffix.lower() in LETOR + FRAMES else name.name
