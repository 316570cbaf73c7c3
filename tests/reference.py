"""The paper, equation by equation: float64, one list at a time, m × m matrices, autograd.

Nothing here is shared with the library. It stays as slow and as close to the text as it is, so that
whatever the library does to be fast has something to be held against.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


class TwinSigmoid(torch.autograd.Function):
    """σ⁺ of a matrix y_ij: forward 0, ½ or 1; backward Eq. TwinsigmoidD1, type2 or type3."""

    @staticmethod
    def forward(ctx, y, u, strategy, alpha):
        ctx.save_for_backward(y, u)
        ctx.strategy, ctx.alpha = strategy, alpha
        return torch.where(y > 0, 1.0, torch.where(y < 0, 0.0, 0.5)).to(y.dtype)

    @staticmethod
    def backward(ctx, upstream):
        y, u = ctx.saved_tensors
        sigmoid = 1 / (1 + torch.exp(-ctx.alpha * y))
        if ctx.strategy == "type1":
            slope = ctx.alpha * sigmoid * (1 - sigmoid)
        elif ctx.strategy == "type2":
            slope = u * ctx.alpha * sigmoid * (1 - sigmoid)
        else:
            slope = torch.where(u == 1, 2 * ctx.alpha * (1 - sigmoid), 0.0)
            slope = torch.where(u == -1, -2 * ctx.alpha * sigmoid, slope)
        return upstream * slope, None, None, None


def differentiable_ranks(
    scores: Tensor, labels: Tensor, permutation: Tensor, strategy: str, alpha: float
) -> Tensor:
    """π⁺(i) = 1 + Σ_{j≠i} 1 − σ⁺(y_ij), with ties rectified by a permutation's comparisons."""
    y = scores[:, None] - scores[None, :]
    u = torch.sign(labels[:, None] - labels[None, :])
    sigma = TwinSigmoid.apply(y, u, strategy, alpha)
    half = torch.where(permutation[:, None] > permutation[None, :], 0.5, -0.5)
    sigma = sigma + torch.where(y == 0, half, 0.0)
    off_diagonal = 1 - torch.eye(len(scores), dtype=scores.dtype)
    return 1 + ((1 - sigma) * off_diagonal).sum(1)


# A metric takes the ranks in ascending order (their values are 1 … m, but they are differentiable)
# and the labels in the same order.
Metric = Callable[[Tensor, Tensor], Tensor]


def precision(r, y, k=None, rel=1):
    k = k or len(y)
    return sum((y[i - 1] >= rel) * i / r[i - 1] for i in range(1, min(k, len(y)) + 1)) / k


def average_precision(r, y, k=None, divisor=None):
    total = torch.zeros((), dtype=r.dtype)
    b = (y >= 1).double()
    last = min(k or len(y), len(y))
    for j in range(1, last + 1):
        inner = sum(b[i - 1] * i / r[i - 1] for i in range(1, j + 1))
        total = total + b[j - 1] / j * inner
    divisor = divisor if divisor is not None else min(b.sum(), k or len(y))
    return total / divisor if divisor > 0 else total * 0


def paper_average_precision(r, y, k):
    ideal = torch.sort(y, descending=True).values
    return average_precision(r, y, k, divisor=ideal[:k].sum())


def dcg(r, y, k=None):
    last = min(k or len(y), len(y))
    return sum((2 ** y[i] - 1) / torch.log2(r[i] + 1) for i in range(last))


def linear_dcg(r, y, k):
    return sum(max(y[i], 0) / torch.log2(r[i] + 1) for i in range(min(k, len(y))))


def ndcg(r, y, k=None):
    ideal = dcg(_positions(y), torch.sort(y, descending=True).values, k)
    return dcg(r, y, k) / ideal if ideal > 0 else dcg(r, y, k) * 0


def err(r, y, k=None, top=None):
    top = y.max() if top is None else top
    stop = (2**y - 1) / 2**top
    total, going = torch.zeros((), dtype=r.dtype), 1.0
    for j in range(min(k or len(y), len(y))):
        total = total + going * stop[j] / r[j]
        going = going * (1 - stop[j])
    return total


def nerr(r, y, k=None):
    ideal = err(_positions(y), torch.sort(y, descending=True).values, k)
    return err(r, y, k) / ideal if ideal > 0 else err(r, y, k) * 0


def reciprocal_rank(r, y):
    hits = torch.nonzero(y >= 1)
    return 1 / r[hits[0, 0]] if len(hits) else r.sum() * 0


def recall(r, y, k):
    relevant = (y >= 1).sum()
    total = sum((y[i - 1] >= 1) * i / r[i - 1] for i in range(1, min(k, len(y)) + 1))
    return total / relevant if relevant > 0 else r.sum() * 0


def r_precision(r, y):
    relevant = int((y >= 1).sum())
    return precision(r, y, relevant) if relevant else r.sum() * 0


def success(r, y, k):
    hits = torch.nonzero(y[:k] >= 1)
    return (hits[0, 0] + 1) / r[hits[0, 0]] if len(hits) else r.sum() * 0


def linear_precision(r, y, k):
    return sum(max(y[i - 1], 0) * i / r[i - 1] for i in range(1, min(k, len(y)) + 1)) / k


def linear_rank_biased_precision(r, y, p=0.8):
    return (1 - p) * (y.clip(0) * p ** (r - 1)).sum()


def rank_biased_precision(r, y, p=0.8):
    return (1 - p) * ((y >= 1) * p ** (r - 1)).sum()


def judged(r, y):
    return sum(i / r[i - 1] for i in range(1, len(y) + 1)) / len(y)


def bpref(r, y):
    relevant, against = int((y >= 1).sum()), int((y < 1).sum())
    total, above = r.sum() * 0, 0
    for i in range(1, len(y) + 1):
        if y[i - 1] >= 1:
            share = min(above, relevant) / min(against, relevant) if above else 0
            total = total + (1 - share) * i / r[i - 1]
        else:
            above += 1
    return total / relevant if relevant else r.sum() * 0


def interpolated_precision(r, y, recall):
    relevant = (y >= 1).sum()
    precisions = {}
    for j in range(1, len(y) + 1):
        if (y[:j] >= 1).sum() >= math.floor(recall * relevant + 0.9):
            precisions[j] = float((y[:j] >= 1).sum() / j)
    best = max(precisions.values())
    j = max(j for j, value in precisions.items() if value == best)
    return precision(r, y, j) if best else r.sum() * 0


def f_measure(r, y, beta):
    relevant = (y >= 1).sum()
    P, R = precision(r, y), recall(r, y, len(y))
    # P and R have the same gradient up to a factor, so that of the sum's is that of F's numerator.
    return (beta + 1) * P * len(y) / (beta * relevant + len(y)) if relevant else R


def variety(r, y, k, beta, gain):
    """One sub-topic, which documents with a label above 0 have."""
    members = [j for j in range(len(y)) if y[j] > 0]
    own = [beta**c * gain(r[j]) for c, j in enumerate(members) if k is None or j < k]
    return sum(own, r.sum() * 0)


def variety_of_all(y, k, beta, gain):
    return sum(beta**j * gain(r) for j, r in enumerate(_positions(y, k)))


def variety_of_the_best(y, k, beta, gain):
    last = min(k or len(y), int((y > 0).sum()))
    return sum(beta**j * gain(r) for j, r in enumerate(_positions(y, last)))


def over(value, divisor, y):
    return value / divisor if (y > 0).any() else value * 0


def by_log(r):
    return 1 / torch.log2(1 + r)


def by_rank(r):
    return 1 / r


METRICS: dict[str, Metric] = {
    "nDCG": ndcg,
    "nDCG@5": lambda r, y: ndcg(r, y, 5),
    "DCG@3": lambda r, y: dcg(r, y, 3),
    "DCG(gain=linear)@5": lambda r, y: linear_dcg(r, y, 5),
    "AP": average_precision,
    "AP@4": lambda r, y: average_precision(r, y, 4),
    "AP(divisor=R)@4": lambda r, y: average_precision(r, y, 4, divisor=(y >= 1).sum()),
    "paperAP@5": lambda r, y: paper_average_precision(r, y, 5),
    "P": precision,
    "P@5": lambda r, y: precision(r, y, 5),
    "P(rel=2)@5": lambda r, y: precision(r, y, 5, rel=2),
    "P(gain=linear)@5": lambda r, y: linear_precision(r, y, 5),
    "nERR@10": lambda r, y: nerr(r, y, 10),
    "ERR(max_grade=4)": lambda r, y: err(r, y, top=4),
    "RR": reciprocal_rank,
    "Recall@5": lambda r, y: recall(r, y, 5),
    "Rprec": r_precision,
    "Success@5": lambda r, y: success(r, y, 5),
    "RBP": rank_biased_precision,
    "RBP(gain=linear)": linear_rank_biased_precision,
    "RBP(p=0.5)": lambda r, y: rank_biased_precision(r, y, 0.5),
    "Judged": judged,
    "Bpref": bpref,
    "IPrec(recall=0.5)": lambda r, y: interpolated_precision(r, y, 0.5),
    "SetF(beta=2)": lambda r, y: f_measure(r, y, 2),
    "alpha_nDCG@5": lambda r, y: over(
        variety(r, y, 5, 0.5, by_log), variety_of_the_best(y, 5, 0.5, by_log), y
    ),
    "alpha_DCG(alpha=0.2)": lambda r, y: over(
        variety(r, y, None, 0.8, by_log), variety_of_all(y, None, 0.8, by_log), y
    ),
    "nERR_IA": lambda r, y: over(
        variety(r, y, None, 0.5, by_rank), variety_of_the_best(y, None, 0.5, by_rank), y
    ),
    "ERR_IA@5": lambda r, y: over(
        variety(r, y, 5, 0.5, by_rank), variety_of_all(y, 5, 0.5, by_rank), y
    ),
}


def metric_and_gradient(
    metric: Metric, scores: np.ndarray, labels: np.ndarray, ranks: np.ndarray, strategy, alpha
) -> tuple[float, np.ndarray]:
    """One list's metric and its gradient; `ranks` says in which order ties were broken."""
    y = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    grades = torch.tensor(labels, dtype=torch.float64)
    r = differentiable_ranks(y, grades, -torch.tensor(ranks, dtype=torch.float64), strategy, alpha)
    order = torch.argsort(r)
    value = metric(r[order], grades[order])
    value = torch.as_tensor(value, dtype=torch.float64) + 0 * y.sum()
    (gradient,) = torch.autograd.grad(value, y)
    return value.item(), gradient.numpy()


def _positions(y: Tensor, last: int | None = None) -> Tensor:
    return torch.arange(1, (len(y) if last is None else last) + 1, dtype=torch.float64)
