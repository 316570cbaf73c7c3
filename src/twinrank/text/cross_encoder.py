"""`DirectRankingLoss` and `DistillRankingLoss`: losses for the CrossEncoder of text."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from twinrank.clicks.click_measures import check_click_objective
from twinrank.core.lists import Lists
from twinrank.core.losses.cross_entropy import ListNet
from twinrank.core.losses.direct import DirectLoss
from twinrank.core.measures import Measure
from twinrank.core.ranks.exact import check_finite
from twinrank.core.ranks.strategies import Strategy
from twinrank.support.errors import Argument, InputError, check_number

CITATION = """
@article{yu2020optimize,
    title={Optimize What You Evaluate With: A Simple Yet Effective Framework For Direct Optimization Of IR Metrics},
    author={Yu, Hai-Tao},
    journal={arXiv preprint},
    year={2020}
}
@inproceedings{cao2007learning,
    title={Learning to Rank: From Pairwise Approach to Listwise Approach},
    author={Cao, Zhe and Qin, Tao and Liu, Tie-Yan and Tsai, Ming-Feng and Li, Hang},
    booktitle={Proceedings of the 24th International Conference on Machine Learning},
    year={2007}
}
"""  # noqa: E501


class DirectRankingLoss(nn.Module):
    """Direct optimisation of a measure for a CrossEncoder: minus its mean, plus ListNet's loss.

    The loss is used as LambdaLoss and ListNetLoss of sentence-transformers. The dataset has a
    column of queries, a column of lists of documents, and a column of lists of labels. The number
    of documents may differ between queries. Queries without a relevant document are left out of the
    mean.

    By default, ranks are perturbed and the strategy is "swap". The logits of a new model are all
    close to 0, so their exact order is arbitrary, and the slope of the discount is small for a
    relevant document at a low rank. ListNet's loss keeps the differences between logits close to
    those between labels, so that every query keeps a gradient; it counts all queries with a label
    above 0. `strategy="type3", perturbation=0, samples=1, listnet_weight=0` is the method of the
    paper.

    Yu, "Optimize What You Evaluate With" (2020); Cao, Qin, Liu, Tsai & Li, "Learning to rank: from
    pairwise approach to listwise approach" (ICML 2007).

    Parameters
    ----------
    model : CrossEncoder
        A model with one output (`num_labels=1`).
    measure : str or Measure, default "nDCG@10"
        The measure to optimise.
    strategy : {"type1", "type2", "type3", "swap"}, default "swap"
        How the gradient of a rank reaches the scores, as in `DirectLoss`.
    alpha : float, default 1.0
        The steepness of the gradient.
    perturbation : float, default 3.0
        The scale of Gumbel noise that is added to the scores before ranking.
    samples : int, default 8
        The number of perturbed rankings per step.
    listnet_weight : float, default 3.0
        The weight of ListNet's loss, the cross-entropy between the softmax of the labels and that
        of the scores, against the measure; 0 leaves it out.
    activation_fn : nn.Module, optional
        A function of the logits; the default is the identity.
    mini_batch_size : int, optional
        The number of (query, document) pairs per forward pass. The default is the number of queries
        of the batch; 0 or less means all pairs at once.
    recompute : bool, default False
        Recompute the activations of each mini-batch in the backward pass (Chen et al. 2016). The
        memory is then that of one mini-batch and each step has two forward passes; the gradients
        are the same.
    from_clicks : bool, default False
        True if the labels are credits of clicks (`ClickLog.credits`). The measure must then be
        linear in the labels, such as `"DCG(gain=linear)@10"`, and `listnet_weight` 0.
    validate : bool, default True
        Check that logits and labels are finite, for which the CPU waits for a GPU in every
        step. If False, the loss on a GPU is NaN if a logit is not finite.

    Raises
    ------
    InputError
        If the model has more than one output, or an argument is invalid.

    Examples
    --------
    ```python
    loss = DirectRankingLoss(model, measure="nDCG@10")
    CrossEncoderTrainer(model=model, train_dataset=dataset, loss=loss).train()
    ```
    """

    def __init__(
        self,
        model: Any,
        measure: str | Measure = "nDCG@10",
        strategy: Strategy = "swap",
        alpha: float = 1.0,
        perturbation: float = 3.0,
        samples: int = 8,
        *,
        listnet_weight: float = 3.0,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        recompute: bool = False,
        from_clicks: bool = False,
        validate: bool = True,
    ) -> None:
        super().__init__()
        if from_clicks:
            check_click_objective(measure, "measure")
            if listnet_weight:
                raise InputError(
                    "ListNet's loss is not linear in the labels, as credits of clicks need it: ",
                    Argument("listnet_weight", 0),
                    ".",
                )
        outputs = getattr(model, "num_labels", None)
        if outputs != 1:
            actual = f"one with {outputs}" if outputs else f"a {type(model).__name__}"
            raise InputError(
                f"DirectRankingLoss needs a CrossEncoder with one output, not {actual}. "
                f"Use CrossEncoder(…, num_labels=1)."
            )
        if not isinstance(mini_batch_size, int | None) or isinstance(mini_batch_size, bool):
            raise InputError(f"mini_batch_size must be an integer, not {mini_batch_size!r}.")
        self.model = model
        self.direct = DirectLoss(measure, strategy, alpha, perturbation, samples, validate=validate)
        check_number("listnet_weight", listnet_weight, least=0)
        self.listnet, self.listnet_weight = ListNet(validate=validate), float(listnet_weight)
        self.activation_fn = nn.Identity() if activation_fn is None else activation_fn
        self.mini_batch_size = mini_batch_size
        self.recompute = recompute

    def forward(
        self,
        inputs: Sequence[Sequence[Any]],
        labels: Sequence[Tensor] | None,
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        inputs : sequence of two sequences
            The queries, and a list of documents for each query.
        labels : sequence of tensors
            The labels of the documents of each query.
        prompt, task : str, optional
            Passed to `preprocess` of the model.

        Returns
        -------
        tensor, scalar
            The loss.

        Raises
        ------
        InputError
            If the columns of the dataset do not have this form, or a logit is not finite.
        """
        lists, flat = checked(inputs, labels)
        grades = self._grades(flat, lists)
        queries, documents = inputs
        by_query = zip(queries, documents, strict=True)
        pairs = [(query, text) for query, texts in by_query for text in texts]
        step = len(queries) if self.mini_batch_size is None else self.mini_batch_size
        step = step if step > 0 else len(pairs)
        logits = [
            self._logits(pairs[i : i + step], prompt, task) for i in range(0, len(pairs), step)
        ]
        scores = self.activation_fn(torch.cat(logits).float())
        if self.direct.validate and not torch.isfinite(scores).all():
            query, text = pairs[int(torch.isfinite(scores).int().argmin())]
            raise InputError(
                f"The logit of query {query!r} and document {text!r:.60} is not finite; the "
                f"training diverged. Lower the learning rate, or use float32 or bfloat16."
            )
        grades = grades.to(scores.device, non_blocking=True)
        loss: Tensor = self.direct(scores, grades, lists)
        if self.listnet_weight:
            loss = loss + self.listnet_weight * self.listnet(scores, grades, lists)
        return loss

    def _grades(self, labels: Tensor, lists: Lists) -> Tensor:  # noqa: ARG002
        """The grades of the documents: their labels."""
        return labels

    def _logits(self, pairs: Sequence[Any], prompt: str | None, task: str | None) -> Tensor:
        """The logits of a mini-batch."""
        from sentence_transformers.util import batch_to_device

        tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
        tokens = batch_to_device(tokens, self.model.device)

        def score() -> Tensor:  # of a copy of the tokens, since the model adds keys to its input
            scores: Tensor = self.model(dict(tokens))["scores"].view(-1)
            return scores

        if self.recompute and torch.is_grad_enabled():
            return checkpoint(score, use_reentrant=False)  # type: ignore[no-any-return]
        return score()

    def get_config_dict(self) -> dict[str, Any]:
        """The settings of the loss, for the model card."""
        from sentence_transformers.util import fullname

        return {
            "measure": str(self.direct.measure),
            "strategy": self.direct.strategy,
            "alpha": self.direct.alpha,
            "perturbation": self.direct.perturbation,
            "samples": self.direct.samples,
            "listnet_weight": self.listnet_weight,
            "activation_fn": fullname(self.activation_fn),
            "mini_batch_size": self.mini_batch_size,
            "recompute": self.recompute,
            "validate": self.direct.validate,
        }

    @property
    def citation(self) -> str:
        """The citation of the paper, for the model card."""
        return CITATION


def checked(
    inputs: Sequence[Sequence[Any]], labels: Sequence[Tensor] | None
) -> tuple[Lists, Tensor]:
    """The lists and flat labels of a batch; an error says which column is wrong."""
    if len(inputs) != 2:
        raise InputError(
            f"DirectRankingLoss needs two columns besides the labels, queries and lists of "
            f"documents, not {len(inputs)}."
        )
    queries, documents = inputs
    if any(isinstance(texts, str) for texts in documents):
        raise InputError(
            "The second column must have a list of documents for each query, not one text."
        )
    if labels is None or isinstance(labels, Tensor):
        actual = "no labels" if labels is None else "one label for each query"
        raise InputError(
            f"DirectRankingLoss needs a list of labels for each query, one per document, in a "
            f"column named label, labels, score or scores; got {actual}."
        )
    if not len(queries) == len(documents) == len(labels):
        raise InputError(
            f"There are {len(queries)} queries, {len(documents)} lists of documents and "
            f"{len(labels)} lists of labels; give one of each per query."
        )
    flat = [torch.as_tensor(grades) for grades in labels]
    if not documents:
        raise InputError("The batch has no queries.")
    for i, (texts, grades) in enumerate(zip(documents, flat, strict=True)):
        if not len(texts):
            raise InputError(
                f"Query {i} of the batch ({queries[i]!r}) has no documents; leave it out."
            )
        if tuple(grades.shape) != (len(texts),):
            raise InputError(
                f"Query {i} of the batch ({queries[i]!r}) has {len(texts)} documents but labels "
                f"of shape {tuple(grades.shape)}; give one label per document."
            )
    return Lists.from_sizes([len(texts) for texts in documents]), torch.cat(flat).float()


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
        if options.get("from_clicks"):
            raise InputError("DistillRankingLoss scales its labels; use DirectRankingLoss.")
        super().__init__(model, measure, **options)
        check_number("top_grade", top_grade)
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
