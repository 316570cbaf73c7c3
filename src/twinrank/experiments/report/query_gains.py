"""Gains per query: the differences of every method from every baseline, sorted, as SVG paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twinrank.evaluation.significance import differences, p_value
from twinrank.experiments.report.report_content import ReportContent
from twinrank.support.arrays import Floats

BINS = 80  # more queries than this are drawn as means of neighbours in sorted order
WIDTH, HEIGHT = 160, 72  # of a plot, in SVG units


@dataclass(frozen=True)
class QueryGains:
    """The gains of a method over a baseline."""

    method: str
    wins: int
    equal: int
    losses: int
    mean: float
    p: float
    gain_path: str
    """The SVG path of the gains, closed along the zero line."""
    loss_path: str

    @property
    def queries(self) -> int:
        """The number of queries that both methods have a value for."""
        return self.wins + self.equal + self.losses


@dataclass(frozen=True)
class GainPlots:
    """The gains of all methods over each baseline, on one scale."""

    baselines: Mapping[str, Sequence[QueryGains]]
    first: str
    """The baseline that is selected first."""
    limit: float
    """The largest difference on the y-axis."""


def gain_plots(content: ReportContent) -> GainPlots | None:
    """The gains of all pairs of methods by the main measure; None for fewer than two methods."""
    measure, methods = content.main_measure, list(content.values)
    if len(methods) < 2 or not measure:
        return None
    gains, p_values = {}, {}
    for i, a in enumerate(methods):
        for b in methods[:i]:
            difference = differences(content.values[a][measure], content.values[b][measure])
            if difference.size:
                gains[a, b], gains[b, a] = difference, -difference
                p_values[a, b] = p_values[b, a] = p_value(difference, np.zeros_like(difference))
    if not gains:
        return None
    bars = {pair: binned(values) for pair, values in gains.items()}
    limit = _rounded_up(max(float(np.abs(values).max()) for values in bars.values()))
    baselines = {
        baseline: [
            _query_gains(method, gains[method, baseline], bars[method, baseline], limit, p)
            for method in methods
            if (p := p_values.get((method, baseline))) is not None
        ]
        for baseline in methods
    }
    plots = {baseline: by_method for baseline, by_method in baselines.items() if by_method}
    first = content.baseline if content.baseline in plots else next(iter(plots))
    return GainPlots(plots, first, limit)


def binned(gains: Floats) -> Floats:
    """The gains in descending order; many gains are reduced to means of BINS neighbours.

    >>> binned(np.array([-0.5, 0.25, 0.0]))
    array([ 0.25,  0.  , -0.5 ])
    """
    descending = np.sort(gains)[::-1]
    if descending.size <= BINS:
        return descending
    edges = np.linspace(0, descending.size, BINS + 1).astype(np.int64)
    return np.add.reduceat(descending, edges[:-1]) / np.diff(edges)


def _query_gains(method: str, gains: Floats, bars: Floats, limit: float, p: float) -> QueryGains:
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    return QueryGains(
        method,
        wins,
        gains.size - wins - losses,
        losses,
        float(gains.mean()),
        p,
        _area(np.maximum(bars, 0), limit),
        _area(np.minimum(bars, 0), limit),
    )


def _area(bars: Floats, limit: float) -> str:
    """Adjacent bars as one SVG path; empty if all are 0."""
    nonzero = np.flatnonzero(bars)
    if not nonzero.size:
        return ""
    width = WIDTH / bars.size
    path = f"M{nonzero[0] * width:.1f} {HEIGHT / 2:g}"
    for i in range(nonzero[0], nonzero[-1] + 1):
        path += f"V{HEIGHT / 2 * (1 - bars[i] / limit):.1f}H{(i + 1) * width:.1f}"
    return f"{path}V{HEIGHT / 2:g}Z"


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
