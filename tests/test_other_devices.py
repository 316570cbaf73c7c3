"""The code for tensors on other devices, run on the CPU: the same losses and gradients."""

import sys

import numpy as np
import pytest
import torch

import twinrank as tr
from reference import METRICS


def outcome(measure, strategy, samples, reduction, kernel="auto"):
    draw = np.random.default_rng(0)
    lists = tr.Lists.from_sizes([12, 0, 1, 30])
    scores = torch.tensor(draw.standard_normal(43).round(1), requires_grad=True)
    labels = torch.tensor(draw.integers(0, 4, 43))
    loss = tr.DirectLoss(
        measure,
        strategy,
        perturbation=0.5 * (samples > 1),
        samples=samples,
        reduction=reduction,
        generator=torch.Generator().manual_seed(1),
        kernel=kernel,
    )(scores, labels, lists)
    loss.sum().backward()
    return loss.detach(), scores.grad


def offers_swaps(measure):
    try:
        tr.measure(measure).check_strategy("swap")
    except tr.InputError:
        return False
    return True


@pytest.mark.parametrize("measure", METRICS)
@pytest.mark.parametrize(
    ("strategy", "samples", "reduction"),
    [("type1", 1, "none"), ("type2", 4, "mean"), ("type3", 4, "sum"), ("swap", 2, "mean")],
)
def test_other_devices_give_the_same(measure, strategy, samples, reduction):
    if strategy == "swap" and not offers_swaps(measure):
        pytest.skip("the measure has no swaps")
    loss, gradient = outcome(measure, strategy, samples, reduction)
    other_loss, other_gradient = outcome(measure, strategy, samples, reduction, kernel="torch")
    torch.testing.assert_close(other_loss, loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(other_gradient, gradient, rtol=1e-10, atol=1e-12)


def test_without_triton(monkeypatch):
    from twinrank.core.ranks.kernels import tiles

    monkeypatch.setitem(sys.modules, "twinrank.core.ranks.kernels.triton_kernels", None)
    monkeypatch.delattr("twinrank.core.ranks.kernels.triton_kernels", raising=False)
    tiles.kernels.cache_clear()
    try:
        with pytest.raises(tr.InputError, match=r"twinrank\[gpu\]', or use kernel='torch'"):
            outcome("nDCG", "type3", 1, "mean", kernel="triton")
    finally:
        tiles.kernels.cache_clear()
