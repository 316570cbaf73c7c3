"""The weights of a blend: a grid of weights, and the choice among them by validation."""

from collections.abc import Iterator, Mapping, Sequence
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.measures import Measure
from twinrank.core.measures.constraints import ConstrainedObjective
from twinrank.data.dataset import Dataset
from twinrank.evaluation.constraint_check import missed
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.learning.models.blend_model import Scores, weighted_sum
from twinrank.learning.training.settings import is_auto
from twinrank.support.errors import InputError

_STEPS, _POINTS = 10, 100  # steps of 0.1, or larger ones if that makes too many combinations
_ERRORS = 2  # standard errors; with one, a few queries already exclude equal weights


def best_weights(
    scores: Sequence[Scores], scales: Sequence[float], data: Dataset, measure: str | Measure
) -> tuple[float, ...]:
    """The mean of all weights that are not clearly worse than the best ones.

    Weights on a grid are compared by the measure on the queries of the data. Those whose mean
    difference from the best is at most two standard errors of that difference (paired by query)
    are averaged, so that few queries give nearly equal weights.
    """
    grid = simplex(len(scores))
    values = np.array([_values(scores, point, scales, data, measure) for point in grid])
    values = values[:, ~np.isnan(values[0])]
    queries = values.shape[1]
    if queries < 2:
        return equal_weights(len(scores))
    loss = values[values.mean(axis=1).argmax()] - values
    error = loss.std(axis=1, ddof=1) / np.sqrt(queries)
    return tuple(grid[loss.mean(axis=1) <= _ERRORS * error].mean(axis=0).tolist())


def constrained_weights(
    scores: Sequence[Scores],
    scales: Sequence[float],
    data: Dataset,
    objective: ConstrainedObjective,
    current: Scores | None,
) -> tuple[float, ...]:
    """The weights with the best goal that keep the constraints, or miss them least."""
    measures = [objective.goal, *(constraint.measure for constraint in objective.constraints)]
    best = None
    old = None if current is None else evaluate_data(current, data, measures).values
    for point in simplex(len(scores)):
        blended = weighted_sum(scores, point.tolist(), scales)
        found = evaluate_data(blended, data, measures)
        key = -missed(objective, found.values, old), found[str(objective.goal)]
        if best is None or key > best[0]:
            best = key, point
    assert best is not None
    return tuple(best[1].tolist())


def explicit_weights(weights: Any, names: Sequence[str]) -> tuple[float, ...] | None:
    """The user's weights, made to add up to 1; None if they are "auto"."""
    if is_auto(weights):
        return None
    values = weights
    if isinstance(weights, Mapping):
        if weights.keys() != set(names):
            raise InputError(f"weights must have the keys {', '.join(names)}, not {weights!r}.")
        values = [weights[name] for name in names]
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (len(names),):
        raise InputError(
            f"weights must be 'auto', or a number for each of {', '.join(names)}, not {weights!r}."
        )
    if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
        raise InputError(f"weights must be finite, at least 0 and not all 0, not {weights!r}.")
    return tuple((array / array.sum()).tolist())


def equal_weights(count: int) -> tuple[float, ...]:
    """The same weight for every ranker."""
    return (1 / count,) * count


def simplex(count: int) -> npt.NDArray[np.float64]:
    """Weights that add up to 1, in steps of 0.1 for two or three rankers.

    >>> len(simplex(2)), len(simplex(3)), len(simplex(4))
    (11, 66, 84)
    """
    fitting = [s for s in range(2, _STEPS + 1) if comb(s + count - 1, count - 1) <= _POINTS]
    steps = max(fitting, default=1)
    return np.array(list(_sums(steps, count))) / steps


def _sums(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """All tuples of `count` whole numbers of at least 0 with this sum."""
    if count == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _sums(total - first, count - 1):
            yield (first, *rest)


def _values(
    scores: Sequence[Scores],
    weights: npt.NDArray[np.float64],
    scales: Sequence[float],
    data: Dataset,
    measure: str | Measure,
) -> npt.NDArray[np.float64]:
    """The measure of each query."""
    blended = weighted_sum(scores, weights.tolist(), scales)
    return evaluate_data(blended, data, [measure]).values[str(measure)]
