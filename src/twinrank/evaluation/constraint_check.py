"""Whether a ranker keeps the constraints of an objective, on queries that it did not learn from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.measures.constraints import ConstrainedObjective, Constraint, constrained
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.evaluation_values import mean_of
from twinrank.evaluation.significance import confidence_interval
from twinrank.support.arrays import Floats
from twinrank.support.errors import Argument, InputError

HOLDS, FAILS, UNKNOWN = "holds", "fails", "cannot be told"
_FEWEST = 6  # queries; of fewer, margins of the same sign are not significant: 2⁻⁵ > 0.025


@dataclass(frozen=True)
class ConstraintCheck:
    """What queries say about a constraint.

    Parameters
    ----------
    constraint : str
        The constraint, such as "nDCG@10 >= current - 0.002".
    verdict : str
        "holds" if the whole interval of the margin is at 0 or above, "fails" if it is below 0,
        else "cannot be told"; so also with fewer than six queries.
    value : float
        The mean of the measure.
    current : float or None
        That of the current ranker; None if the constraint does not compare with it.
    margin : float
        The value minus the bound: below 0, the mean misses the constraint.
    low, high : float
        The bootstrap interval of the margin, paired by query.
    queries : int
        The number of queries.
    data : str, default ""
        The name of the evaluation set.
    """

    constraint: str
    verdict: str
    value: float
    current: float | None
    margin: float
    low: float
    high: float
    queries: int
    data: str = ""

    def __str__(self) -> str:
        place = f" on {self.data}" if self.data else ""
        than = "" if self.current is None else f", current {self.current:.4f}"
        return (
            f"{self.constraint} {self.verdict}{place}: {self.value:.4f}{than}; margin "
            f"{self.margin:+.4f} ({self.low:+.4f} to {self.high:+.4f}, {self.queries:,} queries)"
        )

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def check_constraints(
    objective: str,
    scores: Any,
    labels: Any,
    lists: Lists,
    current: Any = None,
    level: float = 0.95,
    weights: Any = None,
) -> list[ConstraintCheck]:
    """Say for each constraint whether it holds, fails or cannot be told on these queries.

    Parameters
    ----------
    objective : str
        An objective with constraints: "nDCG(label=order)@10 subject to nDCG@10 >= current - 0.002".
    scores : array, shape (n_documents,)
        The scores of the new ranker.
    labels : array or mapping of arrays, shape (n_documents,)
        The labels, as `evaluate` takes them.
    lists : Lists
        The queries.
    current : array, shape (n_documents,), optional
        The scores of the current ranker, if a constraint compares with it.
    level : float, default 0.95
        The confidence level of the intervals.
    weights : array, shape (n_documents,), optional
        The weights of documents, as `evaluate` takes them.

    Returns
    -------
    list of ConstraintCheck

    Raises
    ------
    InputError
        If the objective has no constraints, or needs `current`.

    Examples
    --------
    >>> lists = Lists.from_sizes([2] * 40)
    >>> labels, new, old = [1, 0] * 40, [1.0, 0.0] * 40, [0.0, 1.0] * 40
    >>> check = check_constraints("AP subject to RR >= current", new, labels, lists, old)[0]
    >>> check.verdict, check.value, check.current, check.margin
    ('holds', 1.0, 0.5, 0.5)
    """
    known = constrained(objective)
    if known is None:
        raise InputError(
            Argument("objective", objective), " has no constraints: write '… subject to …'."
        )
    if known.needs_current and current is None:
        raise InputError(
            f"{objective} compares with the current ranker: pass its scores as ",
            Argument("current"),
            ".",
        )
    measures = [constraint.measure for constraint in known.constraints]
    new = evaluate(scores, labels, lists, measures, weights=weights).values
    old = None
    if current is not None:
        try:
            old = evaluate(current, labels, lists, measures, weights=weights).values
        except InputError as error:
            raise InputError(Argument("current"), ": ", *error.parts) from error
    return checked(known, new, old, level=level)


def margins(
    objective: ConstrainedObjective,
    new: Mapping[str, Floats],
    old: Mapping[str, Floats] | None,
) -> list[Floats]:
    """For each constraint, what the value of each query adds to the margin; NaN without a value."""
    return [_margin(constraint, new, old) for constraint in objective.constraints]


def _margin(
    constraint: Constraint, new: Mapping[str, Floats], old: Mapping[str, Floats] | None
) -> Floats:
    values = new[str(constraint.measure)]
    before = old[str(constraint.measure)] if constraint.relative and old is not None else 0.0
    return values - before - constraint.bound


def missed(
    objective: ConstrainedObjective,
    new: Mapping[str, Floats],
    old: Mapping[str, Floats] | None,
) -> float:
    """By how much the means miss their bounds, added up."""
    means = [mean_of(margin) for margin in margins(objective, new, old)]
    return sum(max(0.0, -mean) for mean in means)


def checked(
    objective: ConstrainedObjective,
    new: Mapping[str, Floats],
    old: Mapping[str, Floats] | None,
    data: str = "",
    level: float = 0.95,
) -> list[ConstraintCheck]:
    """The checks, from the values of each query by measure."""
    found = []
    for constraint, margin in zip(objective.constraints, margins(objective, new, old), strict=True):
        name = str(constraint.measure)
        low, high = confidence_interval(margin, level)
        mean, queries = mean_of(margin), int((~np.isnan(margin)).sum())
        verdict = HOLDS if low >= 0 else FAILS if high < 0 else UNKNOWN
        verdict = UNKNOWN if queries < _FEWEST else verdict
        before = None if old is None or not constraint.relative else mean_of(old[name])
        number = (mean_of(new[name]), before, mean, low, high)
        found.append(ConstraintCheck(str(constraint), verdict, *number, queries, data))
    return found


def checks_from_json(content: Any) -> list[ConstraintCheck]:
    """The checks that a model was saved with."""
    try:
        return [ConstraintCheck(**entry) for entry in content]
    except TypeError as error:
        raise InputError(f"The constraints of the model are damaged ({error}).") from error
