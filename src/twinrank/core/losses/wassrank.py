"""WassRank: the cost of transporting the distribution of the scores to that of the labels."""

import math
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.cross_entropy import log_softmax
from twinrank.core.losses.ranking_loss import Reduction, SmoothLoss, on_host
from twinrank.core.losses.sinkhorn import transport
from twinrank.support.arrays import Array, as_float
from twinrank.support.errors import InputError, check_number, unknown, warn

Mode = Literal["default", "paper"]
Cost = Literal["label", "gain"]

SAME = math.e
"""The cost between two documents of the same label."""
IRRELEVANT = -10.0
"""The label of irrelevant documents in the costs, or their gain."""
LARGEST = 60
"""The largest label: its costs fit in single precision."""
PAPER_SMOOTHING, PAPER_SWEEPS = 0.1, 10


class WassRank(SmoothLoss):
    """The entropic cost of transporting softmax(scores) to softmax(labels).

    L = min_P ⟨P, C⟩ + λ Σ P log P over P ≥ 0 with row sums a = softmax(scores) and column sums
    b = softmax(labels). C_ij = |4^y_i − 4^y_j| with y = −10 for irrelevant documents, e between two
    documents of the same label, and 0 from a document to itself. The optimal P is
    u_i · exp(−C_ij / λ) · v_j, computed by Sinkhorn's algorithm. Then
    L = λ (Σ a log u + Σ b log v), which can be negative, and ∂L/∂s_i = a_i (f_i − Σ_k a_k f_k) with
    f = λ log u. As λ → 0, L tends to the optimal transport cost.

    The default λ = 1 fits the costs, which are e, 4 and 12 between neighbouring grades: 10 to 20
    sweeps suffice. A λ near the largest cost blurs the order of the labels. A λ far below the
    smallest cost takes hundreds of sweeps. Labels above 8 have costs of millions and need a larger
    λ.

    In paper mode the loss is ⟨P, C⟩ after 10 sweeps with λ = 0.1 from u = 1/m, and the gradient is
    as above. So it is not the gradient of the loss.

    The authors' code sets the gain 4^y − 1, not the label y, to −10 for irrelevant documents.
    Labels 0 and 1 are then 13 apart instead of 4. `cost="gain"` does the same.

    Yu, Jatowt, Joho, Jose, Yang & Chen, "WassRank: listwise document ranking using optimal
    transport theory" (WSDM 2019); Cuturi, "Sinkhorn distances" (NeurIPS 2013).

    Parameters
    ----------
    mode : {"default", "paper"}, default "default"
        Converged, or as in the experiments of Yu (2020). Paper mode ignores `smoothing`,
        `tolerance` and `sweeps`.
    smoothing : float, default 1.0
        Weight λ of the entropy.
    tolerance : float, default 1e-8
        A list has converged if a sweep changes no log u and log v by more.
    sweeps : int, default 1000
        Maximum number of sweeps. If they do not suffice, a `RuntimeWarning` says so, L is a lower
        bound, and the gradient an approximation.
    cost : {"label", "gain"}, optional
        What is −10 for irrelevant documents: the label, or as in the authors' code the gain.
        Default: "gain" in paper mode, otherwise "label".
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Unused: this loss is not random.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.tensor([0.0, 5.0, 0.0], requires_grad=True)
    >>> loss = WassRank()(scores, torch.tensor([1.0, 0.0, 0.0]), Lists.from_sizes([3]))
    >>> round(loss.item(), 4)
    1.7936
    >>> loss.backward()
    >>> scores.grad.sign()
    tensor([-1.,  1., -1.])
    """

    name: ClassVar[str] = "WassRank"

    def __init__(
        self,
        mode: Mode = "default",
        smoothing: float = 1.0,
        tolerance: float = 1e-8,
        sweeps: int = 1000,
        cost: Cost | None = None,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        if mode not in get_args(Mode):
            raise InputError(unknown("mode of WassRank", str(mode), get_args(Mode)))
        cost = _default_cost(mode) if cost is None else cost
        if cost not in get_args(Cost):
            raise InputError(unknown("cost of WassRank", str(cost), get_args(Cost)))
        check_number("smoothing", smoothing)
        check_number("tolerance", tolerance)
        check_number("sweeps", sweeps, whole=True, least=1)
        self.mode: Mode = mode
        self.cost: Cost = cost
        self.smoothing, self.tolerance, self.sweeps = smoothing, tolerance, sweeps

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        shown = "mode=paper" if self.mode == "paper" else f"smoothing={self.smoothing:g}"
        return shown if self.cost == _default_cost(self.mode) else f"{shown}, cost={self.cost}"

    @on_host
    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """The transport cost and its gradient."""
        paper = self.mode == "paper"
        smoothing = PAPER_SMOOTHING if paper else self.smoothing
        order, grades, documents = _by_grade(labels, lists)
        log_a = log_softmax(as_float(scores), lists)[order]
        log_b = log_softmax(labels, lists)[order]
        log_u, log_v, change, cost = transport(
            log_a,
            log_b,
            grades,
            documents,
            _places(labels[order[documents.offsets[:-1]]], self.cost) / smoothing,
            SAME / smoothing,
            iterations=PAPER_SWEEPS if paper else self.sweeps,
            tolerance=-1.0 if paper else self.tolerance,
            balance=not paper,
        )
        a = np.exp(log_a)
        values = cost if paper else lists.sum(a * log_u + np.exp(log_b) * log_v)
        if not paper:
            self._warn(change)
        slopes = np.empty_like(a)
        slopes[order] = a * (log_u - lists.spread(lists.sum(a * log_u)))
        return smoothing * values, smoothing * slopes

    def _warn(self, change: Any) -> None:
        """Warn if lists have not converged."""
        if late := int((change > self.tolerance).sum()):
            message = (
                f"WassRank: {late} of {len(change)} lists have not converged after {self.sweeps} "
                f"sweeps; the last changed u or v by up to {change.max():.1g}, with a "
                f"tolerance of {self.tolerance:.1g}. Increase smoothing, sweeps or tolerance."
            )
            warn(RuntimeWarning(message))


def _default_cost(mode: Mode) -> Cost:
    """That of the authors' code in paper mode."""
    return "gain" if mode == "paper" else "label"


def _by_grade(labels: Any, lists: Lists) -> tuple[Any, Lists, Lists]:
    """The documents sorted by label, the grades of each list, and the documents of each grade."""
    index = lists.index(labels)
    order = np.lexsort((labels, index))
    values = labels[order]
    new = np.r_[True, (values[1:] != values[:-1]) | (index[1:] != index[:-1])][: values.size]
    starts = np.flatnonzero(new)
    grades = Lists.from_sizes(np.bincount(index[starts], minlength=len(lists)))
    return order, grades, Lists.from_offsets(np.r_[starts, values.size])


def _places(labels: Any, cost: Cost) -> Any:
    """4^label of each grade, or its gain 4^label − 1: the differences are the costs."""
    if (labels > LARGEST).any():
        raise InputError(
            f"WassRank's costs are powers of 4: labels up to {labels.max():g} are too large; "
            f"use grades such as 0 … 4."
        )
    if cost == "gain":
        return np.where(labels > 0, np.exp2(2.0 * labels) - 1.0, IRRELEVANT)
    return np.exp2(2.0 * np.where(labels > 0, labels, IRRELEVANT))
