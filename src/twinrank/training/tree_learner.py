"""Boosted trees as a learner: one round of LightGBM or XGBoost per iteration."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np

from twinrank.boosting.engines import (
    ENGINES,
    NO_TREE,
    Grower,
    Rows,
    TreeSettings,
    check_engine_params,
    engine,
)
from twinrank.boosting.newton import Newton
from twinrank.boosting.tree_features import check_grades, columns_of, rows_of, tree_transform
from twinrank.boosting.tree_model import TreeModel
from twinrank.data.transforms import Compose, Transform, transform
from twinrank.measures import NAMES, Measure, measure
from twinrank.support.compiled import limit_of_threads, threads_at_most
from twinrank.support.errors import InputError, unknown
from twinrank.training.learner import Learner, LearnerExhausted, Scores, Task
from twinrank.training.settings import check_number

ENGINE_OBJECTIVES = {
    "LambdaMART": ("lightgbm", "lambdarank"),
    "rank_xendcg": ("lightgbm", "rank_xendcg"),
    "rank:ndcg": ("xgboost", "rank:ndcg"),
}
"""Objectives of the engines themselves: our name, the engine, its own name."""

_WORTH_THREADS = 2_000_000
"""Feature values. With fewer, a second thread gains little, and on busy cores, where the engine's
threads wait for each other, training takes up to a hundred times as long."""

_NEWTON = ("strategy", "perturbation", "samples", "random_state")
_PAPER_PARAMS = {
    "min_data_in_leaf": 50,
    "min_sum_hessian_in_leaf": 200.0,
    "lambdarank_truncation_level": 1_000_000,
}


class TreeLearner(Learner):
    """Grows trees on a measure, or on one of the engine's own objectives."""

    kind: ClassVar[str] = "trees"
    unit: ClassVar[str] = "round"
    iterations_parameter: ClassVar[str] = "n_estimators"
    report_every: ClassVar[int] = 10

    def __init__(
        self,
        engine_name: str,
        settings: TreeSettings,
        objective: Any,
        fitted: Transform,
        task: Task,
        rows: Rows,
        sets: Mapping[str, Rows],
    ) -> None:
        self._engine, self._settings, self._objective = engine_name, settings, objective
        self._transform, self._task, self._rows, self._sets = fitted, task, rows, sets
        self._rounds, self._best_rounds = 0, 0
        self._grower: Grower = self._new_grower(None)

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], documents: int) -> dict[str, Any]:
        """Replace "auto"; an ensemble needs models that differ by their noise."""
        own = {**parameters, "engine_params": check_engine_params(parameters["engine_params"])}
        if own["ensemble_size"] == "auto" and _reason_for_one_model(own) is not None:
            own["ensemble_size"] = 1
        resolved = super().resolve(own, documents)
        if own["mode"] == "paper":
            if str(own["objective"]) != "LambdaMART":
                raise InputError(
                    f"mode='paper' is for objective='LambdaMART': the paper has no trees on "
                    f"{own['objective']}."
                )
            resolved["engine_params"] = {**_PAPER_PARAMS, **own["engine_params"]}
        return resolved

    @classmethod
    def check(cls, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for parameters that cannot be used."""
        for name, least in (("n_estimators", 1), ("ensemble_size", 1), ("num_leaves", 2)):
            check_number(name, parameters[name], whole=True, least=least)
        check_number("learning_rate", parameters["learning_rate"])
        jobs = parameters["n_jobs"]
        whole = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool) and jobs != 0
        if jobs is not None and not whole:
            raise InputError(f"n_jobs must be a number of threads, or -1 for all, not {jobs!r}.")
        if parameters["engine"] not in ENGINES:
            raise InputError(unknown("engine", str(parameters["engine"]), ENGINES))
        transform(parameters["transforms"])
        _check_objective(parameters["objective"], parameters["engine"])
        Newton.of("nDCG", *(parameters[name] for name in _NEWTON))
        newton_of(parameters)
        reason = _reason_for_one_model(parameters)
        if parameters["ensemble_size"] > 1 and reason is not None:
            raise InputError(f"ensemble_size > 1 {reason}")
        engine_params = parameters["engine_params"]
        own_objective = str(parameters["objective"]) in ENGINE_OBJECTIVES
        if engine_params.get("bagging_by_query") and not own_objective:
            raise InputError(
                "bagging_by_query only works with LightGBM's own objectives: with a measure, "
                "LightGBM grows wrong trees. Leave it out; LightGBM then samples rows."
            )

    @classmethod
    def depends_on_threads(cls, parameters: Mapping[str, Any]) -> bool:
        """XGBoost's sums depend on the number of threads, LightGBM's do not."""
        return bool(parameters["engine"] == "xgboost")

    @classmethod
    def packages(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Results depend on the engine."""
        return (str(parameters["engine"]),)

    @classmethod
    def prepare(cls, parameters: Mapping[str, Any], task: Task) -> Self:
        """Fit the transform, and hand the rows to the engine."""
        data = task.data
        newton = newton_of(parameters)
        columns = columns_of(parameters["categorical_features"], data.features, data.feature_names)
        fitted = tree_transform(transform(parameters["transforms"]), columns)
        if fitted != Compose():
            fitted = fitted.fit(data.X, data.lists)
        if newton is None:
            check_grades(data)
        settings = tree_settings(parameters, columns)
        jobs = settings.n_jobs
        if jobs is None and data.documents * data.features < _WORTH_THREADS:
            jobs = 1
        settings = replace(settings, n_jobs=limit_of_threads(jobs))
        rows = rows_of(data, fitted, columns, task.weights)
        sets = {name: rows_of(other, fitted, columns) for name, other in task.evaluation.items()}
        module = engine(parameters["engine"])
        objective = None if newton is None else module.Objective(newton)
        return cls(parameters["engine"], settings, objective, fitted, task, rows, sets)

    def settings(self) -> dict[str, Any]:
        """The settings of the trees; the number of threads makes no difference."""
        objective = "" if self._objective is None else repr(self._objective.newton)
        own = {k: v for k, v in asdict(self._settings).items() if k != "n_jobs"}
        return {"engine": self._engine, "newton": objective, **own}

    @contextmanager
    def training(self) -> Iterator[None]:
        """Our own loops take as many threads as the engine."""
        with threads_at_most(self._settings.n_jobs):
            yield

    def steps(self, iteration: int, first: int) -> Iterator[int]:  # noqa: ARG002
        """Grow the trees of one round."""
        if not self._grower.grow(iteration):
            if not iteration:
                raise InputError(NO_TREE)
            raise LearnerExhausted(f"no split helps after {iteration} rounds")
        self._rounds = iteration + 1
        yield self._task.data.documents

    def scores(self, name: str) -> Scores:
        """The scores of an evaluation set."""
        return self._grower.scores(name)[:, None]

    def snapshot(self, models: list[int]) -> None:  # noqa: ARG002
        """Remember the number of rounds."""
        self._best_rounds = self._rounds

    def state(self) -> dict[str, bytes]:
        """The trees, and the number of rounds."""
        rounds = {"rounds": self._rounds, "best": self._best_rounds}
        return {"trees": self._grower.state(), "rounds": json.dumps(rounds).encode()}

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Continue from `state`."""
        rounds = json.loads(state["rounds"])
        self._rounds, self._best_rounds = rounds["rounds"], rounds["best"]
        self._grower = self._new_grower(state["trees"])

    @property
    def resumes_exactly(self) -> bool:
        """False if the engine draws random numbers that we cannot repeat."""
        return self._grower.exact

    def finish(self) -> TreeModel:
        """The model with the trees up to the best round."""
        data = self._task.data
        return TreeModel(
            features=data.features,
            feature_names=data.feature_names,
            transform=self._transform,
            ensemble_size=self._settings.ensemble_size,
            engine=self._engine,
            trees=self._grower.trees(self._best_rounds or self._rounds),
            categorical=self._settings.categorical,
        )

    def _new_grower(self, state: bytes | None) -> Grower:
        grower: Grower = engine(self._engine).Grower(
            self._settings, self._objective, self._rows, self._sets, state
        )
        return grower


def newton_of(parameters: Mapping[str, Any]) -> Newton | None:
    """The gradient and hessian of the measure; None for one of the engine's own objectives."""
    if str(parameters["objective"]) in ENGINE_OBJECTIVES:
        return None
    return Newton.of(parameters["objective"], *(parameters[name] for name in _NEWTON))


def tree_settings(parameters: Mapping[str, Any], columns: tuple[int, ...]) -> TreeSettings:
    """How trees are grown, given the columns of categories."""
    own = ENGINE_OBJECTIVES.get(str(parameters["objective"]))
    return TreeSettings(
        objective=own[1] if own else None,
        learning_rate=float(parameters["learning_rate"]),
        num_leaves=int(parameters["num_leaves"]),
        ensemble_size=int(parameters["ensemble_size"]),
        categorical=columns,
        n_jobs=parameters["n_jobs"],
        seed=int(parameters["random_state"]),
        engine_params=parameters["engine_params"],
    )


def _reason_for_one_model(parameters: Mapping[str, Any]) -> str | None:
    """Why an ensemble is impossible, if it is."""
    if str(parameters["objective"]) in ENGINE_OBJECTIVES:
        return f"needs a measure as objective, not {parameters['objective']}."
    booster = parameters["engine_params"].get("booster", "gbtree")
    if parameters["engine"] == "xgboost" and booster != "gbtree":
        return f"needs booster='gbtree', not {booster!r}."
    return None


def _check_objective(name: Any, engine_name: str) -> None:
    if str(name) in ENGINE_OBJECTIVES:
        needed = ENGINE_OBJECTIVES[str(name)][0]
        if needed != engine_name:
            raise InputError(f"Objective {name!r} needs engine={needed!r}.")
        return
    if isinstance(name, str):
        for known, (_, theirs) in ENGINE_OBJECTIVES.items():
            if name.lower() in (known.lower(), theirs.lower()):
                raise InputError(f"Unknown objective {name!r}. Did you mean {known!r}?")
        _check_known(name)
    elif not isinstance(name, Measure):
        others = ", ".join(ENGINE_OBJECTIVES)
        raise InputError(f"objective must be a measure or one of {others}, not {name!r}.")
    measure(name)


def _check_known(name: str) -> None:
    """Refuse names that are no measures; losses are for nets."""
    head = name.partition("(")[0].partition("@")[0].strip()
    if head in NAMES:
        return
    if find_spec("torch") is not None:
        from twinrank.losses import NAMES as LOSSES

        if head in LOSSES:
            raise InputError(f"{head} is a loss for nets; trees optimise measures, such as nDCG.")
    raise InputError(unknown("objective", head, [*NAMES, *ENGINE_OBJECTIVES]))
