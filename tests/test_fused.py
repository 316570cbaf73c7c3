"""The fused norm, activation and dropout give the results of the layers run one by one."""

import copy

import numpy as np
import pytest
import torch

import twinrank as tr
from twinrank.learning.models import fused, fused_kernels, scorer
from twinrank.learning.models.architecture import ACTIVATIONS, architecture
from twinrank.learning.models.fused import can_fuse
from twinrank.learning.models.scorer import Scorer

LISTS = tr.Lists.from_sizes([40, 1, 0, 2, 21, 0])
FEATURES = 5


@pytest.fixture(autouse=True)
def _small_layers_too(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(fused, "MIN_VALUES", 0)
    yield
    torch.set_num_threads(before)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def net(norm="batch", activation="celu", width=7, dtype=torch.float64, dropout=0.0):
    """A net whose parameters all differ from their initial values, biases included."""
    name = f"MLP(width={width}, depth=2, norm={norm}, activation={activation}, dropout={dropout})"
    made = Scorer(FEATURES, architecture(name), generator=seeded()).to(dtype)
    with torch.no_grad():
        for p in made.parameters():
            p += 0.3 * torch.randn(p.shape, generator=seeded(p.numel()), dtype=torch.float64)
    return made.train()


def features(rows=LISTS.documents, dtype=torch.float64):
    X = 3 * torch.randn(rows, FEATURES, generator=seeded(1), dtype=torch.float64) + 2
    return X.to(dtype).requires_grad_()


def outcome(made, X, lists=LISTS):
    """Scores, ∂L/∂X, every gradient and every running statistic after a step."""
    torch.manual_seed(7)
    scores = made(X, lists)
    weights = torch.linspace(-1, 2, len(X), dtype=torch.float64).to(X.dtype)
    gradients = torch.autograd.grad((scores.sin() * weights).sum(), [X, *made.parameters()])
    return {"scores": scores.detach(), "X": gradients[0]} | dict(
        zip([n for n, _ in made.named_parameters()], gradients[1:], strict=True),
        **dict(made.named_buffers()),
    )


@pytest.fixture
def plain(monkeypatch):
    """The outcome without fusing."""

    def of(made, *inputs):
        with monkeypatch.context() as patched:
            patched.setattr(scorer, "can_fuse", lambda *_: False)
            return outcome(made, *inputs)

    return of


def assert_same(actual, expected, tolerance):
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["batch", "query"])
def test_equals_torchs_layers(norm, activation, plain):
    made = net(norm, activation, dropout=0.2)
    duplicate = copy.deepcopy(made)
    assert can_fuse(features(), list(made.layers)[:4], LISTS)
    for _ in range(2):  # running statistics move on from where they are
        assert_same(outcome(made, features()), plain(duplicate, features()), 1e-10)


@pytest.mark.parametrize("width", [1, 3, 100, 1100])
@pytest.mark.parametrize("norm", ["batch", "query"])
def test_equals_torchs_layers_at_any_width_and_length(norm, width, plain):
    chunk = fused_kernels.rows_per_chunk(width)
    for rows in (2, chunk + 1, 3 * chunk) if width > 3 else (2, chunk + 1):
        lists = tr.Lists.from_sizes([rows // 2, rows - rows // 2])
        made = net(norm, width=width)
        inputs = features(rows), lists
        expected = plain(copy.deepcopy(made), *inputs)
        assert_same(outcome(made, *inputs), expected, 1e-8)


@pytest.mark.parametrize("norm", ["batch", "query"])
def test_single_precision(norm, plain):
    exact = plain(net(norm, width=40), features())
    single = outcome(net(norm, width=40, dtype=torch.float32), features(dtype=torch.float32))
    for name, value in exact.items():
        largest = max(float(value.abs().max()), 1.0)
        assert float((single[name].double() - value).abs().max()) < 1e-5 * largest, name


def test_a_mean_far_from_zero_costs_no_digits():
    """Squares are summed around the mean: Σ z² − n·mean² would have no digits left here."""
    values = np.random.default_rng(0).normal(1e4, 1, (1000, 3))
    z, bounds = values.astype(np.float32), np.array([0, 900, 1800, 3000])
    sums, squares = np.empty((2, 3, 3))
    fused_kernels.chunk_moments(0, 3, z.reshape(-1), bounds, sums, squares)
    mean, variance, r = np.zeros((3, 1, 3))
    fused_kernels.merge_moments(
        bounds, np.zeros(3, np.int64), sums, squares, 0.0, mean, variance, r
    )
    np.testing.assert_allclose(mean[0], z.mean(0, np.float64), rtol=1e-7)
    np.testing.assert_allclose(variance[0], z.astype(np.float64).var(0), rtol=1e-5)
    np.testing.assert_allclose(r, variance**-0.5)


@pytest.mark.parametrize(("kind", "ulps"), [(np.float32, 2), (np.float64, 3)])
def test_the_exponential_is_right_to_the_last_digits(kind, ulps):
    magnitudes = np.geomspace(1e-30, 100, 20_000)
    u = np.append(-magnitudes, [np.nan, 0.0, -0.0, 0.5, 300.0]).astype(kind)
    affine, out = np.array([0, 1, 0], kind).reshape(3, 1, 1), np.empty_like(u)
    where = np.array([0, u.size]), np.zeros(1, np.int64), affine
    fused_kernels.normalise_activate(
        0, 1, u, *where, 1.0, 0.0, fused_kernels.dropout_key(0, 0.0), 1.0, out
    )
    below, expected = u <= 0, np.expm1(u.astype(np.longdouble))
    assert np.max(np.abs((out - expected)[below]) / np.spacing(np.abs(out[below]))) <= ulps
    assert out[-5:].tolist() == pytest.approx([np.nan, 0, 0, 0.5, 300], nan_ok=True)


def test_the_number_of_threads_changes_no_bit():
    """Only the norm is tested: torch's matrix products depend on the number of threads."""

    def run(threads, norm):
        torch.set_num_threads(threads)
        try:
            z = torch.randn(3000, 100, generator=seeded()).requires_grad_()
            layer = net(norm, width=100, dtype=torch.float32).layers[1]
            lists = tr.Lists.from_sizes([1000, 1500, 500]) if norm == "query" else None
            arguments = torch.zeros(100), layer.weight, layer.bias, layer, lists, (1.0, 0.0), 0.3
            torch.manual_seed(0)
            out = fused._NormedActivated.apply(z, *arguments)
            upstream = torch.randn(3000, 100, generator=seeded(1))
            gradients = torch.autograd.grad(out, [z, layer.weight, layer.bias], upstream)
        finally:
            torch.set_num_threads(1)
        return [out.detach(), *gradients, *layer.buffers()]

    for norm in ("batch", "query"):
        alone = run(1, norm)
        for threads in (2, 3):
            for a, b in zip(alone, run(threads, norm), strict=True):
                assert torch.equal(a, b)


def test_a_bias_before_a_norm_has_no_gradient_but_passes_on_nan():
    made = net(dtype=torch.float32)
    gradients = outcome(made, features(dtype=torch.float32))
    assert not gradients["layers.0.bias"].any()
    made.layers[0].bias.data[0] = torch.nan
    assert not made(features(dtype=torch.float32)).isfinite().any()


def test_values_that_arent_finite_raise_no_warning():
    X = features(dtype=torch.float32).detach()
    X[3, 2] = torch.inf
    made = net(dtype=torch.float32)
    scores = made(X)
    assert not scores.isfinite().any()
    scores.sum().backward()


def test_has_a_first_derivative_only():
    made, X = net(), features()
    with pytest.raises(RuntimeError, match="without create_graph"):
        torch.autograd.grad(made(X).sum(), X, create_graph=True)
    for _ in range(2):  # but the first derivative may be computed repeatedly
        scores = made(X)
        first, again = (torch.autograd.grad(scores.sum(), X, retain_graph=True) for _ in range(2))
        assert torch.equal(first[0], again[0])


def test_layers_with_hooks_are_not_fused():
    made, X, seen = net(), features(), []
    expected = made(X)
    handle = made.layers[1].register_forward_hook(lambda *values: seen.append(values))
    torch.testing.assert_close(made(X), expected)
    assert len(seen) == 1
    handle.remove()


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_values_kept_by_hooks_are_not_changed_afterwards(norm):
    made, X, kept = net(norm, dropout=0.3), features(), []
    last, before = made.layers[-1], made.layers[-2]
    before.register_forward_hook(lambda _, __, out: kept.append((out, out.clone())))
    last.register_full_backward_hook(lambda _, grad, __: kept.append((grad[0], grad[0].clone())))
    made(X).sum().backward()
    assert len(kept) == 2
    assert all(torch.equal(now, then) for now, then in kept)


def test_a_second_derivative_through_dropout_is_refused():
    made, X = net("none", dropout=0.3), features().requires_grad_()
    with pytest.raises(RuntimeError, match="first derivative only"):
        torch.autograd.grad(made(X).sum(), X, create_graph=True)


def test_conditions_for_fusing(monkeypatch):
    layers, X = list(net(dtype=torch.float32).layers), features(dtype=torch.float32)
    assert can_fuse(X, layers[:4], None)
    for unsupported in (X.bfloat16(), X.double(), X.to("meta"), X[:1]):
        assert not can_fuse(unsupported, layers[:4], None)
    assert not can_fuse(X, layers[1:5], None)
    assert not can_fuse(X, layers[-1:], None)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_fuse(X, layers[:4], None)
    layers[1].eval()  # a frozen norm
    assert not can_fuse(X, layers[:4], None)
    by_query = list(net("query", dtype=torch.float32).layers)
    assert can_fuse(X, by_query[:4], LISTS)
    assert not can_fuse(X, by_query[:4], None)
    monkeypatch.setattr(fused, "MIN_VALUES", 7 * len(X) + 1)
    assert not can_fuse(X, list(net(dtype=torch.float32).layers)[:4], None)
    one_list = tr.Lists.from_sizes([len(X)])
    assert [can_fuse(X, by_query[:4], lists) for lists in (one_list, LISTS)] == [False, True]
    low = net(dtype=torch.bfloat16, dropout=0.5)
    low(X.bfloat16()).sum().backward()
    assert all(p.grad.isfinite().all() for p in low.parameters())


def test_the_same_seed_trains_the_same_weights():
    def weights(random_state):
        data = tr.synthetic_web_search(queries=12)
        ranker = tr.Ranker(
            architecture="CE4.L(width=9, dropout=0.2)", epochs=2, random_state=random_state
        )
        return ranker.fit(data).model_.net.state_dict()

    first, again, different = weights(3), weights(3), weights(4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["layers.0.weight"], different["layers.0.weight"])
