"""One training from parameters to boosted trees: what `BoostedRanker.fit` does."""

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from twinrank.boosting.engine import ENGINES, NO_TREE, Growth, check_settings, engine
from twinrank.boosting.model import BoostedModel
from twinrank.boosting.newton import Newton
from twinrank.boosting.rounds import Boosting, Callback
from twinrank.boosting.rows import check_grades, columns_of, kept_from, rows_of
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose, transform
from twinrank.measures import Measure, measure
from twinrank.support.errors import InputError, unknown
from twinrank.support.members import members_for

OWN = {
    "LambdaMART": ("lightgbm", "lambdarank"),
    "rank_xendcg": ("lightgbm", "rank_xendcg"),
    "rank:ndcg": ("xgboost", "rank:ndcg"),
}
"""Objectives that are an engine's own: which engine, and what it calls them."""

MODES: dict[str, dict[str, Any]] = {
    "default": {
        "n_estimators": 300,
        "learning_rate": 0.05,
        "num_leaves": 15,
        "early_stopping": 50,
        "transforms": "none",
    },
    # LambdaMART(L) of the paper. Its LightGBM cut the ideal DCG at 20 documents, which can't be set
    # today, but took all pairs into account, which can.
    "paper": {
        "n_estimators": 1000,
        "learning_rate": 0.05,
        "num_leaves": 400,
        "early_stopping": 200,
        "transforms": "QueryZScore",
    },
}
"""What the parameters are that are left to the mode: "auto"."""

_WORTH_THREADS = 2_000_000
"""Values of features: with fewer, a second thread is hardly a gain, and on busy cores, where an
engine's threads wait for each other, trees take up to a hundred times as long."""

_NOISE = ("strategy", "perturbation", "samples", "random_state")  # as `Newton` takes them
_PAPER_SETTINGS = {
    "min_data_in_leaf": 50,
    "min_sum_hessian_in_leaf": 200.0,
    "lambdarank_truncation_level": 1_000_000,
}


@dataclass(frozen=True, eq=False)
class Session:
    """Parameters of a `BoostedRanker`, turned into an objective and a way to grow trees."""

    parameters: dict[str, Any]

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Session":
        """Check parameters, and fill in what is left to the mode."""
        if given["mode"] not in MODES:
            raise InputError(unknown("mode", str(given["mode"]), MODES))
        if given["mode"] == "paper" and given["objective"] != "LambdaMART":
            raise InputError(
                f"mode='paper' is for objective='LambdaMART': the paper has no trees on "
                f"{given['objective']}"
            )
        chosen = {**given, "engine_params": check_settings(given["engine_params"])}
        for name, value in MODES[given["mode"]].items():
            if isinstance(chosen[name], str) and chosen[name] == "auto":
                chosen[name] = value
        if given["mode"] == "paper":
            chosen["engine_params"] = {**_PAPER_SETTINGS, **chosen["engine_params"]}
        _check(chosen)
        return cls(chosen)

    def train(
        self,
        data: Dataset,
        weights: Any,
        sets: dict[str, Dataset],
        callbacks: Sequence[Callback] = (),
    ) -> tuple[BoostedModel, Boosting]:
        """Grow trees on a dataset, with a weight per query or None; keep those of the best round.

        Every list of `data` can teach, and the sets have the same features.
        """
        from twinrank.support.compiled import threads_at_most

        jobs = self.parameters["n_jobs"]
        if jobs is None and data.documents * data.features < _WORTH_THREADS:
            jobs = 1
        with threads_at_most(jobs):
            return self._grown(data, weights, sets, callbacks, jobs)

    def _grown(
        self,
        data: Dataset,
        weights: Any,
        sets: dict[str, Dataset],
        callbacks: Sequence[Callback],
        jobs: int | None,
    ) -> tuple[BoostedModel, Boosting]:
        given, module = self.parameters, engine(self.parameters["engine"])
        newton = self.newton()
        columns = columns_of(given["categorical_features"], data.features, data.feature_names)
        fitted = kept_from(transform(given["transforms"]), columns)
        if fitted != Compose():
            fitted = fitted.fit(data.X, data.lists)
        if newton is None:
            check_grades(data)
        boosting = Boosting(
            int(given["n_estimators"]),
            measure(given["validation_measure"]),
            tuple(sets),
            given["early_stopping"],
        )
        rows = rows_of(data, fitted, columns, weights)
        validation = {name: rows_of(one, fitted, columns) for name, one in sets.items()}
        objective = None if newton is None else module.Objective(newton)
        growth = replace(self.growth(columns, data.documents), n_jobs=jobs)
        grower = module.Grower(growth, objective, rows, validation)
        boosting.run(grower, callbacks)
        if not boosting.best_round:
            raise InputError(NO_TREE)
        trees = grower.trees(boosting.best_round)
        members = self.members(data.documents)
        about = {"name": data.name, "queries": data.queries, "documents": data.documents}
        provenance = self.provenance(about, boosting.best_round, boosting.best_value)
        model = BoostedModel(
            given["engine"],
            trees,
            data.features,
            fitted,
            columns,
            data.feature_names,
            members,
            provenance,
        )
        return model, boosting

    def newton(self) -> Newton | None:
        """The measure that is optimised; None where the objective is the engine's own."""
        given = self.parameters
        if str(given["objective"]) in OWN:
            return None
        return Newton.of(given["objective"], *(given[name] for name in _NOISE))

    def members(self, documents: int) -> int:
        """How many are trained side by side on so many documents."""
        given = self.parameters["members"]
        if isinstance(given, str):  # auto
            return members_for(documents) if _why_one(self.parameters) is None else 1
        return int(given)

    def growth(self, columns: tuple[int, ...], documents: int) -> Growth:
        """How trees are grown on so many documents, given the columns that hold categories."""
        given = self.parameters
        own = OWN.get(str(given["objective"]))
        return Growth(
            objective=own[1] if own else None,
            learning_rate=float(given["learning_rate"]),
            num_leaves=int(given["num_leaves"]),
            members=self.members(documents),
            categorical=columns,
            n_jobs=given["n_jobs"],
            seed=int(given["random_state"]),
            more=given["engine_params"],
        )

    def provenance(self, data: dict[str, Any], rounds: int, value: float | None) -> dict[str, Any]:
        """Where a model comes from, for people."""
        names = ("twinrank", "numpy", "numba", self.parameters["engine"])
        return {
            "data": data,
            "rounds": rounds,
            "best_value": value,
            "versions": {"python": platform.python_version(), **{n: _version(n) for n in names}},
        }


def _version(name: str) -> str:
    return version("xgboost-cpu" if name == "xgboost" and not _installed(name) else name)


def _installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _check(given: dict[str, Any]) -> None:
    """Refuse parameters that can't be used."""
    least_of = {"n_estimators": 1, "members": 1, "num_leaves": 2, "early_stopping": 1}
    allowed = {"early_stopping": None, "members": "auto"}
    for name, least in least_of.items():
        value = given[name]
        if name in allowed and value == allowed[name]:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} must be a whole number from {least} on, not {value!r}")
    rate = given["learning_rate"]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise InputError(f"learning_rate must be a positive number, not {rate!r}")
    jobs = given["n_jobs"]
    whole = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool) and jobs != 0
    if jobs is not None and not whole:
        raise InputError(f"n_jobs must be a number of threads, or -1 for all, not {jobs!r}")
    if given["engine"] not in ENGINES:
        raise InputError(unknown("engine", str(given["engine"]), ENGINES))
    measure(given["validation_measure"])
    transform(given["transforms"])
    Newton.of("nDCG", *(given[name] for name in _NOISE))
    _check_objective(given["objective"], given["engine"])
    reason = _why_one(given)
    if given["members"] not in ("auto", 1) and reason is not None:
        raise InputError(f"members={given['members']} can't be: {reason}")
    if given["engine_params"].get("bagging_by_query") and str(given["objective"]) not in OWN:
        raise InputError(
            "bagging_by_query is for LightGBM's own objectives, which it gives whole queries to: "
            "with a measure its trees come out wrong; leave it out, and rows are drawn"
        )


def _why_one(given: dict[str, Any]) -> str | None:
    """Why there can't be several members, if so."""
    if str(given["objective"]) in OWN:
        return f"{given['objective']} has no noise, by which members differ; a measure has"
    booster = given["engine_params"].get("booster", "gbtree")
    if given["engine"] == "xgboost" and booster != "gbtree":
        return f"trees of booster={booster!r} can't be put together"
    return None


def _check_objective(name: Any, engine_name: str) -> None:
    if str(name) in OWN:
        needed = OWN[str(name)][0]
        if needed != engine_name:
            raise InputError(f"objective {name!r} is one of {needed}'s: choose engine={needed!r}")
        return
    if isinstance(name, str):
        for known, (_, theirs) in OWN.items():
            if name.lower() in (known.lower(), theirs.lower()):
                raise InputError(f"there is no objective {name!r}; did you mean {known!r}?")
    elif not isinstance(name, Measure):
        raise InputError(f"objective must be a measure, or one of {', '.join(OWN)}, not {name!r}")
    measure(name)
