"""Objectives with constraints: `nDCG(label=order)@10 subject to nDCG@10 >= current - 0.002`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinrank.core.measures import Measure, MeasureSum, measure
from twinrank.core.measures.measure_sum import Goal, number_text
from twinrank.support.errors import InputError
from twinrank.support.notation import SUBJECT_TO

_AND = re.compile(r"\s+and\s+")
_AT_LEAST = re.compile(r"(?P<measure>.+?)\s*(?:>=|≥)\s*(?P<bound>.+)")
_NUMBER = r"[\d.]+(?:[eE][+-]?\d+)?"
_BOUND = re.compile(rf"current(?:\s*(?P<sign>[+−-])\s*(?P<change>{_NUMBER}))?|(?P<value>{_NUMBER})")
_EXAMPLE = "nDCG(label=order)@10 subject to nDCG@10 >= current - 0.002"


@dataclass(frozen=True)
class Constraint:
    """The mean of a measure must be at least a number, or that of the current ranker plus one."""

    measure: Measure
    bound: float
    relative: bool = False
    """True if `bound` is a difference from the current ranker."""

    def __str__(self) -> str:
        bound = number_text(self.bound)
        if self.relative:
            sign = "-" if self.bound < 0 else "+"
            bound = f"current {sign} {number_text(abs(self.bound))}" if self.bound else "current"
        return f"{self.measure} >= {bound}"


@dataclass(frozen=True)
class ConstrainedObjective:
    """A goal to maximise, and the constraints that its ranker keeps."""

    goal: Measure
    constraints: tuple[Constraint, ...]

    @property
    def needs_current(self) -> bool:
        """True if a constraint compares with the current ranker."""
        return any(constraint.relative for constraint in self.constraints)

    def weighted(self, weights: Sequence[float]) -> MeasureSum:
        """The Lagrangian goal + Σ weight · measure, divided by the sum of its weights."""
        share = 1 / (1 + sum(weights))
        terms = [(1.0, self.goal)]
        terms += [(w, c.measure) for w, c in zip(weights, self.constraints, strict=True)]
        goals = [
            Goal(share * weight * goal.weight, goal.measure, goal.label)
            for weight, own in terms
            for goal in (own.goals if isinstance(own, MeasureSum) else (Goal(1.0, own),))
        ]
        return MeasureSum(goals=tuple(goals))

    def __str__(self) -> str:
        return f"{self.goal} subject to {' and '.join(map(str, self.constraints))}"


def constrained(objective: Any) -> ConstrainedObjective | None:
    """An objective with constraints, read from text; None for other objectives.

    >>> str(constrained("AP subject to nDCG@5 >= current-0.01 and P@1 ≥ 0.30"))
    'AP subject to nDCG@5 >= current - 0.01 and P@1 >= 0.3'
    """
    if not isinstance(objective, str) or not SUBJECT_TO.search(objective):
        return None
    goal, *parts = SUBJECT_TO.split(objective)
    if len(parts) > 1:
        raise InputError(f"{objective!r} says 'subject to' twice: join constraints with 'and'.")
    return ConstrainedObjective(
        measure(goal.strip()), tuple(_constraint(text) for text in _AND.split(parts[0]))
    )


def starting(objective: Any) -> Any:
    """What training begins with: goal and constraints with equal weights, or the objective."""
    own = constrained(objective)
    return objective if own is None else own.weighted([1.0] * len(own.constraints))


def _constraint(text: str) -> Constraint:
    match = _AT_LEAST.fullmatch(text.strip())
    bound = None if match is None else _BOUND.fullmatch(match["bound"].strip())
    try:
        number = 0.0 if bound is None else float(bound["value"] or bound["change"] or 0)
    except ValueError:
        bound = None
    if match is None or bound is None:
        raise InputError(
            f"Can't read the constraint {text.strip()!r}. Write measure >= number, or measure >= "
            f"current - number, such as {_EXAMPLE}."
        )
    number = number if bound["sign"] in (None, "+") else -number
    return Constraint(measure(match["measure"]), number, bound["value"] is None)
