"""An ONNX graph under construction, with codes of categories and transforms of features.

The arithmetic is that of our own code. Statistics are float64, and the result of each transform is
rounded to float32. All documents of a call are one query. NaN is a missing value.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from twinrank.data.transforms import (
    Clip,
    Compose,
    MissingIndicator,
    PiecewiseLinear,
    Quantile,
    QueryMinMax,
    QueryZScore,
    SignedLog1p,
    Standardise,
    Transform,
    Union,
)
from twinrank.data.transforms.combined import ExceptColumns
from twinrank.support.errors import InputError, needing

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

Value: TypeAlias = str | npt.NDArray[Any] | np.generic
"""The input of a node: the name of another node's result, or a constant."""

Columns = npt.NDArray[np.int64]

OPSET, IR = 17, 8
"""Runtimes since 2022 read these versions; the newest operator in use is LayerNormalization."""
OTHER_OPSETS = {"ai.onnx.ml": 3}
"""The versions of the domains that only some models use: trees, since 2022 too."""

_ZERO, _ONE, _INFINITY = np.float64(0), np.float64(1), np.float64(np.inf)


def onnx_library() -> Any:
    """The package `onnx`, an optional dependency."""
    with needing("This export", "onnx", "onnx"):
        import onnx
    return onnx


class Graph:
    """An ONNX graph under construction.

    `graph("Add", x, np.float32(1))` appends a node and returns the name of its result.
    """

    def __init__(self) -> None:
        self._onnx = onnx_library()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._texts: list[str] = []

    def text_input(self, column: int, names: Sequence[str] | None) -> str:
        """The name of the input with the texts of a column: "text:" and the feature's name."""
        name = f"text:{column if names is None else names[column]}"
        self._texts += [] if name in self._texts else [name]
        return name

    def __call__(self, operator: str, *inputs: Value, **attributes: Any) -> str:
        """Append a node; its result is named by the operator and a number."""
        name = f"{operator}_{len(self._nodes)}"
        names = [x if isinstance(x, str) else self._constant(x) for x in inputs]
        self._nodes.append(self._onnx.helper.make_node(operator, names, [name], **attributes))
        return name

    def tensor(self, values: npt.NDArray[Any]) -> Any:
        """An array as an attribute of a node."""
        return self._onnx.numpy_helper.from_array(np.ascontiguousarray(values))

    def cast(self, x: Value, dtype: type[np.generic]) -> str:
        """Convert values to another type."""
        to = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self("Cast", x, to=to)

    def model(
        self,
        features: int,
        result: str,
        metadata: dict[str, str],
        summary: str,
        calibrated: Mapping[str, str],
    ) -> Any:
        """The finished model: float32 X [documents, features] in, scores [documents] out.

        Columns of text are further inputs; X may have anything in their place. `calibrated` are
        float64 results that become further outputs, by the names of these.
        """
        helper, floats = self._onnx.helper, self._onnx.TensorProto.FLOAT
        texts, doubles = self._onnx.TensorProto.STRING, self._onnx.TensorProto.DOUBLE
        outputs = {"scores": result, **calibrated}
        last = [helper.make_node("Identity", [own], [name]) for name, own in outputs.items()]
        graph = helper.make_graph(
            [*self._nodes, *last],
            "twinrank",
            [
                helper.make_tensor_value_info("X", floats, ["documents", features]),
                *(
                    helper.make_tensor_value_info(text, texts, ["documents"])
                    for text in self._texts
                ),
            ],
            [
                helper.make_tensor_value_info("scores", floats, ["documents"]),
                *(helper.make_tensor_value_info(n, doubles, ["documents"]) for n in calibrated),
            ],
            self._constants,
        )
        used = {node.domain for node in self._nodes} - {""}
        model = helper.make_model(
            graph,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                *(helper.make_opsetid(domain, OTHER_OPSETS[domain]) for domain in sorted(used)),
            ],
            ir_version=IR,
            producer_name="twinrank",
            producer_version=metadata["twinrank"],
            doc_string=summary,
        )
        helper.set_model_props(model, metadata)
        return model

    def _constant(self, values: npt.NDArray[Any] | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        array = np.ascontiguousarray(values).reshape(np.shape(values))  # keeps 0-d arrays 0-d
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name


def encoded(graph: Graph, model: "Model", column: int) -> str:
    """The codes of a categorical column, as `Encoding` has them.

    A column of text is an input of its own, in which empty text is missing.
    """
    if column not in model.encoding.columns:
        return graph("Gather", "X", np.int64(column), axis=1)
    values = model.encoding.columns[column]
    places, missing = list(map(float, range(len(values)))), len(values) + 1.0
    others: dict[str, Any] = {"default_float": float(len(values)), "domain": "ai.onnx.ml"}
    if column in model.encoding.texts:
        text, keys = graph.text_input(column, model.feature_names), ["", *map(str, values)]
        found = {"keys_strings": keys, "values_floats": [missing, *places]}
        return graph("LabelEncoder", text, **found, **others)
    found = {"keys_floats": [-1.0, *map(float, values)], "values_floats": [missing, *places]}
    x = graph("Gather", "X", np.int64(column), axis=1)
    known = graph("GreaterOrEqual", x, np.float32(0))
    return graph("LabelEncoder", graph("Where", known, x, np.float32(-1)), **found, **others)


def transformed(
    graph: Graph, x: str, transform: Transform, features: int, columns: Columns
) -> tuple[str, list[str]]:
    """Append a transform; return its result, and those in between that must be finite.

    `x` has these columns of the transform's features. The results of every transform that replaces
    missing values must be finite, because the next one would treat their NaN as a missing value.
    """
    if isinstance(transform, ExceptColumns):
        transform = transform.inner
    if isinstance(transform, Union):
        branches = [transformed(graph, x, b, features, columns) for b in transform.transforms]
        checked = [name for _, names in branches for name in names]
        return graph("Concat", *(result for result, _ in branches), axis=1), checked
    if not isinstance(transform, Compose):
        if type(transform) not in TRANSFORM_NODES:
            known = ", ".join(kind.__name__ for kind in TRANSFORM_NODES)
            raise InputError(
                f"{transform} can't be exported to ONNX; transforms that can: {known}."
            )
        x = TRANSFORM_NODES[type(transform)](graph, x, transform, columns)
        return x, [] if transform.keeps_missing else [x]
    results: list[str] = []
    for step in transform.transforms:
        x, checked = transformed(graph, x, step, features, columns)
        results += checked
        columns = np.flatnonzero(np.isin(step.sources(features), columns))
        features = step.outputs(features)
    return x, results


def _zscore(graph: Graph, x: str, _: Any, __: Columns) -> str:
    """(x − mean) · √(n / Σ(x − mean)²); sums start at the minimum, so constants give exactly 0."""
    x, missing = _doubles(graph, x)
    minimum = graph("ReduceMin", graph("Where", missing, _INFINITY, x), axes=[0])
    count = graph("ReduceSum", graph.cast(graph("Not", missing), np.float64), np.array([0]))
    count = graph("Max", count, _ONE)
    above = graph("Where", missing, _ZERO, graph("Sub", x, minimum))
    mean = graph("Add", minimum, graph("Div", graph("ReduceSum", above, np.array([0])), count))
    centred = graph("Where", missing, _ZERO, graph("Sub", x, mean))
    squares = graph("ReduceSum", graph("Mul", centred, centred), np.array([0]))
    factor = graph("Sqrt", graph("Div", count, squares))
    factor = graph("Where", graph("Greater", squares, _ZERO), factor, _ZERO)
    return graph.cast(graph("Mul", centred, factor), np.float32)


def _minmax(graph: Graph, x: str, _: Any, __: Columns) -> str:
    """(x − min) / (max − min)."""
    x, missing = _doubles(graph, x)
    minimum = graph("ReduceMin", graph("Where", missing, _INFINITY, x), axes=[0])
    maximum = graph("ReduceMax", graph("Where", missing, -_INFINITY, x), axes=[0])
    spread = graph("Sub", maximum, minimum)
    factor = graph("Where", graph("Greater", spread, _ZERO), graph("Div", _ONE, spread), _ZERO)
    scaled = graph("Mul", graph("Sub", x, minimum), factor)
    return graph.cast(graph("Where", missing, _ZERO, scaled), np.float32)


def _standardise(graph: Graph, x: str, transform: Standardise, columns: Columns) -> str:
    """(x − mean) / deviation, with the statistics of the training data."""
    mean = np.array(transform.mean_, np.float64)[columns]
    deviation = np.array(transform.deviation_, np.float64)[columns]
    factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    x, missing = _doubles(graph, x)
    scaled = graph("Mul", graph("Sub", x, mean), factor)
    return graph.cast(graph("Where", missing, _ZERO, scaled), np.float32)


def _signed_log1p(graph: Graph, x: str, _: Any, __: Columns) -> str:
    """sign(x) · log(1 + |x|), with log(1 + a) = log(u) · a / (u − 1), u = 1 + a as rounded.

    ONNX has no log1p. The quotient corrects the rounding error of u (Goldberg, "What every computer
    scientist should know about floating-point arithmetic", 1991, theorem 4).
    """
    x = graph.cast(x, np.float64)
    a = graph("Abs", x)
    u = graph("Add", a, _ONE)
    less = graph("Sub", u, _ONE)
    log = graph("Div", graph("Mul", graph("Log", u), a), less)
    usual = graph("And", graph("Greater", less, _ZERO), graph("Less", less, _INFINITY))
    log = graph("Where", usual, log, a)
    signed = graph("Where", graph("Less", x, _ZERO), graph("Neg", log), log)
    return graph.cast(signed, np.float32)


def _clip(graph: Graph, x: str, transform: Clip, _: Columns) -> str:
    """min(max(x, low), high), by comparisons: they keep NaN, and ONNX's Clip may not."""
    low, high = transform.bounds()
    x = graph("Where", graph("Less", x, low), low, x)
    return graph("Where", graph("Greater", x, high), high, x)


def _missing(graph: Graph, x: str, transform: MissingIndicator, columns: Columns) -> str:
    """IsNaN of these columns, as far as the transform has them."""
    kept = np.flatnonzero(np.array(transform.missing_)[columns])
    return graph.cast(graph("IsNaN", graph("Gather", x, kept, axis=1)), np.float32)


def _bins(graph: Graph, x: str, transform: PiecewiseLinear, columns: Columns) -> str:
    """(x − low) · factor within bounds, for the bins of these columns."""
    kept = np.isin(transform.table.sources, columns)
    sources, low, factor, least, most = (values[kept] for values in transform.table)
    x, missing = _doubles(graph, graph("Gather", x, np.searchsorted(columns, sources), axis=1))
    scaled = graph("Mul", graph("Sub", x, low), factor)
    scaled = graph("Min", graph("Max", scaled, least), most)
    return graph.cast(graph("Where", missing, _ZERO, scaled), np.float32)


def _quantile(graph: Graph, x: str, transform: Quantile, columns: Columns) -> str:
    """Binary search in the knots of each column, padded to a power of two, and interpolation."""
    starts, knots, at, right, slope, *ends = transform.table
    least, median, largest = map(np.float64, ends)
    sizes = np.diff(starts)[columns]
    size = 2 ** int(np.ceil(np.log2(max(sizes.max(initial=2), 2))))
    inside = np.arange(size) < sizes[:, None]
    place = np.minimum(starts[columns][:, None] + np.arange(size), max(knots.size - 1, 0))

    def table(values: Any, other: float) -> npt.NDArray[Any]:
        """A row per knot and a column per feature."""
        by_feature = np.where(inside, np.append(values, other)[place], other)
        return np.ascontiguousarray(by_feature.T, values.dtype)

    x32, searched = x, table(knots, np.nan)  # no value is at least NaN
    x, missing = _doubles(graph, x)
    half = size // 2
    reached = graph("LessOrEqual", searched[half], x32)
    found = graph("Where", reached, np.int64(half), np.int64(0))
    while half := half // 2:  # with Gather, the whole model takes 2.2 ms, not 0.8
        further = graph("Add", found, np.int64(half))
        reached = graph("LessOrEqual", graph("GatherElements", searched, further, axis=0), x32)
        found = graph("Where", reached, further, found)
    knot, growth, limit, tied = (
        graph("GatherElements", values, found, axis=0)
        for values in (
            searched.astype(np.float64),
            table(slope, 0.0),
            table(right, 0.0),
            table(at, 0.0),
        )
    )
    away = graph("Sub", x, knot)
    score = graph("Add", graph("Mul", away, growth), limit)
    score = graph("Where", graph("Equal", away, _ZERO), tied, score)
    constant = sizes == 0
    last = np.append(knots, 0.0)[np.where(constant, -1, starts[1:][columns] - 1)]
    score = graph("Where", graph("Greater", x, np.float64(last)), largest, score)
    first = np.append(knots, 0.0)[np.where(constant, -1, starts[columns])]
    score = graph("Where", graph("Less", x, np.float64(first)), least, score)
    return graph.cast(graph("Where", graph("Or", missing, constant), median, score), np.float32)


TRANSFORM_NODES: dict[type[Transform], Callable[[Graph, str, Any, Columns], str]] = {
    QueryZScore: _zscore,
    QueryMinMax: _minmax,
    Standardise: _standardise,
    SignedLog1p: _signed_log1p,
    Clip: _clip,
    Quantile: _quantile,
    PiecewiseLinear: _bins,
    MissingIndicator: _missing,
}
"""The function that appends each transform, given the graph, its input, the transform, columns."""


def _doubles(graph: Graph, x: str) -> tuple[str, str]:
    """x as float64, and a mask of its missing values."""
    x = graph.cast(x, np.float64)
    return x, graph("IsNaN", x)
