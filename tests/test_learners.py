"""The contract of every learner: reproducible, resumable, with the same callbacks and history."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import twinrank as tr
from twinrank.core import measures
from twinrank.learning.boosting.lightgbm_engine import Grower
from twinrank.learning.estimators.saved_ranker import estimator_class, load_model
from twinrank.learning.models.kinds import KINDS
from twinrank.learning.training import run_folder
from twinrank.learning.training.console import Bar, Lines
from twinrank.learning.training.validation import Validation
from twinrank.training import (
    Callback,
    EarlyStopping,
    HistoryFile,
    TensorBoard,
    TrainingInterrupted,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ITERATIONS = 5
RANKERS = {
    "net": ("net", {"architecture": "MLP(width=8, depth=2, dropout=0.3)"}),
    "lightgbm": ("trees", {"engine": "lightgbm"}),
    "xgboost": ("trees", {"engine": "xgboost"}),
}
"""The rankers to test by name: their kind, and parameters."""
FAST = {
    "net": {"batch_documents": 600, "learning_rate": 0.01, "ensemble_size": 1},
    "trees": {"num_leaves": 5, "n_jobs": 1, "ensemble_size": 1},
}
CHECKPOINT = "checkpoint.safetensors"


def _small(data):
    """Fewer features, of which the first is a category and the second is sometimes missing."""
    X = data.X[:, :12].copy()
    X[:, 0] = np.arange(data.documents) % 4
    missing = X.copy()
    missing[::7, 1] = np.nan
    plain = tr.Dataset.from_arrays(X, data.y, qid=data.qid)
    return plain, tr.Dataset.from_arrays(missing, data.y, qid=data.qid, non_finite="keep")


(TRAIN, TRAIN_MISSING), (NEW, NEW_MISSING) = map(
    _small, tr.synthetic_web_search(queries=30).split(0.7, 0.3, random_state=0)
)


DRAW = run_folder.draw_history


@pytest.fixture(autouse=True)
def _without_curves(monkeypatch):
    """Plots take most of the time of a small run."""
    monkeypatch.setattr(run_folder, "draw_history", lambda *_: None)


@pytest.fixture(params=RANKERS)
def name(request):
    if request.param == "xgboost":
        pytest.importorskip("xgboost")
    return request.param


def make(name, iterations=ITERATIONS, **changes):
    """A small ranker."""
    kind, parameters = RANKERS[name]
    estimator = estimator_class(kind)
    parameters = {**FAST[kind], **parameters, estimator.iterations_parameter(): iterations}
    return estimator(**{**parameters, "early_stopping": None, **changes})


def model_files(folder):
    """The files of a model, without times."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["history.jsonl"] = without_seconds(map(json.loads, files["history.jsonl"].splitlines()))
    return files


def without_seconds(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def same(ranker, expected, data=NEW):
    """True if two rankers and their models are equal in every bit."""
    assert without_seconds(ranker.history_) == without_seconds(expected.history_)
    assert ranker.best_iteration_ == expected.best_iteration_
    assert ranker.best_score_ == expected.best_score_
    return np.array_equal(ranker.predict(data), expected.predict(data))


class InterruptAt(Callback):
    """Interrupts training after an iteration, or after the first step of the next one."""

    def __init__(self, iteration, in_step=False):
        self.iteration, self.in_step = iteration, in_step

    def on_step_end(self, trainer):
        if self.in_step and trainer.progress.iteration == self.iteration:
            trainer.interrupted = True

    def on_iteration_end(self, trainer, record):
        if not self.in_step and record["iteration"] == self.iteration:
            trainer.interrupted = True


def interrupted(ranker, folder, callback, data=TRAIN, evaluation=NEW, resume=False, **options):
    with pytest.raises(TrainingInterrupted, match=r"^Stopped (in|after) (epoch|round) \d"):
        ranker.fit(
            data, eval_set=evaluation, run=folder, resume=resume, callbacks=[callback], **options
        )
    assert (folder / CHECKPOINT).is_file()
    assert not (folder / "model").exists()
    assert not hasattr(ranker, "model_")


def test_every_kind_is_tested():
    trained = {name for name, kind in KINDS.items() if kind.learner is not None}
    assert {kind for kind, _ in RANKERS.values()} == trained
    for kind in KINDS:
        estimator = estimator_class(kind)
        assert estimator.kind == kind
        assert estimator.iteration_name() in ("epoch", "round", "stage")
        assert estimator.iterations_parameter() in estimator().get_params()


# Reproducibility


@pytest.mark.parametrize("ensemble_size", [1, 2])
def test_the_same_seed_gives_the_same_model(name, ensemble_size, tmp_path):
    rankers = [
        make(name, ensemble_size=ensemble_size, random_state=seed).fit(TRAIN, eval_set=NEW)
        for seed in (3, 3, 4)
    ]
    for i, ranker in enumerate(rankers):
        ranker.save(tmp_path / str(i))
    assert same(rankers[0], rankers[1])
    assert model_files(tmp_path / "0") == model_files(tmp_path / "1")
    assert not np.array_equal(rankers[0].predict(NEW), rankers[2].predict(NEW))


def test_callbacks_and_evaluation_do_not_change_the_model(name, tmp_path):
    plain = make(name).fit(TRAIN)
    assert plain.best_score_ is None
    assert plain.best_iteration_ == ITERATIONS
    callbacks = [HistoryFile(tmp_path / "h"), EarlyStopping(99)]
    ranker = make(name, validation_measure="AP").fit(TRAIN, eval_set=NEW, callbacks=callbacks)
    shorter = make(name, ranker.best_iteration_).fit(TRAIN)
    assert np.array_equal(ranker.predict(NEW), shorter.predict(NEW))


# Resuming

UNION = "QueryZScore | SignedLog1p + Standardise"
MISSING, CATEGORICAL = "missing values", {"categorical_features": [0]}
VARIANTS = {
    "net": [
        {},
        {"ensemble_size": 2},
        {"validate_every": 2, "early_stopping": 3},
        {"optimiser": "sgd", "schedule": "cosine", "clip": 0.1},
        {"optimiser": "adamw", "weight_decay": 0.1, "shuffle": False, "categorical_features": [0]},
        {"mode": "paper", "batch_documents": 600},
        {"objective": "ListNet", "data": MISSING},
        {"architecture": "MLP(width=8, depth=2, context=pool, embedding=linear)"},
        {"architecture": "MLP(width=8, depth=2, context=attention, shared=true)", "clip": 0.1}
        | {"ensemble_size": 2},
        {"transforms": UNION, "feature_noise": 0.2, "categorical_features": [0]},
        {"pretrain_epochs": 2, "ensemble_size": 2, "unlabelled": True, "categorical_features": [0]},
        {"teacher_weight": 0.3, "teacher": True},
    ],
    "lightgbm": [
        {},
        {"ensemble_size": 2},
        {"ensemble_size": 2, "colsample_bytree": 0.5, "subsample": 0.7},
        {"ensemble_size": 2, "subsample": 0.5, "subsample_freq": 2},
        {"validate_every": 2, "early_stopping": 3},
        {"colsample_bytree": 0.5},
        {"engine_params": {"feature_fraction_bynode": 0.5, "extra_trees": True}},
        {"engine_params": {"colsample_bynode": 0.5, "min_child_samples": 5}},
        {"data": MISSING, "transforms": "none | QueryZScore", **CATEGORICAL},
        {"objective": "LambdaMART", "colsample_bytree": 0.5},
        {"objective": "LambdaMART", "ensemble_size": 2, "subsample": 0.7},
        {"objective": "rank_xendcg"},
        {"engine_params": {"bagging_fraction": 0.5, "bagging_freq": 1}},
        {"engine_params": {"subsample": 0.5, "subsample_freq": 2}},
        {"engine_params": {"boosting": "dart"}},
        {"engine_params": {"data_sample_strategy": "goss"}},
        {"engine_params": {"linear_tree": True}},
        {"engine_params": {"cegb_penalty_split": 1e-4}, "colsample_bytree": 0.5},
    ],
    "xgboost": [
        {},
        {"ensemble_size": 2},
        {"validate_every": 2, "early_stopping": 3},
        {"engine_params": {"max_depth": 3, "reg_lambda": 2.0, "min_child_weight": 2.0}},
        {"ensemble_size": 2, "colsample_bytree": 0.5, "subsample": 0.7},
        {"subsample": 0.5, "subsample_freq": 2},
        {"engine_params": {"tree_method": "approx"}},
        {"ensemble_size": 2, "engine_params": {"colsample_bynode": 0.5, "subsample": 0.7}},
        {"data": MISSING, **CATEGORICAL},
        {"objective": "rank:ndcg"},
        {"objective": "rank:ndcg", "ensemble_size": 2, "subsample": 0.7},
        {"objective": "rank:ndcg", "ensemble_size": 2, "subsample": 0.7, "subsample_freq": 1},
        {"objective": "rank:ndcg", "engine_params": {"lambdarank_unbiased": True}},
        {"engine_params": {"booster": "dart", "rate_drop": 0.5}},
    ],
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param(name, changes, id=f"{name} {changes or ''}")
        for name, variants in VARIANTS.items()
        for changes in variants
    ],
)
def test_a_resumed_run_ends_with_the_same_model(name, changes, tmp_path):
    if name == "xgboost":
        pytest.importorskip("xgboost")
    changes = dict(changes)
    data, evaluation = TRAIN, NEW
    if changes.pop("data", None) == MISSING:
        data, evaluation = TRAIN_MISSING, NEW_MISSING
    options = {"unlabelled": NEW} if changes.pop("unlabelled", False) else {}
    options |= {"teacher": data.X[:, 3]} if changes.pop("teacher", False) else {}
    whole = make(name, **changes).fit(data, eval_set=evaluation, run=tmp_path / "whole", **options)
    run = tmp_path / "resumed"
    interrupted(make(name, **changes), run, InterruptAt(2), data, evaluation, **options)
    second = InterruptAt(3, in_step=True)  # in a step of a net, after a round of trees
    interrupted(make(name, **changes), run, second, data, evaluation, resume=True, **options)
    resumed = make(name, **changes).fit(data, eval_set=evaluation, run=run, resume=True, **options)
    assert same(resumed, whole, evaluation)
    assert model_files(run / "model") == model_files(tmp_path / "whole" / "model")
    assert len(resumed.history_) == ITERATIONS
    lines = (run / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == resumed.history_


def test_a_run_is_interrupted_in_the_middle_of_an_epoch(tmp_path):
    ranker = make("net")
    message = r"^Stopped in epoch 2, step 1\. Continue with fit"
    with pytest.raises(TrainingInterrupted, match=message):
        ranker.fit(TRAIN, run=tmp_path / "run", callbacks=[InterruptAt(1, in_step=True)])
    resumed = make("net").fit(TRAIN, run=tmp_path / "run", resume=True)
    assert same(resumed, make("net").fit(TRAIN))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("net", {"batch_documents": np.int64(500), "clip": np.float32(1), "samples": np.int64(2)}),
        ("net", {"validation_measure": tr.measure("AP"), "objective": tr.measure("nDCG@5")}),
        ("lightgbm", {"num_leaves": np.int64(5), "objective": tr.measure("AP")}),
        ("lightgbm", {"engine_params": {"min_data_in_leaf": np.int64(5)}}),
        ("lightgbm", {"engine_params": {"monotone_constraints": np.zeros(12, int)}}),
        ("xgboost", {"engine_params": {"max_depth": np.int64(5)}}),
    ],
)
def test_parameters_of_numpy_are_resumed(name, changes, tmp_path):
    if name == "xgboost":
        pytest.importorskip("xgboost")
    changes |= {"learning_rate": np.float32(0.1), "random_state": np.int64(3)}
    changes |= {"validate_every": np.int64(2), "early_stopping": np.int64(9)}
    whole = make(name, np.int64(3), **changes).fit(TRAIN, eval_set=NEW)
    run = tmp_path / "run"
    interrupted(make(name, np.int64(3), **changes), run, InterruptAt(2))
    resumed = make(name, np.int64(3), **changes).fit(TRAIN, eval_set=NEW, run=run, resume=True)
    assert same(resumed, whole)
    assert np.array_equal(load_model(run).predict(NEW), whole.predict(NEW))


def test_weighted_queries_are_resumed(name, tmp_path):
    weights = np.linspace(0.5, 2, TRAIN.queries)
    whole = make(name).fit(TRAIN, sample_weight=weights)
    run = tmp_path / "run"
    interrupted(make(name), run, InterruptAt(2), evaluation=None, sample_weight=weights)
    with pytest.raises(tr.InputError, match="train data has changed since"):
        make(name).fit(TRAIN, run=run, resume=True)
    resumed = make(name).fit(TRAIN, sample_weight=weights, run=run, resume=True)
    assert same(resumed, whole)


def test_a_finished_run_is_resumed_to_the_same_model(name, tmp_path):
    run = tmp_path / "run"
    first = make(name).fit(TRAIN, eval_set=NEW, run=run)
    files = model_files(run / "model")
    resumed = make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True)
    assert same(resumed, first)
    assert resumed.history_ == first.history_  # seconds included: nothing was trained again
    assert model_files(run / "model") == files


def test_a_run_without_a_checkpoint_starts_again(name, tmp_path):
    run = tmp_path / "run"
    whole = make(name).fit(TRAIN, eval_set=NEW, run=run)
    (run / CHECKPOINT).unlink()
    assert same(make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True), whole)


def test_a_run_that_a_callback_stopped_does_not_continue(name, tmp_path):
    class StopAtTwo(Callback):
        def on_iteration_end(self, trainer, record):
            if record["iteration"] == 2:
                trainer.stop_reason = "enough"

    run = tmp_path / "run"
    stopped = make(name).fit(TRAIN, eval_set=NEW, run=run, callbacks=[StopAtTwo()])
    assert len(stopped.history_) == 2
    assert same(make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True), stopped)


@pytest.mark.filterwarnings("ignore:Feature .* ranks the training data alone")
def test_trees_that_cannot_grow_any_more(tmp_path, capsys):
    """Documents are ranked perfectly after a round, and their hessian shrinks with every round."""
    documents = np.arange(200)
    y = documents % 10 > 4
    X = np.column_stack([y, documents % 7])
    data = tr.Dataset.from_arrays(X, y, group=[10] * 20)

    def ranker(**changes):
        engine_params = {"min_sum_hessian_in_leaf": 5, "min_data_in_leaf": 1}
        changes |= {"objective": "LambdaMART", "learning_rate": 0.1}
        return make("lightgbm", 60, engine_params=engine_params, **changes)

    whole = ranker(verbose=True).fit(data)
    rounds = len(whole.history_)
    assert 2 < rounds < 60
    assert (whole.best_iteration_, whole.model_.trees.count) == (rounds, rounds)
    assert f"stopped: no split helps after {rounds} rounds" in capsys.readouterr().err
    selected = ranker().fit(data, eval_set=data)
    assert (selected.best_iteration_, selected.model_.trees.count) == (1, 1)
    run = tmp_path / "run"
    interrupted(ranker(), run, InterruptAt(2), data, None)
    for _ in range(2):  # the second time, the run is complete
        resumed = ranker().fit(data, run=run, resume=True)
        assert same(resumed, whole, data)
        assert resumed.model_.trees.to_bytes() == whole.model_.trees.to_bytes()


@pytest.mark.parametrize("size", [1, 2])
def test_a_round_without_a_split_does_not_end_training(tmp_path, monkeypatch, size):
    """Only one column reaches the gain, and not every round draws it."""
    random = np.random.default_rng(0)
    X = random.normal(size=(1200, 5))
    y = np.digitize(X[:, 0] + random.normal(size=1200) / 2, [0.5, 1.2])
    data = tr.Dataset.from_arrays(X, y, group=[20] * 60)
    train, valid = data.select(slice(0, 45)), data.select(slice(45, 60))

    def ranker():
        return tr.BoostedRanker(
            n_estimators=16,
            ensemble_size=size,
            colsample_bytree=0.4,
            transforms="none",
            engine_params={"min_gain_to_split": 30.0},
            tolerance=0,
            early_stopping=None,
            random_state=0,
        )

    grow, idle = Grower.grow, []

    def recorded(self, round_number):
        grew = grow(self, round_number)
        if not grew:
            idle.append(round_number)
        return grew

    with monkeypatch.context() as patched:
        patched.setattr(Grower, "grow", recorded)
        whole = ranker().fit(train, eval_set=valid)
    assert len(whole.history_) == 16
    assert 0 < min(idle) < 15  # so that a later round has a split again
    assert whole.model_.trees.count > min(idle)
    assert whole.score(valid) == pytest.approx(whole.best_score_)
    for place in {1, min(idle), min(idle) + 1}:
        run = tmp_path / f"run-{place}"
        interrupted(ranker(), run, InterruptAt(place), train, valid)
        resumed = ranker().fit(train, eval_set=valid, run=run, resume=True)
        assert resumed.history_[-1]["validation"] == whole.history_[-1]["validation"]
        assert resumed.model_.trees.to_bytes() == whole.model_.trees.to_bytes()
    impossible = ranker().set_params(engine_params={"min_gain_to_split": 1e9}, n_estimators=60)
    with pytest.raises(tr.InputError, match="No tree could be grown"):
        impossible.fit(train)
    with pytest.raises(tr.InputError, match="No tree could be grown"):
        impossible.set_params(n_estimators=1).fit(train)


COMMANDS = {
    "net": ["--epochs", "60", "--set", "architecture=MLP(width=8, depth=2)"],
    "lightgbm": ["--trees", "--epochs", "200", "--set", "num_leaves=4", "--set", "samples=1"],
}


@pytest.mark.parametrize("name", ["net", pytest.param("lightgbm", marks=pytest.mark.slow)])
def test_a_killed_command_is_resumed(name, tmp_path, cli):
    TRAIN.save(tmp_path / "train.txt")
    words = ["train", tmp_path / "train.txt", *COMMANDS[name], "--set", "early_stopping=none"]
    run, whole = tmp_path / "run", tmp_path / "whole"
    command = [sys.executable, "-m", "twinrank", *map(str, words), "--out", str(run), "--quiet"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    end = time.monotonic() + 60
    while not (run / CHECKPOINT).exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.002)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert not (run / "model").exists()
    assert cli("train", "--resume", run, "--quiet")[0] == 0
    assert cli(*words, "--out", whole, "--quiet")[0] == 0
    assert model_files(run / "model") == model_files(whole / "model")
    assert sorted(path.name for path in run.iterdir()) == sorted(
        path.name for path in whole.iterdir()
    )


# Callbacks


class Events(Callback):
    """Notes every event."""

    def __init__(self):
        self.seen = []

    def on_train_begin(self, trainer):
        self.seen.append(("train begin", trainer.progress.iteration, len(trainer.progress.history)))

    def on_step_end(self, trainer):
        assert 0 < trainer.progress.step <= trainer.steps
        assert trainer.step_documents > 0
        self.seen.append(("step", trainer.progress.iteration, trainer.progress.step))

    def on_iteration_end(self, trainer, record):
        assert trainer.progress.history[-1] is record
        assert trainer.best.iteration <= record["iteration"] == trainer.progress.iteration
        assert 0 <= record["seconds"] < trainer.seconds + 0.001  # rounded
        self.seen.append(("iteration", record["iteration"]))

    def on_interrupt(self, trainer):
        self.seen.append(("interrupt", trainer.progress.iteration))

    def on_train_end(self, trainer):
        self.seen.append(("train end", trainer.progress.iteration))


def one_step(name, **changes):
    """A ranker whose iterations have one step each."""
    changes |= {"batch_documents": 10**6} if name == "net" else {}
    return make(name, 3, **changes)


def test_every_kind_has_the_same_events(name):
    events = Events()
    one_step(name).fit(TRAIN, eval_set=NEW, callbacks=[events])
    assert events.seen == [
        ("train begin", 0, 0),
        ("step", 0, 1),
        ("iteration", 1),
        ("step", 1, 1),
        ("iteration", 2),
        ("step", 2, 1),
        ("iteration", 3),
        ("train end", 3),
    ]


def test_events_of_an_interrupted_and_resumed_run(name, tmp_path):
    events = Events()
    with pytest.raises(TrainingInterrupted):
        one_step(name).fit(
            TRAIN, eval_set=NEW, run=tmp_path / "run", callbacks=[events, InterruptAt(2)]
        )
    assert events.seen[-3:] == [("iteration", 2), ("interrupt", 2), ("train end", 2)]
    events = Events()
    one_step(name).fit(TRAIN, eval_set=NEW, run=tmp_path / "run", resume=True, callbacks=[events])
    assert events.seen == [
        ("train begin", 2, 2),
        ("step", 2, 1),
        ("iteration", 3),
        ("train end", 3),
    ]


def test_training_ends_for_callbacks_if_one_fails(name):
    class Failing(Callback):
        def on_iteration_end(self, trainer, record):
            raise ZeroDivisionError

    events = Events()
    with pytest.raises(ZeroDivisionError):
        one_step(name).fit(TRAIN, eval_set=NEW, callbacks=[events, Failing()])
    assert events.seen[-2:] == [("iteration", 1), ("train end", 1)]


def test_a_callback_stops_training(name, capsys):
    class StopAtTwo(Callback):
        def on_iteration_end(self, trainer, record):
            if record["iteration"] == 2:
                trainer.stop_reason = "two is enough"

    ranker = make(name, verbose=True).fit(TRAIN, callbacks=[StopAtTwo()])
    assert len(ranker.history_) == ranker.best_iteration_ == 2
    assert same(ranker, make(name, 2).fit(TRAIN))
    assert "stopped: two is enough" in capsys.readouterr().err


# Selection


@pytest.fixture
def measured(monkeypatch):
    """Let evaluation sets have these values, one per evaluation."""

    def set_values(**values):
        series = {name: iter(numbers) for name, numbers in values.items()}
        measured = lambda _, name, *__: {"nDCG@5": np.array([next(series[name])])}  # noqa: E731
        monkeypatch.setattr(Validation, "_measured", measured)

    return set_values


def test_the_first_best_iteration_is_kept(name, measured):
    measured(validation=[0.1, 0.3, 0.2, 0.3, 0.2])
    ranker = make(name).fit(TRAIN, eval_set=NEW)
    assert (ranker.best_iteration_, ranker.best_score_) == (2, 0.3)
    assert len(ranker.history_) == ITERATIONS
    assert np.array_equal(ranker.predict(NEW), make(name, 2).fit(TRAIN).predict(NEW))


def test_early_stopping(name, measured, capsys):
    measured(validation=[0.1, 0.3, 0.2, 0.3, 0.9])
    ranker = make(name, early_stopping=2, verbose=True).fit(TRAIN, eval_set=NEW)
    assert (ranker.best_iteration_, ranker.best_score_, len(ranker.history_)) == (2, 0.3, 4)
    unit = ranker.iteration_name()
    message = f"stopped: no better nDCG@5 than 0.3000 ({unit} 2) for 2 {unit}s"
    assert message in capsys.readouterr().err
    assert np.array_equal(ranker.predict(NEW), make(name, 2).fit(TRAIN).predict(NEW))


def test_early_stopping_is_the_same_after_an_interruption(name, measured, tmp_path):
    values = [0.1, 0.3, 0.2, 0.3, 0.9]
    measured(validation=values)
    whole = make(name, early_stopping=2).fit(TRAIN, eval_set=NEW)
    measured(validation=values)
    run = tmp_path / "run"
    interrupted(make(name, early_stopping=2), run, InterruptAt(3))
    resumed = make(name, early_stopping=2).fit(TRAIN, eval_set=NEW, run=run, resume=True)
    assert same(resumed, whole)
    assert (resumed.best_iteration_, len(resumed.history_)) == (2, 4)


def test_select_names_the_set_that_selects(name, measured):
    values = {"validation": [0.5, 0.4, 0.3, 0.2, 0.1], "test": [0.1, 0.2, 0.9, 0.2, 0.1]}
    sets = {"validation": NEW, "test": NEW}
    for select, expected in ((None, (1, 0.5)), ("test", (3, 0.9))):
        measured(**values)
        ranker = make(name, select=select).fit(TRAIN, eval_set=sets)
        assert (ranker.best_iteration_, ranker.best_score_) == expected
        assert [record["test"] for record in ranker.history_] == values["test"]
    measured(first=[0.1] * 5, second=[0.2] * 5)
    ranker = make(name).fit(TRAIN, eval_set={"first": NEW, "second": NEW})
    assert ranker.best_score_ == 0.1
    with pytest.raises(tr.InputError, match=r"Unknown evaluation set 'tset'. Did you mean 'test'"):
        make(name, select="tset").fit(TRAIN, eval_set=sets)
    with pytest.raises(tr.InputError, match="select must be the name of an evaluation set, not 3"):
        make(name, select=3).fit(TRAIN, eval_set=sets)


def test_validate_every(name, measured):
    measured(validation=[0.1, 0.3, 0.2])  # in iterations 2, 4 and, being the last, 5
    ranker = make(name, validate_every=2).fit(TRAIN, eval_set=NEW)
    assert (ranker.best_iteration_, ranker.best_score_) == (4, 0.3)
    evaluated = [record["iteration"] for record in ranker.history_ if "validation" in record]
    assert evaluated == [2, 4, 5]
    assert np.array_equal(ranker.predict(NEW), make(name, 4).fit(TRAIN).predict(NEW))
    for wrong in (0, 1.5, None):
        with pytest.raises(tr.InputError, match="validate_every must be a positive whole number"):
            make(name, validate_every=wrong).fit(TRAIN, eval_set=NEW)


# History


def test_history(name, tmp_path):
    run = tmp_path / "run"
    own = HistoryFile(tmp_path / "own.jsonl")
    sets = {"validation": NEW, "train": TRAIN}
    ranker = make(name).fit(TRAIN, eval_set=sets, run=run, callbacks=[own])
    learner = ["loss", "learning_rate"] if ranker.kind == "net" else []
    for number, record in enumerate(ranker.history_, 1):
        assert list(record) == ["iteration", *learner, "validation", "train", "seconds"]
        assert record["iteration"] == number
    assert ranker.best_score_ == ranker.history_[ranker.best_iteration_ - 1]["validation"]
    assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
    ranker.save(tmp_path / "saved")
    for path in (run / "history.jsonl", run / "model" / "history.jsonl", own.path):
        assert [json.loads(line) for line in path.read_text().splitlines()] == ranker.history_
    for folder in (run, run / "model", tmp_path / "saved"):
        loaded = load_model(folder)
        assert loaded.history_ == ranker.history_
        assert loaded.best_iteration_ == ranker.best_iteration_
        assert loaded.best_score_ == ranker.best_score_
        assert type(loaded) is type(ranker)
        assert loaded.get_params() == ranker.get_params()
        assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))


def test_history_without_an_evaluation_set(name, tmp_path):
    ranker = make(name, 2).fit(TRAIN)
    learner = ["loss", "learning_rate"] if ranker.kind == "net" else []
    assert [list(record) for record in ranker.history_] == [["iteration", *learner, "seconds"]] * 2
    ranker.save(tmp_path / "saved")
    loaded = type(ranker).load(tmp_path / "saved")
    assert (loaded.best_iteration_, loaded.best_score_) == (2, None)
    assert loaded.history_ == ranker.history_


def test_a_huge_history_is_not_read(tmp_path):
    ranker = make("lightgbm").fit(TRAIN)
    ranker.save(tmp_path / "model")
    (tmp_path / "model" / "history.jsonl").write_bytes(b"{}\n" * 3_000_000)
    with pytest.warns(tr.DataWarning, match="9,000,000 bytes and is not read"):
        loaded = load_model(tmp_path / "model")
    assert loaded.history_ == []
    np.testing.assert_array_equal(loaded.predict(NEW), ranker.predict(NEW))


def test_a_run_that_was_killed_before_it_began_starts_anew(tmp_path, cli):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").write_text("process 1 on a machine since long ago")
    code, _, message = cli("train", "--resume", folder)
    assert code == 2
    assert "stopped before it began, start it again" in " ".join(message.split())
    ranker = make("lightgbm")
    with pytest.warns(tr.DataWarning, match="is empty, so that training starts from the beginning"):
        ranker.fit(TRAIN, run=folder, resume=True)
    assert (folder / "run.json").is_file()
    with pytest.raises(tr.InputError, match="it has no run"):
        ranker.fit(TRAIN, run=tmp_path / "elsewhere", resume=True)


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_learning_rate_that_makes_scores_infinite_is_refused(engine, size):
    ranker = make(engine, learning_rate=1e300, ensemble_size=size)
    with pytest.raises(tr.TwinRankError, match=r"learning.rate"):
        ranker.fit(TRAIN)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("as_data", [False, True])
def test_infinite_categories_are_refused(value, as_data):
    X, qid = np.array(TRAIN.X), TRAIN.qid
    ranker = make("lightgbm", categorical_features=[0]).fit(X, TRAIN.y, qid=qid)
    X[3, 0] = value
    given = (tr.Dataset.from_arrays(X, qid=qid, non_finite="keep"),) if as_data else (X, qid)
    with pytest.raises(tr.InputError, match=f"Feature 1 is {value:g} in a row, but a category"):
        ranker.predict(*given)


@pytest.mark.parametrize("reserved", ["iteration", "loss", "learning_rate", "seconds"])
def test_names_in_the_history_are_reserved(name, reserved):
    with pytest.raises(tr.InputError, match=f"be called '{reserved}'"):
        make(name).fit(TRAIN, eval_set={reserved: NEW})


# Signals


class Signal(Callback):
    """Sends signals to this process after the second iteration."""

    def __init__(self, *numbers):
        self.numbers = numbers

    def on_iteration_end(self, trainer, record):
        if record["iteration"] == 2:
            for number in self.numbers:
                os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_interrupt_and_save(name, number, tmp_path):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    run = tmp_path / "run"
    interrupted(make(name), run, Signal(number))
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert len((run / "history.jsonl").read_text().splitlines()) == 2
    resumed = make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True)
    assert same(resumed, make(name).fit(TRAIN, eval_set=NEW))


def test_a_second_ctrl_c_stops_at_once(name, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        make(name).fit(
            TRAIN, run=tmp_path / "run", callbacks=[Signal(signal.SIGINT, signal.SIGINT)]
        )
    assert signal.getsignal(signal.SIGINT) is before


def test_runs_in_other_threads_leave_signals_alone(name, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        ranker = pool.submit(make(name).fit, TRAIN, eval_set=NEW, run=tmp_path / "run").result()
    assert signal.getsignal(signal.SIGINT) is before
    assert same(ranker, make(name).fit(TRAIN, eval_set=NEW))


# Run folders


def test_a_run_needs_an_empty_folder(name, tmp_path, monkeypatch):
    run = tmp_path / "run"
    make(name, 1).fit(TRAIN, run=run)
    with pytest.raises(
        tr.InputError, match=r"run exists and is not an empty folder\. .*resume the run in it"
    ):
        make(name, 1).fit(TRAIN, run=run)
    with pytest.raises(tr.InputError, match=r"resume=True needs the folder of a run; pass run"):
        make(name, 1).fit(TRAIN, resume=True)
    for folder, message in ((tmp_path / "none", "it has no run.json"), (tmp_path, "no run.json")):
        with pytest.raises(tr.InputError, match=message):
            make(name, 1).fit(TRAIN, run=folder, resume=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(run_folder, "draw_history", DRAW)
    make(name, 1).fit(TRAIN, run=str(tmp_path / "empty"))
    files = sorted(path.name for path in (tmp_path / "empty").iterdir())
    curves = ["curves.png", "curves.svg"] if name == "net" else []  # without sets, only a loss
    assert files == [CHECKPOINT, *curves, "history.jsonl", "model", "run.json"]


def test_an_incomplete_run_is_not_a_model(name, tmp_path):
    run = tmp_path / "run"
    interrupted(make(name), run, InterruptAt(1))
    with pytest.raises(tr.InputError, match=r"not complete. Call fit again, with run="):
        load_model(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "has version 1 of the format; .*Train again in a new folder"),
        ({"format": "x"}, "is not the description of a run"),
        ({"kind": "forest"}, "there is no learner 'forest'"),
        ({"kind": 5}, "kind is missing or has the wrong type"),
        ({"parameters": []}, "parameters is missing or has the wrong type"),
        ({"data": None}, "data is missing or has the wrong type"),
    ],
)
def test_damaged_descriptions_of_runs_are_refused(name, changes, message, tmp_path):
    run = tmp_path / "run"
    make(name, 1).fit(TRAIN, run=run)
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(tr.InputError, match=message):
        make(name, 1).fit(TRAIN, run=run, resume=True)


def test_resume_refuses_another_training(name, tmp_path):
    run = tmp_path / "run"
    interrupted(make(name, random_state=1), run, InterruptAt(2))

    def resume(ranker, data=TRAIN, evaluation=NEW):
        ranker.fit(data, eval_set=evaluation, run=run, resume=True)

    for changes, message in [
        ({"random_state": 2}, "was started with random_state=1, not 2"),
        ({"random_state": 1, "objective": "AP"}, "was started with objective='nDCG', not 'AP'"),
        ({"random_state": 1, "validate_every": 2}, "was started with validate_every="),
        ({"random_state": 1, "ensemble_size": 2}, "was started with ensemble_size=1, not 2"),
    ]:
        with pytest.raises(tr.InputError, match=message):
            resume(make(name, **changes))
    ranker = make(name, random_state=1)
    with pytest.raises(tr.InputError, match="The train data has changed since"):
        resume(ranker, TRAIN.select(range(TRAIN.queries - 1)))
    with pytest.raises(tr.InputError, match="The validation data has changed since"):
        resume(ranker, evaluation=NEW.select(range(3)))
    with pytest.raises(tr.InputError, match="The validation data has changed since"):
        resume(ranker, evaluation=None)
    with pytest.raises(tr.InputError, match="The test data has changed since"):
        resume(ranker, evaluation={"validation": NEW, "test": NEW})
    other = "lightgbm" if ranker.kind == "net" else "net"
    kind = RANKERS[other][0]
    with pytest.raises(tr.InputError, match=f"trains {ranker.kind}, not {kind}"):
        resume(make(other, random_state=1))
    resume(make(name, random_state=1, verbose=True))  # makes no difference to the model


def test_wrong_checkpoints_are_refused(name, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    interrupted(make(name), run, InterruptAt(2))
    interrupted(make(name, random_state=7), other, InterruptAt(2))
    path = run / CHECKPOINT
    good = path.read_bytes()

    def refused(content, message):
        path.write_bytes(content)
        with pytest.raises(tr.InputError, match=message):
            make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True)

    refused(good[:-20], f"{CHECKPOINT} is damaged")
    refused(good[:50], f"{CHECKPOINT} is damaged")
    refused(b"", f"{CHECKPOINT} is damaged")
    refused((other / CHECKPOINT).read_bytes(), "was trained with seed=7, not 0")
    arrays = load_file(other / CHECKPOINT)
    about = {"format": "twinrank-checkpoint", "version": 1}
    save_file(arrays, path, {"twinrank": json.dumps(about)})
    refused(path.read_bytes(), "has version 1 of the format; this TwinRank reads 5")
    save_file(arrays, path)
    refused(path.read_bytes(), "is not a checkpoint of TwinRank")
    path.write_bytes(good)
    resumed = make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True)
    assert same(resumed, make(name).fit(TRAIN, eval_set=NEW))


def test_checkpoints_with_missing_parts_are_refused(name, tmp_path):
    run = tmp_path / "run"
    interrupted(make(name), run, InterruptAt(2))
    path = run / CHECKPOINT
    arrays = load_file(path)
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    for part in arrays:
        if not part.startswith("learner."):
            continue
        for changed in (
            {key: value for key, value in arrays.items() if key != part},
            {**arrays, part: arrays[part][: len(arrays[part]) // 2].copy()},
        ):
            save_file(changed, path, metadata)
            with pytest.raises(tr.InputError, match=r"does not fit|is damaged"):
                make(name).fit(TRAIN, eval_set=NEW, run=run, resume=True)


# Output


def test_console_output(name, capsys):
    ranker = make(name, verbose=True).fit(TRAIN, eval_set=NEW)
    unit = ranker.iteration_name()
    values = [record["validation"] for record in ranker.history_]
    best = f"best {max(values):.4f} ({unit} {values.index(max(values)) + 1})"
    if ranker.best_score_ < max(values):
        best += f", kept {ranker.best_score_:.4f} ({unit} {ranker.best_iteration_})"
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"{unit} {ITERATIONS}/{ITERATIONS}  ")
    assert f"  validation nDCG@5 {ranker.history_[-1]['validation']:.4f}  {best}  " in last
    assert ("  loss " in last) == (ranker.kind == "net")
    make(name).fit(TRAIN)
    assert capsys.readouterr().err == ""


def test_lines(name, capsys):
    ranker = make(name, 21).fit(TRAIN, callbacks=[Lines()])
    lines = capsys.readouterr().err.splitlines()
    printed = range(1, 22) if ranker.kind == "net" else (10, 20, 21)
    assert [line.split()[:2] for line in lines] == [
        [ranker.iteration_name(), f"{n}/21"] for n in printed
    ]


def test_bar(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ranker = make(name).fit(TRAIN, eval_set=NEW, callbacks=[Bar()])
    output = capsys.readouterr().err
    assert f"{ranker.iteration_name().capitalize()} {ITERATIONS}/{ITERATIONS}" in output
    assert "docs/s" in output
    assert f"validation nDCG@5 {ranker.history_[-1]['validation']:.4f}" in output


def test_tensorboard(name, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run, curves = tmp_path / "run", tmp_path / "curves"
    with pytest.raises(TrainingInterrupted):
        make(name).fit(
            TRAIN, eval_set=NEW, run=run, callbacks=[InterruptAt(3), TensorBoard(curves)]
        )
    ranker = make(name).fit(
        TRAIN, eval_set=NEW, run=run, resume=True, callbacks=[TensorBoard(curves)]
    )
    events = accumulator.EventAccumulator(str(curves))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("nDCG@5/validation")]
    assert written == [
        (record["iteration"], pytest.approx(record["validation"])) for record in ranker.history_
    ]
    learner = {"loss", "learning_rate"} if ranker.kind == "net" else set()
    assert set(events.Tags()["scalars"]) == {"nDCG@5/validation", *learner}


def test_a_resumed_run_may_have_more_iterations(name, tmp_path):
    folder = tmp_path / "run"
    make(name, 3).fit(TRAIN, eval_set=NEW, run=folder)
    resumed = make(name, 5).fit(TRAIN, eval_set=NEW, run=folder, resume=True)
    assert same(resumed, make(name, 5).fit(TRAIN, eval_set=NEW))
    parameter = resumed.iterations_parameter()
    with pytest.raises(tr.InputError, match=f"was started with {parameter}=5, not 4"):
        make(name, 4).fit(TRAIN, eval_set=NEW, run=folder, resume=True)


def test_a_stop_between_two_evaluations_is_evaluated(name, tmp_path):
    class Stop(Callback):
        def on_iteration_end(self, trainer, record):
            if record["iteration"] == 3:
                trainer.stop_reason = "enough"

    ranker = make(name, validate_every=2)
    ranker.fit(TRAIN, eval_set=NEW, callbacks=[Stop()], run=tmp_path / "run")
    assert [r["iteration"] for r in ranker.history_ if "validation" in r] == [2, 3]
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ranker.history_


@pytest.mark.parametrize("callbacks", [[3], Callback(), [Callback]])
def test_callbacks_must_be_instances_in_a_list(name, callbacks):
    with pytest.raises(tr.InputError, match="callbacks must be a list of instances of twinrank"):
        make(name).fit(TRAIN, callbacks=callbacks)


def test_a_measure_of_your_own_selects_and_scores(name, tmp_path):
    own = tr.Measure.from_functions("Mine", lambda labels, lists: labels, lambda rank: 1 / rank)
    ranker = make(name, validation_measure=own.at(3)).fit(TRAIN, eval_set=NEW, run=tmp_path / "run")
    value = tr.evaluate(ranker.predict(NEW), NEW.y, NEW.lists, [own.at(3)])
    assert ranker.best_score_ == value["Mine@3"] == value[own.at(3)] == ranker.score(NEW)
    assert (
        ranker.score(NEW, measure="AP")
        == tr.evaluate(ranker.predict(NEW), NEW.y, NEW.lists, ["AP"])["AP"]
    )
    assert ranker.score(NEW, measure=own) > ranker.score(NEW)
    loaded = type(ranker).load(tmp_path / "run")
    assert loaded.validation_measure == "Mine@3"
    with pytest.raises(tr.InputError, match="Unknown measure 'Mine'"):
        loaded.score(NEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "_OWN", {})
        tr.register_measure(own)
        assert loaded.score(NEW) == ranker.best_score_
        again = make(name, objective="Mine", validation_measure="Mine@3")
        assert again.fit(TRAIN, eval_set=NEW).best_score_ > 0


def test_callbacks_of_lightgbm_are_refused_by_name(name):
    import lightgbm

    for callback, instead in (
        (lightgbm.early_stopping(3, verbose=False), "the parameter early_stopping"),
        (lightgbm.reset_parameter(learning_rate=[0.1]), "a subclass of twinrank.training.Callback"),
    ):
        with pytest.raises(tr.InputError, match=f"of lightgbm, which .* Use {instead}"):
            make(name).fit(TRAIN, callbacks=[callback])


def test_loading_a_ranker_of_another_kind_names_it(name, tmp_path):
    folder = tmp_path / "model"
    make(name).fit(TRAIN).save(folder)
    other = tr.BoostedRanker if name == "net" else tr.Ranker
    own = type(make(name)).__name__
    with pytest.raises(tr.InputError, match=f"use {own}.load, or twinrank.load_model"):
        other.load(folder)


def test_an_interrupted_fit_says_how_to_continue(name, tmp_path):
    class Interrupt(Callback):
        def on_iteration_end(self, trainer, record):
            trainer.interrupted = True

    folder = tmp_path / "run"
    ranker = make(name)
    with pytest.raises(TrainingInterrupted, match=r"Continue with fit\(…, run=.*resume=True"):
        ranker.fit(TRAIN, eval_set=NEW, callbacks=[Interrupt()], run=folder)
    with pytest.raises(tr.InputError, match=r"Call fit again, with run=.* and resume=True"):
        type(ranker).load(folder)


def test_select_needs_an_evaluation_set(name):
    with pytest.raises(tr.InputError, match="select='validation' needs an evaluation set"):
        make(name, select="validation").fit(TRAIN)


def test_load_model_reads_any_kind(name, tmp_path):
    ranker = make(name).fit(TRAIN)
    ranker.save(tmp_path / "model")
    loaded = tr.load_model(str(tmp_path / "model"))
    assert type(loaded) is type(ranker)
    assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
    other = tr.BoostedRanker if ranker.kind == "net" else tr.Ranker
    nouns = ("a net", "boosted trees")
    held, wanted = nouns if ranker.kind == "net" else nouns[::-1]
    message = rf"holds {held}, not {wanted}: use {type(ranker).__name__}\.load, or twinrank\.load_m"
    with pytest.raises(tr.InputError, match=message):
        other.load(tmp_path / "model")
