"""The pictures of a search, and its page."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np

from twinrank.display.plots import COLOURS, drawing
from twinrank.report.content import ReportContent
from twinrank.report.page import write_report
from twinrank.study.tuning.files import best_tables, summary
from twinrank.study.tuning.search import Tuning
from twinrank.study.tuning.trials import Tried, importances, open_search
from twinrank.support.plurals import counted

REPORT = "report.html"
_SUFFIXES = (".svg", ".png")
_FEW = 30  # complete trials, below which importances are rough
_SHOWN = 12  # settings in the picture of importances


def draw_history(tuning: Tuning, trials: Sequence[Tried], path: Path) -> None:
    """The value of every trial, and the best so far, a panel for each kind of model."""
    models = tuning.models
    with drawing(path, 1, len(models), (6.4 if len(models) == 1 else 9, 3.2)) as axes:
        for axis, model in zip(axes[0], models, strict=True):
            _history(axis, [one for one in trials if one.model == model])
            measured = f"validation {tuning.measure}"
            axis.set(title=f"Trials: {model}", xlabel="trial", ylabel=measured)


def _history(axis: Any, trials: Sequence[Tried]) -> None:
    for state, marker, colour in (("complete", "o", COLOURS[0]), ("pruned", "x", COLOURS[5])):
        shown = [one for one in trials if one.state == state and one.value is not None]
        if shown:
            numbers, values = [one.number for one in shown], [one.value for one in shown]
            axis.scatter(numbers, values, s=18, marker=marker, color=colour, label=state)
    failed = [one.number for one in trials if one.state == "failed"]
    if failed:
        foot = axis.get_xaxis_transform()  # at the foot of the panel, whatever the values
        look = {"s": 18, "marker": "v", "color": COLOURS[3], "label": "failed"}
        axis.scatter(failed, [0.02] * len(failed), transform=foot, **look)
    best = -np.inf
    so_far = []
    for one in trials:
        if one.state == "complete" and one.value is not None:
            best = max(best, one.value)
        if best > -np.inf:
            so_far.append((one.number, best))
    if so_far:
        axis.step(*zip(*so_far, strict=True), where="post", color=COLOURS[1], label="best so far")
    axis.xaxis.get_major_locator().set_params(integer=True)
    if trials:
        axis.legend(loc="best", fontsize=8)


def draw_importances(found: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """How much each setting matters, a panel for each kind of model."""
    rows = max(min(len(one), _SHOWN) for one in found.values())
    size = (6.4 if len(found) == 1 else 9, 0.9 + 0.26 * rows)
    with drawing(path, 1, len(found), size) as axes:
        for axis, (model, shares) in zip(axes[0], found.items(), strict=True):
            most = sorted(shares.items(), key=lambda one: one[1])[-_SHOWN:]
            axis.barh([name for name, _ in most], [share for _, share in most], color=COLOURS[0])
            axis.set(title=f"What matters: {model}", xlabel="share of importance")
            axis.grid(visible=False, axis="y")


def draw_all(out: Path, tuning: Tuning, trials: Sequence[Tried]) -> list[tuple[str, str, str]]:
    """Draw both pictures as SVG and PNG; those of the page: title, SVG and what can be seen."""
    for suffix in _SUFFIXES:
        draw_history(tuning, trials, out / f"history{suffix}")
    shown = [("How the search went", "history", summary(tuning, trials))]
    found = {model: importances(open_search(out, tuning, model)) for model in tuning.models}
    found = {model: shares for model, shares in found.items() if shares}
    if found:
        for suffix in _SUFFIXES:
            draw_importances(found, out / f"importance{suffix}")
        shown.append(("What matters", "importance", _said(found)))
    return [(title, (out / f"{name}.svg").read_text("utf-8"), alt) for title, name, alt in shown]


def _said(found: Mapping[str, Mapping[str, float]]) -> str:
    parts = []
    for model, shares in found.items():
        most = sorted(shares, key=lambda name: -shares[name])[:3]
        listed = ", ".join(f"{name} ({shares[name]:.0%})" for name in most)
        parts.append(f"Of {model}, most important: {listed}")
    return ". ".join(parts) + "."


def write_page(
    out: Path,
    tuning: Tuning,
    trials: Sequence[Tried],
    figures: Sequence[tuple[str, str, str]],
    command: str,
) -> Path:
    """The report of a search as one HTML file."""
    sets = tuning.split.sets()
    failed = [f"{one.name} failed: {one.error}" for one in trials if one.state == "failed"]
    complete = sum(one.state == "complete" for one in trials)
    if len(figures) < 2:
        failed.append("Too few trials are complete to say which settings matter.")
    elif complete < _FEW:
        failed.append(f"What matters is a rough guess with {counted(complete, 'complete trial')}.")
    content = ReportContent(
        title=f"Settings for {tuning.split.source.name}",
        headline=summary(tuning, trials),
        data_summary=[
            (name, f"{counted(data.queries, 'query')}, {counted(data.documents, 'document')}")
            for name, data in sets.items()
        ]
        + [("features", f"{sets['train'].features:,}")],
        settings=_settings(tuning),
        command=command,
        versions=_versions(),
        notes=failed,
        figures=figures,
        tables=[(table.title, table) for table in best_tables(tuning, trials)],
        validation_measure=tuning.measure,
    )
    write_report(out / REPORT, content)
    return out / REPORT


def _settings(tuning: Tuning) -> list[tuple[str, str]]:
    found = [("measure", tuning.measure), ("seed", str(tuning.seed))]
    for space in tuning.spaces:
        long = "epochs" if space.model == "net" else "rounds"
        found.append((f"{space.model}: {long}", str(tuning.total(space.model))))
        fixed = ", ".join(f"{key} = {value}" for key, value in space.fixed.items())
        found.append((f"{space.model}: fixed", fixed or "nothing"))
        found.append((f"{space.model}: searched", ", ".join(space.dimensions)))
    return found


def _versions() -> dict[str, str]:
    found = {"python": python_version()}
    for name in ("twinrank", "optuna", "numpy", "torch", "lightgbm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
