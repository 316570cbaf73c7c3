"""Paired significance tests over lists, corrections, and bootstrap confidence intervals."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twinrank.support.arrays import Floats
from twinrank.support.errors import InputError

RESAMPLES = 9_999
_EXACT = 13  # up to this number of lists all signs are tried: 2^13 is less than RESAMPLES
_AT_ONCE = 1 << 22  # random numbers per batch
_NOISE = 1e-12  # differences are rounded to this share of the largest value


def _wilcoxon(difference: Floats, _: int) -> float:
    """Wilcoxon signed-rank test (Wilcoxon 1945); lists without a difference are left out."""
    from scipy.stats import wilcoxon

    return float(wilcoxon(difference).pvalue)


def _paired_t(difference: Floats, _: int) -> float:
    """Student's t-test of the mean difference."""
    from scipy.stats import ttest_1samp

    if np.ptp(difference) == 0:  # the variance is 0 and the t statistic infinite
        return 0.0
    return float(ttest_1samp(difference, 0).pvalue)


def _permutation(difference: Floats, random_state: int) -> float:
    """Fisher's randomisation test (1935): the share of random signs with a sum as far from 0.

    All signs are tried if there are few lists. Otherwise the observed signs count as one of the
    resamples, so that p is never 0.
    """
    exact = difference.size <= _EXACT
    signs = _all_signs(difference.size) if exact else _signs(difference.size, random_state)
    total, tolerance = difference.sum(), _NOISE * np.abs(difference).sum()
    extreme = sum(
        int((np.abs(2 * (positive @ difference) - total) >= abs(total) - tolerance).sum())
        for positive in signs
    )
    return extreme / 2**difference.size if exact else (extreme + 1) / (RESAMPLES + 1)


def _all_signs(lists: int) -> Iterator[Floats]:
    """Every subset of the lists, as rows of 0 and 1."""
    yield (np.arange(2**lists)[:, None] >> np.arange(lists) & 1).astype(np.float64)


def _signs(lists: int, random_state: int) -> Iterator[Floats]:
    """Random subsets of the lists, as rows of 0 and 1."""
    generator = np.random.default_rng(random_state)
    for rows in _batches(lists):
        octets = np.frombuffer(generator.bytes(rows * (lists // 8 + 1)), np.uint8)
        yield np.unpackbits(octets.reshape(rows, -1), axis=1, count=lists).astype(np.float64)


def _batches(lists: int) -> Iterator[int]:
    """The sizes of the batches in which resamples are drawn."""
    at_once = max(_AT_ONCE // lists, 1)
    for done in range(0, RESAMPLES, at_once):
        yield min(at_once, RESAMPLES - done)


def _bootstrap(difference: Floats, random_state: int) -> float:
    """The paired bootstrap test: resampled means of the centred differences as far from 0.

    Efron & Tibshirani, "An introduction to the bootstrap" (1993), section 16.4; Sakai (2006) uses
    it for retrieval. The observed mean counts as one of the resamples, so that p is never 0.
    """
    centred, size = difference - difference.mean(), difference.size
    generator = np.random.default_rng(random_state)
    extreme = sum(
        int((np.abs(centred[generator.integers(0, size, (rows, size))].mean(1))
             >= abs(difference.mean()) - _NOISE).sum())
        for rows in _batches(size)
    )  # fmt: skip
    return (extreme + 1) / (RESAMPLES + 1)


TESTS: dict[str, Callable[[Floats, int], float]] = {
    "wilcoxon": _wilcoxon,
    "t": _paired_t,
    "permutation": _permutation,
    "randomisation": _permutation,
    "bootstrap": _bootstrap,
}
"""The tests by name; "randomisation" is another name of the permutation test."""


def p_value(a: Any, b: Any, test: str = "wilcoxon", random_state: int = 0) -> float:
    """The two-sided p-value of a paired test of two systems.

    Parameters
    ----------
    a, b : array of float, shape (n_lists,)
        The values of the two systems on the same lists. Lists that are NaN for either system are
        left out.
    test : {"wilcoxon", "t", "permutation", "bootstrap"}, default "wilcoxon"
        The Wilcoxon signed-rank test, the paired t-test, the paired permutation test (also called
        "randomisation"), or the paired bootstrap test.
    random_state : int, default 0
        The seed of the permutation and bootstrap tests.

    Returns
    -------
    float
        The p-value; 1 if the systems do not differ on any list.

    Raises
    ------
    InputError
        If the shapes differ, a value is infinite, or the test is unknown.

    Examples
    --------
    >>> round(p_value([0.9, 0.8, 0.7, 0.9, 0.6], [0.5, 0.6, 0.6, 0.3, 0.1]), 4)
    0.0625
    """
    if test not in TESTS:
        raise InputError(argument="test", value=test, choices=TESTS)
    difference = differences(a, b)
    if difference.size < 2 or not difference.any():
        return 1.0
    return TESTS[test](difference, random_state)


def differences(a: Any, b: Any) -> Floats:
    """a − b on the lists that both systems have a value for, without rounding errors.

    The same value summed in another order differs in its last bits. Such a difference is not a win,
    and the Wilcoxon test would give it a rank.
    """
    first, second = (np.asarray(x, np.float64) for x in (a, b))
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(
            f"Arguments a and b have shapes {first.shape} and {second.shape}; both need one value "
            f"per list, for the same lists."
        )
    both = ~(np.isnan(first) | np.isnan(second))
    first, second = first[both], second[both]
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("Values must be finite, or NaN for a list without a value.")
    step = _NOISE * max(np.abs(first).max(initial=0), np.abs(second).max(initial=0))
    difference: Floats = first - second
    return np.round(difference / step) * step if step else difference


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction (1979) of p-values for the number of tests.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return [float(value) for value in corrected]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's correction (1995), which controls the false discovery rate.

    >>> benjamini_hochberg([0.01, 0.04, 0.03])
    [0.03, 0.04, 0.04]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(-p, kind="stable")
    steps = np.minimum.accumulate(p[order] * p.size / np.arange(p.size, 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return [float(value) for value in corrected]


CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "bh": benjamini_hochberg,
    "none": list,
}
"""Corrections of p-values for the number of systems, by name."""


def confidence_interval(
    values: Any, level: float = 0.95, random_state: int = 0
) -> tuple[float, float]:
    """A bootstrap confidence interval of the mean over lists (percentile method, Efron 1979).

    Parameters
    ----------
    values : array of float, shape (n_lists,)
        One value per list; NaN is left out.
    level : float, default 0.95
        The confidence level.
    random_state : int, default 0
        The seed of the resamples.

    Returns
    -------
    tuple of float
        The lower and the upper bound. Both are the mean if there are fewer than two values.

    Raises
    ------
    InputError
        If the level is not between 0 and 1.

    Examples
    --------
    >>> low, high = confidence_interval([0.2, 0.4, 0.6, 0.8])
    >>> low < 0.5 < high
    True
    """
    if not 0 < level < 1:
        raise InputError(f"The confidence level must be between 0 and 1, not {level}.")
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if known.size < 2:
        mean = float(known.mean()) if known.size else float("nan")
        return mean, mean
    generator = np.random.default_rng(random_state)
    draws = (generator.integers(0, known.size, (n, known.size)) for n in _batches(known.size))
    means = np.concatenate([known[rows].mean(axis=1) for rows in draws])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
