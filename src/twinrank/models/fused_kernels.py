"""The compiled loops of a layer's norm, activation and dropout; `fused.py` says what they are for.

Values lie row by row in one flat array. Rows are cut into pieces that belong to one mean and
deviation each (`owner`), and never by the number of threads. Sums run over groups of rows at a
time: a loop over a row alone is too short for vector units where the width isn't a multiple of
theirs.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic as _intrinsic

from twinrank.support.compiled import compiled
from twinrank.support.random import random_word

intrinsic: Any = _intrinsic  # it takes the compiler's context away from the arguments

_GROUP = 1000  # values that a loop runs over, about
_PIECE = 16  # groups: few enough for a core's own cache, where a second look at them is cheap


def rows_of_a_piece(width: int) -> int:
    """How many rows are summed by themselves."""
    return _PIECE * max(_GROUP // width, 1)


_word = compiled(random_word)

Fate = tuple[np.uint32, np.uint32, np.uint32]
"""Which values fall out: two halves of a seed, and below which of 2³² random words they do."""


def fate(seed: int, p: float) -> Fate:
    """Each value falls out with probability p; with p = 0 none does."""
    low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    return np.uint32(low), np.uint32(high), np.uint32(min(round(p * 2**32), 2**32 - 1))


@compiled
def _stays(fate: Any, place: Any) -> Any:
    """Whether a value stays: the same answer on the way back, so that nothing is remembered."""
    return _word(fate[0], fate[1], np.uint32(place)) >= fate[2]


@compiled
def drop(start: Any, stop: Any, x: Any, fate: Any, factor: float) -> None:
    """Multiply what stays and set the rest to 0, in place."""
    zero, times = x.dtype.type(0), x.dtype.type(factor)
    for i in range(np.uintp(start), np.uintp(stop)):
        x[i] = x[i] * times if _stays(fate, i) else zero


@intrinsic  # type: ignore[untyped-decorator]
def _expm1(_: Any, x: Any) -> Any:
    """exp(x) − 1 for x ≤ 0 (above 0 it is anything), to the last digits and on vector units.

    With n the whole number next to x / log 2 and r = x − n·log 2, between ±0.35, it is
    2ⁿ·(eʳ − 1) + (2ⁿ − 1), and eʳ − 1 a few terms of its series. Adding 1.5·2ᵐ, m the digits of a
    number's fraction, rounds to n and leaves n in the lowest bits, from where it is moved to those
    of the exponent. A call of exp would run one number at a time.
    """
    digits, bias, degree = (23, 127, 7) if x.bitwidth == 32 else (52, 1023, 13)

    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind, bits = context.get_value_type(x), ir.IntType(x.bitwidth)

        def of(value: float) -> Any:
            return ir.Constant(kind, value)

        def times_plus(a: Any, b: Any, c: Any) -> Any:
            product = builder.fmul(a, b, flags=("contract",))
            return builder.fadd(product, c, flags=("contract",))

        # e⁻⁶⁰ is nothing beside 1; NaN stays as it is.
        (value,), least = arguments, of(-60.0)
        value = builder.select(builder.fcmp_ordered("<", value, least), least, value)
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
    """Write one row over and over."""
    width = np.uintp(values.shape[1])
    for place in range(np.uintp(0), np.uintp(tiled.size), width):
        for j in range(width):
            tiled[place + j] = values[row, j]


@compiled
def _fold(tiled: Any, parts: Any, piece: int) -> None:
    """Add up what belongs to the same column, in double precision; and clear it."""
    width = np.uintp(parts.shape[1])
    for j in range(width):
        parts[piece, j] = 0
    for place in range(np.uintp(0), np.uintp(tiled.size), width):
        for j in range(width):
            parts[piece, j] += tiled[place + j]
            tiled[place + j] = 0


@compiled
def sum_pieces(start: int, stop: int, z: Any, ends: Any, sums: Any, squares: Any) -> None:
    """Each piece's Σ z and Σ (z − mean of the piece)²."""
    width = np.uintp(sums.shape[1])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    total, centre = np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    for piece in range(start, stop):
        # Unsigned indices need no check for negative ones, which keeps loops off vector units.
        first, last = np.uintp(ends[piece]), np.uintp(ends[piece + 1])
        for place in range(first, last, group):
            for j in range(min(group, last - place)):
                total[j] += z[place + j]
        _fold(total, sums, piece)
        for j in range(width):
            squares[piece, j] = sums[piece, j] / ((last - first) // width)
        _tile(squares, piece, centre)
        for place in range(first, last, group):
            for j in range(min(group, last - place)):
                total[j] += (z[place + j] - centre[j]) ** 2
        _fold(total, squares, piece)


@compiled
def settle(
    ends: Any, owner: Any, sums: Any, squares: Any, epsilon: float, mean: Any, variance: Any, r: Any
) -> None:
    """Mean, variance (of n, not n − 1) and 1/√(variance + ε) of each owner from its pieces.

    Chan, Golub & LeVeque, "Algorithms for Computing the Sample Variance" (1983).
    """
    width = np.uintp(sums.shape[1])
    rows = np.zeros(len(mean), np.int64)
    for piece in range(owner.size):
        rows[owner[piece]] += (ends[piece + 1] - ends[piece]) // sums.shape[1]
    for piece in range(owner.size):
        o = owner[piece]
        for j in range(width):
            mean[o, j] += sums[piece, j] / rows[o]
    for piece in range(owner.size):
        o, n = owner[piece], (ends[piece + 1] - ends[piece]) // sums.shape[1]
        for j in range(width):
            apart = sums[piece, j] / n - mean[o, j]
            variance[o, j] += (squares[piece, j] + n * apart**2) / rows[o]
    for o in range(len(mean)):
        for j in range(width):
            r[o, j] = 1 / np.sqrt(variance[o, j] + epsilon)


@compiled
def line_up(mean: Any, r: Any, weight: Any, shift: Any, bias: Any, affine: Any) -> None:
    """u = (z − affine[0])·affine[1] + affine[2], for each owner.

    A bias is gone with the mean; but if it isn't finite, what follows mustn't be.
    """
    for o in range(len(mean)):
        for j in range(np.uintp(mean.shape[1])):
            affine[0, o, j] = mean[o, j]
            affine[1, o, j] = r[o, j] * weight[j]
            affine[2, o, j] = shift[j] + 0 * bias[j]


@compiled
def activate(
    start: int,
    stop: int,
    z: Any,
    ends: Any,
    owner: Any,
    affine: Any,
    bent: float,
    slope: float,
    fate: Any,
    factor: float,
    out: Any,
) -> None:
    """φ(u)·factor of u, `affine` in z, or 0 for what falls out.

    φ(u) is u above 0, and below it bent·(exp(u) − 1) + slope·u.
    """
    width = np.uintp(affine.shape[2])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    c, s, b = np.zeros(group, z.dtype), np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    zero, bend, fall, current = z.dtype.type(0), z.dtype.type(bent), z.dtype.type(slope), -1
    for piece in range(start, stop):
        if owner[piece] != current:
            current = owner[piece]
            _tile(affine[0], current, c)
            _tile(affine[1], current, s)
            _tile(affine[2], current, b)
        last = np.uintp(ends[piece + 1])
        for place in range(np.uintp(ends[piece]), last, group):
            for j in range(min(group, last - place)):
                u = (z[place + j] - c[j]) * s[j] + b[j]
                out[place + j] = u if u > zero else bend * _expm1(u) + fall * u
            if fate[2]:
                drop(place, min(place + group, last), out, fate, factor)


@compiled
def sum_back(
    start: int,
    stop: int,
    z: Any,
    ends: Any,
    owner: Any,
    affine: Any,
    bent: float,
    slope: float,
    fate: Any,
    factor: float,
    out: Any,
    g: Any,
    sums: Any,
    moments: Any,
) -> None:
    """Turn g = ∂L/∂out into ∂L/∂u in place; each piece's Σ g and Σ g·(z − centre).

    φ′(u) follows from φ(u), where only one of the two is there: 1, or bent·(φ + 1) + slope.
    """
    width = np.uintp(affine.shape[2])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    c, total, moment = np.zeros(group, z.dtype), np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    zero, one, current = z.dtype.type(0), z.dtype.type(1), -1
    # out is φ·factor, and g's factor is in it already
    bend, level = z.dtype.type(bent / factor), z.dtype.type(bent + slope)
    for piece in range(start, stop):
        if owner[piece] != current:
            current = owner[piece]
            _tile(affine[0], current, c)
        last = np.uintp(ends[piece + 1])
        for place in range(np.uintp(ends[piece]), last, group):
            if fate[2]:
                drop(place, min(place + group, last), g, fate, factor)
            for j in range(min(group, last - place)):
                y = out[place + j]
                value = g[place + j] * (one if y > zero else bend * y + level)
                g[place + j] = value
                total[j] += value
                moment[j] += value * (z[place + j] - c[j])
        _fold(total, sums, piece)
        _fold(moment, moments, piece)


@compiled
def settle_back(
    owner: Any,
    sums: Any,
    moments: Any,
    sizes: Any,
    r: Any,
    means: Any,
    of_weight: Any,
    of_shift: Any,
) -> None:
    """Each owner's (Σ g) / n and r²·(Σ g·(z − centre)) / n; the norm's own gradients."""
    width = np.uintp(sums.shape[1])
    total, moment = np.zeros(r.shape), np.zeros(r.shape)
    for piece in range(owner.size):
        for j in range(width):
            total[owner[piece], j] += sums[piece, j]
            moment[owner[piece], j] += moments[piece, j]
    for j in range(width):
        a, b = 0.0, 0.0
        for o in range(len(r)):
            a += moment[o, j] * r[o, j]
            b += total[o, j]
            means[0, o, j] = total[o, j] / sizes[o]
            means[1, o, j] = moment[o, j] * r[o, j] ** 2 / sizes[o]
        of_weight[j], of_shift[j] = a, b


@compiled
def pass_back(
    start: int, stop: int, z: Any, ends: Any, owner: Any, affine: Any, means: Any, g: Any
) -> None:
    """Turn g = ∂L/∂u into ∂L/∂z = scale·(g − means[0] − means[1]·(z − centre)) in place."""
    width = np.uintp(affine.shape[2])
    group = width * max(np.uintp(_GROUP) // width, np.uintp(1))
    c, s = np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    m, t = np.zeros(group, z.dtype), np.zeros(group, z.dtype)
    current = -1
    for piece in range(start, stop):
        if owner[piece] != current:
            current = owner[piece]
            _tile(affine[0], current, c)
            _tile(affine[1], current, s)
            _tile(means[0], current, m)
            _tile(means[1], current, t)
        last = np.uintp(ends[piece + 1])
        for place in range(np.uintp(ends[piece]), last, group):
            for j in range(min(group, last - place)):
                x = z[place + j] - c[j]
                g[place + j] = s[j] * (g[place + j] - m[j] - t[j] * x)
