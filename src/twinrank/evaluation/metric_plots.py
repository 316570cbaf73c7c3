"""Pictures of an evaluation: two systems list by list, and measures by cutoff."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from twinrank.display.plots import COLOURS, drawing
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.significance import differences, p_value
from twinrank.lists import Lists
from twinrank.support.errors import InputError
from twinrank.support.text import counted


def draw_wins(
    path: str | os.PathLike[str], a: Any, b: Any, names: tuple[str, str], measure: str = "value"
) -> None:
    """Draw the difference of two systems list by list, from the greatest win to the worst loss.

    `a` and `b` are values per list; lists that either leaves out (NaN) aren't drawn.
    """
    difference = np.sort(differences(a, b))[::-1]
    if not difference.size:
        raise InputError("there is no list that both systems have a value for")
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    lists = f"{counted(difference.size, 'list')}, {difference.size - wins - losses:,} equal"
    first, second, what = (_shown(name) for name in (*names, measure))
    with drawing(Path(path), 1, 1, (7, 3.6)) as panels:
        axes = panels[0, 0]
        for sign, colour, label in (
            (1, COLOURS[0], f"{first} better: {wins:,}"),
            (-1, COLOURS[3], f"{second} better: {losses:,}"),
        ):
            bars = np.where(np.sign(difference) == sign, difference, 0)
            axes.stairs(bars, fill=True, color=colour, label=label)
        axes.axhline(0, color="#666666", linewidth=0.8)
        mean = difference.mean()
        label = f"mean {mean:+.4f}".replace("-", "−")
        axes.axhline(mean, color=COLOURS[1], linewidth=1.5, label=label)
        axes.set(
            title=f"{first} against {second}: {what}",
            xlabel=f"{lists} (Wilcoxon p = {p_value(a, b):.2g})",
            ylabel=f"difference in {what}",
            xlim=(0, difference.size),
        )
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()


def draw_cutoffs(
    path: str | os.PathLike[str],
    systems: Mapping[str, Any],
    labels: Any,
    lists: Lists,
    measures: Sequence[str] = ("nDCG", "AP", "P", "Recall"),
    cutoffs: Sequence[int] = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50),
    **choices: Any,
) -> None:
    """Draw mean measures by cutoff, one panel per measure and one line per system's scores.

    `choices` are those of `evaluate`; the picture states the convention.
    """
    measures = (measures,) if isinstance(measures, str) else measures
    if not (systems and measures and cutoffs):
        raise InputError("a picture needs at least one system, one measure and one cutoff")
    wanted = [f"{name}@{k}" for name in measures for k in cutoffs]
    found = {name: evaluate(s, labels, lists, wanted, **choices) for name, s in systems.items()}
    columns = min(len(measures), 2)
    rows = -(-len(measures) // columns)
    with drawing(Path(path), rows, columns, (4.5 * columns, 3 * rows + 0.3)) as panels:
        for panel in panels.flat[len(measures) :]:
            panel.set_visible(False)
        for panel, name in zip(panels.flat, measures, strict=False):
            for i, (system, result) in enumerate(found.items()):
                means = [result[f"{name}@{k}"] for k in cutoffs]
                look = {"color": COLOURS[i % len(COLOURS)], "marker": "o", "markersize": 3}
                panel.plot(cutoffs, means, label=_shown(system), **look)
            panel.set(title=name, xlabel="cutoff k", ylabel=f"mean {name}@k", xscale="log")
            panel.set_xticks(list(cutoffs), [str(k) for k in cutoffs])
            panel.minorticks_off()
        panels.flat[0].legend()
        stated = fill(f"Convention: {next(iter(found.values())).convention}.", 65 * columns)
        panels.flat[0].figure.supxlabel(stated, fontsize=7, color="#666666")


def _shown(name: str) -> str:
    r"""A name as it is: $ would start a formula, and _ hide it from the legend.

    >>> _shown("_a$b")
    ' _a\\$b'
    """
    return (" " + name if name.startswith("_") else name).replace("$", r"\$")
