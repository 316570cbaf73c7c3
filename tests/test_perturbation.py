"""Perturbed ranks in the loss: one pair pass for all samples, and the paper in the limit."""

import numpy as np
import pytest
import torch

import twinrank as tr
from reference import METRICS, metric_and_gradient
from test_against_paper import batch

STRATEGIES = ["type1", "type2", "type3"]


def gradient_of(loss, scores, labels, lists):
    scores = scores.clone().requires_grad_()
    loss(scores, labels, lists).backward()
    return scores.grad


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("measure", ["nDCG", "AP", "P@5", "nERR@10"])
def test_mean_over_samples_is_the_references(measure, strategy):
    """With the same noise: the mean metric and the mean of the S reference gradients.

    The reference ranks the perturbed scores but takes the sigmoid of the unperturbed ones, so its
    matrix gets unperturbed scores and, through the tie rule's place, the perturbed order.
    """
    scores, labels, lists = batch(torch.float64, seed=4)
    samples, options = 20, {"perturbation": 0.8, "samples": 20}
    ranks = tr.exact_ranks(scores, lists, generator=torch.Generator().manual_seed(1), **options)
    loss = tr.DirectLoss(
        measure,
        strategy,
        reduction="none",
        generator=torch.Generator().manual_seed(1),
        **options,
    )
    leaf = scores.clone().requires_grad_()
    losses = loss(leaf, labels, lists)
    losses.sum().backward()
    for q, docs in enumerate(lists):
        values, gradients = [], []
        for sample in range(samples):
            order_of = ranks[sample].numpy()[docs]
            value, by_rank = _metric_of_order(measure, labels.numpy()[docs], order_of)
            values.append(value)
            gradients.append(_chain(scores.numpy()[docs], labels.numpy()[docs], by_rank, strategy))
        assert losses[q].item() == pytest.approx(-np.mean(values), rel=1e-12, abs=1e-15)
        expected = -np.mean(gradients, axis=0)
        error = np.abs(leaf.grad.numpy()[docs] - expected).max()
        assert error <= 1e-9 * np.abs(expected).max() + 1e-300


def _metric_of_order(measure, labels, ranks):
    """The reference's metric and ∂metric/∂rank of an order given by its ranks."""
    r = torch.tensor(ranks, dtype=torch.float64, requires_grad=True)
    grades = torch.tensor(labels, dtype=torch.float64)
    order = torch.argsort(r)
    value = torch.as_tensor(METRICS[measure](r[order], grades[order]), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(value + 0 * r.sum(), r)
    return value.item(), gradient


def _chain(scores, labels, by_rank, strategy):
    """∂rank/∂score of the reference's matrix, at the unperturbed scores."""
    from reference import differentiable_ranks

    y = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    grades = torch.tensor(labels, dtype=torch.float64)
    r = differentiable_ranks(y, grades, torch.arange(len(y)), strategy, 1.0)
    return torch.autograd.grad(r, y, by_rank)[0].numpy()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_small_perturbation_recovers_the_paper(strategy):
    lists = tr.Lists.from_sizes([20, 7])
    draw = np.random.default_rng(0)
    scores, labels = torch.tensor(draw.standard_normal(27)), torch.tensor(draw.integers(0, 3, 27))
    paper = gradient_of(tr.DirectLoss("AP", strategy), scores, labels, lists)
    tiny = tr.DirectLoss("AP", strategy, perturbation=1e-9, samples=3)
    torch.testing.assert_close(gradient_of(tiny, scores, labels, lists), paper, rtol=1e-12, atol=0)
    for q, docs in enumerate(lists):
        arrays = [x.numpy()[docs] for x in (scores, labels)]
        ranks = tr.exact_ranks(arrays[0], tr.Lists.from_sizes([len(arrays[0])]))
        _, expected = metric_and_gradient(METRICS["AP"], *arrays, ranks, strategy, 1.0)
        np.testing.assert_allclose(-2 * paper.numpy()[docs], expected, rtol=1e-9, err_msg=str(q))


def test_one_pair_sum_for_any_number_of_samples(monkeypatch):
    import twinrank.core.ranks.twin as twin

    passes = []
    pair_sum = twin.pair_sum
    monkeypatch.setattr(
        twin, "pair_sum", lambda *a, **k: (passes.append(a[2].shape), pair_sum(*a, **k))[1]
    )
    scores, labels, lists = batch(torch.float64)
    for samples in (1, 9):
        passes.clear()
        gradient_of(tr.DirectLoss("nDCG", perturbation=1.0, samples=samples), scores, labels, lists)
        assert passes == [(lists.documents,)]


def test_samples_of_twin_ranks_add_up():
    """∂L/∂score through [S, N] ranks is the sum of what each sample would pass on alone."""
    scores, labels, lists = batch(torch.float64)
    upstream = torch.tensor(np.random.default_rng(0).standard_normal((3, lists.documents)))
    leaf = scores.clone().requires_grad_()
    tr.twin_ranks(leaf, labels, lists, perturbation=1.0, samples=3).backward(upstream)
    total = torch.zeros_like(scores)
    for row in upstream:
        alone = scores.clone().requires_grad_()
        tr.twin_ranks(alone, labels, lists).backward(row)
        total += alone.grad
    torch.testing.assert_close(leaf.grad, total, rtol=1e-10, atol=1e-13)
