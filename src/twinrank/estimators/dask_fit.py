"""Training on a Dask cluster: the data stays on the workers, and the trees come back.

Each worker turns its partitions into what training takes: rows by query, transformed, of the
trainable queries. The engine's own Dask interface does the rest. The client sees counts, one sum
per partition and the model.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from twinrank.boosting.engines import NO_TREE, Trees, TreeSettings, explained_by
from twinrank.boosting.newton import Newton
from twinrank.boosting.tree_features import check_grades, columns_of, kept_from, rows_of
from twinrank.boosting.tree_model import TreeModel
from twinrank.data.transforms import Compose, Standardise, Transform, transform
from twinrank.estimators.inputs import as_dataset, list_weights, trainable_queries
from twinrank.lists import Lists
from twinrank.support.errors import InputError
from twinrank.support.versions import versions
from twinrank.training.tree_learner import ENGINE_OBJECTIVES, newton_of, tree_settings


def is_dask(X: Any) -> bool:
    """Whether this is a Dask array or frame; never imports Dask."""
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

    `resolve` gives the parameters for a number of documents, `saved` are they as JSON.
    """
    client = _client()
    parameters = resolve(0)
    if _has_statistics(transform(parameters["transforms"])):
        raise InputError(
            f"transforms={str(parameters['transforms'])!r} needs statistics of all the data, which "
            f"no worker has: choose transforms per query or per value"
        )
    from dask import delayed

    columns = _partitions(X, y, qid, weights)
    make = delayed(_part, pure=False)
    parts = client.persist([make(*row, parameters) for row in zip(*columns, strict=True)])
    newton = newton_of(parameters)
    about = client.gather(client.compute([delayed(_about)(part, newton) for part in parts]))
    cut = client.compute(delayed(_first_cut)([delayed(_ids)(part) for part in parts])).result()
    if cut is not None:
        raise InputError(
            f"query {cut} has rows in two partitions: cut partitions between queries, such as by "
            f"frame.set_index('qid') or one file per range of queries"
        )
    used = [(part, one) for part, one in zip(parts, about, strict=True) if one.queries]
    _check_parts(about, used)
    parameters = resolve(sum(summary.documents for _, summary in used))
    return _grow(client, parameters, saved, used)


@dataclass(frozen=True, eq=False)
class Spread:
    """Rows on a cluster, as Dask arrays whose chunks hold whole lists."""

    X: Any
    y: Any
    sizes: Any  # of the lists
    numbers: Any  # of the list of each row, ascending over all chunks
    weights: Any = None  # one per row


class About(NamedTuple):
    """What the client is told of a partition."""

    queries: int  # that can teach
    documents: int
    features: int
    names: tuple[str, ...] | None
    weighted: bool
    hessian: float  # in all, at scores of zero


class Part(NamedTuple):
    """A partition as it is trained on."""

    X: Any
    y: Any
    sizes: Any
    weights: Any  # one per row, or None
    ids: Any  # of all queries
    names: tuple[str, ...] | None


def _client() -> Any:
    try:
        from distributed import default_client
    except ImportError as missing:
        raise InputError("this needs Dask: pip install 'twinrank[cluster]'") from missing
    try:
        return default_client()
    except ValueError as missing:
        raise InputError(
            "data on Dask needs a cluster: make a client first, dask.distributed.Client()"
        ) from missing


def _has_statistics(chosen: Transform) -> bool:
    parts = chosen.transforms if isinstance(chosen, Compose) else (chosen,)
    return any(isinstance(part, Standardise) for part in parts)


def _partitions(X: Any, y: Any, qid: Any, weights: Any) -> list[list[Any]]:
    """The partitions of each, as delayed values."""
    if getattr(X, "ndim", 2) != 2:
        raise InputError(f"X must be a matrix or a frame, but it has {X.ndim} dimension(s)")
    for name, one in (("y", y), ("qid", qid), ("sample_weight", weights)):
        if one is None and name != "sample_weight":
            raise InputError(f"{name} must be given, on Dask too, since X is")
        if one is not None and not is_dask(one):
            raise InputError(f"{name} must be a Dask array or column, since X is on Dask")
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
    count = X.npartitions
    found = []
    for name, one in (("X", X), ("y", y), ("qid", qid), ("sample_weight", weights)):
        if one is None:
            found.append([None] * count)
            continue
        if one.npartitions != count:
            raise InputError(
                f"{name} has {one.npartitions} partitions, X {count}: they must be cut alike"
            )
        found.append(np.ravel(np.asarray(one.to_delayed(), object)).tolist())
    return found


# On the workers


def _part(X: Any, y: Any, qid: Any, weights: Any, parameters: dict[str, Any]) -> Part:
    """A partition's rows by query, transformed, of the queries that can teach."""
    data = as_dataset(X, y, qid=qid, labelled=True)
    good, per_list = np.empty(0, np.int64), None
    if weights is None:
        good = trainable_queries(data)
    elif np.any(weights):
        per_list = list_weights(weights, data)
        good = trainable_queries(data, per_list)
    names, ids = data.feature_names, data.query_ids
    if not good.size:
        return Part(np.empty((0, data.features), np.float32), None, None, None, ids, names)
    some = data.select(good)
    if str(parameters["objective"]) in ENGINE_OBJECTIVES:
        check_grades(some)
    columns = columns_of(parameters["categorical_features"], data.features, names)
    rows = rows_of(some, kept_from(transform(parameters["transforms"]), columns), columns)
    spread = None if per_list is None else some.lists.spread(per_list[good])
    return Part(np.ascontiguousarray(rows.X), rows.y, some.lists.sizes, spread, ids, names)


def _about(part: Part, newton: Newton | None) -> About:
    if part.y is None:
        return About(0, 0, part.X.shape[1], part.names, False, 0.0)
    lists, total = Lists.from_sizes(part.sizes), 0.0
    if newton is not None:
        weights = None if part.weights is None else lists.max(part.weights)
        hessian = newton.sums(np.zeros(len(part.y)), part.y, lists, weights)[1]
        total = float(hessian.sum(dtype=np.float64))
    weighted = part.weights is not None
    return About(len(lists), len(part.y), part.X.shape[1], part.names, weighted, total)


def _numbers(part: Part, first: int) -> Any:
    """The number of the list of each row."""
    return np.repeat(np.arange(first, first + len(part.sizes), dtype=np.uint32), part.sizes)


def _ids(part: Part) -> Any:
    return part.ids


def _first_cut(ids: list[Any]) -> Any:
    """A query that is in two partitions, or None."""
    every, counts = np.unique(np.concatenate(ids), return_counts=True)
    return str(every[counts > 1][0]) if (counts > 1).any() else None


# On the client


def _check_parts(about: list[About], used: list[Any]) -> None:
    if not used:
        raise InputError(
            "no query can teach: each has a single document, nothing relevant, or weight 0"
        )
    if len({(one.features, one.names) for one in about}) > 1:
        raise InputError("partitions differ in their features")


def _grow(
    client: Any,
    parameters: dict[str, Any],
    saved: Mapping[str, Any],
    used: list[tuple[Any, About]],
) -> TreeModel:
    """Hand the parts to the engine, and take the trees from it."""
    about = [summary for _, summary in used]
    documents = sum(one.documents for one in about)
    names, features = about[0].names, about[0].features
    columns = columns_of(parameters["categorical_features"], features, names)
    newton = newton_of(parameters)
    if newton is not None:
        newton = replace(newton, unit=sum(one.hessian for one in about) / documents)
    settings = tree_settings(parameters, columns)
    trees = grow_on_workers(
        parameters["engine"],
        client,
        settings,
        newton,
        _spread(used),
        int(parameters["n_estimators"]),
    )
    if not trees.count or not trees.gains().any():
        raise InputError(NO_TREE)
    data = {"queries": sum(one.queries for one in about), "documents": documents}
    fitted = kept_from(transform(parameters["transforms"]), columns)
    return TreeModel(
        features=features,
        feature_names=names,
        transform=fitted,
        ensemble_size=settings.ensemble_size,
        best_iteration=trees.count // settings.ensemble_size,
        engine=parameters["engine"],
        trees=trees,
        categorical=columns,
        provenance={
            "parameters": dict(saved),
            "data": {"name": "on Dask", **data},
            "versions": versions(parameters["engine"]),
        },
    )


def _spread(used: list[tuple[Any, About]]) -> Spread:
    """The parts as Dask arrays."""
    import dask.array as da
    from dask import delayed

    get, number = delayed(getattr), delayed(_numbers)
    pieces: dict[str, list[Any]] = {"X": [], "y": [], "sizes": [], "numbers": [], "weights": []}
    first = 0
    for part, one in used:
        rows = (one.documents,)
        pieces["X"].append(da.from_delayed(get(part, "X"), (*rows, one.features), np.float32))
        pieces["y"].append(da.from_delayed(get(part, "y"), rows, np.float32))
        pieces["sizes"].append(da.from_delayed(get(part, "sizes"), (one.queries,), np.int64))
        pieces["numbers"].append(da.from_delayed(number(part, first), rows, np.uint32))
        if one.weighted:
            pieces["weights"].append(da.from_delayed(get(part, "weights"), rows, np.float64))
        first += one.queries
    return Spread(**{name: da.concatenate(some) for name, some in pieces.items() if some})


# The engines


class Objective:
    """A measure as LightGBM's scikit-learn interface calls for it."""

    def __init__(self, newton: Newton) -> None:
        self.newton = newton

    def __call__(self, labels: Any, scores: Any, weights: Any, sizes: Any) -> Any:
        """Gradient and hessian of the rows of a worker."""
        lists = Lists.from_sizes(sizes)
        per_list = None if weights is None else lists.max(weights)
        return self.newton(scores, labels, lists, per_list)


def grow_on_workers(
    engine: str,
    client: Any,
    settings: TreeSettings,
    newton: Newton | None,
    rows: Spread,
    rounds: int,
) -> Trees:
    """Grow trees on the workers of a client; `newton`, if any, knows the unit of its hessians."""
    grow = _by_lightgbm if engine == "lightgbm" else _by_xgboost
    return grow(client, settings, newton, rows, rounds)


def _by_lightgbm(
    client: Any, settings: TreeSettings, newton: Newton | None, rows: Spread, rounds: int
) -> Trees:
    from lightgbm.basic import LightGBMError
    from lightgbm.dask import DaskLGBMRanker

    from twinrank.boosting.lightgbm_engine import merged_trees, params_of

    params = params_of(settings)
    for name in ("num_threads", "seed"):  # a worker's threads are Dask's to say
        del params[name]
    if newton is not None:
        params["objective"] = Objective(newton)
    with explained_by("LightGBM", LightGBMError), warnings.catch_warnings():
        # It warns of its own default of n_jobs.
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
        return merged_trees(
            ranker.booster_.model_to_string(num_iteration=-1), settings.ensemble_size
        )


def _by_xgboost(
    client: Any, settings: TreeSettings, newton: Newton | None, rows: Spread, rounds: int
) -> Trees:
    from twinrank.boosting.xgboost_engine import Objective as Called
    from twinrank.boosting.xgboost_engine import feature_types, merged_trees, params_of

    if rows.weights is not None:
        raise InputError(
            "XGBoost takes no weights of queries on a Dask cluster: choose engine='lightgbm'"
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
            qid=rows.numbers,
            feature_types=feature_types(features, settings.categorical),
            enable_categorical=bool(settings.categorical),
        )
        objective = None if newton is None else Called(newton)
        found = xgb_dask.train(client, params, data, rounds, obj=objective)
    return merged_trees(found["booster"], features, settings)
