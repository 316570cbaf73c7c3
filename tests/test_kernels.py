"""The three kernels of the pair sum against the formula, where each of them has its limits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinrank as tr
from twinrank.core.ranks.kernels import blocks, pair_sum, pairs
from twinrank.core.ranks.kernels import panels as panel_kernel

STRATEGIES = ["type1", "type2", "type3"]


def formula(scores, labels, g, lists, strategy, alpha):
    """The sum as it stands in the module's docstring, in float64."""
    result = np.zeros(scores.size)
    for docs in lists:
        y, label, h = (x[docs].astype(np.float64) for x in (scores, labels, g))
        d, u = y[:, None] - y, np.sign(label[:, None] - label)
        near = np.exp(-np.abs(alpha * d))  # σ without overflow
        K = alpha * near / (1 + near) ** 2
        if strategy == "type1":
            terms = (h - h[:, None]) * K
        elif strategy == "type2":
            terms = -(h[:, None] + h) * u * K
        else:
            wrong = u * d < 0
            terms = -2 * alpha * (h[:, None] + h) * u * np.where(wrong, 1, near) / (1 + near)
        result[docs] = terms.sum(1)
    return result


def draw(size, *, seed=0, grades=5, spread=1.0, dtype=np.float64):
    random = np.random.default_rng(seed)
    scores = (random.standard_normal(size) * spread).astype(dtype)
    labels = random.integers(0, grades, size).astype(dtype)
    return scores, labels, (random.standard_normal(size) * (labels > 0)).astype(dtype)


def error(data, lists, strategy, alpha, kernel):
    """max |Δ| / max |formula|, the worst of all lists."""
    expected = formula(*data, lists, strategy, alpha)
    result = pair_sum(*data, lists, strategy=strategy, alpha=alpha, kernel=kernel)
    assert result.dtype == data[0].dtype
    worst = 0.0
    for docs in lists:
        largest = np.abs(expected[docs]).max(initial=0)
        difference = np.abs(result[docs] - expected[docs]).max(initial=0)
        worst = max(worst, difference / largest if largest else difference)
    return worst


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0, 3000.0])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_long_lists_at_any_alpha_and_score_range(strategy, alpha, spread):
    lists = tr.Lists.from_sizes([1500])
    assert error(draw(1500, spread=spread), lists, strategy, alpha, "long") < 1e-10
    single = draw(1500, spread=spread, dtype=np.float32)
    assert error(single, lists, strategy, alpha, "long") < 1e-6


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_outliers_cost_no_panels_and_no_digits(strategy):
    data = draw(3000)
    data[0][:5] = [1e12, -1e12, 3e5, -40.0, 39.5]
    lists = tr.Lists.from_sizes([3000])
    assert error(data, lists, strategy, 1.0, "long") < 1e-10
    scores, labels, g = data
    panels = panel_kernel.cut_into_panels(scores, g, labels.astype(int), strategy, 1.0, 14)
    assert panels.centres.size < 20  # not the 10¹² that would fit between them


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kernel", ["long", "auto", "numba", "torch"])
@pytest.mark.parametrize("far", [1e17, 1e20, -1e38, 1e300])
def test_extreme_outliers_cost_the_others_no_digits(strategy, kernel, far):
    """Around them, and with a second cluster whose scores differ by a few units."""
    scores, labels, g = draw(60)
    scores[7] = far
    lists, dtype = tr.Lists.from_sizes([60]), np.float32 if abs(far) < 1e39 else np.float64
    data = tuple(x.astype(dtype) for x in (scores, labels, g))
    assert error(data, lists, strategy, 3.0, kernel) < 1e-6
    scores[8:] = 3e15 + np.arange(52.0)
    assert error((scores, labels, g), lists, strategy, 3.0, kernel) < 1e-10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dense_and_sparse_panels_side_by_side(strategy):
    """Half of the list in one panel, the other half with a panel each."""
    scores, labels, g = draw(2000)
    scores[1000:] = 3.0 * np.arange(1000)
    assert error((scores, labels, g), tr.Lists.from_sizes([2000]), strategy, 1.0, "long") < 1e-10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_accuracy_is_a_parameter(strategy):
    lists, data = tr.Lists.from_sizes([2000]), draw(2000)
    errors = [
        error(data, lists, strategy, 1.0, f"long(accuracy={accuracy})")
        for accuracy in (1e-2, 1e-4, 1e-8, 1e-12)
    ]
    assert errors == sorted(errors, reverse=True)
    assert all(e < bound for e, bound in zip(errors, (1e-2, 1e-4, 1e-8, 1e-12), strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kernel", ["long", "auto", "numba", "torch"])
def test_any_number_of_grades(strategy, kernel):
    """Real-valued labels: as many grades as documents."""
    scores, _, g = draw(1200)
    labels = np.random.default_rng(1).standard_normal(1200)
    lists = tr.Lists.from_sizes([1200])
    assert error((scores, labels, g), lists, strategy, 1.0, kernel) < 1e-10


def test_auto_interpolates_only_where_it_pays(monkeypatch):
    """Few grades: panels. As many grades as documents: every pair."""
    summed = []
    sum_panels = panel_kernel._sum_panels
    monkeypatch.setattr(
        panel_kernel, "_sum_panels", lambda *a: (summed.append(len(a[0].t)), sum_panels(*a))[1]
    )
    lists = tr.Lists.from_sizes([2000, 20])
    scores, labels, g = draw(2020)
    pair_sum(scores, labels, g, lists, strategy="type3")
    assert summed == [2000]  # and the short list not at all
    pair_sum(scores, np.arange(2020.0), g, lists, strategy="type3")
    assert summed == [2000]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_direct_by_rows_and_by_pairs_agree(strategy, dtype, monkeypatch):
    """The rows of very long lists, here with the limit between the two lists' lengths."""
    data, lists = draw(700, dtype=dtype), tr.Lists.from_sizes([200, 500])
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    expected = formula(*data, lists, strategy, 1.0)
    # The limit is compiled into the loops: run them as Python, which shows its effect all the same.
    for name in ("each_bell", "each_step", "type1_rows", "type2_rows", "type3_rows"):
        monkeypatch.setattr(pairs, name, getattr(pairs, name).py_func)
    monkeypatch.setattr(pairs, "BY_ROWS", 300)
    result = pair_sum(*data, lists, strategy=strategy, kernel="numba")
    assert np.abs(result - expected).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kernel", ["numba", "long", "torch"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-9)])
@pytest.mark.parametrize("gap", [12.0, 18.0, 30.0])
@pytest.mark.parametrize("sizes", [[2], [50]])
def test_groups_far_apart(sizes, gap, dtype, tolerance, kernel, strategy):
    """Where σ is 1 but for the last digits, the small rest must not be lost."""
    size = sizes[0]
    scores, _, g = draw(size, spread=0.1, dtype=dtype)
    lists = tr.Lists.from_sizes(sizes)
    for upper in (slice(None, size // 2), slice(size // 2, None)):
        moved, labels = scores.copy(), np.zeros(size, dtype)
        moved[upper] += dtype(gap)
        labels[upper] = 1
        data = moved, labels, np.where(labels, np.abs(g) + dtype(0.1), 0).astype(dtype)
        if kernel == "long" and strategy == "type1" and gap > 12:
            # The documented exception: accurate beside the sums whose difference it is.
            result = pair_sum(*data, lists, strategy=strategy, kernel=kernel)
            accuracy = 1e-7 if dtype == np.float32 else 1e-11
            largest = np.abs(data[2]).max() * size / 4
            assert np.abs(result - formula(*data, lists, strategy, 1.0)).max() < accuracy * largest
            continue
        assert error(data, lists, strategy, 1.0, kernel) < tolerance


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kernel", ["numba", "long", "torch"])
@pytest.mark.parametrize("large", [1e20, 1e27, 1e33])
@pytest.mark.parametrize("spread", [1.0, 25.0])
def test_large_rank_gradients(spread, large, kernel, strategy):
    """Products with E must not overflow on the way to a gradient that is a number."""
    scores, labels, g = draw(40, spread=spread, dtype=np.float32)
    lists = tr.Lists.from_sizes([20, 20])
    g[:20] *= np.float32(large)  # beside a list whose gradients are ordinary
    assert error((scores, labels, g), lists, strategy, 1.0, kernel) < 1e-4


@pytest.mark.parametrize("kernel", ["numba", "long", "torch"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_gradient_that_is_no_number_stays_none(bad, kernel):
    """Gradient scalers look for these."""
    scores, labels, g = draw(20)
    g[3], labels[3] = bad, 1.0
    result = pair_sum(scores, labels, g, tr.Lists.from_sizes([20]), strategy="type3", kernel=kernel)
    assert not np.isfinite(result).all()


@pytest.mark.parametrize("kernel", ["numba", "long", "torch"])
def test_labels_are_compared_in_their_own_precision(kernel):
    """2²⁴ and 2²⁴ + 1 are one float32 number, but two labels."""
    scores = torch.tensor([0.0, 1.0], requires_grad=True)
    labels = torch.tensor([2**24 + 1, 2**24])
    ranks = tr.twin_ranks(scores, labels, tr.Lists.from_sizes([2]), kernel=kernel)
    ranks[0].backward()
    assert scores.grad[0] < 0 < scores.grad[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_direct_on_a_very_long_list(strategy):
    lists, data = tr.Lists.from_sizes([5000, 10]), draw(5010, dtype=np.float32)
    expected = pair_sum(
        *(x.astype(np.float64) for x in data), lists, strategy=strategy, kernel="long"
    )
    result = pair_sum(*data, lists, strategy=strategy, kernel="numba")
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 4000))
@settings(max_examples=40)
def test_torch_blocks_keep_to_their_bound(sizes, block):
    """No tensor of terms is larger than the bound, or than one row of the longest list."""
    lists = tr.Lists.from_sizes(sizes)
    data = tuple(map(torch.tensor, draw(lists.documents)))
    largest = 0
    terms = blocks._terms

    def watched(*arguments):
        nonlocal largest
        result = terms(*arguments)
        largest = max(largest, result.numel())
        return result

    blocks._terms = watched
    try:
        result = blocks.TorchKernel(block)(*data, lists, "type3", 1.0)
    finally:
        blocks._terms = terms
    expected = formula(*(x.numpy() for x in data), lists, "type3", 1.0)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)
    assert largest <= max(block, lists.longest)


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        ("nmba", "Unknown kernel 'nmba'. Did you mean 'numba'?"),
        ("long(accurcy=1)", "kernel long has no option 'accurcy'. Its options: accuracy"),
        ("long(accuracy=2)", "accuracy of a kernel must be between 1e-14 and 0.1"),
        ("torch(block=0)", "block of a kernel must be a whole number of at least 1"),
        ("torch(block=many)", "block of a kernel must be a number"),
    ],
)
def test_kernel_names(kernel, complaint):
    with pytest.raises(tr.InputError, match=complaint.replace("(", r"\(")):
        pair_sum(*draw(3), tr.Lists.from_sizes([3]), strategy="type1", kernel=kernel)
