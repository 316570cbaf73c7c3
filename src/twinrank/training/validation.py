"""Exact measures on evaluation sets after every epoch, one of which chooses what is kept."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform
from twinrank.evaluation.evaluate import evaluate
from twinrank.models.ensemble import Net
from twinrank.models.scorer import score_all
from twinrank.support.errors import InputError, unknown
from twinrank.training.plan import RESERVED, Plan
from twinrank.training.processes import Processes

Scores = npt.NDArray[np.float32]
_TOGETHER = 12_000  # documents that are scored together at least


@dataclass
class Best:
    """What is kept: the best epoch so far, or each of several members from its own best epoch."""

    value: float
    epoch: int
    """Of several members, the one in which any of them became better for the last time."""
    weights: dict[str, Tensor]
    members: list[float] = field(default_factory=list)
    """The best value of each, if there are several."""

    def __str__(self) -> str:
        if self.members:
            return f"members kept: {self.value:.4f}, last gain in epoch {self.epoch}"
        return f"best in epoch {self.epoch}: {self.value:.4f}"


class Validation:
    """Measures a net on evaluation sets, and keeps its weights where they were best.

    What is measured is the net as it is. Of several members it is those that are kept, each from
    its own best epoch: on every set what training would leave if it ended now.
    """

    def __init__(
        self,
        scorer: Net,
        sets: Mapping[str, Dataset],
        plan: Plan,
        transform: Transform,
        processes: Processes,
    ) -> None:
        self.sets = dict(sets)
        self.selecting = selecting(plan, self.sets)
        self.best: Best | None = None
        self._scorer, self._plan, self._transform = scorer, plan, transform
        self._processes = processes
        self._kept: dict[str, Scores] = {}  # of the members that are kept, on every set

    def measured(self, epoch: int) -> dict[str, float | None]:
        """The mean measure on every set after an epoch, None where no query has a value."""
        by = self.selecting
        several = by is not None and self._scorer.architecture.members > 1
        if by is not None and several:
            self._keep_members(by, epoch)
        found = {}
        for name, data in self.sets.items():
            with _told_of(name):
                if several:
                    found[name] = self._value(data, self._kept[name].mean(axis=1))
                else:
                    found[name] = self.measure(data)
        if by is not None and not math.isfinite(found[by]):
            raise InputError(
                f"evaluation set {by!r} can't select an epoch: "
                f"{self._plan.validation_measure} has no value on any of its queries"
            )
        if by is not None and not several and (self.best is None or found[by] > self.best.value):
            self.best = Best(found[by], epoch, self._weights())
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def measure(self, data: Dataset) -> float:
        """The mean measure of the net as it is now, on any dataset."""
        return self._value(data, self._scores(data))

    def _keep_members(self, by: str, epoch: int) -> None:
        """Keep each member as it was in its own best epoch.

        Where members are at their best at different times, the mean of their best is better than
        the best of their mean.
        """
        now, weights = self._apart(), self._weights()
        values = [self._value(self.sets[by], column) for column in now[by].T]
        if self.best is None:
            self.best, self._kept = Best(0.0, epoch, weights, values), now
        best = self.best
        if not self._kept:  # training was taken up again
            self._scorer.load_state_dict(best.weights)
            self._kept = self._apart()
            self._scorer.load_state_dict(weights)
        for m, value in enumerate(values):
            if value > best.members[m]:
                own = {k: v for k, v in weights.items() if k.startswith(f"members.{m}.")}
                best.weights.update(own)
                best.members[m], best.epoch = value, epoch
                for name, kept in self._kept.items():
                    kept[:, m] = now[name][:, m]
        best.value = self._value(self.sets[by], self._kept[by].mean(axis=1))

    def _apart(self) -> dict[str, Scores]:
        """The scores of each member, in columns, on every set."""
        found = {}
        for name, data in self.sets.items():
            with _told_of(name):
                found[name] = self._scores(data, apart=True)
        return found

    def _scores(self, data: Dataset, apart: bool = False) -> Scores:
        documents = max(self._plan.batch_documents, _TOGETHER)
        part = (self._processes.rank, self._processes.count)
        found = score_all(self._scorer, data, self._transform, documents, part, apart)
        return self._processes.added(found)

    def _value(self, data: Dataset, scores: Scores) -> float:
        measure = self._plan.validation_measure
        return evaluate(scores, data.y, data.lists, [measure])[measure]

    def _weights(self) -> dict[str, Tensor]:
        return {k: v.detach().clone() for k, v in self._scorer.state_dict().items()}


@contextmanager
def _told_of(name: str) -> Iterator[None]:
    """Say which evaluation set an error is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"evaluation set {name!r}: {error}") from error


def selecting(plan: Plan, evaluation: Mapping[str, Dataset]) -> str | None:
    """The name of the evaluation set that selects the best epoch, if there is one."""
    for name in evaluation:
        if name in RESERVED:
            raise InputError(f"an evaluation set can't be called {name!r}; choose another name")
    if plan.select is None:
        return "validation" if "validation" in evaluation else next(iter(evaluation), None)
    if plan.select not in evaluation:
        raise InputError(unknown("evaluation set", plan.select, evaluation))
    return plan.select
