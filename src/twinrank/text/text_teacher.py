"""`DistillRankingLoss`: a cross-encoder learns the order of a teacher's scores."""

from typing import Any

import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.ranks.exact import check_finite
from twinrank.core.ranks.twin import check_alpha
from twinrank.text.cross_encoder import DirectRankingLoss

__all__ = ["DistillRankingLoss"]


class DistillRankingLoss(DirectRankingLoss):
    """Direct optimisation of a measure whose grades come from the scores of a teacher.

    The labels are real numbers, such as the logits of a larger model. Within each query they are
    scaled linearly to grades from 0 to `top_grade`: grade_i = top_grade · (t_i − min t) / (max t −
    min t). So only the order and the relative distances of the teacher's scores count, not their
    scale, which differs between models. Queries with equal teacher scores are left out. ListNet's
    loss of these grades is added, as in `DirectRankingLoss`.

    Parameters
    ----------
    model : CrossEncoder
        A model with one output (`num_labels=1`).
    measure : str or Measure, default "nDCG@10"
        The measure to optimise. It should use grades: a binary measure only distinguishes grades
        of at least 1 from the others.
    top_grade : float, default 4.0
        The grade of the document that the teacher ranks first.
    **options
        Other arguments of `DirectRankingLoss`, such as `listnet_weight`.

    Raises
    ------
    InputError
        If the model has more than one output, or an argument is invalid.

    Examples
    --------
    ```python
    data = Dataset.from_dict({"query": queries, "documents": documents, "labels": teacher_scores})
    loss = DistillRankingLoss(model)
    CrossEncoderTrainer(model=model, train_dataset=data, loss=loss).train()
    ```
    """

    def __init__(
        self, model: Any, measure: Any = "nDCG@10", *, top_grade: float = 4.0, **options: Any
    ) -> None:
        super().__init__(model, measure, **options)
        check_alpha(top_grade, "top_grade")
        self.top_grade = top_grade

    def _grades(self, labels: Tensor, lists: Lists) -> Tensor:
        """The teacher's scores, scaled to grades within each query."""
        check_finite("labels", labels, lists)
        return torch.cat([self._scaled(own) for own in torch.split(labels, lists.sizes.tolist())])

    def _scaled(self, scores: Tensor) -> Tensor:
        """The grades of one query."""
        low, high = scores.min(), scores.max()
        if low == high:
            return torch.zeros_like(scores)
        return (scores - low) / (high - low) * self.top_grade

    def get_config_dict(self) -> dict[str, Any]:
        """The settings of the loss, for the model card."""
        return super().get_config_dict() | {"top_grade": self.top_grade}
