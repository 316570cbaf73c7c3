"""Distillation: a loss that also follows the scores of a teacher, such as boosted trees."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.losses.cross_entropy import ListNet
from twinrank.core.losses.ranking_loss import RankingLoss, weights_of
from twinrank.data.batches import rows_of
from twinrank.support.arrays import Array


class TeacherCrossEntropy(ListNet):
    """Cross-entropy between the softmax of a teacher's scores and that of the scores.

    The teacher's scores arrive as labels, of at least 0. Every list counts, also those for which
    the teacher's scores are equal.
    """

    name: ClassVar[str] = "TeacherCrossEntropy"
    needs_relevant: ClassVar[bool] = False


class DistilledLoss(RankingLoss):
    """(1 − w)·objective + w·cross-entropy of softmax(scores) to softmax(teacher).

    The teacher's scores are standardised within each query, since only their differences rank, and
    their scale depends on the model. The same lists count as in the objective.

    Hinton, Vinyals & Dean, "Distilling the knowledge in a neural network" (2015),
    arXiv:1503.02531.
    """

    def __init__(self, objective: Any, targets: Tensor, weight: float) -> None:
        super().__init__()
        self.objective, self.targets, self.weight = objective, targets, weight
        self.distance = TeacherCrossEntropy()

    def counted(self, labels: Array, lists: Lists) -> Array:
        """True for each list that counts in the objective."""
        if isinstance(self.objective, RankingLoss):
            return self.objective.counted(labels, lists)
        return lists.any(labels >= 0)

    def forward(  # type: ignore[override]
        self, scores: Tensor, labels: Tensor, lists: Lists, weights: Tensor | None = None
    ) -> Tensor:
        """The loss of flat scores."""
        given = {} if weights is None else {"weights": weights}
        weights, documents = weights_of(weights, scores, lists)
        own: Tensor = self.objective(scores, labels, lists, **given)
        self.distance.validate = getattr(self.objective, "validate", True)
        if documents is not None:
            labels = labels * (documents > 0)
        counted = torch.as_tensor(self.counted(labels.clamp(min=0), lists))
        shares = counted.to(scores.device, torch.float64)
        if weights is not None:
            shares = shares * weights
        distance: Tensor = self.distance(scores, self.targets.to(scores.device), lists, shares)
        return (1 - self.weight) * own + self.weight * distance


class Teacher:
    """The scores of a teacher on the training data, one per document."""

    def __init__(self, scores: npt.NDArray[np.float32], lists: Lists, weight: float) -> None:
        self.lists, self.weight = lists, weight
        self.targets = torch.from_numpy(standardised(scores, lists))

    def loss(self, objective: Any, queries: npt.NDArray[np.int64]) -> DistilledLoss:
        """The loss of a batch of these queries."""
        rows = torch.from_numpy(rows_of(self.lists, queries))
        return DistilledLoss(objective, self.targets[rows], self.weight)


def standardised(scores: Array, lists: Lists) -> npt.NDArray[np.float64]:
    """Scores with a standard deviation of 1 and a minimum of 0 in each query.

    Equal scores become 0. A softmax ignores the minimum, and losses expect labels of at least 0.
    """
    values = np.asarray(scores, np.float64)
    values = values - lists.spread(lists.min(values))
    sizes = np.maximum(lists.sizes, 1)
    centred = values - lists.spread(lists.sum(values) / sizes)
    deviation = np.sqrt(lists.sum(centred * centred) / sizes)
    return np.asarray(values / lists.spread(np.where(deviation > 0, deviation, 1.0)))
