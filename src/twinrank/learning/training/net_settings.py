"""What a net starts from: batches, the optimiser, the loss, the device, and its first weights."""

import inspect
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from twinrank.core.losses import is_loss, loss_names
from twinrank.core.losses import loss as loss_by_name
from twinrank.core.losses.direct import DirectLoss
from twinrank.core.losses.loss_sum import LossSum
from twinrank.core.losses.ranking_loss import RankingLoss
from twinrank.core.measures import Measure, names
from twinrank.core.measures.constraints import starting
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform, transform
from twinrank.data.transforms.combined import except_columns
from twinrank.data.transforms.transform_base import FeatureError
from twinrank.learning.models.ensemble import Net, build_net, resolve_architecture
from twinrank.learning.models.net_model import SCORED_TOGETHER, NetModel, path_of
from twinrank.learning.models.scorer import checked_categories, score_all
from twinrank.learning.training.learner import Task
from twinrank.learning.training.settings import OTHER_NET, as_plain, seed_of
from twinrank.support.errors import Argument, InputError, TwinRankError, check_number
from twinrank.support.notation import parse, summands

OPTIMISERS = ("adam", "adamw", "sgd")
PRECISIONS = ("full", "mixed")
SCHEDULES = ("constant", "halve", "cosine")


@dataclass(frozen=True, kw_only=True)
class NetSettings:
    """Batches and the optimiser."""

    batch_documents: int = 12_000
    shuffle: bool = True
    learning_rate: float = 1e-3
    optimiser: str = "adam"
    weight_decay: float = 0.0
    """An L2 penalty for adam and sgd, decoupled for adamw."""
    schedule: str = "constant"
    halve_every: int = 20
    clip: float | None = None
    """The largest norm of the gradient."""
    feature_noise: float = 0.0
    """The deviation of the Gaussian noise on transformed features, in training only."""
    precision: str = "full"
    """ "mixed": the net computes in bfloat16 where that is safe; losses and measures never do."""
    pretrain_epochs: int = 20
    """Epochs of contrastive pre-training, if there are unlabelled lists."""
    pretrain_corruption: float = 0.3
    """The share of a document's features that a view replaces."""
    teacher_weight: float = 0.5
    """The share of the distance to a teacher's scores in the loss, if there is a teacher."""

    def __post_init__(self) -> None:
        check_number("batch_documents", self.batch_documents, whole=True)
        check_number("halve_every", self.halve_every, whole=True)
        check_number("learning_rate", self.learning_rate)
        check_number("weight_decay", self.weight_decay, least=0)
        check_number("feature_noise", self.feature_noise, least=0)
        if self.clip is not None:
            check_number("clip", self.clip)
        check_number("pretrain_epochs", self.pretrain_epochs, whole=True)
        for name in ("pretrain_corruption", "teacher_weight"):
            check_number(name, value := getattr(self, name))
            if value > 1:
                raise InputError(f"{name} must be at most 1, not {value!r}.")
        if not isinstance(self.shuffle, bool):
            raise InputError(f"shuffle must be true or false, not {self.shuffle!r}.")
        for name, choices in (
            ("optimiser", OPTIMISERS),
            ("schedule", SCHEDULES),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in choices:
                raise InputError(argument=name, value=getattr(self, name), choices=choices)

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> "NetSettings":
        """The settings in an estimator's parameters."""
        settings = cls(**{f.name: as_plain(parameters[f.name]) for f in fields(cls)})
        if settings.precision == "mixed" and device_of(parameters["device"]) == "cpu":
            raise InputError(
                Argument("precision", "mixed"),
                " needs a GPU, and the device is the CPU; use ",
                Argument("precision", "full"),
                ".",
            )
        return settings

    def learning_rate_of(self, epoch: int, epochs: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if self.schedule == "halve":
            return self.learning_rate * 0.5 ** (epoch // self.halve_every)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
        return self.learning_rate


def loss_of(parameters: Mapping[str, Any]) -> Any:
    """The objective as a loss: measures, losses by name, their sum, or the user's own callable."""
    objective = parameters["objective"]
    options = {n: parameters[n] for n in ("strategy", "alpha", "perturbation", "samples")}
    if callable(objective) and not isinstance(objective, Measure):
        return objective() if isinstance(objective, type) else objective
    objective = starting(objective)
    if isinstance(objective, str):
        terms = [part for _, part in summands(objective)]
        if len(terms) == 1 and is_loss(objective):
            return loss_by_name(objective, parameters["mode"])
        for term in terms:
            if not is_loss(term) and (name := parse(term).name) not in names():
                choices = [*names(), *loss_names()]
                raise InputError(argument="objective", value=name, choices=choices)
        if len(terms) > 1 and any(map(is_loss, terms)):
            return LossSum(objective, **options, mode=parameters["mode"])
    return DirectLoss(objective, **options)


def device_of(name: str) -> str:
    """A device by name; "auto" is a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.device(name)
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        others = ", cpu or cuda" if torch.cuda.is_available() else " or cpu"
        raise InputError(f"There is no device {name!r} here; use auto{others}.") from None
    return name


def check_takes_weights(loss: Any, differ: bool = False) -> None:
    """Refuse weights that the loss cannot take; they may `differ` within a query."""
    if differ and not isinstance(loss, RankingLoss):
        raise InputError(
            "The weights of rows differ within a query, but your own loss takes one weight per "
            "query. Use a measure or a built-in loss, or give all rows of a query the same weight."
        )
    if differ:
        loss.check_document_weights()
    function = loss.forward if isinstance(loss, torch.nn.Module) else loss
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some callables have no signature
        return
    if "weights" in names or any(p.kind is p.VAR_KEYWORD for p in names.values()):
        return
    name = getattr(function, "__name__", type(loss).__name__)
    raise InputError(
        f"sample_weight needs an objective that takes weights, but {name}({', '.join(names)}) does "
        f"not. Write (scores, labels, lists, weights=None), with one weight per list."
    )


def seed_step(device: torch.device, seed: int, epoch: int, step: int, rank: int = 0) -> None:
    """Seed torch for one step: dropout, ties and noise depend on nothing else.

    Each of several processes has its own seeds; the first has those of a single process.
    """
    key = [seed, epoch, step, rank] if rank else [seed, epoch, step]
    words = np.random.SeedSequence(key).generate_state(2, np.uint32)
    number = int(words[0]) << 31 | int(words[1]) >> 1
    if device.type == "cpu":
        # torch.manual_seed would also seed GPUs, which formats a traceback for later use.
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)


def initial_net(parameters: Mapping[str, Any], task: Task) -> tuple[Net, Transform, str | None]:
    """The net, its fitted transform, and the path of a user's own class."""
    chosen = resolve_architecture(parameters["architecture"], parameters["mode"])
    if task.previous is not None:
        return _continued_net(parameters, chosen, task)
    return *_fresh_net(parameters, chosen, task), path_of(chosen)


def ensemble_size_of(parameters: Mapping[str, Any]) -> int:
    """The number of nets, checked."""
    size = parameters["ensemble_size"]
    check_number("ensemble_size", size, whole=True, least=1)
    return int(size)


def _fresh_net(parameters: Mapping[str, Any], chosen: Any, task: Task) -> tuple[Net, Transform]:
    data = task.train.data
    generator = torch.Generator().manual_seed(seed_of(parameters["random_state"]))
    size = ensemble_size_of(parameters)
    categories = checked_categories(task.categories, data.features)
    try:
        fitted = except_columns(transform(parameters["transforms"]), categories)
        fitted = fitted.fit(data.X, data.lists)
    except FeatureError as error:
        raise error.named(data.query_ids, data.feature_names) from None
    fitted.check_features(data.features)
    net = build_net(fitted.outputs(data.features), chosen, size, categories, generator)
    for module in net.modules():
        if isinstance(module, torch.nn.Embedding):
            torch.nn.init.zeros_(module.weight[-3:])  # unknown and missing: neutral until seen
    if net.architecture is None:
        _try_net(net, data, fitted)
    return net, fitted


def _try_net(net: Net, data: Dataset, fitted: Transform) -> None:
    """Score one query with a user's own net, so that its errors appear before training."""
    query = data.select([0])
    try:
        score_all(net, query, fitted, SCORED_TOGETHER)
    except RuntimeError as error:
        if isinstance(error, TwinRankError):
            raise
        raise InputError(
            f"Your net cannot score X of shape {(query.documents, net.features)} ({error}). Build "
            f"it for {net.features} features."
        ) from error


def _continued_net(
    parameters: Mapping[str, Any], chosen: Any, task: Task
) -> tuple[Net, Transform, str | None]:
    """A copy of the previous net, so that a failure leaves the fitted model as it is."""
    previous = task.previous
    assert isinstance(previous, NetModel)
    if previous.features != task.train.data.features:
        raise InputError(
            f"X has {task.train.data.features} features, but the model has {previous.features}."
        )
    own = previous.net.architecture
    if path_of(chosen) != previous.custom if own is None else chosen != own:
        raise InputError(OTHER_NET)
    if ensemble_size_of(parameters) != previous.ensemble_size:
        raise InputError(
            "A training that continues cannot change ensemble_size of a net; call fit without "
            "init_model."
        )
    return deepcopy(previous.net), previous.transform, previous.custom
