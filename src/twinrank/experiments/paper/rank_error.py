"""Tables 2 and 3 of the paper: the errors of approximate ranks."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.core.ranks.exact import exact_ranks
from twinrank.core.ranks.twin import twin_sigmoid

SIZES = (123, 1000)
LISTS = 100
ALPHAS = (1, 10, 100, 1_000, 10_000, 100_000)

TABLE_2 = {
    123: (2866.94, 350.25, 68.36, 16.45, 2.20, 0.23),
    1000: (189401.48, 17600.48, 1671.72, 488.01, 112.80, 13.67),
}
"""Published L1 of the sigmoid's ranks, per list length and α."""

TABLE_3 = {123: (0.0, 0.0), 1000: (0.03, 0.0)}
"""Published L1 of the twin-sigmoid's ranks, per list length: without and with tie breaking."""


@dataclass(frozen=True)
class RankError:
    """One cell: the mean over lists of Σ_i |rank_i − true rank_i|, and its standard error."""

    table: int
    documents: int
    method: str
    measured: float
    standard_error: float
    published: float


def sigmoid_ranks(scores: Tensor, alpha: float) -> Tensor:
    """π⁻ of Qin et al. (2010): 1 + Σ_{j≠i} σ(−α(y_i − y_j)), for a matrix of lists."""
    pairs = torch.sigmoid(alpha * (scores[:, None, :] - scores[:, :, None]))
    return 0.5 + pairs.sum(2)  # the pair (i, i) adds ½


def twin_sigmoid_ranks(scores: Tensor, priority: Tensor | None = None) -> Tensor:
    """π⁺ of the paper: 1 + Σ_{j≠i} 1 − σ⁺(y_i − y_j), for a matrix of lists.

    With a permutation as `priority`, σ⁺ of a tie is 1 for the higher number and 0 for the lower
    one, as in section 4.2; without one it is ½.
    """
    above = twin_sigmoid(scores[:, :, None] - scores[:, None, :])
    if priority is None:
        return 0.5 + (1 - above).sum(2)
    first = priority[:, :, None] > priority[:, None, :]
    return (torch.where(above == 0.5, 1.0 - first.to(above.dtype), 1 - above)).sum(2)


def true_ranks(scores: Tensor, priority: Tensor) -> Tensor:
    """Ranks by sorting, where the document with the higher priority wins a tie."""
    lists = Lists.from_sizes([scores.shape[1]] * scores.shape[0])
    order = torch.argsort(priority, dim=1, descending=True)
    ranks = exact_ranks(scores.gather(1, order).reshape(-1), lists, ties="stable")
    return torch.empty_like(scores).scatter(1, order, ranks.reshape(scores.shape))


def rank_errors(tables: Collection[int] = (2, 3), *, seed: int = 0) -> Iterator[RankError]:
    """The cells of Tables 2 and 3 on uniform float32 scores in [0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    for size in SIZES:
        scores = torch.rand(LISTS, size, generator=generator)
        priority = torch.rand(LISTS, size, generator=generator, dtype=torch.float64).argsort(1)
        for alpha, published in zip(ALPHAS, TABLE_2[size] if 2 in tables else (), strict=False):
            soft = partial(sigmoid_ranks, alpha=alpha)
            yield _cell(2, f"sigmoid, α = {alpha:,}", published, soft, scores, priority)
        if 3 not in tables:
            continue
        plain, broken = TABLE_3[size]
        yield _cell(3, "twin-sigmoid", plain, twin_sigmoid_ranks, scores, priority)
        yield _cell(
            3,
            "twin-sigmoid, ties broken",
            broken,
            twin_sigmoid_ranks,
            scores,
            priority,
            pass_on=True,
        )


def _cell(
    table: int,
    method: str,
    published: float,
    ranks: Callable[..., Tensor],
    scores: Tensor,
    priority: Tensor,
    *,
    pass_on: bool = False,
) -> RankError:
    """Measure one method; `pass_on` gives it the priorities of the true ranks."""
    truth, size = true_ranks(scores, priority), scores.shape[1]
    # A few lists at a time keep the m × m matrices below 40 MB.
    together = max(1, 10_000_000 // size**2)
    parts = (torch.split(x, together) for x in (scores, priority, truth))
    errors = [
        (ranks(part, *([first] if pass_on else [])) - true).abs().sum(1)
        for part, first, true in zip(*parts, strict=True)
    ]
    values = torch.cat(errors).double()
    spread = values.std() / len(values) ** 0.5
    return RankError(table, size, method, values.mean().item(), spread.item(), published)
