"""Blends: weights by validation, one saved model, resumable runs, commands and studies."""

import json
import pickle
import shutil

import numpy as np
import pytest
from sklearn.base import clone

import twinrank as tr
from twinrank.experiments.study.methods import method
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import Unit, train_unit
from twinrank.experiments.tuning.search import Split, Tuning
from twinrank.experiments.tuning.space import spaces_of
from twinrank.experiments.tuning.tuning_results import write_best
from twinrank.learning.estimators.blend_weights import best_weights, simplex
from twinrank.learning.estimators.parameters import parameters_of
from twinrank.learning.estimators.saved_ranker import load_model
from twinrank.learning.models.saved_model import needs_architecture
from twinrank.learning.training import run_folder
from twinrank.training import Callback, HistoryFile, TrainingInterrupted

SMALL = {
    "trees__n_estimators": 3,
    "trees__num_leaves": 4,
    "trees__n_jobs": 1,
    "trees__ensemble_size": 1,
    "net__epochs": 2,
    "net__architecture": "MLP(width=4, depth=1)",
    "net__samples": 1,
}


def _narrow(data):
    return tr.Dataset.from_arrays(data.X[:, :8], data.y, qid=data.qid)


TRAIN, VALID = map(_narrow, tr.synthetic_web_search(queries=24).split(0.6, 0.4, random_state=0))


@pytest.fixture(autouse=True)
def _without_curves(monkeypatch):
    monkeypatch.setattr(run_folder, "draw_history", lambda *_: None)


def small(**changes):
    return tr.Blend().set_params(**{**SMALL, **changes})


@pytest.fixture(scope="module")
def fitted():
    return small().fit(TRAIN, eval_set={"validation": VALID, "train": TRAIN})


# The model


def test_a_blend_is_the_weighted_sum_of_its_rankers(fitted):
    assert list(fitted.rankers_) == list(fitted.weights_) == ["trees", "net"]
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    expected = 0
    for name, ranker in fitted.rankers_.items():
        of_valid = ranker.predict(VALID).astype(float)
        means = VALID.lists.spread(VALID.lists.sum(of_valid) / VALID.lists.sizes)
        scale = np.sqrt(np.mean((of_valid - means) ** 2))
        expected = expected + fitted.weights_[name] * ranker.predict(TRAIN) / scale
    np.testing.assert_allclose(fitted.predict(TRAIN), expected, rtol=1e-5, atol=1e-6)


def test_each_ranker_is_trained_as_if_alone(fitted):
    alone = {
        "trees": tr.BoostedRanker(n_estimators=3, num_leaves=4, n_jobs=1, ensemble_size=1),
        "net": tr.Ranker(epochs=2, architecture="MLP(width=4, depth=1)", samples=1),
    }
    for name, ranker in alone.items():
        ranker.fit(TRAIN, eval_set=VALID)
        assert np.array_equal(ranker.predict(VALID), fitted.rankers_[name].predict(VALID))


def test_history_and_best_score(fitted):
    assert [record["iteration"] for record in fitted.history_] == [1, 2, 3]
    for record, ranker in zip(fitted.history_, (*fitted.rankers_.values(), fitted), strict=False):
        assert record["validation"] == pytest.approx(ranker.score(VALID))
        assert record["train"] == pytest.approx(ranker.score(TRAIN))
    assert fitted.best_score_ == fitted.history_[-1]["validation"]
    assert fitted.best_iteration_ == 3


def test_without_an_evaluation_set_weights_are_equal():
    blend = small().fit(TRAIN)
    assert blend.weights_ == {"trees": 0.5, "net": 0.5}
    assert blend.best_score_ is None


@pytest.mark.parametrize("weights", [[0.3, 0.7], {"net": 1.4, "trees": 0.6}])
def test_weights_of_the_user(weights, fitted):
    blend = small(weights=weights).fit(TRAIN, eval_set=VALID)
    assert blend.weights_ == pytest.approx({"trees": 0.3, "net": 0.7})
    assert blend.model_.scales == fitted.model_.scales


# Weights


def test_weights_that_are_not_clearly_worse_are_averaged():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 4000)
    good, noise = y + random.normal(size=4000), random.normal(size=4000)

    def weights(queries, *scores):
        n = queries * 10
        data = tr.Dataset.from_arrays(np.zeros((n, 1)), y[:n], group=[10] * queries)
        return best_weights([s[:n] for s in scores], [1.0] * len(scores), data, "nDCG@5")

    assert weights(400, good, noise)[0] > 0.9
    assert 0.5 < weights(4, good, noise)[0] < weights(400, good, noise)[0]
    assert weights(1, good, noise) == (0.5, 0.5)
    assert weights(50, good, good) == pytest.approx((0.5, 0.5))  # all weights are equally good
    assert weights(50, good, good, good) == pytest.approx((1 / 3,) * 3)


@pytest.mark.parametrize("count", range(1, 13))
def test_grids_of_weights(count):
    grid = simplex(count)
    assert grid.shape[1] == count
    assert len(grid) <= 100
    np.testing.assert_allclose(grid.sum(axis=1), 1)
    np.testing.assert_allclose(grid.mean(axis=0), 1 / count)


# Parameters


def test_nested_parameters():
    blend = tr.Blend().set_params(net__epochs=3, weights=[1, 2])
    assert blend.get_params()["net__epochs"] == 3
    copy = clone(blend)
    copy.set_params(net=tr.Ranker(epochs=9), trees__num_leaves=5)
    assert copy.get_params()["net__epochs"] == 9
    assert copy.rankers["trees"].num_leaves == 5
    assert blend.get_params()["net__epochs"] == 3
    assert tr.Blend().rankers is None
    with pytest.raises(tr.InputError, match="Did you mean 'net__epochs'"):
        blend.set_params(net__epoch=3)


def test_names_of_listed_rankers():
    blend = tr.Blend([tr.Ranker(), tr.BoostedRanker(), {"kind": "net", "epochs": 4}])
    assert {"net_1", "net_2", "trees"} <= set(blend.get_params())
    assert blend.get_params()["net_2__epochs"] == 4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rankers": []}, "rankers must be a list of rankers"),
        ({"rankers": 3}, "rankers must be a list of rankers"),
        ({"rankers": [tr.Blend()]}, "must be a Ranker or a BoostedRanker, not Blend"),
        ({"rankers": {"a": {"kind": "tree"}}}, "Unknown kind of ranker 'tree'"),
        ({"rankers": {"a": {"epochs": 3}}}, "a dict without its kind"),
        ({"rankers": {"a": {"kind": "net", "epoch": 1}}}, "Did you mean 'epochs'"),
        ({"rankers": {"a/b": tr.Ranker()}}, "cannot be called 'a/b'"),
        ({"rankers": {"a__b": tr.Ranker()}}, "cannot be called 'a__b'"),
        ({"rankers": {"A": tr.Ranker(), "a": tr.Ranker()}}, "differ by more than case"),
        ({"rankers": {"weights": tr.Ranker()}}, "Blend has that parameter"),
        ({"rankers": [tr.Ranker(epochs=0)]}, "Ranker 'net': epochs must be"),
        ({"rankers": [tr.Ranker(random_state=3)]}, "pass random_state to Blend"),
        ({"rankers": [tr.Ranker(validation_measure="AP")]}, "pass validation_measure to Blend"),
        ({"weights": [1]}, "a number for each of trees, net"),
        ({"weights": "equal"}, "weights must be 'auto'"),
        ({"weights": {"net": 1}}, "keys trees, net"),
        ({"weights": [-1, 2]}, "at least 0 and not all 0"),
        ({"validation_measure": "nDGC"}, "Did you mean 'nDCG'"),
        ({"select": "other"}, "Unknown evaluation set 'other'"),
    ],
)
def test_parameters_that_cannot_be_used(parameters, message):
    with pytest.raises(tr.InputError, match=message):
        tr.Blend(**parameters).fit(TRAIN, eval_set=VALID)


# Files


def test_save_load_and_pickle(fitted, tmp_path):
    fitted.save(tmp_path / "blend")
    for loaded in (
        tr.Blend.load(tmp_path / "blend"),
        load_model(tmp_path / "blend"),
        pickle.loads(pickle.dumps(fitted)),
    ):
        assert np.array_equal(loaded.predict(VALID), fitted.predict(VALID))
        assert loaded.weights_ == fitted.weights_
        assert loaded.history_ == fitted.history_
        assert loaded.best_score_ == fitted.best_score_
        assert loaded.get_params()["net__epochs"] == 2
    loaded.fit(TRAIN)
    with pytest.raises(tr.InputError, match=r"holds a blend, not a net: use Blend\.load"):
        tr.Ranker.load(tmp_path / "blend")
    with pytest.raises(tr.InputError, match="holds no net of your own"):
        tr.Blend.load(tmp_path / "blend", architecture="torch.nn:Linear")


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, "an object with a model or more"),
        ({"../x": {"weight": 1, "scale": 1}}, "cannot be called"),
        ({"trees": {"weight": 1}}, "must have a weight and a scale"),
        ({"trees": {"weight": "1", "scale": 1}}, "must be numbers"),
        ({"trees": {"weight": -1, "scale": 1}}, "weights must be at least 0"),
        ({"trees": {"weight": 1, "scale": 0}}, "scales above 0"),
        ({"trees": {"weight": 0, "scale": 1}}, "all weights are 0"),
        ({"other": {"weight": 1, "scale": 1}}, "there is no such folder"),
        ({"loop": {"weight": 1, "scale": 1}}, "a blend in a blend"),
    ],
)
def test_damaged_blends_are_refused(fitted, models, message, tmp_path):
    fitted.save(tmp_path / "blend")
    path = tmp_path / "blend" / "config.json"
    (tmp_path / "blend" / "loop").symlink_to(".")
    path.write_text(json.dumps({**json.loads(path.read_text()), "models": models}))
    with pytest.raises(tr.InputError, match=message):
        tr.Blend.load(tmp_path / "blend")


def test_a_model_of_another_blend_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "blend")
    small(random_state=7).fit(TRAIN).save(tmp_path / "other")
    shutil.rmtree(tmp_path / "blend" / "trees")
    shutil.copytree(tmp_path / "other" / "trees", tmp_path / "blend" / "trees")
    with pytest.raises(tr.InputError, match="trees is not the model that the blend was saved with"):
        tr.Blend.load(tmp_path / "blend")


def test_models_of_other_features_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "blend")
    path = tmp_path / "blend" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "features": 9}))
    with pytest.raises(tr.InputError, match="trees has 8 features, not 9"):
        tr.Blend.load(tmp_path / "blend")


def test_a_blend_with_a_net_of_the_users_own(tmp_path):
    from torch.nn import Linear

    def net(features):
        return Linear(features, 1)

    blend = small(net__architecture=net, net__ensemble_size=1).fit(TRAIN, run=tmp_path / "run")
    resumed = small(net__architecture=net, net__ensemble_size=1)
    resumed.fit(TRAIN, run=tmp_path / "run", resume=True)
    assert np.array_equal(resumed.predict(VALID), blend.predict(VALID))
    assert needs_architecture(tmp_path / "run")
    with pytest.raises(tr.InputError, match="Its net is your own"):
        tr.Blend.load(tmp_path / "run")
    loaded = tr.Blend.load(tmp_path / "run", architecture=net)
    assert np.array_equal(loaded.predict(VALID), blend.predict(VALID))
    assert loaded.get_params()["net__architecture"] is net


def test_onnx(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    fitted.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["weights"]) == fitted.weights_
    models = fitted.model_.models
    assert about["transforms"] == "; ".join(f"{n}: {m.transform}" for n, m in models.items())
    for rows in VALID.lists:
        X = VALID.X[rows]
        expected = fitted.predict(X, group=[len(X)])
        np.testing.assert_allclose(session.run(None, {"X": X})[0], expected, atol=1e-5)


# Runs


class InterruptAt(Callback):
    """Interrupts the training of one kind after an iteration."""

    def __init__(self, unit, iteration):
        self.unit, self.iteration, self.begun = unit, iteration, []

    def on_train_begin(self, trainer):
        self.begun.append(trainer.iteration_name)

    def on_iteration_end(self, trainer, record):
        if (trainer.iteration_name, record["iteration"]) == (self.unit, self.iteration):
            trainer.interrupted = True


@pytest.mark.parametrize(
    ("unit", "iteration", "resumed"),
    [("round", 1, ["round", "epoch"]), ("round", 3, ["epoch"]), ("epoch", 1, ["epoch"])],
)
def test_an_interrupted_run_is_resumed(unit, iteration, resumed, fitted, tmp_path):
    run, sets = tmp_path / "run", {"validation": VALID, "train": TRAIN}
    with pytest.raises(TrainingInterrupted, match=r"^Stopped after .*run='.*/run', resume=True"):
        small().fit(TRAIN, eval_set=sets, run=run, callbacks=[InterruptAt(unit, iteration)])
    with pytest.raises(tr.InputError, match="is not complete"):
        tr.Blend.load(run)
    with pytest.raises(tr.InputError, match="was started with net__learning_rate='auto'"):
        small(net__learning_rate=1.0).fit(TRAIN, eval_set=sets, run=run, resume=True)
    with pytest.raises(tr.InputError, match="train data has changed"):
        small().fit(VALID, eval_set=sets, run=run, resume=True)
    watch = InterruptAt("", 0)
    blend = small().fit(TRAIN, eval_set=sets, run=run, resume=True, callbacks=[watch])
    assert watch.begun == resumed  # finished rankers are not trained again
    assert np.array_equal(blend.predict(VALID), fitted.predict(VALID))
    assert np.array_equal(tr.Blend.load(run).predict(VALID), fitted.predict(VALID))
    assert blend.weights_ == fitted.weights_


def test_files_of_callbacks_are_separate(tmp_path, capsys):
    small(verbose=True).fit(TRAIN, callbacks=[HistoryFile(tmp_path / "h.jsonl")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.net.jsonl", "h.trees.jsonl"]
    shown = capsys.readouterr().err
    assert "Ranker 1 of 2: trees (BoostedRanker)" in shown
    assert "Ranker 2 of 2: net (Ranker)" in shown


def test_commands(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TRAIN.save("train.txt")
    VALID.save("valid.txt")
    settings = [f"--set={key}={value}" for key, value in SMALL.items() if key != "net__epochs"]
    words = ["train.txt", "--valid", "valid.txt", "--blend", "--epochs", "2", "--objective", "AP"]
    code, shown, errors = cli("train", *words, *settings, "--seed", "1")
    assert code == 0, errors
    assert shown.startswith("Model in run/model (weights 0.")
    blend = tr.Blend.load("run")
    assert blend.get_params()["trees__objective"] == blend.get_params()["net__objective"] == "AP"
    assert blend.random_state == 1
    code, _, errors = cli("train", "--resume", "run", "--trees")
    assert code == 2
    assert "trains a blend: remove --trees" in errors
    code, again, errors = cli("train", "--resume", "run", "--blend")
    assert (code, again) == (0, shown), errors
    code, _, errors = cli("predict", "run", "valid.txt")
    assert code == 0, errors
    code, shown, errors = cli("evaluate", "run", "valid.txt", "-m", "nDCG@5")
    assert code == 0, errors
    assert f"{blend.score(VALID):.4f}" in shown
    code, _, errors = cli("train", "--trees", "--blend")
    assert code == 2
    assert "remove --trees" in errors


# Studies


def test_a_blend_is_a_method():
    assert str(method("Blend")) == "Blend"
    assert method("Blend").parameters() == {}
    named = method("AP-type2 (Blend)")
    assert str(named) == "AP-type2 (Blend)"
    assert named.parameters()["net__strategy"] == named.parameters()["trees__strategy"] == "type2"
    assert method("Blend").known({"epochs": 3, "alien": 1}) == {"net__epochs": 3}
    source = Source(queries=20, cut=1)
    unit = Unit.of("Blend", 1, 3, source, SMALL)
    assert unit.parameters["rankers"]["net"]["epochs"] == 2
    result = train_unit(Unit(**unit.to_json()), source)
    assert len(result.history) == 3
    assert result.best_score is not None


def test_a_blend_is_tuned(tmp_path):
    pytest.importorskip("optuna")
    own = [
        f"{key}={value}"
        for key, value in SMALL.items()
        if not key.endswith(("epochs", "ors", "jobs"))
    ]
    spaces = spaces_of(["blend"], [*own, "weights=[0.5, 0.5]"])
    tuning = Tuning(Split(Source(queries=20, cut=1)), spaces, epochs=1, rounds=2)
    assert {"trees__learning_rate", "net__learning_rate"} <= set(spaces[0].dimensions)
    assert "trees__num_leaves" not in spaces[0].dimensions
    (trial,) = tuning.run(tmp_path, 1, 1, progress=False)
    assert trial.state == "complete", trial.error
    assert trial.parameters["net__epochs"] == 1
    (written,) = write_best(tmp_path, tuning, [trial])
    blend = tr.Blend().set_params(**parameters_of(tr.Blend, written))
    assert blend.get_params()["trees__num_leaves"] == 4
    assert blend.weights == [0.5, 0.5]
    with pytest.raises(tr.InputError, match="Set net__epochs with --epochs"):
        spaces_of(["blend"], ["net__epochs=3"])
