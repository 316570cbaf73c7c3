"""One training from parameters to a model: what `Ranker.fit` and `twinrank train` both do."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform, transform
from twinrank.losses.direct import DirectLoss
from twinrank.measures import Measure
from twinrank.models.architecture import architecture
from twinrank.models.columns import apart
from twinrank.models.folder import Model
from twinrank.models.scorer import Scorer
from twinrank.support.errors import InputError
from twinrank.training.callbacks import Callback, EarlyStopping
from twinrank.training.checkpoints import load_checkpoint
from twinrank.training.loop import Trainer
from twinrank.training.plan import Plan

_PAPER = {
    "batch_documents": 1,  # one query a step
    "shuffle": False,
    "optimiser": "adam",
    "weight_decay": 1e-3,
    "schedule": "halve",
    "halve_every": 20,
    "validate_every": 2,
}


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training gave."""

    model: Model
    history: list[dict[str, Any]]
    best_epoch: int | None
    best_value: float | None


class Session:
    """Parameters of a `Ranker`, turned into a net, a loss and a plan."""

    def __init__(self, parameters: dict[str, Any], before: Model | None = None) -> None:
        self.parameters = parameters
        self.before = before

    def train(
        self,
        data: Dataset,
        weights: Any,
        sets: dict[str, Dataset],
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
    ) -> Trained:
        """Train, or go on from a checkpoint."""
        given = self.parameters
        _check_widths(data, sets)
        scorer, fitted = self._net(data)
        stopping = given["early_stopping"]
        own = [EarlyStopping(stopping)] if stopping and sets else []
        trainer = Trainer(
            scorer,
            self.loss(),
            data,
            self.plan(),
            fitted,
            evaluation=sets,
            weights=weights,
            callbacks=[*own, *callbacks],
            device=device_of(given["device"]),
        )
        if checkpoint is not None:
            load_checkpoint(trainer, checkpoint)
        trainer.run()
        best = trainer.best
        model = Model(scorer.cpu(), fitted, data.feature_names, self._provenance(data))
        return Trained(
            model,
            trainer.progress.history,
            None if best is None else best.epoch,
            None if best is None else best.value,
        )

    def check(self, data: Dataset, sets: dict[str, Dataset]) -> None:
        """Refuse parameters that can't be used, before anything is written or takes long."""
        _check_widths(data, sets)
        self._scorer(data.features)
        transform(self.parameters["transforms"])
        device_of(self.parameters["device"])
        self.plan()
        self.loss()

    def plan(self) -> Plan:
        """The plan that the parameters describe; paper mode replaces some of them."""
        given = self.parameters
        names = {f.name for f in fields(Plan)} & given.keys()
        chosen: dict[str, Any] = {name: _plain(given[name]) for name in names}
        if given["mode"] == "paper":
            chosen |= _PAPER
        return Plan(**chosen, seed=_seed(given["random_state"]))

    def loss(self) -> Any:
        """The objective: a measure that is optimised itself, or what the caller wrote."""
        given = self.parameters
        if callable(given["objective"]) and not isinstance(given["objective"], Measure):
            return given["objective"]
        return DirectLoss(
            given["objective"],
            strategy=given["strategy"],
            alpha=given["alpha"],
            perturbation=given["perturbation"],
            samples=given["samples"],
        )

    def _net(self, data: Dataset) -> tuple[Scorer, Any]:
        given = self.parameters
        if self.before is not None:
            if self.before.scorer.features != data.features:
                raise InputError(
                    f"X has {data.features} features, the model {self.before.scorer.features}"
                )
            return self.before.scorer, self.before.transform
        scorer = self._scorer(data.features)
        wanted = apart(transform(given["transforms"]), scorer.categories)
        return scorer, wanted.fit(data.X, data.lists)

    def _scorer(self, features: int) -> Scorer:
        given = self.parameters
        generator = torch.Generator().manual_seed(_seed(given["random_state"]))
        chosen = architecture(given["architecture"], given["mode"])
        return Scorer(features, chosen, given["categories"], generator)

    def _provenance(self, data: Dataset) -> dict[str, Any]:
        plain = {name: _plain(value) for name, value in self.parameters.items()}
        return {
            "parameters": {k: v for k, v in plain.items() if v is not ...},
            "data": {"name": data.name, "queries": data.queries, "documents": data.documents},
            "threads": torch.get_num_threads(),
            "versions": versions(),
        }


def _check_widths(data: Dataset, sets: dict[str, Dataset]) -> None:
    for name, other in sets.items():
        if other.features != data.features:
            raise InputError(
                f"evaluation set {name!r} has {other.features} features, "
                f"the training data {data.features}"
            )


def versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    names = ("twinrank", "torch", "numpy", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def device_of(name: str) -> str:
    """A device by name; "auto" is a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.device(name)
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise InputError(f"there is no device {name!r} here; choose auto, cpu or cuda") from None
    return name


def _plain(value: Any) -> Any:
    """A parameter as JSON has it; `...` for what only exists in this process."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [str(one) if isinstance(one, Transform) else _plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value if isinstance(value, str | int | float | None) else ...


def _seed(random_state: Any) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise InputError(f"random_state must be a whole number, not {random_state!r}")
    if not 0 <= random_state < 2**63:
        raise InputError(f"random_state must be from 0 to below 2^63, not {random_state}")
    return int(random_state)
