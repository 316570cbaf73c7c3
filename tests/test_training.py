"""The training loop: what is measured, chosen and told, and runs that are taken up again."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import twinrank as tr
from twinrank.data.transforms import transform
from twinrank.models.architecture import architecture
from twinrank.models.scorer import Scorer
from twinrank.training.callbacks import Callback, EarlyStopping, HistoryFile
from twinrank.training.checkpoints import Checkpoints, load_checkpoint, save_checkpoint
from twinrank.training.curves import draw_history
from twinrank.training.loop import Interrupted, Trainer, TrainingError, learning_rate
from twinrank.training.plan import Plan
from twinrank.training.reporting import Bar, Lines, reporter

DATA = tr.synthetic_web_search(queries=12)
OTHER = tr.synthetic_web_search(queries=6, seed=1)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Batches are tiny here: a second thread costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer(loss=None, data=DATA, net="CE4.L(width=8, depth=2, dropout=0.3)", **given):
    """A small trainer: whatever isn't one of its arguments belongs to the plan."""
    mine = {k: given.pop(k) for k in ("evaluation", "weights", "callbacks", "ahead") if k in given}
    plan = Plan(**{"epochs": 3, "batch_documents": 300, **given})
    scorer = Scorer(data.features, architecture(net), generator=torch.Generator().manual_seed(0))
    found = loss or tr.DirectLoss("nDCG", perturbation=0.1, samples=2)
    return Trainer(scorer, found, data, plan, transform("QueryZScore"), **mine)


def weights_of(one):
    return {name: tensor.clone() for name, tensor in one.scorer.state_dict().items()}


def same(one, two):
    assert one.keys() == two.keys()
    return all(torch.equal(one[name], two[name]) for name in one)


def trained(*arguments, **given):
    one = trainer(*arguments, **given)
    one.run()
    return weights_of(one)


class Scripted(Callback):
    """Calls a function on some event."""

    def __init__(self, event, function):
        setattr(self, event, function)


def scripted_values(one, *values):
    """Let the trainer measure these values, one per epoch."""
    one.validation.measure = lambda data: values[one.progress.epoch]
    return one


# What is learnt from


def test_any_callable_is_a_loss():
    def listwise(scores, labels, lists):
        assert scores.shape == labels.shape == (lists.documents,)
        return ((scores - labels) ** 2).mean()

    one = trainer(listwise, epochs=8, learning_rate=0.01)
    one.run()
    losses = [record["loss"] for record in one.progress.history]
    assert losses[-1] < losses[0]
    seen = []

    def weighted(scores, labels, lists, weights):
        seen.extend(weights.tolist())
        return scores.sum()

    trainer(weighted, weights=np.arange(12), epochs=1).run()
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("objective", ["AP", "P@5", "nERR@10", "RR"])
def test_measures_are_losses(objective):
    one = trainer(tr.DirectLoss(objective), epochs=10, learning_rate=0.01, net="Linear")
    one.run()
    losses = [record["loss"] for record in one.progress.history]
    assert min(losses) < losses[0] < 0


@pytest.mark.parametrize(
    "wrong", [lambda s, y, q: s, lambda s, y, q: 0.5, lambda s, y, q: s.sum().detach()]
)
def test_what_is_no_loss(wrong):
    with pytest.raises(tr.InputError, match="a loss must give one number"):
        trainer(wrong).run()


# What is measured and chosen


def test_several_sets_are_measured_every_epoch(tmp_path):
    sets = {"validation": OTHER, "train": DATA, "empty": nothing_relevant()}
    one = trainer(evaluation=sets, callbacks=[HistoryFile(tmp_path / "h.jsonl")])
    one.run()
    lines = (tmp_path / "h.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert records == one.progress.history
    for i, record in enumerate(records):
        assert record["epoch"] == i + 1
        keys = ["epoch", "loss", "learning_rate", "validation", "train", "empty", "seconds"]
        assert list(record) == keys
        assert record["empty"] is None
    best = max(records, key=lambda record: record["validation"])
    kept = one.validation.best
    assert (kept.epoch, kept.value) == (best["epoch"], best["validation"])
    assert one.validation.measure(OTHER) == best["validation"]
    for name in ("curves.svg", "curves.png"):
        draw_history(records, "nDCG@5", tmp_path / name)


def nothing_relevant():
    return tr.Dataset.from_arrays(DATA.X, np.zeros(DATA.documents), qid=DATA.qid)


def test_a_set_without_anything_relevant_cant_select():
    with pytest.raises(tr.InputError, match="'validation' can't select an epoch: nDCG@5 has no"):
        trainer(evaluation={"validation": nothing_relevant()}).run()


def test_names_of_sets():
    def selecting(*names, **plan):
        return trainer(evaluation=dict.fromkeys(names, OTHER), **plan).validation.selecting

    assert selecting("a", "b") == "a"
    assert selecting("a", "validation") == "validation"
    assert selecting("a", "b", select="b") == "b"
    assert selecting() is None
    with pytest.raises(tr.InputError, match="Did you mean 'validation'"):
        trainer(evaluation={"validation": OTHER}, select="validatoin")
    with pytest.raises(tr.InputError, match="can't be called 'loss'"):
        trainer(evaluation={"loss": OTHER})
    bad = OTHER.X.copy()
    bad[5] = np.nan
    bad = tr.Dataset.from_arrays(bad, OTHER.y, qid=OTHER.qid, non_finite="keep")
    one = trainer(evaluation={"bad": bad})
    one.validation._transform = transform("none")
    with pytest.raises(tr.InputError, match=r"evaluation set 'bad': .*scores are NaN"):
        one.run()


def test_the_best_epochs_weights_come_back():
    kept = []
    note = Scripted("on_epoch", lambda one, record: kept.append(weights_of(one)))
    one = trainer(evaluation={"validation": OTHER}, callbacks=[note], epochs=4)
    scripted_values(one, 0.2, 0.5, 0.5, 0.4).run()
    assert (one.validation.best.epoch, one.validation.best.value) == (2, 0.5)  # the first of equals
    assert same(weights_of(one), kept[1])
    assert not same(kept[1], kept[3])
    assert not one.scorer.training


def test_early_stopping():
    one = trainer(
        evaluation={"validation": OTHER}, callbacks=[EarlyStopping(2)], epochs=9, early_stopping=2
    )
    scripted_values(one, 0.2, 0.1, 0.3, 0.1, 0.3, 0.9).run()
    assert one.progress.epoch == 5
    assert one.validation.best.epoch == 3
    assert one.stop_reason == "no better nDCG@5 than 0.3000 (epoch 3) for 2 epochs"


def test_measuring_every_few_epochs():
    one = trainer(evaluation={"validation": OTHER}, validate_every=2, epochs=5)
    one.run()
    measured = [r["epoch"] for r in one.progress.history if "validation" in r]
    assert measured == [2, 4, 5]


# Steps


def test_learning_rates():
    def rates(**given):
        plan = Plan(epochs=4, learning_rate=0.8, **given)
        return [learning_rate(plan, epoch) for epoch in range(4)]

    assert rates() == [0.8] * 4
    assert rates(schedule="halve", halve_every=2) == [0.8, 0.8, 0.4, 0.4]
    half = 0.8 * (1 + math.cos(math.pi / 4)) / 2
    assert rates(schedule="cosine") == pytest.approx([0.8, half, 0.4, 0.8 - half])
    one = trainer(schedule="halve", halve_every=1)
    one.run()
    assert [r["learning_rate"] for r in one.progress.history] == [1e-3, 5e-4, 2.5e-4]


def test_clipping():
    assert same(trained(clip=1e9), trained(clip=None))
    one = trainer(lambda s, y, q: 1e4 * s.sum(), optimiser="sgd", learning_rate=1.0, clip=0.25)
    moved, before = [], []
    one.callbacks = [Scripted("on_step", lambda t: moved.append(flat(t)))]
    before = flat(one)
    one.run()
    steps = torch.stack([before, *moved]).diff(dim=0).norm(dim=1)
    torch.testing.assert_close(steps, torch.full_like(steps, 0.25), rtol=1e-3, atol=0)


def flat(one):
    return torch.cat([p.detach().flatten() for p in one.scorer.parameters()]).clone()


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_weight_decay_is_coupled_or_not(kind):
    """With a loss that teaches nothing, only the decay moves weights."""
    one = trainer(
        lambda s, y, q: 0 * s.sum(), optimiser=kind, weight_decay=0.1, learning_rate=0.01,
        epochs=1, batch_documents=10**6,
    )  # fmt: skip
    before = flat(one)
    one.run()
    by_adam = before - 0.01 * before.sign()  # a penalty's gradient is rescaled
    expected = by_adam if kind == "adam" else before * (1 - 0.01 * 0.1)
    torch.testing.assert_close(flat(one), expected, rtol=1e-3, atol=1e-4)


def test_a_plan_that_makes_no_sense():
    for given, message in [
        ({"epochs": 0}, "epochs must be a positive whole number"),
        ({"epochs": 1.5}, "epochs must be"),
        ({"batch_documents": True}, "batch_documents must be"),
        ({"learning_rate": math.nan}, "learning_rate must be a positive number"),
        ({"learning_rate": math.inf}, "learning_rate must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"weight_decay": "x"}, "weight_decay must be"),
        ({"clip": 0}, "clip must be"),
        ({"early_stopping": 0}, "early_stopping must be"),
        ({"optimiser": "adma"}, "Did you mean 'adam'"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"validation_measure": "nDGC@5"}, "Did you mean 'nDCG'"),
    ]:
        with pytest.raises(tr.InputError, match=message):
            Plan(**given)


# The same again


def test_the_same_seed_gives_the_same_weights_however_batches_are_made():
    first = trained(seed=3)
    torch.manual_seed(99)  # the caller's numbers have no influence
    for ahead in (0, 1, 7):
        assert same(first, trained(seed=3, ahead=ahead))
    assert not same(first, trained(seed=4))


def test_the_same_number_of_threads_gives_the_same_weights():
    torch.set_num_threads(2)
    try:
        assert same(trained(epochs=1), trained(epochs=1, ahead=0))
    finally:
        torch.set_num_threads(1)


def test_the_callers_random_numbers_stay_as_they_are():
    before = torch.get_rng_state()
    trained(evaluation={"validation": OTHER})
    assert torch.equal(before, torch.get_rng_state())
    tr.Ranker(epochs=1, perturbation=0.1).fit(DATA)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(TrainingError):
        trained(lambda s, y, q: s.sum() * math.nan)
    assert torch.equal(before, torch.get_rng_state())


# Callbacks


def test_callbacks_are_told_in_order():
    told = []

    class Told(Callback):
        def __init__(self, name):
            self.name = name

        def on_start(self, trainer):
            told.append((self.name, "start"))

        def on_step(self, trainer):
            told.append((self.name, "step", trainer.progress.epoch, trainer.progress.step))

        def on_epoch(self, trainer, record):
            assert trainer.progress.history[-1] is record
            told.append((self.name, "epoch", record["epoch"]))

        def on_interrupt(self, trainer):
            told.append((self.name, "interrupt"))

        def on_stop(self, trainer):
            told.append((self.name, "stop"))

        def on_end(self, trainer):
            assert not trainer.scorer.training
            told.append((self.name, "end"))

    def run(**given):
        told.clear()
        trainer(epochs=2, batch_documents=10**6, callbacks=[Told("a"), Told("b")], **given).run()

    run()
    events = [
        ("start",), ("step", 0, 1), ("epoch", 1), ("step", 1, 1), ("epoch", 2), ("stop",), ("end",),
    ]  # fmt: skip
    assert told == [(name, *event) for event in events for name in "ab"]
    with pytest.raises(TrainingError):
        run(loss=lambda s, y, q: s.sum() * math.nan)
    assert told == [(name, event) for event in ("start", "stop") for name in "ab"]


@pytest.mark.parametrize("event", ["on_step", "on_epoch"])
def test_an_interruption_saves_and_stops(tmp_path, event):
    def interrupt(one, *_):
        one.interrupted = True

    saving = Checkpoints(tmp_path / "c")
    one = trainer(callbacks=[saving, Scripted(event, interrupt)])
    with pytest.raises(Interrupted, match=r"Stopped (in epoch 1, after step 1|after epoch 1)"):
        one.run()
    two = trainer()
    load_checkpoint(two, tmp_path / "c")
    assert (two.progress.epoch, two.progress.step) == ((0, 1) if event == "on_step" else (1, 0))
    two.run()
    assert same(weights_of(two), trained())


def test_lines_and_quiet(capsys):
    one = trainer(evaluation={"validation": OTHER}, callbacks=[Lines()], epochs=2)
    one.stop_reason = ""
    scripted_values(one, 0.25, 0.125).run()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2/2  loss -0.")
    assert "validation nDCG@5 0.1250  best in epoch 1: 0.2500" in lines[1]
    assert reporter(quiet=True) == []
    assert isinstance(reporter()[0], Lines)
    Bar().on_stop(one)  # never started


# Trouble


@pytest.mark.parametrize("what", ["loss", "gradient", "scores"])
def test_what_isnt_finite_stops_with_the_queries_named(tmp_path, what):
    path, calls = tmp_path / "c", []

    def loss(scores, labels, lists):
        calls.append(1)
        if len(calls) < 8:
            return scores.square().mean()
        if what == "loss":
            return scores.sum() * math.inf
        assert what == "gradient"
        return (scores - scores.detach()).abs().sqrt().sum()

    def spoil(one):
        if what == "scores" and len(calls) == 7:
            one.scorer.layers[0].bias.data[0] = math.nan

    data = tr.Dataset.from_arrays(DATA.X, DATA.y, qid=[f"q{q}" for q in DATA.qid])
    one = trainer(loss, data, shuffle=False, ahead=0, epochs=9)
    one.transform = transform("none")
    one.callbacks = [Checkpoints(path, 0), Scripted("on_step", spoil)]
    steps = len(one.batches.plan(0))
    epoch, step = divmod(7, steps)
    queries = ", ".join(data.query_ids[one.batches.plan(epoch)[step]][:5])
    message = rf"(the {what} is|{what} aren't|{what} isn't) .*epoch {epoch + 1}, step {step + 1}, "
    with pytest.raises(TrainingError, match=rf"{message}on the queries {queries}"):
        one.run()
    two = trainer(loss, data, shuffle=False, ahead=0, epochs=9)
    load_checkpoint(two, path)
    assert (two.progress.epoch, two.progress.step) == (epoch, step)
    assert all(bool(p.isfinite().all()) for p in two.scorer.parameters())


# Checkpoints


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_a_run_taken_up_anywhere_ends_in_the_same_weights(tmp_path, optimiser):
    given = {"optimiser": optimiser, "weight_decay": 0.01, "evaluation": {"validation": OTHER}}
    given |= {"schedule": "cosine", "clip": 0.5, "epochs": 2}
    whole = trainer(**given)
    copies = []

    def keep(one, *_):
        copies.append(tmp_path / str(len(copies)))
        save_checkpoint(one, copies[-1])

    whole.callbacks = [Scripted("on_step", keep), Scripted("on_epoch", keep)]
    whole.run()
    assert len(copies) == 2 * (whole.steps + 1)
    for copy in copies:
        again = trainer(**given)
        about = load_checkpoint(again, copy)
        assert about["threads"] == torch.get_num_threads()
        again.run()
        assert same(weights_of(again), weights_of(whole))
        timeless = [
            [{k: v for k, v in r.items() if k != "seconds"} for r in one.progress.history]
            for one in (again, whole)
        ]
        assert timeless[0] == timeless[1]
        assert again.validation.best.epoch == whole.validation.best.epoch


def test_a_run_that_stopped_early_isnt_taken_further(tmp_path):
    given = {"evaluation": {"validation": OTHER}, "epochs": 9}
    saving = [EarlyStopping(1), Checkpoints(tmp_path / "c")]
    one = scripted_values(trainer(callbacks=saving, **given), 0.5, 0.4, 0.9, 0.9)
    one.run()
    two = scripted_values(trainer(callbacks=[EarlyStopping(1)], **given), 0.5, 0.4, 0.9, 0.9)
    load_checkpoint(two, tmp_path / "c")
    two.run()
    assert two.progress.epoch == one.progress.epoch == 2
    assert same(weights_of(one), weights_of(two))


def test_more_epochs_than_planned(tmp_path):
    trained(callbacks=[Checkpoints(tmp_path / "c")])
    two = trainer(epochs=5)
    load_checkpoint(two, tmp_path / "c")
    two.run()
    assert same(weights_of(two), trained(epochs=5))


def test_checkpoints_that_cant_be_used(tmp_path):
    path = tmp_path / "c"
    trained(callbacks=[Checkpoints(path)], epochs=1)
    whole = path.read_bytes()
    for given, message in [
        ({"net": "CE4.L(width=9)"}, "doesn't fit"),
        ({"optimiser": "sgd"}, "was trained with optimiser='adam', not 'sgd'"),
        ({"seed": 5}, "was trained with seed=0, not 5"),
    ]:
        with pytest.raises(tr.InputError, match=message):
            load_checkpoint(trainer(**given), path)
    for content in (b"", whole[:100], whole[:-1], b"\xff" * 99):
        path.write_bytes(content)
        with pytest.raises(tr.InputError, match="is damaged"):
            load_checkpoint(trainer(), path)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(tr.InputError, match="is not a checkpoint"):
        load_checkpoint(trainer(), path)
    about = {"format": "twinrank-checkpoint", "version": 2}
    save_file({"x": torch.zeros(2)}, path, metadata={"twinrank": json.dumps(about)})
    with pytest.raises(tr.InputError, match="has version 2 of the format; this TwinRank reads 1"):
        load_checkpoint(trainer(), path)
    with pytest.raises(tr.FileError, match="can't read"):
        load_checkpoint(trainer(), tmp_path / "nowhere")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system of its own takes the right to mount it")
    path, kept = folder / "c", []

    def fill(one, record):
        kept.append(path.read_bytes())
        (folder / "filler").write_bytes(bytes(128_000 - len(kept[0]) - 8_000))

    try:
        one = trainer(callbacks=[Checkpoints(path), Scripted("on_epoch", fill)])
        with pytest.raises(tr.FileError, match=f"can't write {path}: No space .*free disk"):
            one.run()
        assert path.read_bytes() == kept[0]
        assert sorted(p.name for p in folder.iterdir()) == ["c", "filler"]
        two = trainer()
        load_checkpoint(two, path)
        two.run()
        assert same(weights_of(two), trained())
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("net", ["CE4.L(width=8, depth=2)", "CE4.L(width=8, depth=2, norm=query)"])
def test_mixed_precision_learns_about_the_same(net):
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # not every CPU has its bfloat16 products
    try:
        full, mixed = (trained(net=net, precision=name) for name in ("full", "mixed"))
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert {tensor.dtype for tensor in mixed.values() if tensor.is_floating_point()} == {
        torch.float32
    }
    assert not same(full, mixed)
    for name, tensor in full.items():
        torch.testing.assert_close(mixed[name], tensor, rtol=0.1, atol=0.05)
