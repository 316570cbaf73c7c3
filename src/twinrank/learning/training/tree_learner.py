"""Boosted trees as a learner: one round of LightGBM or XGBoost per iteration."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np

from twinrank.core.measures import Measure
from twinrank.data.label_columns import training_labels
from twinrank.data.transforms import Transform, transform
from twinrank.learning.boosting.engines import (
    NO_TREE,
    Grower,
    Rows,
    TreeSettings,
    engine,
)
from twinrank.learning.boosting.own_objective import OwnObjective
from twinrank.learning.boosting.tree_features import check_grades, rows_of, tree_transform
from twinrank.learning.boosting.tree_memory import check_memory
from twinrank.learning.boosting.tree_model import TreeModel
from twinrank.learning.models.blend_model import deviation
from twinrank.learning.training.feature_trial import LARGE_DATA, raw_features_suffice
from twinrank.learning.training.learner import (
    Learner,
    LearnerExhausted,
    Scores,
    Task,
    TrainingError,
)
from twinrank.learning.training.settings import TREE_PARAMETERS, is_auto
from twinrank.learning.training.tree_parameters import (
    BY_COLUMN,
    ENGINE_OBJECTIVES,
    PAPER_PARAMS,
    check_continues,
    check_engine_params,
    check_tree_parameters,
    draws_randomly,
    newton_of,
    reason_for_one_model,
    tree_settings,
)
from twinrank.support.compiled import limit_of_threads, threads, threads_at_most
from twinrank.support.errors import Argument, InputError

_WORTH_THREADS = 2_000_000
"""Feature values. With fewer, a second thread gains little, and on busy cores, where the engine's
threads wait for each other, training takes up to a hundred times as long."""

_RAW_SUFFICES = (
    "On a sample of the queries, raw features ranked better than with z-scores beside them: "
    "transforms='none'."
)
_Z_SCORES_HELP = (
    "On a sample of the queries, raw features were not better without z-scores: each feature has "
    "both."
)

_PATIENCE = 20
"""Rounds in a row without a split that end the growth of a model whose rounds draw columns, queries
or noise: other draws may have a split."""


class TreeLearner(Learner):
    """Grows trees on a measure, or on one of the engine's own objectives."""

    kind: ClassVar[str] = "trees"
    iteration_name: ClassVar[str] = "round"
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
        earlier: TreeModel | None = None,
    ) -> None:
        self._earlier = None if earlier is None else earlier.trees.scaled(earlier.scale)
        """The trees that all models start from."""
        self._earlier_rounds = 0 if earlier is None else earlier.trees.count
        self._at_once = at_once  # models that grow at the same time
        self._engine, self._settings, self._objective = engine_name, settings, objective
        self._transform, self._task, self._lists = fitted, task, rows.lists
        self.selected_models = size = settings.ensemble_size
        self._rounds, self._best_trees = 0, [0] * size
        self._idle, self._patience = (
            [0] * size,
            _PATIENCE if draws_randomly(settings, objective) else 1,
        )
        """The latest rounds of each model without a split, and how many of them end its growth."""
        self._deviations, self._best_deviations = [0.0] * size, [0.0] * size
        """The standard deviation of each model's scores, now (0: unknown) and in its kept round."""
        self._best_models: list[Any] = [None] * size
        """The kept models, if they cannot be cut from the last ones."""
        self._rescales = engine(engine_name).rescales(settings.engine_params)
        self._data = engine(engine_name).Data(settings, rows, sets)
        self._growers: list[Grower] = [
            self._new_grower(model, self._earlier) for model in range(size)
        ]

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], documents: int) -> dict[str, Any]:
        """Replace "auto"; only with a measure as objective is an ensemble the default."""
        own = {**parameters, "engine_params": check_engine_params(parameters["engine_params"])}
        if str(own["objective"]) in ENGINE_OBJECTIVES and own["mode"] != "paper":
            for name, parameter in TREE_PARAMETERS.items():
                if parameter.own_objective is not None and is_auto(own[name]):
                    own[name] = parameter.own_objective
        if is_auto(own["transforms"]) and any(n in own["engine_params"] for n in BY_COLUMN):
            own["transforms"] = "none"
        resolved = super().resolve(own, documents)
        if is_auto(own["ensemble_size"]) and reason_for_one_model(resolved) is not None:
            resolved["ensemble_size"] = 1
        if own["mode"] == "paper":
            if own["engine"] != "lightgbm":
                raise InputError(
                    Argument("mode", "paper"),
                    f" has settings of LightGBM, but the engine is {own['engine']!r}. Use ",
                    Argument("engine", "lightgbm"),
                    ".",
                )
            resolved["engine_params"] = {**PAPER_PARAMS, **own["engine_params"]}
        return resolved

    @classmethod
    def decide(
        cls, parameters: Mapping[str, Any], resolved: dict[str, Any], task: Task
    ) -> dict[str, Any]:
        """On large data, a trial decides whether the default transforms have z-scores."""
        default = TREE_PARAMETERS["transforms"].default
        if (
            is_auto(parameters["transforms"])
            and resolved["transforms"] == default
            and task.train.data.documents >= LARGE_DATA
            and task.previous is None
            and task.group.size == 1
        ):
            raw = raw_features_suffice(cls.prepare, resolved, task)
            task.announce(_RAW_SUFFICES if raw else _Z_SCORES_HELP)
            resolved = {**resolved, "transforms": "none" if raw else default}
        return resolved

    @classmethod
    def check(cls, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for parameters that cannot be used."""
        check_tree_parameters(parameters)

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
        data = task.train.data
        newton = newton_of(parameters)
        if data.row_weights is not None and (newton is None or isinstance(newton, OwnObjective)):
            title = newton.title if newton else parameters["objective"]
            raise InputError(
                Argument("objective"),
                f": {title} takes no weights that differ within a query. Use a measure such as "
                f"nDCG, or give all rows of a query the same weight.",
            )
        columns = tuple(task.categories)
        earlier = task.previous
        if earlier is not None:
            assert isinstance(earlier, TreeModel)
            check_continues(parameters, earlier, columns)
            fitted = earlier.transform
        else:
            fitted = tree_transform(transform(parameters["transforms"]), columns)
            if fitted.has_statistics:
                fitted = fitted.fit(data.X, data.lists)
        if newton is None:
            check_grades(data)
        else:
            own, labels = training_labels(newton.measure, data)
            newton = replace(newton, add_parts=task.group.add_parts)
            if labels is not data.y:  # the engine has those
                newton = replace(newton, measure=own, labels=labels)
        settings = tree_settings(parameters, columns)
        module = engine(parameters["engine"])
        jobs, at_once = limit_of_threads(settings.n_jobs), 1
        together = not isinstance(newton, OwnObjective)  # torch's random numbers are global
        together = together and task.group.size == 1  # networks belong to a thread
        if settings.ensemble_size > 1 and module.SHARES_DATA and together:
            with threads_at_most(jobs):
                at_once = min(settings.ensemble_size, threads())
                jobs = max(threads() // at_once, 1)
        elif settings.n_jobs is None and data.documents * data.features < _WORTH_THREADS:
            jobs = 1
        settings = replace(settings, n_jobs=jobs)
        others = sum(other.documents for other in task.evaluation.values())
        if note := check_memory(module, settings, data, others, fitted):
            task.announce(note)
        rows = rows_of(data, fitted, columns, task.train.weights)
        # A worker may have no query of a set, but the engines take no empty ones.
        some = {n: s if s.documents else data.select([0]) for n, s in task.evaluation.items()}
        sets = {name: rows_of(other, fitted, columns) for name, other in some.items()}
        objective = None if newton is None else module.Objective(newton)
        name = parameters["engine"]
        return cls(name, settings, objective, fitted, task, rows, sets, at_once, earlier)

    def settings(self) -> dict[str, Any]:
        """The settings of the trees; the number of threads makes no difference."""
        objective = "" if self._objective is None else repr(self._objective.newton)
        own = {k: v for k, v in asdict(self._settings).items() if k != "n_jobs"}
        return {"engine": self._engine, "newton": objective, **own}

    @contextmanager
    def training(self) -> Iterator[None]:
        """Our own loops take as many threads as the engine; models grow in parallel."""
        with threads_at_most(self._settings.n_jobs):
            if self._at_once == 1:
                yield
                return
            begin = engine(self._engine).begin_thread
            with ThreadPoolExecutor(self._at_once, initializer=begin) as self._pool:
                yield

    def steps(self, iteration: int, first: int) -> Iterator[int]:  # noqa: ARG002
        """Grow a tree of each model; rounds of an earlier training count, for other draws."""
        number = self._earlier_rounds + iteration

        def grow(model: int) -> bool:
            return self._idle[model] < self._patience and self._growers[model].grow(number)

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
        yield self._task.train.data.documents

    def optimise(self, measure: Measure) -> None:
        """Grow the next trees on this measure."""
        own, labels = training_labels(measure, self._task.train.data)
        for grower in self._growers:
            newton = replace(grower.objective.newton, measure=own, labels=labels)
            grower.objective = replace(grower.objective, newton=newton)

    def scores(self, name: str) -> Scores:
        """The scores of an evaluation set; those of each model of an ensemble are standardised."""
        documents = self._task.evaluation[name].documents
        columns = [grower.scores(name)[:documents] for grower in self._growers]
        if self.selected_models > 1:
            columns = [own / self._deviation(model) for model, own in enumerate(columns)]
        return np.column_stack(columns)

    def _deviation(self, model: int) -> float:
        """The standard deviation of a model's scores on the training data, within queries."""
        if not self._deviations[model]:
            scores = self._growers[model].scores()
            self._deviations[model] = deviation(scores, self._lists, self._task.group.add_parts)
        return self._deviations[model]

    def snapshot(self, models: list[int]) -> None:
        """Remember the number of trees, and the standard deviation of the scores."""
        for model in models:
            grower = self._growers[model]
            if self._rescales:
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
        Trees of an earlier training are part of every model, and are saved once.
        """
        self._check_trees()
        data, size = self._task.train.data, self.selected_models
        models = [
            kept or own.model(count or own.count)
            for kept, own, count in zip(
                self._best_models, self._growers, self._best_trees, strict=True
            )
        ]
        # After the models are taken: LightGBM's DART drops trees when training scores are read.
        self._check_scores()
        factors = [1.0]
        if size > 1:
            best = enumerate(self._best_deviations)
            factors = [1 / (size * (value or self._deviation(model))) for model, value in best]
        scale = 1 / sum(factors)
        if size > 1 and self._earlier is not None:
            module, first = engine(self._engine), self._earlier_rounds
            new = [module.later_rounds(model, first) for model in models]
            models = [module.first_rounds(models[0], first), *new]
            factors = [sum(factors), *factors]
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
            scale=scale,
        )

    def _check_trees(self) -> None:
        """Raise an error if no model has a new tree."""
        if not any(grower.count > self._earlier_rounds for grower in self._growers):
            raise InputError(NO_TREE)

    def _check_scores(self) -> None:
        """Raise an error if a score of the training data is not finite in float32."""
        for grower in self._growers:
            with np.errstate(over="ignore"):
                scores = grower.scores().astype(np.float32)
            if not np.isfinite(scores).all():
                raise TrainingError(
                    "The scores of the trees are not finite. Lower the learning rate, or the "
                    "settings in engine_params that scale leaf values."
                )

    def _new_grower(self, model: int, state: bytes | None = None) -> Grower:
        settings, objective = replace(self._settings, model=model), self._objective
        if objective is not None:
            objective = replace(objective, newton=replace(objective.newton, model=model))
        grower: Grower = engine(self._engine).Grower(settings, objective, self._data, state)
        return grower
