"""What a search varies, as values: the settings of nets and trees, and the net's own shape."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from twinrank.boosting.session import OWN
from twinrank.losses import is_loss
from twinrank.models.architecture import Architecture, architecture
from twinrank.ranks.strategies import STRATEGIES
from twinrank.study.methods import Method
from twinrank.study.units import full_parameters
from twinrank.support.errors import InputError
from twinrank.support.notation import Term

if TYPE_CHECKING:
    from optuna.trial import Trial

NET, TREES = "net", "trees"
MODELS = (NET, TREES)


@dataclass(frozen=True)
class Choice:
    """One of several values; `start` is what the first trial takes, where it is one of them."""

    options: tuple[Any, ...]
    start: Any = None

    def draw(self, trial: "Trial", name: str) -> Any:
        """A value for a trial."""
        return trial.suggest_categorical(name, self.options)

    def has(self, value: Any) -> bool:
        """Whether a value is one of these."""
        return value in self.options


@dataclass(frozen=True)
class Span:
    """A number between two others, both included; `log` where its order of magnitude matters."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    start: Any = None

    def draw(self, trial: "Trial", name: str) -> Any:
        """A value for a trial; whole where both ends are, else of three digits, for people."""
        if self.whole:
            ends = int(self.low), int(self.high)
            return trial.suggest_int(name, *ends, log=self.log, step=int(self.step or 1))
        found = trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)
        return float(f"{found:.3g}")

    @property
    def whole(self) -> bool:
        """Whether it is about whole numbers."""
        return all(isinstance(one, int) for one in (self.low, self.high, self.step or 1))

    def has(self, value: Any) -> bool:
        """Whether a value lies between the two."""
        return isinstance(value, int | float) and self.low <= value <= self.high


Dimension = Choice | Span


@dataclass(frozen=True)
class Growing:
    """What LightGBM has beside a ranker's own parameters, with its defaults."""

    min_data_in_leaf: int = 20
    feature_fraction: float = 1.0
    lambda_l2: float = 0.0


PARTS: dict[str, type] = {NET: Architecture, TREES: Growing}
"""What is searched inside a parameter: `architecture` of nets, `engine_params` of trees."""

# What there is only where a measure itself is optimised.
_DIRECT = ("strategy", "perturbation", "samples", "alpha", "members")
_STRATEGY = Choice(STRATEGIES, "type3")
SPACES: dict[str, Mapping[str, Dimension]] = {
    NET: {
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
                "QueryZScore",
                "Standardise",
                "QueryMinMax",
                "SignedLog1p + QueryZScore",
                "SignedLog1p + Standardise",
            ),
            "QueryZScore",
        ),
        "depth": Span(1, 6, start=3),
        "width": Span(16, 256, log=True, start=64),
        "activation": Choice(("relu", "celu", "gelu", "silu", "tanh"), "relu"),
        "norm": Choice(("batch", "query", "layer", "none"), "batch"),
        "dropout": Span(0.0, 0.5, start=0.3),
        "last_activation": Choice((False, True), False),
    },
    TREES: {
        "objective": Choice(("nDCG", "AP", "nERR@10", "LambdaMART"), "nDCG"),
        "strategy": _STRATEGY,
        "perturbation": Span(0.0, 4.0, step=0.25, start=2.0),
        "samples": Span(1, 8, log=True, start=5),
        "learning_rate": Span(0.02, 0.3, log=True, start=0.05),
        "num_leaves": Span(7, 127, log=True, start=15),
        "min_data_in_leaf": Span(5, 200, log=True, start=20),
        "feature_fraction": Span(0.4, 1.0, start=1.0),
        "lambda_l2": Choice((0.0, 0.1, 1.0, 10.0), 0.0),
    },
}
"""What is searched unless something else is asked for. It starts from the library's defaults."""


@dataclass(frozen=True)
class Space:
    """What a search varies of nets or of trees, and what it holds fixed.

    >>> Space("trees", {"objective": "AP", "num_leaves": 15}).start()["objective"]
    'AP'
    """

    model: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Dimension] = field(default_factory=dict)
    """Dimensions in place of, or beside, those of `SPACES`."""

    def __post_init__(self) -> None:
        clashing = [name for name in self._parts if name in self.fixed or name in self.own]
        if clashing and self.model == NET and self._without_parts:
            raise InputError(
                f"architecture is given as a whole: write {clashing[0]} into it, "
                f"such as MLP({clashing[0]}=…)"
            )
        if clashing and self._without_parts:
            raise InputError(f"{clashing[0]} is LightGBM's alone: fix engine=lightgbm")
        parameters = self.start()  # which a mistake in what is fixed would spoil: it is known now
        if self.model == NET:
            architecture(parameters["architecture"])
        full_parameters(self._method(parameters), parameters)

    @property
    def dimensions(self) -> dict[str, Dimension]:
        """What is searched, by name, in the order in which it is drawn."""
        gone = {*self.fixed, *(self.fixed.get("engine_params") or {})}
        gone |= {*self._parts} if self._without_parts else set()
        found = {**SPACES[self.model], **self.own}
        return {name: one for name, one in found.items() if name not in gone}

    def draw(self, trial: "Trial") -> dict[str, Any]:
        """The estimator's parameters in a trial."""
        return self._gathered(lambda name, dimension: dimension.draw(trial, name))

    def start(self) -> dict[str, Any]:
        """The estimator's parameters in the first trial."""
        return self._gathered(lambda _, dimension: _start(dimension))

    def starting_point(self) -> dict[str, Any]:
        """What the first trial takes where something is to be searched."""
        return {name: _start(dimension) for name, dimension in self.dimensions.items()}

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        own = {name: asdict(dimension) for name, dimension in self.own.items()}
        return {"model": self.model, "fixed": dict(self.fixed), "own": own}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Space":
        """The inverse of `to_json`."""
        own: dict[str, Dimension] = {}
        for name, one in plain["own"].items():
            if "options" in one:
                own[name] = Choice(tuple(one["options"]), one["start"])
            else:
                own[name] = Span(**one)
        return cls(plain["model"], plain["fixed"], own)

    def _gathered(self, choose: Any) -> dict[str, Any]:
        found = dict(self.fixed)
        for name, dimension in self.dimensions.items():
            if _matters(name, found):
                found[name] = choose(name, dimension)
        if not _matters("members", found):  # fixed for the measures that others take
            found.pop("members", None)
        parts = {name: found.pop(name) for name in self._parts if name in found}
        if parts and self.model == NET:
            found["architecture"] = str(Term("MLP", parts))
        elif parts:
            found["engine_params"] = {**parts, **(found.get("engine_params") or {})}
        return found

    @property
    def _parts(self) -> list[str]:
        return [one.name for one in fields(PARTS[self.model])]

    @property
    def _without_parts(self) -> bool:
        """Whether the architecture is given as a whole, or trees may not be LightGBM's."""
        if self.model == NET:
            return "architecture" in {*self.fixed, *self.own}
        return "engine" in self.own or self.fixed.get("engine", "lightgbm") != "lightgbm"

    def _method(self, parameters: Mapping[str, Any]) -> Method:
        strategy = parameters.get("strategy", "")
        if self.model == NET:
            return Method(parameters["objective"], strategy, parameters["architecture"])
        engine = parameters.get("engine", "lightgbm")
        return Method(parameters["objective"], strategy, str(Term("Boosted", {"engine": engine})))


def _matters(name: str, found: Mapping[str, Any]) -> bool:
    """Whether a setting does anything, given what was chosen before it."""
    if name == "samples" and found.get("perturbation") == 0:
        return False
    objective = str(found.get("objective", ""))
    indirect = objective in OWN or (bool(objective) and is_loss(objective))
    return not (indirect and name in _DIRECT)


def _start(dimension: Dimension) -> Any:
    if dimension.start is not None and dimension.has(dimension.start):
        return dimension.start
    return dimension.options[0] if isinstance(dimension, Choice) else dimension.low
