"""Nets as plain layers for search engines: a matrix, a bias and an activation each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.transforms import Compose
from twinrank.deployment.forest import REMEDY
from twinrank.support.errors import Argument, InputError

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

Floats = npt.NDArray[np.float32]

_LINEAR = ("Linear", "DropoutLinear")
_ACTIVATIONS = {
    "ReLU": "relu",
    "LeakyReLU": "leakyrelu",  # both with slope 0.01
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
}


@dataclass(frozen=True, eq=False)
class Dense:
    """activation(matrix · x + bias)."""

    matrix: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    activation: str = "identity"


def dense_layers(model: "Model", target: str) -> list[Dense]:
    """The layers of a net on raw features, with its norms folded into the matrices.

    An error says why a net is not such a list of layers; `target` names the engine.
    """
    if model.per_query:
        why = f"{target} scores each document alone, but these scores depend on the whole query"
        raise InputError(f"Not exported: {why}. ", *REMEDY)
    if model.transform != Compose() or model.encoding.columns or model.categories:
        why = f"{target} takes nets on raw numbers, but this net has transforms or categories"
        raise InputError(f"Not exported: {why}. ", *REMEDY)
    net: Any = model.net  # type: ignore[attr-defined]
    if model.ensemble_size > 1:
        raise InputError(
            f"Not exported: {target} holds one net, but this model has {model.ensemble_size}. "
            f"Train with ",
            Argument("ensemble_size", 1),
            ".",
        )
    layers: list[Dense] = []
    for layer in getattr(net, "layers", [net]):
        layers = _extended(layers, layer, target)
    return layers


def net_scores(layers: list[Dense], X: Floats) -> Floats:
    """The scores in float32."""
    for layer in layers:
        z = X @ layer.matrix.astype(np.float32).T + layer.bias.astype(np.float32)
        X = _FUNCTIONS[layer.activation](z)
    return X[:, 0]


def _extended(layers: list[Dense], layer: Any, target: str) -> list[Dense]:
    """The layers with one more; norms and activations change the last."""
    kind = type(layer).__name__
    values = {name: own.detach().cpu().double().numpy() for name, own in _tensors(layer)}
    if kind in _LINEAR:
        return [*layers, Dense(values["weight"], values["bias"])]
    if layers and layers[-1].activation == "identity":
        *before, last = layers
        if kind == "BatchNorm1d":
            scale = values["weight"] / np.sqrt(values["running_var"] + layer.eps)
            bias = (last.bias - values["running_mean"]) * scale + values["bias"]
            return [*before, Dense(last.matrix * scale[:, None], bias)]
        if kind in _ACTIVATIONS:
            return [*before, Dense(last.matrix, last.bias, _ACTIVATIONS[kind])]
    raise InputError(
        f"Not exported: {target} cannot hold a layer {kind}. Use the activations relu, leaky_relu, "
        f"tanh or sigmoid with norm=batch or norm=none; or export to ONNX."
    )


def _tensors(layer: Any) -> list[tuple[str, Any]]:
    return [*layer.named_parameters(), *layer.named_buffers()]


def _sigmoid(z: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-z)), np.float32)


_FUNCTIONS: dict[str, Any] = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "leakyrelu": lambda z: np.where(z < 0, np.float32(0.01) * z, z),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
}
