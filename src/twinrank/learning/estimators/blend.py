"""`Blend`: several rankers, such as trees and nets, whose weighted scores rank as one model."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from twinrank.core.lists import Lists
from twinrank.core.measures.constraints import ConstrainedObjective, constrained
from twinrank.data.dataset import Dataset
from twinrank.evaluation.constraint_check import checked
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.estimators.blend_rankers import (
    as_ranker,
    check_shared,
    named_rankers,
    train_ranker,
)
from twinrank.learning.estimators.blend_weights import (
    best_weights,
    constrained_weights,
    equal_weights,
    explicit_weights,
)
from twinrank.learning.estimators.parameters import saved_parameters
from twinrank.learning.estimators.saved_ranker import estimator_class
from twinrank.learning.models.blend_model import BlendModel, check_names, deviation
from twinrank.learning.models.encoding import Encoding, columns_of
from twinrank.learning.models.kinds import KINDS
from twinrank.learning.models.saved_model import (
    CONFIG,
    RUN_MODEL,
    Model,
    save_model,
    with_earlier_calibration,
)
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.console import Bar, Lines
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.fitting import (
    check_constraints_of,
    continued,
    described,
    fingerprints,
)
from twinrank.learning.training.learner import learner_class
from twinrank.learning.training.matched_data import matched_sets, trainable_part
from twinrank.learning.training.own_code import identities
from twinrank.learning.training.run_folder import Run
from twinrank.learning.training.settings import Plan
from twinrank.learning.training.validation import selecting_set
from twinrank.support.compiled import threads
from twinrank.support.errors import Argument, InputError, unknown
from twinrank.support.versions import versions

_SHARED = ("validation_measure", "select", "random_state")
"""Parameters that a blend sets for all its rankers."""


class Blend(BaseRanker):
    """Several rankers whose weighted scores rank, by default boosted trees and nets.

    Each ranker is trained alone. Its scores are divided by their standard deviation
    within queries, and then weighted. The weights "auto" are chosen on
    the evaluation set among weights in steps of 0.1: those whose measure differs from the best by
    at most two standard errors of the difference, paired by query, are averaged. With few queries
    the weights therefore stay nearly equal.

    Parameters of the rankers are set as `trees__num_leaves` and `net__epochs`, also by
    `set_params`, or on the rankers themselves.

    Parameters
    ----------
    rankers : list, or dict by name, of rankers, optional
        By default `{"trees": BoostedRanker(), "net": Ranker()}`. The rankers of a list are called
        "trees" or "net", and with numbers ("net_1", "net_2") if there are several of a kind. A
        ranker can also be a dict of its parameters with its kind: `{"kind": "net", "epochs": 30}`.
    weights : "auto", list or dict by name, default "auto"
        The weight of each ranker; "auto" chooses by validation. Without an evaluation set, "auto"
        gives equal weights.
    validation_measure : str or Measure, default "nDCG@5"
        The measure on evaluation sets and in `score`, for the weights and for all rankers.
    select : str, optional
        The name of the evaluation set that selects; by default "validation", or else the first.
    verbose : bool, default False
        Show progress on standard error.
    random_state : int, default 0
        The seed of all rankers.

    Attributes
    ----------
    rankers_ : dict of str to ranker
        The fitted rankers by name.
    weights_ : dict of str to float
        Their weights, which add up to 1.
    history_ : list of dict
        A record for each ranker with its measure on every evaluation set, and one for the blend.
        `rankers_["net"].history_` has the epochs.

    Examples
    --------
    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=30)
    >>> blend = tr.Blend().set_params(trees__n_estimators=5, net__epochs=1).fit(data)
    >>> blend.weights_
    {'trees': 0.5, 'net': 0.5}
    """

    kind: ClassVar[str] = "blend"

    def __init__(
        self,
        rankers: Any = None,
        weights: Any = "auto",
        validation_measure: Any = "nDCG@5",
        select: str | None = None,
        verbose: bool = False,
        random_state: int = 0,
    ) -> None:
        self.rankers = rankers
        self.weights = weights
        self.validation_measure = validation_measure
        self.select = select
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def iteration_name(cls) -> str:
        """One iteration: a ranker, or at last the blend of all."""
        return "stage"

    @classmethod
    def iterations_parameter(cls) -> str:
        """The parameter that decides how many iterations there are."""
        return "rankers"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, by default also those of the rankers as `name__parameter`.

        Parameters
        ----------
        deep : bool, default True
            Whether parameters of the rankers are included.
        """
        parameters: dict[str, Any] = super().get_params(deep=False)
        if not deep:
            return parameters
        with suppress(InputError):  # parameters are only checked by fit
            for name, ranker in named_rankers(self.rankers).items():
                own = ranker.get_params(deep=False)
                parameters |= {name: ranker, **{f"{name}__{k}": v for k, v in own.items()}}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of the blend, its rankers by name, or theirs as `name__parameter`.

        Parameters
        ----------
        **parameters
            The new values.
        """
        known = self._get_param_names()
        for key in [key for key in parameters if key in known]:
            setattr(self, key, parameters.pop(key))
        if not parameters:
            return self
        rankers = dict(named_rankers(self.rankers))
        for key in [key for key in parameters if key in rankers]:
            rankers[key] = as_ranker(key, parameters.pop(key))
        for key, value in parameters.items():
            name, _, own = key.partition("__")
            if name not in rankers or own not in rankers[name].get_params(deep=False):
                raise InputError(unknown("parameter of Blend", key, self.get_params()))
            rankers[name].set_params(**{own: value})
        self.rankers = rankers
        return self

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """The importances of the rankers, weighted by `weights_`; the sum is 1."""
        self._check_fitted()
        shares = [ranker.feature_importances_ for ranker in self.rankers_.values()]
        return np.average(shares, axis=0, weights=list(self.weights_.values()))

    def check_parameters(self, documents: int = 0) -> dict[str, Any]:
        """The parameters; those of the rankers are checked for this many documents.

        Raises
        ------
        InputError
            If a parameter cannot be used.
        """
        parameters = self._parameters()
        for name, ranker in self._prepared().items():
            try:
                ranker.check_parameters(documents)
            except InputError as error:
                raise InputError(f"Ranker {name!r}: ", *error.parts) from error
        explicit_weights(self.weights, list(parameters["rankers"]))
        self._plan()
        return parameters

    @classmethod
    def _from_model(cls, model: Model, folder: Any, **parameters: Any) -> Self:
        architecture = parameters.pop("architecture", None)
        blend = super()._from_model(model, folder, **parameters)
        try:
            blend.rankers = named_rankers(blend.rankers)
        except InputError as error:
            raise InputError(
                f"Cannot load {folder}: {CONFIG} is damaged: ", *error.parts
            ) from error
        for ranker in (*blend.rankers.values(), *blend.rankers_.values()):
            if ":" in str(getattr(ranker, "architecture", "")) and architecture is not None:
                ranker.set_params(architecture=architecture)
        return blend

    def _train(
        self,
        train: TrainingSet,
        sets: dict[str, Dataset],
        callbacks: Sequence[Callback] = (),
        run: Run | None = None,
        previous: Model | None = None,
    ) -> None:
        """Train every ranker, choose the weights and keep the model."""
        trainable, data = trainable_part(train), train.data
        sets = matched_sets(sets, data, type(self).__name__)
        self.check_parameters(trainable.data.documents)
        plan, rankers = self._plan(), self._prepared()
        selecting = selecting_set(self.select, sets)
        check_constraints_of(plan, train, sets)
        for ranker in rankers.values():
            chosen = columns_of(ranker.categorical_features, data.features, data.feature_names)
            for part in (trainable.data, *sets.values()):
                ranker._check_values(part, None, (*chosen, *data.categories))
        about = {**self._about(rankers, trainable, plan), **continued(previous)}
        if run is not None:
            if run.group.size > 1:
                raise InputError("Train a blend without torchrun, which trains nets only.")
            prints = fingerprints(trainable, sets, previous)
            for name, ranker in rankers.items():
                own = identities(ranker._parameters())
                prints |= {f"{name} {key}": value for key, value in own.items()}
            run.check(self.kind, about, prints)
            run.begin(self.kind, about, prints)
        for number, (name, ranker) in enumerate(rankers.items(), 1):
            if self.verbose or any(isinstance(callback, Bar | Lines) for callback in callbacks):
                what = f"{name} ({type(ranker).__name__})"
                print(f"Ranker {number} of {len(rankers)}: {what}", file=sys.stderr, flush=True)
            own_callbacks = [callback.for_ranker(name) for callback in callbacks]
            earlier = None if previous is None else previous.models[name]  # type: ignore[attr-defined]
            train_ranker(ranker, name, train, sets, own_callbacks, run, earlier)
        source = train
        if selecting is not None:
            source = TrainingSet(sets[selecting], sets[selecting].weights)
        model = self._blended(rankers, source, sets, plan, train.current)
        if plan.constrained is not None:
            about["constraints"] = _checks(plan.constrained, model, rankers, sets, train.current)
        model = replace(model, feature_names=data.feature_names, provenance=about)
        if run is not None:
            if run.resume:
                model = with_earlier_calibration(model, run.folder / RUN_MODEL, run.calibrated)
            save_model(model, run.folder / RUN_MODEL)
        self._adopt(model)
        self.rankers_: dict[str, BaseRanker] = rankers  # with parameters that JSON cannot hold

    def _check_continues(self, previous: Model, data: Dataset) -> None:
        """Raise InputError if these rankers cannot continue those of a blend."""
        assert isinstance(previous, BlendModel)
        rankers = self._prepared()
        kinds = [{n: r.kind for n, r in each.items()} for each in (previous.models, rankers)]
        if kinds[0] != kinds[1]:
            before, now = (
                ", ".join(f"{name} ({KINDS[kind].noun})" for name, kind in each.items())
                for each in kinds
            )
            raise InputError(Argument("init_model"), f" blends {before}, not {now}.")
        for name, ranker in rankers.items():
            try:
                ranker._check_continues(previous.models[name], data)
            except InputError as error:
                raise InputError(f"Ranker {name!r}: ", *error.parts) from error

    def _blended(
        self,
        rankers: Mapping[str, BaseRanker],
        source: TrainingSet,
        sets: dict[str, Dataset],
        plan: Plan,
        current: Mapping[str, Any],
    ) -> BlendModel:
        """The model: `source` gives the scales and, if it is an evaluation set, the weights."""
        measure, data = plan.validation_measure, source.data
        scores = {
            name: [ranker._scores(part) for ranker in rankers.values()]
            for name, part in sets.items()
        }
        selecting = selecting_set(self.select, sets)
        selected = (
            [ranker._scores(data) for ranker in rankers.values()]
            if selecting is None
            else scores[selecting]
        )
        counts = np.ones(data.queries, np.bool_) if source.weights is None else source.weights > 0
        lists, rows = Lists.from_sizes(data.lists.sizes[counts]), data.lists.spread(counts)
        scales = tuple(deviation(column[rows], lists) for column in selected)
        chosen = explicit_weights(self.weights, list(rankers))
        if chosen is None and selecting is None:
            chosen = equal_weights(len(rankers))
        elif chosen is None and plan.constrained is not None:
            old = current.get(selecting or "")
            chosen = constrained_weights(selected, scales, data, plan.constrained, old)
        elif chosen is None:
            chosen = best_weights(selected, scales, data, measure)
        encoded = [each for r in rankers.values() for each in r.model_.encoding.columns.items()]
        model = BlendModel(
            features=data.features,
            models={name: ranker.model_ for name, ranker in rankers.items()},
            weights=chosen,
            scales=scales,
            encoding=Encoding(dict(encoded)),
        )
        history: list[dict[str, Any]] = []
        seconds = 0.0
        for i, ranker in enumerate((*rankers.values(), None)):
            record: dict[str, Any] = {"iteration": i + 1}
            for name, part in sets.items():
                column = model.combined(scores[name]) if ranker is None else scores[name][i]
                value = evaluate_data(column, part, [measure])[str(measure)]
                record[name] = value if np.isfinite(value) else None
            seconds += ranker.history_[-1]["seconds"] if ranker is not None else 0.0
            history.append({**record, "seconds": round(seconds, 3)})
        best = None if selecting is None else history[-1][selecting]
        return replace(model, history=history, best_iteration=len(history), best_score=best)

    def _about(
        self, rankers: Mapping[str, BaseRanker], train: TrainingSet, plan: Plan
    ) -> dict[str, Any]:
        """How the blend is trained, for its configuration and its run."""
        resolved = {name: r.check_parameters(train.data.documents) for name, r in rankers.items()}
        used = [learner_class(r.kind).packages(resolved[name]) for name, r in rankers.items()]
        return {
            "parameters": saved_parameters(self._parameters()),
            "resolved": {},
            "plan": plan.to_json(),
            **described(train),
            "threads": threads(),
            "versions": versions(*dict.fromkeys(package for each in used for package in each)),
        }

    def _plan(self) -> Plan:
        """The measure and the evaluation set that select."""
        fixed = {"validate_every": 1, "early_stopping": None, "tolerance": 0.0, "stages": 1}
        objectives = {str(r.objective): r.objective for r in named_rankers(self.rankers).values()}
        if any(constrained(own) for own in objectives.values()):
            if len(objectives) > 1:
                raise InputError("The rankers of a blend with constraints need the same objective.")
            fixed["objective"] = next(iter(objectives.values()))
        return Plan.of({**super()._parameters(), **fixed}, "stages")

    def _prepared(self) -> dict[str, BaseRanker]:
        """Unfitted copies of the rankers, with the parameters that all share."""
        rankers = named_rankers(self.rankers)
        check_names(rankers)
        for name, ranker in rankers.items():
            if name in self._get_param_names():
                raise InputError(f"A ranker cannot be called {name!r}: Blend has that parameter.")
            for key in _SHARED:
                check_shared(name, ranker, key, getattr(self, key))
        shared = {key: getattr(self, key) for key in (*_SHARED, "verbose")}
        return {name: clone(ranker).set_params(**shared) for name, ranker in rankers.items()}

    def _parameters(self) -> dict[str, Any]:
        """The parameters, with all rankers by name."""
        return {**super()._parameters(), "rankers": named_rankers(self.rankers)}

    def _adopt(self, model: Model) -> None:
        """Keep a model, and set the fitted attributes."""
        super()._adopt(model)
        assert isinstance(model, BlendModel)
        self.rankers_ = {
            name: estimator_class(part.kind)._from_model(part, name)
            for name, part in model.models.items()
        }
        self.weights_: dict[str, float] = dict(zip(model.models, model.weights, strict=True))

    def _scores(self, data: Dataset) -> npt.NDArray[np.float32]:
        data = self._matched(data)
        return self.model_.combined([ranker._scores(data) for ranker in self.rankers_.values()])  # type: ignore[no-any-return]

    def _pair_contributions(self, data: Dataset, a: int, b: int) -> npt.NDArray[np.float64]:
        """The contributions in the rankers, weighted as their scores are."""
        parts = [
            weight / scale * ranker._pair_contributions(ranker._matched(data), a, b)
            for ranker, weight, scale in zip(
                self.rankers_.values(), self.model_.weights, self.model_.scales, strict=True
            )
        ]
        return np.asarray(np.sum(parts, axis=0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(InputError):
            rankers = named_rankers(self.rankers).values()
            tags.input_tags.allow_nan = all(
                ranker.__sklearn_tags__().input_tags.allow_nan for ranker in rankers
            )
        return tags


def _checks(
    objective: ConstrainedObjective,
    model: BlendModel,
    rankers: Mapping[str, BaseRanker],
    sets: Mapping[str, Dataset],
    current: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Whether a blend keeps the constraints on each evaluation set, as JSON."""
    measures = [constraint.measure for constraint in objective.constraints]
    found = []
    for name, data in sets.items():
        if objective.needs_current and name not in current:
            continue
        own = model.combined([ranker._scores(data) for ranker in rankers.values()])
        new, old = (
            None if scores is None else evaluate_data(scores, data, measures).values
            for scores in (own, current.get(name))
        )
        found += [check.to_json() for check in checked(objective, new or {}, old, name)]
    return found
