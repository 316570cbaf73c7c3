"""twinrank tune: a search for good settings."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.data_options import in_words_of_options, show_notes, source_of, takes_data
from twinrank.support.errors import InputError, TwinRankError, unknown

if TYPE_CHECKING:
    from twinrank.study.tuning.search import Tuning

_TRIALS, _EPOCHS, _ROUNDS = 50, 30, 300
_QUICK_TRIALS, _QUICK_EPOCHS, _QUICK_ROUNDS, _QUICK_QUERIES = 8, 5, 40, 200
_MODELS = {"net": ["net"], "trees": ["trees"], "both": ["net", "trees"]}


@takes_data()
def tune(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A file of training data, or a folder with folds (see --fold); "
            "without it, the built-in synthetic data.",
            readable=False,
        ),
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(help="Validation data; else a fifth of the queries.", readable=False),
    ] = None,
    fold: Annotated[int, typer.Option(help="Which fold of a folder with folds.", min=1)] = 1,
    model: Annotated[str, typer.Option(help="net, trees, or both, each searched apart.")] = "net",
    trials: Annotated[
        int | None, typer.Option(help=f"How many of each model; {_TRIALS} by default.", min=1)
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which no trial begins.", min=0)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help=f"Epochs of a net at most; {_EPOCHS} by default.", min=1)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help=f"Trees at most; {_ROUNDS} by default.", min=1)
    ] = None,
    measure: Annotated[
        str, typer.Option(help="What a trial is judged by, on the validation queries.")
    ] = "nDCG@5",
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", help="Hold a parameter fixed, as key=value (may be repeated)."),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with what to search instead: under [net] or [trees], "
            "key = [choices] or key = {low = …, high = …, log = true}.",
            readable=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Trials at a time; by default, one per core. With 1, the same seed gives the "
            "same search.",
            min=1,
        ),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to train on (auto, ray://…).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**63 - 1)] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for trials, the best parameters and the report.")
    ] = Path("tuning"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few and short trials: ends in a minute or two.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew in a folder that holds another search.")
    ] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Search for the settings with the best validation measure, by Optuna.

    Objective, strategy, α, noise, optimiser, transforms and the net's own shape, or the trees'.
    Trials that fall behind are cut short. Every trial is kept as soon as it is begun: after an
    interruption the same command goes on, and a higher --trials adds to what is there. The best
    parameters are written as a file that `twinrank train --config` takes.

    Example: twinrank tune MQ2008 --fold 1 --trials 100 --fix objective=AP --out tuned
    """
    from twinrank.study.tuning.search import Tuning, check_installed
    from twinrank.study.tuning.space_files import spaces_of
    from twinrank.study.tuning.split import Split
    from twinrank.support.memory import keep_memory

    check_installed()
    keep_memory()
    if model not in _MODELS:
        raise InputError(unknown("model", model, _MODELS))
    few: dict[str, Any] = {"queries": _QUICK_QUERIES} if quick and data is None else {}
    with in_words_of_options():
        source = source_of(data, reading, cut=1, **few)
        held = None if valid is None else str(valid.expanduser().absolute())
        tuning = Tuning(
            Split(source, fold, held),
            spaces_of(_MODELS[model], fix or [], space),
            measure,
            epochs or (_QUICK_EPOCHS if quick else _EPOCHS),
            rounds or (_QUICK_ROUNDS if quick else _ROUNDS),
            seed,
        )
        sets = tuning.split.sets()  # trouble with the data is known before anything is written
        show_notes(sets["train"])
        count = trials or (_QUICK_TRIALS if quick else _TRIALS)
        try:
            tuning.run(out, count, jobs, ray, timeout, force=force)
        except KeyboardInterrupt:
            typer.echo("Stopped. The same command goes on where it was.", err=True)
            raise typer.Exit(130) from None
    _show(out, tuning, data)


def _show(out: Path, tuning: "Tuning", data: Path | None) -> None:
    """Print and write what was found."""
    from twinrank.study.tuning.files import best_tables, summary, write_best, write_trials
    from twinrank.study.tuning.report import draw_all, write_page
    from twinrank.study.tuning.trials import best_of

    trials = tuning.tried(out)
    write_trials(out, trials)
    best = best_of(trials)
    if not best:
        said = next((one.error for one in reversed(trials) if one.error), "")
        reason = f"the last one failed: {said}" if said else "there was no time for any"
        raise TwinRankError(f"no trial was completed; {reason}")
    written = write_best(out, tuning, trials)
    command = shlex.join(["twinrank", *sys.argv[1:]])
    page = write_page(out, tuning, trials, draw_all(out, tuning, trials), command)
    for table in best_tables(tuning, trials, 3):
        typer.echo(table.to_text(sys.stdout.isatty()) + "\n")
    typer.echo(summary(tuning, trials))
    typer.echo(f"Best parameters: {', '.join(map(str, written))}")
    net = next((path for path in written if "trees" not in path.name), None)
    if best[0].model == "net" and net is not None:
        with_data = [] if data is None else [str(data)]
        words = ["twinrank", "train", *with_data, "--config", str(net)]
        typer.echo(f"Train with them: {shlex.join(words)}")
    typer.echo(f"Report: {page}")
