"""Methods by name, such as `AP-type3 (CE4.L)`, and the two kinds of models: nets and trees."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from twinrank.boosting.engines import ENGINES
from twinrank.measures import measure
from twinrank.models import kinds
from twinrank.models.architecture import architecture
from twinrank.ranks.strategies import as_strategy
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import Term, check_options, parse
from twinrank.training.tree_learner import ENGINE_OBJECTIVES

if TYPE_CHECKING:
    from twinrank.estimators.base_ranker import BaseRanker

_DIRECT = re.compile(r"(?P<objective>.+?)-(?P<strategy>type\w*|swap)\s*(?:\((?P<model>.+)\))?")
_NAMED = re.compile(r"(?P<objective>[\w:]+(?:\([^()]*\))?)(?:\s+\((?P<model>.+)\))?")

_BOOSTED, _ENGINE, _ARCHITECTURE = "Boosted", "lightgbm", "Small"
_BLEND = "Blend"
_EXAMPLES = (
    "write objective-strategy (model), such as AP-type3, nDCG-type2 (R4.L) or nDCG-type3 (Boosted)"
)


@dataclass(frozen=True)
class ModelKind:
    """Nets or trees: an estimator by its name in `twinrank.models.kinds`."""

    name: str

    @property
    def estimator(self) -> "type[BaseRanker]":
        """The class that is trained."""
        from twinrank.estimators.base_ranker import estimator_class

        return estimator_class(self.name)

    @property
    def unit(self) -> str:
        """One iteration of training: "epoch" or "round"."""
        return self.estimator.unit()

    @property
    def iterations_parameter(self) -> str:
        """The parameter of the estimator with the number of iterations."""
        return self.estimator.iterations_parameter()


KINDS = {name: ModelKind(name) for name in kinds.KINDS}
NET, TREES, BLEND = KINDS["net"], KINDS["trees"], KINDS["blend"]
ENSEMBLE_SIZE = "ensemble_size"
"""The parameter of estimators with the number of models in an ensemble."""


@dataclass(frozen=True)
class Method:
    """A method that can be trained: an objective, a strategy and a model.

    `strategy` is empty for baseline losses and for the own objectives of boosters. `model` is the
    architecture of a net ("Small", "Small(ensemble_size=5)", or your own net as
    "package.module:name"), "Boosted", "Boosted(engine=xgboost, ensemble_size=5)", or "Blend". The
    method "Blend" is `tr.Blend()` with its defaults: it has no objective of its own.
    """

    objective: str
    strategy: str = "type3"
    model: str = _ARCHITECTURE

    def __str__(self) -> str:
        if not self.objective:
            return self.model
        if self.objective in ENGINE_OBJECTIVES:
            xgboost = self._options.get("engine") == "xgboost"
            return f"{self.objective} (XGBoost)" if xgboost else self.objective
        name = f"{self.objective}-{self.strategy}" if self.strategy else self.objective
        return f"{name} ({self.model})"

    @property
    def kind(self) -> ModelKind:
        """Whether it trains a net, trees or a blend."""
        if self.model == _BLEND:
            return BLEND
        return TREES if self.model.startswith(_BOOSTED) else NET

    @property
    def estimator(self) -> "type[BaseRanker]":
        """The class that is trained."""
        return self.kind.estimator

    def parameters(self) -> dict[str, Any]:
        """The parameters of the estimator that the name of the method fixes."""
        named: dict[str, Any] = {"objective": self.objective}
        if self.strategy:
            named["strategy"] = self.strategy
        if self.kind is BLEND:
            return self.known(named) if self.objective else {}
        if self.kind is TREES:
            return named | {"engine": _ENGINE} | self._options
        name, size = _without_size(self.model)
        return named | {"architecture": name} | ({} if size is None else {ENSEMBLE_SIZE: size})

    def has(self, parameter: str) -> bool:
        """True if the method has a parameter of this name."""
        if parameter == ENSEMBLE_SIZE and self.objective in ENGINE_OBJECTIVES:
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
        """The options of boosted trees in the name of the model."""
        return parse(self.model).options


def method(name: "str | Method") -> Method:
    """The method with this name. The model can be omitted.

    >>> str(method("AP-type2"))
    'AP-type2 (Small)'
    >>> method("nDCG@10-type3 (Linear)")
    Method(objective='nDCG@10', strategy='type3', model='Linear')
    >>> method("LambdaMART")
    Method(objective='LambdaMART', strategy='', model='Boosted')
    """
    if isinstance(name, Method):
        return name
    text = str(name).strip()
    if text == _BLEND:
        return Method("", "", _BLEND)
    if (match := _DIRECT.fullmatch(text)) is not None:
        direct = Method(match["objective"], match["strategy"], _model(match["model"]))
        measure(direct.objective)
        as_strategy(direct.strategy)
        return direct
    match = _NAMED.fullmatch(text)
    if match is not None and match["objective"] in ENGINE_OBJECTIVES:
        return _own(match["objective"], match["model"])
    if match is None or not _is_loss(match["objective"]):
        raise InputError(_unreadable(text))
    baseline = Method(match["objective"], "", _model(match["model"]))
    if baseline.kind is not NET:
        raise InputError(
            f"{baseline.objective} is a loss for nets; trees optimise measures: {_EXAMPLES}."
        )
    return baseline


def _model(name: str | None) -> str:
    """The checked name of a net's architecture or of boosted trees."""
    if name is None:
        return _ARCHITECTURE
    if name.strip() == _BLEND:
        return _BLEND
    if not name.strip().startswith(_BOOSTED):
        chosen, size = _without_size(name.strip())
        if ":" in chosen:
            from twinrank.models.ensemble import resolve_architecture

            resolve_architecture(chosen)
        else:
            architecture(chosen)
        if size is not None:
            _check_size(size)
        return name.strip()
    term = parse(name.strip())
    if term.name != _BOOSTED or term.cutoff is not None:
        raise InputError(unknown("model", name, [_BOOSTED]))
    check_options(_BOOSTED, term, ["engine", ENSEMBLE_SIZE])
    engine = str(term.options.get("engine", _ENGINE))
    if engine not in ENGINES:
        raise InputError(unknown("engine", engine, ENGINES))
    boosted_size: Any = term.options.get(ENSEMBLE_SIZE)
    if boosted_size is not None:
        _check_size(boosted_size)
    return _boosted(engine, boosted_size)


def _without_size(model: str) -> tuple[str, Any]:
    """The architecture of a net without its ensemble size, and that size or None.

    >>> _without_size("CE4.L(dropout=0.1, ensemble_size=3)")
    ('CE4.L(dropout=0.1)', 3)
    """
    head, bracket, rest = model.partition("(")
    if not bracket or ENSEMBLE_SIZE not in rest:
        return model, None
    options = dict(parse(f"X({rest}").options)
    size = options.pop(ENSEMBLE_SIZE, None)
    return str(Term("X", options)).replace("X", head.strip(), 1), size


def _check_size(size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InputError(f"{ENSEMBLE_SIZE} must be a whole number of at least 1, not {size!r}.")


def _boosted(engine: str, ensemble_size: int | None = None) -> str:
    options: dict[str, Any] = {} if engine == _ENGINE else {"engine": engine}
    options |= {} if ensemble_size is None else {ENSEMBLE_SIZE: ensemble_size}
    return str(Term(_BOOSTED, options))


def _own(objective: str, model: str | None) -> Method:
    """The method of a booster's own objective, with or without the name of the booster."""
    engine = ENGINE_OBJECTIVES[objective][0]
    if model is not None and model.lower() != engine:
        raise InputError(f"{objective} needs {engine}; remove ({model}).")
    return Method(objective, "", _boosted(engine))


def _is_loss(name: str) -> bool:
    from twinrank.losses import NAMES, loss

    if name.partition("(")[0] not in NAMES:
        return False
    loss(name)  # raises an error if its options are wrong
    return True


def _unreadable(text: str) -> str:
    """The message for a name that cannot be read, with similar baselines or the forms of names."""
    from twinrank.losses import NAMES

    baselines, name = [*ENGINE_OBJECTIVES, *NAMES, _BLEND], text.partition("(")[0].strip()
    if get_close_matches(name.lower(), [baseline.lower() for baseline in baselines]):
        return unknown("method", name, baselines)
    return f"Cannot read the method {text!r}; {_EXAMPLES}; or a baseline: {', '.join(baselines)}."
