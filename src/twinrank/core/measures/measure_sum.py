"""Weighted sums of measures, each on a column of labels of its own: several goals as one measure.

M = Σ_g w_g · M_g. The ranks are the same for all goals.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.dcg import DCG, NDCG
from twinrank.core.measures.measure_base import Measure, shared
from twinrank.core.measures.rbp import RBP
from twinrank.core.measures.variety import VarietyMeasure
from twinrank.support.arrays import Array, as_float, is_tensor, namespace
from twinrank.support.errors import InputError
from twinrank.support.quantities import counted


@dataclass(frozen=True)
class Goal:
    """A measure with its weight in a sum, on a named column of labels or on the main one."""

    weight: float
    measure: Measure
    label: str | tuple[str, ...] | None = None
    """A column, or one for each sub-topic of a measure of variety."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns besides the main label."""
        if self.label is None:
            return ()
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def notation(self) -> str:
        """The columns as the option `label` names them."""
        return self.label if isinstance(self.label, str) else f"[{', '.join(self.columns)}]"

    def __str__(self) -> str:
        """The measure with its column, such as `nDCG(label=click)@10`."""
        if self.label is None:
            return str(self.measure)
        text = str(self.measure)
        if isinstance(self.measure, VarietyMeasure) and not isinstance(self.label, str):
            text = str(replace(self.measure, subtopics=1))
        head, bracket, rest = text.partition("(")
        if bracket:
            return f"{head}(label={self.notation}, {rest}"
        name, at, cutoff = text.partition("@")
        return f"{name}(label={self.notation}){at}{cutoff}"


@dataclass(frozen=True, kw_only=True)
class MeasureSum(Measure):
    """Σ weight · measure; a list counts if it counts for one of the measures, else a term is 0.

    Labels are [documents], or [documents, 1 + columns]: the main label, then `labels` in order.
    """

    name: ClassVar[str] = "sum"
    goals: tuple[Goal, ...] = ()
    is_prepared: bool = field(default=False, repr=False)
    """True if labels have the further columns of `prepared`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.goals or self.cutoff is not None:
            raise InputError("A sum of measures needs terms, each with its own cutoff.")

    @property
    def on_any_array(self) -> bool:  # type: ignore[override]
        """True if all terms work on any array."""
        return all(goal.measure.on_any_array for goal in self.goals)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns besides the main label."""
        return tuple(dict.fromkeys(name for g in self.goals for name in g.columns))

    @property
    def counts_not_relevant(self) -> bool:
        """True if one of the terms counts judged documents of grade 0."""
        return any(goal.measure.counts_not_relevant for goal in self.goals)

    @property
    def takes_weights(self) -> bool:
        """True if all terms take weights of documents."""
        return all(goal.measure.takes_weights for goal in self.goals)

    def check_takes_weights(self) -> None:
        """Name a term that takes no weights of documents."""
        for goal in self.goals:
            goal.measure.check_takes_weights()

    def weighted(self, labels: Array, weights: Array) -> tuple[Measure, Array]:
        """Each term in its weighted form, on a column of its own."""
        terms = [(g, *g.measure.weighted(self.column(labels, g), weights)) for g in self.goals]
        goals = tuple(Goal(g.weight, own, str(i)) for i, (g, own, _) in enumerate(terms))
        columns = [column for *_, column in terms]
        return MeasureSum(goals=goals), namespace(weights).stack([columns[0], *columns], 1)

    def prepared(self, labels: Array, lists: Lists) -> tuple["MeasureSum", Array]:
        """The sum for labels with further columns, which training would compute in every step.

        These are the order of the documents, in whole numbers, and the credits of DCG and nDCG,
        which are the same in any order: terms of equal discount share a weighted sum of credits.
        """
        if self.is_prepared:
            return self, labels
        order, grades = self.order(labels, lists), as_float(labels)
        if not is_tensor(order):
            from twinrank.support.segments import grades_of  # imports numba

            order = grades_of(order, lists.offsets)[0]
        columns = grades if grades.ndim == 2 else grades[:, None]
        credits = [
            sum(g.weight * as_float(g.measure.credit(self.column(grades, g), lists)) for g in goals)
            for goals in self.fixed.values()
        ]
        more = namespace(columns).stack([as_float(order), *credits], 1)
        xp = namespace(columns)
        join = xp.cat if is_tensor(columns) else xp.concatenate
        return replace(self, is_prepared=True), join([columns, more], 1)

    @cached_property
    def fixed(self) -> dict[DCG, list[Goal]]:
        """The terms whose credits do not depend on ranks, by their discount and cutoff."""
        found: dict[DCG, list[Goal]] = {}
        for goal in self.goals:
            if type(own := goal.measure) in (DCG, NDCG) and isinstance(own, DCG):
                shared_discount = DCG(discounting=own.discounting, cutoff=own.cutoff)
                found.setdefault(shared_discount, []).append(goal)
        return found

    def fixed_credits(self, labels: Array) -> list[tuple[DCG, Array]]:
        """A measure with the discount, and the credit of each document; none unless prepared."""
        if not self.is_prepared:
            return []
        first = 2 + len(self.labels)
        return [(own, _column(labels, first + i)) for i, own in enumerate(self.fixed)]

    @property
    def loose(self) -> list[Goal]:
        """The terms that `fixed_credits` does not have."""
        if not self.is_prepared:
            return list(self.goals)
        return [goal for goal in self.goals if type(goal.measure) not in (DCG, NDCG)]

    def at_ranks(
        self, ranks: Array, labels: Array, lists: Lists, *, gradient: bool = False
    ) -> tuple[Array, Array, Array]:
        """The sums of the terms; see `Measure.at_ranks`."""
        terms: list[tuple[float, Measure, Array]] = [
            (goal.weight, goal.measure, self.column(labels, goal)) for goal in self.loose
        ]
        terms += [(1.0, _Shared(**vars(m)), c) for m, c in self.fixed_credits(labels)]
        values, slopes, counts = None, None, None
        for weight, measure, column in terms:
            value, slope, filled = measure.at_ranks(ranks, column, lists, gradient=gradient)
            if values is None:
                values, counts = weight * value, filled
                slopes = weight * slope if gradient else None
                continue
            values, counts = values + weight * value, counts | filled
            slopes = slopes + weight * slope if gradient else None
        return values, slopes, counts

    def relevant(self, labels: Array) -> Array:
        """True if a document is relevant for one of the goals."""
        found = None
        for goal in self.goals:
            own = goal.measure.relevant(self.column(labels, goal))
            found = own if found is None else found | own
        return found

    def order(self, labels: Array, lists: Lists) -> Array:
        """What each document is worth in the ideal order: the strategies compare these values.

        The labels, if all goals have the same; else Σ weight · share of the goal's total gain.
        """
        if self.is_prepared:
            return _column(labels, 1 + len(self.labels))
        variety = any(isinstance(goal.measure, VarietyMeasure) for goal in self.goals)
        if len({goal.label for goal in self.goals}) == 1 and not variety:
            return self.column(labels, self.goals[0])
        return sum(
            goal.weight * _worth(goal.measure, as_float(self.column(labels, goal)), lists)
            for goal in self.goals
        )

    def parts(self) -> dict[str, Measure]:
        """Each term as a measure of its own, by name."""
        return {
            str(g): g.measure
            if g.label is None
            else MeasureSum(goals=(Goal(1.0, g.measure, g.label),))
            for g in self.goals
        }

    def mapped(self, change: Callable[[Measure], Measure]) -> "MeasureSum":
        """The sum with every measure replaced."""
        goals = tuple(Goal(g.weight, change(g.measure), g.label) for g in self.goals)
        return MeasureSum(goals=goals)

    def column(self, labels: Array, goal: Goal) -> Array:
        """The labels of a goal; for several columns, the sets of their sub-topics."""
        if labels.ndim == 1:
            if goal.label is not None:
                name = goal.columns[0]
                raise InputError(
                    f"{goal} needs a column of labels called {name!r}, but the data has only "
                    f"one label: name several, such as label=['click', {name!r}] of load or "
                    f"labels={{…}} of Dataset.from_arrays."
                )
            return labels
        expected = 1 + len(self.labels)
        if not self.is_prepared and labels.shape[1] != expected:
            raise InputError(
                f"labels has {counted(labels.shape[1], 'column')}, but {self} needs {expected}: "
                f"{', '.join(['the main label', *self.labels])}."
            )
        if goal.label is None:
            return _column(labels, 0)
        columns = [_column(labels, 1 + self.labels.index(name)) for name in goal.columns]
        return columns[0] if isinstance(goal.label, str) else in_one(goal.measure, columns)

    def check_strategy(self, strategy: str) -> None:
        """Raise an error if one of the measures does not support a strategy."""
        for goal in self.goals:
            goal.measure.check_strategy(strategy)

    def swap_gradient(
        self,
        scores: Array,
        ranks: Array,
        labels: Array,
        lists: Lists,
        alpha: float = 1.0,
        parallel: bool = True,
    ) -> tuple[Array, Array]:
        """The weighted sums of those of the measures, each of which has its own direction."""
        gradient, curvature = scores * 0, scores * 0
        for goal in self.goals:
            own = self.column(labels, goal)
            sums = goal.measure.swap_gradient(scores, ranks, own, lists, alpha, parallel)
            gradient, curvature = (
                gradient + goal.weight * sums[0],
                curvature + goal.weight * sums[1],
            )
        return gradient, curvature

    def __str__(self) -> str:
        if len(self.goals) == 1 and self.goals[0].weight == 1:
            return str(self.goals[0])
        return " + ".join(f"{number_text(goal.weight)} * {goal}" for goal in self.goals)


@dataclass(frozen=True, kw_only=True)
class _Shared(DCG):
    """Σ credit · discount, with credits in the place of labels."""

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The labels."""
        return labels


def in_one(measure: Measure, columns: list[Array]) -> Array:
    """Columns of labels as one, for a measure of variety."""
    assert isinstance(measure, VarietyMeasure)
    return measure.of_columns(columns)


def _column(labels: Array, number: int) -> Array:
    own: Any = labels[:, number]
    return own.contiguous() if is_tensor(own) else own.copy()


def number_text(weight: float) -> str:
    """A number in full precision, 2 for 2.0."""
    return repr(float(weight)).removesuffix(".0")


def _worth(measure: Measure, labels: Array, lists: Lists) -> Array:
    """What a document adds at best: its credit if that is the same in any order, or its share."""
    if isinstance(measure, DCG | RBP):
        return as_float(measure.credit(labels, lists))
    gains = measure.gains(labels) if hasattr(measure, "gains") else measure.relevant(labels)
    gains = as_float(gains)
    return shared(gains, lists.sum(gains), lists)
