"""A training as a folder: `run.json`, `history.jsonl`, a checkpoint, the model and its curves."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinrank.learning.models.kinds import KINDS
from twinrank.learning.models.saved_model import (
    HISTORY,
    RUN,
    RUN_MODEL,
    RUN_VERSION,
    Model,
    is_count,
    save_model,
)
from twinrank.learning.training.callbacks import (
    Callback,
    HistoryFile,
    StopOnInterrupt,
    TrainingInterrupted,
)
from twinrank.learning.training.checkpoints import Checkpoints
from twinrank.learning.training.learner import learner_class
from twinrank.learning.training.process_group import ProcessGroup, current_group
from twinrank.learning.training.settings import RESERVED
from twinrank.support.checksums import check_seal, sealed
from twinrank.support.errors import InputError, TwinRankError, explained
from twinrank.support.files import check_format, read_json, replacing, sweep
from twinrank.support.locks import is_empty, locked
from twinrank.support.plots import COLOURS, drawing, use_whole_numbers

FORMAT, VERSION = "twinrank-run", RUN_VERSION
CHECKPOINT = "checkpoint.safetensors"
_NOT_DATA = ("objective", "architecture", "teacher", "init_model", "current")
PARTS = "rankers"
"""The folder with the runs of the rankers of a blend."""


@dataclass(frozen=True, eq=False)
class Run:
    """The folder of one training. Of several processes, the main one writes."""

    folder: Path
    resume: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)
    """How `twinrank train --resume` finds the data again."""
    save_every: float = 300.0
    """Seconds between checkpoints within an iteration."""
    group: ProcessGroup = field(default_factory=current_group)
    calibrated: str = ""
    """The output that is calibrated after the training."""

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's file."""
        return self.folder / CHECKPOINT

    @property
    def has_checkpoint(self) -> bool:
        """True if the training, or that of a ranker in a blend, has saved a checkpoint."""
        return self.checkpoint.exists() or any(self.folder.glob(f"{PARTS}/*/{CHECKPOINT}"))

    def part(self, name: str) -> "Run":
        """The run of one ranker of a blend, resumed if it has begun."""
        folder = self.folder / PARTS / name
        begun = self.resume and (folder / RUN).is_file()
        return Run(folder, begun, {"blend": str(self.folder)}, self.save_every, self.group)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the folder, so that no other training writes to it."""
        with ExitStack() as held:
            self._on_main(lambda: held.enter_context(locked(self.folder, "training")))
            yield

    def check(self, kind: str, about: Mapping[str, Any], data: Mapping[str, str]) -> None:
        """Check that the folder is free, or that it holds this very training."""
        if self.resume:
            self._check_same(kind, about["parameters"], data)
        else:
            self._on_main(lambda: check_free(self.folder))

    def begin(self, kind: str, about: Mapping[str, Any], data: Mapping[str, str]) -> None:
        """Make the folder and describe the training in it; a resumed one may be longer."""
        described = {"kind": kind, **about, "data": dict(data)}
        if not self.resume:
            described |= {"source": dict(self.source), "processes": self.group.size}
        else:
            before = read_run(self.folder)
            if before.get("plan") == described["plan"]:
                return
            changed = {name: described[name] for name in ("parameters", "resolved", "plan")}
            described = {**before, **changed}
        self._on_main(lambda: self._write(described))

    def _on_main(self, action: Callable[[], None]) -> None:
        """Call a function in the main process; if it fails, all processes raise."""
        problem: TwinRankError | None = None
        if self.group.is_main:
            try:
                action()
            except TwinRankError as error:
                problem = error
        messages = [m for m in self.group.all_gather("" if problem is None else str(problem)) if m]
        if messages:
            raise problem or InputError(*messages[:1])

    def callbacks(self, own: Sequence[Callback]) -> list[Callback]:
        """The callbacks of a training in this folder."""
        if not self.group.is_main:
            return [StopOnInterrupt()]
        history = HistoryFile(self.folder / HISTORY)
        # The checkpoint comes last, so that it knows what other callbacks have decided.
        return [StopOnInterrupt(), history, *own, Checkpoints(self.checkpoint, self.save_every)]

    def complete(self, model: Model, iteration_name: str, measure: str) -> None:
        """Write the model and the curves."""
        save_model(model, self.folder / RUN_MODEL)
        for suffix in (".svg", ".png"):
            draw_history(model.history, iteration_name, measure, self.folder / f"curves{suffix}")

    def _write(self, about: Mapping[str, Any]) -> None:
        content = sealed({"format": FORMAT, "version": VERSION, **about})
        with explained("write", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / RUN) as partial:
            text = json.dumps(content, indent=1, ensure_ascii=False, default=str)
            partial.write_text(text + "\n", "utf-8")

    def _check_same(
        self, kind: str, parameters: Mapping[str, Any], data: Mapping[str, str]
    ) -> None:
        before = read_run(self.folder)
        if before["kind"] != kind:
            raise InputError(f"The run in {self.folder} trains {before['kind']}, not {kind}.")
        current = _flat(json.loads(json.dumps(dict(parameters), default=str)))
        earlier = _flat(before["parameters"])
        learns = KINDS[kind].learner is not None
        iterations = learner_class(kind).iterations_parameter if learns else None
        for name in sorted(current.keys() | earlier.keys()):
            ours, theirs = current.get(name), earlier.get(name)
            longer = name == iterations and is_count(theirs) and is_count(ours, least=theirs or 0)
            free = name.rpartition("__")[2] in ("verbose", "n_jobs", "device")
            if ours != theirs and not longer and not free:
                raise InputError(
                    f"The run in {self.folder} was started with {name}={theirs!r}, not {ours!r}."
                )
        for name in data.keys() | before["data"].keys():
            if data.get(name) != before["data"].get(name):
                own = name.endswith(_NOT_DATA)
                what = name if own else f"{name} data"
                raise InputError(
                    f"The {what} has changed since the run in {self.folder} started. Pass the "
                    f"original one, or start a new run."
                )


@contextmanager
def explaining_resume(run: Run | None) -> Iterator[None]:
    """Say how an interrupted training continues, unless the caller of a run with a source does."""
    try:
        yield
    except TrainingInterrupted as stop:
        if run is None or run.source:
            raise
        how = f"fit(…, run={str(run.folder)!r}, resume=True)"
        raise TrainingInterrupted(f"{stop} Continue with {how}.") from None


def _flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with those of the rankers of a blend, such as `net__epochs`."""
    flat = dict(parameters)
    rankers = flat.get("rankers")
    if isinstance(rankers, dict) and all(isinstance(own, dict) for own in rankers.values()):
        del flat["rankers"]
        for ranker, own in rankers.items():
            flat |= {f"{ranker}__{name}": value for name, value in own.items()}
    return flat


def has_begun(folder: Path) -> bool:
    """False for a folder in which a run was stopped before it could be described.

    A folder that does not exist counts as begun: `read_run` then names the mistake.
    """
    with explained("read", folder):
        sweep(folder)
        return not (folder.is_dir() and is_empty(folder))


def check_free(folder: Path) -> None:
    """Refuse a folder that is not new or empty."""
    with explained("write", folder):
        sweep(folder)  # files of a run that was killed before it started
        if folder.exists() and not is_empty(folder):
            raise InputError(
                f"{folder} exists and is not an empty folder. Choose another folder, or resume the "
                f"run in it."
            )


def read_run(folder: Path) -> dict[str, Any]:
    """The content of `run.json`, checked."""
    path = folder / RUN
    with explained("read", path):
        if not path.is_file():
            raise InputError(
                f"{folder} is not the folder of a run: it has no {RUN}. If the run was stopped "
                f"before it began, start it again with its data and parameters."
            )
    hint = ["Train again in a new folder."]
    about = check_format(read_json(path), path, FORMAT, VERSION, "the description of a run", hint)
    kinds = {"kind": str, "parameters": dict, "source": dict, "data": dict, "threads": int}
    for key, kind in {**kinds, "processes": int}.items():
        if not isinstance(about.get(key), kind):
            raise InputError(f"{path} is damaged: {key} is missing or has the wrong type.")
    if about["kind"] not in KINDS:
        raise InputError(f"{path} is damaged: there is no learner {about['kind']!r}.")
    check_seal(about, path)
    return about


def draw_history(
    history: list[dict[str, Any]], iteration_name: str, measure: str, path: Path
) -> None:
    """Plot the loss, if there is one, and the measure on every evaluation set."""
    sets = [name for name in history[-1] if name not in RESERVED]
    panels = [*(["loss"] if "loss" in history[-1] else []), *(["sets"] if sets else [])]
    if not panels:
        return
    with drawing(path, 1, len(panels), (4.5 * len(panels), 3.2)) as axes:
        for axis, panel in zip(axes[0], panels, strict=True):
            use_whole_numbers(axis.xaxis)
            if panel == "loss":
                _plot(axis, history, "loss", color=COLOURS[0])
                axis.set(title="Training objective", xlabel=iteration_name, ylabel="loss")
                continue
            for i, name in enumerate(sets):
                _plot(axis, history, name, color=COLOURS[i % len(COLOURS)], label=name)
            axis.set(title=measure, xlabel=iteration_name, ylabel=f"mean {measure}")
            axis.legend()


def _plot(axis: Any, history: list[dict[str, Any]], name: str, **style: Any) -> None:
    records = [record for record in history if record.get(name) is not None]
    marker = "o" if len(records) < 30 and name != "loss" else None
    iterations = [record["iteration"] for record in records]
    axis.plot(
        iterations, [record[name] for record in records], marker=marker, markersize=3, **style
    )
