"""Pre-training on unlabelled lists, and distillation from a teacher."""

import numpy as np
import pytest
import torch
from torch import nn

import twinrank as tr
from twinrank.learning.models.architecture import architecture
from twinrank.learning.models.ensemble import build_net
from twinrank.learning.training import pretraining, run_folder
from twinrank.learning.training.console import Bar, Lines
from twinrank.learning.training.distillation import DistilledLoss, standardised
from twinrank.learning.training.pretraining import TEMPERATURE, Views, contrast, view
from twinrank.training import Callback

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {
    "architecture": "MLP(width=8, depth=2, dropout=0.1)",
    "epochs": 1,
    "batch_documents": 600,
    "pretrain_epochs": 2,
}
DATA = tr.synthetic_web_search(queries=24)
TRAIN, MORE, NEW = DATA.split(0.4, 0.4, 0.2)


@pytest.fixture(autouse=True)
def _without_curves(monkeypatch):
    """Plots take most of the time of a small run."""
    monkeypatch.setattr(run_folder, "draw_history", lambda *_: None)


# Pre-training


def test_contrast_is_infonce_within_each_list(monkeypatch):
    """Against one list at a time; lists of more than four documents are cut."""
    monkeypatch.setattr(pretraining, "LONGEST", 4)
    lists = tr.Lists.from_sizes([2, 3, 4, 11, 2])
    torch.manual_seed(0)
    first, second = nn.functional.normalize(torch.randn(2, lists.documents, 5), dim=2)
    parts = list(pretraining._parts(lists))
    cut = [row[row >= 0] for part in parts for row in part]
    assert sorted(torch.cat(cut).tolist()) == list(range(lists.documents))
    assert sorted(map(len, cut)) == [2, 2, 3, 3, 4, 4, 4]
    assert all(len({lists.list_of(int(i)) for i in rows}) == 1 for rows in cut)
    expected = 0.0
    for rows in cut:
        logits = first[rows] @ second[rows].T / TEMPERATURE
        own = torch.arange(len(rows))
        for each in (logits, logits.T):
            expected += nn.functional.cross_entropy(each, own, reduction="sum") / 2
    assert contrast(first, second, parts).item() == pytest.approx(expected.item() / 22, rel=1e-5)


def test_views_replace_values_within_a_query():
    lists = tr.Lists.from_sizes([3, 40])
    X = torch.arange(43.0)[:, None].expand(43, 50).clone()
    plain = torch.tensor([False] * 25 + [True] * 25)
    torch.manual_seed(0)
    changed = view(X, lists, plain, 0.4)
    assert set(changed[:3, :25].unique().tolist()) == {0.0, 1.0, 2.0}  # no noise on categories
    assert ((changed[3:, :25] >= 3) & (changed[3:, :25] <= 42)).all()
    share = (changed != X)[3:, :25].float().mean().item()
    assert 0.3 < share < 0.45  # a document may be replaced by itself
    assert (changed != X)[:, 25:].all()


def test_pretraining_changes_the_hidden_layers_only():
    """The score layer keeps its first weights; the loss falls."""
    seen = []

    class Record(Callback):
        def on_pretrain_epoch(self, record):
            seen.append(record)

    net = build_net(DATA.features, architecture("MLP(width=8, depth=2)"), 2)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    transform = tr.Ranker(**SMALL, transforms="QueryZScore").fit(TRAIN).model_.transform
    settings = pretraining.NetSettings(batch_documents=600, pretrain_epochs=1)
    pretraining.pretrain(net, MORE, transform, settings, seed=0)
    for name, tensor in net.state_dict().items():
        unchanged = ".layers.6." in name
        assert torch.equal(tensor, before[name]) == unchanged, name
    tr.Ranker(**{**SMALL, "pretrain_epochs": 5}).fit(TRAIN, unlabelled=MORE, callbacks=[Record()])
    assert [record["epoch"] for record in seen] == [1, 2, 3, 4, 5]
    assert seen[-1]["loss"] < seen[0]["loss"]


def test_labels_of_unlabelled_data_are_ignored():
    forms = [
        MORE,
        (MORE.X, MORE.qid),
        (MORE.X, np.zeros(MORE.documents), MORE.qid),
        tr.Dataset.from_arrays(MORE.X, qid=MORE.qid),
    ]
    state = torch.random.get_rng_state()
    fitted = [tr.Ranker(**SMALL).fit(TRAIN, unlabelled=form) for form in forms]
    assert torch.equal(state, torch.random.get_rng_state())
    for other in fitted[1:]:
        assert np.array_equal(other.predict(NEW), fitted[0].predict(NEW))
    assert not np.array_equal(tr.Ranker(**SMALL).fit(TRAIN).predict(NEW), fitted[0].predict(NEW))


def test_a_resumed_run_is_not_pretrained_again(tmp_path, monkeypatch):
    whole = tr.Ranker(**SMALL).fit(TRAIN, unlabelled=MORE, run=tmp_path / "run")
    monkeypatch.setattr(Views, "__init__", None)
    options = {"run": tmp_path / "run", "resume": True}
    resumed = tr.Ranker(**SMALL).fit(TRAIN, unlabelled=MORE, **options)
    assert np.array_equal(resumed.predict(NEW), whole.predict(NEW))
    for unlabelled in (None, TRAIN):
        with pytest.raises(tr.InputError, match="The unlabelled data has changed since the run"):
            tr.Ranker(**SMALL).fit(TRAIN, unlabelled=unlabelled, **options)


@pytest.mark.parametrize(
    ("changes", "unlabelled", "message"),
    [
        ({}, MORE.X, "unlabelled has the wrong form. Pass a Dataset"),
        ({}, (MORE.X[:, :5], MORE.qid), "The unlabelled data has 5 features, but Ranker"),
        ({"architecture": "Linear"}, MORE, "unlabelled needs an architecture with hidden layers"),
        ({"architecture": nn.Linear(136, 1)}, MORE, "unlabelled needs one of TwinRank's own"),
        ({"pretrain_epochs": 0}, MORE, "pretrain_epochs must be a positive whole number, not 0"),
        ({"pretrain_corruption": 1.5}, MORE, "pretrain_corruption must be at most 1, not 1.5"),
        ({}, tr.Dataset.from_arrays(MORE.X[:3], qid=[1, 2, 3]), "no query with two documents"),
    ],
)
def test_unlabelled_data_that_cannot_be_used(changes, unlabelled, message):
    with pytest.raises(tr.InputError, match=message):
        tr.Ranker(**{**SMALL, **changes}).fit(TRAIN, unlabelled=unlabelled)


def test_progress_of_pretraining(capsys):
    tr.Ranker(**SMALL).fit(TRAIN, unlabelled=MORE, callbacks=[Lines()])
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "pre-training epoch 1/2",
        "pre-training epoch 2/2",
        "epoch 1/1",
    ]
    tr.Ranker(**SMALL).fit(TRAIN, unlabelled=MORE, callbacks=[Bar()])
    assert "\rpre-training epoch 2/2  loss " in capsys.readouterr().err


# Distillation


def test_the_distilled_loss_is_a_weighted_sum():
    lists = tr.Lists.from_sizes([3, 2, 2])
    labels = torch.tensor([1.0, 0, 2, 0, 1, 0, 0])  # the last list does not count
    teacher = np.array([3.0, -5.0, 1.0, 2.0, 2.0, 0.0, 9.0])
    scores = torch.tensor([0.2, 0.1, 0.5, 0.4, -1.0, 3.0, 4.0], requires_grad=True)
    targets = standardised(teacher, lists)
    for rows in list(lists)[:1]:
        assert targets[rows].std() == pytest.approx(1)
        assert np.allclose(np.diff(targets[rows]) / np.diff(teacher[rows]), 1 / teacher[rows].std())
    assert targets[3:5].tolist() == [0, 0]  # equal scores
    objective = tr.SoftmaxCrossEntropy()
    for weights_of_lists in (None, torch.tensor([1.0, 3.0, 2.0])):
        loss = DistilledLoss(objective, torch.from_numpy(targets), 0.3)
        value = loss(scores, labels, lists, weights=weights_of_lists)
        distances = torch.stack(
            [
                -(torch.from_numpy(targets[rows]).softmax(0) * scores[rows].log_softmax(0)).sum()
                for rows in list(lists)[:2]
            ]
        )
        shares = torch.tensor([0.5, 0.5] if weights_of_lists is None else [0.25, 0.75])
        expected = 0.7 * objective(scores, labels, lists, weights_of_lists)
        expected = expected + 0.3 * (shares * distances).sum()
        assert value.item() == pytest.approx(expected.item(), rel=1e-5)
        (slope,) = torch.autograd.grad(value, scores)
        (wanted,) = torch.autograd.grad(expected, scores)
        assert torch.allclose(slope, wanted, atol=1e-6)


def test_a_net_learns_the_order_of_its_teacher():
    """With weight 1, labels matter only for the choice of queries."""
    trees = tr.BoostedRanker(n_estimators=10, num_leaves=4, ensemble_size=1).fit(TRAIN)
    teacher = -trees.predict(TRAIN)  # the opposite of what the labels say
    options = {**SMALL, "epochs": 15, "learning_rate": 0.01, "ensemble_size": 1}
    ranker = tr.Ranker(teacher_weight=1.0, **options).fit(TRAIN, teacher=teacher)
    ours, theirs = (standardised(s, TRAIN.lists) for s in (ranker.predict(TRAIN), teacher))
    assert np.corrcoef(ours, theirs)[0, 1] > 0.7


def test_a_teacher_is_a_ranker_a_folder_or_scores(tmp_path):
    teacher = tr.Ranker(**SMALL, random_state=3).fit(TRAIN)
    teacher.save(tmp_path / "teacher")
    scores = teacher.predict(TRAIN)
    order = np.random.default_rng(0).permutation(TRAIN.documents)  # rows of queries are scattered
    shuffled = tr.Dataset.from_arrays(TRAIN.X[order], TRAIN.y[order], qid=TRAIN.qid[order])
    expected = tr.Ranker(**SMALL).fit(shuffled, teacher=teacher, eval_fraction=0.3).predict(NEW)
    arrays = (TRAIN.X[order], TRAIN.y[order], TRAIN.qid[order])
    for form in (tmp_path / "teacher", str(tmp_path / "teacher"), scores[order]):
        other = tr.Ranker(**SMALL).fit(*arrays, teacher=form, eval_fraction=0.3)
        assert np.array_equal(other.predict(NEW), expected)


def test_the_teacher_is_part_of_a_run(tmp_path):
    scores = TRAIN.X[:, 0]
    tr.Ranker(**SMALL).fit(TRAIN, teacher=scores, run=tmp_path / "run")
    for teacher in (None, -scores):
        with pytest.raises(tr.InputError, match="The teacher has changed since the run"):
            tr.Ranker(**SMALL).fit(TRAIN, teacher=teacher, run=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (np.zeros(3), r"teacher has shape \(3,\) but the training data has \d+ documents"),
        (np.full(TRAIN.documents, np.nan), "score of row 0 is nan; it must be finite"),
        ("nowhere", "nowhere"),
        (object(), "teacher must be a fitted ranker, the path of a saved one, or scores"),
    ],
)
def test_teachers_that_cannot_be_used(teacher, message):
    with pytest.raises(tr.InputError, match=message):
        tr.Ranker(**SMALL).fit(TRAIN, teacher=teacher)
    with pytest.raises(tr.InputError, match="teacher_weight must be at most 1, not 2"):
        tr.Ranker(**SMALL, teacher_weight=2).check_parameters()


def test_a_teacher_with_other_features():
    teacher = tr.BoostedRanker(n_estimators=1, ensemble_size=1)
    teacher.fit(TRAIN.X[:, :5], TRAIN.y, qid=TRAIN.qid)
    with pytest.raises(tr.InputError, match="The teacher cannot score the training data: X has"):
        tr.Ranker(**SMALL).fit(TRAIN, teacher=teacher)


# The command line


def test_train_takes_unlabelled_lists_and_a_teacher(cli, tmp_path):
    TRAIN.save(tmp_path / "train.txt")
    MORE.save(tmp_path / "more.parquet")
    words = ["train", tmp_path / "train.txt", "--epochs", 1, "--quiet"]
    words += ["--set", "ensemble_size=1"]
    assert cli(*words, "--trees", "--out", tmp_path / "trees")[0] == 0
    more = ["--unlabelled", tmp_path / "more.parquet", "--teacher", tmp_path / "trees"]
    words += ["--set", f"architecture={SMALL['architecture']}"]
    ours = [*words, *more, "--set", "pretrain_epochs=1"]
    assert cli(*ours, "--out", tmp_path / "net")[0] == 0
    assert cli("train", "--resume", tmp_path / "net", "--quiet")[0] == 0
    code, _, err = cli("train", "--resume", tmp_path / "net", "--teacher", tmp_path / "trees")
    assert (code, "remove the other options" in err) == (2, True)
    for i in (0, 2):
        code, _, err = cli(*words[:5], "--trees", *more[i : i + 2], "--out", tmp_path / "x")
        assert (code, f"{more[i]} is for nets" in err) == (2, True)
