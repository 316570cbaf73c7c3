"""Search spaces: the parameters that a search varies, by default or by options and a TOML file.

`default_space.toml` has the default ranges, in the format of a user's file.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.core.measures import measure
from twinrank.core.measures.constraints import constrained
from twinrank.experiments.study.methods import BLEND, MODEL_KINDS, NET, SIZE_PARAMETER, TREES
from twinrank.experiments.study.units import full_parameters
from twinrank.learning.estimators.parameters import settings_of
from twinrank.learning.models.architecture import Architecture
from twinrank.learning.training.tree_parameters import ENGINE_OBJECTIVES
from twinrank.support.errors import InputError, has_torch, unknown
from twinrank.support.files import read_toml
from twinrank.support.notation import Term, summands

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
_DIRECT = ("strategy", "perturbation", "samples", "alpha", SIZE_PARAMETER)
"""Parameters that only direct optimisation of a measure has."""
_NESTED = {
    NET.name: [value.name for value in fields(Architecture)],
    TREES.name: ["min_data_in_leaf", "lambda_l2"],
}
"""Values within a parameter: `architecture` of nets, `engine_params` of trees by LightGBM."""


@dataclass(frozen=True)
class Choice:
    """One of several values. The first trial takes the first."""

    options: tuple[Any, ...]

    @property
    def start(self) -> Any:
        """The value in the first trial."""
        return self.options[0]

    def draw(self, trial: "Trial", name: str) -> Any:
        """A value for a trial."""
        return trial.suggest_categorical(name, self.options)


@dataclass(frozen=True)
class Span:
    """A number between two bounds, both included. `log` searches orders of magnitude."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    start: float = field(kw_only=True)
    """The value in the first trial."""

    def draw(self, trial: "Trial", name: str) -> Any:
        """A value for a trial: whole if bounds and step are, else rounded to three digits."""
        low, high, step = self.low, self.high, self.step
        if isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None):
            return trial.suggest_int(name, low, high, log=self.log, step=step or 1)
        return float(f"{trial.suggest_float(name, low, high, log=self.log, step=step):.3g}")


Dimension = Choice | Span


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
    """Dimensions that replace or extend the default ones."""

    def __post_init__(self) -> None:
        for name, value in self.fixed.items():
            if name.rpartition("__")[2] == "objective" and constrained(value) is not None:
                raise InputError(
                    "A search takes no constraints: search with the goal as objective, and train "
                    "with the best parameters and the constraints: twinrank train --config."
                )
        for name in _NESTED.get(self.model, ()):
            if name not in {*self.fixed, *self.own} or not self._excludes_nested:
                continue
            if self.model == NET.name:
                raise InputError(
                    f"{name} is part of the architecture: pass architecture=MLP({name}=…)."
                )
            raise InputError(f"Only LightGBM has {name}: fix engine=lightgbm.")
        # Checked now, so that mistakes show before the search begins.
        full_parameters(MODEL_KINDS[self.model].estimator.__name__, self.start())

    @cached_property
    def dimensions(self) -> dict[str, Dimension]:
        """The dimensions by name, in the order in which they are drawn."""
        if self.model == BLEND.name:
            return {
                prefix + name: dimension
                for prefix, space in self._parts.items()
                for name, dimension in space.dimensions.items()
            }
        removed = {*self.fixed, *(self.fixed.get("engine_params") or {})}
        if self._excludes_nested:
            removed.update(_NESTED[self.model])
        dimensions = {**_default_ranges()[self.model], **self.own}
        return {name: value for name, value in dimensions.items() if name not in removed}

    def draw(self, trial: "Trial") -> dict[str, Any]:
        """The estimator's parameters in a trial."""
        return self._parameters(lambda name, dimension: dimension.draw(trial, name))

    def start(self) -> dict[str, Any]:
        """The estimator's parameters in the first trial."""
        return self._parameters(lambda _, dimension: dimension.start)

    def _parameters(
        self, choose: Callable[[str, Dimension], Any], prefix: str = ""
    ) -> dict[str, Any]:
        """The estimator's parameters, if `choose` gives the value of each dimension."""
        if self.model == BLEND.name:
            values = {name: value for name, value in self.fixed.items() if "__" not in name}
            for part, space in self._parts.items():
                chosen = space._parameters(choose, part)
                values |= {part + name: value for name, value in chosen.items()}
            return values
        values = dict(self.fixed)
        for name, dimension in self.dimensions.items():
            if _matters(name, values):
                values[name] = choose(prefix + name, dimension)
        if not _matters(SIZE_PARAMETER, values):  # fixed for other objectives
            values.pop(SIZE_PARAMETER, None)
        nested = {name: values.pop(name) for name in _NESTED[self.model] if name in values}
        if nested and self.model == NET.name:
            values["architecture"] = str(Term("MLP", nested))
        elif nested:
            values["engine_params"] = {**nested, **(values.get("engine_params") or {})}
        return values

    @property
    def _excludes_nested(self) -> bool:
        """True if the architecture is given as a whole, or the engine may not be LightGBM."""
        if self.model == NET.name:
            return "architecture" in {*self.fixed, *self.own}
        return "engine" in self.own or self.fixed.get("engine", "lightgbm") != "lightgbm"

    @cached_property
    def _parts(self) -> "dict[str, Space]":
        """The spaces of the rankers of a blend, by the prefix of their parameters."""

        def of(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
            return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}

        names = {f"{name}__": name for name in (TREES.name, NET.name)}
        return {p: Space(name, of(p, self.fixed), of(p, self.own)) for p, name in names.items()}


def _matters(name: str, values: Mapping[str, Any]) -> bool:
    """True if a parameter has an effect with the values that were chosen before it."""
    if name == "samples" and values.get("perturbation") == 0:
        return False
    objective = str(values.get("objective", ""))
    indirect = objective in ENGINE_OBJECTIVES
    if objective and not indirect and has_torch():
        from twinrank.core.losses import is_loss

        indirect = len(summands(objective)) == 1 and is_loss(objective)
    return not (indirect and name in _DIRECT)


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
                fixed[model][key] = "none" if value is None and _has_none(key) else value
    return [Space(model, fixed[model], ranges.get(model, {})) for model in models]


def for_weights_of_rows(spaces: Sequence[Space]) -> tuple[list[Space], list[str]]:
    """The spaces without objectives that take no weights of documents, and these objectives."""
    kept: list[Space] = []
    removed: list[str] = []
    for space in spaces:
        own = dict(space.own)
        for name, dimension in space.dimensions.items():
            if name.rpartition("__")[2] == "objective" and isinstance(dimension, Choice):
                taking = tuple(filter(_takes_weights, dimension.options))
                removed += [o for o in dimension.options if o not in (*taking, *removed)]
                own[name] = Choice(taking or dimension.options)  # with an error in each trial
        kept.append(replace(space, own=own))
    return kept, removed


def _takes_weights(objective: Any) -> bool:
    """True if weights may differ within a query."""
    if objective in ENGINE_OBJECTIVES:
        return False
    if not has_torch():
        return measure(objective).takes_weights
    from twinrank.learning.training.net_settings import check_takes_weights, loss_of

    given = {"objective": objective, "mode": "default", "strategy": "type3", "alpha": 1.0}
    try:
        check_takes_weights(loss_of({**given, "perturbation": 0.0, "samples": 1}), differ=True)
    except InputError:
        return False
    return True


def known_names(model: str) -> list[str]:
    """The names that can be searched or fixed: parameters of the estimator, and parts of one."""
    names = inspect.signature(MODEL_KINDS[model].estimator).parameters
    own = [name for name in names if name not in _SET_BY_OPTIONS]
    if model == BLEND.name:
        return own + [f"{part}__{n}" for part in (TREES.name, NET.name) for n in known_names(part)]
    return own + _NESTED[model]


def _has_none(key: str) -> bool:
    """True if "none" is the name of a value of a parameter, not None."""
    return key.rpartition("__")[2] in _NONE_IS_A_NAME


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


@cache
def _default_ranges() -> dict[str, dict[str, Dimension]]:
    return _read(Path(__file__).with_name("default_space.toml"))


def _read(path: Path) -> dict[str, dict[str, Dimension]]:
    """The ranges of a TOML file by kind of model."""
    tables = read_toml(path)
    try:
        return {model: _ranges(model, table) for model, table in tables.items()}
    except InputError as error:
        raise InputError(f"{path}: ", *error.parts) from error


def _ranges(model: str, table: Any) -> dict[str, Dimension]:
    """The ranges of one kind of model."""
    if model not in MODEL_KINDS:
        raise InputError(unknown("model", model, MODEL_KINDS))
    if not isinstance(table, dict):
        raise InputError(f"{model} must be a table, such as [{model}].")
    for key in table:
        _models_with(key, [model])
    return {key: _dimension(model, key, value) for key, value in table.items()}


def _dimension(model: str, key: str, value: Any) -> Dimension:
    """The range of a parameter: a list of choices, or an interval."""
    where = f"{model}.{key}"
    if isinstance(value, dict):
        return _span(where, value)
    if not isinstance(value, list):
        raise InputError(
            f"{where} must be a list of choices or {{low = …, high = …}}, not {value!r}; "
            "hold a value fixed with --fix."
        )
    if not value:
        raise InputError(f"{where} is an empty list: there is nothing to choose from.")
    if not all(isinstance(option, str | int | float) for option in value):
        raise InputError(f"{where} must be a list of words and numbers, not {value!r}.")
    has_none = _has_none(key)
    return Choice(tuple(None if o == "none" and not has_none else o for o in value))


def _span(where: str, table: dict[str, Any]) -> Span:
    known = [value.name for value in fields(Span)]
    for key in table:
        if key not in known:
            raise InputError(f"{where}: {unknown('key', key, known)}")
    span = Span(**{"low": None, "high": None, "start": table.get("low"), **table})
    bounds, step = (span.low, span.start, span.high), 1 if span.step is None else span.step
    if not all(type(number) in (int, float) for number in (*bounds, step)):
        raise InputError(
            f"{where} must have numbers as low and high, and as start and step if any."
        )
    if not span.low < span.high or (span.log and span.low <= 0):
        least = "0 < low < high where log = true" if span.log else "low < high"
        raise InputError(f"{where} must have {least}, not {span.low} and {span.high}.")
    if not span.low <= span.start <= span.high or step <= 0:
        raise InputError(f"{where} must have a start from low to high, and a positive step.")
    if not isinstance(span.log, bool) or (span.log and span.step is not None):
        raise InputError(f"{where}: log must be true or false, and cannot have a step.")
    return span
