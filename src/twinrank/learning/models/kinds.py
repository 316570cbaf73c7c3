"""The registry of learners. A new kind of ranker is one line here and three classes.

Classes are imported when they are used, so that only nets import torch.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from twinrank.support.errors import InputError, needing_torch, unknown


@dataclass(frozen=True)
class Kind:
    """Where the classes of one kind of ranker are, as "module:class"."""

    learner: str | None
    """A `Learner`: how it is trained. None if it only combines other rankers."""
    model: str
    """A `Model`: how it scores and is saved."""
    estimator: str
    """A `BaseRanker`: its parameters."""
    noun: str
    """What messages call it."""


KINDS = {
    "net": Kind(
        learner="twinrank.learning.training.net_learner:NetLearner",
        model="twinrank.learning.models.net_model:NetModel",
        estimator="twinrank.learning.estimators.ranker:Ranker",
        noun="a net",
    ),
    "trees": Kind(
        learner="twinrank.learning.training.tree_learner:TreeLearner",
        model="twinrank.learning.boosting.tree_model:TreeModel",
        estimator="twinrank.learning.estimators.boosted:BoostedRanker",
        noun="boosted trees",
    ),
    "blend": Kind(
        learner=None,
        model="twinrank.learning.models.blend_model:BlendModel",
        estimator="twinrank.learning.estimators.blend:Blend",
        noun="a blend",
    ),
}


def class_of(kind: str, role: str) -> Any:
    """The class of a kind: its "learner", "model" or "estimator"."""
    if kind not in KINDS:
        raise InputError(unknown("kind of ranker", str(kind), KINDS))
    module, _, name = getattr(KINDS[kind], role).partition(":")
    with needing_torch(KINDS[kind].estimator.partition(":")[2]):
        return getattr(import_module(module), name)
