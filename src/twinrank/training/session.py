"""One training from parameters to a model: what `Ranker.fit` and `twinrank train` both do."""

import inspect
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
from twinrank.data.transforms.transform_base import FeatureError
from twinrank.losses import NAMES as LOSSES
from twinrank.losses import is_loss
from twinrank.losses import loss as loss_by_name
from twinrank.losses.direct import DirectLoss
from twinrank.measures import NAMES, Measure
from twinrank.models.architecture import architecture
from twinrank.models.columns import apart
from twinrank.models.ensemble import Net, net
from twinrank.models.folder import Model
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import parse
from twinrank.training.callbacks import Callback, EarlyStopping
from twinrank.training.checkpoints import load_checkpoint
from twinrank.training.loop import Trainer
from twinrank.training.plan import Plan, of_mode
from twinrank.training.processes import Processes
from twinrank.training.validation import Best, selecting


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training gave."""

    model: Model
    history: list[dict[str, Any]]
    best: Best | None


class Session:
    """Parameters of a `Ranker`, turned into a net, a loss and a plan.

    `before` is a model to go on from, and `calls` how often that has been done: every time has
    random numbers of its own.
    """

    def __init__(
        self, parameters: dict[str, Any], before: Model | None = None, calls: int = 0
    ) -> None:
        self.parameters = parameters
        self.before = before
        self.calls = calls

    def train(
        self,
        data: Dataset,
        weights: Any,
        sets: dict[str, Dataset],
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        processes: Processes | None = None,
    ) -> Trained:
        """Train, or go on from a checkpoint, alone or as one of several processes."""
        given = self.parameters
        _check_widths(data, sets)
        scorer, fitted = self._net(data)
        plan, loss = self.plan(data.documents), self.loss()
        if weights is not None:
            _check_takes_weights(loss)
        own = [EarlyStopping(plan.early_stopping)] if plan.early_stopping and sets else []
        trainer = Trainer(
            scorer,
            loss,
            data,
            plan,
            fitted,
            evaluation=sets,
            weights=weights,
            callbacks=[*own, *callbacks],
            device=device_of(given["device"]),
            processes=processes,
        )
        if checkpoint is not None:
            load_checkpoint(trainer, checkpoint)
        trainer.run()
        model = Model(scorer.cpu(), fitted, data.feature_names, self._provenance(data))
        return Trained(model, trainer.progress.history, trainer.validation.best)

    def check(self, data: Dataset, sets: dict[str, Dataset]) -> None:
        """Refuse parameters that can't be used, before anything is written or takes long."""
        _check_widths(data, sets)
        self._scorer(data)
        transform(self.parameters["transforms"])
        device_of(self.parameters["device"])
        selecting(self.plan(data.documents), sets)
        self.loss()

    def plan(self, documents: int = 0) -> Plan:
        """The plan that the parameters describe, for so many documents."""
        given = self.parameters
        found = self._settled([f.name for f in fields(Plan) if f.name in given], documents)
        chosen = {name: _plain(value) for name, value in found.items()}
        if chosen.get("precision") == "mixed" and device_of(given["device"]) == "cpu":
            raise InputError(
                "precision='mixed' is for GPUs, and the device is the CPU; leave it at 'full'"
            )
        return Plan(**chosen, seed=_seed(given["random_state"], self.calls))

    def loss(self) -> Any:
        """The objective: a measure that is optimised itself, a loss by name, or a callable."""
        given = self.parameters
        objective = given["objective"]
        if callable(objective) and not isinstance(objective, Measure):
            return objective
        if isinstance(objective, str):
            if is_loss(objective):
                return loss_by_name(objective, given["mode"])
            if (name := parse(objective).name) not in NAMES:
                raise InputError(unknown("objective", name, [*NAMES, *LOSSES]))
        return DirectLoss(
            objective,
            strategy=given["strategy"],
            alpha=given["alpha"],
            **self._settled(["perturbation", "samples"]),
        )

    def _settled(self, names: Sequence[str], documents: int = 0) -> dict[str, Any]:
        """Some parameters, with what the mode has for "auto"."""
        given = self.parameters
        return of_mode(given["mode"], {name: given[name] for name in names}, documents)

    def _net(self, data: Dataset) -> tuple[Net, Any]:
        given = self.parameters
        if self.before is not None:
            if self.before.scorer.features != data.features:
                raise InputError(
                    f"X has {data.features} features, the model {self.before.scorer.features}"
                )
            self._check_architecture(self.before.scorer)
            return self.before.scorer, self.before.transform
        scorer = self._scorer(data)
        wanted = apart(transform(given["transforms"]), scorer.categories)
        try:
            return scorer, wanted.fit(data.X, data.lists)
        except FeatureError as error:
            raise error.named(data.query_ids, data.feature_names) from None

    def _check_architecture(self, before: Net) -> None:
        """Refuse another architecture than that of the net to go on from."""
        given = self.parameters["architecture"]
        if given == "auto":
            return
        wanted = architecture(given, self.parameters["mode"])
        if wanted != before.architecture:
            raise InputError(
                f"the net at hand isn't {given}, and partial_fit goes on with it: begin anew with "
                f"fit, or leave the architecture as it was"
            )

    def _scorer(self, data: Dataset) -> Net:
        given = self.parameters
        generator = torch.Generator().manual_seed(_seed(given["random_state"]))
        settled = self._settled(["architecture"], data.documents)
        chosen = architecture(settled["architecture"], given["mode"])
        return net(data.features, chosen, given["categories"], generator)

    def _provenance(self, data: Dataset) -> dict[str, Any]:
        plain = {name: _plain(value) for name, value in self.parameters.items()}
        return {
            "parameters": {k: v for k, v in plain.items() if v is not ...},
            "plan": self.plan(data.documents).to_json(),
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


def _check_takes_weights(loss: Any) -> None:
    """Refuse lists of different weights where the loss can't know them."""
    function = loss.forward if isinstance(loss, torch.nn.Module) else loss
    try:
        taken = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not every callable says what it takes
        return
    if "weights" in taken or any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return
    name = getattr(function, "__name__", type(loss).__name__)
    raise InputError(
        f"sample_weight needs an objective that takes weights, but {name}({', '.join(taken)}) "
        f"doesn't: write (scores, labels, lists, weights=None), one weight per list"
    )


def _seed(random_state: Any, calls: int = 0) -> int:
    """A seed; that of a later call is another one."""
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise InputError(f"random_state must be a whole number, not {random_state!r}")
    if not 0 <= random_state < 2**63:
        raise InputError(f"random_state must be from 0 to below 2^63, not {random_state}")
    if calls == 0:
        return int(random_state)
    words = np.random.SeedSequence([int(random_state), calls]).generate_state(1, np.uint64)
    return int(words[0]) >> 1
