"""`strategy="swap"`: what swapping two documents changes, and the pair sum made of it."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinrank as tr
from twinrank.core.measures import MEASURES, Measure
from twinrank.learning.boosting.newton import Newton
from twinrank.support.compiled import threads_at_most
from twinrank.support.errors import InputError

NAMES = [
    "nDCG", "nDCG@3", "nDCG(gain=linear)@2", "DCG@4", "AP", "AP@3", "AP(divisor=R)@2", "AP(rel=2)",
    "paperAP", "paperAP@3", "P", "P@3", "Recall@2", "Rprec", "RR", "RR@2", "Success@2", "nERR",
    "nERR@3", "ERR", "ERR(max_grade=4)@2", "RBP", "RBP(p=0.5)@3", "Judged@2",
    "P(gain=linear)@3", "RBP(gain=linear)", "SetF@2",
]  # fmt: skip


def test_every_measure_is_tried() -> None:
    without = {kind for kind in MEASURES if kind.swaps is Measure.swaps}
    signed = {"alpha_nDCG", "alpha_DCG", "nERR_IA", "ERR_IA"}  # see test_variety.py
    assert {kind.name for kind in without} == {"Bpref", "IPrec", *signed}
    assert {type(tr.measure(name)) for name in NAMES} == set(MEASURES) - without


def values(measure: tr.Measure, orders: Any) -> Any:
    """The measure of lists of labels in rank order, all of one length."""
    rows = np.asarray(orders)
    scores = np.tile(-np.arange(rows.shape[1], dtype=float), len(rows))
    lists = tr.Lists.from_sizes([rows.shape[1]] * len(rows))
    return measure(scores, rows.reshape(-1), lists, empty="zero")


def changes(measure: tr.Measure, labels: Any) -> dict[tuple[int, int], float]:
    """|ΔM| of every two positions p < q, by swapping them."""
    pairs = list(combinations(range(len(labels)), 2))
    orders = [list(labels)]
    for p, q in pairs:
        swapped = list(labels)
        swapped[p], swapped[q] = labels[q], labels[p]
        orders.append(swapped)
    result = values(measure, orders)
    return dict(zip(pairs, np.abs(result[1:] - result[0]), strict=True))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=7))
def test_closed_form_equals_real_swaps(name: str, labels: list[int]) -> None:
    measure, lists = tr.measure(name), tr.Lists.from_sizes([len(labels)])
    result = measure.swaps(np.array(labels, float), lists)
    for (p, q), change in changes(measure, labels).items():
        worth = abs(result.worth[p] - result.worth[q])
        formula = worth * result.scale[p] * abs(result.ahead[p] - result.behind[q])
        assert formula == pytest.approx(change, abs=1e-12), (p, q)


def reference(measure: tr.Measure, scores: np.ndarray, labels: np.ndarray, ranks: np.ndarray):
    """−Σ_j u_aj · |ΔM_aj| · σ(−u_aj · y_aj) and its slope, pair by pair, ΔM by swapping."""
    gradient, hessian = np.zeros(len(scores)), np.zeros(len(scores))
    order = np.argsort(ranks)
    for (p, q), change in changes(measure, labels[order]).items():
        for a, j in ((order[p], order[q]), (order[q], order[p])):
            u = np.sign(labels[a] - labels[j])
            wrong = 1 / (1 + np.exp(u * (scores[a] - scores[j])))
            gradient[a] -= u * change * wrong
            hessian[a] += abs(u) * change * wrong * (1 - wrong)
    return gradient, hessian


@pytest.mark.parametrize("name", ["nDCG@3", "AP", "nERR", "RR"])
def test_the_gradient_is_that_of_the_formula(name: str) -> None:
    rng = np.random.default_rng(1)
    sizes = [5, 1, 7, 4]
    lists, measure = tr.Lists.from_sizes(sizes), tr.measure(name)
    labels = rng.integers(0, 3, sum(sizes))
    labels[6:8] = 1, 0
    scores = torch.tensor(rng.normal(size=sum(sizes)), requires_grad=True)
    loss = tr.DirectLoss(measure, strategy="swap", reduction="none")(
        scores, torch.tensor(labels), lists
    )
    assert -loss.detach().numpy() == pytest.approx(
        measure(scores.detach().numpy(), labels, lists, empty="zero")
    )
    loss.sum().backward()
    y, expected = scores.detach().numpy(), []
    ranks = tr.exact_ranks(y, lists)
    for part in lists:
        expected.append(reference(measure, y[part], labels[part], ranks[part]))
    gradient, hessian = (np.concatenate(side) for side in zip(*expected, strict=True))
    assert scores.grad.numpy() == pytest.approx(gradient, abs=1e-12)
    newton = Newton.of(name, "swap", perturbation=0.0, samples=1)
    result = newton.sums(y, labels, lists)
    assert result[0] == pytest.approx(gradient, abs=1e-6)
    assert result[1] == pytest.approx(hessian, abs=1e-6)


def test_on_ndcg_it_is_lambdarank() -> None:
    torch.manual_seed(0)
    lists = tr.Lists.from_sizes([30, 12, 1, 40])
    labels = torch.randint(0, 4, (lists.documents,))
    scores = torch.randn(lists.documents, dtype=torch.float64, requires_grad=True)
    for k in (None, 5):
        loss = tr.DirectLoss(tr.measure("nDCG").at(k), strategy="swap", alpha=2.0)
        (ours,) = torch.autograd.grad(loss(scores, labels, lists), scores)
        (theirs,) = torch.autograd.grad(tr.LambdaRank(2.0, k)(scores, labels, lists), scores)
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_samples_are_averaged_and_weights_count() -> None:
    lists = tr.Lists.from_sizes([6, 6])
    labels = torch.tensor([0, 1, 2, 0, 1, 0] * 2)
    scores = torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_()
    weights = torch.tensor([1.0, 3.0])

    def gradient(samples: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        loss = tr.DirectLoss("AP", "swap", perturbation=0.5, samples=samples, generator=generator)(
            scores, labels, lists, weights
        )
        return torch.autograd.grad(loss, scores)[0]

    many, few = gradient(2000), gradient(2000)
    assert torch.equal(many, few)
    assert many[6:].abs().sum() > 2 * many[:6].abs().sum()
    assert (gradient(20) - many).abs().max() > 0


@pytest.mark.parametrize("make", [tr.DirectLoss, tr.lightgbm_objective])
def test_a_measure_without_swaps_raises(make: Any) -> None:
    own = tr.Measure.from_functions("Own", lambda labels, lists: labels, lambda rank: 1 / rank)
    with pytest.raises(InputError, match="which Own does not have"):
        make(own, strategy="swap")


@pytest.mark.parametrize("make", [tr.DirectLoss, tr.lightgbm_objective])
@pytest.mark.parametrize("name", ["P", "Recall", "Success", "Judged"])
def test_a_count_of_the_whole_list_is_refused(name: str, make: Any) -> None:
    with pytest.raises(InputError, match=f"such as {name}@10"):
        make(name, strategy="swap")
    make(f"{name}@10", strategy="swap")
    make(name, strategy="type3")


def test_ranks_have_no_swaps() -> None:
    scores = torch.zeros(2, requires_grad=True)
    with pytest.raises(InputError, match="strategy"):
        tr.twin_ranks(scores, torch.tensor([1, 0]), tr.Lists.from_sizes([2]), strategy="swap")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_bits_do_not_depend_on_threads(number: int) -> None:
    rng = np.random.default_rng(0)
    lists = tr.Lists.from_sizes(rng.integers(1, 200, 60))
    labels, scores = rng.integers(0, 3, lists.documents), rng.normal(size=lists.documents)
    newton = Newton.of("AP", "swap", samples=3)
    with threads_at_most(1):
        expected = newton(scores, labels, lists)
    with threads_at_most(number):
        result = newton(scores, labels, lists)
    assert all(np.array_equal(a, b) for a, b in zip(expected, result, strict=True))


def test_trees_learn_by_it() -> None:
    data = tr.synthetic_web_search(queries=60)
    train, test = data.split(0.7, random_state=0)
    ranker = tr.BoostedRanker("AP", "swap", n_estimators=20, num_leaves=7).fit(train)
    assert ranker.score(test) > tr.evaluate(np.zeros(test.documents), test.y, test.lists)["nDCG@5"]


@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_without_documents_there_is_nothing_to_push(sizes: list[int]) -> None:
    scores, lists = torch.zeros(0, requires_grad=True), tr.Lists.from_sizes(sizes)
    tr.DirectLoss("AP", strategy="swap")(scores, torch.zeros(0), lists).backward()
    assert scores.grad is not None
    result = Newton.of("AP", "swap").sums(np.zeros(0), np.zeros(0), lists)
    assert [part.shape for part in result] == [(0,), (0,)]


@pytest.mark.parametrize("top", [4, 40, 60, 90])
@pytest.mark.parametrize("name", ["ERR", "nERR"])
def test_high_labels_keep_their_digits(name: str, top: int) -> None:
    labels = np.array([top, 0, top - 1, 1, top])
    scores, lists = np.array([0.3, 0.9, 0.5, 0.1, -0.2]), tr.Lists.from_sizes([5])
    result = Newton.of(name, "swap", perturbation=0.0, samples=1).sums(scores, labels, lists)
    ranks = np.asarray(tr.exact_ranks(scores, lists))
    gradient, _ = reference(tr.measure(name), scores, labels, ranks)
    assert result[0] == pytest.approx(gradient, rel=1e-5, abs=1e-9)
