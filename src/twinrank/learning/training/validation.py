"""Exact measures on evaluation sets, and the selection of the iteration that is kept."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.measures import Measure, MeasureSum
from twinrank.core.measures import measure as as_measure
from twinrank.data.dataset import Dataset
from twinrank.evaluation.constraint_check import ConstraintCheck
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.learning.training.dual_ascent import DualAscent
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
    missed: float = 0.0
    """By how much the best iteration misses constraints."""

    def text(self, iteration_name: str) -> str:
        """The best value, for progress messages."""
        if self.missed:
            return (
                f"kept {self.value:.4f} ({iteration_name} {self.kept}), which misses constraints "
                f"by {self.missed:.4f}"
            )
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
    the snapshots: what training would leave if it ended now. Under the key "goals", it has the
    value of each term of a sum.

    With constraints, an iteration that misses them by less is better, whatever its measure; among
    those that keep them, the measure decides. An ensemble is then selected as a whole, and each
    evaluation adapts the weights with which the learner continues.
    """

    def __init__(self, learner: Learner, task: Task) -> None:
        plan = task.plan
        self.sets = dict(task.evaluation)
        self.selecting = selecting_set(plan.select, self.sets)
        self.best: Best | None = None
        self.kept: dict[str, Scores] = {}
        """Of an ensemble, or with constraints: the scores of the snapshots on every set."""
        self.top: Values | None = None
        """The best values of each model on the queries of the selecting set."""
        self.dual: DualAscent | None = None
        self._learner, self._plan, self._group = learner, plan, task.group
        self._measures = _measures(plan)
        self._current = {}
        if plan.constrained is not None and self.selecting is not None:
            self._current = {
                name: self._measured(name, scores) for name, scores in task.train.current.items()
            }
            self.dual = DualAscent(plan.constrained, plan, self._current.get(self.selecting))

    def evaluate(self, iteration: int) -> dict[str, Any]:
        """The mean measure on every set, None where no query has a value."""
        if self.selecting is None:
            return {}
        scores = {}
        for name in self.sets:
            with _naming(name):
                scores[name] = self._learner.scores(name)
        measure, selecting = str(self._plan.validation_measure), self.selecting
        results: dict[str, dict[str, Values]] = {}
        columns = scores[selecting].T
        if self._learner.selected_models == 1 or self.dual is not None:  # nets may share weights
            columns = columns.mean(axis=0, keepdims=True)
            results[selecting] = self._measured(selecting, columns[0])
            own = results[selecting][measure][None]
        else:
            chosen = [self._plan.validation_measure]
            own = np.array([self._measured(selecting, c, chosen)[measure] for c in columns])
        self._check_values(own, results.get(selecting, {}))
        missed = 0.0 if self.dual is None else self.dual.missed(results[selecting])
        best, models = self._select(own, iteration, missed)
        if self.dual is not None and models:
            models = list(range(self._learner.selected_models))
            self.kept = {name: columns.copy() for name, columns in scores.items()}
        elif len(own) > 1:
            self._keep(models, scores)
            scores = self.kept
        for name in self.sets:
            if name not in results:
                results[name] = self._measured(name, scores[name].mean(axis=1))
        if models:
            self._learner.snapshot(models)
            best.value, best.kept = self._mean(results[selecting][measure]), iteration
        record = self._record(results)
        if self.dual is not None:
            self.dual.update(results[selecting])
            self._learner.optimise(self.dual.measure)
        return record

    def _record(self, results: Mapping[str, Mapping[str, Values]]) -> dict[str, Any]:
        """What the history gets: means by set, and the values and weights of goals."""
        measure = str(self._plan.validation_measure)
        means = {
            name: {goal: _finite(self._mean(values)) for goal, values in results[name].items()}
            for name in self.sets
        }
        record: dict[str, Any] = {name: own.pop(measure) for name, own in means.items()}
        if len(self._measures) > 1:
            record["goals"] = means
        if self.dual is not None:
            record["weights"] = self.dual.named_weights()
        return record

    def _check_values(self, values: Values, result: Mapping[str, Values]) -> None:
        """Raise InputError if the measure, or that of a constraint, has no value at all."""
        if not any(self._group.add_parts([np.isfinite(values).sum()])):
            raise InputError(
                f"Evaluation set {self.selecting!r} cannot select the best "
                f"{self._learner.iteration_name}: "
                f"{self._plan.validation_measure} has no value on any of its queries. "
                f"Add queries with relevant documents."
            )
        own = self._plan.constrained
        for constraint in () if own is None else own.constraints:
            if not np.isfinite(result[str(constraint.measure)]).any():
                raise InputError(
                    f"Evaluation set {self.selecting!r} cannot check {constraint}: no query has a "
                    f"relevant document for it."
                )

    def restore(self, dual: Mapping[str, list[float]] | None) -> None:
        """Continue with the weights of constraints that a checkpoint has."""
        if self.dual is not None and dual is not None:
            self.dual.restore(dual)
            if self.best is not None:
                self._learner.optimise(self.dual.measure)

    def checks(self) -> list[ConstraintCheck]:
        """Whether the kept model keeps the constraints, on every evaluation set."""
        if self.dual is None:
            return []
        found: list[ConstraintCheck] = []
        for name in self.sets:
            values = self._measured(name, self.kept[name].mean(axis=1))
            found += self.dual.checks(name, values, self._current.get(name))
        return found

    def _select(self, values: Values, iteration: int, missed: float) -> tuple[Best, list[int]]:
        """The best so far, and the models that are kept as they are now.

        The models of an ensemble peak at different times, so that each has its own best.
        """
        means = [self._mean(own) for own in values]
        if self.best is None or self.top is None:
            self.best, self.top = Best(0.0, iteration, iteration, means, missed), values
            return self.best, list(range(len(means)))
        models = []
        for i, mean in enumerate(means):
            if (-missed, mean) > (-self.best.missed, self.best.tops[i]):
                self.best.tops[i], self.top[i], self.best.iteration = mean, values[i], iteration
                self.best.missed = missed
                models.append(i)
            elif not missed and self._is_close(values[i], self.top[i]):
                models.append(i)
        return self.best, models

    def _keep(self, models: list[int], scores: dict[str, Scores]) -> None:
        """Keep the scores of these models on every set."""
        if not self.kept:
            self.kept = {name: columns.copy() for name, columns in scores.items()}
        for name, columns in scores.items():
            self.kept[name][:, models] = columns[:, models]

    def _measured(
        self, name: str, scores: Scores, measures: Sequence[str | Measure] | None = None
    ) -> dict[str, Values]:
        """All measures, or these, of each query of a set."""
        data, chosen = self.sets[name], self._measures if measures is None else measures
        with _naming(name):
            return dict(evaluate_data(np.asarray(scores), data, chosen).values)

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


def _measures(plan: Plan) -> list[str | Measure]:
    """The validation measure, and the terms of sums and constraints."""
    found: dict[str, str | Measure] = {str(plan.validation_measure): plan.validation_measure}
    sums = [as_measure(plan.validation_measure), plan.objective]
    terms = [part for own in sums if isinstance(own, MeasureSum) for part in own.parts().values()]
    if plan.constrained is not None:
        terms += [constraint.measure for constraint in plan.constrained.constraints]
    return list({**{str(part): part for part in terms}, **found}.values())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which evaluation set an error is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Evaluation set {name!r}: ", *error.parts) from error


def selecting_set(select: str | None, sets: Mapping[str, Dataset]) -> str | None:
    """The name of the evaluation set that selects the best iteration, or None without sets."""
    for name in sets:
        if name in RESERVED:
            raise InputError(
                f"An evaluation set cannot be called {name!r}: the history uses that name. "
                f"Choose another name."
            )
    if not isinstance(select, str | None):
        raise InputError(
            Argument("select"), f" must be the name of an evaluation set, not {select!r}."
        )
    if select is None:
        return "validation" if "validation" in sets else next(iter(sets), None)
    if not sets:
        raise InputError(Argument("select", select), " needs an evaluation set; pass eval_set.")
    if select not in sets:
        raise InputError(
            unknown("evaluation set", select, sets),
            argument="select",
            value=select,
            choices=sets,
        )
    return select
