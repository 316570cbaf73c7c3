"""Every measure × strategy × kernel × precision against the paper's equations."""

import numpy as np
import pytest
import torch

import twinrank as tr
from reference import METRICS, metric_and_gradient
from twinrank.core.measures import MEASURES

KERNELS = ["numba", "long", "torch"]
STRATEGIES = ["type1", "type2", "type3"]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
# One document, nothing relevant, all labels equal, all scores tied, and some ordinary lists.
SIZES = [1, 2, 7, 9, 8, 23, 40]


def batch(dtype, seed=0, sizes=SIZES, alpha_spread=1.0):
    """Ragged lists whose scores are rounded so that many of them tie."""
    draw = np.random.default_rng(seed)
    lists = tr.Lists.from_sizes(sizes)
    scores = np.round(draw.standard_normal(lists.documents) * alpha_spread, 1)
    labels = draw.choice(5, lists.documents, p=[0.5, 0.25, 0.15, 0.06, 0.04])
    if sizes is SIZES:
        nothing, equal, tied = list(lists)[2:5]
        labels[nothing], labels[equal], scores[tied] = 0, 1, 0.5
    return torch.tensor(scores, dtype=dtype), torch.tensor(labels), lists


EXPECTED = {}


def expected(measure, strategy, alpha, *arrays):
    """The reference's value and gradient of a list, computed once for all kernels."""
    key = (measure, strategy, alpha, *(array.tobytes() for array in arrays))
    if key not in EXPECTED:
        EXPECTED[key] = metric_and_gradient(METRICS[measure], *arrays, strategy, alpha)
    return EXPECTED[key]


def compare(scores, labels, lists, measure, strategy, alpha, kernel, tolerance):
    """Value and gradient of each list, relative to the list's largest reference gradient."""
    scores = scores.clone().requires_grad_()
    ranks = tr.exact_ranks(scores, lists, generator=torch.Generator().manual_seed(7))
    loss = tr.DirectLoss(
        measure,
        strategy,
        alpha,
        reduction="none",
        generator=torch.Generator().manual_seed(7),
        kernel=kernel,
    )
    losses = loss(scores, labels, lists)
    losses.sum().backward()
    for q, docs in enumerate(lists):
        arrays = [x.detach().numpy()[docs] for x in (scores, labels, ranks)]
        value, gradient = expected(measure, strategy, alpha, *arrays)
        assert losses[q].item() == pytest.approx(-value, rel=1e-12 if tolerance < 1e-8 else 1e-6)
        error = np.abs(scores.grad.numpy()[docs] + gradient).max()
        assert error <= tolerance * np.abs(gradient).max() + 1e-300


def test_every_measure_has_its_reference():
    assert {type(tr.measure(name)) for name in METRICS} == set(MEASURES)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("measure", METRICS)
def test_every_measure_strategy_kernel(measure, strategy, kernel, dtype):
    compare(*batch(dtype), measure, strategy, 1.0, kernel, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("alpha", [0.01, 10.0, 300.0])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_alpha(strategy, kernel, alpha, dtype):
    compare(*batch(dtype, seed=1), "nDCG", strategy, alpha, kernel, TOLERANCE[dtype])


@pytest.mark.parametrize("kernel", [*KERNELS, "auto"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("spread", [0.3, 3.0, 1e4])
def test_lists_of_hundreds(strategy, kernel, spread):
    """Long enough for panels with more documents than nodes, near and far from each other."""
    data = batch(torch.float64, seed=2, sizes=[400, 3, 1600], alpha_spread=spread)
    compare(*data, "nDCG", strategy, 1.0, kernel, 1e-9)


def test_the_appendix():
    """The closed forms of ∂metric/∂rank in the paper's appendix (with log2's missing 1/ln 2)."""
    labels = np.array([2.0, 0.0, 1.0, 1.0])  # in rank order
    lists, ranks = tr.Lists.from_sizes([4]), np.array([1.0, 2.0, 3.0, 4.0])
    b, k, relevant = 1.0 * (labels > 0), 4, 3
    ideal_dcg = 3 / np.log2(2) + 1 / np.log2(3) + 1 / np.log2(4)
    stop = (2**labels - 1) / 2**2
    going = np.array([1, 1 - stop[0], 1 - stop[0], (1 - stop[0]) * (1 - stop[2])])
    ideal_err = 3 / 4 + (1 / 4) * (1 / 4) / 2 + (1 / 4) * (3 / 4) * (1 / 4) / 3
    expected = {
        "P@4": -b / (k * ranks),
        "AP": -b * np.cumsum((b / ranks)[::-1])[::-1] / relevant / ranks,
        "nDCG": -(2**labels - 1) / ideal_dcg / np.log2(ranks + 1) ** 2 / (ranks + 1) / np.log(2),
        "nERR": -going * stop / ideal_err / ranks**2,
    }
    for name, gradient in expected.items():
        _, ours, _ = tr.measure(name).at_ranks(ranks, labels, lists, gradient=True)
        np.testing.assert_allclose(ours, gradient, rtol=1e-14, atol=0, err_msg=name)


def test_type1_pushes_relevant_documents_against_each_other():
    """The problem of optimization inconsistency: labels don't enter type1's forces."""
    scores = torch.tensor([0.3, 0.1], dtype=torch.float64, requires_grad=True)
    lists = tr.Lists.from_sizes([2])
    forces = {}
    for strategy in STRATEGIES:
        for better in (0, 1):
            labels = torch.tensor([2.0, 1.0]) if better == 0 else torch.tensor([1.0, 2.0])
            ranks = tr.twin_ranks(scores, labels, lists, strategy=strategy)
            # Through the rank of document 1 alone, as a metric that wants it to rise.
            (gradient,) = torch.autograd.grad(ranks[1], scores)
            forces[strategy, better] = -gradient[1].item()
    assert forces["type1", 0] == forces["type1", 1] > 0  # up, though document 0 is better
    for strategy in ("type2", "type3"):
        assert forces[strategy, 0] < 0 < forces[strategy, 1]


@pytest.mark.parametrize("strategy", ["type2", "type3"])
def test_forces_have_the_sign_of_the_label_difference(strategy):
    draw = np.random.default_rng(3)
    for _ in range(50):
        scores = torch.tensor(draw.standard_normal(2), requires_grad=True)
        labels = torch.tensor(draw.integers(0, 3, 2))
        loss = tr.DirectLoss("DCG", strategy)(scores, labels, tr.Lists.from_sizes([2]))
        (gradient,) = torch.autograd.grad(loss, scores)
        u = torch.sign(labels[0] - labels[1]).item()
        assert torch.sign(-gradient[0]).item() == u  # descent moves document 0 by −gradient
        assert gradient.sum().abs() < 1e-15


def test_type3_grows_with_how_wrong_a_pair_is_and_type2_fades():
    """The problem of optimization difficulty."""
    gaps = torch.tensor([0.0, 1.0, 2.0, 4.0, 8.0], dtype=torch.float64)

    def force(strategy, gap):
        scores = torch.tensor([-gap, 0.0], dtype=torch.float64, requires_grad=True)
        ranks = tr.twin_ranks(
            scores, torch.tensor([1.0, 0.0]), tr.Lists.from_sizes([2]), strategy=strategy
        )
        return -torch.autograd.grad(ranks[0], scores)[0][0].item()

    type2, type3 = ([force(strategy, gap) for gap in gaps] for strategy in ("type2", "type3"))
    assert all(np.diff(type3) > 0)
    assert all(np.diff(type2) < 0)
    assert type3[-1] == pytest.approx(2 / (1 + np.exp(-8)))
