"""Nets as a learner: ragged batches, any loss, any torch module, one or several processes."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.losses import probability_term
from twinrank.core.losses.direct import DirectLoss
from twinrank.core.losses.loss_sum import LossSum
from twinrank.core.losses.ranking_loss import RankingLoss
from twinrank.core.measures import Measure
from twinrank.core.measures.constraints import starting
from twinrank.data.batches import Batch, Batches, rows_of
from twinrank.data.label_columns import training_labels
from twinrank.data.transforms import Transform, transform
from twinrank.learning.models.architecture import is_custom
from twinrank.learning.models.devices import DeviceBatches, batches_on, on_device, threads_for
from twinrank.learning.models.encoding import check_columns
from twinrank.learning.models.ensemble import Net, models_of, resolve_architecture
from twinrank.learning.models.gradients import sampled_importances
from twinrank.learning.models.net_model import SCORED_TOGETHER, NetModel
from twinrank.learning.models.score_map import SigmoidMap
from twinrank.learning.models.scorer import score_all
from twinrank.learning.training.distillation import Teacher
from twinrank.learning.training.learner import Learner, Scores, Task, TrainingError
from twinrank.learning.training.net_settings import (
    NetSettings,
    check_takes_weights,
    device_of,
    ensemble_size_of,
    initial_net,
    loss_of,
    seed_step,
)
from twinrank.learning.training.pretraining import pretrain
from twinrank.learning.training.process_group import explaining_lost_processes
from twinrank.learning.training.settings import is_auto
from twinrank.support.errors import InputError

Loss = Callable[..., Tensor]
_KEEP_BYTES = 1024**3  # transformed features that are kept from one epoch to the next


class NetLearner(Learner):
    """Trains a net on any loss.

    `loss` is any callable (scores, labels, lists), called with `weights=` if queries or
    documents are weighted.
    """

    kind: ClassVar[str] = "net"
    iteration_name: ClassVar[str] = "epoch"
    iterations_parameter: ClassVar[str] = "epochs"
    distributed: ClassVar[bool] = True

    def __init__(
        self,
        net: Net,
        loss: Loss,
        transform: Transform,
        task: Task,
        settings: NetSettings,
        device: str = "cpu",
        ahead: int = 2,
        custom: str | None = None,
    ) -> None:
        self.net, self.loss, self.transform, self.custom = net, loss, transform, custom
        self.task, self.group, self.plan, self.device = (
            task,
            task.group,
            task.plan,
            torch.device(device),
        )
        self._settings, self.selected_models = settings, len(models_of(net))
        net.to(self.device)
        self._weights = list(net.parameters())
        self._precision = self._weights[0].dtype
        self._query_weights = _tensor(task.train.weights)
        self._teacher: Teacher | None = None
        if task.train.teacher is not None:
            self._teacher = Teacher(
                task.train.teacher, task.train.data.lists, settings.teacher_weight
            )
        data, direct = task.train.data, isinstance(loss, DirectLoss)
        measure, labels = training_labels(getattr(loss, "measure", None), data, direct)
        self._goals = None if labels is data.y else labels
        self._row_weights = None if direct else data.row_weights
        if isinstance(loss, DirectLoss | LossSum) and measure is not None:
            self.loss = loss.on_measure(measure)
        if self._row_weights is not None:  # the labels of a DirectLoss have them
            labels = labels * (self._row_weights > 0).reshape(-1, *[1] * (labels.ndim - 1))
        self._shares, self._counted = _shares_of(
            self.loss, labels, task.train.data.lists, task.train.weights
        )
        self.optimiser = _optimiser(net, settings, self.device)
        self._wrapped = self.group.wrap(net)
        self._host_batches = task.train.data.batches(
            settings.batch_documents,
            random_state=task.plan.seed if settings.shuffle else None,
            transform=transform,
            ahead=ahead,
            keep=_KEEP_BYTES,
        )
        self._batches = batches_on(self.device, self._host_batches, task.train.data, transform)
        self._evaluated: dict[str, Batches | DeviceBatches] = {}
        self._deferred = self.device.type != "cpu" and self.group.size == 1
        self._checks = True
        self._loss_sum, self._queries = 0.0, 0  # of the current epoch
        self._best: dict[str, Tensor] = {}

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], documents: int) -> dict[str, Any]:
        """Replace "auto"; only the default architecture is an ensemble by default.

        A user's own net may have been built for the number of features, which z-scores keep.
        """
        own = dict(parameters)
        if not is_auto(own["architecture"]) and is_auto(own["ensemble_size"]):
            own["ensemble_size"] = 1
        if is_custom(own["architecture"]):
            usual = {"transforms": "QueryZScore", "feature_noise": 0.0}
            own |= {name: value for name, value in usual.items() if is_auto(own[name])}
        return super().resolve(own, documents)

    @classmethod
    def check(cls, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for parameters that cannot be used."""
        device_of(parameters["device"])
        NetSettings.of(parameters)
        transform(parameters["transforms"])
        check_columns(parameters["categorical_features"])
        ensemble_size_of(parameters)
        resolve_architecture(parameters["architecture"], parameters["mode"])
        loss_of(parameters)

    @classmethod
    def needs_relevant(cls, parameters: Mapping[str, Any]) -> bool:
        """Probabilities are also learned from queries without a relevant document."""
        return probability_term(starting(parameters["objective"])) is None

    @classmethod
    def depends_on_threads(cls, parameters: Mapping[str, Any]) -> bool:  # noqa: ARG003
        """Sums of matrix products depend on the number of threads."""
        return True

    @classmethod
    def packages(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG003
        """Results depend on torch."""
        return ("torch",)

    @classmethod
    def prepare(cls, parameters: Mapping[str, Any], task: Task) -> Self:
        """Build the net, fit the transform and choose the loss."""
        net, fitted, custom = initial_net(parameters, task)
        loss = loss_of(parameters)
        if task.train.weights is not None:
            check_takes_weights(loss, task.train.data.row_weights is not None)
        settings, device = NetSettings.of(parameters), device_of(parameters["device"])
        if task.train.unlabelled is not None:
            pretrain(
                net, task.train.unlabelled, fitted, settings, task.plan.seed, device, task.report
            )
        return cls(net, loss, fitted, task, settings, device, custom=custom)

    def settings(self) -> dict[str, Any]:
        """The batches and the optimiser."""
        return asdict(self._settings)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Leave the caller's random generator as it is."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            yield

    def count_steps(self, iteration: int) -> int:
        """The number of batches of an epoch."""
        return len(self._batches.plan(iteration))

    def steps(self, iteration: int, first: int) -> Iterator[int]:
        """Learn from the batches of an epoch."""
        rate = self._settings.learning_rate_of(iteration, self.plan.iterations)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.net.train()
        self._checks = not self._deferred or iteration == 0  # a GPU would wait in every step
        if self._deferred and isinstance(self.loss, RankingLoss):
            self.loss.validate = self._checks
        batches = self._batches.plan(iteration)[first:]
        sizes = self.task.train.data.lists.sizes
        shares = [self.group.share(queries, sizes[queries]) for queries in batches]
        made = closing(self._batches.made([queries for queries, _ in shares]))
        with self._threads(), made as own_batches:
            whole = zip(own_batches, batches, shares, strict=True)
            for step, (batch, queries, (_, counts)) in enumerate(whole, first):
                seed_step(self.device, self.plan.seed, iteration, step, self.group.rank)
                self._step(batch, queries, counts, f"in epoch {iteration + 1}, step {step + 1}")
                yield int(sizes[queries].sum())

    def record(self) -> dict[str, float]:
        """The mean loss and the learning rate of the epoch."""
        loss = self._loss_sum / max(self._queries, 1)
        self._loss_sum, self._queries = 0.0, 0
        return {"loss": loss, "learning_rate": self.optimiser.param_groups[0]["lr"]}

    def optimise(self, measure: Measure) -> None:
        """Take the next steps on this measure."""
        assert isinstance(self.loss, DirectLoss)
        own, labels = training_labels(measure, self.task.train.data)
        self.loss = self.loss.on_measure(own)
        self._goals = None if labels is self.task.train.data.y else labels

    def scores(self, name: str) -> Scores:
        """The scores of each net on an evaluation set."""
        documents = max(self._settings.batch_documents, SCORED_TOGETHER)
        part = (self.group.rank, self.group.size)
        data = self.task.evaluation[name]
        if name not in self._evaluated:
            keep = _KEEP_BYTES // len(self.task.evaluation) if self.device.type == "cpu" else 0
            batches = data.batches(documents, transform=self.transform, keep=keep)
            self._evaluated[name] = batches_on(self.device, batches, data, self.transform)
        return self.group.all_reduce_array(
            score_all(self.net, data, self.transform, documents, part, self._evaluated[name])
        )

    def snapshot(self, models: list[int]) -> None:
        """Copy the weights of these nets."""
        for name, weight in self.net.state_dict().items():
            if len(models) == self.selected_models or int(name.split(".")[1]) in models:
                self._best[name] = weight.detach().clone()

    def state(self) -> dict[str, bytes]:
        """The weights, the kept weights, the optimiser and the loss of the current epoch."""
        optimiser = {
            f"{i}.{key}": torch.as_tensor(value)
            for i, values in self.optimiser.state_dict()["state"].items()
            for key, value in values.items()
            if value is not None
        }
        sums = torch.tensor([self._loss_sum, self._queries], dtype=torch.float64)
        return {
            "net": _to_bytes(self.net.state_dict()),
            "best": _to_bytes(self._best),
            "optimiser": _to_bytes(optimiser),
            "epoch": _to_bytes({"loss": sums}),
        }

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Continue from `state`."""
        self.net.load_state_dict(load(state["net"]))
        self._best = {k: v.to(self.device) for k, v in load(state["best"]).items()}
        optimiser: dict[int, dict[str, Tensor]] = {}
        for name, tensor in load(state["optimiser"]).items():
            i, _, key = name.partition(".")
            optimiser.setdefault(int(i), {})[key] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": optimiser, "param_groups": groups})
        loss, queries = load(state["epoch"])["loss"].tolist()
        self._loss_sum, self._queries = loss, int(queries)

    def finish(self) -> NetModel:
        """The model with the kept weights, on the CPU."""
        if self._best:
            self.net.load_state_dict(self._best)
        net = self.net.cpu().eval()
        term = probability_term(self.loss)
        model = NetModel(
            features=self.task.train.data.features,
            feature_names=self.task.train.data.feature_names,
            transform=self.transform,
            ensemble_size=net.ensemble_size,
            net=net,
            custom=self.custom,
            calibration={"probability": SigmoidMap.of(term.relevant, term.scale)} if term else {},
        )
        return replace(model, importances=sampled_importances(model, self.task.train.data))

    def _threads(self) -> AbstractContextManager[None]:
        """One thread for small steps, unless batches are prepared beside them."""
        data = self.task.train.data
        kept = data.documents * self.net.features * 4 <= _KEEP_BYTES
        documents = max(self._settings.batch_documents, data.documents // max(data.queries, 1))
        return threads_for(self.net, documents) if kept else nullcontext()

    def _step(self, batch: Batch, whole: npt.NDArray[np.int64], counts: bool, where: str) -> None:
        """Learn from this process's share of a batch."""
        loss, problem = self._loss_of(batch)
        counted = int(self._counted[whole].sum())
        # The share of this process's mean in the mean over the whole batch. With weights, a heavy
        # batch also counts more than a light one.
        share = float(self._shares[batch.queries].sum()) / max(counted, 1) if counts else 0.0
        value = 0.0
        if self._checks:
            problems, value = self.group.all_reduce(
                [bool(problem), 0.0 if problem else share * float(loss.detach())]
            )
            if problems:
                raise self._error(problem, where, batch)
        self.optimiser.zero_grad()
        with explaining_lost_processes():
            # Processes average their gradients, so a share is multiplied by their number. The loss
            # is the mean over an ensemble; separate nets learn as if they were alone.
            factor = share * self.group.size * self.selected_models
            (loss * factor).backward()  # type: ignore[no-untyped-call]
        norm = self._clip_gradient()
        if self._deferred:  # the only time that the step waits for the device
            value, norm = torch.stack([loss.detach().float(), norm.float()]).tolist()
            problem, value = problem or _problem(value), share * value
        if problem or not math.isfinite(norm):  # before the weights are spoilt
            raise self._error(problem or "the gradient is not finite", where, batch)
        self.optimiser.step()
        self.group.average_buffers(self.net)
        self._loss_sum += value * counted
        self._queries += counted

    def _clip_gradient(self) -> Any:
        """Clip the gradient if the settings say so; return its norm, a tensor."""
        clip = self._settings.clip
        if clip is not None:  # each net of an ensemble by itself, unless they share weights
            parts = [net.parameters() for net in models_of(self.net)]
            norms = [torch.nn.utils.clip_grad_norm_(part, clip) for part in parts]
            norm = torch.stack(norms).max()
        else:  # one vector: a norm for each of a net's small tensors costs more than copying them
            gradients = [w.grad.reshape(-1) for w in self._weights if w.grad is not None]
            norm = torch.linalg.vector_norm(torch.cat(gradients or [torch.zeros(0)]))
        return norm

    def _loss_of(self, batch: Batch) -> tuple[Tensor, str]:
        """The mean loss of a batch's queries, and what is wrong with it, if anything."""
        X = self._noisy(on_device(batch.X, self.device).to(self._precision))
        labels = on_device(batch.y, self.device)
        if self._goals is not None:
            labels = on_device(self._goals[self._rows(batch)], self.device)
        if getattr(self.loss, "takes_any_label", False):
            labels = labels.clamp(min=0)  # unjudged documents
        weighted = {}
        if self._row_weights is not None:
            weighted["weights"] = on_device(self._row_weights[self._rows(batch)], self.device)
        elif self._query_weights is not None:
            weights = self._query_weights[torch.from_numpy(batch.queries)]
            weighted["weights"] = on_device(weights.numpy(), self.device)
        mixed = self._settings.precision == "mixed"
        # With several processes, the forward pass communicates too.
        with (
            explaining_lost_processes(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=mixed),
        ):
            scores = self._wrapped(X, batch.lists).to(self._precision)
        if self._checks and not bool(torch.isfinite(scores).all()):
            return scores, "scores are not finite"
        columns = scores.unbind(1) if scores.ndim == 2 else [scores]
        loss_of_batch = self.loss
        if self._teacher is not None:
            loss_of_batch = self._teacher.loss(self.loss, batch.queries)
        losses = [loss_of_batch(column, labels, batch.lists, **weighted) for column in columns]
        for loss in losses:
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
                raise InputError("A loss must return one number, as a tensor with a gradient.")
        mean = losses[0] if len(losses) == 1 else torch.stack(losses).mean()
        return mean, _problem(float(mean.detach())) if self._checks else ""

    def _rows(self, batch: Batch) -> npt.NDArray[np.int64]:
        """The numbers of a batch's documents in the data."""
        return rows_of(self.task.train.data.lists, batch.queries)

    def _noisy(self, X: Tensor) -> Tensor:
        """Add noise to all columns but categories; the nets of an ensemble see the same noise."""
        if not self._settings.feature_noise:
            return X
        noise = torch.randn_like(X)  # seeded by the step, as dropout is
        noise[:, list(self.net.categories)] = 0
        return X + self._settings.feature_noise * noise

    def _error(self, what: str, where: str, batch: Batch) -> TrainingError:
        (host,) = self._host_batches.made([batch.queries])  # its features may be on a GPU
        infinite = batch.lists.any(~np.isfinite(host.X).all(axis=1))
        queries = batch.queries[infinite] if infinite.any() else batch.queries
        names = ", ".join(map(str, self.task.train.data.query_ids[queries[:5]]))
        more = ", …" if queries.size > 5 else ""
        advice = "Check their features and labels, or lower the learning rate."
        if infinite.any():
            advice = "Their features are not finite: transform them, or remove these queries."
        message = f"{what} {where}, on the queries {names}{more}. {advice}" if what else ""
        message = message[:1].upper() + message[1:]
        first, *others = [text for text in self.group.all_gather(message) if text]
        return TrainingError(first, *(f"\n{text}" for text in others))


def _problem(value: float) -> str:
    """What is wrong with a loss, if anything."""
    return "" if math.isfinite(value) else f"the loss is {value}"


def _tensor(weights: npt.NDArray[np.float64] | None) -> Tensor | None:
    return None if weights is None else torch.as_tensor(weights, dtype=torch.float64)


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    copies = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    return save(copies)


def _shares_of(
    loss: Loss, labels: npt.NDArray[Any], lists: Lists, weights: npt.NDArray[Any] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The share of each query in a mean loss, 1 on average, and which queries count at all."""
    counted = np.ones(len(lists), bool)
    if isinstance(loss, RankingLoss):
        counted = loss.counted(np.maximum(labels, 0), lists)
    shares = counted.astype(np.float64)
    return (shares if weights is None else shares * weights / np.mean(weights)), counted


def _optimiser(net: Net, settings: NetSettings, device: torch.device) -> torch.optim.Optimizer:
    classes: dict[str, Any] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
    }
    optimiser: torch.optim.Optimizer = classes[settings.optimiser](
        net.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )
    return optimiser
