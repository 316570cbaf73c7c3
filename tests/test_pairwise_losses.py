"""RankNet, ApproxNDCG, LambdaRank and LambdaLoss: all implementations of their pair sums agree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinrank as tr
from baseline_references import REFERENCES
from twinrank.core.losses import loss
from twinrank.core.ranks.kernels import lambdas, logistic, panels
from twinrank.core.ranks.kernels.lambdas import lambda_sums
from twinrank.core.ranks.kernels.logistic import log_one_plus, logistic_sum, soft_ranks
from twinrank.support.arrays import device_path

NAMES = ["RankNet", "ApproxNDCG", "LambdaRank", "LambdaRank(k=5)", "LambdaLoss"]
PANEL_SUMS = ["_soft_ranks_of_panels", "_loss_of_panels"]


def draw(sizes, seed=0, spread=1.0, dtype=torch.float64):
    random = np.random.default_rng(seed)
    lists = tr.Lists.from_sizes(sizes)
    scores = torch.tensor(random.standard_normal(lists.documents) * spread).to(dtype)
    labels = torch.tensor(random.choice(5, lists.documents, p=[0.5, 0.3, 0.1, 0.05, 0.05]))
    return scores, labels.double(), lists


def outcome(name, scores, labels, lists, seed=1):
    """The loss of each list, and the gradient of their sum."""
    function = loss(name)
    function.reduction, function.generator = "none", torch.Generator().manual_seed(seed)
    scores = scores.detach().clone().requires_grad_()
    values = function(scores, labels, lists)
    values.sum().backward()
    return values.detach(), scores.grad


def formula(name, scores, labels):
    """The same of one list by its reference; nothing for one without anything relevant."""
    scores = scores.double().detach().requires_grad_()
    if not bool((labels > 0).any()):
        return torch.zeros(1, dtype=torch.float64), torch.zeros_like(scores)
    value = REFERENCES[name](scores, labels)
    return value.detach()[None], torch.autograd.grad(value, scores)[0]


def assert_same(result, expected, rtol):
    """Alike to within a share of the largest number."""
    for x, y in zip(result, expected, strict=True):
        atol = rtol * float(y.abs().max()) if y.numel() else 0.0
        torch.testing.assert_close(x.double(), y.double(), rtol=rtol, atol=atol)


# The formulas.

REFERENCED = [name for name in NAMES if name in REFERENCES] + ["LambdaRank(sigma=3, k=4)"]


@given(
    st.lists(
        st.tuples(
            st.floats(-1e4, 1e4, allow_subnormal=False) | st.floats(-3, 3, allow_subnormal=False),
            st.integers(0, 4) | st.sampled_from([0.5, -1.0]),
        ),
        min_size=1,
        max_size=7,
        unique_by=lambda document: document[0],
    ),
    st.sampled_from(REFERENCED),
)
@settings(max_examples=100)
def test_any_scores_and_labels(documents, name):
    scores, labels = (torch.tensor(x, dtype=torch.float64) for x in zip(*documents, strict=True))
    result = outcome(name, scores, labels, tr.Lists.from_sizes([len(documents)]))
    expected = formula(name, scores, labels.clamp(min=0))
    for x, y in zip(result, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


def test_the_logarithm_is_exact_to_the_last_digits():
    small = np.concatenate([np.linspace(0, 1, 1001), np.logspace(-300, 0, 1000)])
    for x in small[small > 0]:
        assert log_one_plus(3 * x, 3.0) == pytest.approx(np.log1p(x), rel=1e-15)
    assert log_one_plus(0.0, 1.0) == 0


# Long lists.


def on_long_path(monkeypatch, function, *arguments):
    """A sum with interpolation for lists of any length, which must really take place."""
    count = 0
    with monkeypatch.context() as patch:
        patch.setattr(logistic, "LONG", 2)
        patch.setattr(panels, "direct_cost", lambda size: float("inf"))
        for name in PANEL_SUMS:
            original = getattr(logistic, name)

            def counted(*a, original=original):
                nonlocal count
                count += 1
                return original(*a)

            patch.setattr(logistic, name, counted)
        result = function(*arguments)
    assert count
    return result


def on_direct_path(monkeypatch, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(logistic, "LONG", 10**9)
        return function(*arguments)


def shapes():
    """Scores that try the panels: spread, dense, sparse, tied, with outliers."""
    random = np.random.default_rng(5)
    normal = random.standard_normal(700)
    mixed = np.concatenate([normal[:350], 3.0 * np.arange(350)])
    outliers = np.concatenate([[1e9, -1e9, 3e5, -40.0, 39.5], normal])
    tied = normal.round(1)
    return {"normal": normal, "mixed": mixed, "outliers": outliers, "tied": tied}


@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("shape", shapes())
def test_interpolated_sums_are_the_direct_ones(shape, alpha, monkeypatch):
    scores = shapes()[shape]
    labels = np.random.default_rng(0).integers(0, 4, scores.size).astype(float)
    lists = tr.Lists.from_sizes([scores.size - 200, 0, 1, 199])
    result = on_long_path(monkeypatch, soft_ranks, scores, lists, alpha)
    expected = on_direct_path(monkeypatch, soft_ranks, scores, lists, alpha)
    np.testing.assert_allclose(result, expected, rtol=1e-10)
    result, pairs = on_long_path(monkeypatch, logistic_sum, scores, labels, lists, alpha)
    expected, same = on_direct_path(monkeypatch, logistic_sum, scores, labels, lists, alpha)
    np.testing.assert_allclose(result, expected, rtol=1e-10)
    np.testing.assert_array_equal(pairs, same)


def test_outliers_in_their_place_cost_no_digits(monkeypatch):
    """The best documents are far above the others, so only these pairs have a loss."""
    scores = np.concatenate([[1e12, 2e12], np.random.default_rng(1).standard_normal(800) * 20])
    labels = np.concatenate([[3, 3], np.random.default_rng(2).integers(0, 3, 800)]).astype(float)
    lists = tr.Lists.from_sizes([802])
    result, _ = on_long_path(monkeypatch, logistic_sum, scores, labels, lists, 1.0)
    expected, _ = logistic_sum(scores[2:], labels[2:], tr.Lists.from_sizes([800]), 1.0)
    np.testing.assert_allclose(result, expected, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_an_extreme_outlier_costs_the_others_no_digits(name):
    """The best document is far above the others, where it adds nothing to losses and gradients."""
    scores, labels, _ = draw([40])
    labels[0], scores[0] = 4, 1e3
    near = outcome(name, scores, labels, tr.Lists.from_sizes([40]))
    scores[0] = 1e20
    assert_same(outcome(name, scores, labels, tr.Lists.from_sizes([40])), near, 1e-9)


@pytest.mark.parametrize("name", ["RankNet", "ApproxNDCG"])
def test_long_lists_interpolate_and_lists_with_many_grades_do_not(name, monkeypatch):
    scores, labels, lists = draw([2500, 30])
    expected = on_direct_path(monkeypatch, outcome, name, scores, labels, lists)
    summed = []
    for function in PANEL_SUMS:
        original = getattr(logistic, function)
        monkeypatch.setattr(
            logistic, function, lambda p, *a, f=original: (summed.append(len(p.t)), f(p, *a))[1]
        )
    assert_same(outcome(name, scores, labels, lists), expected, 1e-9)
    assert summed == [2500]
    if name == "RankNet":
        outcome(name, scores, torch.arange(2530) / 2530, lists)
        assert summed == [2500]


@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_documents(name):
    """What a pair gives one document it takes from the other."""
    values, gradient = outcome(name, *draw([10_000, 3]))
    assert bool(torch.isfinite(values).all())
    assert abs(float(gradient[:10_000].sum())) < 1e-9 * float(gradient.abs().sum())
    assert float(gradient.abs().max()) > 0


# Threads.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_on_any_number_of_threads(name, dtype):
    data = draw([1600, 300, 0, 2300, 40, 1, 800], dtype=dtype)
    data[0][-800:] *= 1e4  # a list too wide for exponentials
    before = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(outcome(name, *data))
    finally:
        torch.set_num_threads(before)
    for values, gradient in results[1:]:
        assert torch.equal(values, results[0][0])
        assert torch.equal(gradient, results[0][1])


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(1, 80), st.integers(1, 400))
@settings(max_examples=60)
def test_parts_cover_every_row_once(sizes, reach, part):
    lists = tr.Lists.from_sizes(np.array(sizes, dtype=np.int64))
    before, lambdas._PART = lambdas._PART, part
    try:
        parts, _ = lambdas._cut(lists, np.zeros(len(sizes), np.bool_), reach)
    finally:
        lambdas._PART = before
    for q, size in enumerate(sizes):
        own = parts[parts[:, lambdas._LIST] == q]
        begins, ends = own[:, lambdas._BEGIN], own[:, lambdas._END]
        assert [*begins, size] == [0, *ends]
        assert (begins <= ends).all()


@pytest.mark.parametrize("name", ["LambdaRank", "LambdaRank(k=5)", "LambdaLoss"])
def test_parts_add_up(name, monkeypatch):
    data = draw([300, 2, 0, 150])
    expected = outcome(name, *data)
    monkeypatch.setattr(lambdas, "_PART", 40)
    assert_same(outcome(name, *data), expected, 1e-12)


# Other devices.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_the_same_by_tensors_alone(name, spread):
    data = draw([12, 0, 1, 30, 2, 30], spread=spread)
    data[0][:12] = data[0][:12].round(decimals=1)
    data[1][-30:] = 0
    expected = outcome(name, *data)
    with device_path("torch"):
        result = outcome(name, *data)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


# Extremes.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e4, 1e30, 1e297])
def test_enormous_scores(name, scale):
    scores, labels, lists = draw([12, 1])
    values, gradient = outcome(name, scores * scale, labels, lists)
    assert bool(torch.isfinite(values).all())
    assert bool(torch.isfinite(gradient).all())
    if name in REFERENCES:
        expected = formula(name, scores[:12] * scale, labels[:12])
        result = (values[:1], gradient[:12])
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision(name, dtype):
    """As precise as the scores: the loss of the rounded scores, the gradient rounded."""
    scores, labels, lists = draw([50, 7, 130])
    scores = scores.to(dtype)
    values, gradient = outcome(name, scores, labels, lists)
    assert (values.dtype, gradient.dtype) == (torch.float32, dtype)
    expected = outcome(name, scores.double(), labels, lists)
    assert_same((values,), expected[:1], 1e-5)
    assert_same((gradient,), expected[1:], max(1e-5, torch.finfo(dtype).eps))


@pytest.mark.parametrize("name", NAMES)
def test_lists_without_pairs(name):
    """Nothing relevant, all the same, one document, none: nothing to learn, nothing broken."""
    scores, labels, lists = draw([4, 4, 1, 0])
    labels[:4], labels[4:8], labels[8] = 0, 2, 1
    values, gradient = outcome(name, scores, labels, lists)
    assert bool(torch.isfinite(values).all())
    assert values[0] == values[3] == 0
    if name != "ApproxNDCG":  # whose ranks are smooth even among equals
        assert not values.any()
        assert not gradient.any()
    assert not gradient[:4].any()
    assert gradient[8] == 0


# Ranks.


@pytest.mark.parametrize("name", ["LambdaRank", "LambdaLoss"])
def test_tied_scores_are_ranked_at_random_but_repeatably(name):
    _, labels, lists = draw([30])
    tied = torch.zeros(30, dtype=torch.float64)
    first, again, other = (outcome(name, tied, labels, lists, seed)[1] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_cutoff_beyond_the_list_is_none():
    data = draw([20, 9])
    for x, y in zip(outcome("LambdaRank(k=20)", *data), outcome("LambdaRank", *data), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-14, atol=0)


def test_a_cutoff_leaves_out_pairs_beyond_it():
    scores, labels, lists = draw([60])
    scores, _ = torch.sort(scores, descending=True)
    labels[0], labels[5:] = 0, labels[5:] + 1
    _, gradient = outcome("LambdaRank(k=5)", scores, labels, lists)
    swapped = labels.clone()
    swapped[30:] = labels[30:].flip(0)  # other pairs among those beyond, the same with the first
    _, other = outcome("LambdaRank(k=5)", scores, swapped, lists)
    assert float((gradient[5:30] - other[5:30]).abs().max()) < 1e-15


def test_without_nearness_and_discounts_nothing_is_left():
    scores, lists = np.array([1.0, 2.0, 3.0]), tr.Lists.from_sizes([3])
    gains, ranks = np.array([0.0, 1.0, 0.0]), np.array([3.0, 2.0, 1.0])
    values, slopes = lambda_sums(scores, gains, ranks, lists, np.zeros(0), None, 1.0)
    assert values.tolist() == [0.0]
    assert slopes.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: tr.RankNet(sigma=0), "sigma must be a positive number, not 0"),
        (lambda: tr.ApproxNDCG(alpha=-1.0), "alpha must be a positive number, not -1.0"),
        (lambda: tr.LambdaRank(sigma=float("nan")), "sigma must be a positive number, not nan"),
        (lambda: tr.LambdaRank(k=0), "cutoff of nDCG must be a whole number of at least 1, not 0"),
        (lambda: tr.LambdaLoss(mu=-1), "mu must be a number of at least 0, not -1"),
        (lambda: loss("LambdaLoss(mu=many)"), "mu must be a number of at least 0, not 'many'"),
    ],
)
def test_bad_options(make, complaint):
    with pytest.raises(tr.InputError, match=complaint):
        make()
