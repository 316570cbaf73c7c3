"""The baseline losses once more, as their papers write them: one list, m × m or loops, autograd.

`REFERENCES[notation](scores, labels)` takes the float64 scores and labels of one list with at
least one document and returns a scalar whose gradient autograd finds. Where a loss defines a
gradient that isn't its value's, `with_gradient` ties the two together.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Reference = Callable[[Tensor, Tensor], Tensor]


def with_gradient(value: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
    """A scalar with this value and this gradient."""
    return value.detach() + (gradient.detach() * (scores - scores.detach())).sum()


def listnet(scores: Tensor, labels: Tensor) -> Tensor:
    return -(torch.softmax(labels, 0) * torch.log_softmax(scores, 0)).sum()


def listmle(scores: Tensor, labels: Tensor) -> Tensor:
    """Documents of the same label in the order in which they come."""
    ideal = scores[torch.argsort(labels, descending=True, stable=True)]
    return sum(torch.logsumexp(ideal[i:], 0) - ideal[i] for i in range(len(ideal)))


def softmax_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    return -(labels / labels.sum() * torch.log_softmax(scores, 0)).sum()


def mse(scores: Tensor, labels: Tensor) -> Tensor:
    return ((scores - labels) ** 2).sum() / len(scores)


def sigmoid_cross_entropy(
    scores: Tensor, labels: Tensor, relevant: float = 1.0, scale: float = 1.0
) -> Tensor:
    sides = [1 if y >= relevant else -1 for y in labels.tolist()]  # 1 − σ(z) = σ(−z)
    return -sum(logsigmoid(b * scale * s) for b, s in zip(sides, scores, strict=True)) / len(sides)


def wassrank_costs(labels: Tensor) -> Tensor:
    place = 4.0 ** torch.where(labels > 0, labels, -10.0)
    costs = (place[:, None] - place[None, :]).abs()
    costs = torch.where(labels[:, None] == labels[None, :], math.e, costs)
    return costs.fill_diagonal_(0.0)


def gain_costs(labels: Tensor) -> Tensor:
    """The costs in the code of WassRank's authors."""
    gain = torch.where(labels > 0, 4.0**labels - 1, -10.0)
    costs = (gain[:, None] - gain[None, :]).abs()
    costs = torch.where(labels[:, None] == labels[None, :], math.e, costs)
    return costs.fill_diagonal_(0.0)


def sinkhorn(
    log_a: Tensor, log_b: Tensor, costs: Tensor, lam: float, sweeps: int, tolerance: float = -1.0
) -> tuple[Tensor, Tensor]:
    """log u, log v after so many sweeps of v and u, or when v hardly changes."""
    log_k, log_v = -costs / lam, torch.zeros_like(log_b)
    log_u = torch.full_like(log_a, -math.log(len(log_a)))
    for _ in range(sweeps):
        before = log_v
        log_v = log_b - torch.logsumexp(log_k + log_u[:, None], 0)
        log_u = log_a - torch.logsumexp(log_k + log_v[None, :], 1)
        if (log_v - before).abs().max() <= tolerance:
            break
    return log_u, log_v


def wassrank(scores: Tensor, labels: Tensor, lam: float = 1.0) -> Tensor:
    """The dual of the entropic problem: at its maximum, potentials are its slopes."""
    a, log_b = torch.softmax(scores, 0), torch.log_softmax(labels, 0)
    costs = wassrank_costs(labels)
    log_a = torch.log_softmax(scores, 0).detach()
    log_u, log_v = sinkhorn(log_a, log_b, costs, lam, 400_000, 1e-12)  # high costs need them
    return lam * ((a * log_u).sum() + (log_b.exp() * log_v).sum())


def wassrank_of_the_paper(scores: Tensor, labels: Tensor, costs: Tensor | None = None) -> Tensor:
    """⟨P, C⟩, and λ log u, centred, in place of its slope with respect to a."""
    a, costs = torch.softmax(scores, 0), wassrank_costs(labels) if costs is None else costs
    log_a = torch.log_softmax(scores, 0).detach()
    log_u, log_v = sinkhorn(log_a, torch.log_softmax(labels, 0), costs, 0.1, 10)
    cost = (torch.exp(log_u[:, None] - costs / 0.1 + log_v[None, :]) * costs).sum()
    (gradient,) = torch.autograd.grad(a, scores, 0.1 * (log_u - log_u.mean()))
    return with_gradient(cost, scores, gradient)


# Losses of pairs: [i, j] of a matrix belongs to the documents i and j.


def pair_losses(scores: Tensor, labels: Tensor, sigma: float) -> Tensor:
    """log(1 + e^{−σ(s_i − s_j)}) where label_i > label_j, else 0."""
    losses = torch.logaddexp(torch.zeros(()), -sigma * (scores[:, None] - scores[None, :]))
    return torch.where(labels[:, None] > labels[None, :], losses, 0.0)


def ranknet(scores: Tensor, labels: Tensor, sigma: float = 1.0) -> Tensor:
    pairs = (labels[:, None] > labels[None, :]).sum()
    return pair_losses(scores, labels, sigma).sum() / max(int(pairs), 1)


def ideal_dcg(labels: Tensor, k: int | None = None) -> Tensor:
    gains = torch.sort(2**labels - 1, descending=True).values[:k]
    return sum(gain / math.log2(2 + i) for i, gain in enumerate(gains))


def approx_ndcg(scores: Tensor, labels: Tensor, alpha: float = 10.0) -> Tensor:
    ranks = 0.5 + torch.sigmoid(alpha * (scores[None, :] - scores[:, None])).sum(1)
    return -((2**labels - 1) / ideal_dcg(labels) / torch.log2(1 + ranks)).sum()


def rank_of(scores: Tensor) -> Tensor:
    return 1.0 + (scores[None, :] > scores[:, None]).sum(1)


def lambdarank(scores: Tensor, labels: Tensor, sigma: float = 1.0, k: int | None = None) -> Tensor:
    """The change of nDCG@k, found by swapping."""
    ranks, gains = rank_of(scores), 2**labels - 1

    def ndcg(ranks: Tensor) -> Tensor:
        terms = gains / torch.log2(1.0 + ranks.double())
        return terms[ranks <= (k or len(scores))].sum() / ideal_dcg(labels, k)

    weights = torch.zeros(len(scores), len(scores), dtype=torch.float64)
    for i in range(len(scores)):
        for j in range(len(scores)):
            swapped = ranks.clone()
            swapped[i], swapped[j] = ranks[j], ranks[i]
            weights[i, j] = (ndcg(swapped) - ndcg(ranks)).abs()
    return (weights * pair_losses(scores, labels, sigma)).sum()


def lambdaloss(scores: Tensor, labels: Tensor, sigma: float = 1.0, mu: float = 10.0) -> Tensor:
    """NDCG-Loss2++ of Wang et al., with 1 / D_r = 1 / log2(1 + r)."""
    ranks, gains = rank_of(scores).double(), (2**labels - 1) / ideal_dcg(labels)
    distance = (ranks[:, None] - ranks[None, :]).abs()
    rho = (1 / torch.log2(1 + ranks[:, None]) - 1 / torch.log2(1 + ranks[None, :])).abs()
    delta = (1 / torch.log2(1 + distance) - 1 / torch.log2(2 + distance)).abs()
    weights = (rho + mu * delta) * (gains[:, None] - gains[None, :]).abs()
    weights.fill_diagonal_(0)
    return (weights * pair_losses(scores, labels, sigma)).sum() / math.log(2)


def plistmle(scores: Tensor, labels: Tensor) -> Tensor:
    """The weights of Lan et al., 2^(n−i) − 1, as a share of the first."""
    ideal = scores[torch.argsort(labels, descending=True, stable=True)]
    n = len(ideal)
    weights = [(2.0 ** (n - i) - 1) / max(2.0 ** (n - 1) - 1, 1) for i in range(1, n + 1)]
    return sum(w * (torch.logsumexp(ideal[i:], 0) - ideal[i]) for i, w in enumerate(weights))


def adr_mse(scores: Tensor, labels: Tensor, alpha: float = 1.0) -> Tensor:
    ranks = 0.5 + torch.sigmoid(alpha * (scores[None, :] - scores[:, None])).sum(1)
    better, equal = labels[None, :] > labels[:, None], labels[None, :] == labels[:, None]
    ideal = better.double().sum(1) + (equal.double().sum(1) + 1) / 2
    return ((ideal - ranks) ** 2 / torch.log2(1 + ideal)).mean()


def ndcg_loss1(scores: Tensor, labels: Tensor, sigma: float = 1.0, k: int | None = None) -> Tensor:
    """Every pair (i, j) with the weight G_i / D_i."""
    ranks, gains = rank_of(scores).double(), (2**labels - 1) / ideal_dcg(labels, k)
    weights = torch.where(ranks <= (k or len(scores)), gains / torch.log2(1 + ranks), 0.0)
    losses = torch.logaddexp(torch.zeros(()), -sigma * (scores[:, None] - scores[None, :]))
    pairs = 1 - torch.eye(len(scores), dtype=torch.float64)
    return (weights[:, None] * losses * pairs).sum() / math.log(2)


def neural_ndcg(
    scores: Tensor, labels: Tensor, temperature: float = 1.0, k: int | None = None
) -> Tensor:
    """NeuralSort as Grover et al. write it, and Sinkhorn scaling of the whole matrix."""
    m = len(scores)
    distances = (scores[:, None] - scores[None, :]).abs().sum(1)
    factors = m + 1 - 2 * torch.arange(1, m + 1, dtype=torch.float64)
    P = torch.softmax((factors[:, None] * scores[None, :] - distances[None, :]) / temperature, 1)
    for _ in range(50):
        P = P / P.sum(0, keepdim=True)
        P = P / P.sum(1, keepdim=True)
        if (P.sum(0) - 1).abs().max() < 1e-6:
            break
    discounts = 1 / torch.log2(1 + torch.arange(1, m + 1, dtype=torch.float64))
    discounts[k or m :] = 0.0
    return -(discounts * (P @ (2**labels - 1))).sum() / ideal_dcg(labels, k)


def expected_ndcg(scores: Tensor, labels: Tensor, k: int | None = None) -> Tensor:
    """Minus the mean nDCG@k over all orders, with their probabilities under Plackett–Luce."""
    total = torch.zeros((), dtype=torch.float64)
    for order in itertools.permutations(range(len(scores))):
        s, gains = scores[list(order)], (2 ** labels[list(order)] - 1)[:k]
        log_p = sum(s[i] - torch.logsumexp(s[i:], 0) for i in range(len(s)))
        dcg = sum(gain / math.log2(2 + i) for i, gain in enumerate(gains))
        total = total - log_p.exp() * dcg / ideal_dcg(labels, k)
    return total


REFERENCES: dict[str, Reference] = {
    "ListNet": listnet,
    "ListMLE": listmle,
    "SoftmaxCrossEntropy": softmax_cross_entropy,
    "MSE": mse,
    "WassRank": wassrank,
    "WassRank(smoothing=30)": lambda s, y: wassrank(s, y, 30.0),
    "WassRank(mode=paper)": lambda s, y: wassrank_of_the_paper(s, y, gain_costs(y)),
    "WassRank(mode=paper, cost=label)": wassrank_of_the_paper,
    "RankNet": ranknet,
    "RankNet(sigma=2.5)": lambda s, y: ranknet(s, y, 2.5),
    "ApproxNDCG": approx_ndcg,
    "ApproxNDCG(alpha=0.7)": lambda s, y: approx_ndcg(s, y, 0.7),
    "LambdaRank": lambdarank,
    "LambdaRank(sigma=3, k=4)": lambda s, y: lambdarank(s, y, 3.0, 4),
    "LambdaLoss": lambdaloss,
    "PListMLE": plistmle,
    "ADRMSE": adr_mse,
    "ADRMSE(alpha=2)": lambda s, y: adr_mse(s, y, 2.0),
    "LambdaLoss(sigma=0.5, mu=2)": lambda s, y: lambdaloss(s, y, 0.5, 2.0),
    "NDCGLoss1": ndcg_loss1,
    "NDCGLoss1(sigma=0.5, k=4)": lambda s, y: ndcg_loss1(s, y, 0.5, 4),
    "NeuralNDCG": neural_ndcg,
    "NeuralNDCG(temperature=0.2, k=4)": lambda s, y: neural_ndcg(s, y, 0.2, 4),
    "SigmoidCrossEntropy": sigmoid_cross_entropy,
    "SigmoidCrossEntropy(relevant=2, scale=3)": lambda s, y: sigmoid_cross_entropy(s, y, 2, 3),
    "PLRank": expected_ndcg,
    "PLRank(k=2)": lambda s, y: expected_ndcg(s, y, 2),
}

SHUFFLE_TIED_LABELS = {"ListMLE", "PListMLE"}
"""Losses that order documents of the same label at random: references hold for distinct labels."""

SAMPLED = {"PLRank"}
"""Losses of drawn rankings: references are means over all of them."""

SHUFFLE_TIED_SCORES: set[str] = {"LambdaRank", "LambdaLoss", "NDCGLoss1"}
"""Losses that order documents of the same score at random: references hold for distinct scores."""

NOT_ITS_GRADIENT = {"WassRank(mode=paper)", "WassRank(mode=paper, cost=label)"}
"""Losses that define a gradient which isn't that of their value."""
