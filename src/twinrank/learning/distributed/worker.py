"""What a worker of a cluster does: train on its own part of the data, together with the others.

It runs the training loop of one machine. Only sums differ: those of histograms are added up by the
engine's own network, those of measures, hessians and scores by the group. So all workers take the
same decisions, and grow the same trees.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinrank.core.measures.constraints import constrained
from twinrank.core.own_losses import is_own_loss
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import transform
from twinrank.learning.distributed.engine_network import network, network_params
from twinrank.learning.distributed.socket_group import SocketGroup, lost_worker
from twinrank.learning.models.encoding import Encoding, columns_of
from twinrank.learning.models.saved_model import Model
from twinrank.learning.training.fit_arguments import (
    TrainingSet,
    as_dataset,
    labelled,
    trainable_queries,
)
from twinrank.learning.training.fitting import train_model
from twinrank.learning.training.matched_data import matched
from twinrank.learning.training.process_group import ProcessGroup, ProcessLostError
from twinrank.support.compiled import threads_at_most
from twinrank.support.errors import Argument, InputError

_NOTICE_SECONDS = 3.0


@dataclass(frozen=True)
class Job:
    """A training on a cluster."""

    parameters: Mapping[str, Any]
    """Those of the estimator, checked."""
    saved: Mapping[str, Any]
    """The same as JSON."""


def check_available(resolved: Mapping[str, Any]) -> None:
    """Refuse parameters that need all the data in one place; "auto" is resolved."""
    if constrained(resolved["objective"]) is not None:
        raise InputError("Constraints are not available on a cluster: train on one machine.")
    if is_own_loss(resolved["objective"]):
        raise InputError(
            "On a cluster, an objective must be a measure or one of the engine's own, not a loss "
            "of your own. Register a measure, or train on one machine."
        )
    if transform(resolved["transforms"]).has_statistics:
        raise InputError(
            Argument("transforms", str(resolved["transforms"])),
            " needs statistics of all the data, but each worker has only a part. Choose "
            "transforms per query or per value.",
        )


@dataclass
class Rows:
    """Rows of whole queries: features as a frame or matrix, and a weight per row or None."""

    X: Any
    y: Any
    qid: Any
    weights: Any = None


@dataclass
class Part:
    """A worker's part of the data."""

    train: Rows | None
    sets: dict[str, Rows | None] = field(default_factory=dict)
    threads: int = 1


def outcome(job: Job, part: Part, group_of: Callable[[], ProcessGroup]) -> bytes:
    """What a worker reports, pickled: the model (worker 0), None, or an error.

    It never raises: a cluster would start a task again that found an error in its data.
    """
    try:
        return pickle.dumps(train_part(job, part, group_of()))
    except Exception as error:
        return pickle.dumps(error)


def result_of(outcomes: Iterable[bytes]) -> Model:
    """The model among the outcomes of all workers; raises their error.

    After the error of one worker, the others report that it was lost.
    """
    results = [pickle.loads(content) for content in outcomes]
    errors = [result for result in results if isinstance(result, Exception)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, ProcessLostError))
    model: Model = next(result for result in results if result is not None)
    return model


def train_part(job: Job, part: Part, group: ProcessGroup) -> Model | None:
    """Train together with the other workers; the model, of worker 0."""
    try:
        with threads_at_most(part.threads):
            model = _train(job, part, group)
        if isinstance(group, SocketGroup):
            group.finish()
        return None if group.rank else model
    finally:
        group.close()


def _train(job: Job, part: Part, group: ProcessGroup) -> Model:
    parameters = dict(job.parameters)
    data, weights = _dataset(part, group)
    papers = parameters["mode"] == "paper"
    queries = trainable_queries(data, weights, "paper" if papers else "default")
    counts = [int(m) for m in group.all_gather(str(len(queries)))]
    if not any(counts):
        raise InputError(
            "Cannot train on any query: each has a single document, no relevant document, or "
            "weight 0."
        )
    if not all(counts):
        raise InputError(
            f"{counts.count(0)} of {group.size} workers have no query to train on. Use fewer "
            f"workers or partitions."
        )
    train = TrainingSet(data, weights).select(queries)
    sets = {}
    for name, rows in part.sets.items():
        other = data.select(np.arange(0))
        if rows is not None:
            own = as_dataset(rows.X, rows.y, qid=rows.qid, labelled=True)
            what = f"the evaluation set {name!r}"
            other = matched(own, data.features, data.feature_names, "BoostedRanker", what)
        if papers:
            other = other.select(trainable_queries(other, mode="paper"))
        sets[name] = other
    chosen = columns_of(parameters["categorical_features"], data.features, data.feature_names)
    encoding = Encoding.learned(train.data, chosen, _merging(group))
    train = TrainingSet(encoding(train.data), train.weights)
    sets = {name: encoding(other) for name, other in sets.items()}
    parameters["n_jobs"] = parameters["n_jobs"] or part.threads
    engine, more = parameters["engine"], parameters["engine_params"] or {}
    parameters["engine_params"] = network_params(engine, more, group.size)
    inputs = (parameters, job.saved, train, sets, encoding)
    if not isinstance(group, SocketGroup) or group.size == 1:
        return train_model("trees", *inputs, group=group)
    try:
        with network(engine, group):
            return train_model("trees", *inputs, group=group)
    except InputError as error:  # the engine may notice the loss of a worker before the group
        if error.__cause__ is not None and group.lost.wait(_NOTICE_SECONDS):
            raise lost_worker() from error
        raise


def _dataset(part: Part, group: ProcessGroup) -> tuple[Dataset, Any]:
    """The rows to train on, and the weight of every query or None."""
    about, data, weights = "", None, None
    if (rows := part.train) is not None and len(rows.y):
        data, weights = labelled(rows.X, rows.y, rows.qid, None, rows.weights)
        about = json.dumps([data.features, data.feature_names, sorted(data.categories)])
    kinds = group.all_gather(about)
    if data is None or "" in kinds:
        raise InputError(
            f"{kinds.count('')} of {group.size} workers have no rows to train on. Use fewer "
            f"workers or partitions."
        )
    if len({*kinds}) > 1:
        raise InputError(
            "Partitions have different features; all need the same columns, with the same types."
        )
    return data, weights


def _merging(group: ProcessGroup) -> Callable[[dict[Any, int]], dict[Any, int]]:
    def merge(counts: dict[Any, int]) -> dict[Any, int]:
        total: dict[Any, int] = {}
        for message in group.all_gather(json.dumps(list(counts.items()))):
            for value, count in json.loads(message):
                total[value] = total.get(value, 0) + count
        return total

    return merge
