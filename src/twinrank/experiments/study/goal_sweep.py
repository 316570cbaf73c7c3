"""Two goals by the weight of the second: a study of weighted sums, and its Pareto front."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.core.measures import measure
from twinrank.data.dataset import Dataset
from twinrank.data.label_columns import label_array
from twinrank.evaluation.comparison import Comparison
from twinrank.evaluation.evaluation_values import mean_of
from twinrank.evaluation.significance import confidence_interval, differences
from twinrank.experiments.study.method_comparison import comparison_study
from twinrank.experiments.study.methods import method
from twinrank.experiments.study.study import Study
from twinrank.experiments.study.study_source import Source
from twinrank.support.arrays import Floats
from twinrank.support.errors import Argument, InputError
from twinrank.support.files import write_json
from twinrank.support.plots import COLOURS, drawing
from twinrank.support.tables import Cell, ResultTable, csv_text, write_tables

WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
QUICK_WEIGHTS = (0.0, 0.5, 1.0)
MODELS = ("Boosted",)
_CHI_SQUARED = 5.991  # 95 % of a normal distribution in two dimensions
_WIDTH = 50  # of the names of goals, in characters


@dataclass(frozen=True)
class Sweep:
    """Two goals, the weights of the second one, and the models that learn each weighted sum."""

    goals: tuple[str, str]
    weights: tuple[float, ...] = WEIGHTS
    models: tuple[str, ...] = MODELS

    @classmethod
    def of(
        cls,
        goals: Sequence[str],
        weights: Sequence[float] | None = None,
        models: Sequence[str] | None = None,
        quick: bool = False,
    ) -> "Sweep":
        """Check the goals and the weights."""
        names = [str(measure(goal)) for goal in goals]
        if len(names) != 2 or len(set(names)) < 2:
            raise InputError(
                Argument("goals"),
                f" takes two different measures, such as 'nDCG@10; nDCG(label=order)@10', not "
                f"{'; '.join(names)!r}.",
            )
        chosen = (QUICK_WEIGHTS if quick else WEIGHTS) if weights is None else tuple(weights)
        if not all(0 <= weight <= 1 for weight in chosen):
            raise InputError(
                Argument("goal_weights"), f" must lie from 0 to 1, not {list(chosen)}."
            )
        if len(set(chosen)) < 2 or len(set(chosen)) < len(chosen):
            raise InputError(
                Argument("goal_weights"),
                f" must be two or more different numbers, not {list(chosen)}.",
            )
        own = tuple(MODELS if models is None else models)
        return cls((names[0], names[1]), tuple(sorted(chosen)), own)

    def check(self, data: Dataset) -> None:
        """Raise InputError if the data lacks a column of labels."""
        for goal in self.goals:
            try:
                label_array(measure(goal), data)
            except InputError as error:
                raise InputError(Argument("goals"), ": ", *error.parts) from None

    def objective(self, weight: float) -> str:
        """The weighted sum of the goals, or one of them."""
        first, second = self.goals
        if weight in (0, 1):
            return second if weight else first
        return str(measure(f"{1 - weight:.6g} * {first} + {weight:.6g} * {second}"))

    @property
    def methods(self) -> dict[str, tuple[str, float]]:
        """The model and the weight of each method of the study."""
        return {
            str(method(f"{self.objective(weight)}-type3 ({model})")): (model, weight)
            for model in self.models
            for weight in self.weights
        }

    def study(self, source: Source, measures: Sequence[str] = (), **choices: Any) -> Study:
        """The study of all weights; each sum selects its own rounds."""
        own = {
            name: {"validation_measure": self.objective(weight)}
            for name, (_, weight) in self.methods.items()
        }
        compared = tuple(dict.fromkeys([*self.goals, *measures]))
        return comparison_study(source, list(own), compared, own=own, **choices)


@dataclass(frozen=True)
class Point:
    """What a weight yields on the test queries."""

    method: str
    model: str
    weight: float
    means: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    covariance: tuple[float, float, float]
    """Of the two means: variance, covariance, variance."""
    dominated_by: str | None = None
    """A method that is at least as good in both goals; None on the Pareto front."""
    significantly: bool = False
    """True if it is significantly better in both."""


def front(sweep: Sweep, by_method: Mapping[str, Mapping[str, Floats]], level: float) -> list[Point]:
    """A point for each method, from its values of each query, and which are on the front."""
    values = {
        name: [np.asarray(by_method[name][goal]) for goal in sweep.goals]
        for name in sweep.methods
        if name in by_method
    }
    points = []
    for name, own in values.items():
        model, weight = sweep.methods[name]
        means = tuple(mean_of(each) for each in own)
        intervals = tuple(confidence_interval(each) for each in own)
        better = [n for n in values if n != name and _dominates(values[n], own)]
        clearly = [n for n in better if _significantly(values[n], own, level)]
        best = max(clearly or better, key=lambda n: sum(map(mean_of, values[n])), default=None)
        fields = (means, intervals, _covariance(*own), best, bool(clearly))
        points.append(Point(name, model, weight, *fields))  # type: ignore[arg-type]
    return points


def _dominates(a: Sequence[Floats], b: Sequence[Floats]) -> bool:
    gains = [mean_of(own) - mean_of(other) for own, other in zip(a, b, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


def _significantly(a: Sequence[Floats], b: Sequence[Floats], level: float) -> bool:
    """True if both gains are positive, each by a paired test at this level."""
    from scipy.stats import ttest_1samp

    for own, other in zip(a, b, strict=True):
        gain = differences(own, other)
        if gain.size < 2 or not gain.any() or ttest_1samp(gain, 0).pvalue >= level:
            return False
    return True


def _covariance(a: Floats, b: Floats) -> tuple[float, float, float]:
    """The covariance of two means; queries without a value for one goal count for the other."""
    known = [~np.isnan(a), ~np.isnan(b)]
    both, sizes = known[0] & known[1], [max(int(own.sum()), 1) for own in known]
    variances = [float(own[k].var()) / n for own, k, n in zip((a, b), known, sizes, strict=True)]
    common = float(np.cov(a[both], b[both], ddof=0)[0, 1]) if both.any() else 0.0
    return variances[0], common * int(both.sum()) / (sizes[0] * sizes[1]), variances[1]


def front_table(sweep: Sweep, points: Sequence[Point], level: float) -> ResultTable:
    """The points with their intervals."""
    first, second = sweep.goals
    several = len(sweep.models) > 1
    number = {point.method: _title(point, several) for point in points}
    rows = []
    for point in points:
        on_front = point.dominated_by is None
        cells = [
            Cell(f"{mean:.4f} [{low:.4f}, {high:.4f}]", best=on_front)
            for mean, (low, high) in zip(point.means, point.intervals, strict=True)
        ]
        by = "" if on_front else number[point.dominated_by or ""]
        mark = "*" if point.significantly else ""
        rows.append([Cell(number[point.method]), *cells, Cell(by, mark=mark)])
    notes = ["Means and 95 % bootstrap intervals over the test queries."]
    if any(point.significantly for point in points):
        notes.append(f"*: significantly better in both goals (paired t-tests, p < {level:g}).")
    return ResultTable(
        f"{first} and {second} by the weight of {second}",
        ["weight", first, second, "dominated by"],
        rows,
        notes,
        "on the Pareto front, no other point is at least as good in both goals",
    )


def _title(point: Point, several: bool) -> str:
    return f"{point.model}, {point.weight:g}" if several else f"{point.weight:g}"


def draw_front(path: Path, sweep: Sweep, points: Sequence[Point]) -> None:
    """Draw the points with their 95 % confidence regions, and the Pareto front."""
    with drawing(path, 1, 1, (6, 4.5)) as panels:
        _draw(panels[0, 0], sweep, points)


def front_figure(sweep: Sweep, points: Sequence[Point]) -> tuple[str, str, str]:
    """The plot for a report: title, SVG, description."""
    from twinrank.experiments.report.svg import svg_axes

    with svg_axes((6, 4.5)) as ((axes,), result):
        _draw(axes, sweep, points)
    best = [f"{point.model}, weight {point.weight:g}" for point in points if not point.dominated_by]
    description = f"The mean of both goals for each weight. On the Pareto front: {'; '.join(best)}."
    return "Pareto front", result.svg, description


def _draw(axes: Any, sweep: Sweep, points: Sequence[Point]) -> None:
    for number, model in enumerate(sweep.models):
        own = [point for point in points if point.model == model]
        colour = COLOURS[number % len(COLOURS)]
        for point in own:
            axes.fill(*_region(point), color=colour, alpha=0.1, linewidth=0)
            axes.annotate(f"{point.weight:g}", point.means, (4, 4), textcoords="offset points")
        for kept, fill in ((True, colour), (False, "none")):
            shown = [point.means for point in own if (point.dominated_by is None) == kept]
            if shown:
                style = {"markerfacecolor": fill, "linestyle": "none", "marker": "o"}
                axes.plot(*zip(*shown, strict=True), color=colour, **style)
        axes.plot([], [], color=colour, marker="o", linestyle="none", label=model)
    ends = sorted(point.means for point in points if point.dominated_by is None)
    axes.plot(
        *zip(*ends, strict=True), color="#666666", linewidth=1, zorder=1, label="Pareto front"
    )
    first, second = (textwrap.fill(goal, _WIDTH) for goal in sweep.goals)
    axes.set(xlabel=first, ylabel=second)
    axes.set_title("Weights of the second goal, with 95 % regions")
    axes.legend()


def _region(point: Point) -> tuple[Floats, Floats]:
    """The ellipse in which both means lie with 95 % confidence."""
    a, b, c = point.covariance
    values, vectors = np.linalg.eigh([[a, b], [b, c]])
    angles = np.linspace(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    radii = np.sqrt(_CHI_SQUARED * np.maximum(values, 0))
    x, y = vectors @ (radii[:, None] * circle)
    return point.means[0] + x, point.means[1] + y


def write_front(out: Path, sweep: Sweep, comparison: Comparison) -> tuple[ResultTable, list[Point]]:
    """Write the plot and the table of the Pareto front, and the points as CSV and JSON."""
    points = front(sweep, comparison.values, comparison.level)
    table = front_table(sweep, points, comparison.level)
    head = ["model", "weight", "goal", "mean", "low", "high", "dominated by"]
    rows: list[list[Any]] = [
        [point.model, point.weight, goal, mean, *interval, point.dominated_by]
        for point in points
        for goal, mean, interval in zip(sweep.goals, point.means, point.intervals, strict=True)
    ]
    write_tables(out, "front", [table], csv_text([head, *rows]))
    write_json(out / "front.json", [asdict(point) for point in points])
    for suffix in (".png", ".svg"):
        draw_front(out / f"front{suffix}", sweep, points)
    return table, points
