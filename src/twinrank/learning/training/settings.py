"""The training plan, and one table with the defaults of every learner and mode."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from twinrank.core.measures import Measure, MeasureSum, measure
from twinrank.core.measures.constraints import ConstrainedObjective, constrained
from twinrank.support.errors import Argument, InputError, check_number

AUTO = "auto"
RESERVED = ("iteration", "loss", "learning_rate", "seconds", "goals", "weights")
"""The keys of every history record. An evaluation set cannot have one of these names."""
SMALL_DATA = 60_000
"""Documents; the defaults of more data follow from its ratio to this number (docs/choosing.md)."""
MOST_EPOCHS = 100
"""The epochs of nets on small data; `default_epochs` has fewer for large data."""

PER_DOCUMENT = "per-document"
"""The mode of trees whose score of a document does not depend on the other documents."""
FEWEST = {"default": (2, 1), "paper": (10, 1)}
"""The fewest documents, and relevant documents, of a query that trains, by mode.

The mode "paper" also leaves other queries out of evaluation sets.
"""


def growth(documents: int, power: float = 1.0) -> float:
    """How many times as large as small data the data is, at least 1, to this power."""
    return math.pow(max(1.0, documents / SMALL_DATA), power)


def default_ensemble_size(documents: int) -> int:
    """Five models for small data; fewer for more, whose models are larger.

    >>> [default_ensemble_size(documents) for documents in (60_000, 100_000, 300_000, 1_000_000)]
    [5, 4, 2, 1]
    """
    return max(1, round(5 / growth(documents, 0.6)))


def default_num_leaves(documents: int) -> int:
    """15 leaves for small data, up to 255 for more.

    >>> [default_num_leaves(documents) for documents in (60_000, 300_000, 1_000_000, 4_000_000)]
    [15, 39, 81, 186]
    """
    return min(255, round(15 * growth(documents, 0.6)))


def default_tree_rate(documents: int) -> float:
    """0.05 for small data, a little more for more, whose trees are less noisy.

    >>> [default_tree_rate(documents) for documents in (60_000, 300_000, 1_000_000)]
    [0.05, 0.059, 0.066]
    """
    return round(0.05 * growth(documents, 0.1), 3)


def default_rounds(documents: int) -> int:
    """300 rounds at most for small data, up to 1,000 for more.

    >>> [default_rounds(documents) for documents in (60_000, 300_000, 1_000_000)]
    [300, 449, 606]
    """
    return min(1_000, round(300 * growth(documents, 0.25)))


def default_architecture(documents: int) -> str:
    """Small nets for small data, wider ones with less dropout for more.

    >>> [default_architecture(documents) for documents in (60_000, 240_000, 2_000_000)]
    ['Small', 'Small(width=128, dropout=0.15)', 'Small(width=256, dropout=0.05)']
    """
    if growth(documents) == 1:
        return "Small"
    width = min(256, 8 * round(8 * growth(documents, 0.5)))
    dropout = max(0.05, round(0.3 / growth(documents, 0.5), 2))
    return f"Small(width={width}, dropout={dropout})"


def default_batch_documents(documents: int) -> int:
    """A fiftieth of the data, between 500 and 4,000 documents.

    >>> [default_batch_documents(documents) for documents in (10_000, 100_000, 2_000_000)]
    [500, 2000, 4000]
    """
    return min(4_000, max(500, documents // 50))


def default_epochs(documents: int) -> int:
    """100 epochs at most, as many as 30 million documents in all, but at least 5.

    >>> [default_epochs(documents) for documents in (300_000, 1_000_000, 3_700_000)]
    [100, 30, 8]
    """
    return max(5, min(MOST_EPOCHS, 30_000_000 // max(documents, 1)))


def default_schedule(documents: int) -> str:
    """A cosine where `default_epochs` limits the epochs; else constant, with early stopping.

    >>> [default_schedule(documents) for documents in (300_000, 1_000_000)]
    ['constant', 'cosine']
    """
    return "cosine" if default_epochs(documents) < MOST_EPOCHS else "constant"


@dataclass(frozen=True)
class TreeParameter:
    """A parameter of `BoostedRanker`: what "auto" means, its range, its names in the engines."""

    default: Any = None
    """The value of "auto"; a function takes the number of documents. None: there is no "auto"."""
    paper: Any = None
    """The value of "auto" in the mode "paper"."""
    own_objective: Any = None
    """The value of "auto" for the engines' own objectives, where it differs."""
    per_document: Any = None
    """The value of "auto" in the mode "per-document", where it differs from `default`."""
    number: Mapping[str, Any] | None = None
    """The options of `check_number`, for numbers that nothing else checks."""
    aliases: str = ""
    """What LightGBM and XGBoost call it: `engine_params` cannot set these."""


# The mode "paper" is LambdaMART(L) of the paper, and measures on the same trees. The paper's
# LightGBM cut the ideal DCG at 20 documents, which cannot be set today, and used all pairs.
TREE_PARAMETERS = {
    "objective": TreeParameter(aliases="objective objective_type application app loss"),
    "perturbation": TreeParameter(2.0, 0.0),
    "samples": TreeParameter(5, 1),
    "ensemble_size": TreeParameter(
        default_ensemble_size, 1, 1, number={"whole": True, "least": 1},
        aliases="num_class num_classes multi_strategy",
    ),
    "n_estimators": TreeParameter(
        default_rounds, 1000, number={"whole": True, "least": 1},
        aliases="n_estimators num_iterations num_iteration n_iter max_iter nrounds "
        "num_boost_round num_round num_rounds num_tree num_trees",
    ),
    "learning_rate": TreeParameter(
        default_tree_rate, 0.05, number={}, aliases="learning_rate eta shrinkage_rate"
    ),
    "num_leaves": TreeParameter(
        default_num_leaves, 400, number={"whole": True, "least": 2},
        aliases="num_leaves num_leaf max_leaves max_leaf max_leaf_nodes",
    ),
    "colsample_bytree": TreeParameter(
        0.5, 1.0, 1.0, number={}, aliases="colsample_bytree feature_fraction sub_feature"
    ),
    "subsample": TreeParameter(1.0, 1.0, number={}),
    "subsample_freq": TreeParameter(0, 0, number={"whole": True, "least": 0}),
    "transforms": TreeParameter("none | QueryZScore", "QueryZScore", "none", "none"),
    "categorical_features": TreeParameter(
        aliases="categorical_features categorical_feature categorical_column cat_feature "
        "cat_column feature_types",
    ),
    "validation_measure": TreeParameter(aliases="metric metrics metric_types eval_metric"),
    "early_stopping": TreeParameter(
        50, 200,
        aliases="early_stopping early_stopping_round early_stopping_rounds n_iter_no_change",
    ),
    "tolerance": TreeParameter(1.0, 0.0, 0.0),
    "n_jobs": TreeParameter(aliases="n_jobs num_threads num_thread nthread nthreads"),
    "random_state": TreeParameter(aliases="random_state seed random_seed"),
}  # fmt: skip
"""Every parameter of boosted trees that "auto" or an engine knows, declared once."""

_NET_INPUTS = (
    "QueryZScore | Quantile(output_distribution=normal) + Clip(low=-3, high=3) | MissingIndicator"
)
DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "net": {
        "default": {
            "architecture": default_architecture,
            "ensemble_size": default_ensemble_size,
            "transforms": _NET_INPUTS,
            "feature_noise": 0.2,
            "perturbation": 2.0,
            "samples": 5,
            "epochs": default_epochs,
            "learning_rate": 3e-3,
            "batch_documents": default_batch_documents,
            "shuffle": True,
            "weight_decay": 0.0,
            "schedule": default_schedule,
            "validate_every": 1,
            "early_stopping": 10,
            "tolerance": 1.0,
        },
        "paper": {
            "architecture": "CE4.L",
            "ensemble_size": 1,
            "transforms": "QueryZScore",
            "feature_noise": 0.0,
            "perturbation": 0.0,
            "samples": 1,
            "epochs": 100,
            "learning_rate": 1e-3,
            "batch_documents": 1,  # one query per step
            "shuffle": False,
            "weight_decay": 1e-3,
            "schedule": "halve",
            "validate_every": 2,
            "early_stopping": None,
            "tolerance": 0.0,
        },
    },
    "trees": {
        mode: {
            name: parameter.default if (own := getattr(parameter, field)) is None else own
            for name, parameter in TREE_PARAMETERS.items()
            if parameter.default is not None
        }
        for mode, field in (
            ("default", "default"),
            ("paper", "paper"),
            (PER_DOCUMENT, "per_document"),
        )
    },
}
"""The value of "auto" by learner, mode and parameter; a function takes the number of documents.

The values of "default" were chosen on validation queries (docs/choosing.md), those of "paper"
are the paper's or its author's.
"""


def resolve(kind: str, parameters: Mapping[str, Any], documents: int = 0) -> dict[str, Any]:
    """Parameters of an estimator with "auto" replaced by the default of their mode.

    >>> resolve("net", {"mode": "paper", "weight_decay": "auto", "schedule": "cosine"})
    {'mode': 'paper', 'weight_decay': 0.001, 'schedule': 'cosine'}
    """
    modes = DEFAULTS[kind]
    mode = parameters["mode"]
    if mode not in modes:
        raise InputError(argument="mode", value=mode, choices=modes)
    resolved = dict(parameters)
    for name, default in modes[mode].items():
        if is_auto(resolved.get(name)):
            resolved[name] = default(documents) if callable(default) else default
    return resolved


def is_auto(value: Any) -> bool:
    """True for a parameter whose value is the default of its mode."""
    return isinstance(value, str) and value == AUTO


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the loop trains any learner: how long, and what selects the iteration that is kept."""

    iterations: int
    """Epochs or rounds at most."""
    early_stopping: int | None = None
    """Stop after this many iterations without a better validation value."""
    tolerance: float = 0.0
    """Keep the last iteration that is less than this many standard errors below the best."""
    validation_measure: str | Measure = "nDCG@5"
    validate_every: int = 1
    select: str | None = None
    """The evaluation set that selects the iteration; None: "validation", else the first."""
    seed: int = 0
    objective: MeasureSum | None = None
    """A sum of measures that is learned: the history has its terms."""
    constrained: ConstrainedObjective | None = None
    """An objective with constraints: its goal is the validation measure."""

    def __post_init__(self) -> None:
        check_number("iterations", self.iterations, whole=True)
        check_number("validate_every", self.validate_every, whole=True)
        if self.early_stopping is not None:
            check_number("early_stopping", self.early_stopping, whole=True)
        check_number("tolerance", self.tolerance, least=0)
        measure(self.validation_measure)

    @classmethod
    def of(cls, parameters: Mapping[str, Any], iterations_parameter: str, calls: int = 0) -> "Plan":
        """The plan in an estimator's resolved parameters."""
        iterations = parameters[iterations_parameter]
        check_number(iterations_parameter, iterations, whole=True)
        patience, objective = parameters["early_stopping"], parameters.get("objective")
        own = constrained(objective)
        measure(parameters["validation_measure"])
        return cls(
            iterations=int(iterations),
            early_stopping=as_plain(patience),
            tolerance=as_plain(parameters["tolerance"]),
            validation_measure=parameters["validation_measure"] if own is None else own.goal,
            validate_every=as_plain(parameters["validate_every"]),
            select=parameters["select"],
            seed=seed_of(parameters["random_state"], calls),
            objective=_sum_of(objective),
            constrained=own,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        left_out = ("objective", "constrained")  # which are among the parameters
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        return {**plain, "validation_measure": str(self.validation_measure)}


def _sum_of(objective: Any) -> MeasureSum | None:
    """The objective if it is a sum of measures."""
    if isinstance(objective, MeasureSum):
        return objective
    if not isinstance(objective, str) or "+" not in objective or constrained(objective) is not None:
        return None
    try:
        own = measure(objective)
    except InputError:  # a loss
        return None
    return own if isinstance(own, MeasureSum) else None


OTHER_NET = (
    "A training that continues cannot change the architecture of a net; call fit without "
    "init_model."
)


def as_plain(value: Any) -> Any:
    """A NumPy scalar as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def seed_of(random_state: Any, calls: int = 0) -> int:
    """A seed from `random_state`; each further call of `partial_fit` has its own."""
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise InputError(
            Argument("random_state"), f" must be a whole number, not {random_state!r}."
        )
    if not 0 <= random_state < 2**63:
        raise InputError(
            Argument("random_state"), f" must be at least 0 and below 2^63, not {random_state}."
        )
    if calls == 0:
        return int(random_state)
    words = np.random.SeedSequence([int(random_state), calls]).generate_state(1, np.uint64)
    return int(words[0]) >> 1
