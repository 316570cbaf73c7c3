"""Trials of a search, kept by Optuna in a journal: begun, cut short, ended, taken up again."""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from twinrank.study.tuning.sampling import Reports, SeededByNumber, is_lost
from twinrank.study.tuning.search import Tuning
from twinrank.study.tuning.space import NET
from twinrank.study.units import one_thread
from twinrank.support.errors import explained

JOURNAL = "trials.journal"
_WARM_UP = 0.1  # the share of epochs or rounds before which no trial is cut short
_STARTUP = 5  # trials that aren't cut short, so that there is something to compare with


@dataclass(frozen=True)
class Tried:
    """A trial as people see it."""

    model: str
    number: int
    """From 1 on, without gaps."""
    state: str
    """running, complete, pruned or failed."""
    value: float | None
    """The best validation value; of a pruned trial, until it was cut short."""
    after: int
    """The epoch or round of that value; of others than complete trials, the last one reported."""
    seconds: float | None
    chosen: Mapping[str, Any]
    """What was searched."""
    parameters: Mapping[str, Any]
    """All that the estimator was made with."""
    error: str

    @property
    def name(self) -> str:
        """Its name within the search."""
        return f"{self.model} {self.number}"


def open_search(out: Path, tuning: Tuning, model: str) -> optuna.Study:
    """The search among one kind of model, from the journal in a folder."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warm_up = int(tuning.total(model) * _WARM_UP)
    how: dict[str, Any] = {
        "study_name": model,
        "sampler": SeededByNumber(tuning.seed),
        "pruner": optuna.pruners.MedianPruner(_STARTUP, n_warmup_steps=warm_up),
    }
    with explained("write", out / JOURNAL):
        storage = _storage(out)
        if model in {one.study_name for one in storage.get_all_studies()}:
            return optuna.load_study(storage=storage, **how)  # which writes nothing
        return optuna.create_study(
            storage=storage, direction="maximize", load_if_exists=True, **how
        )


def run_trial(
    text: str, model: str, out: str, deadline: float | None = None, leader: int | None = None
) -> None:
    """Begin a trial, train and tell what came of it; `text` is a `Tuning.to_text()`.

    After the deadline, in seconds of the clock, nothing is begun; nor where the process that this
    one was started by, the leader, is gone: another one may have taken its place.
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
        ended: dict[str, Any] = {}
        try:
            parameters = tuning.parameters(model, tuning.space(model).draw(trial))
            trial.set_user_attr("parameters", parameters)
            value, after = _train(tuning, model, parameters, Reports(trial, tuning.total(model)))
            trial.set_user_attr("after", after)
            ended = {"values": value}
        except optuna.TrialPruned:
            ended = {"state": TrialState.PRUNED}
        except Exception as error:  # whatever it was, the search goes on
            trial.set_user_attr("error", f"{error or type(error).__name__}")
            ended = {"state": TrialState.FAIL}
        trial.set_user_attr("seconds", time.perf_counter() - begun)
        study.tell(trial, **ended)


def _train(
    tuning: Tuning, model: str, parameters: Mapping[str, Any], reports: Reports
) -> tuple[float, int]:
    """The best validation value, and the epoch or round that it was reached in."""
    sets = tuning.split.sets()
    own = {} if model == NET else {"n_jobs": 1}
    with one_thread():
        ranker: Any = tuning.estimator(model)(**parameters, **own)
        held = {"validation": sets["validation"]}
        ranker.fit(sets["train"], eval_set=held, callbacks=[reports])
    return float(ranker.best_score_), ranker.best_epoch_ if model == NET else ranker.best_iteration_


def take_up(out: Path, tuning: Tuning) -> None:
    """Make a journal ready to go on: what a killed process left counts for nothing."""
    journal = out / JOURNAL
    with explained("write", journal), suppress(FileNotFoundError), journal.open("r+b") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)  # a line that was being written
    for model in tuning.models:
        study = open_search(out, tuning, model)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)
        rest = study.get_trials(deepcopy=False)
        if all(map(is_lost, rest)):
            study.enqueue_trial(tuning.space(model).starting_point())


def give_up(out: Path, tuning: Tuning, why: str) -> int:
    """Count trials that run as failed, since their processes have died; how many there were."""
    count = 0
    for model in tuning.models:
        study, storage = open_search(out, tuning, model), _storage(out)
        own = storage.get_study_id_from_name(model)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            number = storage.get_trial_id_from_study_id_trial_number(own, trial.number)
            storage.set_trial_user_attr(number, "error", why)
            study.tell(trial.number, state=TrialState.FAIL)
            count += 1
    return count


def tried(study: optuna.Study) -> list[Tried]:
    """The trials of a search, those that run among them, but none that was lost."""
    trials = study.get_trials(deepcopy=False)
    kept = [one for one in trials if not is_lost(one) and one.state != TrialState.WAITING]
    return [_seen(study.study_name, i, one) for i, one in enumerate(kept, 1)]


def importances(study: optuna.Study) -> dict[str, float]:
    """How much each setting matters for the value (PED-ANOVA, Watanabe et al. 2023).

    Empty where too few trials are complete to say.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < _STARTUP or len({one.value for one in complete}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page says that few trials say little
        return optuna.importance.get_param_importances(study)


def _storage(out: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(out / JOURNAL)))


def _seen(model: str, number: int, trial: FrozenTrial) -> Tried:
    reported: Mapping[int, float] = trial.intermediate_values
    states = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}
    states |= {TrialState.FAIL: "failed", TrialState.RUNNING: "running"}
    last = max(reported, default=0)
    told = trial.user_attrs
    return Tried(
        model,
        number,
        states[trial.state],
        trial.value if trial.state == TrialState.COMPLETE else reported.get(last),
        told.get("after", last),
        told.get("seconds"),
        trial.params,
        told.get("parameters", {}),
        told.get("error", ""),
    )


def best_of(trials: Sequence[Tried]) -> list[Tried]:
    """Complete trials, the best first; of equal ones the earlier."""
    complete = [one for one in trials if one.state == "complete" and one.value is not None]
    return sorted(complete, key=lambda one: -(one.value or 0.0))
