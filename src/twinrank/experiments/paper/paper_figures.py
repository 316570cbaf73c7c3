"""Figures 1 and 2 of the paper: the twin-sigmoid, and the course of training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.experiments.paper.paper_tables import spread
from twinrank.experiments.paper.published import TREES_METHOD, VALIDATION
from twinrank.support.arrays import Floats
from twinrank.support.files import replacing
from twinrank.support.plots import COLOURS, FORMATS, drawing, use_whole_numbers
from twinrank.support.tables import Cell, ResultTable, csv_text

_OUTPUT, _SECOND, _THIRD, _FOURTH = COLOURS[:4]
_REACH = 4.0
_GRADIENTS: Sequence[tuple[str, tuple[float, float], str, int, Any]] = (
    ("type1; type2, u = 1", (-3.9, 0.32), "type1", 1, {"color": _THIRD}),
    ("type2, u = −1", (0.9, -0.45), "type2", -1, {"color": _THIRD, "linestyle": "--"}),
    ("type3, u = 1", (-0.7, 1.5), "type3", 1, {"color": _FOURTH}),
    ("type3, u = −1", (1.0, -1.4), "type3", -1, {"color": _FOURTH, "linestyle": "--"}),
)
"""Label and its position, strategy, u, and line style."""
_METRICS = ("type1", "type2", "type3")


def draw_figure_1(stem: Path) -> list[Path]:
    """Draw the sigmoid, its derivative, and the twin-sigmoid with its three gradients."""
    z = np.linspace(-_REACH, _REACH, 1601)
    with _figure(stem, 1, 3, (10.5, 3.2)) as panels:
        plain, slope, twin = panels[0]
        for alpha, colour in ((1, _OUTPUT), (5, _SECOND), (25, _FOURTH)):
            sigmoid = 1 / (1 + np.exp(-alpha * z))
            plain.plot(z, sigmoid, color=colour, label=f"α = {alpha}")
            slope.plot(z, alpha * sigmoid * (1 - sigmoid), color=colour, label=f"α = {alpha}")
        plain.set(title="(a) Sigmoid σ(z)", xlabel="z")
        slope.set(title="(b) Its derivative ∂σ/∂z", xlabel="z")
        twin.plot(z, (np.sign(z) + 1) / 2, color=_OUTPUT)
        twin.text(1.2, 1.06, "output σ⁺(z)", color=_OUTPUT)
        for label, position, strategy, sign, style in _GRADIENTS:
            twin.plot(z, gradient(z, strategy, sign), **style)
            twin.text(*position, label, color=style["color"])
        twin.set(title="(c) Twin-sigmoid and gradients", xlabel="z (backward: α = 1)")
        plain.legend(loc="upper left")
        slope.legend(loc="upper left")
        for panel in panels.flat:
            panel.set_xlim(-_REACH, _REACH)
    return [stem.with_suffix(kind) for kind in FORMATS]


@contextmanager
def _figure(stem: Path, rows: int, columns: int, size: tuple[float, float]) -> Iterator[Any]:
    """Axes of a figure that is saved in every format, but laid out once, which is slow."""
    with drawing(stem.with_suffix(".svg"), rows, columns, size) as axes:
        yield axes
        figure = axes.flat[0].figure
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for kind, undated in ((".png", {}), (".pdf", {"CreationDate": None})):
            with replacing(stem.with_suffix(kind)) as partial:
                figure.savefig(partial, format=kind[1:], metadata=undated)


def gradient(z: Floats, strategy: Any, sign: int) -> Floats:
    """∂σ⁺/∂z of a strategy, computed by the library's twin-sigmoid."""
    import torch

    from twinrank.core.ranks.twin import twin_sigmoid

    inputs = torch.tensor(z, requires_grad=True)
    twin_sigmoid(inputs, strategy=strategy, sign=float(sign)).sum().backward()  # type: ignore[no-untyped-call]
    assert inputs.grad is not None
    return np.asarray(inputs.grad.numpy(), np.float64)


@dataclass(frozen=True, eq=False)
class Panel:
    """A training: the objective on the training data and nDCG@5 on other data, by epoch or tree.

    `others` are the trainings on other folds and with other seeds, which the figure does not show.
    """

    method: str
    system: str
    counted: str
    """ "epochs" or "trees"."""
    optimised: str
    """The objective: "loss" is minimised, any other maximised."""
    objective: tuple[Floats, Floats]
    """Epochs or trees, and the values there."""
    measured: Mapping[str, tuple[Floats, Floats]]
    """The same for nDCG@5 on the validation and test data."""
    others: Sequence["Panel"] = ()

    @classmethod
    def of(cls, method: str, system: str, histories: Sequence[Any]) -> "Panel":
        """The panel of histories of units, of which the first is shown."""
        first, *others = (cls._of(method, system, history) for history in histories)
        return replace(first, others=others)

    @classmethod
    def _of(cls, method: str, system: str, history: Sequence[Mapping[str, Any]]) -> "Panel":
        """The course of a training: loss by epoch, or nDCG@5 on the training data by tree."""
        if not history:
            raise ValueError(f"{system} has no history")
        measured = {
            name: _series(history, name)
            for name in ("validation", "test")
            if any(record.get(name) is not None for record in history)
        }
        if method == TREES_METHOD:
            objective, optimised = _series(history, "train"), f"{VALIDATION} on train"
        else:
            epochs, loss = _series(history, "loss")
            direct = method == "ApproxNDCG" or method.endswith(_METRICS)
            name = "nDCG, smoothed" if method == "ApproxNDCG" else method.rpartition("-")[0]
            objective = (epochs, -loss if direct else loss)
            optimised = f"{name} on train" if direct else "loss"
        counted = "trees" if method == TREES_METHOD else "epochs"
        return cls(method, system, counted, optimised, objective, measured)

    @property
    def correlations(self) -> dict[str, float]:
        """Spearman's ρ of the objective (minus the loss) with nDCG@5, if both are known."""
        return {name: self._correlation(*series) for name, series in self.measured.items()}

    @property
    def roughness(self) -> dict[str, float]:
        """The roughness of the curves of nDCG@5."""
        return {name: roughness(values) for name, (_, values) in self.measured.items()}

    def over_trainings(self, what: str) -> dict[str, Floats]:
        """`correlations` or `roughness` of all trainings, by evaluation set, without NaN."""
        found = [getattr(panel, what) for panel in (self, *self.others)]
        values = {name: np.array([each[name] for each in found]) for name in self.measured}
        return {name: own[~np.isnan(own)] for name, own in values.items()}

    def _correlation(self, iterations: Floats, values: Floats) -> float:
        from scipy.stats import spearmanr

        common, first, second = np.intersect1d(self.objective[0], iterations, return_indices=True)
        objective = self.objective[1][first] * (-1 if self.optimised == "loss" else 1)
        if common.size < 3 or np.ptp(objective) == 0 or np.ptp(values[second]) == 0:
            return float("nan")
        return float(spearmanr(objective, values[second]).statistic)


def roughness(values: Floats) -> float:
    """The mean distance of a point of a curve from the middle of its two neighbours.

    It is 0 for a straight line, and large for a zigzag. NaN for fewer than three points.

    >>> roughness(np.array([0.1, 0.2, 0.3])), roughness(np.array([0.2, 0.4, 0.2, 0.4]))
    (0.0, 0.2)
    """
    if values.size < 3:
        return float("nan")
    return float(np.abs(values[1:-1] - (values[:-2] + values[2:]) / 2).mean().round(12))


def _series(history: Sequence[Mapping[str, Any]], name: str) -> tuple[Floats, Floats]:
    known = [(r["iteration"], r[name]) for r in history if r.get(name) is not None]
    iterations, values = np.array(known, np.float64).reshape(-1, 2).T
    return iterations, values


def draw_figure_2(stem: Path, panels: Sequence[Panel]) -> list[Path]:
    """Draw a panel per training: the objective (left), nDCG@5 (right) and their correlation."""
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    with _figure(stem, rows, columns, (3.4 * columns, 2.9 * rows + 0.5)) as grid:
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        lines: list[Any] = []
        for letter, axes, panel in zip("abcdefghijkl", grid.flat, panels, strict=False):
            lines = _panel(axes, panel, letter)
        figure = grid.flat[0].figure
        names = ["on the training data: loss or metric (left)"]
        names += [f"{VALIDATION} on {name} data (right)" for name in panels[-1].measured]
        figure.legend(lines, names, loc="outside lower center", ncols=3)
    return [stem.with_suffix(kind) for kind in FORMATS]


def _panel(axes: Any, panel: Panel, letter: str) -> list[Any]:
    """Draw a training. Return its lines, for the shared legend."""
    style = {"markersize": 2.5, "linewidth": 1.3}
    marker = "o" if panel.objective[0].size < 30 else None
    lines: list[Any] = axes.plot(*panel.objective, color=COLOURS[0], marker=marker, **style)
    axes.set_title(f"({letter}) {panel.system}", fontsize=9, pad=15)
    axes.set_xlabel(panel.counted)
    axes.set_ylabel(panel.optimised, color=COLOURS[0])
    axes.tick_params(axis="y", labelcolor=COLOURS[0])
    axes.locator_params(axis="both", nbins=5)
    use_whole_numbers(axes.xaxis)
    right = axes.twinx()
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    right.locator_params(axis="y", nbins=5)
    for (iterations, values), colour in zip(
        panel.measured.values(), (COLOURS[1], COLOURS[2]), strict=False
    ):
        marker = "o" if iterations.size < 30 else None
        lines += right.plot(iterations, values, color=colour, marker=marker, **style)
    shown = ", ".join(f"{_shown(rho)} ({name})" for name, rho in panel.correlations.items())
    small: Any = {"fontsize": 7.5, "va": "bottom", "color": "#444444"}
    axes.text(0, 1.02, f"Spearman's ρ {shown}", transform=axes.transAxes, **small)
    return lines


def correlation_table(panels: Sequence[Panel]) -> ResultTable:
    """The rank correlation of the objective with nDCG@5, and the roughness of its curves."""
    sets = [name for name in ("validation", "test") if any(name in p.measured for p in panels)]
    rows = []
    for panel in panels:
        found = {what: panel.over_trainings(what) for what in ("correlations", "roughness")}
        cells = [_average(found["correlations"].get(name), 2) for name in sets]
        cells += [_average(found["roughness"].get(name), 4) for name in sets]
        rows.append([Cell(panel.system), Cell(panel.optimised), *map(Cell, cells)])
    trainings = max(1 + len(panel.others) for panel in panels)
    mean = f"Means ± standard deviations over {trainings} trainings (folds and seeds). "
    return ResultTable(
        "Figure 2: does nDCG@5 follow the objective, and how smoothly?",
        ["", "objective", *(f"ρ, {n}" for n in sets), *(f"roughness, {n}" for n in sets)],
        rows,
        [
            f"{mean if trainings > 1 else ''}ρ: Spearman's rank correlation of the objective with "
            "nDCG@5, by epoch or tree. The sign of losses is changed, so that 1 is full agreement "
            "for every method.",
            "Roughness: the mean distance of a point of the curve from the middle of its two "
            f"neighbours, in nDCG@5. Nets have a point {_points(panels)}, LambdaMART(L) one for "
            "every tree.",
        ],
    )


def _points(panels: Sequence[Panel]) -> str:
    """When nets were evaluated."""
    nets = [panel for panel in panels if panel.method != TREES_METHOD]
    gaps = {int(gap) for p in nets for epochs, _ in p.measured.values() for gap in np.diff(epochs)}
    known = {frozenset({1}): "every epoch", frozenset({2}): "every second epoch"}
    return known.get(frozenset(gaps), "where they were evaluated")


def correlation_csv(panels: Sequence[Panel]) -> str:
    """The same with all digits, for each training."""
    rows = (
        [panel.system, panel.optimised, name, number, rho, each.roughness[name]]
        for panel in panels
        for number, each in enumerate((panel, *panel.others), 1)
        for name, rho in each.correlations.items()
    )
    head = ["method", "objective", "data", "training", "spearman", "roughness"]
    return csv_text([head, *rows])


def _average(values: Floats | None, digits: int) -> str:
    """The mean of some trainings and its spread."""
    if values is None or not values.size:
        return "–"
    mean = f"{values.mean():.{digits}f}".replace("-", "−")
    deviation = spread(values)
    return mean if np.isnan(deviation) else f"{mean} ± {deviation:.{digits}f}"


def _shown(rho: float) -> str:
    return "–" if np.isnan(rho) else f"{rho:.2f}".replace("-", "−")
