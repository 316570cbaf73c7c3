"""Gains per query: every method against every other, from the greatest gain to the worst loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.significance import differences, p_value
from twinrank.report.content import ReportContent

Floats = npt.NDArray[np.float64]

BINS = 80  # more queries than that are drawn as means of neighbours in the order of their gains
WIDTH, HEIGHT = 160, 72  # of a picture, in its own units


@dataclass(frozen=True)
class Gain:
    """One method against a baseline."""

    method: str
    number: int
    wins: int
    equal: int
    losses: int
    mean: float
    p: float
    won: str
    """The path of the gains in a picture of WIDTH × HEIGHT, closed along the zero line."""
    lost: str
    at_mean: float
    """Where the mean lies, from the top."""

    @property
    def queries(self) -> int:
        """How many both have a value for."""
        return self.wins + self.equal + self.losses


@dataclass(frozen=True)
class Gains:
    """All methods against each baseline, on one scale."""

    baselines: Mapping[str, Sequence[Gain]]
    first: str
    """The baseline that is shown first."""
    reach: float
    """The difference at the top of every picture."""


def gains_of(content: ReportContent) -> Gains | None:
    """Every method against every other by the main measure; None with fewer than two."""
    measure, methods = content.main_measure, list(content.values)
    if len(methods) < 2 or not measure:
        return None
    pairs, tested = {}, {}
    for i, a in enumerate(methods):
        for b in methods[:i]:
            found = differences(content.values[a][measure], content.values[b][measure])
            if found.size:
                pairs[a, b], pairs[b, a] = found, -found
                tested[a, b] = tested[b, a] = p_value(found, np.zeros_like(found))
    if not pairs:
        return None
    steps = {pair: binned(found) for pair, found in pairs.items()}
    reach = _rounded_up(max(float(np.abs(found).max()) for found in steps.values()))
    baselines = {
        baseline: [
            _gain(method, content, pairs[method, baseline], steps[method, baseline], reach, p)
            for method in methods
            if (p := tested.get((method, baseline))) is not None
        ]
        for baseline in methods
    }
    shown = {baseline: gains for baseline, gains in baselines.items() if gains}
    first = content.baseline if content.baseline in shown else next(iter(shown))
    return Gains(shown, first, reach)


def binned(gains: Floats) -> Floats:
    """The gains from best to worst; many as means of BINS neighbours, sharing the queries evenly.

    >>> binned(np.array([-0.5, 0.25, 0.0]))
    array([ 0.25,  0.  , -0.5 ])
    """
    falling = np.sort(gains)[::-1]
    if falling.size <= BINS:
        return falling
    edges = np.linspace(0, falling.size, BINS + 1).astype(np.int64)
    return np.add.reduceat(falling, edges[:-1]) / np.diff(edges)


def _gain(
    method: str, content: ReportContent, gains: Floats, steps: Floats, reach: float, p: float
) -> Gain:
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    mean = float(gains.mean())
    return Gain(
        method,
        content.methods.index(method),
        wins,
        gains.size - wins - losses,
        losses,
        mean,
        p,
        _area(np.maximum(steps, 0), reach),
        _area(np.minimum(steps, 0), reach),
        _height(mean, reach),
    )


def _area(steps: Floats, reach: float) -> str:
    """Bars side by side as one path; empty if all are 0."""
    shown = np.flatnonzero(steps)
    if not shown.size:
        return ""
    width = WIDTH / steps.size
    path = f"M{shown[0] * width:.1f} {HEIGHT / 2:g}"
    for i in range(shown[0], shown[-1] + 1):
        path += f"V{_height(steps[i], reach):.1f}H{(i + 1) * width:.1f}"
    return f"{path}V{HEIGHT / 2:g}Z"


def _height(value: float, reach: float) -> float:
    return HEIGHT / 2 * (1 - value / reach)


def _rounded_up(value: float) -> float:
    """The next round number, at least the value.

    >>> _rounded_up(0.31), _rounded_up(0.0)
    (0.4, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    least = value / power * (1 - 1e-9)
    return float(round(next(s for s in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if s >= least) * power, 12))
