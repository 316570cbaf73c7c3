"""Compiled functions on bytes: ends of tokens, and decimal numbers exactly as in Python."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

from twinrank.support.compiled import compiled

NOT_A_NUMBER, DOUBTFUL, SURE = -1, 0, 1
POWERS = np.array([float(f"1e{k}") for k in range(309)])  # exact on any machine
_EXACT = np.uint64(1 << 53)
_MOST_DIGITS = 19  # in a 64-bit integer
_LARGEST_POWER = 10**12  # larger than the number of digits in a line
_TAB, _NEWLINE, _RETURN, _SPACE, _HASH = 9, 10, 13, 32, 35
_ONE = np.uintp(1)
_WORD = ir.IntType(64)
intrinsic: Any = _intrinsic  # it removes the compiler's context from the arguments


@intrinsic  # type: ignore[untyped-decorator]
def eight_bytes(_: Any, text: Any, place: Any) -> Any:  # noqa: ARG001
    """Load text[place : place + 8] as a little-endian integer.

    Unlike in NumPy's views, the place need not be a multiple of eight.
    """

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(address, _WORD.as_pointer()))
        word.align = 1
        return word

    return types.uint64(text, types.uintp), load


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(_: Any, word: Any) -> Any:  # noqa: ARG001
    """Count the trailing zero bits of a 64-bit integer; 64 for zero."""

    def count(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), count


_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TO_128 = np.uint64(0x7676767676767676)


@compiled
def leading_digits(word: Any) -> Any:
    """Count the decimal digits at the beginning of a word of eight bytes.

    After subtracting '0', a digit is below 10. Adding 118 to the low seven bits of a byte sets its
    high bit for 10 and more, and never carries into the next byte.
    """
    value = word ^ _ZEROS
    others = (((value & _LOW_BITS) + _TO_128) | value) & _HIGH_BITS
    return trailing_zeros(others) >> np.uint64(3)


@compiled
def number_of(word: Any, digits: Any) -> Any:
    """Return the integer in the first `digits` bytes of a word, which are decimal digits.

    The digits are shifted to the end of the word, with zeros before them. Then multiplications
    join digits to pairs, pairs to fours, and fours to eight digits, several at a time.
    """
    unused = (np.uint64(8) - digits) << np.uint64(3)
    value = word ^ _ZEROS
    value = (value << (unused >> np.uint64(1))) << (unused - (unused >> np.uint64(1)))
    value = value * np.uint64(10) + (value >> np.uint64(8))
    mask = np.uint64(0x000000FF000000FF)
    first = (value & mask) * np.uint64(100 + (1_000_000 << 32))
    second = ((value >> np.uint64(16)) & mask) * np.uint64(1 + (10_000 << 32))
    return (first + second) >> np.uint64(32)


@compiled
def ends_token(text: Any, i: Any) -> bool:
    """Return True at a blank, a comment or the end of a line."""
    byte = text[i]
    if byte == _SPACE or byte == _NEWLINE or byte == _TAB or byte == _HASH:  # noqa: SIM109
        return True
    return bool(byte == _RETURN and text[i + _ONE] == _NEWLINE)


@compiled
def token_end(text: Any, i: Any) -> Any:
    """Return the position after the token at i."""
    while not ends_token(text, i):
        i += _ONE
    return i


@compiled
def skip_blanks(text: Any, i: Any) -> Any:
    """Return the first position from i on that is neither a space nor a tab."""
    while text[i] == _SPACE or text[i] == _TAB:
        i += _ONE
    return i


@compiled
def line_end(text: Any, i: Any) -> Any:
    """Return the position of the next line break."""
    while text[i] != _NEWLINE:
        i += _ONE
    return i


@compiled
def same_bytes(text: Any, a: Any, a_end: Any, b: Any, b_end: Any) -> bool:
    """Return True if text[a:a_end] and text[b:b_end] are equal."""
    if a_end - a != b_end - b:
        return False
    for k in range(a_end - a):  # noqa: SIM110
        if text[a + np.uintp(k)] != text[b + np.uintp(k)]:
            return False
    return True


@compiled
def read_number(text: Any, place: Any, powers: Any) -> Any:
    """Read the number at a position; return its value, its end and how certain the value is.

    `SURE`: in float32 the value equals Python's float32(float(text)) to the last bit. `DOUBTFUL`:
    it may be an adjacent float32.
    """
    i = place
    negative = text[i] == 45
    if negative or text[i] == 43:
        i += np.uintp(1)
    mantissa, digits, exponent, seen, point = np.uint64(0), 0, 0, False, False
    while True:
        byte = text[i]
        if 48 <= byte <= 57:
            seen = True
            if digits < _MOST_DIGITS:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
                digits += mantissa != 0
                exponent -= point
            else:
                exponent += not point
        elif byte == 46 and not point:
            point = True
        else:
            break
        i += np.uintp(1)
    if not seen:
        return _read_word(text, i, negative, point)
    if text[i] | 32 == 101:
        i += np.uintp(1)
        sign = -1 if text[i] == 45 else 1
        if text[i] == 45 or text[i] == 43:
            i += np.uintp(1)
        if not 48 <= text[i] <= 57:
            return 0.0, i, NOT_A_NUMBER
        power: Any = 0
        while 48 <= text[i] <= 57:
            power = min(power * 10 + np.int64(text[i] - 48), _LARGEST_POWER)
            i += np.uintp(1)
        exponent += sign * power
    value: Any = np.float64(mantissa)
    if exponent > 0 and mantissa != 0:
        value = value * powers[exponent] if exponent < 309 else np.inf
    elif exponent < 0:
        # A tiny value must not become zero, because a negative label is an error.
        value = value / powers[-exponent] if exponent > -309 else min(value, 1e-300)
    exact = mantissa < _EXACT and -22 <= exponent <= 22
    # Otherwise the float64 may be off by a few units in the last place; check if float32 differs.
    same = np.float32(value * (1 - 1e-15)) == np.float32(value * (1 + 1e-15))
    return -value if negative else value, i, SURE if exact or same else DOUBTFUL


@compiled
def _read_word(text: Any, i: Any, negative: bool, point: bool) -> Any:
    """Read nan, inf or infinity, in upper or lower case."""
    a, b, c = text[i] | 32, text[i + np.uintp(1)] | 32, text[i + np.uintp(2)] | 32
    after = i + np.uintp(3)
    if not point and a == 110 and b == 97 and c == 110:
        return np.nan, after, SURE
    if not point and a == 105 and b == 110 and c == 102:
        value = -np.inf if negative else np.inf
        rest = (105, 110, 105, 116, 121)  # …inity
        for k in range(5):
            if text[after + np.uintp(k)] | 32 != rest[k]:
                return value, after, SURE
        return value, after + np.uintp(5), SURE
    return 0.0, i, NOT_A_NUMBER
