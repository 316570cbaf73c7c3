"""Direct optimisation of a measure for text: a loss for sentence-transformers' CrossEncoder."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from twinrank.lists import Lists
from twinrank.losses.direct import DirectLoss
from twinrank.measures import Measure
from twinrank.ranks.strategies import Strategy
from twinrank.support.errors import InputError

if find_spec("sentence_transformers") is None:  # importing it takes seconds: where it is used
    raise InputError("twinrank.text needs sentence-transformers: pip install 'twinrank[text]'")

__all__ = ["DirectRankingLoss"]


class DirectRankingLoss(nn.Module):
    """Minus a measure of the model's ranking of each query's documents (see `DirectLoss`).

    It takes what sentence-transformers' LambdaLoss and ListNetLoss take: a data set with a column
    of queries, one of lists of documents, and one of lists of labels, as many as there are
    documents, which may differ from query to query. A query with nothing relevant teaches nothing
    and has no share in the mean.

    `measure`, `strategy`, `alpha`, `perturbation` and `samples` are those of `DirectLoss`, and act
    on what `activation_fn` (None: nothing) makes of the model's logits. Ranks are perturbed by
    default, since a new model's logits are all near zero and their exact order is accidental; and
    documents are pushed by what swapping them changes, since the slope of a discount says little
    about a relevant document far down. `strategy="type3", perturbation=0, samples=1` is the paper.

    `mini_batch_size` is the number of (query, document) pairs in one pass of the model: None for
    the number of queries in the batch, 0 or less for all pairs at once. Their losses, and this one,
    hold the activations of all passes until the backward pass. `recompute=True` holds none: the
    backward pass computes those of one mini-batch at a time again (Chen et al. 2016), so that
    memory is that of a mini-batch, and a step has two forward passes. Gradients are the same.

    ```python
    loss = DirectRankingLoss(model, measure="nDCG@10")
    CrossEncoderTrainer(model=model, train_dataset=dataset, loss=loss).train()
    ```

    Yu, "Optimize What You Evaluate With" (2020).
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
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        outputs = getattr(model, "num_labels", None)
        if outputs != 1:
            has = f"one with {outputs}" if outputs else f"a {type(model).__name__}"
            raise InputError(
                f"DirectRankingLoss needs a CrossEncoder with one output, not {has}: "
                f"CrossEncoder(…, num_labels=1)"
            )
        whole = isinstance(mini_batch_size, int) and not isinstance(mini_batch_size, bool)
        if mini_batch_size is not None and not whole:
            raise InputError(f"mini_batch_size must be a whole number, not {mini_batch_size!r}")
        self.model = model
        self.direct = DirectLoss(measure, strategy, alpha, perturbation, samples)
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
        """The loss of a batch: queries and their lists of documents, and their lists of labels."""
        lists, grades = _checked(inputs, labels)
        queries, documents = inputs
        listed = zip(queries, documents, strict=True)
        pairs = [(query, text) for query, texts in listed for text in texts]
        step = len(queries) if self.mini_batch_size is None else self.mini_batch_size
        step = step if step > 0 else len(pairs)
        logits = [
            self._logits(pairs[i : i + step], prompt, task) for i in range(0, len(pairs), step)
        ]
        scores = self.activation_fn(torch.cat(logits).float())
        loss: Tensor = self.direct(scores, grades.to(scores.device), lists)
        return loss

    def _logits(self, pairs: Sequence[Any], prompt: str | None, task: str | None) -> Tensor:
        """One pass of the model."""
        from sentence_transformers.util import batch_to_device

        tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
        tokens = batch_to_device(tokens, self.model.device)

        def score() -> Tensor:
            scores: Tensor = self.model(dict(tokens))["scores"].view(-1)  # which adds to its input
            return scores

        if self.recompute and torch.is_grad_enabled():
            return checkpoint(score, use_reentrant=False)  # type: ignore[no-any-return]
        return score()

    def get_config_dict(self) -> dict[str, Any]:
        """What a model card says of this loss."""
        from sentence_transformers.util import fullname

        return {
            "measure": str(self.direct.measure),
            "strategy": self.direct.strategy,
            "alpha": self.direct.alpha,
            "perturbation": self.direct.perturbation,
            "samples": self.direct.samples,
            "activation_fn": fullname(self.activation_fn),
            "mini_batch_size": self.mini_batch_size,
            "recompute": self.recompute,
        }

    @property
    def citation(self) -> str:
        """The paper, for a model card."""
        return """
@article{yu2020optimize,
    title={Optimize What You Evaluate With: A Simple Yet Effective Framework For Direct Optimization Of IR Metrics},
    author={Yu, Hai-Tao},
    journal={arXiv preprint},
    year={2020}
}
"""  # noqa: E501


def _checked(
    inputs: Sequence[Sequence[Any]], labels: Sequence[Tensor] | None
) -> tuple[Lists, Tensor]:
    """The documents' lists and flat labels, or what is wrong with a data set's columns."""
    if len(inputs) != 2:
        raise InputError(
            f"DirectRankingLoss needs two columns beside the labels, queries and lists of "
            f"documents, not {len(inputs)}"
        )
    queries, documents = inputs
    if any(isinstance(texts, str) for texts in documents):
        raise InputError(
            "the second column must hold a list of documents for each query, not one text"
        )
    if labels is None or isinstance(labels, Tensor):
        found = "no labels" if labels is None else "one label for each query"
        raise InputError(
            f"DirectRankingLoss needs a list of labels for each query, one per document, in a "
            f"column named label, labels, score or scores; got {found}"
        )
    if not len(queries) == len(documents) == len(labels):
        raise InputError(
            f"{len(queries)} queries, {len(documents)} lists of documents and {len(labels)} lists "
            f"of labels must be as many"
        )
    flat = [torch.as_tensor(grades) for grades in labels]
    for i, (texts, grades) in enumerate(zip(documents, flat, strict=True)):
        if tuple(grades.shape) != (len(texts),):
            raise InputError(
                f"query {i} of the batch ({queries[i]!r}) has {len(texts)} documents and labels "
                f"of shape {tuple(grades.shape)}: give one label per document"
            )
    if not any(map(len, documents)):
        raise InputError("no query of the batch has a document")
    return Lists.from_sizes([len(texts) for texts in documents]), torch.cat(flat).float()
