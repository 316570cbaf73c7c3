"""The results of a search: files, tables, plots and the report."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np

from twinrank.data.options import ReadOptions
from twinrank.experiments.report.content import ReportContent
from twinrank.experiments.report.page import write_report
from twinrank.experiments.study.methods import BLEND, KINDS, NET, TREES
from twinrank.experiments.study.source import Source
from twinrank.experiments.study.written_files import csv_text, write_json, write_text, write_toml
from twinrank.experiments.tuning.search import Tuning
from twinrank.experiments.tuning.trials import TrialRecord, best_of, importances, open_search
from twinrank.support.plots import COLOURS, drawing, use_whole_numbers
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, Table

BEST = "best.toml"
REPORT = "report.html"
_FIGURE_SUFFIXES = (".svg", ".png")
_FEW = 30  # complete trials, below which importances are rough
_SHOWN = 12  # parameters in the plot of importances

_TRAIN_OPTIONS: dict[str, list[str]] = {
    NET.name: [],
    TREES.name: ["--trees"],
    BLEND.name: ["--blend"],
}


def write_best(out: Path, tuning: Tuning, trials: Sequence[TrialRecord]) -> list[Path]:
    """Write the parameters of the best trial; with several kinds of models, also of each kind."""
    best = {BEST: best_of(trials)[0]}
    if len(tuning.models) > 1:
        for model in tuning.models:
            for trial in best_of([trial for trial in trials if trial.model == model])[:1]:
                best[f"best-{model}.toml"] = trial
    return [_write_parameters(out / name, tuning, trial) for name, trial in best.items()]


def _write_parameters(path: Path, tuning: Tuning, trial: TrialRecord) -> Path:
    comments = [
        f"{tuning.measure} {trial.value:.4f} on the validation queries ({trial.name}).",
        f"Use it with: {train_command(tuning, trial.model, path)}",
    ]
    return write_toml(path, trial.parameters, comments)


def train_command(tuning: Tuning, model: str, config: Path) -> str:
    """The command that trains on the data of a search, the same fold, with a file's parameters."""
    split = tuning.split
    options = [] if split.source.path is None else [split.source.path]
    options += [] if split.valid is None else ["--valid", split.valid]
    options += ["--fold", str(split.fold)] if split.source.has_folds else []
    options += [*_TRAIN_OPTIONS[model], "--config", str(config), *_reading_options(split.source)]
    return shlex.join(["twinrank", "train", *options])


def _reading_options(source: Source) -> list[str]:
    """The options of the command line for reading data as the search did."""
    options = []
    for default in fields(ReadOptions):
        value, option = source.reading.get(default.name), f"--{default.name.replace('_', '-')}"
        if value in (None, [], default.default):
            continue
        if isinstance(value, bool):
            options.append(option if value else option.replace("--", "--no-"))
            continue
        for item in value if isinstance(value, list) else [value]:
            options += [option, str(item)]
    return options


def write_trials(out: Path, trials: Sequence[TrialRecord]) -> None:
    """Write all trials as trials.csv and trials.json."""
    write_json(out / "trials.json", [asdict(trial) for trial in trials])
    names = list(dict.fromkeys(name for trial in trials for name in trial.chosen))
    columns = ("model", "number", "state", "value", "after", "seconds", "error")
    rows = (
        [*(getattr(trial, column) for column in columns), *(trial.chosen.get(n) for n in names)]
        for trial in trials
    )
    write_text(out / "trials.csv", csv_text([*columns, *names], rows))


def best_tables(tuning: Tuning, trials: Sequence[TrialRecord], count: int = 5) -> list[Table]:
    """A table of the best trials of each kind of model, the best kind first."""
    by_model = [best_of([t for t in trials if t.model == model])[:count] for model in tuning.models]
    ordered = best_of([best[0] for best in by_model if best])
    groups = [next(best for best in by_model if first in best) for first in ordered]
    return [_best_table(tuning, best) for best in groups]


def _best_table(tuning: Tuning, best: Sequence[TrialRecord]) -> Table:
    """A column per trial, a row per parameter."""
    model = best[0].model
    searched = tuning.space(model).dimensions
    names = [name for name in searched if any(name in trial.chosen for trial in best)]
    unit = KINDS[model].unit
    rows = [
        [Cell(tuning.measure), *(Cell(f"{t.value:.4f}", i == 0) for i, t in enumerate(best))],
        [Cell("reached after"), *(Cell(f"{unit} {trial.after}") for trial in best)],
        [Cell("seconds"), *(Cell(f"{trial.seconds or 0:.1f}") for trial in best)],
    ]
    rows += [[Cell(n), *(Cell(_shown(trial.chosen.get(n))) for trial in best)] for n in names]
    return Table(f"The best trials: {model}", ["", *(trial.name for trial in best)], rows)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summary(tuning: Tuning, trials: Sequence[TrialRecord]) -> str:
    """The result in a few sentences."""
    best = best_of(trials)[0]
    states = [trial.state for trial in trials]
    counts = [f"{states.count(s)} {s}" for s in ("complete", "pruned", "failed") if s in states]
    text = f"Best {tuning.measure} on the validation queries: {best.value:.4f} ({best.name})."
    own = [trial for trial in best_of(trials) if trial.model == best.model and trial.is_start]
    if own and own[0] is not best:
        text += f" The defaults had {own[0].value:.4f}."
    return f"{text} {len(trials)} trials: {', '.join(counts)}."


def draw_history(tuning: Tuning, trials: Sequence[TrialRecord], path: Path) -> None:
    """Plot the value of every trial and the best so far, a panel for each kind of model."""
    models = tuning.models
    with drawing(path, 1, len(models), (6.4 if len(models) == 1 else 9, 3.2)) as axes:
        for axis, model in zip(axes[0], models, strict=True):
            _draw_history(axis, [trial for trial in trials if trial.model == model])
            label = f"validation {tuning.measure}"
            axis.set(title=f"Trials: {model}", xlabel="trial", ylabel=label)


def _draw_history(axis: Any, trials: Sequence[TrialRecord]) -> None:
    for state, marker, colour in (("complete", "o", COLOURS[0]), ("pruned", "x", COLOURS[5])):
        shown = [trial for trial in trials if trial.state == state and trial.value is not None]
        if shown:
            numbers, values = [t.number for t in shown], [t.value for t in shown]
            axis.scatter(numbers, values, s=18, marker=marker, color=colour, label=state)
    failed = [trial.number for trial in trials if trial.state == "failed"]
    if failed:
        bottom = axis.get_xaxis_transform()  # at the bottom of the panel for all values
        style = {"s": 18, "marker": "v", "color": COLOURS[3], "label": "failed"}
        axis.scatter(failed, [0.02] * len(failed), transform=bottom, **style)
    best = -np.inf
    so_far = []
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            best = max(best, trial.value)
        if best > -np.inf:
            so_far.append((trial.number, best))
    if so_far:
        axis.step(*zip(*so_far, strict=True), where="post", color=COLOURS[1], label="best so far")
    use_whole_numbers(axis.xaxis)
    if trials:
        axis.legend(loc="best", fontsize=8)


def draw_importances(by_model: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Plot the importance of each parameter, a panel for each kind of model."""
    rows = max(min(len(shares), _SHOWN) for shares in by_model.values())
    size = (6.4 if len(by_model) == 1 else 9, 0.9 + 0.26 * rows)
    with drawing(path, 1, len(by_model), size) as axes:
        for axis, (model, shares) in zip(axes[0], by_model.items(), strict=True):
            highest = sorted(shares.items(), key=lambda item: item[1])[-_SHOWN:]
            axis.barh([name for name, _ in highest], [share for _, share in highest],
                      color=COLOURS[0])  # fmt: skip
            axis.set(title=f"What matters: {model}", xlabel="share of importance")
            axis.grid(visible=False, axis="y")


def draw_all(
    out: Path, tuning: Tuning, trials: Sequence[TrialRecord]
) -> list[tuple[str, str, str]]:
    """Draw the plots as SVG and PNG. Return those of the report: title, SVG and description."""
    for suffix in _FIGURE_SUFFIXES:
        draw_history(tuning, trials, out / f"history{suffix}")
    figures = [("How the search went", "history", summary(tuning, trials))]
    every = {model: importances(open_search(out, tuning, model)) for model in tuning.models}
    by_model = {model: shares for model, shares in every.items() if shares}
    if by_model:
        for suffix in _FIGURE_SUFFIXES:
            draw_importances(by_model, out / f"importance{suffix}")
        figures.append(("What matters", "importance", _most_important(by_model)))
    return [(title, (out / f"{name}.svg").read_text("utf-8"), alt) for title, name, alt in figures]


def _most_important(by_model: Mapping[str, Mapping[str, float]]) -> str:
    parts = []
    for model, shares in by_model.items():
        highest = sorted(shares, key=lambda name: -shares[name])[:3]
        listed = ", ".join(f"{name} ({shares[name]:.0%})" for name in highest)
        parts.append(f"Most important for {model}: {listed}")
    return ". ".join(parts) + "."


def write_page(
    out: Path,
    tuning: Tuning,
    trials: Sequence[TrialRecord],
    figures: Sequence[tuple[str, str, str]],
    command: str,
) -> Path:
    """Write the report of a search as one HTML file."""
    sets = tuning.split.sets()
    notes = [f"{trial.name} failed: {trial.error}" for trial in trials if trial.state == "failed"]
    complete = sum(trial.state == "complete" for trial in trials)
    if len(figures) < 2:
        notes.append("Too few trials are complete to estimate the importance of parameters.")
    elif complete < _FEW:
        notes.append(f"Importances are rough with {counted(complete, 'complete trial')}.")
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
        notes=notes,
        figures=figures,
        tables=[(table.title, table) for table in best_tables(tuning, trials)],
        validation_measure=tuning.measure,
    )
    write_report(out / REPORT, content)
    return out / REPORT


def _settings(tuning: Tuning) -> list[tuple[str, str]]:
    settings = [("measure", tuning.measure), ("seed", str(tuning.seed))]
    for space in tuning.spaces:
        model = space.model
        settings.append((f"{model}: {KINDS[model].unit}s", str(tuning.total(model))))
        fixed = ", ".join(f"{key} = {value}" for key, value in space.fixed.items())
        settings.append((f"{model}: fixed", fixed or "nothing"))
        settings.append((f"{model}: searched", ", ".join(space.dimensions)))
    return settings


def _versions() -> dict[str, str]:
    versions = {"python": python_version()}
    for name in ("twinrank", "optuna", "numpy", "torch", "lightgbm"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
