"""Eight bytes at a time: the arithmetic behind fast reading of decimal numbers."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

from twinrank.support.compiled import compiled

_WORD = ir.IntType(64)
intrinsic: Any = _intrinsic  # it takes the compiler's context away from the arguments


@intrinsic  # type: ignore[untyped-decorator]
def eight_bytes(_: Any, text: Any, place: Any) -> Any:  # noqa: ARG001
    """The bytes text[place : place + 8] as one number, the first byte in its lowest digits.

    The place need not be a multiple of eight, which NumPy's views ask for.
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
    """How many low bits of a 64-bit number are zero; 64 for zero."""

    def count(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), count


_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TO_128 = np.uint64(0x7676767676767676)


@compiled
def leading_digits(word: Any) -> Any:
    """How many of a word's eight bytes, from the first on, are decimal digits.

    Less '0', a digit is below 10; adding 118 to a byte's low seven bits sets its high bit from 10
    on, and never carries into the next byte.
    """
    value = word ^ _ZEROS
    others = (((value & _LOW_BITS) + _TO_128) | value) & _HIGH_BITS
    return trailing_zeros(others) >> np.uint64(3)


@compiled
def number_of(word: Any, digits: Any) -> Any:
    """The number that a word's first `digits` bytes spell, all of them decimal digits.

    The digits move up to the end of the word, with zeros before them; then neighbours are joined
    to pairs, pairs to fours and fours to eight digits, by multiplications that do several at once.
    """
    unused = (np.uint64(8) - digits) << np.uint64(3)
    value = word ^ _ZEROS
    value = (value << (unused >> np.uint64(1))) << (unused - (unused >> np.uint64(1)))
    value = value * np.uint64(10) + (value >> np.uint64(8))
    mask = np.uint64(0x000000FF000000FF)
    first = (value & mask) * np.uint64(100 + (1_000_000 << 32))
    second = ((value >> np.uint64(16)) & mask) * np.uint64(1 + (10_000 << 32))
    return (first + second) >> np.uint64(32)
