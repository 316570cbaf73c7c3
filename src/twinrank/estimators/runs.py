"""A training as a folder: its configuration, history, checkpoint, model and curves."""

import json
from pathlib import Path
from typing import Any

import torch

from twinrank.boosting.session import Session as Growing
from twinrank.data.dataset import Dataset
from twinrank.data.summary import fingerprint
from twinrank.estimators.boosted import BoostedRanker
from twinrank.estimators.checks import usable
from twinrank.estimators.places import CONFIG, MODEL
from twinrank.estimators.plain import checked_parameters
from twinrank.estimators.ranker import Ranker
from twinrank.models.folder import save_model
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, read_json, replacing, sweep
from twinrank.training.callbacks import Callback, HistoryFile, StopOnInterrupt
from twinrank.training.checkpoints import Checkpoints
from twinrank.training.curves import draw_history
from twinrank.training.processes import Processes
from twinrank.training.session import Session, Trained, versions

FORMAT, VERSION = "twinrank-run", 1
HISTORY, CHECKPOINT = "history.jsonl", "checkpoint.safetensors"


def begin_run(
    folder: Path,
    parameters: dict[str, Any],
    source: dict[str, Any],
    sets: dict[str, Dataset],
    processes: int = 1,
) -> None:
    """Make a run's folder, with all that is needed to take it up again.

    `sets` has the data by name, "train" among them.
    """
    train, others = _apart(sets)
    chosen = Ranker(**parameters).get_params(deep=False)
    Session(chosen).check(train, others)
    learnt, _ = usable(train, None)
    claim(folder)
    about: dict[str, Any] = {
        "parameters": chosen,
        "plan": Session(chosen).plan(learnt.documents).to_json(),
        "source": source,
        "data": {name: fingerprint(data) for name, data in sets.items()},
        "threads": torch.get_num_threads(),
        "processes": processes,
        "versions": versions(),
    }
    describe_run(folder, about)


def train_trees(
    folder: Path,
    parameters: dict[str, Any],
    source: dict[str, Any],
    sets: dict[str, Dataset],
    callbacks: list[Any],
) -> BoostedRanker:
    """Grow trees, and leave a run's folder as a net's training does; it isn't resumed."""
    ranker = BoostedRanker(**parameters)
    Growing.of(checked_parameters(ranker.get_params(deep=False))).newton()  # refuses mistakes
    claim(folder)
    train, others = _apart(sets)
    ranker.fit(train, eval_set=others, callbacks=callbacks)
    lines = "".join(json.dumps(record) + "\n" for record in ranker.history_)
    with replacing(folder / HISTORY) as partial:
        partial.write_text(lines, "utf-8")
    _draw(folder, ranker.history_, str(ranker.validation_measure))
    ranker.save(folder / MODEL)
    about = {"estimator": "BoostedRanker", "parameters": ranker.model_.provenance["parameters"]}
    describe_run(folder, about | {"source": source, "versions": versions()})
    return ranker


def claim(folder: Path) -> None:
    """Make a run's folder, which must not be in use."""
    with explained("write", folder):
        sweep(folder)  # what a run left that was killed before it began
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(
                f"{folder} exists and isn't empty; choose another --out, or --resume it"
            )
        folder.mkdir(parents=True, exist_ok=True)


def describe_run(folder: Path, about: dict[str, Any]) -> None:
    """Write what makes a folder that of a run."""
    whole = {"format": FORMAT, "version": VERSION, **about}
    with replacing(folder / CONFIG) as partial:
        text = json.dumps(whole, indent=1, ensure_ascii=False, default=str)
        partial.write_text(text + "\n", "utf-8")


def read_run(folder: Path) -> dict[str, Any]:
    """What a run's folder says about itself."""
    path = folder / CONFIG
    with explained("read", path):
        if not path.is_file():
            raise InputError(f"{folder} is not the folder of a run: there is no {CONFIG} in it")
    about = check_format(read_json(path), path, FORMAT, VERSION, "that of a run")
    if about.get("estimator") == "BoostedRanker":
        raise InputError(f"the run in {folder} is complete: trees are grown in one go")
    kinds = {"parameters": dict, "source": dict, "data": dict, "threads": int, "processes": int}
    for key, kind in kinds.items():
        if not isinstance(about.get(key), kind):
            raise InputError(f"{path} is damaged: {key} is missing, or not what it should be")
    if about["parameters"].keys() != Ranker().get_params().keys():
        raise InputError(f"{path} has other parameters than this version of TwinRank")
    return about


def continue_run(
    folder: Path,
    sets: dict[str, Dataset],
    callbacks: list[Callback],
    save_every: float = 300.0,
    processes: Processes | None = None,
) -> Trained:
    """Train to the end, from the last checkpoint if there is one; leave model and curves.

    Of several processes the one that leads writes.
    """
    about = read_run(folder)
    parameters = about["parameters"]
    train, others = _apart(sets)
    for name, data in sets.items():
        if about["data"].get(name) != fingerprint(data):
            raise InputError(f"the {name} data isn't what it was when the run in {folder} began")
    checkpoint = folder / CHECKPOINT
    leads = processes is None or processes.leads
    told: list[Callback] = [StopOnInterrupt()]
    if leads:
        told += [HistoryFile(folder / HISTORY), Checkpoints(checkpoint, save_every), *callbacks]
    session = Session(parameters)
    start = checkpoint if checkpoint.exists() else None
    trained = session.train(usable(train, None)[0], None, others, told, start, processes)
    if not leads:
        return trained
    save_model(trained.model, folder / MODEL)
    _draw(folder, trained.history, parameters["validation_measure"])
    return trained


def _draw(folder: Path, history: list[dict[str, Any]], measure: str) -> None:
    for suffix in (".svg", ".png"):
        draw_history(history, measure, folder / f"curves{suffix}")


def _apart(sets: dict[str, Dataset]) -> tuple[Dataset, dict[str, Dataset]]:
    """What trains, and what is measured."""
    return sets["train"], {name: data for name, data in sets.items() if name != "train"}
