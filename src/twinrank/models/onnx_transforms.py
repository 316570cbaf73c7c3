"""Transforms of features as nodes of an ONNX graph, with the same arithmetic as ours.

Statistics are in double precision, a result is rounded to float32 after each transform, and all
documents of a call are one list. A missing value is NaN. Infinities, which our transforms refuse,
come out as NaN.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.transforms import (
    Clip,
    Compose,
    QueryMinMax,
    QueryZScore,
    SignedLog1p,
    Standardise,
    Transform,
)
from twinrank.models.columns import Apart
from twinrank.models.onnx_nodes import Nodes
from twinrank.support.errors import InputError

Columns = npt.NDArray[np.int64]

_ZERO, _ONE, _INFINITY = np.float64(0), np.float64(1), np.float64(np.inf)


def transformed(nodes: Nodes, x: str, transform: Transform, columns: Columns) -> tuple[str, str]:
    """What a transform makes of these columns, and as many zeros, NaN where it refuses a value.

    0 · result is NaN where the result isn't finite. Each transform with statistics is looked at: a
    later one would take its NaN for a missing value.
    """
    if isinstance(transform, Apart):
        transform = transform.within
    results: list[str] = []
    for one in transform.transforms if isinstance(transform, Compose) else (transform,):
        if type(one) not in NODES:
            known = ", ".join(kind.__name__ for kind in NODES)
            raise InputError(f"{one} can't be exported to ONNX; transforms that can: {known}")
        x = NODES[type(one)](nodes, x, one, columns)
        if not isinstance(one, Clip | SignedLog1p):
            results.append(x)
    if x not in results:
        results.append(x)
    zeros = [nodes("Mul", result, np.float32(0)) for result in results]
    return x, zeros[0] if len(zeros) == 1 else nodes("Sum", *zeros)


def _zscore(nodes: Nodes, x: str, _: Any, __: Columns) -> str:
    """(x − mean) · √(n / Σ(x − mean)²); sums relative to the least value, as a constant needs."""
    x, missing = _doubles(nodes, x)
    least = nodes("ReduceMin", nodes("Where", missing, _INFINITY, x), axes=[0])
    count = nodes("ReduceSum", nodes.cast(nodes("Not", missing), np.float64), np.array([0]))
    count = nodes("Max", count, _ONE)
    above = nodes("Where", missing, _ZERO, nodes("Sub", x, least))
    mean = nodes("Add", least, nodes("Div", nodes("ReduceSum", above, np.array([0])), count))
    away = nodes("Where", missing, _ZERO, nodes("Sub", x, mean))
    squares = nodes("ReduceSum", nodes("Mul", away, away), np.array([0]))
    factor = nodes("Sqrt", nodes("Div", count, squares))
    factor = nodes("Where", nodes("Greater", squares, _ZERO), factor, _ZERO)
    return nodes.cast(nodes("Mul", away, factor), np.float32)


def _minmax(nodes: Nodes, x: str, _: Any, __: Columns) -> str:
    """(x − min) / (max − min)."""
    x, missing = _doubles(nodes, x)
    least = nodes("ReduceMin", nodes("Where", missing, _INFINITY, x), axes=[0])
    most = nodes("ReduceMax", nodes("Where", missing, -_INFINITY, x), axes=[0])
    spread = nodes("Sub", most, least)
    factor = nodes("Where", nodes("Greater", spread, _ZERO), nodes("Div", _ONE, spread), _ZERO)
    scaled = nodes("Mul", nodes("Sub", x, least), factor)
    return nodes.cast(nodes("Where", missing, _ZERO, scaled), np.float32)


def _standardise(nodes: Nodes, x: str, one: Standardise, columns: Columns) -> str:
    """(x − mean) / deviation, of the training data."""
    mean = np.array(one.mean_, np.float64)[columns]
    deviation = np.array(one.deviation_, np.float64)[columns]
    factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    x, missing = _doubles(nodes, x)
    scaled = nodes("Mul", nodes("Sub", x, mean), factor)
    return nodes.cast(nodes("Where", missing, _ZERO, scaled), np.float32)


def _signed_log1p(nodes: Nodes, x: str, _: Any, __: Columns) -> str:
    """sign(x) · log(1 + |x|), with log(1 + a) = log(u) · a / (u − 1), u = 1 + a as rounded.

    ONNX has no log1p; that a tiny a is lost in u doesn't matter, since u − 1 has lost it as well
    (Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
    theorem 4).
    """
    x = nodes.cast(x, np.float64)
    a = nodes("Abs", x)
    u = nodes("Add", a, _ONE)
    less = nodes("Sub", u, _ONE)
    log = nodes("Div", nodes("Mul", nodes("Log", u), a), less)
    usual = nodes("And", nodes("Greater", less, _ZERO), nodes("Less", less, _INFINITY))
    log = nodes("Where", usual, log, a)
    signed = nodes("Where", nodes("Less", x, _ZERO), nodes("Neg", log), log)
    return nodes.cast(signed, np.float32)


def _clip(nodes: Nodes, x: str, one: Clip, _: Columns) -> str:
    """min(max(x, low), high); by comparisons, which leave NaN alone, as ONNX's own may not."""
    low, high = one.bounds()
    x = nodes("Where", nodes("Less", x, low), low, x)
    return nodes("Where", nodes("Greater", x, high), high, x)


NODES: dict[type[Transform], Callable[[Nodes, str, Any, Columns], str]] = {
    QueryZScore: _zscore,
    QueryMinMax: _minmax,
    Standardise: _standardise,
    SignedLog1p: _signed_log1p,
    Clip: _clip,
}
"""How to write each transform: nodes, the name of what it is applied to, the transform, columns."""


def _doubles(nodes: Nodes, x: str) -> tuple[str, str]:
    """x in double precision, and where it is missing."""
    x = nodes.cast(x, np.float64)
    return x, nodes("IsNaN", x)
