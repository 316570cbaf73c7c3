"""Decimal numbers out of bytes, exactly as Python reads them into a float32."""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled

NOT_A_NUMBER, DOUBTFUL, SURE = -1, 0, 1
POWERS = np.array([float(f"1e{k}") for k in range(309)])  # to the last bit, on any machine
_EXACT = np.uint64(1 << 53)
_MOST_DIGITS = 19  # that a 64-bit number holds
_LARGEST_POWER = 10**12  # far beyond the number of digits in a line
_TOO_LARGE = 2.0**128 - 2.0**103  # from here on a float64 becomes an infinite float32
_BOUND = np.array(list(str(2**128 - 2**103 - 2**74)), np.uint8)  # and from here on text does


@compiled
def read_number(text: Any, place: Any, powers: Any) -> Any:
    """Read the number that begins at a place: (its value, where it ends, how sure that is).

    `SURE` says that as a float32 the value is Python's float32(float(text)) to the last bit,
    `DOUBTFUL` that it may be the float32 next to it.
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
        # However tiny, it stays apart from zero: a label below zero is refused.
        value = value / powers[-exponent] if exponent > -309 else min(value, 1e-300)
    exact = mantissa < _EXACT and -22 <= exponent <= 22
    # Otherwise a few units in the last place of a float64 are open: do they matter to a float32?
    same = np.float32(value * (1 - 1e-15)) == np.float32(value * (1 + 1e-15))
    return -value if negative else value, i, SURE if exact or same else DOUBTFUL


@compiled
def _read_word(text: Any, i: Any, negative: bool, point: bool) -> Any:
    """Read nan, inf or infinity, in any case."""
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


@compiled
def too_large(text: Any, place: Any, value: Any) -> bool:
    """Whether the number at a place, which was read as `value`, is not a finite float32.

    Where the last bits of the value decide, the digits are compared with those of the bound.
    """
    size = abs(value)
    if size < _TOO_LARGE * (1 - 1e-15):
        return False
    if not size < _TOO_LARGE * (1 + 1e-15):
        return True
    i, k = place, 0
    while True:
        byte = text[i]
        if 48 <= byte <= 57:
            if k or byte != 48:
                bound = _BOUND[k] if k < _BOUND.size else 0
                if byte - 48 != bound:
                    return bool(byte - 48 > bound)
                k += 1
        elif byte != 46 and i > place:
            break
        i += np.uintp(1)
    return bool(k >= _BOUND.size)
