"""Attacks on numbers: losses, ranks and measures against references, on adversarial scores."""

import numpy as np
import torch

import baseline_references
import twinrank as tr
from twinrank.core.losses import loss as loss_by_name
from twinrank.core.ranks.kernels import pair_sum

from .harness import attack
from .parsers import ndcg, pair_sum_rows, ranks_by_sorting

STRATEGIES = ("type1", "type2", "type3")
KERNELS = ("auto", "numba", "long", "torch")


def scores_of(random, size, dtype):
    """Scores of an adversarial kind."""
    largest = 1e38 if dtype == np.float32 else 1e300
    plain = random.normal(size=size)
    far = plain.copy()
    far[random.integers(0, size, 3)] = random.choice([largest, -largest, 1e20, -1e17, 3e9], 3)
    kinds = [
        plain,
        plain * 10.0 ** random.integers(-45, 6),
        far,
        plain * largest * 1e-2,
        random.choice([0.0, -0.0], size),
        random.choice([0.0, -0.0, 1e-45, -1e-45, 1.2e-38], size),
        np.round(plain * 2) / 2,
        np.full(size, plain[0]),
        random.choice([0.0, 1e6, -1e6, largest], size) + np.round(plain, 1),
        np.sort(plain) * 100,
        1e7 + np.round(plain * 4),
    ]
    return kinds[random.integers(len(kinds))].astype(dtype)


@attack("numbers: gradients of all kernels")
def gradients(random, folder):
    """Pair sums against an O(m²) formula in float64; 50,000 documents by sampled rows."""
    turn = 0
    while True:
        turn += 1
        size = 50_000 if turn % 150 == 0 else int(random.choice([2, 3, 7, 40, 300, 1600]))
        dtype = (np.float32, np.float64)[random.integers(2)]
        y = scores_of(random, size, dtype)
        if size > 10_000:
            y = random.normal(size=size).astype(dtype)
            y[:3] = 1e9, -1e12, 3e5
        labels = random.integers(0, 5, size).astype(dtype)
        g = (random.normal(size=size) * (labels > 0)).astype(dtype)
        alpha = float(random.choice([0.1, 1.0, 3.0, 30.0]))
        rows = np.arange(size) if size <= 300 else random.integers(0, size, 25)
        for strategy in STRATEGIES:
            expected = pair_sum_rows(y, labels, g, strategy, alpha, rows)
            largest = np.abs(g).max() * alpha * size
            for kernel in KERNELS if size < 10_000 else KERNELS[:1]:
                lists = tr.Lists.from_sizes([size])
                actual = pair_sum(
                    y, labels, g, lists, strategy=strategy, alpha=alpha, kernel=kernel
                )[rows]
                precision = 1e-5 if dtype == np.float32 else 1e-9  # sums are rounded, too
                wrong = np.abs(actual - expected).max()
                bound = precision * max(np.abs(expected).max(), largest / size)
                bound += 1e-7 * largest if dtype == np.float32 else 1e-13 * largest
                assert wrong <= bound, (kernel, strategy, alpha, size, dtype, y[:8], wrong, bound)
                yield


@attack("numbers: losses")
def losses(random, folder):
    """Values and gradients of all losses against autograd references."""
    while True:
        for name, reference in baseline_references.REFERENCES.items():
            size = int(random.integers(2, 30))  # with a relevant document
            scale = 10.0 ** random.integers(-3, 3)
            scores = torch.from_numpy(random.permutation(size * 3)[:size] * scale / size)
            labels = torch.from_numpy(random.permutation(size).astype(np.float64)) / 4
            scores.requires_grad_()
            expected = reference(scores, labels)
            gradient = torch.zeros_like(scores)
            if expected.requires_grad:
                (gradient,) = torch.autograd.grad(expected, scores)
            other = scores.detach().clone().requires_grad_()
            loss = loss_by_name(name, "default")
            value = loss(other, labels, tr.Lists.from_sizes([size]))
            value.backward()
            size_of = max(1.0, abs(float(expected.detach())))
            assert abs(float(value.detach()) - float(expected.detach())) <= 1e-6 * size_of, name
            wrong = float((other.grad - gradient).abs().max())
            assert wrong <= 1e-6 * max(1.0, float(gradient.abs().max())), (name, wrong)
            yield


@attack("numbers: ranks and nDCG")
def ranks(random, folder):
    """Exact ranks and nDCG@k of many lists against sorting and the definition."""
    turn = 0
    while True:
        turn += 1
        sizes = random.integers(1, 60, 8)
        if turn % 60 == 0:
            sizes = np.array([50_000])
        dtype = (np.float32, np.float64)[random.integers(2)]
        scores = np.concatenate([scores_of(random, max(size, 4), dtype)[:size] for size in sizes])
        labels = random.integers(0, 5, scores.size).astype(np.float32)
        lists = tr.Lists.from_sizes(sizes)
        result = np.asarray(tr.exact_ranks(scores, lists, ties="stable"))
        k = int(random.integers(1, 20))
        values = tr.evaluate(scores, labels, lists, [f"nDCG@{k}"], ties="stable")
        means = []
        for docs in lists:
            expected = ranks_by_sorting(scores[docs], range(docs.stop - docs.start))
            assert result[docs].tolist() == expected, scores[docs][:20]
            means.append(ndcg(expected, labels[docs], k))
            random_ranks = np.asarray(
                tr.exact_ranks(scores[docs], tr.Lists.from_sizes([len(expected)]))
            )
            assert sorted(random_ranks.tolist()) == list(range(1, len(expected) + 1))
            better = scores[docs][np.argsort(random_ranks)]
            assert (np.diff(better) <= 0).all()
            yield
        known = [value for value in means if value is not None]
        if known:
            mean = float(values[f"nDCG@{k}"])
            assert abs(mean - np.mean(known)) < 1e-9 or len(known) < len(means), (mean, known)
