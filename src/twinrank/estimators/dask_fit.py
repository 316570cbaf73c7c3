"""Training of trees on a Dask cluster: the data stays on the workers, the trees come back.

Each worker prepares its partitions: the trainable queries, their rows sorted by query and
transformed. The engine's own Dask interface trains on them. The client only sees a summary of each
partition and the model.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from twinrank.boosting.engines import NO_TREE, TreeSettings, engine, explained_by
from twinrank.boosting.newton import Newton
from twinrank.boosting.tree_features import check_grades, rows_of, tree_transform
from twinrank.boosting.tree_model import TreeModel
from twinrank.data.transforms import transform
from twinrank.estimators.dask_workers import watched
from twinrank.estimators.inputs import as_dataset, list_weights, trainable_queries
from twinrank.lists import Lists
from twinrank.models.encoding import columns_of
from twinrank.support.errors import InputError
from twinrank.support.versions import versions
from twinrank.training.tree_learner import ENGINE_OBJECTIVES, newton_of, tree_settings


def is_dask(X: Any) -> bool:
    """True for a Dask array or frame; Dask is not imported."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def train_on_dask(
    resolve: Callable[[int], dict[str, Any]],
    saved: Mapping[str, Any],
    X: Any,
    y: Any,
    qid: Any,
    weights: Any,
) -> TreeModel:
    """Grow trees on Dask arrays or frames with the same partitions.

    `resolve` gives the parameters for a number of documents; `saved` are the parameters as JSON.
    """
    client = _client()
    parameters = resolve(0)
    by_engine = parameters["engine"] == "lightgbm" and newton_of(parameters) is None
    if parameters["subsample"] < 1 and not by_engine:
        raise InputError(
            "On a Dask cluster, subsample only works with LightGBM's own objectives. Leave it out."
        )
    if transform(parameters["transforms"]).has_statistics:
        raise InputError(
            f"transforms={str(parameters['transforms'])!r} needs statistics of all the data, but "
            f"each worker has only a part. Choose transforms per query or per value."
        )
    from dask import delayed

    columns = _delayed_partitions(X, y, qid, weights)
    prepare = delayed(_prepare, pure=False)
    partitions = client.persist([prepare(*row, parameters) for row in zip(*columns, strict=True)])
    newton = newton_of(parameters)
    summaries = client.gather(
        client.compute([delayed(_summary)(partition, newton) for partition in partitions])
    )
    ids = [delayed(_query_ids)(partition) for partition in partitions]
    query = client.compute(delayed(_query_in_two)(ids)).result()
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
    if len({(summary.features, summary.names) for summary in summaries}) > 1:
        raise InputError("Partitions have different features; all need the same columns.")
    parameters = resolve(sum(summary.documents for _, summary in trainable))
    return _grow(client, parameters, saved, trainable)


@dataclass(frozen=True, eq=False)
class DaskRows:
    """Rows on a cluster, as Dask arrays whose chunks hold whole lists."""

    X: Any
    y: Any
    sizes: Any
    """The number of rows of each list."""
    list_numbers: Any
    """The list of each row, ascending over all chunks."""
    weights: Any = None
    """One per row."""


class Summary(NamedTuple):
    """What the client needs to know about a partition."""

    queries: int
    """Trainable ones."""
    documents: int
    features: int
    columns: int
    """Of the transformed features."""
    names: tuple[str, ...] | None
    weighted: bool
    hessian: float
    """The sum over all documents, at scores of zero."""


class Partition(NamedTuple):
    """A prepared partition."""

    X: Any
    y: Any
    sizes: Any
    weights: Any
    """One per row, or None."""
    ids: Any
    """Of all queries, also those that are not trainable."""
    features: int
    """Before the transform."""
    names: tuple[str, ...] | None


def _client() -> Any:
    try:
        from distributed import default_client
    except ImportError as missing:
        raise InputError("This needs Dask: pip install 'twinrank[cluster]'") from missing
    try:
        return default_client()
    except ValueError as missing:
        raise InputError(
            "Data on Dask needs a cluster. Make a client first: dask.distributed.Client()."
        ) from missing


def _delayed_partitions(X: Any, y: Any, qid: Any, weights: Any) -> list[list[Any]]:
    """The partitions of X, y, qid and weights, as delayed values."""
    if getattr(X, "ndim", 2) != 2:
        raise InputError(f"X must be a matrix or a frame, but it has {X.ndim} dimension(s).")
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
    inputs = {"X": X, "y": y, "qid": qid, "sample_weight": weights}
    for name, values in inputs.items():
        if values is None and name != "sample_weight":
            raise InputError(f"On a Dask cluster, fit needs {name}, as a Dask array or column.")
        if values is not None and not is_dask(values):
            raise InputError(f"{name} must be a Dask array or column, because X is on Dask.")
    count = X.npartitions
    partitions = []
    for name, values in inputs.items():
        if values is None:
            partitions.append([None] * count)
            continue
        if values.npartitions != count:
            raise InputError(
                f"{name} has {values.npartitions} partitions but X has {count}; both need the "
                f"same partitions."
            )
        partitions.append(np.ravel(np.asarray(values.to_delayed(), object)).tolist())
    return partitions


# On the workers


def _prepare(X: Any, y: Any, qid: Any, weights: Any, parameters: dict[str, Any]) -> Partition:
    """The rows of a partition's trainable queries, sorted by query and transformed."""
    data = as_dataset(X, y, qid=qid, labelled=True)
    if data.categories:  # a partition does not know the texts of the others
        raise InputError(
            "On a Dask cluster, columns of text cannot be encoded. Encode them as whole numbers, "
            "and name them in categorical_features."
        )
    queries, per_list = np.empty(0, np.int64), None
    if weights is None:
        queries = trainable_queries(data, mode=parameters["mode"])
    elif np.any(weights):
        per_list = list_weights(weights, data)
        queries = trainable_queries(data, per_list, parameters["mode"])
    names, ids = data.feature_names, data.query_ids
    if not queries.size:
        nothing = np.empty((0, data.features), np.float32)
        return Partition(nothing, None, None, None, ids, data.features, names)
    trainable = data.select(queries)
    if str(parameters["objective"]) in ENGINE_OBJECTIVES:
        check_grades(trainable)
    categorical = columns_of(parameters["categorical_features"], data.features, names)
    chosen = tree_transform(transform(parameters["transforms"]), categorical)
    rows = rows_of(trainable, chosen, categorical)
    per_row = None if per_list is None else trainable.lists.spread(per_list[queries])
    X = np.ascontiguousarray(rows.X)
    return Partition(X, rows.y, trainable.lists.sizes, per_row, ids, data.features, names)


def _summary(partition: Partition, newton: Newton | None) -> Summary:
    features, columns, names = partition.features, partition.X.shape[1], partition.names
    if partition.y is None:
        return Summary(0, 0, features, columns, names, False, 0.0)
    lists, total = Lists.from_sizes(partition.sizes), 0.0
    weighted = partition.weights is not None
    if newton is not None:
        weights = lists.max(partition.weights) if weighted else None
        scores = np.zeros(len(partition.y))
        hessian = newton.sums(scores, partition.y, lists, weights)[1]
        total = float(hessian.sum(dtype=np.float64))
    return Summary(len(lists), len(partition.y), features, columns, names, weighted, total)


def _list_numbers(partition: Partition, first: int) -> Any:
    """The number of the list of each row, counted from `first`."""
    last = first + len(partition.sizes)
    return np.repeat(np.arange(first, last, dtype=np.uint32), partition.sizes)


def _query_ids(partition: Partition) -> Any:
    return partition.ids


def _query_in_two(ids: list[Any]) -> str | None:
    """A query that has rows in two partitions, or None."""
    unique, counts = np.unique(np.concatenate(ids), return_counts=True)
    return str(unique[counts > 1][0]) if (counts > 1).any() else None


# On the client


def _grow(
    client: Any,
    parameters: dict[str, Any],
    saved: Mapping[str, Any],
    trainable: list[tuple[Any, Summary]],
) -> TreeModel:
    """Train with the engine's own Dask interface."""
    summaries = [summary for _, summary in trainable]
    documents = sum(summary.documents for summary in summaries)
    names, features = summaries[0].names, summaries[0].features
    categorical = columns_of(parameters["categorical_features"], features, names)
    newton = newton_of(parameters)
    if newton is not None:  # all workers must divide by the same mean hessian
        newton = replace(newton, unit=sum(summary.hessian for summary in summaries) / documents)
    settings = tree_settings(parameters, categorical)
    grow = _grow_lightgbm if parameters["engine"] == "lightgbm" else _grow_xgboost
    rounds, size = int(parameters["n_estimators"]), settings.ensemble_size
    rows = _dask_rows(trainable)
    models = []
    for model in range(size):
        own = None if newton is None else replace(newton, model=model)
        arguments = (client, replace(settings, model=model), own, rows, rounds)
        models.append(watched(client, grow, *arguments))
    # All models have as many rounds, so that their scores need not be standardised.
    merge = engine(parameters["engine"]).merged_trees
    trees = merge(models, [1 / size] * size, features, categorical)
    if not trees.count or not trees.gains().any():
        raise InputError(NO_TREE)
    queries = sum(summary.queries for summary in summaries)
    return TreeModel(
        features=features,
        feature_names=names,
        transform=tree_transform(transform(parameters["transforms"]), categorical),
        ensemble_size=size,
        best_iteration=-(-trees.count // size),
        engine=parameters["engine"],
        trees=trees,
        categorical=categorical,
        provenance={
            "parameters": dict(saved),
            "data": {"name": "on Dask", "queries": queries, "documents": documents},
            "versions": versions(parameters["engine"]),
        },
    )


def _dask_rows(trainable: list[tuple[Any, Summary]]) -> DaskRows:
    """Prepared partitions as Dask arrays."""
    import dask.array as da
    from dask import delayed

    get, number = delayed(getattr), delayed(_list_numbers)
    chunks: dict[str, list[Any]] = {
        name: [] for name in ("X", "y", "sizes", "list_numbers", "weights")
    }
    first = 0
    for partition, summary in trainable:
        rows, lists = (summary.documents,), (summary.queries,)
        shape = (*rows, summary.columns)
        chunks["X"].append(da.from_delayed(get(partition, "X"), shape, np.float32))
        chunks["y"].append(da.from_delayed(get(partition, "y"), rows, np.float32))
        chunks["sizes"].append(da.from_delayed(get(partition, "sizes"), lists, np.int64))
        chunks["list_numbers"].append(da.from_delayed(number(partition, first), rows, np.uint32))
        if summary.weighted:
            chunks["weights"].append(da.from_delayed(get(partition, "weights"), rows, np.float64))
        first += summary.queries
    return DaskRows(**{name: da.concatenate(parts) for name, parts in chunks.items() if parts})


# The engines


class DaskObjective:
    """A measure as an objective of LightGBM's scikit-learn interface, which Dask uses."""

    def __init__(self, newton: Newton) -> None:
        self.newton = newton

    def __call__(self, labels: Any, scores: Any, weights: Any, sizes: Any) -> Any:
        """Gradient and hessian of the rows of a worker."""
        lists = Lists.from_sizes(sizes)
        per_list = None if weights is None else lists.max(weights)
        return self.newton(scores, labels, lists, per_list)


def _grow_lightgbm(
    client: Any, settings: TreeSettings, newton: Newton | None, rows: DaskRows, rounds: int
) -> str:
    from lightgbm.basic import LightGBMError
    from lightgbm.dask import DaskLGBMRanker

    from twinrank.boosting.lightgbm_engine import params_of

    params = params_of(settings)
    for name in ("num_threads", "seed"):  # Dask sets the threads of a worker
        del params[name]
    if newton is not None:
        params["objective"] = DaskObjective(newton)
    with explained_by("LightGBM", LightGBMError), warnings.catch_warnings():
        # LightGBM warns about its own default of n_jobs.
        warnings.filterwarnings("ignore", message="Parameter n_jobs will be ignored")
        ranker = DaskLGBMRanker(
            client=client, n_estimators=rounds, random_state=settings.seed % 2**31, **params
        )
        ranker.fit(
            rows.X,
            rows.y,
            group=rows.sizes,
            sample_weight=rows.weights,
            categorical_feature=list(settings.categorical) or "auto",
        )
        return str(ranker.booster_.model_to_string(num_iteration=-1))


def _grow_xgboost(
    client: Any, settings: TreeSettings, newton: Newton | None, rows: DaskRows, rounds: int
) -> Any:
    from twinrank.boosting.xgboost_engine import Objective, feature_types, params_of

    if rows.weights is not None:
        raise InputError(
            "XGBoost takes no weights of queries on a Dask cluster. Choose engine='lightgbm'."
        )
    from xgboost import dask as xgb_dask
    from xgboost.core import XGBoostError

    params = params_of(settings)
    del params["nthread"]
    features = rows.X.shape[1]
    with explained_by("XGBoost", XGBoostError):
        data = xgb_dask.DaskDMatrix(
            client,
            rows.X,
            rows.y,
            qid=rows.list_numbers,
            feature_types=feature_types(features, settings.categorical),
            enable_categorical=bool(settings.categorical),
        )
        objective = None if newton is None else Objective(newton)
        result = xgb_dask.train(client, params, data, rounds, obj=objective)
    return result["booster"]
