"""A trial on a sample: whether trees on large data need z-scores beside the raw features.

Z-scores double the columns, and so the time and memory of training. On data of ordinary size they
help on average, and no sample is large enough to tell; there they are the default. On large data,
small models on a sample of the queries show whether z-scores help or hinder.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Learner, LearnerExhausted, Task
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.settings import SMALL_DATA, seed_of

LARGE_DATA = 4 * SMALL_DATA
"""Documents; the transforms of less data are not tried."""
SAMPLE = SMALL_DATA
"""Documents that a trial learns from, and about as many on which it is judged."""

_SMALL_MODEL = {"ensemble_size": 1, "n_estimators": 100, "num_leaves": 31, "learning_rate": 0.1}
_JUDGE = "judge"

Prepare = Callable[[Mapping[str, Any], Task], Learner]


def raw_features_suffice(prepare: Prepare, parameters: Mapping[str, Any], task: Task) -> bool:
    """True if trees on raw features alone rank other queries better by over a standard error.

    `prepare` makes a learner; `parameters` are resolved, with the transforms that are tried.
    """
    learn, judge = _samples(task.train, seed_of(parameters["random_state"]))
    if not learn.data.queries or not judge.queries:
        return False
    raw, both = (
        _values(prepare, {**parameters, **_SMALL_MODEL, "transforms": own}, task, learn, judge)
        for own in ("none", parameters["transforms"])
    )
    gain = raw - both
    gain = gain[~np.isnan(gain)]
    return len(gain) > 1 and bool(gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain)))


def _samples(train: TrainingSet, seed: int) -> tuple[TrainingSet, Dataset]:
    """Random queries with `SAMPLE` documents, and as many others."""
    order = np.random.default_rng([seed, LARGE_DATA]).permutation(train.data.queries)
    after = np.cumsum(train.data.lists.sizes[order])
    first, second = np.searchsorted(after, [SAMPLE, 2 * SAMPLE], side="right")
    return train.select(np.sort(order[:first])), train.data.select(np.sort(order[first:second]))


def _values(
    prepare: Prepare, parameters: Mapping[str, Any], task: Task, learn: TrainingSet, judge: Dataset
) -> npt.NDArray[np.float64]:
    """The validation measure of each query of `judge`, after learning from `learn`."""
    own = Task(learn, {_JUDGE: judge}, task.plan, ProcessGroup(), categories=task.categories)
    learner = prepare(parameters, own)
    with learner.training(), suppress(LearnerExhausted):
        for number in range(parameters["n_estimators"]):
            for _ in learner.steps(number, 0):
                pass
    measure = task.plan.validation_measure
    values = evaluate_data(learner.scores(_JUDGE)[:, 0], judge, [measure]).values
    return values[str(measure)]
