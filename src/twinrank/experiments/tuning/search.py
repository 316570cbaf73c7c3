"""A search for good parameters of nets and trees: the data, the settings and the folder."""

import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.core.measures import measure
from twinrank.data.dataset import Dataset
from twinrank.data.loading import load
from twinrank.experiments.study.methods import BLEND, KINDS, NET, TREES
from twinrank.experiments.study.progress import watching
from twinrank.experiments.study.scheduler import run_jobs
from twinrank.experiments.study.source import Source
from twinrank.experiments.study.written_files import saved_settings, write_json
from twinrank.experiments.tuning.space import Space
from twinrank.support.errors import Argument, DataWarning, InputError, explained
from twinrank.support.files import remove
from twinrank.support.locks import locked

if TYPE_CHECKING:
    from twinrank.experiments.tuning.trials import TrialRecord

SETTINGS = "tuning.json"
_STAGES = 3  # of a blend: trees, net, and both together
_FORMAT, _VERSION = "twinrank-tuning", 3  # increased when the default space changes
_NAMES = {"split": "data", "spaces": "models or parameters"}  # of settings, in messages
_REMEDY = "Choose another --out, or pass --force to replace it."


@dataclass(frozen=True)
class Split:
    """Training and validation data, split as `twinrank train` splits it.

    It is a fold of a folder, or a file with its validation data or a fifth of its queries. The test
    queries of a fold, and of the built-in data, are not used.

    >>> {name: data.queries for name, data in Split(Source(queries=30, cut=1)).sets().items()}
    {'train': 18, 'validation': 6}
    """

    source: Source
    """With `cut=1`."""
    fold: int = 1
    valid: str | None = None
    """The path of the validation data that goes with a file."""

    def __post_init__(self) -> None:
        if self.valid is not None and (self.source.path is None or self.source.has_folds):
            raise InputError("--valid needs a file of training data.")
        if self.fold != 1 and not self.source.has_folds:
            raise InputError(f"--fold needs a folder with folds; {self.source.name} has none.")

    def sets(self) -> dict[str, Dataset]:
        """Training and validation data."""
        return _sets(self.to_text())

    def fingerprint(self) -> str:
        """A hash of the content."""
        training = self.source.fingerprint(self.fold)
        if self.valid is None:
            return training
        return f"{training}+{Source(self.valid, self.source.reading, cut=1).fingerprint(1)}"

    def to_text(self) -> str:
        """Canonical JSON."""
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
        validation = load(split.valid, **source.reading)
    if whole.features != validation.features:
        counts = f"{whole.name}: {whole.features}, {validation.name}: {validation.features}"
        most = max(whole.features, validation.features)
        raise InputError(
            f"The data sets have different numbers of features ({counts}). Pass ",
            Argument("features", most),
            ".",
        )
    return {"train": whole, "validation": validation}


@dataclass(frozen=True)
class Tuning:
    """A search: the data, the spaces, the measure, and the iterations of nets and of trees.

    With one job, the same seed gives the same search, even if it was killed and resumed.
    """

    split: Split
    spaces: Sequence[Space]
    """One for each kind of model; each is searched separately."""
    measure: str = "nDCG@5"
    epochs: int = 30
    rounds: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        measure(self.measure)

    @property
    def models(self) -> list[str]:
        """The names of the kinds of models."""
        return [space.model for space in self.spaces]

    def space(self, model: str) -> Space:
        """The space of a kind of model."""
        return next(space for space in self.spaces if space.model == model)

    def total(self, model: str) -> int:
        """The highest number of epochs or rounds; of a blend, its stages."""
        return {NET.name: self.epochs, TREES.name: self.rounds, BLEND.name: _STAGES}[model]

    def parameters(self, model: str, drawn: dict[str, Any]) -> dict[str, Any]:
        """All parameters of the estimator except its number of threads."""
        iterations = {KINDS[model].iterations_parameter: self.total(model)}
        if model == BLEND.name:
            iterations = {"trees__n_estimators": self.rounds, "net__epochs": self.epochs}
        return {
            **drawn,
            **iterations,
            "validation_measure": self.measure,
            "random_state": self.seed,
        }

    def run(
        self,
        out: str | os.PathLike[str],
        trials: int,
        jobs: int | None = None,
        ray: str | None = None,
        timeout: float | None = None,
        progress: bool = True,
        force: bool = False,
    ) -> "list[TrialRecord]":
        """Run trials until each kind of model has `trials` of them. Return all trials.

        A journal in the folder `out` records every trial as soon as it begins. `jobs` trials run at
        a time, by default one per core, each on one thread. `ray` is the address of a Ray cluster
        that runs them instead; all its machines must see `out` and the data. No trial begins after
        `timeout` seconds. A folder with other content raises an error, unless `force`.
        """
        check_installed()
        from twinrank.experiments.tuning.trials import TrialQueue

        folder = Path(out).expanduser().absolute()
        deadline = None if timeout is None else time.time() + timeout
        with self._claimed(folder, force):
            queue = TrialQueue(folder, self, trials, deadline)
            with watching(queue, progress):
                run_jobs(queue, jobs, ray)
        return self.trials(folder)

    def trials(self, out: Path) -> "list[TrialRecord]":
        """The trials in a folder by kind of model, in the order in which they began."""
        from twinrank.experiments.tuning.trials import open_search, trials_of

        return [t for model in self.models for t in trials_of(open_search(out, self, model))]

    def to_text(self) -> str:
        """Canonical JSON."""
        return json.dumps(self._plain, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Tuning":
        """The inverse of `to_text`."""
        plain = json.loads(text)
        split = Split.from_text(json.dumps(plain.pop("split")))
        spaces = tuple(Space.from_json(space) for space in plain.pop("spaces"))
        return cls(split, spaces, **plain)

    @cached_property
    def _plain(self) -> dict[str, Any]:
        return {
            "split": json.loads(self.split.to_text()),
            "spaces": [space.to_json() for space in self.spaces],
            "measure": self.measure,
            "epochs": self.epochs,
            "rounds": self.rounds,
            "seed": self.seed,
        }

    @contextmanager
    def _claimed(self, folder: Path, force: bool) -> Iterator[None]:
        """Lock the folder; that of another search raises an error, or is emptied if forced."""
        from twinrank.experiments.tuning.trials import JOURNAL, resume_search

        about = {"format": _FORMAT, "version": _VERSION, **json.loads(self.to_text())}
        about["data"] = self.split.fingerprint()
        with locked(folder, "searching"):
            with explained("write", folder):
                known = _holds(folder, about, force)
            if not known:
                remove(folder / JOURNAL)
            write_json(folder / SETTINGS, about)
            resume_search(folder, self)
            yield


def _holds(folder: Path, about: dict[str, Any], force: bool) -> bool:
    """True if a folder holds the same search; other content raises an error, unless forced."""
    if force and not (folder / SETTINGS).is_file():
        return False
    saved = saved_settings(folder, SETTINGS, "search", [_REMEDY])
    if saved == about:
        return True
    if force or saved is None:
        return False
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise InputError(f"{folder / SETTINGS} is not the file of a search. {_REMEDY}")
    changed = [_NAMES.get(key, key) for key in about if saved.get(key) != about[key]]
    names = ", ".join(dict.fromkeys(changed))
    raise InputError(f"{folder} contains a search with other {names}. {_REMEDY}")


def check_installed() -> None:
    """Raise an error that says how to install Optuna if it is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise InputError(
            "Tuning needs Optuna; install it with pip install 'twinrank[tune]'."
        ) from error
