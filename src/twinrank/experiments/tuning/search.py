"""A search for good parameters: its data and settings, and its trials, which Optuna draws.

OUT/tuning.json     the settings
OUT/trials.journal  every trial, from its beginning on
"""

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from twinrank.core.measures import measure
from twinrank.experiments.study.methods import BLEND, MODEL_KINDS, NET, TREES
from twinrank.experiments.study.scheduler import DIED, Item, Job, run_jobs
from twinrank.experiments.study.study_folder import saved_settings
from twinrank.experiments.study.study_source import Split
from twinrank.experiments.study.units import one_thread
from twinrank.experiments.tuning.space import Space
from twinrank.learning.training.callbacks import Callback
from twinrank.support.errors import (
    DataWarning,
    InputError,
    TwinRankError,
    error_message,
    explained,
)
from twinrank.support.files import remove, write_json
from twinrank.support.locks import locked

JOURNAL, SETTINGS = "trials.journal", "tuning.json"
_FORMAT, _VERSION = "twinrank-tuning", 5  # increased when the default space changes
_NAMES = {"split": "data", "spaces": "models or parameters"}  # of settings, in messages
_REMEDY = "Choose another --out, or pass --force to replace it."
_STAGES = 3  # of a blend: trees, net, and both together
_WARM_UP = 0.1  # the share of epochs or rounds before which no trial is pruned
_STARTUP = 5  # the first trials are not pruned, since the others are compared with them
_REPORTS = 30  # reports of a trial at most: each is a write to the journal


@dataclass(frozen=True)
class TrialRecord:
    """A trial as the journal has it."""

    model: str
    number: int
    """From 1 on, without gaps."""
    state: str
    """running, complete, pruned or failed."""
    value: float | None
    """The best validation value; of a pruned trial, the best until then."""
    after: int
    """The epoch or round of the value; of a trial that is not complete, the last one reported."""
    seconds: float | None
    chosen: Mapping[str, Any]
    """The parameters that were searched."""
    parameters: Mapping[str, Any]
    """All parameters of the estimator."""
    error: str
    is_start: bool = False
    """True if the parameters are the starting point of the search, the defaults."""

    @property
    def name(self) -> str:
        """Its name within the search."""
        return f"{self.model} {self.number}"


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
        iterations = {MODEL_KINDS[model].iterations_parameter: self.total(model)}
        if model == BLEND.name:
            iterations = {"trees__n_estimators": self.rounds, "net__epochs": self.epochs}
        own = {"validation_measure": self.measure, "random_state": self.seed}
        return {**drawn, **iterations, **own}

    def run(
        self,
        out: str | os.PathLike[str],
        trials: int,
        jobs: int | None = None,
        ray: str | None = None,
        timeout: float | None = None,
        progress: bool = True,
        force: bool = False,
    ) -> list[TrialRecord]:
        """Run trials until each kind of model has `trials` of them. Return all trials.

        A journal in the folder `out` records every trial as soon as it begins. `jobs` trials run at
        a time, by default one per core, each on one thread. `ray` is the address of a Ray cluster
        that runs them instead; all its machines must see `out` and the data. No trial begins after
        `timeout` seconds. A folder with other content raises an error, unless `force`.
        """
        folder = Path(out).expanduser().absolute()
        deadline = None if timeout is None else time.time() + timeout
        settings = {"format": _FORMAT, "version": _VERSION, **json.loads(json.dumps(asdict(self)))}
        settings["data"] = self.split.fingerprint()
        with locked(folder, "searching"):
            with explained("write", folder):
                _claim(folder, settings, force)
            self._resume(folder)
            run_jobs(TrialQueue(folder, self, trials, deadline), jobs, ray, progress)
        return self.trials(folder)

    def trials(self, out: Path) -> list[TrialRecord]:
        """The trials in a folder by kind of model, in the order in which they began."""
        return [t for model in self.models for t in trials_of(open_search(out, self, model))]

    def _resume(self, out: Path) -> None:
        """Prepare a journal to be continued: trials of killed processes do not count."""
        journal = out / JOURNAL
        with explained("write", journal), suppress(FileNotFoundError), journal.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)  # removes a line that was being written
        end_running(out, self)
        for space in self.spaces:
            study = open_search(out, self, space.model)
            if not any(trial.is_start for trial in trials_of(study, waiting=True)):
                study.enqueue_trial({k: value.start for k, value in space.dimensions.items()})


def _claim(folder: Path, settings: dict[str, Any], force: bool) -> None:
    """Write the settings; a folder of something else raises an error, or is replaced if forced."""
    saved = None
    if not force or (folder / SETTINGS).is_file():
        saved = saved_settings(folder, SETTINGS, "search", [_REMEDY])
    if saved != settings:
        if saved is not None and not force:
            known = saved if isinstance(saved, dict) else {}
            changed = [_NAMES.get(key, key) for key in settings if known.get(key) != settings[key]]
            names = ", ".join(dict.fromkeys(changed))
            raise InputError(f"{folder} contains a search with other {names}. {_REMEDY}")
        remove(folder / JOURNAL)
    write_json(folder / SETTINGS, settings)


def open_search(out: Path, tuning: Tuning, model: str) -> optuna.Study:
    """Open the search of one kind of model in the journal of a folder."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warm_up = int(tuning.total(model) * _WARM_UP)
    with explained("write", out / JOURNAL):
        options: dict[str, Any] = {
            "study_name": model,
            "storage": _storage(out),
            "pruner": optuna.pruners.MedianPruner(_STARTUP, n_warmup_steps=warm_up),
        }
        with suppress(KeyError):  # there is none yet
            return optuna.load_study(**options)  # unlike create_study, it writes nothing
        return optuna.create_study(direction="maximize", load_if_exists=True, **options)


def _storage(out: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(out / JOURNAL)))


def run_trial(
    tuning: Tuning,
    model: str,
    out: Path,
    deadline: float | None = None,
    leader: int | None = None,
) -> None:
    """Begin a trial, train it and record the outcome.

    No trial begins after the deadline, which is a time of the clock. Neither does one if the
    leader, the process that started this one, has ended: a new one may have taken its place.
    """
    if deadline is not None and time.time() >= deadline:
        return
    if leader is not None and os.getppid() != leader:
        return
    with explained("write", out):
        study = open_search(out, tuning, model)
        trial = study.ask()
        study.sampler = _sampler(study, trial.number, tuning.seed)
        begun = time.perf_counter()
        outcome: dict[str, Any] = {}
        try:
            parameters = tuning.parameters(model, tuning.space(model).draw(trial))
            trial.set_user_attr("parameters", parameters)
            outcome = {"values": _train(tuning, model, parameters, trial)}
        except optuna.TrialPruned:
            outcome = {"state": TrialState.PRUNED}
        except Exception as error:  # any failure leaves the search running
            trial.set_user_attr("error", error_message(error))
            outcome = {"state": TrialState.FAIL}
        trial.set_user_attr("seconds", time.perf_counter() - begun)
        study.tell(trial, **outcome)


def _sampler(study: optuna.Study, number: int, seed: int) -> optuna.samplers.BaseSampler:
    """Tree-structured Parzen estimators (Bergstra et al. 2011) with a seed for each trial.

    The parameters of a trial depend on the seed, its number and the trials that ended before it,
    but not on the process that draws them. Lost trials do not count.
    """
    lost = sum(_is_lost(t) for t in study.get_trials(deepcopy=False) if t.number < number)
    state = np.random.SeedSequence([seed, number - lost]).generate_state(1)
    return optuna.samplers.TPESampler(seed=int(state[0]))


def _train(tuning: Tuning, model: str, parameters: Mapping[str, Any], trial: Trial) -> float:
    """The validation value of the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command has shown them
        sets = tuning.split.sets()
    # Values of single rankers say too little about their blend to prune it.
    callbacks = [] if model == BLEND.name else [ReportToTrial(trial, tuning.total(model))]
    with one_thread():
        ranker = MODEL_KINDS[model].estimator().set_params(**parameters)
        validation = {"validation": sets["validation"]}
        ranker.fit(sets["train"], eval_set=validation, callbacks=callbacks)
    value: float | None = ranker.best_score_
    assert value is not None
    trial.set_user_attr("after", ranker.best_iteration_)
    return value


class ReportToTrial(Callback):
    """A callback that reports the best value so far to Optuna, and prunes the trial.

    A trial is pruned if its best value is below the median of the others' at the same iteration.
    """

    def __init__(self, trial: Trial, total: int) -> None:
        self._trial, self._total, self._every = trial, total, max(1, total // _REPORTS)
        self._best: float | None = None

    def on_iteration_end(self, _: Any, record: dict[str, Any]) -> None:
        """Report now and then; raise `optuna.TrialPruned` to end the training."""
        iteration, value = record["iteration"], record.get("validation")
        if value is not None and (self._best is None or value > self._best):
            self._best = value
        if self._best is None or iteration % self._every:
            return
        self._trial.report(self._best, iteration)
        if iteration < self._total and self._trial.should_prune():
            raise optuna.TrialPruned


def end_running(out: Path, tuning: Tuning, error: str | None = None) -> int:
    """Mark the running trials as failed: with an error, or else as lost. Return their number."""
    count, storage = 0, _storage(out)
    for model in tuning.models:
        study = open_search(out, tuning, model)
        study_id = storage.get_study_id_from_name(model)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if error is not None:
                key = storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
                storage.set_trial_user_attr(key, "error", error)
            study.tell(trial.number, state=TrialState.FAIL)
            count += 1
    return count


def _is_lost(trial: FrozenTrial) -> bool:
    """True if a trial ended because its process was killed."""
    return trial.state == TrialState.FAIL and "error" not in trial.user_attrs


def trials_of(study: optuna.Study, waiting: bool = False) -> list[TrialRecord]:
    """The trials of a search, including running ones, without lost ones."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if not _is_lost(trial)]
    kept = [trial for trial in trials if waiting or trial.state != TrialState.WAITING]
    return [_record(study.study_name, number, trial) for number, trial in enumerate(kept, 1)]


def _record(model: str, number: int, trial: FrozenTrial) -> TrialRecord:
    reported: Mapping[int, float] = trial.intermediate_values
    last = max(reported, default=0)
    about = trial.user_attrs
    return TrialRecord(
        model,
        number,
        "failed" if trial.state == TrialState.FAIL else trial.state.name.lower(),
        trial.value if trial.state == TrialState.COMPLETE else reported.get(last),
        about.get("after", last),
        about.get("seconds"),
        trial.params,
        about.get("parameters", {}),
        about.get("error", ""),
        "fixed_params" in trial.system_attrs,  # it was enqueued
    )


def best_of(trials: Sequence[TrialRecord], model: str | None = None) -> list[TrialRecord]:
    """Complete trials, of one kind of model or of all: best first, of equal ones the earlier."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    own = [trial for trial in complete if model in (None, trial.model)]
    return sorted(own, key=lambda trial: -(trial.value or 0.0))


class TrialQueue:
    """The trials of a search as jobs of the scheduler and as items of the display."""

    label = "trials"

    def __init__(self, out: Path, tuning: Tuning, trials: int, deadline: float | None) -> None:
        self._out, self._tuning, self._trials = out, tuning, trials
        self._deadline = deadline
        self._searches = [open_search(out, tuning, model) for model in tuning.models]
        self._best: TrialRecord | None = None
        ended = sum(item.ended for item in self.items().values())
        self.total = max(trials * len(self._searches), ended)

    def pending(self) -> list[Job]:
        """A job for every trial that is missing, the kinds of models in turn."""
        ended = [t.model for t in self._tuning.trials(self._out) if t.state != "running"]
        missing = [[model] * (self._trials - ended.count(model)) for model in self._tuning.models]
        return [
            partial(run_trial, self._tuning, model, self._out, self._deadline)
            for turn in zip_longest(*missing)
            for model in turn
            if model is not None
        ]

    def on_death(self, retry: Callable[[Job], bool]) -> None:  # noqa: ARG002
        """Mark the trials that were running as failed; the next ones draw other parameters."""
        if not end_running(self._out, self._tuning, DIED):
            raise TwinRankError("Processes die before they train; is there enough memory?")

    def items(self) -> dict[str, Item]:
        """The trials that run or have ended."""
        trials = [trial for search in self._searches for trial in trials_of(search)]
        self._best = next(iter(best_of(trials)), None)
        return {
            trial.name: Item(
                trial.name,
                trial.state != "running",
                self._closing_line(trial),
                trial.after,
                self._tuning.total(trial.model),
                trial.value,
            )
            for trial in trials
        }

    def headline(self) -> str:
        """The best trial so far."""
        return "" if self._best is None else f"best {self._best.value:.4f} ({self._best.name})"

    def _closing_line(self, trial: TrialRecord) -> str:
        if trial.state == "failed":
            return f"{trial.name} failed: {trial.error}"
        value = "" if trial.value is None else f" {self._tuning.measure} {trial.value:.4f}"
        verb = "pruned at" if trial.state == "pruned" else "complete:"
        return f"{trial.name} {verb}{value} after {trial.after}, {trial.seconds or 0:.0f} s"
