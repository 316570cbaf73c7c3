"""A search for good settings of nets and trees: Optuna draws them, a validation measure judges."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.measures import measure
from twinrank.study.tuning.space import NET, Space
from twinrank.study.tuning.split import Split
from twinrank.support.errors import InputError, explained
from twinrank.support.files import read_json, remove, replacing

if TYPE_CHECKING:
    from twinrank.estimators.base import BaseRanker
    from twinrank.study.tuning.trials import Tried

SETTINGS = "tuning.json"
_LOCK = "tuning.lock"
_FORMAT, _VERSION = "twinrank-tuning", 3  # raised when what is searched changes
_WORDS = {"split": "data", "spaces": "models or parameters"}  # of settings, for people


@dataclass(frozen=True)
class Tuning:
    """What is searched, on which data, by which measure; nets for `epochs`, trees for `rounds`.

    With one job, the same seed gives the same search, even one that was killed and taken up again.
    """

    split: Split
    spaces: Sequence[Space]
    """One for each kind of model; each has a search of its own."""
    measure: str = "nDCG@5"
    epochs: int = 30
    rounds: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        measure(self.measure)

    @property
    def models(self) -> list[str]:
        """The kinds of models."""
        return [space.model for space in self.spaces]

    def space(self, model: str) -> Space:
        """What is searched for a kind of model."""
        return next(space for space in self.spaces if space.model == model)

    def total(self, model: str) -> int:
        """Epochs or rounds at most."""
        return self.epochs if model == NET else self.rounds

    def estimator(self, model: str) -> "type[BaseRanker]":
        """The class that is trained."""
        if model == NET:
            from twinrank.estimators.ranker import Ranker

            return Ranker
        from twinrank.estimators.boosted import BoostedRanker

        return BoostedRanker

    def parameters(self, model: str, drawn: dict[str, Any]) -> dict[str, Any]:
        """All that the estimator is told, but for its number of threads."""
        long = {"epochs": self.epochs} if model == NET else {"n_estimators": self.rounds}
        return {**drawn, **long, "validation_measure": self.measure, "random_state": self.seed}

    def run(
        self,
        out: str | os.PathLike[str],
        trials: int,
        jobs: int | None = None,
        ray: str | None = None,
        timeout: float | None = None,
        progress: bool = True,
        force: bool = False,
    ) -> "list[Tried]":
        """Go on until there are so many trials of each kind of model; all that there are then.

        A journal in the folder `out` has every trial as soon as it is begun. `jobs` trials run at a
        time, by default one per core, each on one thread; `ray` is the address of a Ray cluster
        that runs them instead, and whose machines all see `out` and the data. No trial begins after
        `timeout` seconds. A folder that holds something else is refused, unless `force`.
        """
        check_installed()
        from twinrank.study.tuning.progress import watching
        from twinrank.study.tuning.searching import run_trials

        folder = Path(out).expanduser().absolute()
        deadline = None if timeout is None else time.time() + timeout
        with self._claimed(folder, force), watching(folder, self, trials, progress):
            run_trials(folder, self, trials, jobs, ray, deadline)
        return self.tried(folder)

    def tried(self, out: Path) -> "list[Tried]":
        """The trials in a folder, in the order in which they were begun, by kind of model."""
        from twinrank.study.tuning.trials import open_search, tried

        return [one for model in self.models for one in tried(open_search(out, self, model))]

    def to_text(self) -> str:
        """Canonical JSON, from which `from_text` makes the same."""
        return json.dumps(self._plain, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Tuning":
        """The inverse of `to_text`."""
        plain = json.loads(text)
        split = Split.from_text(json.dumps(plain.pop("split")))
        spaces = tuple(Space.from_json(one) for one in plain.pop("spaces"))
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
        """The folder for this search alone; another one's is left as it is, or goes if forced."""
        from twinrank.study.tuning.trials import JOURNAL, take_up

        path = folder / SETTINGS
        about = {"format": _FORMAT, "version": _VERSION, **json.loads(self.to_text())}
        about["data"] = self.split.fingerprint()
        with explained("write", folder):
            known = folder.exists() and _holds(folder, about, force)
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / _LOCK):
            if not known:
                remove(folder / JOURNAL)
            with replacing(path) as partial:
                partial.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
            take_up(folder, self)
            yield


def _holds(folder: Path, about: dict[str, Any], force: bool) -> bool:
    """Whether a folder holds this very search; another one is an error, unless forced."""
    way_out = "choose another --out, or --force to begin anew there"
    path = folder / SETTINGS
    if not path.is_file():
        if any(folder.iterdir()) and not force:
            raise InputError(f"{folder} isn't empty, and not the folder of a search; {way_out}")
        return False
    there = read_json(path)
    if there == about:
        return True
    if force:
        return False
    if not isinstance(there, dict) or there.get("format") != _FORMAT:
        raise InputError(f"{path} is not that of a search; {way_out}")
    differ = [_WORDS.get(key, key) for key in about if there.get(key) != about[key]]
    others = ", ".join(dict.fromkeys(differ))
    raise InputError(f"{folder} holds a search with other {others}; {way_out}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone at work in a folder; the lock goes with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # Windows: there, people must see to it themselves
        yield
        return
    with explained("write", path):
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another process is searching in {path.parent}") from error
        yield


def check_installed() -> None:
    """Say what to install where Optuna isn't."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise InputError("tuning needs Optuna: pip install 'twinrank[tune]'") from error
