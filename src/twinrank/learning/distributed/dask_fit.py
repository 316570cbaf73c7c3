"""Training of trees on a Dask cluster: the data stays on the workers, the trees come back.

Each worker prepares its partitions: the trainable queries, their rows sorted by query and
transformed. The engine's own Dask interface trains on them. The client only sees a summary of each
partition and the model. Workers also evaluate the model on evaluation partitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.measures import Measure, measure
from twinrank.core.own_losses import is_own_loss
from twinrank.data.transforms import transform
from twinrank.evaluation.evaluate import evaluate
from twinrank.learning.boosting.engines import NO_TREE, engine
from twinrank.learning.boosting.tree_features import tree_transform
from twinrank.learning.boosting.tree_model import TreeModel
from twinrank.learning.distributed.dask_engines import (
    dask_rows,
    grow_lightgbm,
    grow_xgboost,
    watched,
)
from twinrank.learning.distributed.dask_partitions import (
    Partition,
    Summary,
    delayed_rows,
    prepare,
    prepare_evaluation,
    query_ids,
    query_in_two,
    summarise,
)
from twinrank.learning.models.encoding import columns_of
from twinrank.learning.training.fitting import identities
from twinrank.learning.training.tree_parameters import newton_of, tree_settings
from twinrank.support.errors import Argument, InputError
from twinrank.support.versions import versions


def train_on_dask(
    resolve: Callable[[int], dict[str, Any]],
    saved: Mapping[str, Any],
    X: Any,
    y: Any,
    qid: Any,
    weights: Any,
    evaluation: tuple[Any, Any, Any] | None = None,
) -> TreeModel:
    """Grow trees on Dask arrays or frames with the same partitions.

    `resolve` gives the parameters for a number of documents; `saved` are the parameters as JSON.
    `evaluation` is X, y and qid of an evaluation set, which selects the best round.
    """
    from dask import delayed

    client = _client()
    parameters = resolve(0)
    _check_available(parameters)
    held, rows = delayed(prepare_evaluation, pure=False), delayed_rows(X, y, qid, weights)
    evaluated = [] if evaluation is None else delayed_rows(*evaluation)
    trainable = _trainable(client, rows, parameters)
    features, names = trainable[0][1].features, trainable[0][1].names
    sets = [held(row, parameters, features, names) for row in evaluated]
    sets = client.persist(sets) if sets else []
    parameters = resolve(sum(summary.documents for _, summary in trainable))
    if sets and saved["tolerance"] != "auto" and parameters["tolerance"]:
        raise InputError(
            "On a Dask cluster, the best round is kept. Choose tolerance=0, or leave it out."
        )
    if sets and parameters["ensemble_size"] > 1:
        if saved["ensemble_size"] != "auto":
            raise InputError(
                "On a Dask cluster, an ensemble takes no evaluation set. Choose ensemble_size=1, "
                "or leave eval_set out."
            )
        parameters["ensemble_size"] = 1
    return _grow(client, parameters, saved, trainable, sets)


def _check_available(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that need all the data in one place."""
    if is_own_loss(parameters["objective"]):
        raise InputError(
            "On a Dask cluster, an objective must be a measure or one of the engine's own, not a "
            "loss of your own. Register a measure, or train on one machine."
        )
    by_engine = parameters["engine"] == "lightgbm" and newton_of(parameters) is None
    if parameters["subsample"] < 1 and not by_engine:
        raise InputError(
            "On a Dask cluster, subsample only works with LightGBM's own objectives. Leave it out."
        )
    if transform(parameters["transforms"]).has_statistics:
        raise InputError(
            Argument("transforms", str(parameters["transforms"])),
            " needs statistics of all the data, but each worker has only a part. Choose "
            "transforms per query or per value.",
        )


def _trainable(
    client: Any, rows: list[Any], parameters: dict[str, Any]
) -> list[tuple[Any, Summary]]:
    """The prepared partitions with trainable queries, and their summaries."""
    from dask import delayed

    own, newton = delayed(prepare, pure=False), newton_of(parameters)
    partitions = client.persist([own(row, parameters) for row in rows])
    summaries = client.gather(
        client.compute([delayed(summarise)(partition, newton) for partition in partitions])
    )
    ids = [delayed(query_ids)(partition) for partition in partitions]
    query = client.compute(delayed(query_in_two)(ids)).result()
    if query is not None:
        raise InputError(
            f"Query {query} has rows in two partitions. Cut partitions between queries, for "
            f"example by frame.set_index('qid') or one file per range of queries."
        )
    pairs = zip(partitions, summaries, strict=True)
    trainable = [(partition, summary) for partition, summary in pairs if summary.queries]
    if not trainable:
        raise InputError(
            "Cannot train on any query: each has a single document, no relevant document, or "
            "weight 0."
        )
    if len({(summary.features, summary.names) for summary in summaries if summary.features}) > 1:
        raise InputError("Partitions have different features; all need the same columns.")
    return trainable


def dask_evaluation(eval_set: Any, eval_qid: Any) -> tuple[Any, Any, Any]:
    """X, y and qid of the only evaluation set."""
    if isinstance(eval_set, Mapping) and len(eval_set) == 1:
        eval_set = next(iter(eval_set.values()))
    if isinstance(eval_set, list) and len(eval_set) == 1 and isinstance(eval_qid, list):
        eval_set = (*eval_set[0], *eval_qid)
    if not isinstance(eval_set, tuple) or len(eval_set) != 3:
        raise InputError("On a Dask cluster, eval_set is one set: (X, y, qid), all on Dask.")
    return eval_set


def _client() -> Any:
    try:
        from distributed import default_client
    except ImportError as missing:
        raise InputError(
            "This needs Dask; install it with pip install 'twinrank[cluster]'."
        ) from missing
    try:
        return default_client()
    except ValueError as missing:
        raise InputError(
            "Data on Dask needs a cluster. Make a client first: dask.distributed.Client()."
        ) from missing


def _grow(
    client: Any,
    parameters: dict[str, Any],
    saved: Mapping[str, Any],
    trainable: list[tuple[Any, Summary]],
    sets: list[Any],
) -> TreeModel:
    """Train with the engine's own Dask interface."""
    summaries = [summary for _, summary in trainable]
    documents = sum(summary.documents for summary in summaries)
    names, features, columns = summaries[0].names, summaries[0].features, summaries[0].columns
    categorical = columns_of(parameters["categorical_features"], features, names)
    newton = newton_of(parameters)
    if newton is not None:  # all workers must divide by the same mean hessian
        newton = replace(newton, unit=sum(summary.hessian for summary in summaries) / documents)
    settings = tree_settings(parameters, categorical)
    grow = grow_lightgbm if parameters["engine"] == "lightgbm" else grow_xgboost
    rounds, size = int(parameters["n_estimators"]), settings.ensemble_size
    rows = dask_rows(trainable)
    models, course = [], _Course(parameters)
    for model in range(size):
        own = None if newton is None else replace(newton, model=model)
        arguments = (client, replace(settings, model=model), own, rows)
        if sets:
            models.append(_grow_and_stop(grow, arguments, sets, rounds, course))
        else:
            models.append(watched(client, grow, *arguments, rounds))
    # All models have as many rounds, so that their scores need not be standardised.
    merge = engine(parameters["engine"]).merged_trees
    trees = merge(models, [1 / size] * size, columns, categorical)
    if not trees.count or not trees.gains().any():
        raise InputError(NO_TREE)
    queries = sum(summary.queries for summary in summaries)
    return TreeModel(
        features=features,
        feature_names=names,
        transform=tree_transform(transform(parameters["transforms"]), categorical),
        ensemble_size=size,
        best_iteration=-(-trees.count // size),
        best_score=course.best[0] if sets else None,
        history=course.history,
        engine=parameters["engine"],
        trees=trees,
        categorical=categorical,
        provenance={
            "parameters": dict(saved),
            "data": {"name": "on Dask", "queries": queries, "documents": documents},
            "versions": versions(parameters["engine"]),
            "identities": identities(parameters),
        },
    )


class _Course:
    """The values on the evaluation set, round by round, and when to stop."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.engine, self.measure = parameters["engine"], measure(parameters["validation_measure"])
        self.every, self.patience = parameters["validate_every"], parameters["early_stopping"]
        self.whole = engine(self.engine).rescales(parameters["engine_params"])
        """True if only a whole model can be evaluated and kept (DART)."""
        self.rounds = int(parameters["n_estimators"])
        self.history: list[dict[str, Any]] = []
        self.best: tuple[float, int] = (float("-inf"), 0)

    def add(self, values: list[float], unknown: int = 0) -> bool:
        """Add the values of the next rounds, the first `unknown`; True if training should stop."""
        for value in [*[None] * unknown, *values]:
            number = len(self.history) + 1
            skipped = number % self.every and number < self.rounds and not self.whole
            if value is None or skipped:
                self.history.append({"iteration": number})
                continue
            self.history.append({"iteration": number, "validation": value})
            if value > self.best[0]:
                self.best = (value, number)
            if self.patience is not None and number - self.best[1] >= self.patience:
                return True
        return False


def _grow_and_stop(
    grow: Callable[..., Any],
    arguments: tuple[Any, ...],
    sets: list[Any],
    rounds: int,
    course: _Course,
) -> Any:
    """Grow some rounds at a time, and stop when the evaluation set says so.

    Later rounds of DART change earlier trees. So only the last of these rounds is evaluated, and
    the model is kept as it is then.
    """
    from dask import delayed

    client, model, kept, done = arguments[0], None, None, 0
    while done < rounds:
        step = min(course.patience or rounds, rounds - done)
        model = watched(client, grow, *arguments, step, model)
        evaluated, unknown = delayed(_evaluated, pure=False), (step - 1) * course.whole
        sums = client.gather(
            client.compute(
                [
                    evaluated(s, model, course.engine, done + unknown, done + step, course.measure)
                    for s in sets
                ]
            )
        )
        totals = np.sum(sums, axis=0)
        if not totals[0, 1]:
            raise InputError("No query of the evaluation set has a relevant document.")
        done += step
        stops = course.add((totals[:, 0] / totals[:, 1]).tolist(), unknown)
        if course.best[1] == done:
            kept = model
        if stops:
            break
    if course.whole:
        return kept
    return engine(course.engine).first_rounds(model, course.best[1] or done)


def _evaluated(
    partition: Partition, model: Any, engine_name: str, first: int, last: int, measure: Measure
) -> Any:
    """On a worker: the sum of a measure over lists, and their number, after each round."""
    if not partition.features:
        return np.zeros((last - first, 2))
    scores = engine(engine_name).staged_scores(model, partition.X, first, last)
    lists, sums = Lists.from_sizes(partition.sizes), []
    for own in scores:
        values = evaluate(own, partition.y, lists, [measure]).values[str(measure)]
        counted = values[~np.isnan(values)]
        sums.append((counted.sum(), counted.size))
    return np.array(sums, np.float64).reshape(-1, 2)
