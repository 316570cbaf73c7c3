"""`load_folds`: find the training, validation and test files of a published dataset."""

import os
from collections.abc import Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from twinrank.data.dataset import Dataset
from twinrank.data.folds import Fold
from twinrank.data.from_csv import SEPARATORS
from twinrank.data.loading import load
from twinrank.data.options import column_names
from twinrank.data.sources import ROLES, fold_candidates
from twinrank.data.streams import FRAMES, plain_suffix
from twinrank.support.errors import DataWarning, InputError, unknown, warn

_REQUIRED = {"train", "test"}


def load_folds(
    folder: str | os.PathLike[str], names: Mapping[str, str] | None = None, **options: Any
) -> list[Fold]:
    """Find the folds of a dataset's folder, such as Fold1 … Fold5 of MSLR-WEB30K.

    Three layouts are recognised: one folder per fold (`Fold1/train.txt`, `vali.txt`, `test.txt`;
    also `trainingset.txt`, …), one folder with these files, and files with a prefix that names the
    fold (`set1.train.txt`, …). Each fold is loaded at first use. All files of a fold get the same
    number of features.

    Parameters
    ----------
    folder : path
        The folder of the dataset.
    names : mapping of str to str, optional
        File names to look for, such as `{"train": "tr.txt", "test": "te.txt"}`. The keys are
        "train", "validation" and "test".
    **options
        Options of `load`, the same for all files.

    Returns
    -------
    list of Fold
        The folds, in the order of their numbers. A folder without a training or a test file is
        left out with a `DataWarning`.

    Raises
    ------
    InputError
        If there is no fold, or if two files could have the same role.

    Examples
    --------
    >>> for fold in load_folds("MSLR-WEB30K"):                                   # doctest: +SKIP
    ...     print(fold.name, fold.train.queries)
    """
    base = Path(folder).expanduser()
    if unexpected := [name for name in options if name not in signature(load).parameters]:
        raise TypeError(f"load_folds() got an unexpected keyword argument {unexpected[0]!r}")
    for role in names or ():
        if role not in ROLES:
            raise InputError(unknown("part of a fold", role, ROLES))
    candidates = fold_candidates(base, names or {})
    folds = {name: files for name, files in candidates.items() if files.keys() >= _REQUIRED}
    if not folds:
        raise _no_folds(base, candidates, names)
    for problem in incomplete_folds(base, candidates):
        warn(DataWarning(f"{problem}; it is left out."))
    return [Fold(name, partial(_loaded, files, options)) for name, files in folds.items()]


def _loaded(files: Mapping[str, Path], options: Mapping[str, Any]) -> Any:
    """Load the files of a fold, all with the same number of features."""
    parts = {"train": load(files["train"], **options)}
    for role, path in files.items():
        if role != "train":
            parts[role] = load(path, **_typed(options, path, parts["train"]))
    width = max(data.features for data in parts.values())
    for role, data in parts.items():
        path = files[role]
        is_text = path.is_file() and plain_suffix(path) not in FRAMES
        if is_text and data.features < width and data.feature_names is None:
            parts[role] = load(path, **{**options, "features": width})
    if len({(data.features, data.feature_names) for data in parts.values()}) > 1:
        counts = ", ".join(f"{files[role]}: {data.features}" for role, data in parts.items())
        raise InputError(
            f"The files of a fold have different features ({counts}); their number, names and "
            f"order must be the same."
        )
    return parts["train"], parts.get("validation"), parts["test"]


def _typed(options: Mapping[str, Any], path: Path, train: Dataset) -> Mapping[str, Any]:
    """The options for another file: a CSV file is read with the text columns of training."""
    names = train.feature_names
    if names is None or plain_suffix(path) not in SEPARATORS:
        return options
    text = [names[column] for column in train.categories]
    chosen = column_names(options.get("categorical_features"))
    return {**options, "categorical_features": [*chosen, *text]}


def incomplete_folds(base: Path, candidates: dict[str, dict[str, Path]]) -> list[str]:
    """What is missing in the folds of a folder that have no training or no test data."""
    problems = []
    for name, files in candidates.items():
        if missing := " and ".join(sorted(_REQUIRED - files.keys())):
            found = ", ".join(path.name for path in files.values())
            problems.append(f"{base}: {name} has no {missing} file (found {found})")
    return problems


def _no_folds(
    base: Path, candidates: dict[str, dict[str, Path]], names: Mapping[str, str] | None
) -> InputError:
    if candidates:
        return InputError(f"{incomplete_folds(base, candidates)[0]}.")
    expected = ", ".join(map(repr, names.values())) if names else "train, vali and test files"
    return InputError(
        f"There are no folds in {base}: found no {expected} there or in its folders; pass their "
        f"names as names={{'train': …, 'validation': …, 'test': …}}."
    )
