"""The Triton kernels on the CPU, by Triton's interpreter, and compiled for GPUs without a GPU."""

import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import twinrank as tr
from reference import METRICS
from test_kernels import draw, formula
from test_other_devices import offers_swaps
from test_pairwise_losses import NAMES, assert_same
from test_pairwise_losses import draw as draw_lists
from test_pairwise_losses import outcome as baseline_outcome
from twinrank.core.losses import NAMES as ALL
from twinrank.core.losses import loss
from twinrank.core.ranks import kernels
from twinrank.core.ranks.kernels import device_choice, device_panels, pair_sum, tiles
from twinrank.core.ranks.kernels.curvature import curved_pair_sum
from twinrank.core.ranks.kernels.device_panels import panel_sum
from twinrank.support import random
from twinrank.support.arrays import device_path

pytest.importorskip("triton", reason="Triton is not installed")

STRATEGIES = ["type1", "type2", "type3"]
CPU = torch.device("cpu")
T = 16
SIZES = [0, 1, 2, T - 1, T, 0, T + 1]
"""Around the size of a tile."""


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    """The interpreter takes milliseconds for a tile: tiles are small, and so are lists."""
    monkeypatch.setattr(tiles, "ROWS", T)
    monkeypatch.setattr(tiles, "COLUMNS", T)


def tolerance(dtype):
    return 2e-6 if dtype == np.float32 else 1e-12


@pytest.mark.parametrize(
    ("strategy", "dtype"),
    [("type1", np.float32), ("type2", np.float64), ("type3", np.float32), ("type3", np.float64)],
)
def test_pair_sums_and_their_curvature(strategy, dtype):
    lists = tr.Lists.from_sizes(SIZES)
    data = draw(lists.documents, dtype=dtype)
    result = pair_sum(*data, lists, strategy=strategy, alpha=1.3, kernel="triton")
    expected = formula(*data, lists, strategy, 1.3)
    assert result.dtype == dtype
    assert np.abs(result - expected).max() < tolerance(dtype) * np.abs(expected).max()
    _, curves = tiles.pair_sums(*map(torch.tensor, data), lists, strategy, 1.3, curvature=True)
    _, expected = curved_pair_sum(
        *(x.astype(np.float64) for x in data), lists, strategy=strategy, alpha=1.3
    )
    assert np.abs(curves.numpy() - expected).max() < tolerance(dtype) * np.abs(expected).max()


def test_the_same_bits_again_and_beside_other_lists():
    lists, last = tr.Lists.from_sizes([3, T + 1]), slice(3, None)
    data = tuple(map(torch.tensor, draw(lists.documents, dtype=np.float32)))
    first, again = (tiles.pair_sums(*data, lists, "type3", 1.0)[0] for _ in range(2))
    assert torch.equal(first, again)
    part, own = (x[last] for x in data), tr.Lists.from_sizes([T + 1])
    assert torch.equal(tiles.pair_sums(*part, own, "type3", 1.0)[0], first[last])


@pytest.mark.parametrize(("strategy", "far"), [("type1", 1e20), ("type2", -1e38), ("type3", 1e20)])
def test_outliers_and_large_gradients(strategy, far):
    scores, labels, g = draw(T)
    scores[7] = far
    lists = tr.Lists.from_sizes([T])
    data = tuple(x.astype(np.float32) for x in (scores, labels, g))
    expected = formula(*data, lists, strategy, 3.0)
    result = pair_sum(*data, lists, strategy=strategy, alpha=3.0, kernel="triton")
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()
    large = data[0], data[1], data[2] * np.float32(1e33)
    result = pair_sum(*large, lists, strategy=strategy, alpha=3.0, kernel="triton")
    assert np.abs(result / 1e33 - expected).max() < 1e-5 * np.abs(expected).max()
    data[2][3] = np.nan
    result = pair_sum(*data, lists, strategy=strategy, alpha=3.0, kernel="triton")
    assert not np.isfinite(result).all()


def test_labels_are_compared_in_their_own_precision():
    labels = torch.tensor([2.0**24 + 1, 2.0**24, -0.0, 0.0, -1.5, 1e300], dtype=torch.float64)
    keys = tiles.order_keys(labels)
    assert torch.equal(torch.argsort(keys, stable=True), torch.argsort(labels, stable=True))
    assert keys[2] == keys[3]


# Long lists: the interpolation needs no Triton, the rest of the lists does.


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("dtype", "alpha"),
    [
        (np.float32, 1.0),
        (np.float64, 30.0),
        pytest.param(np.float64, 0.01, marks=pytest.mark.slow),
        pytest.param(np.float32, 30.0, marks=pytest.mark.slow),
    ],
)
def test_long_lists_are_interpolated(strategy, dtype, alpha):
    """With outliers, which need panels of their own."""
    data, lists = draw(400, dtype=dtype), tr.Lists.from_sizes([400])
    data[0][:3] = 1e9, -1e6, -50
    tensors = tuple(map(torch.tensor, data))
    result, done = panel_sum(*tensors, strategy, alpha)
    expected = formula(*data, lists, strategy, alpha)
    assert bool(done)
    bound = 1e-6 if dtype == np.float32 else 1e-10
    assert np.abs(result.numpy() - expected).max() < bound * np.abs(expected).max()
    assert torch.equal(result, panel_sum(*tensors, strategy, alpha)[0])


@pytest.mark.parametrize("many", ["grades", "panels", "width"])
def test_lists_that_cannot_be_interpolated_say_so(many):
    scores, labels, g = map(torch.tensor, draw(600))
    if many == "grades":
        labels = torch.arange(600.0)
    elif many == "panels":
        scores = 3.0 * torch.arange(600.0)
    else:
        scores[0] = 1e17
    assert not bool(panel_sum(scores, labels, g, "type3", 1.0)[1])


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_long_and_short_lists_together(kernel, monkeypatch):
    """Interpolated, too many grades, and short."""
    for module in (kernels, device_panels):
        monkeypatch.setattr(module, "DEVICE_LONG", 12)
    monkeypatch.setattr(device_panels, "GRADES", 6)
    lists = tr.Lists.from_sizes([15, 0, 12, 3])
    data = draw(lists.documents)
    data[1][15:27] = np.arange(12)
    tensors = tuple(map(torch.tensor, data))
    seen = []
    monkeypatch.setattr(
        device_panels, "panel_sum", lambda *a: (seen.append(len(a[0])), panel_sum(*a))[1]
    )
    with device_path(kernel):
        result = pair_sum(*tensors, lists, strategy="type3")
    expected = formula(*data, lists, "type3", 1.0)
    assert np.abs(result.numpy() - expected).max() < 1e-10 * np.abs(expected).max()
    assert seen == [15, 12]
    if kernel == "triton":
        lists.to("cpu")
        with device_path(kernel), Refuse():
            pair_sum(*tensors, lists, strategy="type2")


# Noise and ranks.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_and_ties_have_the_bits_of_the_cpu(dtype):
    scores = torch.linspace(-1, 1, 50).to(dtype)
    seed, index = 2**61 + 12345, np.arange(150)
    noisy, keys = tiles.perturbed(scores, seed, 0.7, 3)
    expected = np.tile(scores.numpy(), 3) + 0.7 * random.gumbel_noise(seed, index)
    assert np.array_equal(noisy.numpy(), expected.astype(scores.numpy().dtype))
    bits = random.random_bits(seed, random.TIES, index)
    assert np.array_equal(keys.numpy(), bits ^ np.int64(-(2**63)))
    again, _ = tiles.perturbed(scores, torch.tensor(seed), 0.7, 3)
    assert torch.equal(noisy, again)


@pytest.mark.parametrize(
    ("ties", "perturbation", "samples"),
    [("random", 0.0, None), ("random", 0.5, 2), ("stable", 0.0, 2), ("average", 0.0, None)],
)
@pytest.mark.parametrize("longest", [3000, 1])
def test_ranks_have_the_bits_of_the_cpu(ties, perturbation, samples, longest, monkeypatch):
    """By counting, and by sorting as for long lists."""
    monkeypatch.setattr(tiles, "COUNTED", longest)
    lists = tr.Lists.from_sizes(SIZES)
    scores = torch.tensor(np.random.default_rng(0).standard_normal(lists.documents)).round(
        decimals=1
    )
    options = {"ties": ties, "perturbation": perturbation, "samples": samples}

    def ranks(dtype):
        return tr.exact_ranks(
            scores.to(dtype), lists, generator=torch.Generator().manual_seed(4), **options
        )

    for dtype in (torch.float32, torch.float64):
        expected = ranks(dtype)
        with device_path("triton"):
            assert torch.equal(ranks(dtype), expected)


# Losses.


def outcome(measure, strategy, kernel, *, samples=1, tied=False, dtype=torch.float64, **options):
    draw = np.random.default_rng(0)
    lists = tr.Lists.from_sizes(options.pop("sizes", [5, 0, 1, T + 1]))
    scores = draw.standard_normal(lists.documents)
    scores = torch.tensor(scores.round(1) if tied else scores).to(dtype).requires_grad_()
    labels = torch.tensor(draw.integers(-1, 4, lists.documents))
    loss = tr.DirectLoss(
        measure,
        strategy,
        perturbation=0.5 * (samples > 1),
        samples=samples,
        generator=torch.Generator().manual_seed(1),
        kernel=kernel,
        **options,
    )(scores, labels, lists)
    loss.sum().backward()
    return loss.detach(), scores.grad


def assert_triton_agrees(measure, strategy, rtol=1e-10, **options):
    if strategy == "swap" and not offers_swaps(measure):
        return
    expected = outcome(measure, strategy, "auto", **options)
    assert_same(outcome(measure, strategy, "triton", **options), expected, rtol)


@pytest.mark.parametrize(
    ("measure", "strategy"),
    [("nDCG@5", "type1"), ("AP", "type2"), ("RR", "type3"), ("nERR@7", "swap")],
)
def test_losses(measure, strategy):
    assert_triton_agrees(measure, strategy, samples=2, tied=True, reduction="none")


@pytest.mark.parametrize("strategy", ["swap"])
def test_losses_in_single_precision(strategy):
    options = {"samples": 2, "dtype": torch.float32, "validate": False}
    assert_triton_agrees("nDCG", strategy, 1e-5, **options)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [*STRATEGIES, "swap"])
@pytest.mark.parametrize("measure", METRICS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_all_losses(measure, strategy, tied, samples):
    for dtype, rtol in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        assert_triton_agrees(
            measure, strategy, rtol, samples=samples, tied=tied, dtype=dtype, sizes=SIZES
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spread", [1.0, pytest.param(1e4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)]
)
def test_baselines(name, spread, dtype):
    data = draw_lists([5, 0, 1, T + 1], spread=spread, dtype=dtype)
    data[0][:5] = data[0][:5].round(decimals=1)
    with device_path("triton"):
        result = baseline_outcome(name, *data)
    assert_same(result, baseline_outcome(name, *data), 1e-4 if dtype == torch.float32 else 1e-10)


# The comparison with plain torch at the first use on a device.


@pytest.fixture
def choose(monkeypatch):
    """The kernel that "auto" takes on CUDA, for which the CPU with the interpreter stands."""
    results = device_choice._results
    monkeypatch.setattr(device_choice, "_results", lambda kernel, _: results(kernel, CPU))
    on_a_gpu = SimpleNamespace(device=torch.device("cuda:0"))
    device_choice.triton_works.cache_clear()
    yield lambda: device_choice.device_kernel(on_a_gpu)
    device_choice.triton_works.cache_clear()


def test_kernels_that_agree_are_used(choose):
    assert choose() == "triton"


@pytest.mark.parametrize(
    "name",
    [
        *("pair_sums", "swap_sums_in_tiles", "lambda_sums_in_tiles", "logistic_sum_in_tiles"),
        *("soft_ranks_in_tiles", "perturbed", "counted_ranks"),
    ],
)
@pytest.mark.parametrize("how", ["raises", "is wrong", "is NaN"])
def test_kernels_that_fail_are_not_used(choose, name, how, monkeypatch):
    own = getattr(tiles, name)

    def broken(*arguments, **options):
        if how == "raises":
            raise RuntimeError("no such instruction")
        results = own(*arguments, **options)
        change = {"is wrong": 1.01, "is NaN": torch.nan}[how]
        if name in ("perturbed", "counted_ranks"):  # whose order counts
            change = -change
        if isinstance(results, tuple):
            return results[0] * change, *results[1:]
        return results * change

    monkeypatch.setattr(tiles, name, broken)
    with pytest.warns(RuntimeWarning, match=r"The Triton kernels do not work on .*kernel='torch'"):
        assert choose() == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose() == "torch"  # without a second warning


def test_without_triton_plain_torch_is_used_silently(choose, monkeypatch):
    monkeypatch.setattr(device_choice, "find_spec", lambda _: None)
    assert choose() == "torch"


# No synchronisation with the device.

ON_THE_CPU = ("WassRank", "NDCGLoss1", "NeuralNDCG")  # losses that always compute there
READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "bincount")


class Refuse(TorchDispatchMode):
    """Raise an error for operations that wait for a device, and for copies of host values."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = function.overloadpacket.__name__, kwargs or {}
        assert name not in READS, f"{function} reads values"
        assert not name.startswith("lift_fresh"), "a copy of host values"
        if name in ("index", "index_put", "index_put_"):
            assert all(i is None or i.dtype != torch.bool for i in args[1]), "a boolean index"
        if name == "repeat_interleave":
            assert kwargs.get("output_size") is not None, "a size that depends on values"
        return function(*args, **kwargs)


@pytest.fixture
def prepared(monkeypatch):
    """Scores, labels, and lists that are on the device before the step."""
    # The seed of a CPU generator is read on the CPU; that of a device's generator stays there.
    monkeypatch.setattr(random, "draw_seed", lambda *_, **__: 7)
    lists = tr.Lists.from_sizes([5, 0, 1, T + 1]).to("cpu")
    scores, labels, _ = draw(lists.documents, grades=4)
    labels[0] = 3
    return torch.tensor(scores, requires_grad=True), torch.tensor(labels), lists


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize(
    ("measure", "strategy"),
    [("nDCG(gain=[0,1,3,7])@10", "type3"), ("nERR(max_grade=4)", "swap"), ("AP", "type1")],
)
def test_a_step_does_not_wait(kernel, strategy, measure, prepared):
    function = tr.DirectLoss(
        measure, strategy, perturbation=0.3, samples=2, kernel=kernel, validate=False
    )
    weights = torch.ones(4)
    with Refuse():
        function(*prepared, weights).backward()
    assert prepared[0].grad.abs().sum() > 0


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("name", [name for name in ALL if name not in ON_THE_CPU])
def test_a_step_of_a_baseline_does_not_wait(kernel, name, prepared):
    function = loss(name)
    function.validate = False
    with device_path(kernel), Refuse():
        function(*prepared).backward()
    assert prepared[0].grad.abs().sum() > 0


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_a_step_on_padded_scores_without_a_mask_does_not_wait(kernel, prepared):
    scores = torch.randn(3, T + 1, requires_grad=True)
    labels = (scores.detach() > 0).float()
    function = tr.DirectLoss("nDCG", kernel=kernel, validate=False)
    expected = function(scores, labels, mask=torch.ones(3, T + 1, dtype=torch.bool)).item()
    assert function(scores, labels).item() == expected  # copies the lists to the device
    with Refuse():
        value = function(scores, labels)
        value.backward()
    assert value.item() == expected
    assert scores.grad.abs().sum() > 0


@pytest.mark.parametrize("ties", ["random", "stable", "average"])
@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_ranks_do_not_wait(kernel, ties, prepared):
    scores, _, lists = prepared
    with device_path(kernel, validate=False), Refuse():
        tr.exact_ranks(scores, lists, ties=ties, perturbation=0.1, samples=2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("strategy", ["type3", "swap"])
def test_a_step_on_a_gpu_does_not_wait(strategy, prepared):
    scores, labels = (x.detach().cuda() for x in prepared[:2])
    scores.requires_grad_()
    lists = prepared[2].to("cuda")
    function = tr.DirectLoss("nDCG", strategy, perturbation=0.3, samples=2, validate=False)
    function(scores, labels, lists).backward()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        function(scores, labels, lists).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_refusal_works(prepared):
    with pytest.raises(AssertionError, match="reads values"), Refuse():
        tr.DirectLoss("nDCG", kernel="torch")(*prepared)  # validates


@pytest.mark.filterwarnings("ignore:invalid value")  # of the interpreter
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_without_checks_scores_that_are_not_finite_give_nan(bad, kernel):
    scores = torch.tensor([1.0, bad, 0.5], requires_grad=True)
    labels, lists = torch.tensor([0, 1, 2]), tr.Lists.from_sizes([3])
    assert tr.DirectLoss("nDCG", kernel=kernel, validate=False)(scores, labels, lists).isnan()
    with device_path(kernel):
        assert tr.RankNet(validate=False)(scores, labels, lists).isnan()


def test_a_generator_of_the_device_is_not_read():
    """Its seed stays a tensor there; the meta device stands for a GPU."""
    like = torch.empty(3, device="meta")
    seed = torch.empty((), dtype=torch.int64, device="meta")
    assert random.draw_seed(seed, like) is seed
    assert isinstance(random.draw_seed(torch.Generator(), like), int)


# Compilation.

COMPILE = """
import sys, warnings
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from twinrank.core.ranks.kernels import triton_kernels as kernels

warnings.simplefilter("ignore")
TILE = {"ROWS": 32, "COLUMNS": 64}
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
I, R = "*i64", "*i32"
VARIANTS = [
    *[
        ("sum_pairs", [I, 0, I, 0, "*i8", 0, 0, 0],
         {"STRATEGY": strategy, "CURVES": curves, "SKIP": curves, **TILE})
        for strategy in (3, 2, 1) for curves in (False, True)
    ],
    ("sum_swaps", [I, 0, I, 0, R, 0, 0, 0, 0, 0, 0, "i32", "i32"], TILE),
    *[("sum_lambdas", [I, 0, 0, R, 0, 0, 0, 0, 0], {"NEAR": near, **TILE}) for near in (1, 0)],
    *[("sum_logistic", [I, 0, I, 0, 0, 0], {"LOSSES": losses, **TILE}) for losses in (1, 0)],
    ("perturb", [0, I, "*fp64", 0, I, "i32", "i32"], {"NOISE": True, "BLOCK": 1024}),
    *[("count_ranks", [I, 0, I, 0, "i32"], {"TIES": ties, **TILE}) for ties in (0, 1, 2)],
]
seen, once = set(), sys.argv[3] == "once"
for name, types, constants in VARIANTS:
    if once and name in seen:
        continue
    seen.add(name)
    kernel = getattr(kernels, name)
    types, signature = iter(types), {}
    for argument in kernel.arg_names:
        kind = "constexpr" if argument in constants else next(types)
        signature[argument] = sys.argv[2] if kind == 0 else kind
    places = {(kernel.arg_names.index(key),): value for key, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    triton.compile(source, target=TARGETS[sys.argv[1]])
jitted = {n for n, k in vars(kernels).items() if hasattr(k, "arg_names") and n[0] != "_"}
assert seen == jitted, jitted - seen
"""


def compile_kernels(target, precision, which, folder):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, target, precision, which],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_kernels_compile_for_a_gpu(tmp_path):
    compile_kernels("sm_80", "*fp32", "once", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("precision", ["*fp32", "*fp64"])
def test_kernels_compile(target, precision, tmp_path):
    compile_kernels(target, precision, "all", tmp_path)
