"""Embeddings for the tests of their loss, and steps that several processes take.

Processes import this module only, since importing the tests takes seconds.
"""

from functools import partial
from pathlib import Path

import torch

from twinrank.embeddings import EmbeddingRankingLoss

exact = partial(EmbeddingRankingLoss, perturbation=0, samples=1)  # nothing is random
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 3, 2, 1, 0])  # the one of 3 is alone


def made(items=10, dimensions=4, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(items, dimensions, generator=random, dtype=torch.float64)


def step(rank, size):
    """Two steps with a memory: the gradients of the second, and the memory."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3, dtype=torch.float64)
    model = torch.nn.parallel.DistributedDataParallel(net) if size > 1 else net
    loss = exact(memory_size=12, gather_across_devices=size > 1)
    share = slice(0, 4) if rank == 0 else slice(4, 10)  # of different sizes
    share = share if size > 1 else slice(0, 10)
    for seed in (1, 2):
        model.zero_grad()
        loss(model(made(seed=seed)[share]), LABELS[share]).backward()
    return [*(p.grad for p in net.parameters()), loss.memory[0]]


def work(folder):
    """What each of two processes does."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.save(step(rank, 2), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()
