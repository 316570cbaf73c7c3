"""ONNX: a model in one file, transforms included."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.deployment.check_rows import random_query, sample
from twinrank.deployment.export_format import Format, Written
from twinrank.deployment.onnx_graph import Graph, onnx_library
from twinrank.support.errors import InputError, needing

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model
    from twinrank.learning.models.score_map import ScoreMap

SUFFIX = ".onnx"
TOLERANCE = 1e-5
"""The largest accepted difference of scores, relative to the largest score or, if less, to 1."""

_QUERY_SIZES = (1, 100)  # documents of the random queries on which scores are compared
_MOST = 500  # queries of the data on which scores are compared


class ONNX(Format):
    """One file: X [documents, features] in, scores [documents] out.

    A column of text is an input of its own, [documents], called "text:" and its name. A calibrated
    model has further outputs, "grade" or "probability".

    If a score depends on the other documents of its query (QueryZScore, norm="query"), a call takes
    the documents of one query; otherwise it takes any documents.
    """

    name = "onnx"
    engine = "onnxruntime"
    limits = "none for trees and TwinRank's nets; one query per call with the default transforms"
    target = "model.onnx"

    def holds(self, calibration: "ScoreMap") -> bool:  # noqa: ARG002
        """Every map is a further output."""
        return True

    def write(self, model: "Model", path: Path, data: Dataset | None) -> Written:
        """The graph with all transforms, checked by onnxruntime."""
        if path.suffix != SUFFIX:
            raise InputError(f"Can't write {path}. Choose a name with .onnx, for the format ONNX.")
        runtime = _runtime()
        content = onnx_model(model)
        onnx_library().checker.check_model(content, full_check=True)
        serialised = content.SerializeToString()
        run = session(runtime, serialised)
        queries = [random_query(model, size) for size in _QUERY_SIZES]
        if data is not None:
            given = sample(data)
            queries += [given.select([number]) for number in range(min(given.queries, _MOST))]
        difference = max(_compared(model, run, query) for query in queries)
        rows = sum(query.documents for query in queries)
        return Written({path.name: serialised}, summary(model), difference, rows)


def onnx_model(model: "Model") -> Any:
    """The model as an `onnx.ModelProto`."""
    graph = Graph()
    scores = model.add_to(graph)
    calibrated = {name: own.add_to(graph, scores) for name, own in model.calibration.items()}
    about = metadata(model), summary(model)
    return graph.model(model.features, scores, *about, calibrated)


def summary(model: "Model") -> str:
    """One line for people: input, output, and transforms."""
    queries = "one query per call" if _one_query(model) else "any documents per call"
    texts = "".join(f", {name} [documents]" for name in text_inputs(model))
    values = "".join(f", {name} [documents], float64" for name in model.calibration)
    return (
        f"X [documents, {model.features}]{texts} → scores [documents], float32{values}, {queries}; "
        f"transforms included: {model.transforms()}"
    )


def metadata(model: "Model") -> dict[str, str]:
    """The file's metadata; values are text or JSON."""
    parameters = model.provenance.get("parameters", {})
    names = model.feature_names
    entries = {
        "twinrank": version("twinrank"),
        "features": json.dumps(model.features),
        "feature_names": json.dumps(None if names is None else list(names), ensure_ascii=False),
        "transforms": model.transforms(),
        "one_query_per_call": json.dumps(_one_query(model)),
        **{name: json.dumps(value) for name, value in model.graph_metadata().items()},
    }
    for name in ("objective", "strategy"):
        if isinstance(parameters.get(name), str):
            entries[name] = parameters[name]
    return entries


def _one_query(model: "Model") -> bool:
    """True if a call must have the documents of one query."""
    return model.per_query or any(own.per_query for own in model.calibration.values())


def session(runtime: Any, content: bytes) -> Any:
    """An onnxruntime session on one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _runtime() -> Any:
    onnx_library()
    with needing("This export", "onnxruntime", "onnx"):
        import onnxruntime
    return onnxruntime


def _compared(model: "Model", onnx_session: Any, query: Dataset) -> float:
    """The largest difference between the graph's scores of a query and the model's."""
    inputs: dict[str, Any] = {"X": query.X}
    for name, column in text_inputs(model).items():
        texts = query.categories.get(column, ())
        own = [texts[int(code)] if code >= 0 else "" for code in query.X[:, column]]
        inputs[name] = np.array(own, object)
    expected = model.score(query)
    scores, *calibrated = onnx_session.run(None, inputs)
    difference = float(np.abs(scores - expected).max())
    limit = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    if not difference <= limit:
        raise InputError(
            f"Not exported: onnxruntime's scores of {query.documents} documents differ from the "
            f"model's by up to {difference:.2g}; at most {limit:.2g} is accepted."
        )
    for known, values in zip(model.calibration.values(), calibrated, strict=True):
        off = float(np.abs(values - known(scores, query.lists)).max())
        if not off <= TOLERANCE * known.span:
            raise InputError(
                f"Not exported: onnxruntime's {known.target} differs from the model's by up to "
                f"{off:.2g}; at most {TOLERANCE * known.span:.2g} is accepted."
            )
    return difference


def text_inputs(model: "Model") -> dict[str, int]:
    """The columns of text by the names of their inputs."""
    names = model.feature_names
    return {f"text:{c if names is None else names[c]}": c for c in model.encoding.texts}
