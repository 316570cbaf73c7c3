"""Boosted trees as a learner: one round of LightGBM or XGBoost per iteration."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, replace
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
from twinrank.boosting.sampling import deviation
from twinrank.boosting.tree_features import check_grades, rows_of, tree_transform
from twinrank.boosting.tree_model import TreeModel
from twinrank.data.transforms import Transform, transform
from twinrank.measures import Measure, measure, names
from twinrank.models.encoding import check_columns
from twinrank.support.compiled import limit_of_threads, threads, threads_at_most
from twinrank.support.errors import InputError, has_torch, unknown
from twinrank.training.learner import Learner, LearnerExhausted, Scores, Task
from twinrank.training.settings import BASELINE, check_number, is_auto

ENGINE_OBJECTIVES = {
    "LambdaMART": ("lightgbm", "lambdarank"),
    "rank_xendcg": ("lightgbm", "rank_xendcg"),
    "rank:ndcg": ("xgboost", "rank:ndcg"),
}
"""Objectives of the engines themselves: our name, the engine, its own name."""

_WORTH_THREADS = 2_000_000
"""Feature values. With fewer, a second thread gains little, and on busy cores, where the engine's
threads wait for each other, training takes up to a hundred times as long."""

_PATIENCE = 20
"""Rounds in a row without a split that end the growth of a model whose rounds draw columns, queries
or noise: other draws may have a split."""

_ROW_SAMPLES = (
    "bagging", "bagging_by_query", "bagging_fraction", "bagging_freq", "data_sample_strategy",
    "neg_bagging_fraction", "pos_bagging_fraction", "sampling_method", "sub_row", "subsample",
    "subsample_freq",
)  # fmt: skip
_BOOSTING = ("boosting", "boosting_type", "boost")
_OTHER_DRAWS = (
    *_BOOSTING, "colsample_bylevel", "colsample_bynode", "extra_tree",
    "extra_trees", "feature_fraction_bynode", "sub_feature_bynode",
)  # fmt: skip
_WITHOUT_NOISE = ("LambdaMART", "rank:ndcg")
_BY_COLUMN = (
    "monotone_constraints", "mc", "monotone_constraint", "interaction_constraints",
    "feature_contri", "feature_contrib", "fc", "fp", "feature_penalty", "feature_weights",
    "max_bin_by_feature", "forcedsplits_filename", "forcedbins_filename",
)  # fmt: skip
"""Settings of the engines with a value for each column of the user's features."""
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
        at_once: int = 1,
    ) -> None:
        self._at_once = at_once  # models that grow at the same time
        self._engine, self._settings, self._objective = engine_name, settings, objective
        self._transform, self._task, self._lists = fitted, task, rows.lists
        self.selected_models = size = settings.ensemble_size
        self._rounds, self._best_trees = 0, [0] * size
        self._idle, self._patience = [0] * size, _PATIENCE if _draws(settings, objective) else 1
        """The latest rounds of each model without a split, and how many of them end its growth."""
        self._deviations, self._best_deviations = [0.0] * size, [0.0] * size
        """The standard deviation of each model's scores, now (0: unknown) and in its kept round."""
        self._best_models: list[Any] = [None] * size
        """The kept models, if they cannot be cut from the last ones."""
        self._data = engine(engine_name).Data(settings, rows, sets)
        self._growers: list[Grower] = [self._new_grower(model) for model in range(size)]

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], documents: int) -> dict[str, Any]:
        """Replace "auto"; only a measure as objective makes an ensemble by itself."""
        own = {**parameters, "engine_params": check_engine_params(parameters["engine_params"])}
        if str(own["objective"]) in ENGINE_OBJECTIVES and own["mode"] == "default":
            own |= {name: usual for name, usual in BASELINE.items() if is_auto(own[name])}
        if is_auto(own["transforms"]) and any(n in own["engine_params"] for n in _BY_COLUMN):
            own["transforms"] = "none"
        resolved = super().resolve(own, documents)
        if is_auto(own["ensemble_size"]) and _reason_for_one_model(resolved) is not None:
            resolved["ensemble_size"] = 1
        if own["mode"] == "paper":
            if own["engine"] != "lightgbm":
                raise InputError(
                    f"mode='paper' has settings of LightGBM, but engine={own['engine']!r}. Use "
                    f"engine='lightgbm'."
                )
            resolved["engine_params"] = {**_PAPER_PARAMS, **own["engine_params"]}
        return resolved

    @classmethod
    def check(cls, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for parameters that cannot be used."""
        for name, least in (("n_estimators", 1), ("ensemble_size", 1), ("num_leaves", 2)):
            check_number(name, parameters[name], whole=True, least=least)
        check_number("learning_rate", parameters["learning_rate"])
        _check_samples(parameters)
        jobs = parameters["n_jobs"]
        whole = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool) and jobs != 0
        if jobs is not None and not whole:
            raise InputError(f"n_jobs must be a number of threads, or -1 for all, not {jobs!r}.")
        if parameters["engine"] not in ENGINES:
            raise InputError(unknown("engine", str(parameters["engine"]), ENGINES))
        transform(parameters["transforms"])
        check_columns(parameters["categorical_features"])
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
        columns = tuple(task.categories)
        fitted = tree_transform(transform(parameters["transforms"]), columns)
        if fitted.has_statistics:
            fitted = fitted.fit(data.X, data.lists)
        if newton is None:
            check_grades(data)
        settings = tree_settings(parameters, columns)
        module = engine(parameters["engine"])
        jobs, at_once = limit_of_threads(settings.n_jobs), 1
        if settings.ensemble_size > 1 and module.SHARES_DATA:
            with threads_at_most(jobs):
                at_once = min(settings.ensemble_size, threads())
                jobs = max(threads() // at_once, 1)
        elif settings.n_jobs is None and data.documents * data.features < _WORTH_THREADS:
            jobs = 1
        settings = replace(settings, n_jobs=jobs)
        rows = rows_of(data, fitted, columns, task.weights)
        sets = {name: rows_of(other, fitted, columns) for name, other in task.evaluation.items()}
        objective = None if newton is None else module.Objective(newton)
        return cls(parameters["engine"], settings, objective, fitted, task, rows, sets, at_once)

    def settings(self) -> dict[str, Any]:
        """The settings of the trees; the number of threads makes no difference."""
        objective = "" if self._objective is None else repr(self._objective.newton)
        own = {k: v for k, v in asdict(self._settings).items() if k != "n_jobs"}
        return {"engine": self._engine, "newton": objective, **own}

    @contextmanager
    def training(self) -> Iterator[None]:
        """Our own loops take as many threads as the engine; models grow beside each other."""
        with threads_at_most(self._settings.n_jobs):
            if self._at_once == 1:
                yield
                return
            begin = engine(self._engine).begin_thread
            with ThreadPoolExecutor(self._at_once, initializer=begin) as self._pool:
                yield

    def steps(self, iteration: int, first: int) -> Iterator[int]:  # noqa: ARG002
        """Grow a tree of each model."""

        def grow(model: int) -> bool:
            return self._idle[model] < self._patience and self._growers[model].grow(iteration)

        models = range(self.selected_models)
        if self._at_once == 1:
            grown = [grow(model) for model in models]
        else:
            tasks = [self._pool.submit(copy_context().run, grow, model) for model in models]
            wait(tasks)  # before an error ends the training
            grown = [task.result() for task in tasks]
        self._idle = [0 if grown[model] else self._idle[model] + 1 for model in models]
        if min(self._idle) >= self._patience:
            self._check_trees()
            raise LearnerExhausted(f"no split helps after {iteration + 1 - self._patience} rounds")
        self._rounds = iteration + 1
        self._deviations = [0.0] * self.selected_models
        yield self._task.data.documents

    def scores(self, name: str) -> Scores:
        """The scores of an evaluation set; those of each model of an ensemble are standardised."""
        columns = [grower.scores(name) for grower in self._growers]
        if self.selected_models > 1:
            columns = [own / self._deviation(model) for model, own in enumerate(columns)]
        return np.column_stack(columns)

    def _deviation(self, model: int) -> float:
        """The standard deviation of a model's scores on the training data, within queries."""
        if not self._deviations[model]:
            self._deviations[model] = deviation(self._growers[model].scores(), self._lists)
        return self._deviations[model]

    def snapshot(self, models: list[int]) -> None:
        """Remember the number of trees, and the standard deviation of the scores."""
        for model in models:
            grower = self._growers[model]
            if grower.rescales:
                self._best_models[model] = grower.model(grower.count)
            self._best_trees[model] = grower.count
            self._best_deviations[model] = self._deviations[model]

    def state(self) -> dict[str, bytes]:
        """The trees of each model, and their numbers."""
        rounds = {
            "rounds": self._rounds,
            "best": self._best_trees,
            "idle": self._idle,
            "deviations": self._best_deviations,
        }
        trees = {f"trees.{i}": grower.state() for i, grower in enumerate(self._growers)}
        return {**trees, "rounds": json.dumps(rounds).encode()}

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Continue from `state`."""
        rounds = json.loads(state["rounds"])
        self._rounds, self._best_trees = rounds["rounds"], rounds["best"]
        self._idle, self._best_deviations = rounds["idle"], rounds["deviations"]
        self._deviations = [0.0] * self.selected_models
        self._growers = [
            self._new_grower(model, state[f"trees.{model}"])
            for model in range(self.selected_models)
        ]

    @property
    def resumes_exactly(self) -> bool:
        """False if the engine draws random numbers that we cannot repeat."""
        return self._growers[0].exact

    def finish(self) -> TreeModel:
        """The model with the trees of each model up to its kept round.

        The mean of standardised scores ranks, so that models that stopped early count as much.
        """
        self._check_trees()
        data, size = self._task.data, self.selected_models
        models = [
            kept or own.model(count or own.count)
            for kept, own, count in zip(
                self._best_models, self._growers, self._best_trees, strict=True
            )
        ]
        factors = [1.0]
        if size > 1:
            best = enumerate(self._best_deviations)
            factors = [1 / (size * (value or self._deviation(model))) for model, value in best]
        categorical = self._settings.categorical
        columns = self._transform.outputs(data.features)
        return TreeModel(
            features=data.features,
            feature_names=data.feature_names,
            transform=self._transform,
            ensemble_size=size,
            engine=self._engine,
            trees=engine(self._engine).merged_trees(models, factors, columns, categorical),
            categorical=categorical,
        )

    def _check_trees(self) -> None:
        """Raise an error if no model has a tree."""
        if not any(grower.count for grower in self._growers):
            raise InputError(NO_TREE)

    def _new_grower(self, model: int, state: bytes | None = None) -> Grower:
        settings, objective = replace(self._settings, model=model), self._objective
        if objective is not None:
            objective = replace(objective, newton=replace(objective.newton, model=model))
        grower: Grower = engine(self._engine).Grower(settings, objective, self._data, state)
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
        colsample_bytree=float(parameters["colsample_bytree"]),
        subsample=float(parameters["subsample"]),
        subsample_freq=int(parameters["subsample_freq"]),
        categorical=columns,
        n_jobs=parameters["n_jobs"],
        seed=int(parameters["random_state"]),
        engine_params=parameters["engine_params"],
    )


def _check_samples(parameters: Mapping[str, Any]) -> None:
    """Check the shares of columns and queries."""
    for name in ("colsample_bytree", "subsample"):
        check_number(name, parameters[name])
        if parameters[name] > 1:
            raise InputError(f"{name} is a share of at most 1, not {parameters[name]!r}.")
    often = parameters["subsample_freq"]
    if isinstance(often, bool) or not isinstance(often, int | np.integer) or often < 0:
        raise InputError(f"subsample_freq must be a whole number of at least 0, not {often!r}")
    taken = [name for name in parameters["engine_params"] if name in _ROW_SAMPLES]
    if parameters["subsample"] < 1 and taken:
        raise InputError(
            f"engine_params sets {taken[0]}, which samples rows, and subsample="
            f"{parameters['subsample']} samples queries. Set one of them."
        )


def _draws(settings: TreeSettings, objective: Any) -> bool:
    """True if the rounds of a training differ by random draws."""
    if objective is not None or settings.objective == "rank_xendcg":
        return True
    own = {*_ROW_SAMPLES, *_OTHER_DRAWS}.intersection(settings.engine_params)
    return bool(own) or settings.colsample_bytree < 1 or settings.subsample < 1


def _reason_for_one_model(parameters: Mapping[str, Any]) -> str | None:
    """Why an ensemble is impossible, if it is."""
    draws = {*_ROW_SAMPLES, *_OTHER_DRAWS}.intersection(parameters["engine_params"])
    shares = [parameters[name] for name in ("colsample_bytree", "subsample")]
    if str(parameters["objective"]) in _WITHOUT_NOISE and shares == [1, 1] and not draws:
        return (
            f"needs models that differ, but {parameters['objective']} has no random numbers. Set "
            f"subsample or colsample_bytree below 1."
        )
    engine_params = parameters["engine_params"]
    booster = engine_params.get("booster", "gbtree")
    if parameters["engine"] == "xgboost" and booster != "gbtree":
        return f"needs booster='gbtree', not {booster!r}."
    boosting = next((engine_params[name] for name in _BOOSTING if name in engine_params), "gbdt")
    if parameters["engine"] == "lightgbm" and boosting in ("dart", "rf", "random_forest"):
        return f"needs boosting='gbdt', not {boosting!r}."
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
    if head in names():
        return
    if has_torch():
        from twinrank.losses import NAMES as LOSSES

        if head in LOSSES:
            raise InputError(f"{head} is a loss for nets; trees optimise measures, such as nDCG.")
    raise InputError(unknown("objective", head, [*names(), *ENGINE_OBJECTIVES]))
