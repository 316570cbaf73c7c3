"""Exact measures on evaluation sets, and the selection of the iteration that is kept."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.learning.training.learner import Learner, Scores, Task
from twinrank.learning.training.settings import RESERVED, Plan
from twinrank.support.errors import Argument, InputError, unknown

Values = npt.NDArray[np.float64]


@dataclass
class Best:
    """What is kept so far. An ensemble keeps each of its models at an iteration of its own."""

    value: float
    """The measure of what is kept."""
    kept: int
    """The iteration that is kept; of an ensemble, the latest of its models."""
    iteration: int
    """The last iteration with a better measure; of an ensemble, for one of its models."""
    tops: list[float]
    """The best measure of each model."""

    def text(self, iteration_name: str) -> str:
        """The best value, for progress messages."""
        if len(self.tops) > 1:
            return (
                f"kept ensemble {self.value:.4f} (last gain in {iteration_name} {self.iteration})"
            )
        best = f"best {self.tops[0]:.4f} ({iteration_name} {self.iteration})"
        kept = f", kept {self.value:.4f} ({iteration_name} {self.kept})"
        return best if self.kept == self.iteration else best + kept


class Validation:
    """Measures a learner on evaluation sets, and tells it when to take a snapshot.

    It keeps the last iteration that is less than `plan.tolerance` standard errors below the best.
    The standard error is that of the difference, paired by query.

    For a single model, the record shows its current value. For an ensemble it shows the value of
    the snapshots: what training would leave if it ended now.
    """

    def __init__(self, learner: Learner, task: Task) -> None:
        self.sets = dict(task.evaluation)
        self.selecting = selecting_set(task.plan, self.sets)
        self.best: Best | None = None
        self.kept: dict[str, Scores] = {}
        """Of an ensemble: the scores of its snapshots on every set."""
        self.top: Values | None = None
        """The best values of each model on the queries of the selecting set."""
        self._learner, self._plan, self._group = learner, task.plan, task.group

    def evaluate(self, iteration: int) -> dict[str, float | None]:
        """The mean measure on every set, None where no query has a value."""
        if self.selecting is None:
            return {}
        scores = {}
        for name in self.sets:
            with _naming(name):
                scores[name] = self._learner.scores(name)
        selecting = self.selecting
        columns = scores[selecting].T
        if self._learner.selected_models == 1:  # its nets may share weights
            columns = columns.mean(axis=0, keepdims=True)
        own = np.array([self._values(selecting, column) for column in columns])
        if not any(self._group.add_parts([np.isfinite(own).sum()])):
            raise InputError(
                f"Evaluation set {selecting!r} cannot select the best "
                f"{self._learner.iteration_name}: "
                f"{self._plan.validation_measure} has no value on any of its queries. "
                f"Add queries with relevant documents."
            )
        best, models = self._select(own, iteration)
        means = {selecting: self._mean(own[0])}
        if len(own) > 1:
            self._keep(models, scores)
            scores, means = self.kept, {}
        for name in self.sets:
            if name not in means:
                means[name] = self._mean(self._values(name, scores[name].mean(axis=1)))
        if models:
            self._learner.snapshot(models)
            best.value, best.kept = means[selecting], iteration
        return {name: means[name] if math.isfinite(means[name]) else None for name in self.sets}

    def _select(self, values: Values, iteration: int) -> tuple[Best, list[int]]:
        """The best so far, and the models that are kept as they are now.

        The models of an ensemble peak at different times, so that each has its own best.
        """
        means = [self._mean(own) for own in values]
        if self.best is None or self.top is None:
            self.best, self.top = Best(0.0, iteration, iteration, means), values
            return self.best, list(range(len(means)))
        models = []
        for i, mean in enumerate(means):
            if mean > self.best.tops[i]:
                self.best.tops[i], self.top[i], self.best.iteration = mean, values[i], iteration
                models.append(i)
            elif self._is_close(values[i], self.top[i]):
                models.append(i)
        return self.best, models

    def _keep(self, models: list[int], scores: dict[str, Scores]) -> None:
        """Keep the scores of these models on every set."""
        if not self.kept:
            self.kept = {name: columns.copy() for name, columns in scores.items()}
        for name, columns in scores.items():
            self.kept[name][:, models] = columns[:, models]

    def _values(self, name: str, scores: Scores) -> Values:
        """The measure of each query of a set."""
        data, measure = self.sets[name], self._plan.validation_measure
        with _naming(name):
            result = evaluate_data(np.asarray(scores), data, [measure])
        return result.values[str(measure)]

    def _mean(self, values: Values) -> float:
        """The mean of the values that are not NaN, over all workers; NaN if all are."""
        known = values[~np.isnan(values)]
        total, count = self._group.add_parts([known.sum(), known.size])
        return float(total / count) if count else float("nan")

    def _is_close(self, values: Values, top: Values) -> bool:
        """True if the values are less than `tolerance` standard errors below the best, by query."""
        if not self._plan.tolerance:
            return False
        loss = top - values
        mean = self._mean(loss)
        count = self._group.add_parts([(~np.isnan(loss)).sum()])[0]
        error = math.sqrt(self._mean((loss - mean) ** 2) / count)
        return mean < self._plan.tolerance * error


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which evaluation set an error is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Evaluation set {name!r}: ", *error.parts) from error


def selecting_set(plan: Plan, sets: Mapping[str, Dataset]) -> str | None:
    """The name of the evaluation set that selects the best iteration, or None without sets."""
    for name in sets:
        if name in RESERVED:
            raise InputError(
                f"An evaluation set cannot be called {name!r}: the history uses that name. "
                f"Choose another name."
            )
    if plan.select is None:
        return "validation" if "validation" in sets else next(iter(sets), None)
    if not sets:
        raise InputError(
            Argument("select", plan.select), " needs an evaluation set; pass eval_set."
        )
    if plan.select not in sets:
        raise InputError(
            unknown("evaluation set", plan.select, sets),
            argument="select",
            value=plan.select,
            choices=sets,
        )
    return plan.select
