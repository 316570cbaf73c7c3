"""WassRank against a linear program, POT, brute force and finite differences; hard lists."""

import math

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linprog

import twinrank as tr
from baseline_references import sinkhorn, wassrank, wassrank_costs, wassrank_of_the_paper
from twinrank.support.arrays import device_path


def one_list(size, seed=0, top=4):
    draw = np.random.default_rng(seed)
    labels = torch.tensor(draw.integers(0, top + 1, size).astype(float))
    labels[0] = top
    return torch.tensor(draw.standard_normal(size)), labels


def outcome(scores, labels, **options):
    """The loss of one list, and its gradient."""
    scores = scores.detach().clone().requires_grad_()
    loss = tr.WassRank(**options)(scores, labels, tr.Lists.from_sizes([len(scores)]))
    loss.backward()
    return loss.item(), scores.grad


@pytest.fixture(params=[None, "torch"], ids=["cpu", "other device"])
def _device(request):
    """The CPU, and the code for tensors of other devices."""
    with device_path(request.param):
        yield


def transport_problem(scores, labels):
    a, b = torch.softmax(scores, 0).numpy(), torch.softmax(labels, 0).numpy()
    return a, b, wassrank_costs(labels).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_tends_to_the_linear_program(seed):
    """⟨P, C⟩ − λ H(P) ≤ optimal cost ≤ that + λ log m²."""
    scores, labels = one_list(6, seed)
    a, b, costs = transport_problem(scores, labels)
    sums = np.vstack([np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))])
    exact = linprog(costs.ravel(), A_eq=sums, b_eq=np.r_[a, b], bounds=(0, None)).fun
    gaps = []
    for smoothing in (10.0, 1.0, 0.1, 0.02):
        value, _ = outcome(scores, labels, smoothing=smoothing, sweeps=200_000)
        gaps.append(exact - value)
        assert -1e-7 <= gaps[-1] <= smoothing * math.log(36)
    assert gaps == sorted(gaps, reverse=True)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("smoothing", [0.5, 1.0, 20.0])
def test_equals_pot(seed, smoothing):
    scores, labels = one_list(9, seed, top=3)
    a, b, costs = transport_problem(scores, labels)
    plan, log = ot.sinkhorn(
        a, b, costs, smoothing, "sinkhorn_log", numItermax=100_000, stopThr=1e-14, log=True
    )
    value, gradient = outcome(scores, labels, smoothing=smoothing)
    assert value == pytest.approx((plan * (costs + smoothing * np.log(plan))).sum(), rel=1e-9)
    potential = smoothing * log["log_u"]
    np.testing.assert_allclose(gradient, a * (potential - a @ potential), rtol=1e-6, atol=1e-8)


def test_paper_mode_equals_ten_sweeps_of_pot():
    scores, labels = one_list(9)
    a, b, costs = transport_problem(scores, labels)
    plan, log = ot.sinkhorn(
        a, b, costs, 0.1, "sinkhorn_log", numItermax=10, stopThr=0, log=True, warn=False
    )
    value, gradient = outcome(scores, labels, mode="paper", cost="label")
    assert value == pytest.approx((plan * costs).sum(), rel=1e-9)
    potential = 0.1 * (log["log_u"] - log["log_u"].mean())
    np.testing.assert_allclose(gradient, a * (potential - a @ potential), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.5, 1.0, 20.0])
def test_the_gradient_is_that_of_the_loss(smoothing):
    scores, labels = one_list(8, seed=4)
    _, gradient = outcome(scores, labels, smoothing=smoothing)
    for i, step in enumerate(1e-5 * torch.eye(8, dtype=torch.float64)):
        up, _ = outcome(scores + step, labels, smoothing=smoothing)
        down, _ = outcome(scores - step, labels, smoothing=smoothing)
        assert (up - down) / 2e-5 == pytest.approx(gradient[i].item(), rel=1e-5, abs=1e-6)


@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize("kind", ["grades", "many grades"])
@pytest.mark.parametrize(
    ("mode", "formula"), [("default", wassrank), ("paper", wassrank_of_the_paper)]
)
def test_grades_stand_for_all_pairs(kind, mode, formula):
    """The m × m formula, for few grades and for many."""
    scores, grades = one_list(80)
    if kind == "many grades":
        grades = torch.linspace(0, 3, 40, dtype=torch.float64).repeat_interleave(2)
    value, gradient = outcome(scores, grades, mode=mode, cost="label")
    scores.requires_grad_()
    true = formula(scores, grades)
    assert value == pytest.approx(true.item(), rel=1e-8)
    torch.testing.assert_close(gradient, torch.autograd.grad(true, scores)[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("top", [1, 2, 4])
@pytest.mark.parametrize("size", [2, 10, 300])
def test_hard_lists_converge(size, top):
    """Nearly right, right, reversed, tied and far-off scores: no warning, which would fail."""
    noise, labels = one_list(size, seed=size + top, top=top)
    tries = [labels + scale * noise for scale in (0.5, 0.05, 1e-3, 0.0)]
    for scores in [*tries, -3 * labels, 0 * labels, 10 * noise, 1e4 * noise]:
        value, gradient = outcome(scores, labels)
        assert math.isfinite(value)
        assert gradient.isfinite().all()
        assert abs(gradient.sum()) <= 1e-9 * (1 + gradient.abs().sum())


def test_the_best_scores_are_the_blurred_labels():
    """The minimum over all a is K b with the columns of K scaled to 1; it keeps their order."""
    _, labels = one_list(120)
    _, b, costs = transport_problem(labels, labels)
    kernel = np.exp(-costs)
    best = torch.tensor(kernel @ (b / kernel.sum(0)))
    value, gradient = outcome(best.log(), labels)
    assert gradient.abs().max() < 1e-9
    means = [best[labels == grade].mean() for grade in range(5)]
    assert means == sorted(means)
    for seed in range(3):
        worse, _ = outcome(best.log() + 0.1 * one_list(120, seed)[0], labels)
        assert worse > value


def test_one_grade_and_one_document():
    """Nothing moves within one document; within one grade mass moves at the cost e."""
    assert outcome(torch.tensor([3.0]), torch.tensor([2.0]))[0] == 0.0
    scores = torch.tensor([0.0, 1.0], dtype=torch.float64)
    value, _ = outcome(scores, torch.ones(2), smoothing=0.02, sweeps=100_000)
    moved = 0.5 - torch.softmax(scores, 0)[0].item()
    assert value == pytest.approx(math.e * moved, abs=0.03)


@pytest.mark.usefixtures("_device")
def test_early_stop_warns():
    """Too few sweeps: a warning that says how many lists, and a lower bound."""
    scores, labels = one_list(30)
    lists = tr.Lists.from_sizes([10, 0, 1, 19])
    with pytest.warns(RuntimeWarning, match="2 of 4 lists have not converged after 2 sweeps"):
        early = tr.WassRank(sweeps=2, reduction="none")(scores, labels, lists)
    done = tr.WassRank(reduction="none")(scores, labels, lists)
    assert early.isfinite().all()
    assert (early <= done + 1e-9).all()
    assert early[0] < done[0]


def test_plain_iterations_converge_to_the_same_plan():
    """Balancing the gaps between iterations changes the speed, not the result."""
    scores, labels = one_list(12, seed=2)
    log_a, log_b = torch.log_softmax(scores, 0), torch.log_softmax(labels, 0)
    costs = wassrank_costs(labels)
    log_u, _ = sinkhorn(log_a, log_b, costs, 1.0, 20_000, 1e-12)
    a = log_a.exp()
    _, gradient = outcome(scores, labels)
    torch.testing.assert_close(gradient, a * (log_u - a @ log_u), rtol=1e-7, atol=1e-9)


def test_any_number_of_threads():
    """Lists are solved one by one: the same bits."""
    draw = np.random.default_rng(0)
    lists = tr.Lists.from_sizes(draw.integers(1, 60, 200))
    scores = torch.tensor(draw.standard_normal(lists.documents))
    labels = torch.tensor(draw.integers(0, 5, lists.documents))
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(tr.WassRank(reduction="none")(scores, labels, lists))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mode": "papr"}, "mode of WassRank"),
        ({"smoothing": 0.0}, "smoothing must be a positive number"),
        ({"tolerance": float("nan")}, "tolerance must be a positive number"),
        ({"sweeps": 0}, "sweeps must be a whole number"),
    ],
)
def test_bad_options(options, complaint):
    with pytest.raises(tr.InputError, match=complaint):
        tr.WassRank(**options)


@pytest.mark.parametrize(
    ("top", "options"), [(8, {}), (30, {"smoothing": 1e16}), (30, {"mode": "paper"})]
)
def test_large_labels(top, options):
    """Grades up to 30 cost up to 4^30; where costs overflow, an error says why."""
    scores, labels = one_list(12, top=top)
    value, gradient = outcome(scores, labels, **options)
    assert math.isfinite(value)
    assert gradient.isfinite().all()
    with pytest.raises(tr.InputError, match="labels up to 240 are too large"):
        outcome(scores, labels * 240 / top, **options)
