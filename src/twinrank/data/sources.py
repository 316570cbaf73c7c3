"""Sources of data: a file, a folder, a pattern or a list of files, an address, a stream of batches.

A single file is a list of one part. Names of files say which part of a fold they hold.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from twinrank.data.store import is_store
from twinrank.data.streams import COMPRESSED, FRAMES, LETOR, plain_suffix
from twinrank.support.errors import InputError, explained

# One slash is enough: a path on the command line has lost the other.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}(?=[^/])", re.IGNORECASE)
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
ROLES = ("train", "validation", "test")
# MSLR, MQ2007/2008, Istella: train, vali, test; OHSUMED: trainingset, …; Yahoo: set1.train, …
_ROLE_NAMES = {
    "train": r"train(?:ing)?(?:[-_]?set)?",
    "validation": r"(?:vali|valid|validation|dev)(?:[-_]?set)?",
    "test": r"test(?:ing)?(?:[-_]?set)?",
}


@dataclass(frozen=True)
class Part:
    """A file with rows, and the values that the names of its folders give to columns."""

    path: Path
    partition: tuple[tuple[str, str | int | float | None], ...] = ()


def address_of(source: object) -> str | None:
    """Return an address such as s3://bucket/folder, or None for a path.

    >>> address_of("s3://logs/day"), address_of(Path("s3://logs/day")), address_of("day.csv")
    ('s3://logs/day', 's3://logs/day', None)
    """
    match = _ADDRESS.match(text := str(source)) if isinstance(source, str | Path) else None
    if match is None:
        return None
    start = "file:///" if match[1].lower() == "file" else f"{match[1]}://"
    return start + text[match.end() :]


def is_source(value: Any) -> bool:
    """True for a source of `load` that holds labels and queries itself: files or a stream."""
    if isinstance(value, str | os.PathLike):
        return True
    if isinstance(value, list | tuple) and value:
        return all(isinstance(item, str | os.PathLike) for item in value)
    return is_stream(value)


def is_stream(value: Any) -> bool:
    """True for an Arrow dataset, a reader of record batches, and a lazy frame of polars."""
    library, name = type(value).__module__.split(".")[0], type(value).__name__
    if library == "pyarrow":
        return hasattr(value, "scanner") or hasattr(value, "read_next_batch")
    return (library, name) == ("polars", "LazyFrame")


def find_parts(source: Any) -> list[Part]:
    """Return the files of a folder, a pattern or a list; a single file is the only part."""
    if isinstance(source, list | tuple):
        return _listed(source)
    path = Path(source).expanduser()
    with explained("read", path):
        if path.is_dir():
            return _in_folder(path)
        if not path.exists() and glob.has_magic(str(path)):
            return _matching(path)
    return [Part(path)]


def is_folder_of_parts(folder: Path) -> bool:
    """True for a folder with tables that is not laid out as folds."""
    return folder.is_dir() and _roles_in(folder) is None and any(tables_in(folder))


def _listed(paths: Sequence[Any]) -> list[Part]:
    files = [Path(path).expanduser() for path in paths]
    if not files:
        raise InputError("The list of files is empty; pass at least one file.")
    if repeated := [path for path, count in Counter(files).items() if count > 1]:
        raise InputError(f"{repeated[0]} is in the list twice; name each file once.")
    if len(files) == 1 and plain_suffix(files[0]) not in FRAMES:
        return [Part(files[0])]
    return [_part(path) for path in files]


def _matching(pattern: Path) -> list[Part]:
    names = glob.glob(str(pattern), recursive=True)  # noqa: PTH207
    found = sorted(map(Path, names), key=_order)
    files = [path for path in found if not path.is_dir()]
    for folder in (path for path in found if path.is_dir()):
        files += [path for path in tables_in(folder) if path not in files]
    if not files:
        raise InputError(f"No file matches {pattern}.")
    return [_part(path) for path in files]


def _in_folder(folder: Path) -> list[Part]:
    if (fold := _roles_in(folder)) is not None:
        names = ", ".join(path.name for path in fold.values())
        raise InputError(
            f"{folder} has training and test data ({names}), which are not mixed. Name a file in "
            f"it; in Python, load_folds loads all of them."
        )
    files = list(tables_in(folder))
    if not files:
        raise InputError(
            f"{folder} is a folder without 'manifest.json' and without tables ({', '.join(FRAMES)})"
            f"; use load_folds for folds such as Fold1/train.txt, or pass the path of a file."
        )
    return [_part(path, folder) for path in files]


def _roles_in(folder: Path) -> dict[str, Path] | None:
    """The files of a fold, if a folder has at least training and other data."""
    candidates = fold_candidates(folder, {})
    return next((files for files in candidates.values() if len(files) > 1), None)


def _order(path: Path) -> tuple[Any, ...]:
    """A sort key that puts part-2 before part-10."""
    return tuple(by_number(Path(piece)) for piece in path.parts)


def _part(path: Path, base: Path | None = None) -> Part:
    """A file as a part; folders called `column=value` below `base` give values to columns."""
    if plain_suffix(path) not in FRAMES:
        raise InputError(
            f"{path} is not a table; several files must be {', '.join(FRAMES)}. Convert LETOR text "
            f"first: twinrank convert."
        )
    folders = path.parent.relative_to(base).parts if base is not None else path.parent.parts
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return Part(path, tuple((unquote(name), _value(unquote(text))) for name, _, text in pairs))


def _value(text: str) -> str | int | float | None:
    if text == _NO_VALUE:
        return None
    for convert in (int, float):
        try:
            value = convert(text)
        except ValueError:
            continue
        return value if str(value) == text else text  # 007 is text
    return text


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
            match = re.fullmatch(rf"(?:(.+)[._-])?{_ROLE_NAMES[role]}", _stem(path), re.IGNORECASE)
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
