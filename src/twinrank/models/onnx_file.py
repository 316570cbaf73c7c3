"""A model as one ONNX file, transforms included, compared with our own scores before it is left."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.models.folder import Model
from twinrank.models.onnx_net import score
from twinrank.models.onnx_nodes import Nodes, onnx_library
from twinrank.support.errors import InputError
from twinrank.support.files import replacing

SUFFIX = ".onnx"
TOLERANCE = 1e-5
"""How far scores may be from ours, relative to the largest of them, or to 1 where that is less."""

_SIZES = (1, 100)  # documents of the made queries that are compared


def export_onnx(model: Model, path: Path) -> None:
    """Write a model as an ONNX file: X [documents, features] in, scores [documents] out.

    Where a score depends on the other documents of its query (a transform such as QueryZScore, or
    norm="query"), a call takes one query; else any rows.
    """
    if path.suffix != SUFFIX:
        raise InputError(f"can't write {path}: a net is exported to ONNX; choose a name with .onnx")
    runtime = _runtime()
    content = onnx_model(model)
    onnx_library().checker.check_model(content, full_check=True)
    serialised = content.SerializeToString()
    _compare(model, session(runtime, serialised))
    with replacing(path) as partial:
        partial.write_bytes(serialised)


def onnx_model(model: Model) -> Any:
    """The model as a graph, an `onnx.ModelProto`."""
    nodes = Nodes()
    result = score(nodes, model.scorer, model.transform, model.per_query)
    return nodes.model(model.features, result, about(model), summary(model))


def summary(model: Model) -> str:
    """What goes in and what comes out, for people."""
    queries = "one query a call" if model.per_query else "any documents in a call"
    return (
        f"X [documents, {model.features}] → scores [documents], float32, {queries}; "
        f"transforms included: {model.transform}"
    )


def about(model: Model) -> dict[str, str]:
    """What the file says about itself; everything but text is JSON."""
    parameters = model.provenance.get("parameters", {})
    names = model.feature_names
    found = {
        "twinrank": version("twinrank"),
        "features": json.dumps(model.features),
        "feature_names": json.dumps(None if names is None else list(names), ensure_ascii=False),
        "transforms": str(model.transform),
        "one_query_per_call": json.dumps(model.per_query),
        "architecture": json.dumps(model.scorer.architecture.to_json()),
        "categories": json.dumps(model.scorer.categories),
    }
    for name in ("objective", "strategy"):
        if isinstance(parameters.get(name), str):
            found[name] = parameters[name]
    return found


def session(runtime: Any, content: bytes) -> Any:
    """A session of onnxruntime on one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _runtime() -> Any:
    onnx_library()
    try:
        import onnxruntime
    except ImportError as missing:
        raise InputError("ONNX needs two packages: pip install 'twinrank[onnx]'") from missing
    return onnxruntime


def _compare(model: Model, run: Any) -> None:
    """Refuse a graph whose scores of some made queries aren't ours."""
    for size in _SIZES:
        X = _made(model, size)
        ours = model.score(Dataset.from_arrays(X, group=[size], unjudged="keep"))
        (theirs,) = run.run(None, {"X": X})
        apart = float(np.abs(theirs - ours).max())
        most = TOLERANCE * max(1.0, float(np.abs(ours).max()))
        if not apart <= most:
            raise InputError(
                f"not exported: onnxruntime's scores of {size} made documents are up to "
                f"{apart:.2g} from ours, {most:.2g} being the most that is accepted"
            )


def _made(model: Model, documents: int) -> npt.NDArray[np.float32]:
    """Features of a made query, some of them skewed, and categories, some of them unknown."""
    random = np.random.default_rng(0)
    X = random.normal(size=(documents, model.features))
    X[:, ::2] = np.exp(X[:, ::2])
    for column, count in model.scorer.categories.items():
        X[:, column] = random.integers(-1, count + 1, documents)
    return X.astype(np.float32)
