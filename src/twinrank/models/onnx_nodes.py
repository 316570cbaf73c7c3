"""ONNX graphs by hand: nodes in the order in which they run, each value by its name."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError

Value: TypeAlias = str | npt.NDArray[Any] | np.generic
"""What a node reads: another node's result by its name, or a constant."""

OPSET, IR = 17, 8
"""Old enough for any runtime since 2022; the latest operator that is used is LayerNormalization."""


def onnx_library() -> Any:
    """The package `onnx`, which is an extra."""
    try:
        import onnx
    except ImportError as missing:
        raise InputError("ONNX needs two packages: pip install 'twinrank[onnx]'") from missing
    return onnx


class Nodes:
    """A graph in the making: `nodes("Add", x, np.float32(1))` adds a node, and names its result."""

    def __init__(self) -> None:
        self._onnx = onnx_library()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def __call__(self, operator: str, *inputs: Value, **attributes: Any) -> str:
        """Add a node; its result has the operator's name and a number."""
        name = f"{operator}_{len(self._nodes)}"
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        self._nodes.append(self._onnx.helper.make_node(operator, names, [name], **attributes))
        return name

    def cast(self, x: Value, kind: type[np.generic]) -> str:
        """The same values in another type."""
        to = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self("Cast", x, to=to)

    def model(self, features: int, result: str, about: dict[str, str], summary: str) -> Any:
        """The finished model: float32 X [documents, features] in, scores [documents] out."""
        helper, floats = self._onnx.helper, self._onnx.TensorProto.FLOAT
        last = helper.make_node("Identity", [result], ["scores"])
        graph = helper.make_graph(
            [*self._nodes, last],
            "twinrank",
            [helper.make_tensor_value_info("X", floats, ["documents", features])],
            [helper.make_tensor_value_info("scores", floats, ["documents"])],
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR,
            producer_name="twinrank",
            producer_version=about["twinrank"],
            doc_string=summary,
        )
        helper.set_model_props(model, about)
        return model

    def _constant(self, values: npt.NDArray[Any] | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        array = np.ascontiguousarray(values).reshape(np.shape(values))  # the former makes 0-d 1-d
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name
