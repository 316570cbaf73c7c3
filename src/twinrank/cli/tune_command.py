"""twinrank tune: a search for good parameters."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import AtLeastOne, Jobs, Ray, Seed
from twinrank.cli.data_options import show_notes, source_of, takes_data, warnings_as_notes
from twinrank.cli.output_options import (
    is_quiet,
    resumable,
    show_done,
    show_json,
    show_note,
    show_paragraph,
    show_table,
    takes_output,
)
from twinrank.support.errors import InputError, TwinRankError, needing, unknown

if TYPE_CHECKING:
    from twinrank.experiments.tuning.search import TrialRecord, Tuning

_DEFAULTS = {"trials": 50, "epochs": 30, "rounds": 300}
_QUICK = {"trials": 8, "epochs": 5, "rounds": 40}
_QUICK_QUERIES = 200  # of the built-in data
_MODELS = {"net": ["net"], "trees": ["trees"], "both": ["net", "trees"], "blend": ["blend"]}


@takes_output
@takes_data()
def tune(
    data: Path | None = None,
    *,
    valid: Path | None = None,
    fold: AtLeastOne = None,
    model: str = "net",
    trials: AtLeastOne = None,
    timeout: Annotated[float | None, typer.Option(min=0)] = None,
    epochs: AtLeastOne = None,
    rounds: AtLeastOne = None,
    measure: str = "nDCG@5",
    fix: list[str] | None = None,
    space: Path | None = None,
    jobs: Jobs = None,
    ray: Ray = None,
    seed: Seed = 0,
    out: Path = Path("tuning"),
    quick: bool = False,
    force: bool = False,
    reading: dict[str, Any] | None = None,
) -> None:
    r"""Search with Optuna for the parameters with the best validation measure.

    The search covers objective, strategy, α, noise, optimiser and transforms, and
    the architecture of the net or the settings of the trees. Weak trials are
    stopped early. Every trial is saved: the same command continues after an
    interruption, and a higher --trials adds trials. With --jobs 1, the same seed
    gives the same search. `twinrank train --config` reads the best parameters.

    Example: twinrank tune MQ2008 --fold 1 --trials 100 --fix objective=AP

    Parameters
    ----------
    data
        A file of training data, or a folder with folds; --fold chooses one (default: the
        built-in synthetic data).
    valid
        Validation data (default: a fifth of the queries).
    fold
        Fold of a folder with folds (default: 1).
    model
        net, trees, or both, each searched separately; or blend, where trees and net are
        searched together (default: net).
    trials
        Number of trials per model (default: 50).
    timeout
        Seconds after which no trial begins (default: no limit).
    epochs
        Maximum number of epochs for nets (default: 30).
    rounds
        Maximum number of rounds for trees (default: 300).
    measure
        Measure to maximise on the validation queries (default: nDCG@5).
    fix
        Hold a parameter fixed, as key=value. Repeatable.
    space
        TOML file with the ranges to search: in the table \[net], \[trees] or \[blend], each
        key has a list of choices such as \[16, 32], or {low = …, high = …, log = true}.
    out
        Folder for trials, the best parameters and plots (default: tuning).
    quick
        Few and short trials, as a first test.
    force
        Replace an existing search in this folder.
    """
    with needing("Tuning", "Optuna", "tune"):
        import optuna  # noqa: F401
    from twinrank.core.measures import measure as as_measure
    from twinrank.experiments.study.study_source import Split, absolute
    from twinrank.experiments.tuning.search import Tuning
    from twinrank.experiments.tuning.space import for_weights_of_rows, spaces_of
    from twinrank.support.memory import keep_memory

    keep_memory()
    out = out.expanduser()
    if model not in _MODELS:
        raise InputError(unknown("model", model, _MODELS))
    few: dict[str, Any] = {"queries": _QUICK_QUERIES} if quick and data is None else {}
    source = source_of(data, reading, cut=1, **few)
    default = _QUICK if quick else _DEFAULTS
    tuning = Tuning(
        Split(source, fold, None if valid is None else absolute(valid)),
        spaces_of(_MODELS[model], fix or [], space),
        measure,
        epochs or default["epochs"],
        rounds or default["rounds"],
        seed,
    )
    with warnings_as_notes(is_quiet()):
        train = tuning.split.sets()["train"]
        show_notes(train)  # problems show before anything is written
        if train.row_weights is not None:
            as_measure(measure).check_takes_weights()
            spaces, without = for_weights_of_rows(tuning.spaces)
            tuning = replace(tuning, spaces=spaces)
            if without:
                show_note(
                    f"Not searched, since weights differ within queries: {', '.join(without)}."
                )
    count = trials or default["trials"]
    with resumable(out):
        found = tuning.run(out, count, jobs, ray, timeout, progress=not is_quiet(), force=force)
    _finish(out, tuning, found)


def _finish(out: Path, tuning: "Tuning", trials: "list[TrialRecord]") -> None:
    """Write the results, and print the best trials."""
    from twinrank.experiments.tuning import tuning_results as results
    from twinrank.experiments.tuning.search import best_of

    results.write_trials(out, trials)
    best = best_of(trials)
    if not best:
        error = next((trial.error for trial in reversed(trials) if trial.error), "")
        reason = (
            f"the last one failed: {error.rstrip('.')}" if error else "there was no time for any"
        )
        raise TwinRankError(f"No trial was completed; {reason}.")
    written = results.write_best(out, tuning, trials)
    plots = results.draw_plots(out, tuning, trials)
    for model in dict.fromkeys(trial.model for trial in best):
        show_table(results.best_table(tuning, best_of(trials, model)[:3]), "\n")
    show_paragraph(results.summary(tuning, trials))
    show_done(f"Best parameters: {', '.join(map(str, written))}")
    command = results.train_command(tuning, best[0].model, written[0])
    show_done(f"Train with them: {command}")
    show_done(f"Plots: {', '.join(map(str, plots))}")
    found = [
        {"model": trial.model, "value": trial.value, "parameters": trial.parameters}
        for trial in best
    ]
    show_json({"best": found, "files": written, "train": command, "plots": plots})
