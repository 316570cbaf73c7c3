"""Methods by name, such as `AP-type3 (CE4.L)`, and the two kinds of models: nets and trees."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from twinrank.core.measures import measure
from twinrank.core.own_losses import is_own_loss
from twinrank.core.ranks.strategies import as_strategy
from twinrank.learning.boosting.engines import ENGINES
from twinrank.learning.models import kinds
from twinrank.learning.models.architecture import architecture
from twinrank.learning.training.tree_parameters import ENGINE_OBJECTIVES
from twinrank.support.errors import InputError, check_number, unknown
from twinrank.support.notation import Term, check_options, parse

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

_DIRECT = re.compile(r"(?P<objective>.+?)-(?P<strategy>type\w*|swap)\s*(?:\((?P<model>.+)\))?")
_NAMED = re.compile(r"(?P<objective>[\w:.]+(?:\([^()]*\))?)(?:\s+\((?P<model>.+)\))?")

_BOOSTED, _ENGINE, _ARCHITECTURE = "Boosted", "lightgbm", "Small"
_EXAMPLES = (
    "write objective-strategy (model), such as AP-type3, nDCG-type2 (R4.L) or nDCG-type3 (Boosted)"
)
_NOT_IN_NAMES = (
    *("objective", "strategy", "architecture", "validation_measure"),
    *("random_state", "n_jobs", "verbose", "device"),
)


@dataclass(frozen=True)
class ModelKind:
    """Nets or trees: an estimator by its name in `learning.models.kinds`; CatBoost; or clicks."""

    name: str

    @property
    def estimator(self) -> "type[BaseRanker]":
        """The class that is trained; those of CatBoost and clicks have only what studies use."""
        if self.name == "catboost":
            from twinrank.experiments.study.catboost_ranker import CatBoostMethod

            return cast("type[BaseRanker]", CatBoostMethod)
        if self.name == "clicks":
            from twinrank.experiments.study.click_ranker import ClickMethod

            return cast("type[BaseRanker]", ClickMethod)
        from twinrank.learning.estimators.saved_ranker import estimator_class

        return estimator_class(self.name)

    @property
    def options(self) -> list[str]:
        """The parameters of the estimator that the name of a method can set in brackets."""
        return [n for n in self.estimator._get_param_names() if n not in _NOT_IN_NAMES]

    @property
    def iteration(self) -> str:
        """The name of one iteration of training: "epoch" or "round"."""
        return self.estimator.iteration_name()

    @property
    def iterations_parameter(self) -> str:
        """The parameter of the estimator with the number of iterations."""
        return self.estimator.iterations_parameter()


MODEL_KINDS = {name: ModelKind(name) for name in kinds.KINDS}
NET, TREES, BLEND = MODEL_KINDS["net"], MODEL_KINDS["trees"], MODEL_KINDS["blend"]
CATBOOST, CLICKS = ModelKind("catboost"), ModelKind("clicks")
ESTIMATORS = {
    "Ranker": NET,
    "BoostedRanker": TREES,
    "Blend": BLEND,
    "CatBoost": CATBOOST,
    "Clicks": CLICKS,
}
"""Methods that are estimators with their own defaults, by the name of the class."""
_MODELS = {_BOOSTED: TREES, **ESTIMATORS}
SIZE_PARAMETER = "ensemble_size"
"""The parameter of estimators with the number of models in an ensemble."""


@dataclass(frozen=True)
class Method:
    """A method that can be trained: an objective, a strategy and a model.

    `strategy` is empty for baseline losses and for the own objectives of boosters. `model` is the
    architecture of a net ("Small", or your own net as "package.module:name"), "Boosted", or an
    estimator: "Ranker", "BoostedRanker", "Blend", "CatBoost", "Clicks". In brackets, it has
    parameters of the estimator, and options of the architecture, as in
    "Small(ensemble_size=5, width=32)" and "Boosted(engine=xgboost, num_leaves=7)". A method without
    an objective is an estimator as it ships, such as "Ranker" or "CatBoost(loss=StochasticRank)".
    """

    objective: str
    strategy: str = "type3"
    model: str = _ARCHITECTURE

    def __str__(self) -> str:
        if not self.objective:
            return self.model
        if self.objective in ENGINE_OBJECTIVES:
            options = dict(self._options)
            xgboost = options.pop("engine", _ENGINE) == "xgboost"
            name = self.objective + _brackets(options)
            return f"{name} (XGBoost)" if xgboost else name
        name = f"{self.objective}-{self.strategy}" if self.strategy else self.objective
        return f"{name} ({self.model})"

    @property
    def kind(self) -> ModelKind:
        """Whether it trains a net, trees, a blend or CatBoost."""
        return _MODELS.get(self.model.partition("(")[0], NET)

    @property
    def estimator(self) -> "type[BaseRanker]":
        """The class that is trained."""
        return self.kind.estimator

    def parameters(self) -> dict[str, Any]:
        """The parameters of the estimator that the name of the method fixes."""
        if not self.objective:
            return self._options
        named: dict[str, Any] = {"objective": self.objective}
        if self.strategy:
            named["strategy"] = self.strategy
        if self.kind is BLEND:
            return self.known(named)
        if self.kind is TREES:
            return named | {"engine": _ENGINE} | self._options
        name, options = _architecture_and_options(self.model)
        return named | {"architecture": name} | options

    def has(self, parameter: str) -> bool:
        """True if the method has a parameter of this name."""
        if parameter == SIZE_PARAMETER and self.objective in ENGINE_OBJECTIVES:
            return False
        if self.kind is BLEND:
            return bool(self.known({parameter: None}))
        return parameter in self.estimator._get_param_names()

    def known(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Those of shared parameters that the method has; in a blend, those of its rankers."""
        if self.kind is not BLEND:
            return {name: value for name, value in parameters.items() if self.has(name)}
        blend = self.estimator()
        named: dict[str, Any] = {}
        for name, value in parameters.items():
            named |= dict.fromkeys(blend._named(name), value)
        return named

    @property
    def _options(self) -> dict[str, Any]:
        """The parameters in the name of boosted trees."""
        return dict(parse(self.model).options)


def method(name: "str | Method") -> Method:
    """The method with this name. The model can be omitted.

    >>> str(method("AP-type2"))
    'AP-type2 (Small)'
    >>> method("nDCG@10-type3 (Linear)")
    Method(objective='nDCG@10', strategy='type3', model='Linear')
    >>> method("LambdaMART")
    Method(objective='LambdaMART', strategy='', model='Boosted')
    >>> method("LambdaMART(num_leaves=31)").parameters()["num_leaves"]
    31
    >>> str(method("CatBoost(loss=StochasticRank)"))
    'CatBoost(loss=StochasticRank)'
    >>> method("BoostedRanker(num_leaves=31)").parameters()
    {'num_leaves': 31}
    """
    if isinstance(name, Method):
        return name
    text = str(name).strip()
    if text.partition("(")[0].strip() in ESTIMATORS:
        return Method("", "", _with_options(text))
    if (match := _DIRECT.fullmatch(text)) is not None:
        direct = Method(match["objective"], match["strategy"], _model(match["model"]))
        measure(direct.objective)
        as_strategy(direct.strategy)
        return direct
    match = _NAMED.fullmatch(text)
    head = "" if match is None else match["objective"].partition("(")[0]
    if match is not None and head in ENGINE_OBJECTIVES:
        return _own(match["objective"], match["model"])
    if match is None or not _is_loss(match["objective"]):
        raise _unreadable(text)
    baseline = Method(match["objective"], "", _model(match["model"]))
    if baseline.kind is not NET and not is_own_loss(baseline.objective):
        raise InputError(
            f"{baseline.objective} is a loss for nets; trees optimise measures: {_EXAMPLES}."
        )
    return baseline


def _model(name: str | None) -> str:
    """The checked name of a net's architecture or of boosted trees."""
    if name is None:
        return _ARCHITECTURE
    text = name.strip()
    if text in ESTIMATORS and ESTIMATORS[text] is BLEND:
        return text
    if text.startswith(_BOOSTED):
        return _with_options(text)
    chosen, options = _architecture_and_options(text)
    if ":" in chosen:
        from twinrank.learning.models.ensemble import resolve_architecture

        resolve_architecture(chosen)
    elif chosen.partition("(")[0] in {*ENGINE_OBJECTIVES, *ESTIMATORS} - {"Blend"}:
        raise InputError(
            f"{chosen} is a method, not the model of one: write {_BOOSTED}, Blend, or an "
            f"architecture such as {_ARCHITECTURE}."
        )
    else:
        architecture(chosen)
    _check_options(options)
    return text


def _with_options(text: str) -> str:
    """The checked name of an estimator, with its parameters in a fixed order."""
    term = parse(text)
    if term.name not in _MODELS or term.cutoff is not None:
        raise InputError(unknown("model", text, _MODELS))
    check_options(term.name, term, _MODELS[term.name].options)
    _check_options(term.options)
    options = dict(sorted(term.options.items(), key=lambda option: option[0]))
    if options.get("engine") == _ENGINE:
        del options["engine"]
    return str(Term(term.name, options))


def _architecture_and_options(model: str) -> tuple[str, dict[str, Any]]:
    """The architecture of a net with its own options, and the parameters of the estimator.

    >>> _architecture_and_options("CE4.L(dropout=0.1, ensemble_size=3)")
    ('CE4.L(dropout=0.1)', {'ensemble_size': 3})
    """
    head, bracket, rest = model.partition("(")
    if not bracket or ")" not in rest:
        return model, {}
    options = dict(parse(f"X({rest}").options)
    taken = {name: options.pop(name) for name in NET.options if name in options}
    return (head.strip() + _brackets(options), taken) if taken else (model, {})


def _brackets(options: dict[str, Any]) -> str:
    """Options in brackets, or nothing."""
    return str(Term("X", options))[1:]


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the options that every name shows; the estimator checks the others."""
    size, engine = options.get(SIZE_PARAMETER), options.get("engine", _ENGINE)
    if size is not None:
        check_number(SIZE_PARAMETER, size, whole=True, least=1)
    if engine not in ENGINES:
        raise InputError(argument="engine", value=engine, choices=ENGINES)


def _own(objective: str, model: str | None) -> Method:
    """The method of a booster's own objective, with or without the name of the booster.

    Parameters of the estimator are in brackets behind the objective or behind "Boosted".
    """
    name, bracket, rest = objective.partition("(")
    engine = ENGINE_OBJECTIVES[name][0]
    if model is not None and model.startswith(_BOOSTED) and not bracket:
        _, bracket, rest = model.partition("(")
    elif model is not None and model.lower() != engine:
        raise InputError(f"{name} needs {engine}; remove ({model}).")
    options = parse(f"X({rest}").options if bracket else {}
    if options.get("engine", engine) != engine:
        raise InputError(f"{name} needs {engine}; remove engine={options['engine']}.")
    return Method(name, "", _with_options(str(Term(_BOOSTED, {**options, "engine": engine}))))


def _is_loss(name: str) -> bool:
    from twinrank.core.losses import is_path, loss, loss_names

    if not is_path(name) and name.partition("(")[0] not in loss_names():
        return False
    loss(name)  # raises an error if its options are wrong
    return True


def _unreadable(text: str) -> InputError:
    """The error for a name that cannot be read, with similar baselines or the forms of names."""
    from twinrank.core.losses import loss_names

    baselines = [*ESTIMATORS, *ENGINE_OBJECTIVES, *loss_names()]
    name = text.partition("(")[0].strip()
    if get_close_matches(name.lower(), [baseline.lower() for baseline in baselines]):
        return InputError(unknown("method", name, baselines))
    return InputError(
        f"Cannot read the method {text!r}; {_EXAMPLES}; or a baseline: {', '.join(baselines)}."
    )
