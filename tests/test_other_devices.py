"""The code for tensors on other devices, run on the CPU: the same losses and gradients."""

import importlib

import numpy as np
import pytest
import torch

import twinrank as tr
from reference import METRICS

MODULES = ["lists.per_list", "losses.direct", "ranks.exact", "ranks.twin", "ranks.kernels"]


def outcome(measure, strategy, samples, reduction):
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
    )(scores, labels, lists)
    loss.sum().backward()
    return loss.detach(), scores.grad


@pytest.mark.parametrize("measure", METRICS)
@pytest.mark.parametrize(
    ("strategy", "samples", "reduction"),
    [("type1", 1, "none"), ("type2", 4, "mean"), ("type3", 4, "sum")],
)
def test_other_devices_give_the_same(measure, strategy, samples, reduction, monkeypatch):
    loss, gradient = outcome(measure, strategy, samples, reduction)
    for name in MODULES:
        monkeypatch.setattr(importlib.import_module(f"twinrank.{name}"), "on_cpu", lambda _: False)
    other_loss, other_gradient = outcome(measure, strategy, samples, reduction)
    torch.testing.assert_close(other_loss, loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(other_gradient, gradient, rtol=1e-10, atol=1e-12)
