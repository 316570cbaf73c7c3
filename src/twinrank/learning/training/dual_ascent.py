"""The weights of constraints, adapted while a model trains: dual ascent on validation queries."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from twinrank.core.measures import MeasureSum
from twinrank.core.measures.constraints import ConstrainedObjective
from twinrank.evaluation.constraint_check import ConstraintCheck, checked, margins, missed
from twinrank.evaluation.evaluation_values import mean_of
from twinrank.learning.training.settings import Plan
from twinrank.support.arrays import Floats

_LOWEST, _HIGHEST = 0.02, 50.0
_TRAVEL = 2.5
"""The logarithm of a weight changes by at most this much within the patience of early stopping."""
_WINDOW = 0.2
"""The margin is smoothed over this share of the patience."""
_AHEAD = 2.0
"""The trend of the margin is extrapolated by this many windows."""

Values = Mapping[str, Floats]
"""The values of each query, by measure."""


class DualAscent:
    """Maximises the goal over the model, and the Lagrangian's weights over the constraints.

    After each evaluation, the weight of a constraint is multiplied by exp(−η·z), where z is its
    margin on the validation queries in standard errors, between −1 and 1: a constraint that is
    missed gets more weight. Early in training every constraint is missed, because the model has
    learned little; weights that only follow the margin would grow without need. So z takes the
    margin that the trend promises, m + 2 · (m − smoothed m) (Stooke et al. 2020 also add the
    derivative). Weights start at 1, the goal's, and stay between 0.02 and 50.
    """

    def __init__(self, objective: ConstrainedObjective, plan: Plan, current: Values | None) -> None:
        self.objective, self.current = objective, current
        self.weights = [1.0] * len(objective.constraints)
        self._smooth: list[float] = []
        patience = min(plan.early_stopping or math.inf, plan.iterations / 3)
        evaluations = max(patience / plan.validate_every, 1.0)
        self._step, self._window = _TRAVEL / evaluations, max(2.0, _WINDOW * evaluations)

    @property
    def measure(self) -> MeasureSum:
        """What the model learns now."""
        return self.objective.weighted(self.weights)

    def missed(self, values: Values) -> float:
        """By how much the means miss their bounds, added up."""
        return missed(self.objective, values, self.current)

    def update(self, values: Values) -> None:
        """Adapt the weights to the values of the validation queries."""
        found = margins(self.objective, values, self.current)
        means = [mean_of(margin) for margin in found]
        if not self._smooth:
            self._smooth = means
        for i, (margin, mean) in enumerate(zip(found, means, strict=True)):
            self._smooth[i] += (mean - self._smooth[i]) / self._window
            ahead = mean + _AHEAD * (mean - self._smooth[i])
            z = min(1.0, max(-1.0, ahead / max(_error(margin), 1e-12)))
            self.weights[i] *= math.exp(-self._step * z)
            self.weights[i] = min(_HIGHEST, max(_LOWEST, self.weights[i]))

    def checks(self, name: str, values: Values, current: Values | None) -> list[ConstraintCheck]:
        """What an evaluation set says about the constraints."""
        if current is None and self.objective.needs_current:
            return []
        return checked(self.objective, values, current, name)

    def named_weights(self) -> dict[str, float]:
        """The weight of each constraint, that of the goal being 1."""
        return dict(zip(map(str, self.objective.constraints), self.weights, strict=True))

    def state(self) -> dict[str, list[float]]:
        """All that `restore` needs, as JSON."""
        return {"weights": self.weights, "smooth": self._smooth}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Continue from `state`."""
        self.weights, self._smooth = list(state["weights"]), list(state["smooth"])


def _error(margin: Floats) -> float:
    """The standard error of a mean."""
    known = margin[~np.isnan(margin)]
    return float(known.std() / math.sqrt(known.size)) if known.size else 0.0
