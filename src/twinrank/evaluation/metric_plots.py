"""Plots of an evaluation: two systems list by list, and measures by cutoff."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.significance import differences, p_value
from twinrank.support.errors import InputError
from twinrank.support.plots import COLOURS, drawing, use_whole_numbers
from twinrank.support.quantities import counted


def draw_wins(
    path: str | os.PathLike[str], a: Any, b: Any, names: tuple[str, str], measure: str = "value"
) -> None:
    """Draw the difference of two systems on each list, from the largest win to the largest loss.

    `a` and `b` are values per list. Lists that are NaN for either system are not drawn.
    """
    difference = np.sort(differences(a, b))[::-1]
    if not difference.size:
        raise InputError("There is no list that both systems have a value for.")
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    lists = f"{counted(difference.size, 'list')}, {difference.size - wins - losses:,} equal"
    first, second, title = (_label(name) for name in (*names, measure))
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
            title=f"{first} against {second}: {title}",
            xlabel=f"{lists} (Wilcoxon p = {p_value(a, b):.2g})",
            ylabel=f"difference in {title}",
            xlim=(0, difference.size),
        )
        use_whole_numbers(axes.xaxis)
        axes.legend()


def draw_cutoffs(
    path: str | os.PathLike[str],
    systems: Mapping[str, Any],
    labels: Any,
    lists: Lists,
    measures: Sequence[str] = ("nDCG", "AP", "P", "Recall"),
    cutoffs: Sequence[int] = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50),
    **options: Any,
) -> None:
    """Plot the means of measures by cutoff, for several systems.

    The figure has one panel per measure and one line per system. It states the convention.

    Parameters
    ----------
    path : str or path
        The file to write, with suffix .png, .svg or .pdf.
    systems : mapping of str to array of float, shape (n_documents,)
        The scores of each system by name.
    labels : array, shape (n_documents,)
        The relevance of each document.
    lists : Lists
        The documents of each query.
    measures : sequence of str, default ("nDCG", "AP", "P", "Recall")
        Names of measures without a cutoff.
    cutoffs : sequence of int
        The cutoffs on the x-axis, 1 to 50 by default.
    **options
        Other arguments of `evaluate`, such as `convention`.

    Raises
    ------
    InputError
        If the suffix is unknown, or there is no system, measure or cutoff.
    FileError
        If the file cannot be written.
    """
    measures = (measures,) if isinstance(measures, str) else measures
    if not (systems and measures and cutoffs):
        raise InputError("A plot needs at least one system, one measure and one cutoff.")
    names = [f"{name}@{k}" for name in measures for k in cutoffs]
    results = {
        name: evaluate(scores, labels, lists, names, **options) for name, scores in systems.items()
    }
    columns = min(len(measures), 2)
    rows = -(-len(measures) // columns)
    with drawing(Path(path), rows, columns, (4.5 * columns, 3 * rows + 0.3)) as panels:
        for panel in panels.flat[len(measures) :]:
            panel.set_visible(False)
        for panel, name in zip(panels.flat, measures, strict=False):
            for i, (system, result) in enumerate(results.items()):
                means = [result[f"{name}@{k}"] for k in cutoffs]
                look = {"color": COLOURS[i % len(COLOURS)], "marker": "o", "markersize": 3}
                panel.plot(cutoffs, means, label=_label(system), **look)
            panel.set(title=name, xlabel="cutoff k", ylabel=f"mean {name}@k", xscale="log")
            panel.set_xticks(list(cutoffs), [str(k) for k in cutoffs])
            panel.minorticks_off()
        panels.flat[0].legend()
        note = fill(f"Convention: {next(iter(results.values())).convention}.", 65 * columns)
        panels.flat[0].figure.supxlabel(note, fontsize=7, color="#666666")


def _label(name: str) -> str:
    r"""A name that matplotlib shows unchanged: $ would start a formula, a leading _ hide it.

    >>> _label("_a$b")
    ' _a\\$b'
    """
    return (" " + name if name.startswith("_") else name).replace("$", r"\$")
