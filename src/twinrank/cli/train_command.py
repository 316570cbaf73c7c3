"""twinrank train: train a ranker in a folder, resumable."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import AtLeastOne, Settings
from twinrank.cli.data_options import takes_data
from twinrank.cli.output_options import show_note, takes_output, wants_json
from twinrank.cli.promotion_gate import candidate_of, check_replaceable
from twinrank.cli.training_run import ONLY_NETS, run_training
from twinrank.support.errors import InputError, TwinRankError, explained, unknown

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker
    from twinrank.learning.training.callbacks import Callback
    from twinrank.learning.training.process_group import ProcessGroup


PANELS = {
    "Data": (
        *("valid", "test", "fold", "sample_queries", "unlabelled", "teacher", "clicks"),
        *("propensities", "estimator", "safe"),
    ),
    "Model and training": (
        *("start", "objective", "current", "strategy", "architecture", "trees", "per_document"),
        *("blend", "epochs", "paper", "calibrate", "seed", "config", "settings"),
    ),
    "Run": ("out", "gate", "resume", "save_every", "tensorboard", "log"),
}


@takes_output
@takes_data()
def train(
    data: Path | None = None,
    *,
    valid: Path | None = None,
    test: Path | None = None,
    fold: AtLeastOne = None,
    sample_queries: Annotated[float | None, typer.Option(metavar="SHARE")] = None,
    objective: str | None = None,
    strategy: str | None = None,
    architecture: str | None = None,
    trees: bool = False,
    per_document: bool = False,
    blend: bool = False,
    unlabelled: Path | None = None,
    teacher: Path | None = None,
    current: Path | None = None,
    clicks: Path | None = None,
    propensities: Path | None = None,
    estimator: str | None = None,
    safe: Annotated[float | None, typer.Option(min=0)] = None,
    start: Annotated[Path | None, typer.Option("--from")] = None,
    epochs: AtLeastOne = None,
    paper: bool = False,
    calibrate: str | None = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    config: Path | None = None,
    settings: Settings = None,
    out: Path | None = None,
    gate: Path | None = None,
    resume: Path | None = None,
    save_every: Annotated[float, typer.Option(min=0)] = 300.0,
    tensorboard: bool = False,
    log: Annotated[str | None, typer.Option(metavar="json")] = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Train a ranker on the measure it is judged by.

    The folder of the run gets the parameters (run.json), a line of history
    per epoch or round, checkpoints, the model and its curves. Ctrl-C finishes
    the current step and saves; --resume continues to the very same model.

    Example: twinrank train MQ2008 --fold 1 --objective AP --out runs/ap

    Parameters
    ----------
    data
        Training data: a file, a folder or pattern of tables, an address (s3://…), or a folder
        with folds (see --fold). Default: the built-in synthetic data.
    valid
        Validation data. Default: a fifth of the queries.
    test
        Test data: evaluated, never used for training.
    fold
        The fold of a folder with folds. Default: 1.
    sample_queries
        Train on this share of the training queries, such as 0.3, drawn at random: for data that
        does not fit into memory. Default: all.
    objective
        The measure to optimise: nDCG (default), AP, P@5, …; or a loss by name: ListNet, …; or a
        weighted sum, also with constraints: "nDCG(label=order)@10 subject to nDCG@10 >= current
        - 0.002".
    strategy
        The gradient of a measure: type1, type2, type3 (default) or swap.
    architecture
        Small, R5, CE5, R4.L, CE4.L, Linear, MLP(width=64), …, with options such as
        Small(context=pool), context=attention, shared=true or embedding=linear; or your own
        net as package.module:name.
    trees
        Train boosted trees (BoostedRanker) instead of a net (Ranker).
    per_document
        Train boosted trees on raw features, whose score of a document does not depend on the
        others of its query: twinrank export writes them for search engines.
    blend
        Train boosted trees and a net, and rank by their weighted scores.
    unlabelled
        Lists with the same features to pre-train a net on; labels are ignored.
    teacher
        The folder of a model or run whose scores a net also learns from.
    current
        The folder of the current model, with which constraints of --objective compare.
    clicks
        Learn from this log of clicks on DATA instead of labels: .csv, .tsv, .parquet, or a folder
        as for inspect. A fifth of its queries validates.
    propensities
        Propensities for --clicks, from inspect --save-propensities. Default: those of the log, or
        estimates.
    estimator
        For --clicks: ips (default), dr, two-tower or naive.
    safe
        For --clicks: stay near the ranker that collected the log; 30 suits short logs (default: 0).
    start
        Continue from the model or run in this folder, with its parameters unless you set others:
        trees get further trees, nets start from its weights.
    epochs
        The maximum number of epochs, or of boosting rounds.
    paper
        Use the paper's settings for all that you do not set.
    calibrate
        Learn on the validation data what scores mean: probability, grade, or
        "probability(relevant=2)". See twinrank calibrate.
    seed
        The random seed. Default: 0.
    config
        Parameters in a TOML file, such as the one that `twinrank tune` writes.
    settings
        Any parameter of Ranker, with --trees of BoostedRanker, or with --blend of Blend
        (net__transforms=Standardise), as key=value. Repeatable.
    out
        The folder of the run. Default: run.
    gate
        The newest queries, not used in training: --out changes only if the new model is not
        significantly worse on them than that of --from. Else it stays in OUT.candidate, and the
        exit code is 3.
    resume
        Continue the interrupted run in this folder. Use alone, but name your own net again
        with --architecture.
    save_every
        Seconds between checkpoints within an epoch.
    tensorboard
        Also write curves for TensorBoard.
    log
        Progress as json: one JSON line per epoch or round on standard output, and nothing else
        there (default: a bar or lines on standard error).
    """
    from twinrank.learning.models.kinds import KINDS
    from twinrank.learning.training.process_group import current_group
    from twinrank.support.memory import keep_memory

    keep_memory()
    if log not in (None, "json"):
        raise InputError(unknown("log", log, ["json"]))
    if log and wants_json():
        raise InputError("--log json prints JSON lines already: remove --json.")
    options: dict[str, Any] = {
        "objective": objective,
        "strategy": strategy,
        "epochs": epochs,
        "random_state": seed,
        "mode": "paper" if paper else "per-document" if per_document else None,
    }
    if per_document and (paper or blend):
        raise InputError(
            f"--per-document trains trees with settings of their own: remove "
            f"--{'paper' if paper else 'blend'}."
        )
    trees = trees or per_document
    files = {"data": data, "valid": valid, "test": test}
    files |= {"unlabelled": unlabelled, "teacher": teacher, "from": start, "gate": gate}
    files |= {} if current is None else {"current": current}
    if clicks is None and (propensities or estimator or safe is not None):
        raise InputError("--propensities, --estimator and --safe need --clicks.")
    if clicks is not None:
        files |= {"clicks": clicks, "propensities": propensities}
    if sample_queries is not None and not 0 < sample_queries < 1:
        raise InputError(f"--sample-queries must lie between 0 and 1, not {sample_queries:g}.")
    if resume is not None and any(
        value not in (None, [], False)
        for value in (
            *options.values(),
            *files.values(),
            fold,
            sample_queries,
            safe,
            config,
            out,
            settings,
            calibrate,
        )
    ):
        raise InputError(
            "--resume reads data and parameters from the run: remove the other options."
        )
    folder = resume or out or Path("run")
    if gate is not None:
        if start is None:
            raise InputError("--gate compares with the model of --from: name it.")
        check_replaceable(folder)
    source: dict[str, Any] = {name: _text(path) for name, path in files.items()}
    source |= {} if clicks is None else {"estimator": estimator, "safe": safe}
    source |= {} if calibrate is None else {"calibrate": calibrate}
    source |= {} if sample_queries is None else {"sample_queries": sample_queries}
    source |= {"fold": fold, "reading": {k: _text(v) for k, v in (reading or {}).items()}}
    if gate is not None:
        source["out"], folder = _text(folder), candidate_of(folder)
    group = current_group()
    if trees and blend:
        raise InputError("--blend trains trees too: remove --trees.")
    kind = "trees" if trees else "blend" if blend else "net"
    try:
        if resume is None:
            options["architecture"] = architecture
            ranker = _ranker(kind, start, clicks, config, settings or [], options)
            for name in ONLY_NETS:
                if ranker.kind != "net" and files[name] is not None:
                    raise InputError(f"--{name} is for nets, not for {KINDS[ranker.kind].noun}.")
        else:
            ranker, source = _resumed(folder, architecture, kind, group)
        callbacks = _tracking(folder, tensorboard)
        run_training(ranker, folder, source, group, callbacks, resume is not None, save_every, log)
    except TwinRankError:
        if group.is_main:
            raise
        raise typer.Exit(2) from None
    finally:
        group.close()


def _ranker(
    kind: str,
    start: Path | None,
    clicks: Path | None,
    config: Path | None,
    settings: list[str],
    options: dict[str, Any],
) -> "BaseRanker":
    """The estimator that the options describe; a model to continue has the other parameters."""
    from twinrank.cli.click_files import use_linear_measures
    from twinrank.learning.estimators.parameters import parameters_of
    from twinrank.learning.estimators.saved_ranker import estimator_class, load_model
    from twinrank.learning.models.kinds import KINDS
    from twinrank.learning.models.saved_model import needs_architecture

    ranker: BaseRanker = estimator_class(kind)()
    if start is not None:
        ranker = load_model(start, options["architecture"] if needs_architecture(start) else None)
        if kind not in ("net", ranker.kind):
            raise InputError(f"{start} holds {KINDS[ranker.kind].noun}: remove --{kind}.")
    if clicks is not None:
        use_linear_measures(ranker)
    estimator = type(ranker)
    ranker.set_params(**parameters_of(estimator, config, settings))
    for name, value in options.items():
        if value is None:
            continue
        names = ranker._named(name)
        if name == "epochs":
            names += ranker._named("n_estimators")
        if not names:
            raise InputError(f"{estimator.__name__} has no option --{name}.")
        ranker.set_params(**dict.fromkeys(names, value))
    return ranker


def _resumed(
    folder: Path, architecture: str | None, kind: str, group: "ProcessGroup"
) -> "tuple[BaseRanker, dict[str, Any]]":
    """The estimator and the source of a run that was started before."""
    from twinrank.learning.estimators.parameters import loaded_parameters, own_net
    from twinrank.learning.estimators.saved_ranker import estimator_class
    from twinrank.learning.models.kinds import KINDS
    from twinrank.learning.training.run_folder import read_run

    about = read_run(folder)
    estimator = estimator_class(about["kind"])
    parameters = about["parameters"]
    if kind not in ("net", estimator.kind):
        what = KINDS[estimator.kind].noun
        raise InputError(f"The run in {folder} trains {what}: remove --{kind}.")
    if parameters.keys() != set(estimator._get_param_names()):
        raise InputError(f"{folder} was started by another version of TwinRank; train again.")
    try:
        ranker = estimator(**loaded_parameters(about, estimator))
    except InputError as error:
        raise InputError(f"{folder / 'run.json'} is damaged: ", *error.parts) from error
    own = own_net(ranker)
    chosen = [ranker.get_params()[name] for name in ranker._named("architecture")]
    if architecture is not None and architecture not in chosen:
        names = " and ".join(map(str, chosen)) or None
        raise InputError(f"The run in {folder} has the architecture {names}, not {architecture}.")
    if architecture is None and own is not None:
        raise InputError(
            f"The run in {folder} trains your own net. TwinRank imports no code by itself; name "
            f"the net again with --resume {shlex.quote(str(folder))} --architecture {own}."
        )
    if estimator.kind == "blend":
        ranker.check_parameters()  # its description may be damaged
    if group.is_main:
        _note_changes(about, group.size)
    return ranker, about["source"]


def _tracking(folder: Path, wanted: bool) -> "list[Callback]":
    """TensorBoard if it is wanted, or was when the run started."""
    from twinrank.training import TensorBoard

    place = folder / "tensorboard"
    with explained("read", folder):
        return [TensorBoard(place)] if wanted or place.is_dir() else []


def _text(value: Any) -> Any:
    if not isinstance(value, Path):
        return value
    from twinrank.experiments.study.study_source import absolute

    return absolute(value)


def _note_changes(about: dict[str, Any], processes: int) -> None:
    """Results depend on the numbers of threads and processes, in the last bits or more."""
    from twinrank.learning.training.learner import learner_class
    from twinrank.support.compiled import threads

    bits = "weights may differ in the last bits"
    parts = "dropout and batch norm see other parts of a batch, so weights will differ"
    changes = [(about["processes"], processes, "process", "processes", parts)]
    parameters = about["parameters"]
    rankers = parameters.get("rankers", {"": {**parameters, "kind": about["kind"]}}).values()
    if any(learner_class(each["kind"]).depends_on_threads(each) for each in rankers):
        changes.append((about["threads"], threads(), "thread", "threads", bits))
    for before, now, singular, plural, effect in changes:
        if now != before:
            show_note(
                f"The run started with {before} {singular if before == 1 else plural} and "
                f"continues with {now}: {effect}."
            )
