"""The compiled loops with logarithms; `logistic.py` and `lambdas.py` say what they are for."""

import math
from typing import Any

import numpy as np

from twinrank.support.compiled import compiled, compiled_sums


@compiled_sums
def log_one_plus(small: float, large: float) -> float:
    """log(1 + small/large) for 0 ≤ small ≤ large, to the last digits and on vector units.

    With u = small / (2·large + small), between 0 and ⅓, it is 2·artanh(u) = u · P(u²); P has degree
    9 and meets the function in the Chebyshev nodes of 0 … 1/9. A call of log would run one number
    at a time and take most of the time of a loop.
    """
    u = small / (2 * large + small)
    w = u * u
    p = 0.17780763826113302
    p = p * w + 0.09880789048764786
    p = p * w + 0.13591305485579894
    p = p * w + 0.15363676248891633
    p = p * w + 0.1818285980047391
    p = p * w + 0.22222190861346283
    p = p * w + 0.2857142911165716
    p = p * w + 0.399999999952876
    p = p * w + 0.6666666666668257
    p = p * w + 2.0
    return u * p


# The rows a = start…stop − 1 of the matrix of pairs, in ascending order of labels: lists[:, a]
# bounds the list of a, or is empty where the row isn't asked for.


@compiled_sums
def logistic_rows(
    start: int, stop: int, lists: Any, levels: Any, x: Any, E: Any, rows: Any
) -> None:
    """Σ_j log(1 + e^{x_j − x_a}) over the documents j with a lower label."""
    for a in range(start, stop):
        if lists[0, a] == lists[1, a]:
            continue
        x_a, E_a, total = x[a], E[a], 0.0
        # Unsigned indices need no check for negative ones, which keeps loops off vector units.
        for j in range(np.uintp(lists[0, a]), np.uintp(levels[0, a])):
            wrong = x[j] > x_a
            small, large = (E_a, E[j]) if wrong else (E[j], E_a)
            total += log_one_plus(small, large) + (x[j] - x_a if wrong else 0.0)
        rows[a] = total


@compiled
def wide_logistic_rows(start: int, stop: int, lists: Any, levels: Any, x: Any, rows: Any) -> None:
    """The same for lists whose scores spread too far for E: an exponential per pair."""
    for a in range(start, stop):
        if lists[0, a] < lists[1, a]:
            total = 0.0
            for j in range(lists[0, a], levels[0, a]):
                total += max(x[j] - x[a], 0.0) + math.log1p(math.exp(-abs(x[j] - x[a])))
            rows[a] = total


@compiled_sums
def meet_logs(
    alpha: float,
    centres: Any,
    node_ends: Any,
    near_begin: Any,
    near_end: Any,
    t: Any,
    upper: Any,
    lower: Any,
) -> float:
    """Σ log(1 + e^{x_j − x_i}) · (upper_i · lower_j, over grades) over the nodes of near panels."""
    total = 0.0
    for panel in range(centres.size):
        for source in range(near_begin[panel], near_end[panel]):
            shift = alpha * (centres[source] - centres[panel])
            for i in range(node_ends[panel], node_ends[panel + 1]):
                for j in range(node_ends[source], node_ends[source + 1]):
                    pairs = 0.0
                    for grade in range(upper.shape[1]):
                        pairs += upper[i, grade] * lower[j, grade]
                    step = t[j] + shift - t[i]
                    total += pairs * (max(step, 0.0) + math.log1p(math.exp(-abs(step))))
    return total
