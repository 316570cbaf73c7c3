"""Training on a device, with the CPU in its place: data that is there, and one wait per step."""

import numpy as np
import pytest
import torch

import twinrank as tr
from test_training import DATA, EVALUATION, make_trainer, same, weights_of
from twinrank.data.transforms import transform
from twinrank.learning.models import devices
from twinrank.learning.models.devices import DeviceBatches, fits, on_device
from twinrank.learning.models.scorer import score_all
from twinrank.learning.training.learner import TrainingError
from twinrank.support.arrays import device_path

CPU = torch.device("cpu")


@pytest.fixture
def _as_device(monkeypatch):
    """Features count as moved to a device."""
    monkeypatch.setattr(devices, "fits", lambda *_: True)


def deferred(trainer):
    trainer.learner._deferred = True
    return trainer


@pytest.mark.usefixtures("_as_device")
def test_training_is_the_same(monkeypatch):
    """Batches and evaluation from a device, and checks deferred to the end of a step."""
    options = {"evaluation": {"vali": EVALUATION}, "iterations": 2, "clip": 1.0}
    on_the_device = deferred(make_trainer(**options))
    assert isinstance(on_the_device.learner._batches, DeviceBatches)
    monkeypatch.undo()
    usual = make_trainer(**options)
    for trainer in (usual, on_the_device):
        trainer.run()
    losses = [[record["loss"] for record in t.progress.history] for t in (usual, on_the_device)]
    assert losses[0] == pytest.approx(losses[1])
    assert same(weights_of(on_the_device), weights_of(usual))


@pytest.mark.usefixtures("_as_device")
@pytest.mark.parametrize("kernel", ["torch"])
def test_training_by_tensors_alone(kernel):
    """As on mps and xpu: the same ranks and noise, so nearly the same scores."""
    loss = tr.DirectLoss("nDCG", perturbation=0.1, samples=2, kernel=kernel)
    # Adam would magnify the rounding of gradients that are 0, as that of the last bias.
    options = {"iterations": 2, "optimiser": "sgd", "learning_rate": 0.1}
    trainer, usual = make_trainer(loss, **options), make_trainer(**options)
    with device_path(kernel):
        deferred(trainer).run()
    usual.run()
    assert not loss.validate  # after the first epoch, which has seen all labels
    scores, expected = (
        score_all(t.learner.net, DATA, t.learner.transform, 300) for t in (trainer, usual)
    )
    assert np.abs(scores - expected).max() < 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_loss_that_is_no_number_stops_the_training(epoch):
    """Before the weights are spoilt, also where checks are deferred."""
    calls = []

    def loss(scores, labels, lists):
        calls.append(1)
        return scores.sum() * (float("nan") if len(calls) > epoch * steps else 1.0)

    trainer = deferred(make_trainer(loss, iterations=2))
    steps = trainer.learner.count_steps(0)
    with pytest.raises(TrainingError, match=rf"The loss is nan in epoch {epoch + 1}, step 1"):
        trainer.run()
    assert all(bool(torch.isfinite(w).all()) for w in trainer.learner.net.parameters())


def test_batches_on_a_device_are_those_of_the_host():
    fitted = transform("QueryZScore")
    host = DATA.batches(300, random_state=3, transform=fitted)
    moved = DeviceBatches(host, DATA, fitted, CPU)
    plan = host.plan(1)
    assert all(map(np.array_equal, moved.plan(1), plan))
    for mine, theirs in zip(moved.made(plan), host.made(plan), strict=True):
        assert np.array_equal(mine.X.numpy(), theirs.X)
        assert np.array_equal(mine.y.numpy(), theirs.y)
        assert mine.lists == theirs.lists


@pytest.mark.usefixtures("_as_device")
def test_scores_of_data_on_a_device():
    net, fitted = make_trainer().learner.net, transform("QueryZScore")
    moved = DeviceBatches(DATA.batches(300), DATA, fitted, CPU)
    expected = score_all(net, DATA, fitted, 300)
    assert np.array_equal(score_all(net, DATA, fitted, 300, batches=moved), expected)


def test_what_fits():
    assert not fits(1, CPU)
    assert fits(2**20, torch.device("meta"))
    assert not fits(2**40, torch.device("meta"))
    tensor = torch.ones(2)
    assert on_device(tensor, CPU) is tensor


def test_lists_without_segment_sums():
    """Devices without segment_reduce add with an index."""
    from twinrank.core.lists.tensor_lists import reduce_lists, scattered

    lists = tr.Lists.from_sizes([3, 1, 4])
    x, tensors = torch.randn(8, dtype=torch.float64), lists._tensors(CPU)
    for name in ("sum", "max", "min"):
        torch.testing.assert_close(scattered(x, name, *tensors), reduce_lists(x, name, *tensors))
