"""Trials of a search: Optuna draws their parameters, prunes them and keeps them in a journal."""

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from twinrank.experiments.study.methods import BLEND, KINDS
from twinrank.experiments.study.progress import Item
from twinrank.experiments.study.scheduler import DIED, Job
from twinrank.experiments.study.units import one_thread
from twinrank.experiments.tuning.search import Tuning
from twinrank.learning.training.callbacks import Callback
from twinrank.support.errors import TwinRankError, error_message, explained

JOURNAL = "trials.journal"
_WARM_UP = 0.1  # the share of epochs or rounds before which no trial is pruned
_STARTUP = 5  # the first trials are not pruned, since the others are compared with them
_REPORTS = 30  # reports of a trial at most: each is a write to the journal
_STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
}


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


def open_search(out: Path, tuning: Tuning, model: str) -> optuna.Study:
    """Open the search of one kind of model in the journal of a folder."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warm_up = int(tuning.total(model) * _WARM_UP)
    options: dict[str, Any] = {
        "study_name": model,
        "sampler": SeededSampler(tuning.seed),
        "pruner": optuna.pruners.MedianPruner(_STARTUP, n_warmup_steps=warm_up),
    }
    with explained("write", out / JOURNAL):
        storage = _storage(out)
        if model in {study.study_name for study in storage.get_all_studies()}:
            return optuna.load_study(storage=storage, **options)  # writes nothing
        return optuna.create_study(
            storage=storage, direction="maximize", load_if_exists=True, **options
        )


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
        ended = [trial.model for trial in self._tuning.trials(self._out) if _has_ended(trial)]
        missing = [[model] * (self._trials - ended.count(model)) for model in self._tuning.models]
        return [
            partial(run_trial, self._tuning.to_text(), model, str(self._out), self._deadline)
            for turn in zip_longest(*missing)
            for model in turn
            if model is not None
        ]

    def on_death(self, retry: Callable[[Job], bool]) -> None:  # noqa: ARG002
        """Mark the trials that were running as failed; the next ones draw other parameters."""
        if not fail_running(self._out, self._tuning, DIED):
            raise TwinRankError("Processes die before they train; is there enough memory?")

    def items(self) -> dict[str, Item]:
        """The trials that run or have ended."""
        trials = [trial for search in self._searches for trial in trials_of(search)]
        self._best = next(iter(best_of(trials)), None)
        return {
            trial.name: Item(
                trial.name,
                _has_ended(trial),
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


def _has_ended(trial: TrialRecord) -> bool:
    return trial.state != "running"


def run_trial(
    text: str, model: str, out: str, deadline: float | None = None, leader: int | None = None
) -> None:
    """Begin a trial, train it and record the outcome; `text` is a `Tuning.to_text()`.

    No trial begins after the deadline, which is a time of the clock. Neither does one if the
    leader, the process that started this one, has ended: a new one may have taken its place.
    """
    if deadline is not None and time.time() >= deadline:
        return
    if leader is not None and os.getppid() != leader:
        return
    tuning = Tuning.from_text(text)
    with explained("write", Path(out)):
        study = open_search(Path(out), tuning, model)
        trial = study.ask()
        begun = time.perf_counter()
        outcome: dict[str, Any] = {}
        try:
            parameters = tuning.parameters(model, tuning.space(model).draw(trial))
            trial.set_user_attr("parameters", parameters)
            report = ReportToTrial(trial, tuning.total(model))
            value, iteration = _train(tuning, model, parameters, report)
            trial.set_user_attr("after", iteration)
            outcome = {"values": value}
        except optuna.TrialPruned:
            outcome = {"state": TrialState.PRUNED}
        except Exception as error:  # any failure leaves the search running
            trial.set_user_attr("error", error_message(error))
            outcome = {"state": TrialState.FAIL}
        trial.set_user_attr("seconds", time.perf_counter() - begun)
        study.tell(trial, **outcome)


def _train(
    tuning: Tuning, model: str, parameters: Mapping[str, Any], report: "ReportToTrial"
) -> tuple[float, int | None]:
    """The validation value of the model, and its epoch or round."""
    sets = tuning.split.sets()
    with one_thread():
        ranker = KINDS[model].estimator().set_params(**parameters)
        validation = {"validation": sets["validation"]}
        # Values of single rankers say too little about their blend to prune it.
        callbacks = [] if KINDS[model] is BLEND else [report]
        ranker.fit(sets["train"], eval_set=validation, callbacks=callbacks)
    assert ranker.best_score_ is not None
    return ranker.best_score_, ranker.best_iteration_


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


def resume_search(out: Path, tuning: Tuning) -> None:
    """Prepare a journal to be continued: trials of killed processes do not count."""
    journal = out / JOURNAL
    with explained("write", journal), suppress(FileNotFoundError), journal.open("r+b") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)  # removes a line that was being written
    for model in tuning.models:
        study = open_search(out, tuning, model)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)
        kept = [trial for trial in study.get_trials(deepcopy=False) if not is_lost(trial)]
        if not any(map(_is_enqueued, kept)):
            study.enqueue_trial(tuning.space(model).starting_point())


def fail_running(out: Path, tuning: Tuning, reason: str) -> int:
    """Mark the running trials as failed, since their processes died. Return their number."""
    count = 0
    for model in tuning.models:
        study, storage = open_search(out, tuning, model), _storage(out)
        study_id = storage.get_study_id_from_name(model)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
            storage.set_trial_user_attr(trial_id, "error", reason)
            study.tell(trial.number, state=TrialState.FAIL)
            count += 1
    return count


def is_lost(trial: FrozenTrial) -> bool:
    """True if a trial ended because its process was killed."""
    return trial.state == TrialState.FAIL and "error" not in trial.user_attrs


def _is_enqueued(trial: FrozenTrial) -> bool:
    """True if the parameters of a trial are the starting point of the search."""
    return "fixed_params" in trial.system_attrs


def trials_of(study: optuna.Study) -> list[TrialRecord]:
    """The trials of a search, including running ones, without lost ones."""
    trials = study.get_trials(deepcopy=False)
    kept = [trial for trial in trials if not is_lost(trial) and trial.state != TrialState.WAITING]
    return [_record(study.study_name, number, trial) for number, trial in enumerate(kept, 1)]


def best_of(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Complete trials, the best first; of equal ones the earlier."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return sorted(complete, key=lambda trial: -(trial.value or 0.0))


def importances(study: optuna.Study) -> dict[str, float]:
    """The importance of each parameter for the value (PED-ANOVA, Watanabe et al. 2023).

    Empty if too few trials are complete.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < _STARTUP or len({trial.value for trial in complete}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the report warns of few trials
        return optuna.importance.get_param_importances(study)


class SeededSampler(BaseSampler):
    """Tree-structured Parzen estimators (Bergstra et al. 2011) with a seed for each trial.

    The parameters of a trial depend on the seed, its number and the trials that ended before it,
    but not on the process that draws them. Lost trials do not count.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sampler = TPESampler(seed=seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Begin with the seed of the trial."""
        trials = study.get_trials(deepcopy=False)
        lost = sum(is_lost(earlier) for earlier in trials if earlier.number < trial.number)
        seeds = np.random.SeedSequence([self._seed, trial.number - lost])
        self._sampler = TPESampler(seed=int(seeds.generate_state(1)[0]))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """As the sampler behind it."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler behind it."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """As the sampler behind it."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


def _storage(out: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(out / JOURNAL)))


def _record(model: str, number: int, trial: FrozenTrial) -> TrialRecord:
    reported: Mapping[int, float] = trial.intermediate_values
    last = max(reported, default=0)
    attributes = trial.user_attrs
    return TrialRecord(
        model,
        number,
        _STATES[trial.state],
        trial.value if trial.state == TrialState.COMPLETE else reported.get(last),
        attributes.get("after", last),
        attributes.get("seconds"),
        trial.params,
        attributes.get("parameters", {}),
        attributes.get("error", ""),
        _is_enqueued(trial),
    )
