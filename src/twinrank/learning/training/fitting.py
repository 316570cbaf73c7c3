"""One training from an estimator's parameters to a model: what `fit` and `twinrank train` do."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.data.summary import fingerprint
from twinrank.learning.models.encoding import Encoding
from twinrank.learning.models.saved_model import RUN_MODEL, Model, with_earlier_calibration
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.checkpoints import load_checkpoint
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Task, learner_class
from twinrank.learning.training.loop import Trainer
from twinrank.learning.training.own_code import identities
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.run_folder import Run, explaining_resume
from twinrank.learning.training.settings import Plan, is_auto
from twinrank.learning.training.validation import selecting_set
from twinrank.support.compiled import threads
from twinrank.support.errors import Argument, InputError
from twinrank.support.versions import versions


def check_parameters(
    kind: str, parameters: Mapping[str, Any], documents: int = 0
) -> dict[str, Any]:
    """An estimator's parameters with "auto" resolved; InputError for those that cannot be used."""
    return _checked(kind, parameters, documents)[0]


def _checked(
    kind: str, parameters: Mapping[str, Any], documents: int, calls: int = 0
) -> tuple[dict[str, Any], Plan]:
    """The resolved parameters, and their plan."""
    learner = learner_class(kind)
    resolved = learner.resolve(parameters, documents)
    plan = Plan.of(resolved, learner.iterations_parameter, calls)
    learner.check(resolved)
    return resolved, plan


def train_model(
    kind: str,
    parameters: Mapping[str, Any],
    saved: Mapping[str, Any],
    train: TrainingSet,
    evaluation: Mapping[str, Dataset],
    encoding: Encoding,
    *,
    callbacks: Sequence[Callback] = (),
    run: Run | None = None,
    previous: Model | None = None,
    group: ProcessGroup | None = None,
) -> Model:
    """Train a model, in a run's folder if there is one.

    `train` holds trainable queries only, and on a cluster those of this worker of `group`. `saved`
    are the parameters as JSON. All data has the codes of `encoding`. `previous` is the model to
    continue from; each continuation has its own random numbers.
    """
    learner_type = learner_class(kind)
    if group is None:
        group = ProcessGroup() if run is None else run.group
    documents = int(group.add_parts([train.data.documents])[0])
    resolved, plan = _checked(kind, parameters, documents, _continuations(previous))
    check_constraints_of(plan, train, evaluation)
    if run is not None and group.size > 1 and not learner_type.distributed:
        raise InputError("Train trees without torchrun, which trains nets only.")

    def report(record: dict[str, float]) -> None:
        for callback in callbacks if group.is_main else ():
            callback.on_pretrain_epoch(record)

    def announce(note: str) -> None:
        for callback in callbacks if group.is_main else ():
            callback.on_prepare(note)

    task = Task(train, evaluation, plan, group, previous, report, encoding.counts, announce)
    resolved = learner_type.decide(parameters, resolved, task)
    # A continued training has the earlier values, and an architecture that is no JSON.
    replaced = {
        name: value
        for name, value in resolved.items()
        if is_auto(saved.get(name)) and isinstance(value, str | int | float | None)
    }
    about = {
        "parameters": dict(saved),
        "resolved": {name: value for name, value in replaced.items() if not is_auto(value)},
        "plan": plan.to_json(),
        **described(train, group),
        "threads": threads(),
        "versions": versions(*learner_type.packages(resolved)),
        **continued(previous),
    }
    prints = {}
    if run is not None:
        prints = fingerprints(train, evaluation, previous) | identities(parameters)
    if run is not None:
        run.check(kind, about, prints)
        if run.resume and run.checkpoint.exists():  # which holds the pre-trained weights
            task = replace(task, train=replace(train, unlabelled=None))
    learner = learner_type.prepare(resolved, task)
    if run is not None:  # after all errors in data and parameters, so that they leave no folder
        run.begin(kind, about, prints)
    trainer = Trainer(learner, task, callbacks if run is None else run.callbacks(callbacks))
    if run is not None and run.resume and run.checkpoint.exists():
        load_checkpoint(trainer, run.checkpoint)
    with explaining_resume(run):
        trainer.run()
    best, history = trainer.best, trainer.progress.history
    if checks := [check.to_json() for check in trainer.validation.checks()]:
        about["constraints"] = checks
    model = replace(
        learner.finish(),
        encoding=encoding,
        history=history,
        best_iteration=len(history) if best is None else best.kept,
        best_score=None if best is None else best.value,
        provenance=about | ({"identities": own} if (own := identities(parameters)) else {}),
    )
    if run is not None and group.is_main:
        if run.resume:
            model = with_earlier_calibration(model, run.folder / RUN_MODEL, run.calibrated)
        run.complete(model, learner.iteration_name, str(plan.validation_measure))
    return model


def check_constraints_of(plan: Plan, train: TrainingSet, evaluation: Mapping[str, Dataset]) -> None:
    """Raise InputError if constraints cannot be checked, or if nothing needs `current`."""
    selecting, own = selecting_set(plan.select, evaluation), plan.constrained
    if train.current and (own is None or not own.needs_current):
        raise InputError(
            Argument("current"),
            " needs an objective with a constraint on it, such as 'AP subject to nDCG@10 >= "
            "current - 0.002'.",
        )
    if own is None:
        return
    if selecting is None:
        raise InputError(
            f"{own} needs validation queries, on which its constraints are checked: pass eval_set "
            f"or eval_fraction."
        )
    if own.needs_current and selecting not in train.current:
        raise InputError(
            f"{own} compares with the current ranker: pass it, or its scores of evaluation set "
            f"{selecting!r}, as ",
            Argument("current"),
            ".",
        )


def described(train: TrainingSet, group: ProcessGroup | None = None) -> dict[str, Any]:
    """What a model was trained on, for its configuration."""
    sets = {"data": train.data, "unlabelled": train.unlabelled}
    about: dict[str, Any] = {
        name: {"name": data.name, "queries": data.queries, "documents": data.documents}
        for name, data in sets.items()
        if data is not None
    }
    if group is not None:
        sizes = group.add_parts([train.data.queries, train.data.documents])
        about["data"] |= dict(zip(("queries", "documents"), map(int, sizes), strict=True))
    return about if train.teacher is None else {**about, "teacher": _crc(train.teacher)}


def continued(previous: Model | None) -> dict[str, Any]:
    """Which model a training continued, and how often that has happened, for its configuration."""
    if previous is None:
        return {}
    return {"init_model": _model_crc(previous), "partial_fits": _continuations(previous)}


def _continuations(previous: Model | None) -> int:
    """How often a training has continued, with the one that begins."""
    return 0 if previous is None else previous.continuations + 1


def fingerprints(
    train: TrainingSet, evaluation: Mapping[str, Dataset], previous: Model | None = None
) -> dict[str, str]:
    """Fingerprints of data sets by name, and of the model to continue, to notice others."""
    own = fingerprint(train.data)
    if train.weights is not None:
        own = f"{own}-{_crc(train.weights)}"
    prints = {name: fingerprint(part) for name, part in evaluation.items()}
    prints["train"] = own  # an evaluation set may be called "train" too
    if train.unlabelled is not None:
        prints["unlabelled"] = fingerprint(train.unlabelled)
    if train.teacher is not None:
        prints["teacher"] = _crc(train.teacher)
    prints |= {f"{name} current": _crc(scores) for name, scores in train.current.items()}
    if previous is not None:
        prints["init_model"] = _model_crc(previous)
    return prints


def _model_crc(model: Model) -> str:
    """The checksum of a model's weights or trees."""
    files = model.parts()[1]
    return f"{zlib.crc32(b''.join(files[name] for name in sorted(files))):08x}"


def _crc(array: npt.NDArray[Any]) -> str:
    return f"{zlib.crc32(array.tobytes()):08x}"
