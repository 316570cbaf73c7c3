"""The training loop: ragged batches, exact measures every epoch, and callbacks for all the rest."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twinrank.data.batches import Batch
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform
from twinrank.losses.ranking_loss import RankingLoss
from twinrank.models.ensemble import Net, members_of
from twinrank.models.threads import threads_for
from twinrank.support.errors import InputError, TwinRankError
from twinrank.training.callbacks import Callback
from twinrank.training.plan import Plan
from twinrank.training.processes import Processes, TrainingError, others_alive
from twinrank.training.seeds import seed_step
from twinrank.training.validation import Validation

__all__ = ["Interrupted", "Trainer", "TrainingError"]

Loss = Callable[..., Tensor]
Record = dict[str, Any]
_KEPT = 1024**3  # bytes of transformed features that are kept from one epoch to the next


class Interrupted(TwinRankError):  # noqa: N818 (what happened, not what went wrong)
    """Training was asked to stop, and has saved where it is."""


@dataclass
class Progress:
    """Where training is: all that a checkpoint has to know besides weights."""

    epoch: int = 0  # epochs completed
    step: int = 0  # steps completed in the epoch at hand
    loss: float = 0.0  # summed over the queries of these steps
    queries: int = 0
    seconds: float = 0.0  # spent before this process took over
    history: list[Record] = field(default_factory=list)


class Trainer:
    """Trains a scorer on one dataset, and measures it on others.

    `loss` is any callable (scores, labels, lists), called with `weights=` too where lists are
    weighted. The same plan, data and number of threads give the same weights, bit for bit.
    """

    def __init__(
        self,
        scorer: Net,
        loss: Loss,
        train: Dataset,
        plan: Plan,
        transform: Transform,
        *,
        evaluation: Mapping[str, Dataset] | None = None,
        weights: npt.NDArray[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        device: str = "cpu",
        ahead: int = 2,
        processes: Processes | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.processes = processes or Processes()
        self.scorer, self.loss, self.plan, self.train = scorer.to(self.device), loss, plan, train
        self._parameters = list(self.scorer.parameters())
        self._precision = self._parameters[0].dtype
        self.transform = transform
        self.validation = Validation(self.scorer, evaluation or {}, plan, transform, self.processes)
        self.weights = None if weights is None else torch.as_tensor(weights, dtype=torch.float64)
        self._shares, self._counted = _shares_of(loss, train, weights)
        self.callbacks = list(callbacks)
        self.optimiser = _optimiser(scorer, plan, self.device)
        self._net = self.processes.wrapped(self.scorer)
        self.batches = train.batches(
            plan.batch_documents,
            random_state=plan.seed if plan.shuffle else None,
            transform=transform,
            ahead=ahead,
            keep=_KEPT,
        )
        self.steps = 0  # of the epoch at hand, once it has begun
        self.step_documents = 0  # of the latest step
        self.progress = Progress()
        self.stop_reason = ""
        self.interrupted = False
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long training has taken, over all processes that had a part in it."""
        return self.progress.seconds + time.monotonic() - self.started

    def run(self) -> None:
        """Train to the end, and restore the weights of the best epoch."""
        devices = [self.device] if self.device.type == "cuda" else []
        self.started = time.monotonic()
        with torch.random.fork_rng(devices):  # the caller's generator stays as it is
            try:
                self._tell("on_start")
                while self.progress.epoch < self.plan.epochs and not self.stop_reason:
                    self._run_epoch()
            finally:
                self._tell("on_stop")
        if self.validation.best is not None:
            self.scorer.load_state_dict(self.validation.best.weights)
        self.scorer.eval()
        self._tell("on_end")

    def _run_epoch(self) -> None:
        state, epoch = self.progress, self.progress.epoch
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.plan, epoch)
        self.scorer.train()
        plan = self.batches.plan(epoch)
        self.steps = len(plan)
        sizes = self.train.lists.sizes
        parts = [self.processes.part(whole, sizes[whole]) for whole in plan[state.step :]]
        batches = closing(self.batches.made([queries for queries, _ in parts]))
        with self._threads_for_a_step(), batches as made:
            for batch, whole, (_, counts) in zip(made, plan[state.step :], parts, strict=True):
                seed_step(self.device, self.plan.seed, epoch, state.step, self.processes.rank)
                self._step(batch, whole, counts)
                state.step += 1
                self._tell("on_step")
                if self._asked_to_stop():
                    self._tell("on_interrupt")
                    raise Interrupted(f"Stopped in epoch {epoch + 1}, after step {state.step}")
        record = self._record()
        state.epoch, state.step, state.loss, state.queries = epoch + 1, 0, 0.0, 0
        state.history.append(record)
        self._tell("on_epoch", record)
        going_on = state.epoch < self.plan.epochs and not self.stop_reason
        if going_on and self._asked_to_stop():
            self._tell("on_interrupt")
            raise Interrupted(f"Stopped after epoch {state.epoch}")

    def _threads_for_a_step(self) -> AbstractContextManager[None]:
        """One thread for small steps, unless batches are made beside them."""
        data = self.train
        kept = data.documents * data.features * 4 <= _KEPT
        documents = max(self.plan.batch_documents, data.documents // max(data.queries, 1))
        return threads_for(self.scorer, documents) if kept else nullcontext()

    def _asked_to_stop(self) -> bool:
        """Whether any process was interrupted: then all stop at the same step."""
        return any(self.processes.sums([self.interrupted]))

    def _step(self, batch: Batch, whole: npt.NDArray[np.int64], counts: bool) -> None:
        """Learn from this process's part of a batch."""
        loss, problem = self._loss(batch)
        share = self._share(batch.queries, whole) if counts else 0.0
        problems, value = self.processes.sums(
            [bool(problem), 0.0 if problem else share * float(loss.detach())]
        )
        if problems:
            raise self._trouble(problem, batch)
        self.optimiser.zero_grad()
        with others_alive():
            # Processes average their gradients: times their number, a share is one of the whole.
            # The loss is the mean of members', each of which learns as if it were alone.
            times = share * self.processes.count * self.scorer.architecture.members
            (loss * times).backward()  # type: ignore[no-untyped-call]
        if not self._clipped():  # before the weights are spoilt
            raise self._trouble("the gradient isn't finite", batch)
        self.optimiser.step()
        self.processes.average_buffers(self.scorer)
        counted = int(self._counted[whole].sum())
        self.progress.loss += value * counted
        self.progress.queries += counted
        self.step_documents = int(self.train.lists.sizes[whole].sum())

    def _clipped(self) -> bool:
        """Clip the gradient if the plan says so; whether it is finite."""
        if self.plan.clip is not None:
            parts = [one.parameters() for one in members_of(self.scorer)]  # each as if alone
            norms = [torch.nn.utils.clip_grad_norm_(part, self.plan.clip) for part in parts]
            norm = torch.stack(norms).max()
        else:  # one vector: a norm for each of a net's small tensors costs more than copying them
            found = [p.grad.reshape(-1) for p in self._parameters if p.grad is not None]
            norm = torch.linalg.vector_norm(torch.cat(found or [torch.zeros(0)]))
        return math.isfinite(norm)

    def _loss(self, batch: Batch) -> tuple[Tensor, str]:
        """The mean loss of a batch's queries, and what is wrong with it, if anything is."""
        X = torch.from_numpy(batch.X).to(self.device, self._precision)
        labels = torch.from_numpy(batch.y).to(self.device)
        weighted = {}
        if self.weights is not None:
            weighted["weights"] = self.weights[torch.from_numpy(batch.queries)].to(self.device)
        mixed = self.plan.precision == "mixed"
        # With several processes the net itself speaks to the others, not only its gradients.
        with others_alive(), torch.autocast(self.device.type, torch.bfloat16, enabled=mixed):
            scores = self._net(X, batch.lists).to(self._precision)
        if not bool(torch.isfinite(scores).all()):
            return scores, "scores aren't finite"
        members = scores.unbind(1) if scores.ndim == 2 else [scores]
        found = [self.loss(one, labels, batch.lists, **weighted) for one in members]
        for one in found:
            if not isinstance(one, Tensor) or one.numel() != 1 or not one.requires_grad:
                raise InputError("a loss must give one number, as a tensor that has a gradient")
        loss = found[0] if len(found) == 1 else torch.stack(found).mean()
        value = float(loss.detach())
        return loss, "" if math.isfinite(value) else f"the loss is {value}"

    def _share(self, queries: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> float:
        """What the mean over some queries counts for in the mean over the whole batch.

        Where lists are weighted, a heavy batch counts for more than a light one, too.
        """
        return float(self._shares[queries].sum()) / max(int(self._counted[whole].sum()), 1)

    def _trouble(self, what: str, batch: Batch) -> TrainingError:
        spoilt = batch.lists.any(~np.isfinite(batch.X).all(axis=1))
        queries = batch.queries[spoilt] if spoilt.any() else batch.queries
        names = ", ".join(map(str, self.train.query_ids[queries[:5]]))
        more = ", …" if queries.size > 5 else ""
        advice = "look at their features and labels, or lower the learning rate"
        if spoilt.any():
            advice = "their features aren't finite; transform them, or leave these queries out"
        state = self.progress
        where = f"in epoch {state.epoch + 1}, step {state.step + 1}"
        found = f"{what} {where}, on the queries {names}{more}; {advice}" if what else ""
        return TrainingError("\n".join(word for word in self.processes.told(found) if word))

    def _record(self) -> Record:
        """What is known about the epoch that has just ended."""
        state = self.progress
        record: Record = {
            "epoch": state.epoch + 1,
            "loss": state.loss / max(state.queries, 1),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
        }
        last = state.epoch + 1 == self.plan.epochs
        if last or (state.epoch + 1) % self.plan.validate_every == 0:
            record |= self.validation.measured(state.epoch + 1)
        record["seconds"] = round(self.seconds, 3)
        return record

    def _tell(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *arguments)


def _shares_of(
    loss: Loss, data: Dataset, weights: npt.NDArray[Any] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """What each query counts for in a mean loss, 1 on average, and which queries count at all."""
    counted = np.ones(data.queries, bool)
    if isinstance(loss, RankingLoss):
        counted = loss.counted(np.maximum(data.y, 0), data.lists)
    shares = counted.astype(np.float64)
    return (shares if weights is None else shares * weights / np.mean(weights)), counted


def learning_rate(plan: Plan, epoch: int) -> float:
    """The learning rate of an epoch, counted from 0."""
    if plan.schedule == "halve":
        return plan.learning_rate * 0.5 ** (epoch // plan.halve_every)
    if plan.schedule == "cosine":
        return plan.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / plan.epochs))
    return plan.learning_rate


def _optimiser(scorer: Net, plan: Plan, device: torch.device) -> torch.optim.Optimizer:
    kinds: dict[str, Any] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
    }
    kind = kinds[plan.optimiser]
    found: torch.optim.Optimizer = kind(
        scorer.parameters(),
        lr=plan.learning_rate,
        weight_decay=plan.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )
    return found
