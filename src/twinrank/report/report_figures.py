"""The pictures of a report: training curves, measures by cutoff, and by kind of query.

Each is small enough for a phone; a wide screen shows several side by side. Names of methods and
measures stand around a picture, as text of the page, never in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.display.plots import COLOURS
from twinrank.report.content import Record
from twinrank.report.svg import SERIES, inlined, sketch

Floats = npt.NDArray[np.float64]

STYLES: tuple[Any, ...] = ("solid", (0, (4, 2)), (0, (1, 1.2)))
_WIDTH = 3.6  # inches: text of 9 points is then of a readable size on a phone
_POINTS = 90  # of a line that are drawn; the eye sees no more
_UNITS = 12  # trainings of a method that are drawn one by one
_NOT_SETS = ("epoch", "round", "loss", "learning_rate", "seconds")
SETS = ("validation", "train", "test")
_CORNER = {"ha": "right", "va": "top", "color": "#666666"}


@dataclass(frozen=True)
class Lines:
    """Values of several methods at the same places, to be drawn and told."""

    places: Sequence[str]
    values: Mapping[str, Sequence[float]]  # by method
    about: str
    """What the places are."""


def sets_of(histories: Mapping[str, Sequence[Sequence[Record]]]) -> list[str]:
    """The evaluation sets in any record, the usual ones first."""
    found = dict.fromkeys(
        name
        for units in histories.values()
        for history in units
        for record in history
        for name, value in record.items()
        if name not in _NOT_SETS and _number(value)
    )
    return sorted(found, key=lambda name: SETS.index(name) if name in SETS else len(SETS))


def limits(histories: Mapping[str, Sequence[Sequence[Record]]]) -> tuple[float, float]:
    """Lowest and highest value of any method, so that curves can be compared.

    The first tenth of a training may lie far below all that matters: it may leave the picture.
    """
    sets, found = sets_of(histories), []
    for units in histories.values():
        for history in units:
            late = history[len(history) // 10 :]
            found += [record[name] for record in late for name in sets if _number(record.get(name))]
    if not found:
        return 0.0, 1.0
    low, high = min(found), max(found)
    room = 0.06 * (high - low) or 0.05
    return low - room, high + room


def draw_curves(
    units: Sequence[Sequence[Record]],
    sets: Sequence[str],
    bounds: tuple[float, float],
    prefix: str,
) -> str:
    """One method's training: the measure on each set and, where there is one, the loss."""
    measured = [name for name in sets if any(_line(unit, name)[0].size for unit in units)]
    lossy = any(_line(unit, "loss")[0].size for unit in units)
    rows = bool(measured) + lossy
    if not rows:
        return ""
    size = (_WIDTH, 0.5 + 1.35 * rows)
    with sketch(size, rows) as (axes, made):
        if measured:
            for name in measured:
                colour = COLOURS[sets.index(name) % len(COLOURS)]
                _draw_units(axes[0], [_line(unit, name) for unit in units], colour)
            axes[0].set(ylim=bounds)
        if lossy:
            _draw_units(axes[-1], [_line(unit, "loss") for unit in units], "#666666")
            axes[-1].text(0.99, 0.98, "loss", **_CORNER, transform=axes[-1].transAxes)
        rounds = any("round" in record for unit in units for record in unit[:1])
        axes[-1].set_xlabel("round" if rounds else "epoch")
        for panel in axes:
            _integers(panel)
            panel.locator_params(axis="y", nbins=4)
            panel.grid(visible=False, axis="x")
        if rows == 2:
            axes[0].sharex(axes[1])
            axes[0].tick_params(labelbottom=False)
    return inlined(made.svg, prefix)


def draw_lines(lines: Lines, methods: Sequence[str], prefix: str, cutoffs: bool = False) -> str:
    """A line per method over places side by side, or over cutoffs on a logarithmic scale."""
    places = [float(place) for place in lines.places] if cutoffs else range(len(lines.places))
    with sketch((_WIDTH, 2.6)) as ((axes,), made):
        for name, values in lines.values.items():
            number = methods.index(name)
            (drawn,) = axes.plot(
                places, values, **look_of(number), marker="o", markersize=3, linewidth=1.4
            )
            drawn.set_gid(f"{SERIES}{number}")
        if cutoffs:
            axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(places, list(lines.places))
        axes.set_xlabel(lines.about)
        axes.locator_params(axis="y", nbins=5)
        axes.grid(visible=False, axis="x")
    return inlined(made.svg, prefix, dict(enumerate(methods)))


def look_of(number: int) -> dict[str, Any]:
    """Colour and dashes of a method, by its place among all: eighteen are told apart."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[number // len(COLOURS) % len(STYLES)],
    }


def _draw_units(axes: Any, lines: Sequence[tuple[Floats, Floats]], colour: str) -> None:
    """Every training thin, and thick their mean, as far as all of them go."""
    lines = [(x, y) for x, y in lines if x.size]
    if not lines:
        return
    marker = "o" if max(x.size for x, _ in lines) == 1 else None
    if len(lines) > 1:
        for x, y in lines[:_UNITS]:
            axes.plot(*_thinned(x, y), color=colour, linewidth=0.6, alpha=0.45, marker=marker)
    common = lines[0][0]
    for x, _ in lines[1:]:
        common = np.intersect1d(common, x)
    if common.size:
        mean = np.mean([y[np.isin(x, common)] for x, y in lines], axis=0)
        axes.plot(*_thinned(common, mean), color=colour, linewidth=1.7, marker=marker, markersize=4)


def _line(history: Sequence[Record], name: str) -> tuple[Floats, Floats]:
    """Epochs or rounds, each once, and what was measured in them."""
    found = {
        float(record.get("epoch", record.get("round", i + 1))): float(record[name])
        for i, record in enumerate(history)
        if _number(record.get(name))
    }
    return np.array(sorted(found)), np.array([found[x] for x in sorted(found)])


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    if x.size <= _POINTS:
        return x, y
    kept = np.unique(np.linspace(0, x.size - 1, _POINTS).astype(int))
    return x[kept], y[kept]


def _integers(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))


def _number(value: object) -> bool:
    """Whether there is something to draw."""
    return isinstance(value, int | float | np.number) and bool(np.isfinite(value))
