"""The training of one ranker of a blend, in its own part of the run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinrank.data.dataset import Dataset
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.models.saved_model import RUN_MODEL, needs_architecture, read_model
from twinrank.learning.training.callbacks import Callback, TrainingInterrupted
from twinrank.learning.training.run_folder import Run
from twinrank.learning.training.training_set import TrainingSet

if TYPE_CHECKING:
    from twinrank.learning.training.loop import Trainer


class _Interrupted(Callback):
    """Remembers an interrupt in the last iteration of a ranker, which completes its training."""

    interrupted = False

    def on_train_end(self, trainer: "Trainer") -> None:
        """Keep the flag."""
        self.interrupted = trainer.interrupted


def train_ranker(
    ranker: BaseRanker,
    name: str,
    train: TrainingSet,
    sets: dict[str, Dataset],
    callbacks: Sequence[Callback],
    run: Run | None,
) -> None:
    """Train a ranker, in its own run if the blend has one; a finished one is only loaded."""
    part = None if run is None else run.part(name)
    if part is not None and part.resume and (part.folder / RUN_MODEL).is_dir():
        own = needs_architecture(part.folder)
        ranker._adopt(read_model(part.folder, ranker.architecture if own else None))
        return
    watch = _Interrupted()
    try:
        ranker._train(train, sets, [*callbacks, watch], part)
        if watch.interrupted:
            raise TrainingInterrupted(f"Stopped after the ranker {name}.")
    except TrainingInterrupted as stop:
        if run is None or run.source:
            raise
        how = f"fit(…, run={str(run.folder)!r}, resume=True)"
        raise TrainingInterrupted(f"{stop} Continue with {how}.") from None
