"""The Dask interfaces of LightGBM and XGBoost: rows on a cluster to trees.

A watch over the workers ends a training if one of them dies.
"""

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.learning.boosting.engines import TreeSettings, explained_by
from twinrank.learning.boosting.newton import Newton
from twinrank.learning.distributed.dask_partitions import Summary, list_numbers
from twinrank.learning.training.learner import TrainingError
from twinrank.support.errors import Argument, InputError

LOOK_SECONDS = 3.0
"""The time between two looks at the workers; the scheduler knows of a death within seconds."""


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

    def scores(self, trees: str) -> Any:
        """The scores of LightGBM's trees, computed by the workers."""
        # Without `meta`, Dask calls the function with an array of no columns to learn the type of
        # its result, and LightGBM prints a fatal error.
        return self.X.map_blocks(_lightgbm_scores, trees, meta=np.empty(0), drop_axis=1)


def dask_rows(trainable: list[tuple[Any, Summary]]) -> DaskRows:
    """Prepared partitions as Dask arrays."""
    import dask.array as da
    from dask import delayed

    get, number = delayed(getattr), delayed(list_numbers)
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


def _lightgbm_scores(X: Any, trees: str) -> Any:
    import lightgbm as lgb

    return lgb.Booster(model_str=trees).predict(X, raw_score=True)


def _seed(settings: TreeSettings, start: str | None) -> int:
    """The seed of LightGBM's draws: another one in each part of the training."""
    trees = 0 if start is None else start.count("\nTree=")
    return (settings.seed + trees) % 2**31


def grow_lightgbm(
    client: Any,
    settings: TreeSettings,
    newton: Newton | None,
    rows: DaskRows,
    rounds: int,
    start: str | None = None,
) -> str:
    """Trees by LightGBM, after those of `start`."""
    from lightgbm.basic import LightGBMError
    from lightgbm.dask import DaskLGBMRanker

    from twinrank.learning.boosting.lightgbm_engine import Objective, joined_trees, params_of

    params = params_of(settings)
    for name in ("num_threads", "seed"):  # Dask sets the threads of a worker
        del params[name]
    if newton is not None:
        params["objective"] = Objective(newton)
    with explained_by("LightGBM", LightGBMError), warnings.catch_warnings():
        # LightGBM warns about its own default of n_jobs.
        warnings.filterwarnings("ignore", message="Parameter n_jobs will be ignored")
        ranker = DaskLGBMRanker(
            client=client, n_estimators=rounds, random_state=_seed(settings, start), **params
        )
        ranker.fit(
            rows.X,
            rows.y,
            group=rows.sizes,
            init_score=None if start is None else rows.scores(start),
            sample_weight=rows.weights,
            categorical_feature=list(settings.categorical) or "auto",
        )
        text = str(ranker.booster_.model_to_string(num_iteration=-1))
        return text if start is None else joined_trees(start, text)


def grow_xgboost(
    client: Any,
    settings: TreeSettings,
    newton: Newton | None,
    rows: DaskRows,
    rounds: int,
    start: Any = None,
) -> Any:
    """Trees by XGBoost, after those of `start`."""
    from twinrank.learning.boosting.xgboost_engine import Objective, feature_types, params_of

    if rows.weights is not None:
        raise InputError(
            "XGBoost takes no weights of queries on a Dask cluster. Choose ",
            Argument("engine", "lightgbm"),
            ".",
        )
    from xgboost import dask as xgb_dask
    from xgboost.core import XGBoostError

    features = rows.X.shape[1]
    params = params_of(settings, features)
    del params["nthread"]
    if start is not None:  # otherwise each part of the training would draw the same columns
        params["seed"] = (params["seed"] + start.num_boosted_rounds()) % 2**31
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
        result = xgb_dask.train(client, params, data, rounds, obj=objective, xgb_model=start)
    return result["booster"]


def watched(client: Any, train: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that trains on the workers; TrainingError if one of them dies.

    The engines would wait for a dead worker for ever, or raise the error of a socket. They wait in
    a thread of their own, which ends with this process.
    """
    before, result = _workers(client), Future[Any]()

    def run() -> None:
        try:
            result.set_result(train(*arguments))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="twinrank-dask").start()
    lost: set[str] = set()
    while not lost and not wait([result], timeout=LOOK_SECONDS).done:
        lost = before - _workers(client)
    wait([result], timeout=LOOK_SECONDS)  # it may have ended before the worker
    problem = result.exception() if result.done() else None
    if result.done() and problem is None:
        return result.result()
    if problem is not None and not lost:
        lost = before - _workers(client)
    if not lost and problem is not None:
        raise problem
    raise TrainingError(
        f"The Dask worker {', '.join(sorted(lost))} died during training. Start again; if it ran "
        f"out of memory, use smaller partitions or more workers."
    ) from problem


def _workers(client: Any) -> set[str]:
    """The addresses of the workers that the scheduler knows."""
    return set(client.scheduler_info(n_workers=-1)["workers"])
