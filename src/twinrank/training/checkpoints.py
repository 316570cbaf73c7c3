"""Checkpoints: one file that holds all a run needs to go on, written whole or not at all."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, replacing
from twinrank.training.callbacks import Callback
from twinrank.training.loop import Progress
from twinrank.training.validation import Best

if TYPE_CHECKING:
    from twinrank.training.loop import Trainer

FORMAT, VERSION = "twinrank-checkpoint", 1


class Checkpoints(Callback):
    """Saves after every epoch, every few minutes within one, and when interrupted."""

    def __init__(self, path: Path, every_seconds: float = 300.0) -> None:
        self.path, self.every_seconds = path, every_seconds
        self._last = time.monotonic()

    def on_step(self, trainer: "Trainer") -> None:
        """Save if it has been a while."""
        if time.monotonic() - self._last >= self.every_seconds:
            self._save(trainer)

    def on_epoch(self, trainer: "Trainer", _: dict[str, Any]) -> None:
        """Save."""
        self._save(trainer)

    def on_interrupt(self, trainer: "Trainer") -> None:
        """Save."""
        self._save(trainer)

    def _save(self, trainer: "Trainer") -> None:
        save_checkpoint(trainer, self.path)
        self._last = time.monotonic()


def save_checkpoint(trainer: "Trainer", path: Path) -> None:
    """Write weights, the best weights, the optimiser's state and the progress."""
    tensors = {f"scorer.{k}": v for k, v in trainer.scorer.state_dict().items()}
    if trainer.validation.best is not None:
        tensors |= {f"best.{k}": v for k, v in trainer.validation.best.weights.items()}
    for i, state in trainer.optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{i}.{k}": torch.as_tensor(v) for k, v in state.items() if v is not None
        }
    best = trainer.validation.best
    progress = asdict(trainer.progress) | {"seconds": trainer.seconds}
    about = {
        "format": FORMAT,
        "version": VERSION,
        "plan": trainer.plan.to_json(),
        "threads": torch.get_num_threads(),
        "progress": progress,
        "stop_reason": trainer.stop_reason,
        "best": None
        if best is None
        else {"value": best.value, "epoch": best.epoch, "members": best.members},
    }
    copies = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    with replacing(path) as partial:
        partial.write_bytes(save(copies, metadata={"twinrank": json.dumps(about)}))


def load_checkpoint(trainer: "Trainer", path: Path) -> dict[str, Any]:
    """Bring a trainer to where a checkpoint was; what the checkpoint says about itself."""
    with explained("read", path):
        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads((file.metadata() or {}).get("twinrank", "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise InputError(f"{path} is damaged: {error}") from error
    about = check_format(about, path, FORMAT, VERSION, "a checkpoint of TwinRank")
    _check_plan(trainer.plan.to_json(), about.get("plan"), path)
    try:
        _restore(trainer, about, tensors)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise InputError(f"{path} doesn't fit this model and plan: {error}") from error
    return about


def _check_plan(plan: dict[str, Any], before: Any, path: Path) -> None:
    """Refuse to go on with another plan; more epochs are welcome."""
    if not isinstance(before, dict):
        raise InputError(f"{path} is damaged: it has no plan")
    for name in plan.keys() - {"epochs"}:
        if plan[name] != before.get(name):
            raise InputError(
                f"{path} was trained with {name}={before.get(name)!r}, not {plan[name]!r}"
            )


def _restore(trainer: "Trainer", about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    trainer.scorer.load_state_dict(_part(tensors, "scorer."))
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _part(tensors, "optimiser.").items():
        i, _, key = name.partition(".")
        state.setdefault(int(i), {})[key] = tensor
    trainer.optimiser.load_state_dict(
        {"state": state, "param_groups": trainer.optimiser.state_dict()["param_groups"]}
    )
    trainer.stop_reason = str(about["stop_reason"])
    trainer.progress = Progress(**about["progress"])
    if about["best"] is not None:
        trainer.validation.best = Best(**about["best"], weights=_part(tensors, "best."))


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Copies: those of the file would keep it on the disk when another has taken its place."""
    found = ((k.removeprefix(prefix), v) for k, v in tensors.items() if k.startswith(prefix))
    return {k: v.clone() for k, v in found}
