"""The data of a training, from the arguments of `fit` to encoded columns."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.clicks.click_log import ClickLog
from twinrank.data.batches import rows_of
from twinrank.data.dataset import Dataset
from twinrank.learning.estimators.parameters import named_columns
from twinrank.learning.estimators.saved_ranker import load_model
from twinrank.learning.estimators.warm_start import continued_data
from twinrank.learning.models.encoding import Encoding, columns_of
from twinrank.learning.models.saved_model import Model
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.fit_arguments import (
    KnownColumns,
    TrainingSet,
    as_evaluation_sets,
    as_unlabelled,
    current_scores,
    known_columns,
    labelled,
    split_queries,
    teacher_scores,
)
from twinrank.learning.training.matched_data import matched, matched_sets, papers_queries
from twinrank.learning.training.run_folder import Run, has_begun
from twinrank.support.errors import Argument, DataWarning, InputError, warn

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker


@dataclass(frozen=True, eq=False)
class FitArguments:
    """The arguments of a call of `fit`; those that only nets take come last."""

    X: Any
    y: Any
    qid: Any
    group: Any
    sample_weight: Any
    eval_set: Any
    eval_qid: Any
    eval_group: Any
    eval_fraction: float | None
    callbacks: Sequence[Callback]
    run: str | os.PathLike[str] | Run | None
    resume: bool
    init_model: Any
    calibrate: Any
    current: Any
    unlabelled: Any = None
    teacher: Any = None

    def passes_more_than(self, *names: str) -> bool:
        """True if the call has other arguments than these."""
        others = {own.name for own in fields(self)} - {*names, "callbacks", "resume"}
        plain = bool(self.callbacks) or self.resume
        return plain or any(getattr(self, name) is not None for name in others)


def training_data(
    ranker: "BaseRanker", call: FitArguments, previous: Model | None
) -> tuple[TrainingSet, dict[str, Dataset]]:
    """The training set and the evaluation sets of a call of `fit`."""
    if isinstance(call.X, ClickLog):
        raise InputError(
            "fit takes documents with labels, not a log: pass log.to_dataset(propensities)."
        )
    known = KnownColumns(named_columns(ranker)) if previous is None else known_columns(previous)
    data, weights = labelled(call.X, call.y, call.qid, call.group, call.sample_weight, known)
    names = data.feature_names
    if names is not None:
        known = known._replace(text=tuple(names[column] for column in data.categories))
    lists = as_unlabelled(call.unlabelled, known)
    scores = teacher_scores(_ranker_of(call.teacher), data, own_order=isinstance(call.X, Dataset))
    if previous is not None:
        if lists is not None:
            raise InputError(
                Argument("unlabelled"), " is for new nets: leave it out with init_model."
            )
        data = continued_data(data, previous)
        ranker._check_continues(previous, data)
    train = TrainingSet(data, weights, scores, lists)
    sets = as_evaluation_sets(call.eval_set, call.eval_qid, call.eval_group, known)
    if call.eval_fraction is not None:
        if sets:
            raise InputError("Pass eval_set or eval_fraction, not both.")
        kept, held = split_queries(data, call.eval_fraction, ranker.random_state)
        train, sets = train.select(kept), {"validation": data.select(held)}
    current = current_scores(_ranker_of(call.current), sets, call.eval_set)
    return replace(train, current=current), sets


def _ranker_of(value: Any) -> Any:
    """A ranker that is passed as the folder of a saved one; other values unchanged."""
    return load_model(value) if isinstance(value, str | os.PathLike) else value


def opened_run(run: str | os.PathLike[str] | Run | None, resume: bool) -> Run | None:
    """The run of a folder; an empty folder has nothing to resume."""
    if run is None:
        if resume:
            raise InputError("resume=True needs the folder of a run; pass run.")
        return None
    if isinstance(run, Run):
        return run
    folder = Path(run).expanduser()
    if resume and not has_begun(folder):
        warn(DataWarning(f"{folder} is empty, so that training starts from the beginning."))
        resume = False
    return Run(folder, resume)


def papers_data(
    train: TrainingSet, sets: dict[str, Dataset]
) -> tuple[TrainingSet, dict[str, Dataset]]:
    """The queries that the mode "paper" keeps, with a warning about the others."""
    (kept, *others), note = papers_queries([("training", train.data), *sets.items()])
    if note:
        warn(DataWarning(*note))
    chosen = dict(zip(sets, others, strict=True))
    current = {
        name: scores[rows_of(sets[name].lists, chosen[name])]
        for name, scores in train.current.items()
    }
    train = replace(train.select(kept), current=current)
    return train, {name: sets[name].select(queries) for name, queries in chosen.items()}


def encoded_data(
    ranker: "BaseRanker", train: TrainingSet, sets: dict[str, Dataset], previous: Model | None
) -> tuple[TrainingSet, dict[str, Dataset], Encoding]:
    """The data with the features of the training data and the codes of categories, checked."""
    data, unlabelled, estimator = train.data, train.unlabelled, type(ranker).__name__
    names = data.feature_names
    sets = matched_sets(sets, data, estimator)
    if unlabelled is not None:
        unlabelled = matched(unlabelled, data.features, names, estimator, "the unlabelled data")
    if previous is None:
        chosen = columns_of(ranker.categorical_features, data.features, names)
        encoding = Encoding.learned(data, chosen)
    else:
        encoding = previous.encoding
    data = encoding(data)
    sets = {name: encoding(part) for name, part in sets.items()}
    unlabelled = None if unlabelled is None else encoding(unlabelled)
    for part in (data, *sets.values(), *(() if unlabelled is None else (unlabelled,))):
        ranker._check_values(part, previous, tuple(encoding.columns))
    return replace(train, data=data, unlabelled=unlabelled), sets, encoding
