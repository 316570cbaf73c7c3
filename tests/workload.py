"""A problem large enough for several threads, in a module that worker processes can import."""

import numpy as np
import torch

import twinrank as tr

# 60 lists, 18,000 documents, 5.4 million pairs: enough for two threads everywhere, and below the
# 32,768 elements from which torch's own operations use OpenMP threads, which no fork survives.
SIZES = [300] * 60


def problem(seed=0, sizes=SIZES, dtype=torch.float32):
    """Scores with ties, labels and lists, made without torch's threads."""
    random = np.random.default_rng(seed)
    documents = int(np.sum(sizes))
    scores = torch.from_numpy(random.standard_normal(documents).round(2)).to(dtype)
    labels = torch.from_numpy(random.integers(0, 4, documents))
    return scores, labels, tr.Lists.from_sizes(sizes)


def outcome(seed=0, **options):
    """Ranks, loss and gradient of a problem, as one row of numbers to compare bit by bit."""
    scores, labels, lists = problem(seed)
    generator = torch.Generator().manual_seed(seed)
    ranks = tr.exact_ranks(scores, lists, generator=generator)
    scores.requires_grad_()
    loss = tr.DirectLoss("nDCG", generator=generator, **options)(scores, labels, lists)
    loss.backward()
    return np.concatenate([ranks.numpy(), [loss.item()], scores.grad.numpy()])
