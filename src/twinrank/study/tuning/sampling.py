"""How Optuna draws the settings of a trial, and when it cuts one short."""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

_REPORTS = 30  # how often a trial tells its value at most: each is a write to the journal


class SeededByNumber(BaseSampler):
    """Tree-structured Parzen estimators (Bergstra et al. 2011) that have a seed per trial.

    What a trial draws depends on the seed, its number and the trials that ended before it: not on
    the process that asks. Trials that were lost with their process don't count.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._own = TPESampler(seed=seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Begin with the trial's own seed."""
        others = study.get_trials(deepcopy=False)
        lost = sum(is_lost(other) for other in others if other.number < trial.number)
        seeds = np.random.SeedSequence([self._seed, trial.number - lost])
        seed = int(seeds.generate_state(1)[0])
        self._own = TPESampler(seed=seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """As the sampler behind it."""
        return self._own.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler behind it."""
        return self._own.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """As the sampler behind it."""
        return self._own.sample_independent(study, trial, param_name, param_distribution)


class Reports:
    """A callback, of nets and trees alike, that tells the best value so far, and may end a trial.

    A trial is cut short where its best value is below the median of the others' at that point.
    """

    def __init__(self, trial: Trial, total: int) -> None:
        self._trial, self._total, self._every = trial, total, max(1, total // _REPORTS)
        self._best: float | None = None

    def on_epoch(self, _: Any, record: dict[str, Any]) -> None:
        """A net has gone through all batches."""
        self._note(record["epoch"], record.get("validation"))

    def on_round(self, _: Any, record: dict[str, Any]) -> None:
        """A tree was grown."""
        self._note(record["round"], record.get("validation"))

    def on_start(self, _: Any) -> None:
        """Nothing to be done."""

    on_step = on_interrupt = on_stop = on_end = on_start

    def _note(self, done: int, value: float | None) -> None:
        if value is not None and (self._best is None or value > self._best):
            self._best = value
        if self._best is None or done % self._every:
            return
        self._trial.report(self._best, done)
        if done < self._total and self._trial.should_prune():
            raise optuna.TrialPruned


def is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial ended with its process rather than by itself."""
    return trial.state == TrialState.FAIL and "error" not in trial.user_attrs
