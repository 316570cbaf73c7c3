"""Sums of measures and losses: their gradient, and nets whose scores are log-odds."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.base import clone

import twinrank as tr
from baseline_references import REFERENCES
from twinrank.core.losses import probability_term
from twinrank.learning.models.saved_model import CALIBRATION
from twinrank.learning.models.score_map import ScoreMap, SigmoidMap

OBJECTIVE = "nDCG@10 + 0.5 * SigmoidCrossEntropy(relevant=2)"
SIZES = [7, 1, 0, 12, 2, 5]
NET = {"architecture": "MLP(width=8, depth=1)", "epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def parts():
    return tr.synthetic_web_search(queries=60).split(0.6, 0.2)


@pytest.fixture(scope="module")
def ranker(parts):
    return tr.Ranker(OBJECTIVE, **NET).fit(parts[0], eval_set=parts[1])


# The loss


def example(columns=0):
    draw = np.random.default_rng(1)
    lists = tr.Lists.from_sizes(SIZES)
    scores = torch.tensor(draw.standard_normal(lists.documents))
    labels = draw.integers(0, 3, (lists.documents, 1 + columns)).astype(float)
    labels[lists.index(labels[:, 0]) == 3] = 0  # a list with nothing relevant
    return scores, torch.tensor(labels if columns else labels[:, 0]), lists


def outcome(loss, scores, labels, lists, weights=None):
    s = scores.clone().requires_grad_()
    value = loss(s, labels, lists, weights)
    value.sum().backward()
    return value.detach(), s.grad


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", ["type1", "type3", "swap"])
def test_the_gradient_of_a_sum(strategy, weighted, reduction):
    """List by list: minus the measure with its own gradient, plus the loss by autograd."""
    scores, labels, lists = example()
    weights = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0, 1.5]) if weighted else None
    loss = tr.LossSum("2 * nDCG@3 + 0.5 * SigmoidCrossEntropy + MSE", strategy, reduction=reduction)
    value, gradient = outcome(loss, scores, labels, lists, weights)
    direct = tr.DirectLoss("nDCG@3", strategy, reduction="none")
    values, slopes = outcome(direct, scores, labels, lists)
    values, slopes = 2 * values.clone(), 2 * slopes.clone()
    for q, documents in enumerate(lists):
        if documents.start == documents.stop:
            continue
        s = scores[documents].clone().requires_grad_()
        more = 0.5 * REFERENCES["SigmoidCrossEntropy"](s, labels[documents])
        more = more + REFERENCES["MSE"](s, labels[documents])
        more.backward()
        values[q] += more.item()
        slopes[documents] += s.grad
    share = torch.tensor([1.0, 1, 0, 1, 1, 1], dtype=torch.float64)  # the empty list
    share = share if weights is None else share * weights
    share = share / share.sum() if reduction == "mean" else share
    expected = share * values
    torch.testing.assert_close(value, expected if reduction == "none" else expected.sum())
    torch.testing.assert_close(gradient, lists.spread(share) * slopes)


def test_losses_take_the_main_labels_of_several_columns():
    scores, labels, lists = example(columns=1)
    measures = "0.7 * nDCG + 0.3 * nDCG(label=click)"
    both = outcome(tr.LossSum(f"{measures} + 2 * ListNet", reduction="none"), scores, labels, lists)
    direct = outcome(tr.DirectLoss(measures, reduction="none"), scores, labels, lists)
    loss = outcome(tr.ListNet(reduction="none"), scores, labels[:, 0], lists)
    for own, first, second in zip(both, direct, loss, strict=True):
        torch.testing.assert_close(own, first + 2 * second)


def test_a_sum_under_torch_compile_has_the_same_gradient():
    scores, labels, lists = example()
    loss = tr.LossSum(OBJECTIVE)
    expected = outcome(loss, scores, labels, lists)
    slope = torch.func.grad(lambda s: loss(s, labels, lists))(scores)
    torch.testing.assert_close(slope, expected[1])


@pytest.mark.parametrize("kind", [tr.DirectLoss, tr.LossSum])
def test_columns_of_labels_in_transforms_of_torch(kind):
    scores, labels, lists = example()
    columns = torch.stack([labels, labels.flip(0)], 1)
    loss = kind("0.5 * nDCG + 0.5 * nDCG(label=margin)" + " + ListNet" * (kind is tr.LossSum))
    expected = outcome(loss, scores, columns, lists)[1]
    slope = torch.func.grad(lambda s, y: loss(s, y, lists))
    torch.testing.assert_close(slope(scores, columns), expected)
    both = torch.func.vmap(slope)(scores.expand(2, -1), columns.expand(2, -1, -1))
    torch.testing.assert_close(both, expected.expand(2, -1))


def test_other_devices_give_the_same_sum():
    from twinrank.support.arrays import device_path

    scores, labels, lists = example()
    expected = outcome(tr.LossSum(OBJECTIVE), scores, labels, lists)
    with device_path("torch"):
        found = outcome(tr.LossSum(OBJECTIVE), scores, labels, lists)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("nDCG + 0.5 * SigmoidCrossEntrop", "Did you mean 'SigmoidCrossEntropy'"),
        ("nDCG + 0.5 * SigmoidCrossEntropy(scale=0)", "scale of SigmoidCrossEntropy must be"),
        ("nDCG + 0.5 * SigmoidCrossEntropy(label=click)", "Unknown option of SigmoidCrossEntropy"),
        ("nDCG + 0 * SigmoidCrossEntropy", "weights above 0"),
    ],
)
def test_sums_that_cannot_be_read(parts, objective, message):
    with pytest.raises(tr.InputError, match=message):
        tr.Ranker(objective, **NET).fit(parts[0])


def test_own_losses_are_no_terms(parts):
    tr.register_loss("spread", lambda scores, labels, lists: scores.mean())
    with pytest.raises(tr.InputError, match="cannot be a term"):
        tr.Ranker("nDCG + spread", **NET).fit(parts[0])


def test_trees_say_that_losses_are_for_nets(parts):
    with pytest.raises(tr.InputError, match="SigmoidCrossEntropy is a loss for nets"):
        tr.BoostedRanker("nDCG + 0.5 * SigmoidCrossEntropy").fit(parts[0])


# Probabilities


def test_scores_are_log_odds(ranker, parts):
    test = parts[2]
    scores = ranker.predict(test)
    p = ranker.predict(test, output="probability")
    assert p == pytest.approx(1 / (1 + np.exp(-scores.astype(float))), abs=1e-6)
    with pytest.raises(tr.InputError, match="not calibrated for grade, only for probability"):
        ranker.predict(test, output="grade")


def test_training_calibrates():
    """On documents whose probability is known, and with queries that have nothing relevant."""
    random = np.random.default_rng(0)
    X = random.normal(size=(12_000, 2)).astype(np.float32)
    true = 1 / (1 + np.exp(3 - 1.5 * X[:, 0]))
    data = tr.Dataset.from_arrays(X, random.random(true.size) < true, group=[8] * 1500)
    assert (data.lists.sum(data.y) == 0).mean() > 0.2
    own = {"architecture": "MLP(width=8, depth=1, dropout=0)", "transforms": "Standardise"}
    train, test = slice(0, 1000), slice(1000, 1500)
    own |= {"epochs": 15, "batch_documents": 200, "feature_noise": 0.0, "random_state": 0}
    errors = []
    for objective in ("nDCG", "nDCG + SigmoidCrossEntropy"):
        fitted = tr.Ranker(objective, **own).fit(data.select(range(1500)[train]))
        rest = data.select(range(1500)[test])
        p = 1 / (1 + np.exp(-fitted.predict(rest).astype(float)))
        errors.append(np.abs(p - 1 / (1 + np.exp(3 - 1.5 * rest.X[:, 0]))).mean())
    assert errors[1] < 0.03 < errors[0]


def test_a_saved_model_and_onnx_keep_the_probability(ranker, parts, tmp_path):
    test = parts[2].select([0])
    expected = ranker.predict(test, output="probability")
    ranker.save(tmp_path / "model")
    loaded = tr.load_model(tmp_path / "model")
    assert np.array_equal(loaded.predict(test, output="probability"), expected)
    ranker.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {session.get_inputs()[0].name: test.X}), strict=True))
    assert found["probability"] == pytest.approx(expected, abs=1e-5)


def test_a_map_replaces_the_sigmoid(ranker, parts):
    own = clone(ranker).fit(parts[0], eval_set=parts[1], calibrate="probability(relevant=2)")
    assert type(own.model_.calibration["probability"]) is ScoreMap
    assert type(ranker.model_.calibration["probability"]) is SigmoidMap


def test_a_resumed_training_gives_the_same_bits(parts, tmp_path):
    class Stop(tr.training.Callback):
        def on_step_end(self, trainer):
            trainer.interrupted = trainer.progress.iteration == 1

    whole = tr.Ranker(OBJECTIVE, **NET).fit(parts[0], eval_set=parts[1], run=tmp_path / "whole")
    with pytest.raises(tr.training.TrainingInterrupted):
        tr.Ranker(OBJECTIVE, **NET).fit(
            parts[0], eval_set=parts[1], run=tmp_path / "cut", callbacks=[Stop()]
        )
    own = tr.Ranker(OBJECTIVE, **NET)
    own.fit(parts[0], eval_set=parts[1], run=tmp_path / "cut", resume=True)
    for output in ("score", "probability"):
        expected = whole.predict(parts[2], output=output)
        assert np.array_equal(own.predict(parts[2], output=output), expected)
    more = own.set_params(epochs=5)
    more.fit(parts[0], eval_set=parts[1], init_model=whole)
    assert "probability" in more.model_.calibration


def test_the_sigmoid_is_strictly_increasing():
    own = SigmoidMap.of(1.0, 0.7)
    tiny = np.arange(-2000, 2000, dtype=np.int64)
    near = [np.float32(x) for x in (1e-30, 2.0**-20 / 0.7, 1e-3, 1.0, 17.0, 60.0, 3e38)]
    s = [np.float32(0), *near, *(-x for x in near)]
    bits = np.concatenate([x.view(np.int32) + tiny for x in map(np.array, s[1:])])
    values = np.unique(bits.astype(np.int32).view(np.float32))
    values = np.unique(np.concatenate([values[np.isfinite(values)], [-np.inf, 0, np.inf]]))
    p = own(values.astype(np.float32))
    assert (np.diff(p) > 0).all()
    assert (p >= 0).all()
    assert (p <= 1).all()


def test_a_damaged_sigmoid_is_refused(ranker, tmp_path):
    content = SigmoidMap.of(2.0, 3.0).to_json()
    again = ScoreMap.from_json(json.loads(json.dumps(content)))
    assert type(again) is SigmoidMap
    assert again(np.float32([1.0]))[0] == pytest.approx(1 / (1 + np.exp(-3.0)), abs=1e-6)
    for change in ({"curve": "step"}, {"scores": [0.5, 1.0]}, {"target": "grade"}):
        with pytest.raises(tr.InputError, match="calibration is damaged"):
            ScoreMap.from_json({**content, **change})
    ranker.save(tmp_path / "model")
    assert (tmp_path / "model" / CALIBRATION).is_file()


def test_which_objectives_give_probabilities():
    assert probability_term(OBJECTIVE).relevant == 2
    assert probability_term("SigmoidCrossEntropy(scale=2)").scale == 2
    assert probability_term(tr.LossSum(OBJECTIVE)).relevant == 2
    for objective in ("nDCG", "nDCG + 0.5 * ListNet", "MSE", abs):
        assert probability_term(objective) is None


def test_a_search_knows_which_parameters_matter_to_a_sum():
    from twinrank.experiments.tuning.space import _matters

    for objective in (OBJECTIVE, "nDCG + AP"):
        assert _matters("strategy", {"objective": objective})
    assert not _matters("strategy", {"objective": "SigmoidCrossEntropy"})
