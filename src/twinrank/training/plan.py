"""How a net is trained, as a value."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from twinrank.measures import measure
from twinrank.support.errors import InputError, unknown
from twinrank.support.members import members_for

OPTIMISERS = ("adam", "adamw", "sgd")
PRECISIONS = ("full", "mixed")
SCHEDULES = ("constant", "halve", "cosine")
RESERVED = ("epoch", "round", "loss", "learning_rate", "seconds")
"""What an epoch's record holds in any case: no evaluation set can have such a name."""
AUTO = "auto"


def batch_for(documents: int) -> int:
    """A fiftieth of the data: enough documents for a step, and enough steps for an epoch.

    At least 500, for a few queries are no batch, and at most 12,000, for which a CPU is no faster.

    >>> [batch_for(documents) for documents in (10_000, 100_000, 2_000_000)]
    [500, 2000, 12000]
    """
    return min(12_000, max(500, documents // 50))


def net_for(documents: int) -> str:
    """A small net, or several where documents are few.

    >>> net_for(10_000)
    'Small(members=5)'
    """
    members = members_for(documents)
    return f"Small(members={members})" if members > 1 else "Small"


MODES: dict[str, dict[str, Any]] = {
    "default": {
        "architecture": net_for,
        "perturbation": 2.0,
        "samples": 5,
        "learning_rate": 3e-3,
        "batch_documents": batch_for,
        "shuffle": True,
        "weight_decay": 0.0,
        "schedule": "constant",
        "validate_every": 1,
        "early_stopping": 10,
    },
    "paper": {
        "architecture": "CE4.L",
        "perturbation": 0.0,
        "samples": 1,
        "learning_rate": 1e-3,
        "batch_documents": 1,  # one query a step
        "shuffle": False,
        "weight_decay": 1e-3,
        "schedule": "halve",
        "validate_every": 2,
        "early_stopping": None,
    },
}
"""What "auto" is in each mode, or how it follows from the number of documents. The default ones
rest on validation queries of small data (docs/choosing.md), the paper's are its author's library's.
"""


def of_mode(mode: str, given: Mapping[str, Any], documents: int = 0) -> dict[str, Any]:
    """Settings with what a mode has for those that are "auto"; any other value stands.

    >>> of_mode("paper", {"weight_decay": "auto", "schedule": "cosine"})
    {'weight_decay': 0.001, 'schedule': 'cosine'}
    """
    if mode not in MODES:
        raise InputError(unknown("mode", str(mode), MODES))
    own = {name: v(documents) if callable(v) else v for name, v in MODES[mode].items()}
    return {
        name: own[name] if name in own and isinstance(value, str) and value == AUTO else value
        for name, value in given.items()
    }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Epochs, batches, the optimiser and what selects the best epoch."""

    epochs: int = 100
    batch_documents: int = 12_000
    shuffle: bool = True
    learning_rate: float = 1e-3
    optimiser: str = "adam"
    weight_decay: float = 0.0
    """Coupled, as an L2 penalty, for adam and sgd; decoupled for adamw."""
    schedule: str = "constant"
    halve_every: int = 20
    clip: float | None = None
    """The greatest norm that the gradient may have."""
    precision: str = "full"
    """ "mixed": the net computes in bfloat16 where that is safe; losses and measures never do."""
    early_stopping: int | None = 10
    """Stop after so many epochs without a better validation value."""
    validation_measure: str = "nDCG@5"
    validate_every: int = 1
    select: str | None = None
    """The name of the evaluation set that selects; None: "validation", or else the first."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_documents", "halve_every", "validate_every"):
            _check(name, getattr(self, name), whole=True)
        _check("learning_rate", self.learning_rate)
        if self.weight_decay != 0:
            _check("weight_decay", self.weight_decay)
        if self.clip is not None:
            _check("clip", self.clip)
        if self.early_stopping is not None:
            _check("early_stopping", self.early_stopping, whole=True)
        if not isinstance(self.shuffle, bool):
            raise InputError(f"shuffle must be true or false, not {self.shuffle!r}")
        if not isinstance(self.select, str | None):
            raise InputError(f"select must be the name of an evaluation set, not {self.select!r}")
        measure(self.validation_measure)
        if self.optimiser not in OPTIMISERS:
            raise InputError(unknown("optimiser", str(self.optimiser), OPTIMISERS))
        if self.schedule not in SCHEDULES:
            raise InputError(unknown("schedule", str(self.schedule), SCHEDULES))
        if self.precision not in PRECISIONS:
            raise InputError(unknown("precision", str(self.precision), PRECISIONS))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def _check(name: str, value: Any, whole: bool = False) -> None:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
        number = "whole number" if whole else "number"
        raise InputError(f"{name} must be a positive {number}, not {value!r}")
