"""A scorer as nodes of an ONNX graph: embeddings, layers, norms, activations."""

from typing import Any

import numpy as np
from torch import Tensor, nn

from twinrank.data.transforms import Transform
from twinrank.models.ensemble import Net, members_of
from twinrank.models.onnx_nodes import Nodes
from twinrank.models.onnx_transforms import transformed
from twinrank.models.scorer import QueryNorm, Scorer
from twinrank.support.errors import InputError

_ACTIVATIONS: dict[type[nn.Module], tuple[str, dict[str, float]]] = {
    nn.ReLU: ("Relu", {}),
    nn.CELU: ("Elu", {"alpha": 1.0}),  # the same for α = 1, and known to more runtimes
    nn.LeakyReLU: ("LeakyRelu", {"alpha": 0.01}),
    nn.Tanh: ("Tanh", {}),
    nn.Sigmoid: ("Sigmoid", {}),
}


def score(nodes: Nodes, scorer: Net, transform: Transform, per_query: bool) -> str:
    """The scores of X, transformed and sent through the net, all of it one query's documents.

    NaN for a document with a value that `predict` refuses, or for all documents where a score
    depends on the others.
    """
    plain = np.array([c for c in range(scorer.features) if c not in scorer.categories], np.int64)
    numbers, refused = [], None
    if plain.size:
        x = nodes("Gather", "X", plain, axis=1) if scorer.categories else "X"
        x, wrong = transformed(nodes, x, transform, plain)
        numbers, refused = [x], nodes("ReduceSum", wrong, np.array([1]), keepdims=0)
    found = [_of_member(nodes, numbers, one) for one in members_of(scorer)]
    mean = found[0] if len(found) == 1 else nodes("Mean", *found)
    scores = nodes("Squeeze", mean, np.array([1]))
    if refused is None:
        return scores
    if per_query:
        refused = nodes("ReduceSum", refused, np.array([0]))
    return nodes("Add", scores, refused)


def _of_member(nodes: Nodes, numbers: list[str], scorer: Scorer) -> str:
    """A net's score, given the features that are numbers, if any."""
    parts = list(numbers)
    for (column, count), table in zip(scorer.categories.items(), scorer.embeddings, strict=True):
        parts.append(_embedded(nodes, column, count, table))
    x = parts[0] if len(parts) == 1 else nodes("Concat", *parts, axis=1)
    for layer in scorer.layers:
        x = _layer(nodes, x, layer)
    return x


def _embedded(nodes: Nodes, column: int, count: int, table: Any) -> str:
    """The embedding of a column; values that are no category have the last one."""
    x = nodes("Gather", "X", np.int64(column), axis=1)
    within = nodes("And", nodes("GreaterOrEqual", x, np.float32(0)), nodes("Less", x, _f(count)))
    known = nodes("And", within, nodes("Equal", x, nodes("Floor", x)))
    number = nodes.cast(nodes("Where", known, x, _f(count)), np.int64)
    return nodes("Gather", _values(table.weight), number, axis=0)


def _layer(nodes: Nodes, x: str, layer: nn.Module) -> str:
    kind = type(layer)
    if kind in _ACTIVATIONS:
        operator, options = _ACTIVATIONS[kind]
        return nodes(operator, x, **options)
    if isinstance(layer, nn.Linear):
        return nodes("Gemm", x, _values(layer.weight), _values(layer.bias), transB=1)
    if isinstance(layer, nn.BatchNorm1d):
        tensors = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
        return nodes("BatchNormalization", x, *map(_values, tensors), epsilon=layer.eps)
    if isinstance(layer, nn.LayerNorm):
        weight, bias = _values(layer.weight), _values(layer.bias)
        return nodes("LayerNormalization", x, weight, bias, axis=-1, epsilon=layer.eps)
    if isinstance(layer, QueryNorm):
        return _query_norm(nodes, x, layer)
    if kind is nn.GELU:  # x · (1 + erf(x / √2)) / 2; an operator of its own came later
        error = nodes("Erf", nodes("Mul", x, np.float32(np.sqrt(0.5))))
        half = nodes("Mul", x, np.float32(0.5))
        return nodes("Mul", half, nodes("Add", error, np.float32(1)))
    if kind is nn.SiLU:
        return nodes("Mul", x, nodes("Sigmoid", x))
    raise InputError(f"a layer {kind.__name__} can't be exported to ONNX")


def _query_norm(nodes: Nodes, x: str, layer: QueryNorm) -> str:
    """(x − mean) / √(var + ε) · weight + bias, by the documents of this call."""
    x = nodes.cast(x, np.float64)
    away = nodes("Sub", x, nodes("ReduceMean", x, axes=[0]))
    variance = nodes("ReduceMean", nodes("Mul", away, away), axes=[0])
    deviation = nodes("Sqrt", nodes("Add", variance, np.float64(layer.epsilon)))
    weight, bias = (_values(one).astype(np.float64) for one in (layer.weight, layer.bias))
    scaled = nodes("Mul", nodes("Div", away, deviation), weight)
    return nodes.cast(nodes("Add", scaled, bias), np.float32)


def _values(tensor: Tensor | None) -> Any:
    assert tensor is not None  # norms of ours have weights and running statistics
    return tensor.detach().cpu().numpy()


def _f(number: int) -> np.float32:
    return np.float32(number)
