"""Export of a model to one ONNX file, transforms included, checked against our own scores."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset, with_features
from twinrank.deployment.onnx_graph import Graph, onnx_library
from twinrank.support.errors import InputError
from twinrank.support.files import replacing

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

SUFFIX = ".onnx"
TOLERANCE = 1e-5
"""The largest accepted difference of scores, relative to the largest score or, if less, to 1."""

_QUERY_SIZES = (1, 100)  # documents of the random queries on which scores are compared


def export_onnx(model: "Model", path: Path) -> None:
    """Write a model as an ONNX file: X [documents, features] in, scores [documents] out.

    A column of text is an input of its own, [documents], called "text:" and its name.

    If a score depends on the other documents of its query (QueryZScore, norm="query"), a call takes
    the documents of one query; otherwise it takes any documents. The file is written only if
    onnxruntime computes the same scores from it.
    """
    if path.suffix != SUFFIX:
        raise InputError(f"Can't write {path}. Choose a name with .onnx, for the format ONNX.")
    runtime = _runtime()
    content = onnx_model(model)
    onnx_library().checker.check_model(content, full_check=True)
    serialised = content.SerializeToString()
    _compare(model, session(runtime, serialised))
    with replacing(path) as partial:
        partial.write_bytes(serialised)


def onnx_model(model: "Model") -> Any:
    """The model as an `onnx.ModelProto`."""
    graph = Graph()
    scores = model.add_to(graph)
    return graph.model(model.features, scores, metadata(model), summary(model))


def summary(model: "Model") -> str:
    """One line for people: input, output, and transforms."""
    queries = "one query per call" if model.per_query else "any documents per call"
    texts = "".join(f", {name} [documents]" for name in text_inputs(model))
    return (
        f"X [documents, {model.features}]{texts} → scores [documents], float32, {queries}; "
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
        "one_query_per_call": json.dumps(model.per_query),
        **{name: json.dumps(value) for name, value in model.graph_metadata().items()},
    }
    for name in ("objective", "strategy"):
        if isinstance(parameters.get(name), str):
            entries[name] = parameters[name]
    return entries


def session(runtime: Any, content: bytes) -> Any:
    """An onnxruntime session on one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _runtime() -> Any:
    onnx_library()
    try:
        import onnxruntime
    except ImportError as missing:
        raise InputError(
            "ONNX needs two packages; install them with pip install 'twinrank[onnx]'."
        ) from missing
    return onnxruntime


def _compare(model: "Model", onnx_session: Any) -> None:
    """Raise an error if the graph's scores of random queries differ from the model's."""
    for size in _QUERY_SIZES:
        X, categories = _random_query(model, size)
        data = Dataset.from_arrays(X, group=[size], unjudged="keep", non_finite="keep")
        expected = model.score(with_features(data, X, None, categories))
        inputs: dict[str, Any] = {"X": X}
        for name, column in text_inputs(model).items():
            own = [categories[column][int(code)] if code >= 0 else "" for code in X[:, column]]
            inputs[name] = np.array(own, object)
        (scores,) = onnx_session.run(None, inputs)
        difference = float(np.abs(scores - expected).max())
        limit = TOLERANCE * max(1.0, float(np.abs(expected).max()))
        if not difference <= limit:
            raise InputError(
                f"Not exported: onnxruntime's scores of {size} random documents differ from the "
                f"model's by up to {difference:.2g}; at most {limit:.2g} is accepted."
            )


def text_inputs(model: "Model") -> dict[str, int]:
    """The columns of text by the names of their inputs."""
    names = model.feature_names
    return {f"text:{c if names is None else names[c]}": c for c in model.encoding.texts}


def _random_query(
    model: "Model", documents: int
) -> tuple[npt.NDArray[np.float32], dict[int, tuple[str, ...]]]:
    """Random features, every second one skewed, and random categories, some of them unknown."""
    random = np.random.default_rng(0)
    X = random.normal(size=(documents, model.features))
    X[:, ::2] = np.exp(X[:, ::2])
    for column, count in model.categories.items():
        X[:, column] = random.integers(-1, count + 1, documents)
    texts = {}
    for column, values in model.encoding.columns.items():
        if column in model.encoding.texts:
            texts[column] = (*map(str, values), "an unknown text", "another")
            X[:, column] = random.integers(-1, len(texts[column]), documents)
        elif values:
            known = np.array([-1, *values, max(map(int, values)) + 1])
            X[:, column] = known[random.integers(0, known.size, documents)]
    return X.astype(np.float32), texts
