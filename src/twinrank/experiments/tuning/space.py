"""Search spaces: the parameters that a search varies, by default or by options and a TOML file.

[net]                                    # or [trees], or [blend] with net__depth, trees__…
objective = ["nDCG", "AP"]               # one of these
learning_rate = {low = 1e-4, high = 1e-2, log = true}
depth = {low = 1, high = 3}              # whole numbers, since both bounds are
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.core.ranks.strategies import STRATEGIES
from twinrank.experiments.study.methods import (
    BLEND,
    ENSEMBLE_SIZE,
    KINDS,
    NET,
    TREES,
    Method,
    method,
)
from twinrank.experiments.study.units import full_parameters
from twinrank.experiments.tuning.nested_parameters import NESTED, NestedParameters
from twinrank.learning.estimators.parameters import settings_of
from twinrank.learning.training.tree_parameters import ENGINE_OBJECTIVES
from twinrank.support.errors import InputError, has_torch, unknown
from twinrank.support.files import read_toml

if TYPE_CHECKING:
    from optuna.trial import Trial

_SET_BY_OPTIONS = {
    "random_state": "--seed",
    "validation_measure": "--measure",
    "epochs": "--epochs",
    "n_estimators": "--rounds",
    "n_jobs": "--jobs",
}
_NONE_IS_A_NAME = ("norm", "transforms")  # where "none" does not mean None
_RANGE_KEYS = ("low", "high", "log", "step")


@dataclass(frozen=True)
class Choice:
    """One of several values. The first trial takes `start`, if it is one of them."""

    options: tuple[Any, ...]
    start: Any = None

    def draw(self, trial: "Trial", name: str) -> Any:
        """A value for a trial."""
        return trial.suggest_categorical(name, self.options)

    def has(self, value: Any) -> bool:
        """True if a value is one of these."""
        return value in self.options


@dataclass(frozen=True)
class Span:
    """A number between two bounds, both included. `log` searches orders of magnitude."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    start: Any = None

    def draw(self, trial: "Trial", name: str) -> Any:
        """A value for a trial: whole if both bounds are, else rounded to three digits."""
        if self.whole:
            bounds = int(self.low), int(self.high)
            return trial.suggest_int(name, *bounds, log=self.log, step=int(self.step or 1))
        value = trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)
        return float(f"{value:.3g}")

    @property
    def whole(self) -> bool:
        """True if only whole numbers are drawn."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    def has(self, value: Any) -> bool:
        """True if a value lies within the bounds."""
        return isinstance(value, int | float) and self.low <= value <= self.high


Dimension = Choice | Span

_DIRECT = ("strategy", "perturbation", "samples", "alpha", ENSEMBLE_SIZE)
"""Parameters that only direct optimisation of a measure has."""
_STRATEGY = Choice(STRATEGIES, "type3")
_NET_TRANSFORMS = "QueryZScore | Quantile(output_distribution=normal) + Clip(low=-3, high=3)"
SPACES: dict[str, Mapping[str, Dimension]] = {
    NET.name: {
        "objective": Choice(("nDCG", "AP", "nERR@10", "ListNet", "ApproxNDCG"), "nDCG"),
        "strategy": _STRATEGY,
        "perturbation": Span(0.0, 4.0, step=0.25, start=2.0),
        "samples": Span(1, 8, log=True, start=5),
        "alpha": Span(0.1, 10.0, log=True, start=1.0),
        "learning_rate": Span(1e-4, 1e-2, log=True, start=3e-3),
        "weight_decay": Choice((0.0, 1e-6, 1e-5, 1e-4, 1e-3), 0.0),
        "batch_documents": Choice(("auto", 500, 2_000, 12_000), "auto"),
        "transforms": Choice(
            (
                _NET_TRANSFORMS,
                "QueryZScore",
                "Standardise",
                "QueryMinMax",
                "SignedLog1p + QueryZScore",
                "SignedLog1p + Standardise",
                "QueryZScore | SignedLog1p + Standardise",
            ),
            _NET_TRANSFORMS,
        ),
        "feature_noise": Choice((0.0, 0.1, 0.2, 0.4), 0.2),
        "depth": Span(1, 6, start=3),
        "width": Span(16, 256, log=True, start=64),
        "activation": Choice(("relu", "celu", "gelu", "silu", "tanh"), "relu"),
        "norm": Choice(("batch", "query", "layer", "none"), "batch"),
        "dropout": Span(0.0, 0.5, start=0.3),
        "last_activation": Choice((False, True), False),
    },
    TREES.name: {
        "objective": Choice(("nDCG", "AP", "nERR@10", "LambdaMART"), "nDCG"),
        "strategy": _STRATEGY,
        "perturbation": Span(0.0, 4.0, step=0.25, start=2.0),
        "samples": Span(1, 8, log=True, start=5),
        "learning_rate": Span(0.02, 0.3, log=True, start=0.05),
        "num_leaves": Span(7, 127, log=True, start=15),
        "min_data_in_leaf": Span(5, 200, log=True, start=20),
        "colsample_bytree": Span(0.4, 1.0, start=0.5),
        "subsample": Span(0.5, 1.0, start=1.0),
        "lambda_l2": Choice((0.0, 0.1, 1.0, 10.0), 0.0),
    },
}
"""The default spaces. Searches start from the library's defaults."""


@dataclass(frozen=True)
class Space:
    """The parameters of nets or trees that a search varies, and those that it holds fixed.

    The space of a blend is that of its rankers, with names such as `net__learning_rate`.

    >>> Space("trees", {"objective": "AP", "num_leaves": 15}).start()["objective"]
    'AP'
    """

    model: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Dimension] = field(default_factory=dict)
    """Dimensions that replace or extend those of `SPACES`."""

    def __post_init__(self) -> None:
        if self._parts:  # each has checked its own
            full_parameters(method("Blend"), self.start())
            return
        clashing = [name for name in self._nested.names if name in {*self.fixed, *self.own}]
        if clashing and self._nested.excluded(self.fixed, self.own):
            raise self._nested.conflict(clashing[0])
        parameters = self.start()  # checked now, so that mistakes show before the search begins
        full_parameters(self.method(parameters), parameters)

    @property
    def dimensions(self) -> dict[str, Dimension]:
        """The dimensions by name, in the order in which they are drawn."""
        if self._parts:
            return {
                f"{part}__{name}": dimension
                for part, space in self._parts.items()
                for name, dimension in space.dimensions.items()
            }
        removed = {*self.fixed, *(self.fixed.get("engine_params") or {})}
        if self._nested.excluded(self.fixed, self.own):
            removed.update(self._nested.names)
        dimensions = {**SPACES[self.model], **self.own}
        return {name: value for name, value in dimensions.items() if name not in removed}

    def draw(self, trial: "Trial") -> dict[str, Any]:
        """The estimator's parameters in a trial."""
        return self._gathered(lambda name, dimension: dimension.draw(trial, name))

    def start(self) -> dict[str, Any]:
        """The estimator's parameters in the first trial."""
        return self._gathered(lambda _, dimension: _start(dimension))

    def starting_point(self) -> dict[str, Any]:
        """The value of every dimension in the first trial."""
        return {name: _start(dimension) for name, dimension in self.dimensions.items()}

    def method(self, parameters: Mapping[str, Any]) -> Method:
        """The method that has the estimator's parameters."""
        if self._parts:
            return method("Blend")
        strategy = parameters.get("strategy", "")
        return Method(parameters["objective"], strategy, self._nested.model(parameters))

    def to_json(self) -> dict[str, Any]:
        """The space in JSON types."""
        own = {name: asdict(dimension) for name, dimension in self.own.items()}
        return {"model": self.model, "fixed": dict(self.fixed), "own": own}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Space":
        """The inverse of `to_json`."""
        own: dict[str, Dimension] = {}
        for name, dimension in plain["own"].items():
            if "options" in dimension:
                own[name] = Choice(tuple(dimension["options"]), dimension["start"])
            else:
                own[name] = Span(**dimension)
        return cls(plain["model"], plain["fixed"], own)

    def _gathered(self, choose: Callable[[str, Dimension], Any]) -> dict[str, Any]:
        if self._parts:
            return {name: value for name, value in self.fixed.items() if "__" not in name} | {
                f"{part}__{name}": value
                for part, space in self._parts.items()
                for name, value in space._gathered(_within(part, choose)).items()
            }
        values = dict(self.fixed)
        for name, dimension in self.dimensions.items():
            if _matters(name, values):
                values[name] = choose(name, dimension)
        if not _matters(ENSEMBLE_SIZE, values):  # fixed for other objectives
            values.pop(ENSEMBLE_SIZE, None)
        nested = {name: values.pop(name) for name in self._nested.names if name in values}
        return {**values, **self._nested.combine(nested, values)} if nested else values

    @property
    def _nested(self) -> NestedParameters:
        return NESTED[self.model]

    @cached_property
    def _parts(self) -> "dict[str, Space]":
        """The spaces of the rankers of a blend; none for other models."""
        names = (TREES.name, NET.name) if self.model == BLEND.name else ()
        return {name: Space(name, _of(name, self.fixed), _of(name, self.own)) for name in names}


def _of(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for one ranker of a blend, by their names in that ranker."""
    return {k.partition("__")[2]: v for k, v in values.items() if k.startswith(f"{part}__")}


def _within(part: str, choose: Callable[[str, Dimension], Any]) -> Callable[[str, Dimension], Any]:
    """The choice of values for one ranker of a blend."""
    return lambda name, dimension: choose(f"{part}__{name}", dimension)


def _matters(name: str, values: Mapping[str, Any]) -> bool:
    """True if a parameter has an effect with the values that were chosen before it."""
    if name == "samples" and values.get("perturbation") == 0:
        return False
    objective = str(values.get("objective", ""))
    indirect = objective in ENGINE_OBJECTIVES
    if objective and not indirect and has_torch():
        from twinrank.core.losses import is_loss

        indirect = is_loss(objective)
    return not (indirect and name in _DIRECT)


def _start(dimension: Dimension) -> Any:
    if dimension.start is not None and dimension.has(dimension.start):
        return dimension.start
    return dimension.options[0] if isinstance(dimension, Choice) else dimension.low


def spaces_of(
    models: Sequence[str], settings: Sequence[str] = (), path: Path | None = None
) -> list[Space]:
    """The space of each kind of model, with fixed `key=value` settings and the ranges of a file."""
    ranges = {} if path is None else _read(path)
    fixed: dict[str, dict[str, Any]] = {model: {} for model in models}
    for setting in settings:
        if "=" not in setting:
            raise InputError(f"--fix {setting}: write key=value.")
        for key, value in settings_of([setting]).items():
            for model in _models_with(key, models):
                is_name = key.rpartition("__")[2] in _NONE_IS_A_NAME and value is None
                fixed[model][key] = "none" if is_name else value
    return [Space(model, fixed[model], ranges.get(model, {})) for model in models]


def known_names(model: str) -> list[str]:
    """The names that can be searched or fixed: parameters of the estimator, and parts of one."""
    names = inspect.signature(KINDS[model].estimator).parameters
    own = [name for name in names if name not in _SET_BY_OPTIONS]
    if model == BLEND.name:
        parts = (TREES.name, NET.name)
        return [*own, *(f"{part}__{name}" for part in parts for name in known_names(part))]
    return [*own, *NESTED[model].names]


def _models_with(key: str, models: Sequence[str]) -> list[str]:
    """The kinds of models that have a parameter, at least one."""
    option = _SET_BY_OPTIONS.get(key.rpartition("__")[2])
    if option is not None:
        raise InputError(f"Set {key} with {option}; it cannot be fixed or searched.")
    names = {model: known_names(model) for model in models}
    having = [model for model in models if key in names[model]]
    if not having:
        every = dict.fromkeys(name for known in names.values() for name in known)
        raise InputError(unknown(f"parameter of {' or '.join(models)}", key, every))
    return having


def _read(path: Path) -> dict[str, dict[str, Dimension]]:
    """The ranges of a TOML file by kind of model."""
    tables = read_toml(path)
    for model, ranges in tables.items():
        if model not in KINDS:
            raise InputError(f"{path}: {unknown('model', model, KINDS)}")
        if not isinstance(ranges, dict):
            raise InputError(f"{path}: {model} must be a table, such as [{model}].")
        for key in ranges:
            try:
                _models_with(key, [model])
            except InputError as error:
                raise InputError(f"{path}: ", *error.parts) from error
    return {
        model: {
            key: _dimension(
                f"{path}: {model}.{key}", value, key.rpartition("__")[2] in _NONE_IS_A_NAME
            )
            for key, value in ranges.items()
        }
        for model, ranges in tables.items()
    }


def _dimension(where: str, value: Any, none_is_a_name: bool) -> Dimension:
    if isinstance(value, list):
        if not value:
            raise InputError(f"{where} is an empty list: there is nothing to choose from.")
        if not all(isinstance(option, str | int | float) for option in value):
            raise InputError(f"{where} must be a list of words and numbers, not {value!r}.")
        options = tuple(None if o == "none" and not none_is_a_name else o for o in value)
        return Choice(options, options[0])
    if isinstance(value, Mapping):
        return _span(where, value)
    raise InputError(
        f"{where} must be a list of choices or {{low = …, high = …}}, not {value!r}; "
        "hold a value fixed with --fix."
    )


def _span(where: str, value: Mapping[str, Any]) -> Span:
    for key in value:
        if key not in _RANGE_KEYS:
            raise InputError(f"{where}: {unknown('key', key, _RANGE_KEYS)}")
    log, step = value.get("log", False), value.get("step")
    low: Any = value.get("low")
    high: Any = value.get("high")
    if not (_number(low) and _number(high) and (step is None or (_number(step) and step > 0))):
        raise InputError(f"{where} must have numbers as low and high, and a positive step if any.")
    if low >= high or (log and low <= 0):
        least = "0 < low < high where log = true" if log else "low < high"
        raise InputError(f"{where} must have {least}, not {low} and {high}.")
    if not isinstance(log, bool) or (log and step is not None):
        raise InputError(f"{where}: log must be true or false, and cannot have a step.")
    return Span(low, high, log, step, start=low)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
