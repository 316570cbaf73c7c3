"""The interface between the training loop and a learner.

A learner is a model in training: a net, boosted trees, or one of your own. The loop decides when to
evaluate, what to keep and when to stop; a learner knows how to learn, score and save itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from twinrank.core.measures import Measure
from twinrank.data.dataset import Dataset
from twinrank.learning.models.kinds import class_of
from twinrank.learning.training.settings import Plan, resolve
from twinrank.support.errors import TwinRankError

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model
    from twinrank.learning.training.fit_arguments import TrainingSet
    from twinrank.learning.training.process_group import ProcessGroup

Scores = npt.NDArray[np.float32]


class TrainingError(TwinRankError, RuntimeError):
    """Training cannot continue; the last checkpoint is kept."""


class LearnerExhausted(Exception):  # noqa: N818 (an event, not an error)
    """The learner cannot improve any more; the message is the reason that users see."""


@dataclass(frozen=True, eq=False)
class Task:
    """What a learner learns from.

    `train` holds trainable queries only. `evaluation` maps names to evaluation sets. `previous` is
    the model that the training continues. `report` gets a record after each epoch of pre-training.
    `categories` has the number of codes of each categorical column. `announce` gets a sentence:
    what preparing the data takes, if it takes long.
    """

    train: "TrainingSet"
    evaluation: Mapping[str, Dataset]
    plan: Plan
    group: "ProcessGroup"
    previous: "Model | None" = None
    report: Callable[[dict[str, float]], None] = lambda _: None
    categories: Mapping[int, int] = field(default_factory=dict)
    announce: Callable[[str], None] = lambda _: None


class Learner(ABC):
    """A model in training.

    The loop calls `prepare`, and for each iteration `count_steps`, `steps`, `record` and, where it
    evaluates, `scores` and `snapshot`; at the end `finish`. It may call `state` between any two
    steps. The same parameters, data and number of threads must give the same bits, also after
    `restore`.
    """

    kind: ClassVar[str]
    """The name in `KINDS`."""
    iteration_name: ClassVar[str]
    """What one iteration is called: "epoch" or "round"."""
    iterations_parameter: ClassVar[str]
    """The estimator's parameter for the number of iterations."""
    distributed: ClassVar[bool] = False
    """True if several processes can train one model."""
    report_every: ClassVar[int] = 1
    """Progress is printed after this many iterations, where there is no live bar."""

    selected_models: int = 1
    """How many parts of the model are selected separately, each at an iteration of its own."""

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], documents: int) -> dict[str, Any]:
        """The estimator's parameters with "auto" replaced, for this many documents."""
        return resolve(cls.kind, parameters, documents)

    @classmethod
    def decide(
        cls,
        parameters: Mapping[str, Any],  # noqa: ARG003
        resolved: dict[str, Any],
        task: "Task",  # noqa: ARG003
    ) -> dict[str, Any]:
        """The resolved parameters, where "auto" is not up to the number of documents alone."""
        return resolved

    @classmethod
    @abstractmethod
    def check(cls, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for parameters that cannot be used, before data is read."""

    @classmethod
    def needs_relevant(cls, parameters: Mapping[str, Any]) -> bool:  # noqa: ARG003
        """True if nothing is learned from a query without a relevant document."""
        return True

    @classmethod
    def depends_on_threads(cls, parameters: Mapping[str, Any]) -> bool:  # noqa: ARG003
        """True if the number of threads changes the last bits of the model."""
        return False

    @classmethod
    @abstractmethod
    def packages(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The packages whose versions a result depends on."""

    @classmethod
    @abstractmethod
    def prepare(cls, parameters: Mapping[str, Any], task: Task) -> Self:
        """Build a learner from an estimator's parameters, "auto" already resolved."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything beside the plan that a resumed run must share, as JSON."""

    def training(self) -> AbstractContextManager[None]:
        """The context in which the loop runs: random generators, threads."""
        return nullcontext()

    def count_steps(self, iteration: int) -> int:  # noqa: ARG002
        """The number of steps of an iteration, counted from 0."""
        return 1

    @abstractmethod
    def steps(self, iteration: int, first: int) -> Iterator[int]:
        """Learn, from step `first` on; yield the number of documents after each step.

        Raise LearnerExhausted if no further step can improve the model.
        """

    def record(self) -> dict[str, float]:
        """What to add to the history after an iteration, such as the loss."""
        return {}

    def optimise(self, measure: Measure) -> None:
        """Learn this measure from now on: constraints change the weights of a sum.

        The labels that it needs are those of the measure that `prepare` got.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot learn {measure}.")

    @abstractmethod
    def scores(self, name: str) -> Scores:
        """The scores of an evaluation set, [documents, selected_models]; their mean ranks.

        If the model is selected as a whole, any number of columns will do.
        """

    @abstractmethod
    def snapshot(self, models: list[int]) -> None:
        """Remember these of the selected models as they are now."""

    @abstractmethod
    def state(self) -> dict[str, bytes]:
        """All that `restore` needs, snapshots included."""

    @abstractmethod
    def restore(self, state: Mapping[str, bytes]) -> None:
        """Continue from `state`, which a learner of the same settings and data wrote."""

    @property
    def resumes_exactly(self) -> bool:
        """True if `restore` continues with the same bits; else a resumed run starts again."""
        return True

    @abstractmethod
    def finish(self) -> "Model":
        """The trained model, made of the snapshots where there are any."""


def learner_class(kind: str) -> type[Learner]:
    """The class of a learner by its name in `KINDS`."""
    learner: type[Learner] = class_of(kind, "learner")
    return learner
