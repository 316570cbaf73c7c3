"""Base classes of losses: flat or padded input, weights, reduction, gradient."""

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from twinrank.core.lists import Lists, flat_input
from twinrank.core.lists.row_weights import (
    check_row_weights,
    query_and_document_weights,
    weighted_gains,
)
from twinrank.core.ranks.exact import check_finite, check_labels
from twinrank.core.ranks.twin import attach, working_dtype
from twinrank.support.arrays import (
    Array,
    all_true,
    as_float,
    at_least_zero,
    device_path,
    from_numpy,
    handle_for,
    is_tensor,
    namespace,
    on_cpu,
    to_numpy,
    untraced,
)
from twinrank.support.errors import InputError

Reduction = Literal["mean", "sum", "none"]

PerList = Callable[..., tuple[Array, Array]]

ScoreGradient = Callable[[Tensor, Tensor], Tensor]
"""∂L/∂score from the scores and ∂L/∂loss."""


class RankingLoss(nn.Module):
    """Base class of all losses: flat scores and labels with lists, or padded ones with a mask.

    Lists without a relevant document have loss 0 and do not count in the mean.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list. With weights w, one per list, the
        mean is Σ w·L / Σ w.
    generator : torch.Generator, optional
        Source of random numbers. Default: torch's global generator.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.
    """

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise InputError(argument="reduction", value=reduction, choices=get_args(Reduction))
        self.reduction: Reduction = reduction
        self.generator = generator
        self.validate = validate
        self.handle = handle_for(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.handle = handle_for(self)

    @property
    def takes_columns(self) -> bool:
        """True if labels may have several columns, [documents, columns]."""
        return False

    def check_document_weights(self) -> None:
        """Raise InputError if the loss takes no weights that differ within a list."""

    @property
    def device_kernel(self) -> str | None:
        """The kernel for which all tensors are treated as those of a GPU, see `device_path`."""
        return None

    def counted(self, labels: Array, lists: Lists) -> Array:
        """True for each list that counts in the mean: those with a relevant document."""
        return lists.any(labels > 0)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists | None = None,
        weights: Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The loss of flat scores and labels with lists, or of padded ones with a mask.

        Parameters
        ----------
        scores : tensor of float, shape (n_documents,) or (n_lists, longest)
            Higher is better.
        labels : tensor, same shape as `scores`
            Graded relevance ≥ 0, or −1 for unjudged documents, which count as 0. `MSE` takes any
            finite target.
        lists : Lists, optional
            Which documents belong together. Required for flat scores.
        weights : tensor, shape (n_lists,) or that of `scores`, optional
            Weight of each list, or of each document, finite and not negative. With weights of
            documents, a list has their mean, and a document its weight divided by the mean. If they
            differ within a list, a measure multiplies the credit of each document by its weight;
            `docs/training.md` has the rules of the other losses.
        mask : tensor of bool, same shape as `scores`, optional
            For padded scores: True where there is a document.

        Returns
        -------
        tensor
            A scalar, or shape (n_lists,) with `reduction="none"`.

        Raises
        ------
        InputError
            If the arguments do not fit together, or scores or labels are not finite.
        """
        transformed = _transformed()
        if transformed and lists is None:
            raise InputError("Within torch.func, pass flat scores with lists, not padded scores.")
        if lists is not None and (transformed or torch.compiler.is_compiling()):
            from twinrank.core.losses.loss_operator import traced_loss  # takes half a second

            return traced_loss(self, scores, labels, lists, weights)
        return self._eager(scores, labels, lists, weights, mask)

    @untraced
    def _eager(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists | None,
        weights: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        if isinstance(weights, Tensor) and weights.ndim == 2:
            weights = flatten(scores, weights, lists, mask, "weights")[1]
        scores, labels, lists = self.flat(scores, labels, lists, mask)
        loss, score_gradient = self.value_and_gradient(scores, labels, lists, weights)
        return attach(loss, scores, score_gradient)

    def flat(
        self, scores: Tensor, labels: Tensor, lists: Lists | None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Lists]:
        """Flat scores, labels and lists; labels may have several columns if the loss takes them."""
        if self.takes_columns and labels.ndim == 2 and scores.ndim == 1:
            scores, _, lists = flatten(scores, labels[:, 0], lists, mask)
            return scores, labels, lists
        return flatten(scores, labels, lists, mask)

    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, lists: Lists, weights: Tensor | None
    ) -> tuple[Tensor, ScoreGradient]:
        """The reduced loss of flat scores, and its gradient.

        The gradient is a function of the scores and of ∂L/∂loss, and returns ∂L/∂score.
        """
        with device_path(self.device_kernel, self.validate):
            weights, documents = weights_of(weights, scores, lists)
            loss, score_gradient = self._computed(scores, labels, lists, weights, documents)
            return self._checked_value(torch.as_tensor(loss), scores), score_gradient

    def _computed(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists,
        weights: Tensor | None,
        documents: Tensor | None,
    ) -> tuple[Array, ScoreGradient]:
        """The reduced loss and its gradient, for weights of lists and of documents.

        Weights of documents are relative to their list; None if they are all 1.
        """
        raise NotImplementedError

    def _checked_value(self, loss: Tensor, scores: Tensor) -> Tensor:
        """The loss in working precision; without `validate` NaN if a score is not finite."""
        loss = loss.to(working_dtype(scores))
        if self.validate:
            return loss
        return torch.where(torch.isfinite(scores.detach()).all(), loss, math.nan)

    def random_source(self) -> torch.Generator:
        """The generator of this loss, or torch's global one."""
        return torch.default_generator if self.generator is None else self.generator


class SmoothLoss(RankingLoss):
    """Base class of the baselines: losses with a value and a gradient in closed form.

    A subclass implements `per_list`, which returns both. Autograd sees one node.
    """

    name: ClassVar[str]
    needs_relevant: ClassVar[bool] = True
    """True if lists without a relevant document do not count."""
    takes_any_label: ClassVar[bool] = False
    """True if every finite label is a target, also a negative one."""

    def extra_repr(self) -> str:
        """The options of this loss, for `repr`."""
        values = {name: getattr(self, name, None) for name in options_of(type(self))}
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in values.items()
            if value is not None
        )

    def counted(self, labels: Array, lists: Lists) -> Array:
        """True for each list that counts in the mean; labels as in `per_list`."""
        return (
            super().counted(labels, lists) if self.needs_relevant else lists.any(labels == labels)
        )

    @abstractmethod
    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The loss of each list and its gradient; every baseline implements this method.

        Parameters
        ----------
        scores : array of float, shape (n_documents,)
            float32 or float64, finite. A NumPy array on the CPU, a tensor on other devices.
        labels : array of float64, shape (n_documents,)
            Finite; 0 for unjudged documents unless the loss takes any label.
        lists : Lists
            May contain empty lists. Lists that do not count may get any finite loss.

        Returns
        -------
        tuple of arrays
            L_q of each list, and ∂L_q/∂score of each document.
        """

    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """As `per_list`, with a weight for each document, whose mean over a list is 1."""
        raise NotImplementedError

    def check_document_weights(self) -> None:
        """Refuse weights without `weighted_per_list`."""
        if type(self).weighted_per_list is SmoothLoss.weighted_per_list:
            raise InputError(
                f"{self.name} takes no weights that differ within a query, because its terms "
                f"depend on all documents. Use a measure such as nDCG, or SoftmaxCrossEntropy, "
                f"ListNet, RankNet, LambdaRank, LambdaLoss, ApproxNDCG, NeuralNDCG, NDCGLoss1, "
                f"PLRank or MSE, or give all rows of a query the same weight."
            )

    def _computed(
        self,
        scores: Tensor,
        labels: Tensor,
        lists: Lists,
        weights: Tensor | None,
        documents: Tensor | None,
    ) -> tuple[Array, ScoreGradient]:
        if self.takes_any_label:
            check_finite("labels", labels, lists)
        else:
            check_labels(labels, lists)
        check_finite("scores", scores, lists)
        plain = to_numpy if on_cpu(scores) else Tensor.detach
        grades = as_float(plain(labels.to(scores.device)))
        grades = grades if self.takes_any_label else at_least_zero(grades)
        own = plain(scores.to(working_dtype(scores)))
        if documents is None:
            values, slopes = self.per_list(own, grades, lists)
        else:
            self.check_document_weights()
            shares = plain(documents)
            values, slopes = self.weighted_per_list(own, grades, lists, shares)
            grades = grades * (shares > 0)
        counted = self.counted(grades, lists)
        loss, share = reduced(
            as_float(values), as_float(from_numpy(counted, values)), weights, self.reduction
        )
        slopes = torch.as_tensor(slopes * lists.spread(share))

        def score_gradient(_: Tensor, upstream: Tensor) -> Tensor:
            factor = upstream.to(slopes.dtype)
            return slopes * (lists.spread(factor) if factor.ndim else factor)

        return loss, score_gradient


class GainLoss(SmoothLoss):
    """Base class of the losses of nDCG: weights multiply gains, as in the measure."""

    def weighted_per_list(
        self, scores: Array, labels: Array, lists: Lists, weights: Array
    ) -> tuple[Array, Array]:
        """The loss of labels whose gains are multiplied: y′ with 2^y′ − 1 = w · (2^y − 1)."""
        xp = namespace(labels)
        gains = weighted_gains(xp.exp2(labels) - 1.0, weights)
        return self.per_list(scores, xp.log2(1.0 + gains), lists)


def options_of(kind: Callable[..., Any]) -> list[str]:
    """The options of a loss, without those that all losses have."""
    shared = inspect.signature(RankingLoss).parameters
    return [name for name in inspect.signature(kind).parameters if name not in shared]


def on_host(per_list: PerList) -> PerList:
    """Compute `per_list` with NumPy arrays: tensors are copied to the CPU, and the results back."""

    @wraps(per_list)
    def copied(
        loss: Any, scores: Array, labels: Array, lists: Lists, *weights: Array
    ) -> tuple[Array, Array]:
        if not is_tensor(scores):
            return per_list(loss, scores, labels, lists, *weights)
        scores_, labels_, *more = (to_numpy(x.cpu()) for x in (scores, labels, *weights))
        results = per_list(loss, scores_, labels_, lists, *more)
        values, slopes = (
            torch.from_numpy(x).to(as_float(scores).dtype).to(scores.device) for x in results
        )
        return values, slopes

    return copied


def _transformed() -> bool:
    """True within a transform of torch.func, such as grad or vmap."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def weights_of(
    weights: Tensor | None, scores: Tensor, lists: Lists
) -> tuple[Tensor | None, Tensor | None]:
    """The weights of lists, and those of documents if they differ within a list."""
    if not isinstance(weights, Tensor) or tuple(weights.shape) != (lists.documents,):
        return weights, None
    if lists.documents == len(lists):  # where each list has a document, both mean the same
        return weights, None
    rows = weights.detach().to(scores.device)
    check_row_weights(rows)
    of_lists, documents = query_and_document_weights(
        to_numpy(rows) if on_cpu(rows) else rows, lists
    )
    return torch.as_tensor(of_lists), None if documents is None else torch.as_tensor(documents)


def flatten(
    scores: Tensor,
    labels: Tensor,
    lists: Lists | None,
    mask: Tensor | None,
    name: str = "labels",
) -> tuple[Tensor, Tensor, Lists]:
    """Convert flat or padded input to flat input; raise an error if it does not fit together."""
    for what, value in (("scores", scores), (name, labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"{what} must be a torch tensor, not {type(value).__name__}.")
    if not scores.is_floating_point():
        raise InputError(f"scores must be floating-point numbers, not {scores.dtype}.")
    return flat_input(scores, labels, lists, mask, name)


def reduced(
    losses: Array, counted: Array, weights: Tensor | None, reduction: Reduction
) -> tuple[Array, Array]:
    """The reduced loss, and the factor of each list in it."""
    xp, share = namespace(losses), as_float(counted)
    if weights is not None:
        if not isinstance(weights, Tensor):
            raise InputError(f"weights must be a torch tensor, not {type(weights).__name__}.")
        if tuple(weights.shape) != tuple(losses.shape):
            raise InputError(
                f"weights has shape {tuple(weights.shape)} but there are {len(losses)} lists; "
                f"weights needs one entry per list, or per document."
            )
        if not all_true((weights >= 0) & torch.isfinite(weights)):
            raise InputError("weights must be finite and not negative.")
        share = share * as_float(to_numpy(weights.cpu()) if xp is np else weights)
    if reduction == "mean":
        total = share.sum()
        share = share / (xp.where(total > 0, total, 1.0) if is_tensor(total) else total or 1.0)
    return (losses * share if reduction == "none" else (losses * share).sum()), share
