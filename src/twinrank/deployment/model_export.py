"""Export of a model: the format is chosen, its files are checked, and they appear at once."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose
from twinrank.deployment.check_rows import random_query
from twinrank.deployment.elasticsearch_ltr import ElasticsearchLTR
from twinrank.deployment.elasticsearch_native import ElasticsearchNative
from twinrank.deployment.engine_files import EngineFile, LightGBMFile, XGBoostFile
from twinrank.deployment.export_format import Format
from twinrank.deployment.onnx_export import ONNX
from twinrank.deployment.opensearch_ltr import OpenSearchLTR
from twinrank.deployment.ranklib import RankLib
from twinrank.deployment.solr import Solr
from twinrank.deployment.tree_list import trees_of
from twinrank.deployment.vespa import Vespa
from twinrank.support.errors import InputError, explained
from twinrank.support.files import replacing, write_folder
from twinrank.support.quantities import counted, format_bytes

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        ElasticsearchLTR(),
        OpenSearchLTR(),
        ElasticsearchNative(),
        Solr(),
        Vespa(),
        RankLib(),
        LightGBMFile(),
        XGBoostFile(),
        ONNX(),
    )
}
"""The export formats by name."""

_TIMED = 1000  # documents


@dataclass(frozen=True)
class Export:
    """What an export wrote, and what it checked."""

    path: Path
    format: str
    description: str
    """The files, or their input and output."""
    trees: int | None
    leaves: int | None
    """None for nets, and for trees with linear models in their leaves."""
    bytes: int
    """The size of all files."""
    microseconds: float
    """The time of `predict` for a document, on one core, in queries of 1,000 documents."""
    difference: float | None
    """The largest difference between the scores of the files and those of `predict`."""
    models: int
    """The number of models in an ensemble; each has about this share of the costs."""
    rows: int
    """The number of rows on which the scores were compared."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        counts = []
        if self.trees is not None:
            counts.append(counted(self.trees, "tree"))
        if self.leaves is not None:
            counts.append("1 leaf" if self.leaves == 1 else f"{self.leaves:,} leaves")
        share = ""
        if self.models > 1:
            time, size = self.microseconds / self.models, format_bytes(self.bytes // self.models)
            own = [] if self.trees is None else [counted(self.trees // self.models, "tree")]
            share = (
                f" It is an ensemble of {self.models}; a single model has about "
                f"{', '.join([*own, size])} and takes {time:.3g} µs."
            )
        return (
            f"{', '.join([*counts, format_bytes(self.bytes)])}. predict takes "
            f"{self.microseconds:.3g} µs per document. Scores of {self.rows:,} rows differ by at "
            f"most {self.difference:.2g}.{share}"
        )


def export_model(
    model: "Model", path: Path, format: str | None = None, data: Dataset | None = None
) -> Export:
    """Write a model in a format; by default the suffix of the path names it.

    The scores of the files are compared with the model's on generated rows, and on `data`. Nothing
    is written if they differ.
    """
    chosen = format_of(getattr(model, "engine", ""), path, format)
    written = chosen.write(model, path, data)
    if chosen.is_folder:
        write_folder(path, written.files)
    else:
        (content,) = written.files.values()
        with replacing(path) as partial:
            partial.write_bytes(content)
    lost = [name for name, own in model.calibration.items() if not chosen.holds(own)]
    notes = written.notes
    if lost:
        notes += (
            f"The files give scores, not the calibrated {' and '.join(lost)}: {chosen.engine} "
            f"cannot hold the map, which is in calibration.json of the saved model.",
        )
    trees, leaves = (written.trees, written.leaves) if chosen.is_folder else _counts(model)
    return Export(
        path=path,
        format=chosen.name,
        description=written.description,
        trees=trees,
        leaves=leaves,
        bytes=sum(map(len, written.files.values())),
        microseconds=_microseconds(model),
        difference=written.difference,
        models=model.ensemble_size,
        rows=written.rows,
        notes=notes,
    )


def default_format(model: "Model") -> str:
    """The engine's own format for trees without transforms and categories, else ONNX."""
    if model.kind != "trees" or model.transform != Compose() or model.encoding.columns:
        return ONNX.name
    return str(model.engine)  # type: ignore[attr-defined]


def format_of(engine: str, path: Path, format: str | None = None) -> Format:
    """A format, or that which the suffix of a path names, for a model of an engine, "" for nets.

    A path that cannot be written raises an error.
    """
    if format is None:
        return _by_suffix(engine, path)
    if format not in FORMATS:
        raise InputError(argument="format", value=format, choices=FORMATS)
    if FORMATS[format].is_folder:
        _check_folder(path)
    return FORMATS[format]


def _by_suffix(engine: str, path: Path) -> Format:
    own = FORMATS.get(engine)
    if not isinstance(own, EngineFile) or path.suffix == ".onnx":
        return FORMATS[ONNX.name]
    if path.suffix in own.suffixes:
        return own
    raise InputError(
        f"Cannot write {path}: trees are exported to ONNX or in {own.engine}'s own format; choose "
        f"a name that ends in .onnx or {' or '.join(own.suffixes)}, or name a format: "
        f"{', '.join(FORMATS)}."
    )


def _check_folder(path: Path) -> None:
    """Refuse to replace anything but an empty folder or an earlier export."""
    with explained("write", path):
        if not path.exists():
            return
        if not path.is_dir():
            raise InputError(f"{path} is a file, but this format is a folder. Choose another name.")
        names = {own.name for own in path.iterdir()}
        if names and "upload.sh" not in names:
            raise InputError(f"{path} exists and is not an export; choose another name.")


def _counts(model: Any) -> tuple[int | None, int | None]:
    """The numbers of trees and leaves; None if the model is not a list of plain trees."""
    if model.kind != "trees":
        return None, None
    try:
        trees = trees_of(model.engine, model.trees)[1]
    except InputError:
        return int(model.trees.count), None
    return len(trees), sum(int(tree.is_leaf.sum()) for tree in trees)


def _microseconds(model: "Model") -> float:
    """The shortest time of three, per document."""
    query = random_query(model, _TIMED)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        model.score(query, n_jobs=1)
        seconds.append(time.perf_counter() - begin)
    return 1e6 * float(np.min(seconds)) / _TIMED
