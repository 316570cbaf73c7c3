"""The results of a search: the best parameters, all trials, tables, and Optuna's plots."""

import json
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from optuna.exceptions import ExperimentalWarning
from optuna.visualization import matplotlib as optuna_plots

from twinrank.data.options import ReadOptions
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.tuning.search import TrialRecord, Tuning, best_of, open_search
from twinrank.support.files import replacing, write_json, write_text
from twinrank.support.tables import Cell, ResultTable, csv_text

_FEWEST = 5  # complete trials for the plot of importances


def write_best(out: Path, tuning: Tuning, trials: Sequence[TrialRecord]) -> list[Path]:
    """Write the parameters of the best trial; with several kinds of models, also of each kind."""
    best = {"best.toml": best_of(trials)[0]}
    if len(tuning.models) > 1:
        for model in tuning.models:
            best |= {f"best-{model}.toml": t for t in best_of(trials, model)[:1]}
    for name, trial in best.items():
        comments = [
            f"{tuning.measure} {trial.value:.4f} on the validation queries ({trial.name}).",
            f"Use it with: {train_command(tuning, trial.model, out / name)}",
        ]
        write_toml(out / name, trial.parameters, comments)
    return [out / name for name in best]


def train_command(tuning: Tuning, model: str, config: Path) -> str:
    """The command that trains on the data of a search, the same fold, with a file's parameters."""
    split = tuning.split
    options = [] if split.source.path is None else [split.source.path]
    options += [] if split.valid is None else ["--valid", split.valid]
    options += ["--fold", str(split.fold or 1)] if split.source.has_folds else []
    options += [] if model == "net" else [f"--{model}"]
    options += ["--config", str(config), *_reading_options(split.source)]
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
    write_text(out / "trials.csv", csv_text([[*columns, *names], *rows]))


def best_table(tuning: Tuning, best: Sequence[TrialRecord]) -> ResultTable:
    """The best trials of one kind of model: a column per trial, a row per parameter."""
    rows = [[Cell(tuning.measure), *(Cell(f"{t.value:.4f}", t is best[0]) for t in best)]]
    for name in tuning.space(best[0].model).dimensions:
        rows.append([Cell(name), *(Cell(str(trial.chosen.get(name, "–"))) for trial in best)])
    return ResultTable(
        f"The best trials: {best[0].model}", ["", *(trial.name for trial in best)], rows
    )


def summary(tuning: Tuning, trials: Sequence[TrialRecord]) -> str:
    """The result in a few sentences."""
    best = best_of(trials)[0]
    states = [trial.state for trial in trials]
    counts = [f"{states.count(s)} {s}" for s in ("complete", "pruned", "failed") if s in states]
    text = f"Best {tuning.measure} on the validation queries: {best.value:.4f} ({best.name})."
    own = [trial for trial in best_of(trials, best.model) if trial.is_start]
    if own and own[0] is not best:
        text += f" The defaults had {own[0].value:.4f}."
    return f"{text} {len(trials)} trials: {', '.join(counts)}."


def draw_plots(out: Path, tuning: Tuning, trials: Sequence[TrialRecord]) -> list[Path]:
    """Save Optuna's plots: the history of a search, and the importance of its parameters."""
    from matplotlib import pyplot, rc_context

    written = []
    for model in tuning.models:
        values = [trial.value for trial in best_of(trials, model)]
        plots: dict[str, Any] = {"history": optuna_plots.plot_optimization_history}
        if len(values) >= _FEWEST and len(set(values)) > 1:
            plots["importance"] = optuna_plots.plot_param_importances
        for name, plot in plots.items() if values else ():
            path = out / (f"{name}.png" if len(tuning.models) == 1 else f"{name}-{model}.png")
            with rc_context(), warnings.catch_warnings():  # the plots set a style of their own
                warnings.simplefilter("ignore", ExperimentalWarning)
                figure = plot(open_search(out, tuning, model)).figure
            with replacing(path) as partial:
                figure.savefig(partial, format="png", dpi=150, bbox_inches="tight")
            pyplot.close(figure)
            written.append(path)
    return written


def write_toml(path: Path, values: Mapping[str, Any], comments: Sequence[str] = ()) -> Path:
    """Write keys and values as TOML, after some lines of comment."""
    lines = [f"# {' '.join(line.split())}" for line in comments]
    lines += [f"{_toml_key(key)} = {toml(value)}" for key, value in values.items()]
    return write_text(path, "\n".join(lines))


def toml(value: Any) -> str:
    """A value as TOML. None is the word "none", as in `parameters_of`.

    >>> toml({"a": [1, 0.5, True], "b": None})
    '{a = [1, 0.5, true], b = "none"}'
    """
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        items = (f"{_toml_key(key)} = {toml(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # nan and inf, where JSON has NaN and Infinity
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: Any) -> str:
    text = str(name)
    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if plain else json.dumps(text)
