"""Exact measures on evaluation sets, and the selection of the best iteration."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.evaluation.evaluate import evaluate
from twinrank.support.errors import InputError, unknown
from twinrank.training.learner import Learner, Scores
from twinrank.training.settings import RESERVED, Plan


@dataclass
class Best:
    """The best value so far. An ensemble keeps each of its models at its own best iteration."""

    value: float
    iteration: int
    """Of an ensemble: the last iteration in which one of its models improved."""
    values: list[float] = field(default_factory=list)
    """The best value of each model of an ensemble; empty for a single model."""

    def text(self, unit: str) -> str:
        """The best value as people read it."""
        if self.values:
            return f"best ensemble {self.value:.4f} (last gain in {unit} {self.iteration})"
        return f"best {self.value:.4f} ({unit} {self.iteration})"


class Validation:
    """Measures a learner on evaluation sets, and tells it when to take a snapshot.

    For a single model, the record shows its current value. For an ensemble it shows the value of
    the snapshots: what training would leave if it ended now.
    """

    def __init__(self, learner: Learner, sets: Mapping[str, Dataset], plan: Plan) -> None:
        self.sets = dict(sets)
        self.selecting = selecting_set(plan, self.sets)
        self.best: Best | None = None
        self.kept: dict[str, Scores] = {}
        """Of an ensemble: the scores of its snapshots on every set."""
        self._learner, self._plan = learner, plan

    def evaluate(self, iteration: int) -> dict[str, float | None]:
        """The mean measure on every set, None where no query has a value."""
        if self.selecting is None:
            return {}
        scores = {}
        for name in self.sets:
            with _naming(name):
                scores[name] = self._learner.scores(name)
        if self._learner.selected_models > 1:
            self._keep_each(scores, self.selecting, iteration)
            scores = self.kept
        values = {name: self._value(name, columns.mean(axis=1)) for name, columns in scores.items()}
        value = values[self.selecting]
        if not math.isfinite(value):
            raise InputError(
                f"Evaluation set {self.selecting!r} cannot select the best {self._learner.unit}: "
                f"{self._plan.validation_measure} has no value on any of its queries. "
                f"Add queries with relevant documents."
            )
        if self.best is not None and self.best.values:
            self.best.value = value
        elif self.best is None or value > self.best.value:
            self._learner.snapshot([0])
            self.best = Best(value, iteration)
        return {name: value if math.isfinite(value) else None for name, value in values.items()}

    def _keep_each(self, scores: dict[str, Scores], selecting: str, iteration: int) -> None:
        """Keep each model of the ensemble at its own best iteration.

        The models peak at different times, so that the mean of their best beats the best mean.
        """
        values = [self._value(selecting, column) for column in scores[selecting].T]
        if self.best is None:
            self._learner.snapshot(list(range(len(values))))
            self.best = Best(0.0, iteration, values)
            self.kept = {name: columns.copy() for name, columns in scores.items()}
            return
        best = self.best
        better = [i for i, value in enumerate(values) if value > best.values[i]]
        if better:
            self._learner.snapshot(better)
            best.iteration = iteration
        for i in better:
            best.values[i] = values[i]
            for name, columns in scores.items():
                self.kept[name][:, i] = columns[:, i]

    def _value(self, name: str, scores: Scores) -> float:
        data, measure = self.sets[name], self._plan.validation_measure
        with _naming(name):
            return evaluate(np.asarray(scores), data.y, data.lists, [measure])[measure]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which evaluation set an error is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Evaluation set {name!r}: {error}") from error


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
        raise InputError(f"select={plan.select!r} needs an evaluation set: pass eval_set.")
    if plan.select not in sets:
        raise InputError(unknown("evaluation set", plan.select, sets))
    return plan.select
