"""Trained models and their folders: `config.json`, the weights or trees, and the history.

Loading executes no code from the folder.
"""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose, Transform
from twinrank.learning.models.encoding import Encoding
from twinrank.learning.models.kinds import class_of
from twinrank.learning.models.score_map import ScoreMap, maps_from_json, maps_to_json
from twinrank.support.checksums import check_seal, checksum, sealed
from twinrank.support.errors import DataWarning, InputError, explained, warn
from twinrank.support.files import check_format, check_regular, read_json, write_folder

if TYPE_CHECKING:
    from twinrank.deployment.onnx_graph import Graph

FORMAT, VERSION = "twinrank-model", 2
CONFIG, HISTORY, CALIBRATION = "config.json", "history.jsonl", "calibration.json"
RUN, RUN_MODEL, RUN_VERSION = "run.json", "model", 2
"""A run folder holds `run.json`, and its model in the folder `model`."""
_LONGEST_HISTORY = 8_000_000
"""Bytes of a history that is read: about 80,000 iterations, in three seconds at most."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Model(ABC):
    """A trained model: all that is needed to score, and how it was trained."""

    kind: ClassVar[str]

    features: int
    feature_names: tuple[str, ...] | None = None
    transform: Transform = field(default_factory=Compose)
    encoding: Encoding = field(default_factory=Encoding)
    """The codes of categories; `score` applies it."""
    ensemble_size: int = 1
    best_iteration: int | None = None
    """The iteration that was kept; of an ensemble of nets, the last one that improved a net."""
    best_score: float | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    """How it was trained: parameters, the values of those that are "auto", plan, data, versions."""
    history: list[dict[str, Any]] = field(default_factory=list)
    calibration: Mapping[str, ScoreMap] = field(default_factory=dict)
    """The maps from scores to grades and probabilities, by target."""

    @property
    @abstractmethod
    def per_query(self) -> bool:
        """True if a score depends on the other documents of its query."""

    @abstractmethod
    def score(self, data: Dataset, n_jobs: int | None = None) -> npt.NDArray[np.float32]:
        """The score of every document."""

    @property
    def continuations(self) -> int:
        """How often a training has continued from an earlier model."""
        count = self.provenance.get("partial_fits")
        return count if isinstance(count, int) and count > 0 else 0

    def transforms(self) -> str:
        """The transforms in the notation that users write."""
        return str(self.transform)

    @property
    def categories(self) -> Mapping[int, int]:
        """The number of codes of each categorical column of a net."""
        return {}

    @abstractmethod
    def add_to(self, graph: "Graph") -> str:
        """Append the model to an ONNX graph, and return the name of its scores."""

    @abstractmethod
    def graph_metadata(self) -> dict[str, Any]:
        """What this kind adds to the metadata of an ONNX file, as JSON."""

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What this kind adds to `config.json`, and its files by name."""

    @classmethod
    @abstractmethod
    def from_parts(
        cls, config: dict[str, Any], folder: Path, common: dict[str, Any], architecture: Any
    ) -> Self:
        """Read what `parts` wrote, every part of it checked."""

    def config(self) -> dict[str, Any]:
        """Everything but the weights and the history, as JSON."""
        names = self.feature_names
        return {
            "format": FORMAT,
            "version": VERSION,
            "twinrank": version("twinrank"),
            "kind": self.kind,
            "features": self.features,
            "feature_names": None if names is None else list(names),
            "transform": self.transform.to_json(),
            "encoding": self.encoding.to_json(),
            "ensemble_size": self.ensemble_size,
            "best_iteration": self.best_iteration,
            "best_score": self.best_score,
            **self.parts()[0],
            "provenance": self.provenance,
        }


AnyModel = TypeVar("AnyModel", bound=Model)


def save_model(model: Model, folder: Path) -> None:
    """Write a model's folder. It appears whole, and replaces an earlier model."""
    with explained("write", folder):
        occupied = folder.exists() and not (folder / CONFIG).is_file()
        if occupied and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not a model; choose another name.")
    write_folder(folder, model_files(model))


def model_files(model: Model) -> dict[str, bytes]:
    """The files of a model's folder by name; the configuration has their checksums.

    The history has none: it contains times, and a seed always gives the same configuration.
    """
    files = model.parts()[1]
    if model.calibration:
        maps = json.dumps(maps_to_json(model.calibration), allow_nan=False)
        files = {**files, CALIBRATION: maps.encode()}
    sums = {name: checksum(files[name]) for name in files if "/" not in name}
    config = sealed({**model.config(), "checksums": sums})  # a blend's models have their own
    text = json.dumps(config, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    history = "".join(json.dumps(record) + "\n" for record in model.history)
    return {**files, HISTORY: history.encode(), CONFIG: text.encode()}


def with_earlier_calibration(model: AnyModel, folder: Path, replaced: str = "") -> AnyModel:
    """The model with the calibration that its folder has for the same trees or weights.

    `replaced` is the output that is calibrated again next.
    """
    if not (folder / CALIBRATION).is_file():
        return model
    config = read_json(folder / CONFIG)
    same = all(
        Path(name).name in (CONFIG, HISTORY)  # of a blend's models
        or ((folder / name).is_file() and (folder / name).read_bytes() == content)
        for name, content in model.parts()[1].items()
    )
    maps = _calibration(folder, config)
    if same:
        return replace(model, calibration=maps)
    fitted = [name for name, own in maps.items() if type(own) is ScoreMap]  # not by training
    if lost := [name for name in fitted if name != replaced]:
        warn(
            DataWarning(
                f"The calibration of {' and '.join(lost)} in {folder} is deleted, because training "
                f"has changed the model: calibrate it again."
            )
        )
    return model


def read_part(folder: Path, name: str, config: Mapping[str, Any]) -> bytes:
    """Read a file of a model's folder; its checksum must be that of the configuration, if any."""
    path = folder / name
    with explained("read", path):
        if not path.exists():
            raise InputError(f"There is no {name} in it.")
        check_regular(path)
        content = path.read_bytes()
    sums = config.get("checksums", {})
    if not isinstance(sums, dict):
        raise damaged("checksums must be an object")
    if name in sums and sums[name] != checksum(content):
        raise InputError(f"{name} is damaged: it is not the file that {CONFIG} was saved with.")
    return content


def read_model(folder: Path, architecture: Any = None) -> Model:
    """Read a model's folder, or that of a run; `architecture` is a user's own net, if it is one."""
    place = model_folder(folder)
    path = place / CONFIG
    with explained("read", path):
        if not path.is_file():
            raise InputError(f"{place} is not a model: it has no {CONFIG}.")
    written = read_json(path)
    config = _upgraded(written)
    try:
        check_format(config, CONFIG, FORMAT, VERSION, "the configuration of a TwinRank model")
        model_class: type[Model] = class_of(str(config.get("kind")), "model")
        model = model_class.from_parts(config, place, _common(config, place), architecture)
        check_seal(written, CONFIG)  # last: other messages name the field
        return model
    except InputError as error:
        raise InputError(f"Cannot load {place}: ", *error.parts) from error


def model_folder(folder: Path) -> Path:
    """The folder of the model itself: inside a run's folder, or the folder that `save` wrote."""
    with explained("read", folder):
        if not folder.exists():
            raise InputError(f"{folder} is not a model: there is no such folder.")
        if not (folder / RUN).is_file():
            return folder
        if not (folder / RUN_MODEL).exists():
            raise InputError(f"The run in {folder} is not complete. {_how_to_finish(folder)}.")
        return folder / RUN_MODEL


def needs_architecture(folder: Path) -> bool:
    """True if a model's net, or one in a blend, is a user's own."""
    place = model_folder(folder)
    for path in (place / CONFIG, *place.glob(f"*/{CONFIG}")):  # a blend has a folder for each model
        config = read_json(path) if path.is_file() else None
        described = config.get("architecture") if isinstance(config, dict) else None
        if isinstance(described, dict) and described.get("custom") is not None:
            return True
    return False


def _how_to_finish(folder: Path) -> str:
    """How to finish a run: as it was started, by the command line or by `fit`."""
    about = read_json(folder / RUN)
    if not isinstance(about, dict) or about.get("version") != RUN_VERSION:
        return "It was started by another version of TwinRank; train again in a new folder"
    if about.get("source"):
        return f"Finish it with twinrank train --resume {shlex.quote(str(folder))}"
    return f"Call fit again, with run={str(folder)!r} and resume=True"


def is_count(value: Any, below: float = float("inf"), least: int = 0) -> bool:
    """True for a whole number in a range; JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < below


def damaged(what: str) -> InputError:
    """The error for a configuration that nobody's `save` wrote."""
    return InputError(f"{CONFIG} is damaged: {what}.")


def _common(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The arguments of every kind of model, but for its transform."""
    features, names = config.get("features"), config.get("feature_names")
    if not is_count(features, 2**31, least=1):
        raise damaged(f"features must be a positive whole number, not {features!r}")
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise damaged("feature_names must be a list of names")
        if len(names) != features:
            raise damaged(f"it has {len(names)} names for {features} features")
    try:
        encoding = Encoding.from_json(config.get("encoding", {}), features or 0)
    except InputError as error:
        raise InputError(f"{CONFIG} is damaged: ", *error.parts) from error
    provenance = config.get("provenance")
    if not isinstance(provenance, dict) or not isinstance(provenance.get("parameters", {}), dict):
        raise damaged("provenance must be an object")
    size = config.get("ensemble_size")
    if not is_count(size, 2**31, least=1):
        raise damaged(f"ensemble_size must be a positive whole number, not {size!r}")
    iteration, score = config.get("best_iteration"), config.get("best_score")
    if iteration is not None and not is_count(iteration):
        raise damaged(f"best_iteration must be a whole number, not {iteration!r}")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise damaged(f"best_score must be a number, not {score!r}")
    return {
        "features": features,
        "feature_names": None if names is None else tuple(names),
        "encoding": encoding,
        "ensemble_size": size,
        "best_iteration": iteration,
        "best_score": score,
        "provenance": provenance,
        "history": _history(folder, config),
        "calibration": _calibration(folder, config),
    }


def _calibration(folder: Path, config: Mapping[str, Any]) -> dict[str, ScoreMap]:
    """The maps that a model was saved with; none in models without calibration."""
    sums = config.get("checksums")
    if not isinstance(sums, dict) or CALIBRATION not in sums:
        return {}
    try:
        content = json.loads(read_part(folder, CALIBRATION, config))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{CALIBRATION} is damaged ({error}).") from error
    return maps_from_json(content)


def _history(folder: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of a history file; none if there is no file."""
    path = folder / HISTORY
    size = path.stat().st_size if path.exists() else 0
    if size > _LONGEST_HISTORY:
        warn(
            DataWarning(
                f"{path} has {size:,} bytes and is not read: at most {_LONGEST_HISTORY:,} are. The "
                f"model is complete; its history is empty."
            )
        )
    is_read = path.exists() and size <= _LONGEST_HISTORY
    lines = read_part(folder, HISTORY, config).splitlines() if is_read else []
    try:
        records = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is damaged ({error}).") from error
    if not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path.name} is damaged: every line must be an object.")
    return records


def _upgraded(config: Any) -> Any:
    """The configuration of a model in format 1, as format 2 has it."""
    if not isinstance(config, dict) or config.get("version") != 1 or config["version"] is True:
        return config
    provenance = config.get("provenance")
    about = provenance if isinstance(provenance, dict) else {}
    parameters = about.get("parameters")
    own = dict(parameters) if isinstance(parameters, dict) else {}
    if config.get("format") == "twinrank-boosted-model":
        size = config.get("members", 1)
        config = {**config, "kind": "trees"}
        own["ensemble_size"] = own.pop("members", size)
    elif config.get("format") == FORMAT and isinstance(config.get("architecture"), dict):
        architecture = dict(config["architecture"])
        size = architecture.pop("members", 1)
        config = {**config, "kind": "net", "architecture": architecture}
        name = own.get("architecture")
        own["ensemble_size"] = "auto" if name == "auto" else size
        if isinstance(name, str):
            own["architecture"] = _without_members(name)
    else:
        return config
    if isinstance(parameters, dict):
        about = {**about, "parameters": own}
    return {
        **config,
        "format": FORMAT,
        "version": VERSION,
        "ensemble_size": size,
        "best_iteration": about.get("rounds"),
        "best_score": about.get("best_value"),
        "provenance": about if isinstance(provenance, dict) else provenance,
    }


def _without_members(name: str) -> str:
    """An architecture's name in format 1, without the size of the ensemble.

    >>> _without_members("MLP(width=8, members=3)")
    'MLP(width=8)'
    """
    head, _, rest = name.partition("(")
    options = [option.strip() for option in rest.rstrip(") ").split(",")]
    kept = [option for option in options if option and not option.startswith("members")]
    return f"{head}({', '.join(kept)})" if kept else head
