"""What a model is trained on: labelled queries, their weights, a teacher's scores."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from twinrank.data.batches import rows_of
from twinrank.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Labelled queries and what belongs to them.

    `weights` has a weight for each query, `teacher` a score for each document. `unlabelled` holds
    lists for pre-training.
    """

    data: Dataset
    weights: npt.NDArray[np.float64] | None = None
    teacher: npt.NDArray[np.float32] | None = None
    unlabelled: Dataset | None = None

    def select(self, queries: Any) -> Self:
        """The queries with these numbers, in this order; all unlabelled lists stay."""
        weights, teacher = self.weights, self.teacher
        return replace(
            self,
            data=self.data.select(queries),
            weights=None if weights is None else weights[queries],
            teacher=None if teacher is None else teacher[rows_of(self.data.lists, queries)],
        )
