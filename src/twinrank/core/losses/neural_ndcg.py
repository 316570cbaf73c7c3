"""NeuralNDCG: minus nDCG of a smooth sorting of the gains."""

import math
from typing import Any, ClassVar

import numpy as np
import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.ranking_loss import GainLoss, Reduction, on_host
from twinrank.core.measures.dcg import NDCG
from twinrank.core.measures.measure_base import ranks_to
from twinrank.support.arrays import Array, as_float
from twinrank.support.compiled import compiled, in_threads, spans
from twinrank.support.errors import check_number

SWEEPS, TOLERANCE = 50, 1e-6
"""The sweeps of the scaling stop when all columns sum to 1 within the tolerance."""
_SMALLEST = 40.0
"""Entries below e^−40 of the largest of their row are left out: no sum has digits for them."""


class NeuralNDCG(GainLoss):
    """Minus nDCG@k with a smooth permutation matrix in place of the sorted order.

    L = −Σ_i D(i) · (P G)_i with the gains G = (2^label − 1) / idealDCG@k, D(i) = 1 / log2(1 + i)
    for i ≤ k, and P from NeuralSort: row i is softmax(((m + 1 − 2i) · s_j − Σ_l |s_j − s_l|) / τ)
    over the m documents j. Sinkhorn scaling makes the rows and columns of P sum to 1: at most 50
    sweeps, columns first, until all sums are within 1e-6 of 1. The gradient is that of all sweeps.
    As τ → 0, L tends to minus nDCG@k.

    A sweep is quadratic in the documents whose scores are within about τ of each other: entries
    that do not change a sum are left out.

    Pobrotyn & Białobrzeski, "NeuralNDCG: direct optimisation of a ranking metric via differentiable
    relaxation of sorting" (2021), arXiv:2102.07831; Grover, Wang, Zweig & Ermon, "Stochastic
    optimization of sorting networks via continuous relaxations" (ICLR 2019). allRank's `neuralNDCG`
    is the same for one list; in a batch, its sweeps go on until the last list is done.

    Parameters
    ----------
    temperature : float, default 1.0
        Temperature τ of the softmax.
    k : int, optional
        Cutoff of nDCG. Default: the whole list.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Unused: this loss is not random.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    >>> scores = torch.tensor([0.0, 100.0], requires_grad=True)
    >>> round(NeuralNDCG()(scores, torch.tensor([1.0, 0.0]), Lists.from_sizes([2])).item(), 4)
    -0.6309
    """

    name: ClassVar[str] = "NeuralNDCG"

    def __init__(
        self,
        temperature: float = 1.0,
        k: int | None = None,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("temperature", temperature)
        self.temperature = temperature
        self._ndcg = NDCG(cutoff=k)  # raises an error if k is not a whole number ≥ 1
        self.k = k

    @on_host
    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Minus the smoothed nDCG, and the derivative of all sweeps."""
        scores = as_float(scores)
        order = np.lexsort((-scores, lists.index(scores)))
        gains = self._ndcg.credit(labels, lists)[order]  # nDCG's does not depend on the order
        discounts = as_float(self._ndcg.discount(ranks_to(lists.longest, scores)))
        discounts[lists.longest if self.k is None else self.k :] = 0.0
        values, sorted_slopes = np.zeros(len(lists)), np.zeros(lists.documents)
        in_threads(
            _smooth_dcgs,
            spans(lists.sizes**2, 2000),
            lists.offsets, scores[order] / self.temperature, gains, discounts, values,
            sorted_slopes,
        )  # fmt: skip
        slopes = np.empty_like(sorted_slopes)
        slopes[order] = sorted_slopes
        return -values, slopes / -self.temperature


# Documents are in descending order of scores s (in units of τ). Row i of P then has its largest
# entry at document i, and decreases on both sides. Only the entries begin[i] … end[i] − 1 of the
# row are kept, one row after the other. P = diag(u) · K · diag(v), with the rows of K from
# NeuralSort, and u and v from each sweep.


@compiled
def _smooth_dcgs(
    start: int, stop: int, offsets: Any, s: Any, gains: Any, D: Any, values: Any, slopes: Any
) -> None:
    """The smoothed DCG of lists start … stop − 1, and its gradient."""
    for q in range(start, stop):
        first, m, relevant = offsets[q], offsets[q + 1] - offsets[q], False
        for i in range(first, first + m):
            relevant = relevant or gains[i] > 0
        if relevant:
            band, entries = np.empty((3, m), np.int64), 0
            for i in range(m):
                entries = _reach(first, m, i, s, band, entries)
            K, slope = np.empty(entries), np.zeros(entries)
            for i in range(m):
                _neural_sort(first, i, s, band, K)
            u, v = np.ones((SWEEPS + 1, m)), np.ones((SWEEPS + 1, m))
            sweeps = _scale(K, band, u, v)
            values[q] = _unroll(first, K, band, u, v, sweeps, gains, D, slope)
            _through_sort(first, s, band, K, slope, slopes)


@compiled
def _reach(first: int, m: int, i: int, s: Any, band: Any, place: int) -> int:
    """Set the range of row i and its place in K; return the place of the next row."""
    # From document k to k + 1, the exponent of row i falls by (s_k − s_{k+1}) · (2(k − i) + 1).
    begin, depth = i, 0.0
    while begin > 0:
        depth += (s[first + begin - 1] - s[first + begin]) * (2 * (i - begin) + 1)
        if depth > _SMALLEST:
            break
        begin -= 1
    end, depth = i + 1, 0.0
    while end < m:
        depth += (s[first + end - 1] - s[first + end]) * (2 * (end - 1 - i) + 1)
        if depth > _SMALLEST:
            break
        end += 1
    band[0, i], band[1, i], band[2, i] = begin, end, place - begin
    return place + end - begin


@compiled
def _neural_sort(first: int, i: int, s: Any, band: Any, K: Any) -> None:
    """Row i: the softmax of exponents, of which the largest is 0."""
    begin, end, place = band[0, i], band[1, i], band[2, i]
    K[place + i], total, depth = 1.0, 1.0, 0.0
    for k in range(i - 1, begin - 1, -1):
        depth += (s[first + k] - s[first + k + 1]) * (2 * (i - 1 - k) + 1)
        K[place + k] = math.exp(-depth)
        total += K[place + k]
    depth = 0.0
    for k in range(i + 1, end):
        depth += (s[first + k - 1] - s[first + k]) * (2 * (k - 1 - i) + 1)
        K[place + k] = math.exp(-depth)
        total += K[place + k]
    for k in range(begin, end):
        K[place + k] /= total


@compiled
def _columns(K: Any, band: Any, x: Any, sums: Any) -> None:
    """Σ_i x_i K_ij of each column j."""
    for j in range(x.size):
        sums[j] = 0.0
    for i in range(x.size):
        for j in range(band[0, i], band[1, i]):
            sums[j] += x[i] * K[band[2, i] + j]


@compiled
def _rows(K: Any, band: Any, x: Any, sums: Any) -> None:
    """Σ_j K_ij x_j of each row i."""
    for i in range(x.size):
        total = 0.0
        for j in range(band[0, i], band[1, i]):
            total += K[band[2, i] + j] * x[j]
        sums[i] = total


@compiled
def _add_outer(band: Any, x: Any, y: Any, slope: Any) -> None:
    """Add x_i y_j to each entry."""
    for i in range(x.size):
        for j in range(band[0, i], band[1, i]):
            slope[band[2, i] + j] += x[i] * y[j]


@compiled
def _scale(K: Any, band: Any, u: Any, v: Any) -> int:
    """Set u and v after each sweep; return the number of sweeps."""
    m = band.shape[1]
    sums = np.empty(m)
    for sweep in range(SWEEPS):
        _columns(K, band, u[sweep], sums)
        furthest = 0.0
        for j in range(m):
            furthest = max(furthest, abs(sums[j] * v[sweep, j] - 1.0))
            v[sweep + 1, j] = 1.0 / sums[j]
        if sweep > 0 and furthest < TOLERANCE:
            return sweep
        _rows(K, band, v[sweep + 1], sums)
        for i in range(m):
            u[sweep + 1, i] = 1.0 / sums[i]
    return SWEEPS


@compiled
def _unroll(
    first: int, K: Any, band: Any, u: Any, v: Any, sweeps: int, gains: Any, D: Any, slope: Any
) -> float:
    """Σ_i D_i (P G)_i; `slope` becomes its derivative by K, back through all sweeps."""
    m, value = band.shape[1], 0.0
    sums, x, y, by_u, by_v = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for i in range(m):
        x[i], y[i] = D[i] * u[sweeps, i], v[sweeps, i] * gains[first + i]
    _add_outer(band, x, y, slope)
    _columns(K, band, x, by_v)
    _rows(K, band, y, by_u)
    for i in range(m):
        value += x[i] * by_u[i]
        by_u[i] *= D[i]
        by_v[i] *= gains[first + i]
    for sweep in range(sweeps, 0, -1):
        for i in range(m):
            x[i] = -by_u[i] * u[sweep, i] ** 2  # u = 1 / Σ_j K_ij v_j
        _add_outer(band, x, v[sweep], slope)
        _columns(K, band, x, sums)
        for j in range(m):
            y[j] = -(by_v[j] + sums[j]) * v[sweep, j] ** 2  # v = 1 / Σ_i u_i K_ij, u before it
            by_v[j] = 0.0
        _add_outer(band, u[sweep - 1], y, slope)
        _rows(K, band, y, by_u)
    return value


@compiled
def _through_sort(first: int, s: Any, band: Any, K: Any, slope: Any, slopes: Any) -> None:
    """From the derivative by K to that by s, in which tied scores have |s_j − s_l|′ = 0."""
    m = band.shape[1]
    by_distance, total = np.zeros(m), 0.0  # the distance is Σ_l |s_j − s_l|
    for i in range(m):
        place, mean = band[2, i], 0.0
        for j in range(band[0, i], band[1, i]):
            mean += K[place + j] * slope[place + j]
        for j in range(band[0, i], band[1, i]):
            exponent = K[place + j] * (slope[place + j] - mean)
            slopes[first + j] += (m - 1 - 2 * i) * exponent
            by_distance[j] -= exponent
    for j in range(m):
        total += by_distance[j]
    above, begin = 0.0, 0
    while begin < m:  # documents begin … end − 1 are tied
        end, tied = begin, 0.0
        while end < m and s[first + end] == s[first + begin]:
            tied += by_distance[end]
            end += 1
        for j in range(begin, end):
            slopes[first + j] += (m - end - begin) * by_distance[j] + total - tied - 2 * above
        above, begin = above + tied, end
