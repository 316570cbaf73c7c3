"""The map from scores to expected grades or probabilities: fitting, applying, saving, exporting.

A piecewise-linear function, and in addition a tiny constant for each step from one float32 to the
next. Different scores therefore never get the same value, and never change their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.support.errors import Argument, InputError

if TYPE_CHECKING:
    from twinrank.deployment.onnx_graph import Graph

Floats = npt.NDArray[np.float64]

TARGETS = ("grade", "probability")
STATISTICS = ("log(documents)", "mean score", "deviation of scores", "highest score")
"""What can shift the scores of a query, if the map knows queries."""
_SMALLEST, _MOST = 20, 500  # documents in a bin, and bins
_STEPS = 2.0**52
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class ScoreMap:
    """A strictly increasing map from the scores of a model to its target.

    Parameters
    ----------
    target : {"grade", "probability"}
        What a value means: the expected label, or the probability that a document is relevant.
    scores, values : array of float64, shape (n_knots,)
        The knots. Between them the map is linear, and beyond them nearly constant.
    relevant : float, default 1
        The lowest label that counts as relevant.
    shifts : tuple of float, default ()
        The coefficients of `STATISTICS`, which are added to the scores of a query; none if empty.
    """

    target: str
    scores: Floats
    values: Floats
    relevant: float = 1.0
    shifts: tuple[float, ...] = ()

    @property
    def per_query(self) -> bool:
        """True if a value depends on the scores of the other documents of the query."""
        return bool(self.shifts)

    @cached_property
    def span(self) -> float:
        """The smallest power of two, 1 or more, that is not below any value."""
        return float(2.0 ** np.ceil(np.log2(max(1.0, self.values[-1]))))

    def __call__(self, scores: Any, lists: Lists | None = None) -> Floats:
        """The value of every score, in double precision.

        The linear part is rounded to multiples of span / 2⁵². The number of a float32, counted from
        the smallest one, is below 2³²; it is added in the same unit. The sum is exact. It differs
        from the linear part by less than 10⁻⁶ · span.
        """
        single = np.asarray(scores, np.float32) + np.float32(0)  # −0 is 0
        if np.isnan(single).any():
            raise InputError("Scores are NaN, which have no calibrated value.")
        linear = self._linear(self.shifted(single, lists))
        unit = self.span / _STEPS
        room = 1 - 2.0**32 / _STEPS
        return np.asarray(np.rint(linear * (room / unit)) * unit + numbers(single) * unit)

    def shifted(self, scores: Any, lists: Lists | None) -> Floats:
        """Finite scores, in double precision, shifted by the statistics of their queries."""
        exact = finite(scores)
        if not self.shifts:
            return exact
        if lists is None:
            raise InputError("The calibration depends on the query: pass its documents together.")
        of_query = np.column_stack(statistics(exact, lists)) @ np.array(self.shifts)
        return np.asarray(exact + lists.spread(of_query))

    def _linear(self, scores: Floats) -> Floats:
        x, y = self.scores, self.values
        inside = np.clip(scores, x[0], x[-1])
        left = np.clip(np.searchsorted(x, inside, "right") - 1, 0, x.size - 2)
        slopes = np.diff(y) / np.diff(x)
        # Rounding must not exceed the knot to the right, or the map would fall there.
        return np.clip(y[left] + (inside - x[left]) * slopes[left], y[left], y[left + 1])

    def to_json(self) -> dict[str, Any]:
        """The map as a dictionary; JSON keeps every bit of a float."""
        return {
            "target": self.target,
            "scores": self.scores.tolist(),
            "values": self.values.tolist(),
            "relevant": self.relevant,
            "shifts": list(self.shifts),
        }

    @staticmethod
    def from_json(content: Any) -> "ScoreMap":
        """Read what `to_json` wrote; InputError if it is damaged."""
        try:
            x, y = (np.array(content[name], np.float64) for name in ("scores", "values"))
            shifts = tuple(map(float, content["shifts"]))
            target, relevant = content["target"], float(content["relevant"])
            curve = content.get("curve", "lines")
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"A calibration is damaged ({error!r}).") from error
        fits = x.ndim == y.ndim == 1 and x.size == y.size >= 2 and len(shifts) in (0, _COUNT)
        if fits:
            fits = bool(np.isfinite([*x, *y, *shifts, relevant]).all() and y[0] >= 0)
            fits &= bool((np.diff(x) > 0).all() and (np.diff(y) >= 0).all())
        if not fits or target not in TARGETS or (target == "probability" and y[-1] > 1):
            raise InputError("A calibration is damaged: its knots are not those of a rising map.")
        if curve == "sigmoid" and x[0] == -x[1] and target == "probability" and not shifts:
            return SigmoidMap.of(relevant, 1 / x[1])
        if curve != "lines":
            raise InputError(f"A calibration is damaged: its curve is {curve!r}.")
        return ScoreMap(target, x, y, relevant, shifts)

    def add_to(self, graph: "Graph", scores: str) -> str:
        """Append the piecewise-linear map to an ONNX graph; near-equal scores may become equal."""
        s = graph.cast(scores, np.float64)
        if self.shifts:
            s = graph("Add", s, _onnx_shift(graph, s, self.shifts))
        widths, rises = np.diff(self.scores), np.diff(self.values)
        column = graph("Unsqueeze", s, np.array([1]))
        share = graph("Div", graph("Sub", column, self.scores[:-1]), widths)
        share = graph("Min", graph("Max", share, np.float64(0)), np.float64(1))
        total = graph("ReduceSum", graph("Mul", share, rises), np.array([1]), keepdims=0)
        return graph("Add", total, np.float64(self.values[0]))


@dataclass(frozen=True, eq=False)
class SigmoidMap(ScoreMap):
    """σ(scale · score): what the scores of a net mean that was trained with `SigmoidCrossEntropy`.

    The knots are two points of the curve, at scale · score = ±1.
    """

    @classmethod
    def of(cls, relevant: float, scale: float) -> Self:
        """The map of a loss with these options."""
        return cls(
            "probability", np.array([-1.0, 1.0]) / scale, _sigmoid(np.array([-1.0, 1.0])), relevant
        )

    def _linear(self, scores: Floats) -> Floats:
        return _sigmoid(scores / self.scores[1])

    def to_json(self) -> dict[str, Any]:
        """The map as a dictionary."""
        return {**super().to_json(), "curve": "sigmoid"}

    def add_to(self, graph: "Graph", scores: str) -> str:
        """Append the sigmoid to an ONNX graph."""
        s = graph.cast(scores, np.float64)
        return graph("Sigmoid", graph("Div", s, np.float64(self.scores[1])))


def _sigmoid(z: Floats) -> Floats:
    """1 / (1 + exp(−z)), which never falls from one float32 to the next.

    Near 0, a last bit of exp could be wrong by more than the difference: there the tangent, whose
    error is below 10⁻¹⁹.
    """
    exact = 1.0 / (1.0 + np.exp(-np.clip(z, -700.0, 700.0)))
    return np.where(abs(z) < 2.0**-20, 0.5 + z / 4, exact)


_COUNT = len(STATISTICS)


def finite(scores: Any) -> Floats:
    """Scores in double precision, infinite ones as the largest float32."""
    return np.clip(np.asarray(scores, np.float64), -_LARGEST, _LARGEST)


def numbers(scores: npt.NDArray[np.float32]) -> Floats:
    """The number of each float32 in their order, counted from the smallest; below 2³²."""
    bits = np.ascontiguousarray(scores).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(2**31) - bits, bits).astype(np.float64) + 2.0**31


def statistics(scores: Floats, lists: Lists) -> list[Floats]:
    """`STATISTICS`, each with a value per query."""
    sizes = np.maximum(lists.sizes, 1)
    mean = lists.sum(scores) / sizes
    deviation = np.sqrt(lists.sum((scores - lists.spread(mean)) ** 2) / sizes)
    highest = np.where(lists.sizes > 0, lists.max(scores), 0.0)
    return [np.log(sizes), mean, deviation, highest]


def fit_map(
    scores: Any,
    labels: Any,
    lists: Lists,
    target: str,
    *,
    relevant: float = 1.0,
    weights: Floats | None = None,
    query_features: bool = False,
) -> ScoreMap:
    """Fit a map to scores and labels; unjudged documents, and weights of 0, do not count.

    Scores go into bins of 20 documents or more. Isotonic regression joins bins (Zadrozny and
    Elkan 2002); the map connects the centres of the joined bins (Oron and Flournoy 2017).
    A document with the mean of all is added to each bin, so that no value is exactly 0.
    """
    if target not in TARGETS:
        raise InputError(argument="target", value=target, choices=TARGETS)
    labels, scores = np.asarray(labels, np.float64), np.asarray(scores, np.float32)
    wanted, judged = check_labels(labels, target, relevant, weights)
    weights = np.ones(labels.size) if weights is None else weights
    shifts: tuple[float, ...] = ()
    if query_features:
        shifts = _fitted_shifts(scores, wanted, lists, judged, weights)
    start = ScoreMap(target, np.zeros(2), np.zeros(2), relevant, shifts)
    x = start.shifted(scores, lists)[judged]
    order = np.argsort(x)
    x, y, w = x[order], wanted[judged][order], weights[judged][order]
    first = np.unique(np.searchsorted(x, x[:: max(_SMALLEST, x.size // _MOST)]))
    if first.size > 1 and x.size - first[-1] < _SMALLEST:
        first = first[:-1]
    weight, total, centre = (np.add.reduceat(v, first) for v in (w, w * y, w * x))
    level = np.average(y, weights=w)
    each = weight.sum() / x.size  # the weight of a document
    from sklearn.isotonic import isotonic_regression

    rates = (total + each * level) / (weight + each)
    rising = isotonic_regression(rates, sample_weight=weight + each)
    joined = np.flatnonzero(np.diff(rising, prepend=-1.0) > 0)
    mass = np.add.reduceat(weight, joined)
    knots, values = np.add.reduceat(centre, joined) / mass, rising[joined]
    rises = np.diff(knots, prepend=-np.inf) > 0  # rounding may join two centres
    knots, values = knots[rises], values[rises]
    if knots.size == 1:
        knots, values = np.append(knots, np.nextafter(knots, np.inf)), values.repeat(2)
    return ScoreMap(target, knots, values, float(relevant), shifts)


def check_labels(
    labels: Any, target: str, relevant: float, weights: Any = None
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """What to learn from labels, and which count; InputError if nothing can be learned."""
    labels = np.asarray(labels, np.float64)
    judged = labels >= 0 if weights is None else (labels >= 0) & (weights > 0)
    targets = (labels >= relevant).astype(np.float64) if target == "probability" else labels
    _check(targets[judged], target, relevant)
    return targets, judged


def _check(wanted: Floats, target: str, relevant: float) -> None:
    """Refuse data from which nothing can be learned."""
    if wanted.size < _SMALLEST:
        raise InputError(
            f"Calibration needs {_SMALLEST} judged documents or more, not {wanted.size}."
        )
    if wanted.min() == wanted.max():
        what = f"grade {wanted[0]:g}"
        if target == "probability":
            what = "relevant" if wanted[0] else f"below grade {relevant:g}, which is not relevant"
        raise InputError(
            f"Calibration needs documents of different relevance, but all are {what}. Pass other "
            f"queries, or another value of ",
            Argument("relevant"),
            ".",
        )


def _fitted_shifts(
    scores: Any, wanted: Floats, lists: Lists, judged: Any, weights: Floats
) -> tuple[float, ...]:
    """The coefficients of a query's statistics relative to that of the score, by logistic fit."""
    from sklearn.linear_model import LogisticRegression

    exact = finite(scores)
    own_query = map(lists.spread, statistics(exact, lists))
    columns = np.column_stack([exact, *own_query])[judged]
    mean, scale = columns.mean(axis=0), columns.std(axis=0)
    scale[scale <= 1e-9 * (1 + np.abs(mean))] = np.inf  # a constant gets the coefficient 0
    z = (columns - mean) / scale
    share, own = wanted[judged] / wanted[judged].max(), weights[judged]
    sides = np.repeat([1, 0], share.size)  # a share is a 1 and a 0 with weights
    model = LogisticRegression(C=1e3, max_iter=1000).fit(
        np.tile(z, (2, 1)), sides, np.concatenate([own * share, own * (1 - share)])
    )
    slopes = model.coef_[0] / scale
    if not slopes[0] > 0:
        raise InputError(
            "Within queries, higher scores do not mean higher labels in this data, so that "
            "statistics of queries cannot be used: leave out ",
            Argument("query_features"),
            ".",
        )
    return tuple((slopes[1:] / slopes[0]).tolist())


def _onnx_shift(graph: "Graph", s: str, shifts: tuple[float, ...]) -> str:
    """The shift of a query: all documents of a call are one query."""
    size = graph.cast(graph("Size", s), np.float64)
    mean = graph("ReduceMean", s, axes=[0])
    centred = graph("Sub", s, mean)
    deviation = graph("Sqrt", graph("ReduceMean", graph("Mul", centred, centred), axes=[0]))
    highest = graph("ReduceMax", s, axes=[0])
    terms = [graph("Log", size), mean, deviation, highest]
    products = [graph("Mul", t, np.float64(c)) for t, c in zip(terms, shifts, strict=True)]
    return graph("Sum", *products)


def maps_to_json(maps: Mapping[str, ScoreMap]) -> dict[str, Any]:
    """The maps of a model by target."""
    return {target: own.to_json() for target, own in maps.items()}


def maps_from_json(content: Any) -> dict[str, ScoreMap]:
    """Read what `maps_to_json` wrote."""
    if not isinstance(content, dict):
        raise InputError("A calibration is damaged: it must be an object.")
    maps = {str(target): ScoreMap.from_json(own) for target, own in content.items()}
    if any(target != own.target for target, own in maps.items()):
        raise InputError("A calibration is damaged: a map has the name of another target.")
    return maps
