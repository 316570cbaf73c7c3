"""The pair sum of long lists in torch operations: the panels of `panels.py` on any device.

The mathematics is that of `panels.py`, with shapes that do not depend on values: `PANELS` panels,
of which those with documents come first, and `GRADES` grades. Every panel uses p Chebyshev nodes.
A list that needs more panels or grades is not done, as a tensor on the device says; all its pairs
are then visited. Documents are sorted by panel and grade, and their moments summed in order, so
the same input gives the same bits.
"""

import math

import numpy as np
import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.ranks.kernels import DEVICE_LONG
from twinrank.core.ranks.kernels.pairs import SCALE
from twinrank.core.ranks.strategies import RankStrategy

PANELS, GRADES = 256, 32

_FAR = 40.0
_REACH = 20
"""Panels of width 2/α whose centres are at most 40/α apart."""
_WIDEST = 1e15
_CHUNK = 1 << 18
"""Documents whose polynomials exist at the same time."""


def panels_and_pairs(
    kernel: str,
    scores: Tensor,
    labels: Tensor,
    rank_gradient: Tensor,
    lists: Lists,
    strategy: RankStrategy,
    alpha: float,
) -> Tensor:
    """∂L/∂score of every document: long lists interpolated if possible, others pair by pair.

    With Triton, tiles of lists that are done end at once, and nothing waits for the device. The
    torch kernel waits to learn which lists are done.
    """
    result, done = torch.zeros_like(scores), torch.zeros_like(scores, dtype=torch.bool)
    left = np.ones(len(lists), np.bool_)
    doubles = scores.device.type != "mps"
    for q in np.flatnonzero(lists.sizes >= DEVICE_LONG) if doubles else ():
        docs = slice(int(lists.offsets[q]), int(lists.offsets[q + 1]))
        arrays = (scores[docs], labels[docs], rank_gradient[docs])
        result[docs], done[docs] = panel_sum(*arrays, strategy, alpha)
        left[q] = kernel == "triton" or not bool(done[docs.start])
    if kernel == "triton":
        from twinrank.core.ranks.kernels.tiles import pair_sums

        pairs, _ = pair_sums(scores, labels, rank_gradient, lists, strategy, alpha, done=done)
        return torch.where(done, result, pairs)
    from twinrank.core.ranks.kernels.blocks import TorchKernel

    rest = torch.from_numpy(np.flatnonzero(lists.spread(left))).to(scores.device)
    arrays = (scores[rest], labels[rest], rank_gradient[rest])
    part = Lists.from_sizes(lists.sizes[left])
    result[rest] = TorchKernel()(*arrays, part, strategy, alpha)
    return result


def panel_sum(
    scores: Tensor,
    labels: Tensor,
    rank_gradient: Tensor,
    strategy: RankStrategy,
    alpha: float,
    accuracy: float | None = None,
) -> tuple[Tensor, Tensor]:
    """∂L/∂score of the documents of one list, and whether it could be interpolated, a tensor.

    The sum has an accuracy of 1e-7 for float32 scores and 1e-11 for float64, relative to the
    largest gradient; it is computed in float64.
    """
    single = scores.dtype != torch.float64
    p = _nodes_for(accuracy or (1e-7 if single else 1e-11))
    y, g = scores.detach().double(), rank_gradient.double()
    one_grade = strategy == "type1"
    if one_grade:
        g = g - g.mean()  # it depends on differences of g only, and small values cancel less
        labels = torch.zeros_like(y)
    panel, t, centres, used = _panels_of(y, alpha)
    grade, grades = _ordinals(labels)
    done = (used <= PANELS) & (grades <= GRADES) & (alpha * (y.max() - y.min()) < _WIDEST)
    panel, grade = panel.clamp(max=PANELS - 1), grade.clamp(max=GRADES - 1)
    columns = 1 if one_grade else GRADES
    T = _polynomials(p, y)
    weights = _weights(panel, grade, t, g, columns, T)
    field = _field(weights, centres, strategy, alpha, T)
    result = _read(field, panel, grade, t, g, -1.0 if one_grade else 1.0, T)
    return (SCALE[strategy] * alpha * result).to(scores.dtype), done


def _nodes_for(accuracy: float) -> int:
    """As `panels.nodes_for`."""
    return math.ceil(-math.log(accuracy) / math.log(math.pi + math.hypot(1, math.pi))) + 2


def _ordinals(values: Tensor) -> tuple[Tensor, Tensor]:
    """0, 1, 2, … for the distinct values in ascending order, and their number."""
    in_order, order = torch.sort(values, stable=True)
    number = torch.nn.functional.pad((in_order[1:] != in_order[:-1]).long().cumsum(0), (1, 0))
    ordinals = torch.empty_like(number)
    ordinals[order] = number
    return ordinals, number[-1] + 1


def _panels_of(y: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The panel of each document, α(y − its centre), the panels' centres, the number of panels.

    Panels without documents, at the end, have the centre ∞.
    """
    lowest = y.min()
    key = torch.floor((y - lowest) * (alpha / 2))
    panel, used = _ordinals(key)
    centre = lowest + (key + 0.5) * (2 / alpha)
    centres = torch.full((PANELS + 1,), math.inf, dtype=y.dtype, device=y.device)
    centres[panel.clamp(max=PANELS)] = centre  # all documents of a panel write the same number
    return panel, alpha * (y - centre), centres[:PANELS], used


def _polynomials(p: int, like: Tensor) -> Tensor:
    """T[n, k] = T_k(t_n): the Chebyshev polynomials at the p nodes of a panel."""
    number = torch.arange(p, dtype=like.dtype, device=like.device)
    return torch.cos(number * (math.pi * (number + 0.5) / p)[:, None])


def _at(t: Tensor, p: int) -> Tensor:
    """T_k(t) for k < p, shape (documents, p)."""
    values = [torch.ones_like(t), t]
    for _ in range(p - 2):
        values.append(2 * t * values[-1] - values[-2])
    return torch.stack(values, 1)


def _weights(panel: Tensor, grade: Tensor, t: Tensor, g: Tensor, columns: int, T: Tensor) -> Tensor:
    """Nodes with the effect of their documents: shape (panels, p, grades, 2), for 1 and g."""
    p, cells = len(T), PANELS * columns
    cell, order = torch.sort(panel * columns + grade, stable=True)
    t, g = t[order], g[order]
    bounds = torch.arange(cells + 1, device=t.device)
    moments = t.new_zeros(cells, 2 * p)
    for start in range(0, len(t), _CHUNK):
        part = slice(start, start + _CHUNK)
        values = _at(t[part], p)
        offsets = torch.searchsorted(cell[part].contiguous(), bounds)
        moments += _sums(torch.cat([values, g[part, None] * values], 1), offsets)
    moments = moments.reshape(PANELS, columns, 2, p).clone()
    moments[..., 0] /= 2
    return torch.einsum("nk,hgck->hngc", T, moments) * (2 / p)


def _sums(values: Tensor, offsets: Tensor) -> Tensor:
    """The sums of adjacent rows, in order where the device can."""
    if values.device.type in ("cpu", "cuda"):
        return torch.segment_reduce(values, "sum", offsets=offsets, axis=0, initial=0)
    totals = torch.nn.functional.pad(values.cumsum(0), (0, 0, 1, 0))
    return totals[offsets[1:]] - totals[offsets[:-1]]


def _field(
    weights: Tensor, centres: Tensor, strategy: RankStrategy, alpha: float, T: Tensor
) -> Tensor:
    """What all documents add to a target at each node, per grade of the target, for 1 and g.

    The sources of a target are lower grades with a falling σ, and higher grades with a rising σ and
    the sign of u_aj; for type1 all documents.
    """
    falling, rising = weights, torch.zeros_like(weights)
    if strategy != "type1":
        falling = torch.nn.functional.pad(weights.cumsum(2)[:, :, :-1], (0, 0, 1, 0))
        above = weights.flip(2).cumsum(2).flip(2)[:, :, 1:]
        rising = -torch.nn.functional.pad(above, (0, 0, 0, 1))
    shape = weights.shape
    falling, rising = (x.reshape(shape[0], shape[1], -1) for x in (falling, rising))
    bell = strategy != "type3"
    field = torch.zeros_like(falling)
    if not bell:  # distant panels by their totals: σ is 0 or 1
        begin = torch.searchsorted(centres, centres - _FAR / alpha)
        end = torch.searchsorted(centres, centres + _FAR / alpha, right=True)
        lower, higher = (
            torch.nn.functional.pad(x.sum(1).cumsum(0), (0, 0, 1, 0)) for x in (rising, falling)
        )
        field = field + (lower[begin] + higher[-1] - higher[end])[:, None]
    E, number = torch.exp(T[:, 1]), torch.arange(PANELS, device=T.device)
    for step in range(-_REACH, _REACH + 1):
        source = (number + step).clamp(0, PANELS - 1)
        apart = centres[source] - centres
        near = (source == number + step) & (apart.abs() <= _FAR / alpha)
        shift = torch.exp(alpha * torch.where(near, apart, 0.0))[:, None, None]
        part = near[:, None, None] / (E[:, None] + E * shift)
        fall, rise = E * shift * part, E[:, None] * part
        if bell:
            fall = rise = fall * rise
        field = field + fall @ falling[source] + rise @ rising[source]
    return field.reshape(shape)


def _read(
    field: Tensor, panel: Tensor, grade: Tensor, t: Tensor, g: Tensor, sign: float, T: Tensor
) -> Tensor:
    """Interpolate the field at the documents: ±g · (that of 1) + that of g."""
    p = len(T)
    moments = torch.einsum("nk,hngc->hgck", T, field) * (2 / p)
    moments[..., 0] /= 2
    results = []
    for start in range(0, len(t), _CHUNK):
        part = slice(start, start + _CHUNK)
        of_one, of_g = (moments[panel[part], grade[part]] * _at(t[part], p)[:, None]).sum(2).T
        results.append(sign * g[part] * of_one + of_g)
    return torch.cat(results)
