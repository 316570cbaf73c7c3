"""Is the difference of two systems more than chance? Paired tests over lists."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError, unknown

Floats = npt.NDArray[np.float64]

RESAMPLES = 9_999
_EXACT = 13  # up to so many lists all signs are tried: 2^13 is below the number of resamples
_AT_ONCE = 1 << 22  # numbers drawn together
_NOISE = 1e-12  # differences are rounded to this share of the largest value


def _wilcoxon(difference: Floats, _: int) -> float:
    """Wilcoxon's signed-rank test (Wilcoxon 1945), lists without a difference left out."""
    from scipy.stats import wilcoxon

    return float(wilcoxon(difference).pvalue)


def _paired_t(difference: Floats, _: int) -> float:
    """Student's t test of the mean difference."""
    from scipy.stats import ttest_1samp

    if np.ptp(difference) == 0:  # the same difference everywhere: no variance to test against
        return 0.0
    return float(ttest_1samp(difference, 0).pvalue)


def _permutation(difference: Floats, random_state: int) -> float:
    """Fisher's randomisation (1935): how often random signs give a sum as far from 0.

    Few lists are given all signs that there are. Otherwise the order given counts as one of the
    resamples, so that p is never 0.
    """
    exact = difference.size <= _EXACT
    signs = _all_signs(difference.size) if exact else _signs(difference.size, random_state)
    total, reach = difference.sum(), _NOISE * np.abs(difference).sum()
    far = sum(
        int((np.abs(2 * (positive @ difference) - total) >= abs(total) - reach).sum())
        for positive in signs
    )
    return far / 2**difference.size if exact else (far + 1) / (RESAMPLES + 1)


def _all_signs(lists: int) -> Iterator[Floats]:
    """Every way to choose some of the lists, 1 where one is chosen."""
    yield (np.arange(2**lists)[:, None] >> np.arange(lists) & 1).astype(np.float64)


def _signs(lists: int, random_state: int) -> Iterator[Floats]:
    """Random ways to choose some of the lists."""
    generator = np.random.default_rng(random_state)
    for rows in _batches(lists):
        octets = np.frombuffer(generator.bytes(rows * (lists // 8 + 1)), np.uint8)
        yield np.unpackbits(octets.reshape(rows, -1), axis=1, count=lists).astype(np.float64)


def _batches(lists: int) -> Iterator[int]:
    """Numbers of resamples that are drawn together."""
    at_once = max(_AT_ONCE // lists, 1)
    for done in range(0, RESAMPLES, at_once):
        yield min(at_once, RESAMPLES - done)


TESTS: dict[str, Callable[[Floats, int], float]] = {
    "wilcoxon": _wilcoxon,
    "t": _paired_t,
    "permutation": _permutation,
}


def p_value(a: Any, b: Any, test: str = "wilcoxon", random_state: int = 0) -> float:
    """The two-sided p-value of a paired test of two systems' values, one per list.

    Lists that either leaves out (NaN) don't count; without any difference p is 1.

    >>> round(p_value([0.9, 0.8, 0.7, 0.9, 0.6], [0.5, 0.6, 0.6, 0.3, 0.1]), 4)
    0.0625
    """
    if test not in TESTS:
        raise InputError(unknown("test", str(test), TESTS))
    difference = differences(a, b)
    if difference.size < 2 or not difference.any():
        return 1.0
    return TESTS[test](difference, random_state)


def differences(a: Any, b: Any) -> Floats:
    """a − b for the lists that both have a value for, rounding errors taken out.

    The same value summed in another order differs in its last bits: that is no win, and would get
    a rank of its own in Wilcoxon's test.
    """
    first, second = (np.asarray(x, np.float64) for x in (a, b))
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(f"values {first.shape} and {second.shape} must be of the same lists")
    both = ~(np.isnan(first) | np.isnan(second))
    first, second = first[both], second[both]
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("values must be finite, or NaN where a list has none")
    step = _NOISE * max(np.abs(first).max(initial=0), np.abs(second).max(initial=0))
    difference: Floats = first - second
    return np.round(difference / step) * step if step else difference


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction (1979) of several p-values: the chance of any false alarm stays below p.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return [float(value) for value in corrected]


def confidence_interval(
    values: Any, level: float = 0.95, random_state: int = 0
) -> tuple[float, float]:
    """A bootstrap interval (percentiles; Efron 1979) of the mean over lists, NaN left out."""
    if not 0 < level < 1:
        raise InputError(f"the level of confidence must lie between 0 and 1, not {level}")
    counted = np.asarray(values, np.float64)
    counted = counted[~np.isnan(counted)]
    if counted.size < 2:
        mean = float(counted.mean()) if counted.size else float("nan")
        return mean, mean
    generator = np.random.default_rng(random_state)
    draws = (generator.integers(0, counted.size, (n, counted.size)) for n in _batches(counted.size))
    means = np.concatenate([counted[which].mean(axis=1) for which in draws])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
