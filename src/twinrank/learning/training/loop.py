"""The training loop: iterations, evaluation, the model that is kept, early stopping, callbacks."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from twinrank.learning.training.callbacks import (
    Callback,
    EarlyStopping,
    Record,
    TrainingInterrupted,
)
from twinrank.learning.training.learner import Learner, LearnerExhausted, Task
from twinrank.learning.training.validation import Best, Validation


@dataclass
class Progress:
    """Where training is. A checkpoint holds this and the state of the learner."""

    iteration: int = 0
    """Iterations completed."""
    step: int = 0
    """Steps completed in the current iteration."""
    seconds: float = 0.0
    """Time spent before this process continued the run."""
    history: list[Record] = field(default_factory=list)


class Trainer:
    """Trains a learner, and keeps the model of one iteration.

    Callbacks get this object. They may read its attributes, and set `stop_reason` to end training
    after the current iteration.

    Parameters
    ----------
    learner : Learner
        The model in training.
    task : Task
        The data, the evaluation sets and the plan.
    callbacks : sequence of Callback, default ()
        Called in this order at every event.

    Attributes
    ----------
    plan : Plan
        `iterations`, `early_stopping`, `tolerance`, `validation_measure`, `validate_every`,
        `select`, `seed`.
    progress : Progress
        `iteration` and `step` completed so far, and the `history`.
    steps : int
        The number of steps of the current iteration.
    step_documents : int
        The number of documents in the latest step.
    best : Best or None
        The best values so far, and what is kept.
    note : str
        What users should know about how the training started; usually empty.
    stop_reason : str
        Why training ends before the last iteration; empty if it does not.
    seconds : float
        The time spent on training, over all resumed parts.
    """

    def __init__(self, learner: Learner, task: Task, callbacks: Sequence[Callback] = ()) -> None:
        self.learner, self.plan, self.group = learner, task.plan, task.group
        self.validation = Validation(learner, task)
        patience = task.plan.early_stopping
        own = [EarlyStopping(patience)] if patience and task.evaluation else []
        self.callbacks: list[Callback] = [*own, *callbacks]
        self.progress = Progress()
        self.steps = 0
        self.step_documents = 0
        self.note = ""
        self.stop_reason = ""
        self.interrupted = False
        self.started = time.monotonic()

    @property
    def best(self) -> Best | None:
        """The best values so far, and what is kept; None before the first evaluation."""
        return self.validation.best

    @property
    def iteration_name(self) -> str:
        """What an iteration is called: "epoch" or "round"."""
        return self.learner.iteration_name

    @property
    def seconds(self) -> float:
        """The time spent on training, over all resumed parts."""
        return self.progress.seconds + time.monotonic() - self.started

    def run(self) -> None:
        """Train to the end. `learner.finish()` then gives the model that is kept."""
        self.started = time.monotonic()
        with self.learner.training():
            try:
                self._call("on_train_begin")
                while self.progress.iteration < self.plan.iterations and not self.stop_reason:
                    self._run_iteration()
                self._evaluate_last()
            finally:
                self._call("on_train_end")

    def _run_iteration(self) -> None:
        state = self.progress
        self.steps = self.learner.count_steps(state.iteration)
        with closing(self.learner.steps(state.iteration, state.step)) as steps:  # type: ignore[type-var]
            try:
                for self.step_documents in steps:
                    state.step += 1
                    self._call("on_step_end")
                    if state.step < self.steps:
                        self._stop_if_interrupted()
            except LearnerExhausted as reason:
                self.stop_reason = str(reason)
                return
        state.iteration, state.step = state.iteration + 1, 0
        record = self._record()
        state.history.append(record)
        self._call("on_iteration_end", record)
        if state.iteration < self.plan.iterations and not self.stop_reason:
            self._stop_if_interrupted()

    def _evaluate_last(self) -> None:
        """Evaluate the last iteration if training stopped between two evaluations."""
        history, selecting = self.progress.history, self.validation.selecting
        if history and selecting is not None and selecting not in history[-1]:
            history[-1].update(self.validation.evaluate(self.progress.iteration))

    def _record(self) -> Record:
        """What is known about the iteration that has just ended."""
        number = self.progress.iteration
        record: Record = {"iteration": number, **self.learner.record()}
        if number == self.plan.iterations or number % self.plan.validate_every == 0:
            record |= self.validation.evaluate(number)
        return {**record, "seconds": round(self.seconds, 3)}

    def _stop_if_interrupted(self) -> None:
        """End here if any process was interrupted: all stop after the same step."""
        if not any(self.group.all_reduce([self.interrupted])):
            return
        self._call("on_interrupt")
        state, name = self.progress, self.learner.iteration_name
        if state.step:
            raise TrainingInterrupted(
                f"Stopped in {name} {state.iteration + 1}, step {state.step}."
            )
        raise TrainingInterrupted(f"Stopped after {name} {state.iteration}.")

    def _call(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *arguments)
