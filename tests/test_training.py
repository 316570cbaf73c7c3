"""The training of nets: losses, evaluation, selection, callbacks and checkpoints."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import twinrank as tr
from twinrank.data.batches import Batches
from twinrank.data.transforms import transform
from twinrank.learning.models.architecture import architecture
from twinrank.learning.models.scorer import Scorer
from twinrank.learning.training.callbacks import TrainingInterrupted
from twinrank.learning.training.checkpoints import Checkpoints, load_checkpoint, save_checkpoint
from twinrank.learning.training.console import Bar, Lines, console
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Task, TrainingError
from twinrank.learning.training.loop import Trainer
from twinrank.learning.training.net_learner import NetLearner
from twinrank.learning.training.net_settings import NetSettings
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.run_folder import draw_history
from twinrank.learning.training.settings import Plan
from twinrank.support.plots import use_whole_numbers
from twinrank.training import Callback, EarlyStopping, HistoryFile

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = tr.synthetic_web_search(queries=12)
EVALUATION = tr.synthetic_web_search(queries=6, seed=1)
PLAN = {
    "iterations", "early_stopping", "tolerance", "validation_measure", "validate_every", "select",
    "seed",
}  # fmt: skip


def make_trainer(
    loss=None,
    data=DATA,
    net="CE4.L(width=8, depth=2, dropout=0.3)",
    transforms="QueryZScore",
    evaluation=None,
    weights=None,
    callbacks=(),
    ahead=2,
    **settings,
):
    """A small trainer; other arguments belong to the plan or to the settings of nets."""
    settings = {"iterations": 3, "batch_documents": 300, **settings}
    plan = Plan(**{name: settings.pop(name) for name in PLAN & settings.keys()})
    scorer = Scorer(data.features, architecture(net), generator=torch.Generator().manual_seed(0))
    loss = loss or tr.DirectLoss("nDCG", perturbation=0.1, samples=2)
    task = Task(TrainingSet(data, weights), evaluation or {}, plan, ProcessGroup())
    learner = NetLearner(
        scorer, loss, transform(transforms), task, NetSettings(**settings), ahead=ahead
    )
    return Trainer(learner, task, callbacks)


def weights_of(trainer):
    return {name: tensor.clone() for name, tensor in trainer.learner.net.state_dict().items()}


def same(weights, expected):
    assert weights.keys() == expected.keys()
    return all(torch.equal(weights[name], expected[name]) for name in weights)


def finished(trainer):
    """Train to the end, and keep the best weights."""
    trainer.run()
    trainer.learner.finish()
    return weights_of(trainer)


def trained(*arguments, **settings):
    return finished(make_trainer(*arguments, **settings))


class OnEvent(Callback):
    """Calls a function at one event."""

    def __init__(self, event, function):
        setattr(self, event, function)


def with_values(trainer, *values):
    """Let the trainer measure these values, one per epoch; a value may be a list, by query."""
    own = [np.atleast_1d(value) for value in values]
    trainer.validation._measured = lambda *_: {"nDCG@5": own[trainer.progress.iteration - 1]}
    return trainer


def without_seconds(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


# Losses


def test_any_callable_is_a_loss():
    def listwise(scores, labels, lists):
        assert scores.shape == labels.shape == (lists.documents,)
        return ((scores - labels) ** 2).mean()

    trainer = make_trainer(listwise, iterations=8, learning_rate=0.01)
    trainer.run()
    losses = [record["loss"] for record in trainer.progress.history]
    assert losses[-1] < losses[0]
    seen = []

    def weighted(scores, labels, lists, weights):
        seen.extend(weights.tolist())
        return scores.sum()

    make_trainer(weighted, weights=np.arange(12), iterations=1).run()
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("objective", ["AP", "P@5", "nERR@10", "RR"])
def test_measures_are_losses(objective):
    trainer = make_trainer(
        tr.DirectLoss(objective), iterations=10, learning_rate=0.01, net="Linear"
    )
    trainer.run()
    losses = [record["loss"] for record in trainer.progress.history]
    assert min(losses) < losses[0] < 0


@pytest.mark.parametrize(
    "wrong", [lambda s, y, q: s, lambda s, y, q: 0.5, lambda s, y, q: s.sum().detach()]
)
def test_invalid_losses_are_refused(wrong):
    with pytest.raises(tr.InputError, match="A loss must return one number"):
        make_trainer(wrong).run()


# Evaluation and selection


def test_every_set_is_evaluated_in_every_epoch(tmp_path):
    sets = {"validation": EVALUATION, "train": DATA, "empty": nothing_relevant()}
    trainer = make_trainer(evaluation=sets, callbacks=[HistoryFile(tmp_path / "h.jsonl")])
    trainer.run()
    lines = (tmp_path / "h.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert records == trainer.progress.history
    for i, record in enumerate(records):
        assert record["iteration"] == i + 1
        keys = ["iteration", "loss", "learning_rate", "validation", "train", "empty", "seconds"]
        assert list(record) == keys
        assert record["empty"] is None
    best = max(records, key=lambda record: record["validation"])
    kept = trainer.best
    assert (kept.iteration, kept.value) == (best["iteration"], best["validation"])
    model = trainer.learner.finish()
    measured = tr.evaluate(model.score(EVALUATION), EVALUATION.y, EVALUATION.lists, ["nDCG@5"])
    assert measured["nDCG@5"] == best["validation"]
    for name in ("curves.svg", "curves.png"):
        draw_history(records, "epoch", "nDCG@5", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("epochs", [1, 2, 3, 100])
def test_epochs_are_whole_numbers_on_the_axis(epochs):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 3.2))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(range(1, epochs + 1), [0.5] * epochs)
    use_whole_numbers(axes.xaxis)
    ticks = axes.get_xticks()
    assert ticks.size
    assert (ticks == np.round(ticks)).all()


def nothing_relevant():
    return tr.Dataset.from_arrays(DATA.X, np.zeros(DATA.documents), qid=DATA.qid)


def test_evaluation_sets_are_transformed_once(monkeypatch):
    train, valid = tr.synthetic_web_search(queries=16).split(0.5, random_state=0)
    transformed = Batches._transformed
    seen = []

    def counted(self, queries, lists):
        seen.extend(queries.tolist() if self._data is valid else [])
        return transformed(self, queries, lists)

    monkeypatch.setattr(Batches, "_transformed", counted)
    ranker = tr.Ranker(epochs=3, ensemble_size=1, random_state=0)
    ranker.fit(train, eval_set={"validation": valid})
    assert len(ranker.history_) == 3
    assert sorted(seen) == list(range(valid.queries))
    last = ranker.history_[ranker.best_iteration_ - 1]["validation"]
    assert ranker.score(valid) == pytest.approx(last)


def test_a_set_without_relevant_documents_cannot_select():
    with pytest.raises(
        tr.InputError, match="'validation' cannot select the best epoch: nDCG@5 has no"
    ):
        make_trainer(evaluation={"validation": nothing_relevant()}).run()


def test_names_of_sets():
    def selecting(*names, **plan):
        return make_trainer(
            evaluation=dict.fromkeys(names, EVALUATION), **plan
        ).validation.selecting

    assert selecting("a", "b") == "a"
    assert selecting("a", "validation") == "validation"
    assert selecting("a", "b", select="b") == "b"
    assert selecting() is None
    with pytest.raises(tr.InputError, match="Did you mean 'validation'"):
        make_trainer(evaluation={"validation": EVALUATION}, select="validatoin")
    with pytest.raises(tr.InputError, match="cannot be called 'loss'"):
        make_trainer(evaluation={"loss": EVALUATION})
    bad = EVALUATION.X.copy()
    bad[5] = np.nan
    bad = tr.Dataset.from_arrays(bad, EVALUATION.y, qid=EVALUATION.qid, non_finite="keep")
    trainer = make_trainer(evaluation={"bad": bad}, transforms="none")
    with pytest.raises(tr.InputError, match=r"Evaluation set 'bad': .*scores are NaN"):
        trainer.run()


def test_the_weights_of_the_best_epoch_are_kept():
    kept = []
    note = OnEvent("on_iteration_end", lambda trainer, record: kept.append(weights_of(trainer)))
    trainer = make_trainer(evaluation={"validation": EVALUATION}, callbacks=[note], iterations=4)
    weights = finished(with_values(trainer, 0.2, 0.5, 0.5, 0.4))
    assert (trainer.best.iteration, trainer.best.value) == (2, 0.5)  # the first of equals
    assert same(weights, kept[1])
    assert not same(kept[1], kept[3])
    assert not trainer.learner.net.training


@pytest.mark.parametrize(("tolerance", "kept"), [(0.0, 2), (0.3, 3), (1.0, 4), (3.0, 5)])
def test_the_last_epoch_within_the_tolerance_is_kept(tolerance, kept):
    """Epochs 3 to 6 are 0, 0.5, 1.9 and 12 standard errors below epoch 2, paired by query."""
    values = [[0.1, 0.1, 0.1], [0.5, 0.5, 0.5], [0.6, 0.4, 0.5]]
    values += [[0.5, 0.6, 0.3], [0.2, 0.4, 0.5], [0.1, 0.2, 0.2]]
    trainer = make_trainer(
        evaluation={"validation": EVALUATION},
        iterations=6,
        early_stopping=4,
        tolerance=tolerance,
    )
    finished(with_values(trainer, *values))
    best = trainer.best
    assert (best.kept, best.value) == (kept, pytest.approx(np.mean(values[kept - 1])))
    assert (best.iteration, best.tops) == (2, [0.5])  # patience counts from the best
    assert trainer.progress.iteration == 6


def test_early_stopping():
    trainer = make_trainer(evaluation={"validation": EVALUATION}, iterations=9, early_stopping=2)
    with_values(trainer, 0.2, 0.1, 0.3, 0.1, 0.3, 0.9).run()
    assert trainer.progress.iteration == 5
    assert trainer.best.iteration == 3
    assert trainer.stop_reason == "no better nDCG@5 than 0.3000 (epoch 3) for 2 epochs"


def test_validate_every():
    trainer = make_trainer(evaluation={"validation": EVALUATION}, validate_every=2, iterations=5)
    trainer.run()
    measured = [r["iteration"] for r in trainer.progress.history if "validation" in r]
    assert measured == [2, 4, 5]


# Steps


def test_learning_rates():
    def rates(**settings):
        plan = NetSettings(learning_rate=0.8, **settings)
        return [plan.learning_rate_of(epoch, 4) for epoch in range(4)]

    assert rates() == [0.8] * 4
    assert rates(schedule="halve", halve_every=2) == [0.8, 0.8, 0.4, 0.4]
    half = 0.8 * (1 + math.cos(math.pi / 4)) / 2
    assert rates(schedule="cosine") == pytest.approx([0.8, half, 0.4, 0.8 - half])
    trainer = make_trainer(schedule="halve", halve_every=1)
    trainer.run()
    assert [r["learning_rate"] for r in trainer.progress.history] == [1e-3, 5e-4, 2.5e-4]


def test_clipping():
    assert same(trained(clip=1e9), trained(clip=None))
    trainer = make_trainer(
        lambda s, y, q: 1e4 * s.sum(), optimiser="sgd", learning_rate=1.0, clip=0.25
    )
    moved = []
    trainer.callbacks = [OnEvent("on_step_end", lambda trainer: moved.append(flat(trainer)))]
    before = flat(trainer)
    trainer.run()
    steps = torch.stack([before, *moved]).diff(dim=0).norm(dim=1)
    torch.testing.assert_close(steps, torch.full_like(steps, 0.25), rtol=1e-3, atol=0)


def flat(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.learner.net.parameters()]).clone()


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_weight_decay_is_coupled_or_not(kind):
    """With a loss that teaches nothing, only the decay moves weights."""
    trainer = make_trainer(
        lambda s, y, q: 0 * s.sum(), optimiser=kind, weight_decay=0.1, learning_rate=0.01,
        iterations=1, batch_documents=10**6,
    )  # fmt: skip
    before = flat(trainer)
    trainer.run()
    by_adam = before - 0.01 * before.sign()  # a penalty's gradient is rescaled
    expected = by_adam if kind == "adam" else before * (1 - 0.01 * 0.1)
    torch.testing.assert_close(flat(trainer), expected, rtol=1e-3, atol=1e-4)


def test_invalid_settings_are_refused():
    for parameters, message in [
        ({"epochs": 0}, "epochs must be a positive whole number, not 0"),
        ({"epochs": 1.5}, "epochs must be"),
        ({"batch_documents": True}, "batch_documents must be"),
        ({"learning_rate": math.nan}, "learning_rate must be a positive number"),
        ({"learning_rate": math.inf}, "learning_rate must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"weight_decay": "x"}, "weight_decay must be"),
        ({"clip": 0}, "clip must be"),
        ({"early_stopping": 0}, "early_stopping must be"),
        ({"tolerance": -1}, "tolerance must be a number of at least 0"),
        ({"tolerance": "x"}, "tolerance must be a number of at least 0"),
        ({"optimiser": "adma"}, "Did you mean 'adam'"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"validation_measure": "nDGC@5"}, "Did you mean 'nDCG'"),
    ]:
        with pytest.raises(tr.InputError, match=message):
            tr.Ranker(**parameters).check_parameters()
    with pytest.raises(tr.InputError, match="iterations must be a positive whole number"):
        Plan(iterations=0)


# Reproducibility


def test_the_seed_alone_decides_the_weights():
    first = trained(seed=3)
    torch.manual_seed(99)  # the caller's numbers have no influence
    for ahead in (0, 1, 7):
        assert same(first, trained(seed=3, ahead=ahead))
    assert not same(first, trained(seed=4))


def test_the_same_number_of_threads_gives_the_same_weights():
    torch.set_num_threads(2)
    try:
        assert same(trained(iterations=1), trained(iterations=1, ahead=0))
    finally:
        torch.set_num_threads(1)


def test_the_callers_random_generator_is_left_alone():
    before = torch.get_rng_state()
    trained(evaluation={"validation": EVALUATION})
    assert torch.equal(before, torch.get_rng_state())
    tr.Ranker(epochs=1, perturbation=0.1).fit(DATA)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(TrainingError):
        trained(lambda s, y, q: s.sum() * math.nan)
    assert torch.equal(before, torch.get_rng_state())


# Callbacks


def test_callbacks_are_called_in_order():
    events = []

    class Noting(Callback):
        def __init__(self, name):
            self.name = name

        def on_train_begin(self, trainer):
            events.append((self.name, "train begin"))

        def on_step_end(self, trainer):
            events.append((self.name, "step", trainer.progress.iteration, trainer.progress.step))

        def on_iteration_end(self, trainer, record):
            assert trainer.progress.history[-1] is record
            events.append((self.name, "iteration", record["iteration"]))

        def on_interrupt(self, trainer):
            events.append((self.name, "interrupt"))

        def on_train_end(self, trainer):
            events.append((self.name, "train end"))

    def run(**settings):
        events.clear()
        callbacks = [Noting("a"), Noting("b")]
        make_trainer(iterations=2, batch_documents=10**6, callbacks=callbacks, **settings).run()

    run()
    expected = [
        ("train begin",), ("step", 0, 1), ("iteration", 1), ("step", 1, 1), ("iteration", 2),
        ("train end",),
    ]  # fmt: skip
    assert events == [(name, *event) for event in expected for name in "ab"]
    with pytest.raises(TrainingError):
        run(loss=lambda s, y, q: s.sum() * math.nan)
    assert events == [(name, event) for event in ("train begin", "train end") for name in "ab"]


@pytest.mark.parametrize("event", ["on_step_end", "on_iteration_end"])
def test_an_interruption_saves_and_stops(tmp_path, event):
    def interrupt(trainer, *_):
        trainer.interrupted = True

    saving = Checkpoints(tmp_path / "c")
    trainer = make_trainer(callbacks=[saving, OnEvent(event, interrupt)])
    with pytest.raises(TrainingInterrupted, match=r"Stopped (in epoch 1, step 1|after epoch 1)"):
        trainer.run()
    resumed = make_trainer()
    load_checkpoint(resumed, tmp_path / "c")
    expected = (0, 1) if event == "on_step_end" else (1, 0)
    assert (resumed.progress.iteration, resumed.progress.step) == expected
    assert same(finished(resumed), trained())


def test_lines_and_quiet(capsys):
    trainer = make_trainer(evaluation={"validation": EVALUATION}, callbacks=[Lines()], iterations=2)
    with_values(trainer, 0.25, 0.125).run()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2/2  loss -0.")
    assert "validation nDCG@5 0.1250  best 0.2500 (epoch 1)" in lines[1]
    assert console(quiet=True) == []
    assert isinstance(console()[0], Lines)
    Bar().on_train_end(trainer)  # never started


# Errors


@pytest.mark.parametrize("what", ["loss", "gradient", "scores"])
def test_values_that_are_not_finite_stop_training_and_name_queries(tmp_path, what):
    path, calls = tmp_path / "c", []

    def loss(scores, labels, lists):
        calls.append(1)
        if len(calls) < 8:
            return scores.square().mean()
        if what == "loss":
            return scores.sum() * math.inf
        assert what == "gradient"
        return (scores - scores.detach()).abs().sqrt().sum()

    def spoil(trainer):
        if what == "scores" and len(calls) == 7:
            trainer.learner.net.layers[0].bias.data[0] = math.nan

    data = tr.Dataset.from_arrays(DATA.X, DATA.y, qid=[f"q{q}" for q in DATA.qid])
    settings = {"shuffle": False, "ahead": 0, "iterations": 9, "transforms": "none"}
    trainer = make_trainer(loss, data, **settings)
    trainer.callbacks = [Checkpoints(path, 0), OnEvent("on_step_end", spoil)]
    batches = trainer.learner._batches
    steps = len(batches.plan(0))
    epoch, step = divmod(7, steps)
    queries = ", ".join(data.query_ids[batches.plan(epoch)[step]][:5])
    message = rf"(The {what} is|{what.title()} are) .*epoch {epoch + 1}, step {step + 1}, "
    with pytest.raises(TrainingError, match=rf"{message}on the queries {queries}"):
        trainer.run()
    resumed = make_trainer(loss, data, **settings)
    load_checkpoint(resumed, path)
    assert (resumed.progress.iteration, resumed.progress.step) == (epoch, step)
    assert all(bool(p.isfinite().all()) for p in resumed.learner.net.parameters())


# Checkpoints


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_a_run_resumed_anywhere_ends_with_the_same_weights(tmp_path, optimiser):
    settings = {
        "optimiser": optimiser,
        "weight_decay": 0.01,
        "evaluation": {"validation": EVALUATION},
    }
    settings |= {"schedule": "cosine", "clip": 0.5, "iterations": 2}
    whole = make_trainer(**settings)
    copies = []

    def keep(trainer, *_):
        copies.append(tmp_path / str(len(copies)))
        save_checkpoint(trainer, copies[-1])

    whole.callbacks = [OnEvent("on_step_end", keep), OnEvent("on_iteration_end", keep)]
    whole.run()
    assert len(copies) == 2 * (whole.steps + 1)
    weights = finished(whole)
    for copy in copies:
        with safe_open(copy, framework="np") as file:
            about = json.loads(file.metadata()["twinrank"])
        assert about["threads"] == torch.get_num_threads()
        resumed = make_trainer(**settings)
        load_checkpoint(resumed, copy)
        assert same(finished(resumed), weights)
        histories = [without_seconds(t.progress.history) for t in (resumed, whole)]
        assert histories[0] == histories[1]
        assert resumed.best == whole.best


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    saved = []

    def slow_save(trainer, path):
        saved.append((trainer.progress.iteration, trainer.progress.step))

    monkeypatch.setattr("twinrank.learning.training.checkpoints.save_checkpoint", slow_save)
    often, rarely = Checkpoints(tmp_path / "c"), Checkpoints(tmp_path / "c")
    make_trainer(callbacks=[often]).run()
    assert saved == [(1, 0), (2, 0), (3, 0)]
    saved.clear()
    rarely._cost = 1e6  # as if saving had taken so many seconds
    make_trainer(callbacks=[rarely]).run()
    assert saved == [(3, 0)]
    saved.clear()
    trainer = make_trainer(callbacks=[Checkpoints(tmp_path / "c", every_seconds=0)], iterations=1)
    trainer.run()
    assert saved == [*((0, step) for step in range(1, trainer.steps)), (1, 0)]


def test_a_run_that_stopped_early_does_not_continue(tmp_path):
    settings = {"evaluation": {"validation": EVALUATION}, "iterations": 9}
    values = (0.5, 0.4, 0.9, 0.9)
    saving = [EarlyStopping(1), Checkpoints(tmp_path / "c")]
    trainer = with_values(make_trainer(callbacks=saving, **settings), *values)
    weights = finished(trainer)
    resumed = with_values(make_trainer(callbacks=[EarlyStopping(1)], **settings), *values)
    load_checkpoint(resumed, tmp_path / "c")
    assert same(finished(resumed), weights)
    assert resumed.progress.iteration == trainer.progress.iteration == 2


def test_resuming_with_more_epochs(tmp_path):
    trained(callbacks=[Checkpoints(tmp_path / "c")])
    resumed = make_trainer(iterations=5)
    load_checkpoint(resumed, tmp_path / "c")
    assert same(finished(resumed), trained(iterations=5))


def test_wrong_checkpoints_are_refused(tmp_path):
    path = tmp_path / "c"
    trained(callbacks=[Checkpoints(path)], iterations=1)
    whole = path.read_bytes()
    for settings, message in [
        ({"net": "CE4.L(width=9)"}, "does not fit"),
        ({"optimiser": "sgd"}, "was trained with optimiser='adam', not 'sgd'"),
        ({"seed": 5}, "was trained with seed=0, not 5"),
    ]:
        with pytest.raises(tr.InputError, match=message):
            load_checkpoint(make_trainer(**settings), path)
    for content in (b"", whole[:100], whole[:-1], b"\xff" * 99):
        path.write_bytes(content)
        with pytest.raises(tr.InputError, match="is damaged"):
            load_checkpoint(make_trainer(), path)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(tr.InputError, match="is not a checkpoint"):
        load_checkpoint(make_trainer(), path)
    about = {"format": "twinrank-checkpoint", "version": 1}
    save_file({"x": torch.zeros(2)}, path, metadata={"twinrank": json.dumps(about)})
    with pytest.raises(tr.InputError, match="has version 1 of the format; this TwinRank reads 5"):
        load_checkpoint(make_trainer(), path)
    with pytest.raises(tr.FileError, match="Can't read"):
        load_checkpoint(make_trainer(), tmp_path / "nowhere")


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system of its own takes the right to mount it")
    path, kept = folder / "c", []

    def fill(trainer, record):
        kept.append(path.read_bytes())
        (folder / "filler").write_bytes(bytes(128_000 - len(kept[0]) - 8_000))

    try:
        trainer = make_trainer(callbacks=[Checkpoints(path), OnEvent("on_iteration_end", fill)])
        with pytest.raises(tr.FileError, match=f"Can't write {path}: No space .*Free disk"):
            trainer.run()
        assert path.read_bytes() == kept[0]
        assert sorted(p.name for p in folder.iterdir()) == ["c", "filler"]
        resumed = make_trainer()
        load_checkpoint(resumed, path)
        assert same(finished(resumed), trained())
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("net", ["CE4.L(width=8, depth=2)", "CE4.L(width=8, depth=2, norm=query)"])
def test_mixed_precision_learns_nearly_the_same(net):
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
