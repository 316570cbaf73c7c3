"""The compiled loops of `fused.py`: statistics, normalisation, activation, dropout, gradients.

Values lie row by row in one flat array. Rows are cut into chunks. All rows of a chunk share one
mean and deviation: those of its segment, a query or the whole batch. Chunks don't depend on the
number of threads. Inner loops run over groups of rows, because one row is too short for vector
units unless its width is a multiple of theirs.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic as _intrinsic

from twinrank.support.compiled import compiled
from twinrank.support.random import random_word

intrinsic: Any = _intrinsic  # it takes the compiler's context away from the arguments

_GROUP = 1000  # values in a group, about
_GROUPS_PER_CHUNK = 16  # a chunk fits into a core's own cache, where a second pass is cheap


def rows_per_chunk(width: int) -> int:
    """The number of rows in a chunk."""
    return _GROUPS_PER_CHUNK * max(_GROUP // width, 1)


_word = compiled(random_word)

DropoutKey = tuple[np.uint32, np.uint32, np.uint32]
"""Two halves of a seed, and a threshold: a value is dropped if its 32-bit hash is below it."""


def dropout_key(seed: int, p: float) -> DropoutKey:
    """The key of a dropout with probability p."""
    low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    return np.uint32(low), np.uint32(high), np.uint32(min(round(p * 2**32), 2**32 - 1))


@compiled
def _is_kept(key: Any, position: Any) -> Any:
    """True if the value at this position is kept; backward computes the same, without a mask."""
    return _word(key[0], key[1], np.uint32(position)) >= key[2]


@compiled
def drop_values(start: Any, stop: Any, x: Any, key: Any, factor: float) -> None:
    """Multiply kept values by the factor and set dropped ones to 0, in place."""
    zero, multiplier = x.dtype.type(0), x.dtype.type(factor)
    for i in range(np.uintp(start), np.uintp(stop)):
        x[i] = x[i] * multiplier if _is_kept(key, i) else zero


@intrinsic  # type: ignore[untyped-decorator]
def _expm1(_: Any, x: Any) -> Any:
    """exp(x) − 1 for x ≤ 0, accurate to the last digits; undefined for x > 0.

    It runs on vector units, whereas a call of exp runs on one number at a time. Let n be the
    integer nearest to x / log 2, and r = x − n·log 2, within ±0.35. The result is
    2ⁿ·(eʳ − 1) + (2ⁿ − 1), with eʳ − 1 from a few terms of its series. Adding 1.5·2ᵐ, where m is
    the number of fraction bits, rounds to n and leaves n in the lowest bits, which are then shifted
    into the exponent.
    """
    digits, bias, degree = (23, 127, 7) if x.bitwidth == 32 else (52, 1023, 13)

    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind, bits = context.get_value_type(x), ir.IntType(x.bitwidth)

        def of(value: float) -> Any:
            return ir.Constant(kind, value)

        def times_plus(a: Any, b: Any, c: Any) -> Any:
            product = builder.fmul(a, b, flags=("contract",))
            return builder.fadd(product, c, flags=("contract",))

        # e⁻⁶⁰ − 1 rounds to −1, so smaller values aren't needed; NaN passes through.
        (value,), minimum = arguments, of(-60.0)
        value = builder.select(builder.fcmp_ordered("<", value, minimum), minimum, value)
        rounding = of(1.5 * 2.0**digits)
        shifted = times_plus(value, of(1 / math.log(2)), rounding)
        n = builder.fsub(shifted, rounding)
        exponent = builder.add(builder.bitcast(shifted, bits), ir.Constant(bits, bias))
        power = builder.bitcast(builder.shl(exponent, ir.Constant(bits, digits)), kind)
        r = times_plus(n, of(-math.log(2)), value)
        series = of(1 / math.factorial(degree))
        for k in range(degree - 1, 1, -1):
            series = times_plus(series, r, of(1 / math.factorial(k)))
        series = times_plus(series, builder.fmul(r, r), r)
        return times_plus(power, series, builder.fsub(power, of(1.0)))

    return x(x), build


@compiled
def _tile(values: Any, row: int, tiled: Any) -> None:
    """Fill an array with copies of one row."""
    width = np.uintp(values.shape[1])
    for position in range(np.uintp(0), np.uintp(tiled.size), width):
        for j in range(width):
            tiled[position + j] = values[row, j]


@compiled
def _sum_columns(tiled: Any, parts: Any, chunk: int) -> None:
    """Add up each column of the tiled rows in double precision, and set them to 0."""
    width = np.uintp(parts.shape[1])
    for j in range(width):
        parts[chunk, j] = 0
    for position in range(np.uintp(0), np.uintp(tiled.size), width):
        for j in range(width):
            parts[chunk, j] += tiled[position + j]
            tiled[position + j] = 0


@compiled
def chunk_moments(start: int, stop: int, z: Any, bounds: Any, sums: Any, squares: Any) -> None:
    """Each chunk's Σ z and Σ (z − mean of the chunk)²."""
    width = np.uintp(sums.shape[1])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    total, centre = np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    for chunk in range(start, stop):
        # Signed indices need a check for negative ones, which would prevent vectorisation.
        first, last = np.uintp(bounds[chunk]), np.uintp(bounds[chunk + 1])
        for position in range(first, last, group):
            for j in range(min(group, last - position)):
                total[j] += z[position + j]
        _sum_columns(total, sums, chunk)
        for j in range(width):
            squares[chunk, j] = sums[chunk, j] / ((last - first) // width)
        _tile(squares, chunk, centre)
        for position in range(first, last, group):
            for j in range(min(group, last - position)):
                total[j] += (z[position + j] - centre[j]) ** 2
        _sum_columns(total, squares, chunk)


@compiled
def merge_moments(
    bounds: Any,
    segments: Any,
    sums: Any,
    squares: Any,
    epsilon: float,
    mean: Any,
    variance: Any,
    r: Any,
) -> None:
    """Mean, variance (of n, not n − 1) and 1/√(variance + ε) of each segment.

    The chunks' moments are merged as in Chan, Golub & LeVeque, "Algorithms for Computing the
    Sample Variance" (1983).
    """
    width = np.uintp(sums.shape[1])
    rows = np.zeros(len(mean), np.int64)
    for chunk in range(segments.size):
        rows[segments[chunk]] += (bounds[chunk + 1] - bounds[chunk]) // sums.shape[1]
    for chunk in range(segments.size):
        k = segments[chunk]
        for j in range(width):
            mean[k, j] += sums[chunk, j] / rows[k]
    for chunk in range(segments.size):
        k, n = segments[chunk], (bounds[chunk + 1] - bounds[chunk]) // sums.shape[1]
        for j in range(width):
            offset = sums[chunk, j] / n - mean[k, j]
            variance[k, j] += (squares[chunk, j] + n * offset**2) / rows[k]
    for k in range(len(mean)):
        for j in range(width):
            r[k, j] = 1 / np.sqrt(variance[k, j] + epsilon)


@compiled
def affine_maps(mean: Any, r: Any, weight: Any, shift: Any, bias: Any, affine: Any) -> None:
    """Write the map u = (z − affine[0])·affine[1] + affine[2] of each segment.

    The norm removes the bias; 0·bias only passes on NaN if the bias isn't finite.
    """
    for k in range(len(mean)):
        for j in range(np.uintp(mean.shape[1])):
            affine[0, k, j] = mean[k, j]
            affine[1, k, j] = r[k, j] * weight[j]
            affine[2, k, j] = shift[j] + 0 * bias[j]


@compiled
def normalise_activate(
    start: int,
    stop: int,
    z: Any,
    bounds: Any,
    segments: Any,
    affine: Any,
    curve: float,
    slope: float,
    key: Any,
    factor: float,
    out: Any,
) -> None:
    """Write φ(u)·factor, or 0 for dropped values, where u is the affine map of z.

    φ(u) is u above 0, and curve·(exp(u) − 1) + slope·u below it.
    """
    width = np.uintp(affine.shape[2])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    c, s, b = np.zeros(group, z.dtype), np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    zero, bend, incline, current = z.dtype.type(0), z.dtype.type(curve), z.dtype.type(slope), -1
    for chunk in range(start, stop):
        if segments[chunk] != current:
            current = segments[chunk]
            _tile(affine[0], current, c)
            _tile(affine[1], current, s)
            _tile(affine[2], current, b)
        last = np.uintp(bounds[chunk + 1])
        for position in range(np.uintp(bounds[chunk]), last, group):
            for j in range(min(group, last - position)):
                u = (z[position + j] - c[j]) * s[j] + b[j]
                out[position + j] = u if u > zero else bend * _expm1(u) + incline * u
            if key[2]:
                drop_values(position, min(position + group, last), out, key, factor)


@compiled
def backward_sums(
    start: int,
    stop: int,
    z: Any,
    bounds: Any,
    segments: Any,
    affine: Any,
    curve: float,
    slope: float,
    key: Any,
    factor: float,
    out: Any,
    g: Any,
    sums: Any,
    moments: Any,
) -> None:
    """Turn g = ∂L/∂out into ∂L/∂u in place, and write each chunk's Σ g and Σ g·(z − centre).

    φ′(u) follows from φ(u), since curve or slope is 0: it is 1 above 0, and
    curve·(φ + 1) + slope below it.
    """
    width = np.uintp(affine.shape[2])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    c, total, moment = np.zeros(group, z.dtype), np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    zero, one, current = z.dtype.type(0), z.dtype.type(1), -1
    # out is φ·factor, and g already includes the factor
    bend, level = z.dtype.type(curve / factor), z.dtype.type(curve + slope)
    for chunk in range(start, stop):
        if segments[chunk] != current:
            current = segments[chunk]
            _tile(affine[0], current, c)
        last = np.uintp(bounds[chunk + 1])
        for position in range(np.uintp(bounds[chunk]), last, group):
            if key[2]:
                drop_values(position, min(position + group, last), g, key, factor)
            for j in range(min(group, last - position)):
                y = out[position + j]
                value = g[position + j] * (one if y > zero else bend * y + level)
                g[position + j] = value
                total[j] += value
                moment[j] += value * (z[position + j] - c[j])
        _sum_columns(total, sums, chunk)
        _sum_columns(moment, moments, chunk)


@compiled
def merge_backward_sums(
    segments: Any,
    sums: Any,
    moments: Any,
    sizes: Any,
    r: Any,
    means: Any,
    of_weight: Any,
    of_shift: Any,
) -> None:
    """Write (Σ g) / n and r²·(Σ g·(z − centre)) / n of each segment, and ∂L/∂γ and ∂L/∂β."""
    width = np.uintp(sums.shape[1])
    total, moment = np.zeros(r.shape), np.zeros(r.shape)
    for chunk in range(segments.size):
        for j in range(width):
            total[segments[chunk], j] += sums[chunk, j]
            moment[segments[chunk], j] += moments[chunk, j]
    for j in range(width):
        a, b = 0.0, 0.0
        for k in range(len(r)):
            a += moment[k, j] * r[k, j]
            b += total[k, j]
            means[0, k, j] = total[k, j] / sizes[k]
            means[1, k, j] = moment[k, j] * r[k, j] ** 2 / sizes[k]
        of_weight[j], of_shift[j] = a, b


@compiled
def input_gradient(
    start: int, stop: int, z: Any, bounds: Any, segments: Any, affine: Any, means: Any, g: Any
) -> None:
    """Turn g = ∂L/∂u into ∂L/∂z = scale·(g − means[0] − means[1]·(z − centre)) in place."""
    width = np.uintp(affine.shape[2])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    c, s = np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    m, t = np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    current = -1
    for chunk in range(start, stop):
        if segments[chunk] != current:
            current = segments[chunk]
            _tile(affine[0], current, c)
            _tile(affine[1], current, s)
            _tile(means[0], current, m)
            _tile(means[1], current, t)
        last = np.uintp(bounds[chunk + 1])
        for position in range(np.uintp(bounds[chunk]), last, group):
            for j in range(min(group, last - position)):
                x = z[position + j] - c[j]
                g[position + j] = s[j] * (g[position + j] - m[j] - t[j] * x)
