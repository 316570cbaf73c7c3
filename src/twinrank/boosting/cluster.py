"""Trees grown by an engine's own Dask interface, from Dask arrays that are cut between lists."""

import warnings
from dataclasses import dataclass
from typing import Any

from twinrank.boosting.engine import Growth, Trees, in_words
from twinrank.boosting.newton import Newton
from twinrank.lists import Lists
from twinrank.support.errors import InputError


@dataclass(frozen=True, eq=False)
class Spread:
    """Rows on a cluster, as Dask arrays whose chunks hold whole lists."""

    X: Any
    y: Any
    sizes: Any  # of the lists
    numbers: Any  # of the list of each row, ascending over all chunks
    weights: Any = None  # one per row


class Objective:
    """A measure as LightGBM's scikit-learn interface calls for it."""

    def __init__(self, newton: Newton) -> None:
        self.newton = newton

    def __call__(self, labels: Any, scores: Any, weights: Any, sizes: Any) -> Any:
        """Gradient and hessian of the rows of a worker."""
        lists = Lists.from_sizes(sizes)
        per_list = None if weights is None else lists.max(weights)
        return self.newton(scores, labels, lists, per_list)


def grow_on_cluster(
    engine: str, client: Any, growth: Growth, newton: Newton | None, rows: Spread, rounds: int
) -> Trees:
    """Grow trees on the workers of a client; `newton`, if any, knows the unit of its hessians."""
    grow = _by_lightgbm if engine == "lightgbm" else _by_xgboost
    return grow(client, growth, newton, rows, rounds)


def _by_lightgbm(
    client: Any, growth: Growth, newton: Newton | None, rows: Spread, rounds: int
) -> Trees:
    from lightgbm.basic import LightGBMError
    from lightgbm.dask import DaskLGBMRanker

    from twinrank.boosting.lightgbm_engine import grown, settings_of

    settings = settings_of(growth)
    for ours in ("num_threads", "seed"):  # a worker's threads are Dask's to say
        del settings[ours]
    if newton is not None:
        settings["objective"] = Objective(newton)
    with in_words("LightGBM", LightGBMError), warnings.catch_warnings():
        # It warns of its own default of n_jobs.
        warnings.filterwarnings("ignore", message="Parameter n_jobs will be ignored")
        ranker = DaskLGBMRanker(
            client=client, n_estimators=rounds, random_state=growth.seed % 2**31, **settings
        )
        ranker.fit(
            rows.X,
            rows.y,
            group=rows.sizes,
            sample_weight=rows.weights,
            categorical_feature=list(growth.categorical) or "auto",
        )
        return grown(ranker.booster_, growth.members)


def _by_xgboost(
    client: Any, growth: Growth, newton: Newton | None, rows: Spread, rounds: int
) -> Trees:
    from twinrank.boosting.xgboost_engine import Objective as Called
    from twinrank.boosting.xgboost_engine import grown, kinds_of, settings_of

    if rows.weights is not None:
        raise InputError(
            "XGBoost takes no weights of queries on a Dask cluster: choose engine='lightgbm'"
        )
    from xgboost import dask as xgb_dask
    from xgboost.core import XGBoostError

    settings = settings_of(growth)
    del settings["nthread"]
    features = rows.X.shape[1]
    with in_words("XGBoost", XGBoostError):
        data = xgb_dask.DaskDMatrix(
            client,
            rows.X,
            rows.y,
            qid=rows.numbers,
            feature_types=kinds_of(features, growth.categorical),
            enable_categorical=bool(growth.categorical),
        )
        objective = None if newton is None else Called(newton)
        found = xgb_dask.train(client, settings, data, rounds, obj=objective)
    return grown(found["booster"], features, growth)
