"""twinrank train: a ranker on a data set, resumable."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.options import load_data, show_error, show_notes, takes_data
from twinrank.cli.sources import in_words_of_options, source_of
from twinrank.support.errors import FileError, InputError, TwinRankError, explained

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.training.callbacks import Callback
    from twinrank.training.processes import Processes


@takes_data()
def train(
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
    test: Annotated[
        Path | None, typer.Option(help="Test data, measured but never used.", readable=False)
    ] = None,
    fold: Annotated[
        int | None, typer.Option(help="Which fold of a folder with folds; else the first.", min=1)
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="The measure to optimise: nDCG, AP, P@5, nERR@10, …")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="type1, type2, type3 or swap.")] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Small, R5, CE5, R4.L, CE4.L, Linear, MLP(width=64), …")
    ] = None,
    trees: Annotated[
        bool,
        typer.Option(
            "--trees", help="Boosted trees instead of a net: parameters are BoostedRanker's."
        ),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs, or rounds of trees, at most.", min=1)
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's settings, but for your own.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", min=0)] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Parameters in a TOML file, as `twinrank tune` leaves one.", readable=False
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any parameter of Ranker, as key=value (may be repeated)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the run goes; else a folder named run.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Take up a run that was interrupted.", readable=False)
    ] = None,
    save_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints within an epoch.", min=0)
    ] = 300.0,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write curves to the run's tensorboard folder, too."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Train a ranker on the measure it is judged by; the run can be interrupted and resumed.

    The run's folder gets the configuration, a line of history per epoch, the model and curves.
    Ctrl-C finishes the step and saves; --resume goes on, to the very same weights.

    Example: twinrank train MQ2008 --fold 1 --objective AP --epochs 50 --out runs/ap
    """
    from twinrank.support.memory import keep_memory
    from twinrank.training.processes import processes_here

    keep_memory()
    given: dict[str, Any] = {"objective": objective, "strategy": strategy}
    given |= {"architecture": architecture, "epochs": epochs}
    given |= {"random_state": seed, "mode": "paper" if paper else None}
    files = {"data": data, "valid": valid, "test": test}
    folder = resume or out or Path("run")
    if resume is not None:
        if any(x not in (None, []) for x in (*given.values(), *files.values(), fold, config, out)):
            raise InputError("--resume takes data and parameters from the run: give it alone")
        if settings:
            raise InputError("--resume takes parameters from the run: leave --set out")
    source: dict[str, Any] = {name: _text(path) for name, path in files.items()}
    source |= {"fold": fold, "reading": {k: _text(v) for k, v in (reading or {}).items()}}
    if trees:
        if architecture is not None or tensorboard or resume is not None:
            raise InputError("--trees goes without --architecture, --tensorboard and --resume")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InputError("--trees are grown by one process: start it without torchrun")
        _trees(folder, source, config, settings, given, quiet)
        return
    callbacks = _tracking(folder, tensorboard)
    processes = processes_here()
    try:
        sets: dict[str, Dataset] = {}
        problem: TwinRankError | None = None
        if resume is None and processes.leads:
            try:
                sets = _begin(folder, source, config, settings, given, processes.count)
            except TwinRankError as error:
                problem = error
        # The others wait for the run's folder, and for the cache of the data, or hear of none.
        if any(processes.told("" if problem is None else "no run")):
            raise typer.Exit(2) if problem is None else problem
        _train(folder, sets, callbacks, quiet, save_every, processes)
    finally:
        processes.close()


def _begin(
    folder: Path,
    source: dict[str, Any],
    config: Path | None,
    settings: list[str] | None,
    given: dict[str, Any],
    processes: int,
) -> "dict[str, Dataset]":
    """Make the run's folder; the data that it is about."""
    from twinrank.estimators.parameters import parameters_of
    from twinrank.estimators.ranker import Ranker
    from twinrank.estimators.runs import begin_run

    chosen = parameters_of(Ranker, config, settings)
    chosen |= {name: value for name, value in given.items() if value is not None}
    sets = _sets(source)
    _about_widths(sets)
    begin_run(folder, chosen, source, sets, processes)
    return sets


def _trees(
    folder: Path,
    source: dict[str, Any],
    config: Path | None,
    settings: list[str] | None,
    given: dict[str, Any],
    quiet: bool,
) -> None:
    """Grow trees in one go."""
    from twinrank.boosting.reporting import reporter
    from twinrank.estimators.boosted import BoostedRanker
    from twinrank.estimators.parameters import parameters_of
    from twinrank.estimators.runs import train_trees
    from twinrank.support.text import counted

    own = {("n_estimators" if key == "epochs" else key): value for key, value in given.items()}
    chosen = parameters_of(BoostedRanker, config, settings)
    chosen |= {name: value for name, value in own.items() if value is not None}
    sets = _sets(source)
    _about_widths(sets)
    if not quiet:
        show_notes(sets["train"])
    ranker = train_trees(folder, chosen, source, sets, list(reporter(quiet)))
    if not quiet:
        best = "" if ranker.best_score_ is None else f", {ranker.best_score_:.4f}"
        rounds = counted(ranker.best_iteration_, "round")
        typer.echo(f"Model in {folder / 'model'} ({rounds}{best})")


def _tracking(folder: Path, wanted: bool) -> "list[Callback]":
    """TensorBoard where it is wanted, or was when the run began."""
    from twinrank.training.tracking import TensorBoard

    place = folder / "tensorboard"
    with explained("read", folder):
        return [TensorBoard(place)] if wanted or place.is_dir() else []


def _train(
    folder: Path,
    sets: "dict[str, Dataset]",
    callbacks: "list[Callback]",
    quiet: bool,
    save_every: float,
    processes: "Processes",
) -> None:
    """Train what the run's folder describes, from its last checkpoint on."""
    from twinrank.estimators.runs import continue_run, read_run
    from twinrank.support.text import counted
    from twinrank.training.loop import Interrupted, TrainingError
    from twinrank.training.processes import AbandonedError
    from twinrank.training.reporting import reporter

    quiet = quiet or not processes.leads
    if not sets:  # begun before, or by the process that leads
        about = read_run(folder)
        sets = _sets(about["source"])
        if not quiet:
            _about_threads(about, processes.count)
    if not quiet:
        show_notes(sets["train"])
    own = [*reporter(quiet), *callbacks] if processes.leads else []
    try:
        trained = continue_run(folder, sets, own, save_every, processes)
    except Interrupted as stop:
        if processes.leads:
            where = shlex.quote(str(folder))
            typer.echo(f"{stop}. Go on with: twinrank train --resume {where}", err=True)
        raise typer.Exit(130) from None
    except TrainingError as error:
        if processes.speaks(error):
            # At once: where a process has died, what started them all is about to end this one.
            again = "" if isinstance(error, AbandonedError) else "Once the data is mended, "
            more = "; other settings need a run of their own" if again else ""
            show_error(f"{error}{_hint(folder, again, more)}")
        raise typer.Exit(2) from error
    except FileError as error:
        raise FileError(f"{error}{_hint(folder, 'When that is mended, ')}") from error
    if not quiet:
        best = "" if trained.best is None else f", {trained.best}"
        epochs = counted(len(trained.history), "epoch")
        typer.echo(f"Model in {folder / 'model'} ({epochs}{best})")


def _hint(folder: Path, when: str, more: str = "") -> str:
    """How to go on from the last checkpoint, if there is one."""
    from twinrank.estimators.runs import CHECKPOINT

    if not (folder / CHECKPOINT).exists():
        return ""
    where, go = shlex.quote(str(folder)), f"{when}go on from the last checkpoint with"
    return f"\n{go[0].upper()}{go[1:]}: twinrank train --resume {where}{more}"


def _text(value: Any) -> Any:
    return str(value.absolute()) if isinstance(value, Path) else value


def _about_widths(sets: "dict[str, Dataset]") -> None:
    """LETOR text doesn't say how many features there are, if the last ones are absent."""
    widths = {data.features for data in sets.values()}
    if len(widths) > 1 and any(data.feature_names is None for data in sets.values()):
        counts = ", ".join(f"{data.name}: {data.features}" for data in sets.values())
        raise InputError(f"numbers of features differ ({counts}); say --features {max(widths)}")


def _about_threads(about: dict[str, Any], processes: int) -> None:
    """Weights depend on how many threads and processes there are, in the last bits."""
    import torch

    last_bits = "weights may differ in the last bits"
    parts = "dropout and batch norm see other parts of a batch, so weights will differ"
    for one, more, before, now, so in (
        ("thread", "threads", about["threads"], torch.get_num_threads(), last_bits),
        ("process", "processes", about["processes"], processes, parts),
    ):
        if now != before:
            typer.echo(
                f"Note: the run began with {before} {one if before == 1 else more} and goes on "
                f"with {now}: {so}",
                err=True,
            )


def _sets(source: dict[str, Any]) -> "dict[str, Dataset]":
    """Training, validation and perhaps test data."""
    try:
        names = [source[name] for name in ("data", "valid", "test")]
        data, valid, test = (None if name is None else Path(name) for name in names)
        fold, reading = source["fold"], source["reading"]
    except (KeyError, TypeError) as error:
        raise InputError(f"the run doesn't say what it was trained on: {error}") from None
    with in_words_of_options():
        whole_or_folds = source_of(data, reading, cut=1)
        if data is None or whole_or_folds.has_folds:
            if valid is not None or test is not None:
                raise InputError("--valid and --test go with a file of training data")
            return whole_or_folds.sets(fold or 1)
    if fold is not None:
        raise InputError(f"--fold goes with a folder of folds, and {data} is none")
    whole = load_data(data, reading)
    if valid is not None:
        found = {"train": whole, "validation": load_data(valid, reading)}
    else:
        found = dict(zip(("train", "validation"), whole.split(0.8), strict=True))
    if test is not None:
        found["test"] = load_data(test, reading)
    return found
