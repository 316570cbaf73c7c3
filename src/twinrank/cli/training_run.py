"""A training of the command line: its data, the run in a folder, and what it prints."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinrank.cli.data_options import (
    as_option,
    load_data,
    load_unlabelled,
    show_notes,
    source_of,
    warnings_as_notes,
)
from twinrank.cli.output_options import is_quiet, show, show_error, show_json
from twinrank.cli.promotion_gate import (
    WORSE,
    clear_candidate,
    gate_result,
    gate_text,
    promote,
)
from twinrank.support.errors import FileError, InputError, TwinRankError, rendered

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.learning.estimators.base_ranker import BaseRanker
    from twinrank.learning.training.callbacks import Callback
    from twinrank.learning.training.process_group import ProcessGroup

ONLY_NETS = ("unlabelled", "teacher")
"""Options that `fit` of trees does not have."""


def run_training(
    ranker: "BaseRanker",
    folder: Path,
    source: dict[str, Any],
    group: "ProcessGroup",
    callbacks: "list[Callback]",
    resume: bool,
    save_every: float,
    log: str | None,
) -> None:
    """Train in a folder, and print the outcome, or how to continue."""
    from twinrank.learning.estimators.parameters import own_net
    from twinrank.learning.estimators.saved_ranker import load_model
    from twinrank.learning.training.callbacks import TrainingInterrupted
    from twinrank.learning.training.console import JsonLines, console
    from twinrank.learning.training.learner import TrainingError
    from twinrank.learning.training.process_group import ProcessLostError
    from twinrank.learning.training.run_folder import Run

    ranker.check_parameters()  # before data is read
    sets = _load(source, group)
    if group.is_main:
        show_notes(sets["train"])
    newest, out = sets.pop("gate", None), Path(source.get("out") or folder)
    if newest is not None:
        if group.size > 1:
            raise InputError("--gate needs a single process: train without torchrun.")
        if not resume:
            clear_candidate(folder)
        old = load_model(source["from"], own_net(ranker))
    run = Run(folder, resume, source, save_every, group)
    more = {name: source[name] for name in ONLY_NETS if source.get(name) is not None}
    if "unlabelled" in more:
        more["unlabelled"] = sets.pop("unlabelled")
    if source.get("calibrate") is not None:
        more["calibrate"] = source["calibrate"]
    if source.get("current") is not None:
        more["current"] = source["current"]
    if source.get("from") is not None:
        more["init_model"] = source["from"]
    evaluation = {name: data for name, data in sets.items() if name != "train"}
    if log:
        callbacks = [*([JsonLines()] if group.is_main else []), *callbacks]
    elif not ranker.verbose:  # else the ranker shows its progress itself
        callbacks = [*console(is_quiet() or not group.is_main), *callbacks]
    try:
        with warnings_as_notes(quiet=not group.is_main):
            ranker.fit(sets["train"], eval_set=evaluation, callbacks=callbacks, run=run, **more)
    except TrainingInterrupted as stop:
        if group.is_main:
            command = _command(folder, ranker)
            show(f"{stop} Continue with: {command}", err=True)
        raise typer.Exit(130) from None
    except TrainingError as error:
        if group.reports(error):
            # At once: if a process has died, the launcher is about to end this one.
            lost = isinstance(error, ProcessLostError)
            hint = _hint(run, ranker, "" if lost else "When the data is fixed, ")
            if hint and not lost:
                hint.append("\nOther parameters need a new run.")
            show_error(rendered([*error.parts, *hint], as_option))
        raise typer.Exit(2) from error
    except FileError as error:
        raise FileError(*error.parts, *_hint(run, ranker, "When that is fixed, ")) from error
    result = {"gate": gate_result(old, ranker, newest)} if newest is not None else {}
    worse = bool(result) and not result["gate"]["passed"]
    if result and not worse:
        promote(folder, out)
    elif worse:
        out = folder
    if group.is_main:
        if not is_quiet():
            show(f"Model in {out / 'model'} ({_outcome(ranker)})", err=log is not None)
            for check in ranker.constraints_:
                show(str(check), err=log is not None)
        if result and (worse or not is_quiet()):
            show(gate_text(result["gate"]), err=worse or log is not None)
        show_json({**_result(ranker, out), **result})
    if worse:
        raise typer.Exit(WORSE)


def _result(ranker: "BaseRanker", folder: Path) -> dict[str, Any]:
    """The outcome of a training for JSON."""
    checks = [check.to_json() for check in ranker.constraints_]
    return {
        "model": folder / "model",
        "kind": ranker.kind,
        "unit": ranker.iteration_name(),
        "iterations": len(ranker.history_),
        "best_iteration": ranker.best_iteration_,
        "measure": ranker.selected_by,
        "best_score": ranker.best_score_,
        **({"constraints": checks} if checks else {}),
        **({"weights": ranker.weights_} if hasattr(ranker, "weights_") else {}),
    }


def _outcome(ranker: "BaseRanker") -> str:
    """The length of a training and the value of its model, or the weights of a blend."""
    from twinrank.support.quantities import counted

    weights: dict[str, float] = getattr(ranker, "weights_", {})
    length, place = counted(len(ranker.history_), ranker.iteration_name()), ranker.best_iteration_
    kept = f" in {ranker.iteration_name()} {place}"
    if weights:
        length = "weights " + " and ".join(f"{w:.2f} {name}" for name, w in weights.items())
        kept = ""
    if ranker.best_score_ is None:
        return length
    return f"{length}, {ranker.selected_by} {ranker.best_score_:.4f}{kept}"


def _load(source: dict[str, Any], group: "ProcessGroup") -> "dict[str, Dataset]":
    """The data sets. The main process goes first, so that the others find its cache."""
    sets: dict[str, Dataset] = {}
    problem: TwinRankError | None = None
    if group.is_main:
        try:
            sets = _sets(source)
        except TwinRankError as error:
            problem = error
    if any(group.all_gather("" if problem is None else "failed")):
        raise typer.Exit(2) if problem is None else problem
    return sets or _sets(source)


def _sets(source: dict[str, Any]) -> "dict[str, Dataset]":
    """Training and validation data, and perhaps test and unlabelled data."""
    from twinrank.experiments.study.study_source import Split, text_columns

    try:
        data, reading = source["data"], source["reading"]
        places = {name: source[name] for name in ("fold", "valid", "test")}
    except (KeyError, TypeError) as error:
        raise InputError(
            f"The run was started by fit() in Python ({error} is missing). Resume it there: "
            f"fit(…, run=folder, resume=True)."
        ) from None
    if source.get("clicks") is not None:
        return _sampled(_click_sets(source), source)
    split = Split(source_of(None if data is None else Path(data), reading, cut=1), **places)
    with warnings_as_notes(is_quiet()):
        sets = _sampled(split.sets(progress=False if is_quiet() else None), source)
    if source.get("gate") is not None:
        sets["gate"] = load_data(Path(source["gate"]), reading, text_columns(sets["train"]))
    if source.get("unlabelled") is not None:
        path, text = Path(source["unlabelled"]), text_columns(sets["train"])
        sets["unlabelled"] = load_unlabelled(path, reading, text)
    return sets


def _sampled(sets: "dict[str, Dataset]", source: dict[str, Any]) -> "dict[str, Dataset]":
    """The sets, with the share of the training queries that is asked for."""
    share = source.get("sample_queries")
    return dict(sets) if share is None else {**sets, "train": sets["train"].split(share)[0]}


def _click_sets(source: dict[str, Any]) -> "dict[str, Dataset]":
    """Credits of clicks; validation and test data of their own have labels."""
    from twinrank.cli.click_files import click_sets
    from twinrank.experiments.study.study_source import text_columns

    if source["fold"] is not None:
        raise InputError("--clicks needs a file of DATA with the features, without --fold.")
    data = None if source["data"] is None else Path(source["data"])
    train, held_out = click_sets(source, data, source["reading"])
    sets = {"train": train, "validation": held_out}
    for name, option in (("validation", "valid"), ("test", "test")):
        if source[option] is not None:
            sets[name] = load_data(Path(source[option]), source["reading"], text_columns(train))
    return sets


def _command(folder: Path, ranker: "BaseRanker") -> str:
    """The command that continues a run."""
    from twinrank.learning.estimators.parameters import own_net

    words = ["twinrank", "train", "--resume", str(folder)]
    own = own_net(ranker)
    if own is not None:
        words += ["--architecture", own]
    return shlex.join(words)


def _hint(run: Any, ranker: "BaseRanker", when: str) -> list[str]:
    """How to continue from the last checkpoint, if there is one."""
    if not run.has_checkpoint:
        return []
    sentence = f"{when}continue from the last checkpoint with"
    return [f"\n{sentence[0].upper()}{sentence[1:]}: {_command(run.folder, ranker)}"]
