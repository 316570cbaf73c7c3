"""WassRank: what it costs to carry the scores' distribution over to the labels'."""

import math
import warnings
from typing import ClassVar, Literal, get_args

import torch

from twinrank.lists import Lists
from twinrank.losses.base import Reduction, SmoothLoss
from twinrank.losses.listnet import log_softmax
from twinrank.losses.transport import Costs, Grades, Plan, total_cost, transport
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.errors import InputError, unknown

Mode = Literal["default", "paper"]

SAME = math.e
"""What it costs to move mass between two documents of one label."""
IRRELEVANT = -10.0
"""The label that counts for an irrelevant document."""
LARGEST = 60
"""A label whose costs single precision can hold."""
PAPER_SMOOTHING, PAPER_SWEEPS = 0.1, 10


class WassRank(SmoothLoss):
    """L = min_P ⟨P, C⟩ + λ Σ P log P, P ≥ 0 with row sums a = softmax(scores), column sums
    b = softmax(labels); ∂L/∂s_i = a_i (f_i − Σ_k a_k f_k), f = λ log u.

    C_ij = |4^y_i − 4^y_j| with y = −10 for irrelevant documents, e between two documents of one
    label, 0 for a document itself. The optimal P is u_i exp(−C_ij / λ) v_j, found by Sinkhorn's
    algorithm; L = λ (Σ a log u + Σ b log v), which can be negative, tends to the optimal transport
    cost as λ → 0, and λ log u is its slope with respect to a.

    mode="default": λ = `smoothing`, and sweeps go on until one changes no u and v by more than
    `tolerance`, relatively. If `sweeps` don't suffice, a `RuntimeWarning` says so; L is then a
    lower bound, and the gradient an approximation. λ = 1 fits the costs: those between neighbours
    are e, 4 and 12, and some ten sweeps suffice. L is smallest where a is b, blurred by
    exp(−C / λ), and with a λ near the largest cost that no longer has the order of the labels; a λ
    far below the smallest takes hundreds of sweeps. Labels beyond 8, whose costs reach millions,
    need a larger λ.

    mode="paper": λ = 0.1 and 10 sweeps from u = 1 / m, whatever that leaves; the loss is ⟨P, C⟩,
    and the gradient as above with f less its mean, which softmax takes away in any case. So the
    gradient isn't that of the loss. The authors' code sets 4^y − 1, not y, to −10 for irrelevant
    documents.

    Yu, Jatowt, Joho, Jose, Yang & Chen, "WassRank: listwise document ranking using optimal
    transport theory" (WSDM 2019); Cuturi, "Sinkhorn distances" (NeurIPS 2013).

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
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator)
        if mode not in get_args(Mode):
            raise InputError(unknown("mode of WassRank", str(mode), get_args(Mode)))
        for option, value in (("smoothing", smoothing), ("tolerance", tolerance)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 < value < math.inf):
                raise InputError(f"{option} must be a number above 0, not {value!r}")
        if isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1:
            raise InputError(f"sweeps must be a whole number from 1 on, not {sweeps!r}")
        self.mode: Mode = mode
        self.smoothing, self.tolerance, self.sweeps = smoothing, tolerance, sweeps

    def extra_repr(self) -> str:
        """What distinguishes this loss when it is printed."""
        return "mode=paper" if self.mode == "paper" else f"smoothing={self.smoothing:g}"

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Transport in the order of the labels, and back."""
        grades = Grades.of(labels, lists)
        log_a = log_softmax(as_float(scores), lists)[grades.order]
        log_b = log_softmax(labels, lists)[grades.order]
        unit, costs = self._costs(grades)
        plan = self._plan(log_a, log_b, lists, grades, costs)
        xp = namespace(log_a)
        a, potential = xp.exp(log_a), unit * plan.log_u
        if self.mode == "paper":
            values = total_cost(plan, grades, costs)
        else:
            values = lists.sum(a * plan.log_u + xp.exp(log_b) * plan.log_v)
        slopes = xp.zeros_like(a)
        slopes[grades.order] = a * (potential - lists.spread(lists.sum(a * potential)))
        return values * unit, slopes

    def _costs(self, grades: Grades) -> tuple[float, Costs]:
        """λ, and the costs in units of it."""
        xp = namespace(grades.labels)
        if bool((grades.labels > LARGEST).any()):
            raise InputError(
                f"WassRank's costs are powers of 4: labels up to {float(grades.labels.max()):g} "
                f"are too large; give grades such as 0 … 4"
            )
        places = xp.exp2(2.0 * xp.where(grades.labels > 0, grades.labels, IRRELEVANT))
        smoothing = PAPER_SMOOTHING if self.mode == "paper" else self.smoothing
        return smoothing, Costs(places / smoothing, SAME / smoothing)

    def _plan(self, log_a: Array, log_b: Array, lists: Lists, grades: Grades, costs: Costs) -> Plan:
        xp, paper = namespace(log_a), self.mode == "paper"
        start = -xp.log(lists.spread(lists.sum(xp.ones_like(log_a))))
        # Single precision, where a device has no other, can't tell smaller changes from noise.
        tolerance = max(self.tolerance, 1e3 * float(xp.finfo(log_a.dtype).eps))
        plan = transport(
            log_a,
            log_b,
            lists,
            grades,
            costs,
            start=start,
            sweeps=PAPER_SWEEPS if paper else self.sweeps,
            tolerance=-1.0 if paper else tolerance,
            newton=not paper,
        )
        if not paper and (late := int((plan.change > tolerance).sum())):
            warnings.warn(
                f"WassRank: {late} of {len(lists)} lists have not converged after {self.sweeps} "
                f"sweeps; the last changed u or v by up to {float(plan.change.max()):.1g}, with a "
                f"tolerance of {tolerance:.1g}. Raise smoothing, sweeps or tolerance",
                RuntimeWarning,
                stacklevel=2,
            )
        return plan
