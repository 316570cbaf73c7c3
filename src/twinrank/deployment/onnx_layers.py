"""Nets as nodes of an ONNX graph: transforms, embeddings and layers, of one query per call."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from twinrank.deployment.onnx_graph import Graph, encoded, transformed
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.models.context_layers import AttentionBlock, PooledLinear
    from twinrank.learning.models.layers import (
        NumericEmbedding,
        QueryNorm,
        SeparateLinear,
        SharedLinear,
    )
    from twinrank.learning.models.net_model import NetModel
    from twinrank.learning.models.scorer import Scorer

_ACTIVATIONS: dict[type[nn.Module], tuple[str, dict[str, float]]] = {
    nn.ReLU: ("Relu", {}),
    nn.CELU: ("Elu", {"alpha": 1.0}),  # equal for α = 1, and more runtimes have Elu
    nn.LeakyReLU: ("LeakyRelu", {"alpha": 0.01}),
    nn.Tanh: ("Tanh", {}),
    nn.Sigmoid: ("Sigmoid", {}),
}


def add_scores(graph: Graph, model: "NetModel", nets: Sequence["Scorer"]) -> str:
    """Append the transforms and the nets, and return the name of the scores.

    A document with a value that `predict` refuses gets NaN. If a score depends on the other
    documents of the query, all of them get NaN.
    """
    scorer, transform = model.net, model.transform
    plain = np.array([c for c in range(model.features) if c not in scorer.categories], np.int64)
    numbers, refused = [], None
    if plain.size:
        x = graph("Gather", "X", plain, axis=1) if scorer.categories else "X"
        x, results = transformed(graph, x, transform, model.features, plain)
        if transform.keeps_missing:
            results.append(x)
        zeros = [graph("Mul", result, np.float32(0)) for result in results]  # NaN if not finite
        sums = [graph("ReduceSum", zero, np.array([1]), keepdims=0) for zero in zeros]
        numbers, refused = [x], sums[0] if len(sums) == 1 else graph("Sum", *sums)
    codes = {column: encoded(graph, model, column) for column in scorer.categories}
    outputs = [_net_output(graph, numbers, net, codes) for net in nets]
    mean = outputs[0] if len(outputs) == 1 else graph("Mean", *outputs)
    # The columns are one, or those of nets that share weights.
    scores = graph("ReduceMean", mean, axes=[1], keepdims=0)
    if refused is None:
        return scores
    if model.per_query:
        refused = graph("ReduceSum", refused, np.array([0]))
    return graph("Add", scores, refused)


def _net_output(
    graph: Graph, numbers: list[str], scorer: "Scorer", codes: Mapping[int, str]
) -> str:
    """The output of one net; `numbers` names its numeric features, if any, and `codes` others."""
    parts = list(numbers)
    if scorer.numbers is not None:
        parts = [add_layer(graph, x, scorer.numbers) for x in numbers]
    for (column, count), table in zip(scorer.categories.items(), scorer.embeddings, strict=True):
        parts.append(_embedded(graph, codes[column], count, table))
    x = parts[0] if len(parts) == 1 else graph("Concat", *parts, axis=1)
    for layer in scorer.layers:
        x = add_layer(graph, x, layer)
    return x


def _embedded(graph: Graph, x: str, count: int, table: Any) -> str:
    """The embedding of codes; values that are no code use the last row."""
    end = np.float32(count)
    within = graph("And", graph("GreaterOrEqual", x, np.float32(0)), graph("Less", x, end))
    known = graph("And", within, graph("Equal", x, graph("Floor", x)))
    number = graph.cast(graph("Where", known, x, end), np.int64)
    return graph("Gather", values_of(table.weight), number, axis=0)


def add_layer(graph: Graph, x: str, layer: nn.Module) -> str:
    """Append a layer, and return the name of its result."""
    kind = type(layer)
    if kind in _ACTIVATIONS:
        operator, options = _ACTIVATIONS[kind]
        return graph(operator, x, **options)
    for base in kind.__mro__:
        if base.__name__ in _LAYERS:
            return _LAYERS[base.__name__](graph, x, layer)
    raise InputError(f"A layer {kind.__name__} can't be exported to ONNX.")


def values_of(tensor: Tensor | None) -> Any:
    """The values of a weight."""
    assert tensor is not None  # our norms always have weights and running statistics
    return tensor.detach().cpu().numpy()


def _linear(graph: Graph, x: str, layer: nn.Linear) -> str:
    return graph("Gemm", x, values_of(layer.weight), values_of(layer.bias), transB=1)


def _shared_linear(graph: Graph, x: str, layer: "SharedLinear") -> str:
    return graph("Add", _product(graph, x, layer), values_of(layer.bias))


def _product(graph: Graph, x: str, layer: Any) -> str:
    """A linear layer, shared by several nets or not, without its bias."""
    weight = values_of(layer.weight)
    if not hasattr(layer, "scale"):
        return graph("MatMul", x, weight.T)
    scale, outputs = values_of(layer.scale), len(weight) * layer.models
    if layer.first:
        weights = (weight * scale[:, None]).reshape(outputs, -1)
        z = graph("MatMul", x, weights.T)
    else:
        scaled = graph("Mul", _reshaped(graph, x, *scale.shape), scale)
        z = _reshaped(graph, graph("MatMul", scaled, weight.T), outputs)
    if layer.output_scale is None:
        return z
    return graph("Mul", z, values_of(layer.output_scale))


def _separate_linear(graph: Graph, x: str, layer: "SeparateLinear") -> str:
    """Σ_i x_ki · w_ki + b_k of every net k."""
    weight = values_of(layer.weight)
    products = graph("Mul", _reshaped(graph, x, *weight.shape), weight)
    sums = graph("ReduceSum", products, np.array([2]), keepdims=0)
    return graph("Add", sums, values_of(layer.bias))


def _pooled_linear(graph: Graph, x: str, layer: "PooledLinear") -> str:
    """W x + U [mean(x), max(x)] + b."""
    mean = graph.cast(graph("ReduceMean", graph.cast(x, np.float64), axes=[0]), np.float32)
    by_net = [
        _reshaped(graph, values, -1, layer.linear.in_features)
        for values in (mean, graph("ReduceMax", x, axes=[0]))
    ]
    pooled = _reshaped(graph, graph("Concat", *by_net, axis=2), -1)
    products = _product(graph, x, layer.linear), _product(graph, pooled, layer.context)
    return graph("Sum", *products, values_of(layer.bias))


def _attention(graph: Graph, x: str, block: "AttentionBlock") -> str:
    """The block's formulas for one query: values are [documents, nets, width]."""
    width, nets_width = block.width, graph("Shape", x, start=1)
    values = _reshaped(graph, x, -1, width)
    q, k, v = _projected(graph, _layer_norm(graph, values, block.norm), block.project, block, 3)
    if block.points is not None and block.reproject is not None:
        head = width // block.heads
        points = values_of(block.points).reshape(-1, 1, block.heads, head).transpose(1, 2, 0, 3)
        seen = _merged(graph, _attended(graph, points, k, v, head), width)
        k, v = _projected(graph, seen, block.reproject, block, 2)
    attended = _merged(graph, _attended(graph, q, k, v, width // block.heads), width)
    values = graph("Add", values, _affine(graph, attended, block.mix))
    hidden = _affine(graph, _layer_norm(graph, values, block.second_norm), block.widen)
    values = graph("Add", values, _affine(graph, graph("Relu", hidden), block.narrow))
    rows = graph("Concat", np.array([0]), nets_width, axis=0)
    return graph("Reshape", values, rows)


def _projected(
    graph: Graph, x: str, layer: nn.Linear, block: "AttentionBlock", parts: int
) -> list[str]:
    """Parts of a projection, each [nets, heads, documents, width / heads]."""
    weight, bias = values_of(layer.weight), values_of(layer.bias)
    results = []
    for w, b in zip(np.split(weight, parts), np.split(bias, parts), strict=True):
        values = graph("Add", graph("MatMul", x, w.T), b)
        shape = np.array([0, 0, block.heads, block.width // block.heads])
        results.append(graph("Transpose", graph("Reshape", values, shape), perm=[1, 2, 0, 3]))
    return results


def _attended(graph: Graph, q: Any, k: str, v: str, head: int) -> str:
    """softmax(q kᵀ / √d) v."""
    products = graph("MatMul", q, graph("Transpose", k, perm=[0, 1, 3, 2]))
    weights = graph("Softmax", graph("Mul", products, np.float32(1 / math.sqrt(head))), axis=-1)
    return graph("MatMul", weights, v)


def _merged(graph: Graph, x: str, width: int) -> str:
    """[nets, heads, rows, width / heads] as [rows, nets, width]."""
    moved = graph("Transpose", x, perm=[2, 0, 1, 3])
    return graph("Reshape", moved, np.array([0, 0, width]))


def _affine(graph: Graph, x: str, layer: nn.Linear) -> str:
    return graph("Add", graph("MatMul", x, values_of(layer.weight).T), values_of(layer.bias))


def _reshaped(graph: Graph, x: str, *shape: int) -> str:
    """Another shape of every document's values."""
    return graph("Reshape", x, np.array([0, *shape], np.int64))


def _batch_norm(graph: Graph, x: str, layer: nn.BatchNorm1d) -> str:
    tensors = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
    return graph("BatchNormalization", x, *map(values_of, tensors), epsilon=layer.eps)


def _layer_norm(graph: Graph, x: str, layer: nn.LayerNorm) -> str:
    weight, bias = values_of(layer.weight), values_of(layer.bias)
    return graph("LayerNormalization", x, weight, bias, axis=-1, epsilon=layer.eps)


def _group_norm(graph: Graph, x: str, layer: nn.GroupNorm) -> str:
    """A layer norm of each net."""
    width = layer.num_channels // layer.num_groups
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    values = _reshaped(graph, x, layer.num_groups, width)
    values = graph("LayerNormalization", values, ones, zeros, axis=-1, epsilon=layer.eps)
    values = graph("Mul", _reshaped(graph, values, layer.num_channels), values_of(layer.weight))
    return graph("Add", values, values_of(layer.bias))


def _query_norm(graph: Graph, x: str, layer: "QueryNorm") -> str:
    """(x − mean) / √(var + ε) · weight + bias, with the statistics of this call's documents."""
    x = graph.cast(x, np.float64)
    centred = graph("Sub", x, graph("ReduceMean", x, axes=[0]))
    variance = graph("ReduceMean", graph("Mul", centred, centred), axes=[0])
    deviation = graph("Sqrt", graph("Add", variance, np.float64(layer.epsilon)))
    weight, bias = (values_of(tensor).astype(np.float64) for tensor in (layer.weight, layer.bias))
    scaled = graph("Mul", graph("Div", centred, deviation), weight)
    return graph.cast(graph("Add", scaled, bias), np.float32)


def _gelu(graph: Graph, x: str, _: nn.GELU) -> str:
    """x · (1 + erf(x / √2)) / 2; opset 17 has no Gelu."""
    error = graph("Erf", graph("Mul", x, np.float32(np.sqrt(0.5))))
    half = graph("Mul", x, np.float32(0.5))
    return graph("Mul", half, graph("Add", error, np.float32(1)))


def _silu(graph: Graph, x: str, _: nn.SiLU) -> str:
    return graph("Mul", x, graph("Sigmoid", x))


def _numbers(graph: Graph, x: str, layer: "NumericEmbedding") -> str:
    """relu(W_j v(x_j) + b_j) of each feature j."""
    weight, bias = values_of(layer.weight), values_of(layer.bias)
    column = graph("Unsqueeze", x, np.array([2]))
    if layer.frequencies is None:
        products = graph("Mul", column, weight[:, 0])
    else:
        angles = graph("Mul", column, 2 * np.float32(np.pi) * values_of(layer.frequencies))
        waves = graph("Concat", graph("Sin", angles), graph("Cos", angles), axis=2)
        rows = graph("Unsqueeze", waves, np.array([2]))  # [documents, features, 1, waves]
        products = graph("Squeeze", graph("MatMul", rows, weight), np.array([2]))
    embedded = graph("Relu", graph("Add", products, bias))
    return _reshaped(graph, embedded, bias.size)


_LAYERS: dict[str, Callable[[Graph, str, Any], str]] = {
    "Linear": _linear,
    "SharedLinear": _shared_linear,
    "SeparateLinear": _separate_linear,
    "PooledLinear": _pooled_linear,
    "AttentionBlock": _attention,
    "NumericEmbedding": _numbers,
    "BatchNorm1d": _batch_norm,
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    "QueryNorm": _query_norm,
    "GELU": _gelu,
    "SiLU": _silu,
}
"""The function that appends each layer, by the name of its class: this package does not import
those of `learning`."""
