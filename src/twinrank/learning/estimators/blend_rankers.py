"""The rankers of a blend: by name, from every form in which users write them, and trained."""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinrank.data.dataset import Dataset
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.estimators.parameters import loaded_parameters
from twinrank.learning.estimators.saved_ranker import estimator_class
from twinrank.learning.models.saved_model import RUN_MODEL, Model, needs_architecture, read_model
from twinrank.learning.training.callbacks import Callback, TrainingInterrupted
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.run_folder import Run, explaining_resume
from twinrank.support.errors import InputError, unknown

if TYPE_CHECKING:
    from twinrank.learning.training.loop import Trainer


def named_rankers(rankers: Any) -> dict[str, BaseRanker]:
    """The rankers of a blend by name, from any form that `Blend(rankers=…)` takes."""
    if rankers is None:
        rankers = {"trees": {"kind": "trees"}, "net": {"kind": "net"}}
    if isinstance(rankers, Mapping):
        named = {name: as_ranker(name, ranker) for name, ranker in rankers.items()}
    elif isinstance(rankers, list | tuple):
        listed = [as_ranker(str(i), ranker) for i, ranker in enumerate(rankers)]
        kinds = [ranker.kind for ranker in listed]
        named = {}
        for i, ranker in enumerate(listed):
            number = kinds[: i + 1].count(ranker.kind)
            several = kinds.count(ranker.kind) > 1
            named[f"{ranker.kind}_{number}" if several else ranker.kind] = ranker
    else:
        named = {}
    if not named:
        raise InputError(
            f"rankers must be a list of rankers, or a dict of them by name, not {rankers!r}."
        )
    return named


def as_ranker(name: str, value: Any) -> BaseRanker:
    """A ranker, or the ranker that a dict with its kind and parameters describes."""
    if isinstance(value, Mapping):
        own = dict(value)
        if "kind" not in own:
            raise InputError(
                f"Ranker {name!r} of a blend is a dict without its kind: write "
                f"{{'kind': 'net', …}} or {{'kind': 'trees', …}}."
            )
        estimator = estimator_class(str(own.pop("kind")))
        known = estimator._get_param_names()
        for key in own:
            if key not in known:
                raise InputError(unknown(f"parameter of {estimator.__name__}", str(key), known))
        value = estimator(**loaded_parameters({"parameters": own}, estimator))
    if not isinstance(value, BaseRanker) or value.kind == "blend":
        raise InputError(
            f"Ranker {name!r} of a blend must be a Ranker or a BoostedRanker, not {value!r:.80}."
        )
    return value


def check_shared(name: str, ranker: BaseRanker, key: str, value: Any) -> None:
    """Refuse a ranker's own value where the blend has another one."""
    own = getattr(ranker, key)
    usual = inspect.signature(estimator_class(ranker.kind)).parameters[key].default
    if str(own) not in (str(usual), str(value)):
        raise InputError(
            f"Ranker {name!r} has {key}={own!r}, but the blend sets {key}={value!r} for all "
            f"rankers: pass {key} to Blend."
        )


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
    previous: Model | None = None,
) -> None:
    """Train a ranker, in its own run if the blend has one; a finished one is only loaded.

    `previous` is the model to continue from.
    """
    part = None if run is None else run.part(name)
    if part is not None and part.resume and (part.folder / RUN_MODEL).is_dir():
        own = needs_architecture(part.folder)
        ranker._adopt(read_model(part.folder, ranker.architecture if own else None))
        return
    watch = _Interrupted()
    with explaining_resume(run):
        ranker._train(train, sets, [*callbacks, watch], part, previous)
        if watch.interrupted:
            raise TrainingInterrupted(f"Stopped after the ranker {name}.")
