"""Warm start: `fit(init_model=…)`, `twinrank train --from` and its gate."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
import xgboost as xgb

import twinrank as tr
from twinrank.learning.boosting.engines import engine
from twinrank.training import Callback, TrainingInterrupted

pytestmark = pytest.mark.usefixtures("one_thread")

OLD, NEW, LATEST = (
    tr.Dataset.from_arrays(part.X[:, :10], part.y, qid=part.qid)
    for part in tr.synthetic_web_search(queries=60).split(0.4, 0.4, 0.2)
)
SMALL = {
    "net": lambda **more: tr.Ranker(
        **{"architecture": "MLP(width=8, depth=1)", "epochs": 3, "batch_documents": 300, **more}
    ),
    "lightgbm": lambda **more: tr.BoostedRanker(
        **{"n_estimators": 6, "num_leaves": 5, "ensemble_size": 1, "n_jobs": 1, **more}
    ),
    "xgboost": lambda **more: SMALL["lightgbm"](engine="xgboost", **more),
    "ensemble": lambda **more: SMALL["lightgbm"](**{"ensemble_size": 3, **more}),
    "xgboost ensemble": lambda **more: SMALL["xgboost"](ensemble_size=3, **more),
    "blend": lambda **more: tr.Blend([SMALL["lightgbm"](), SMALL["net"]()], **more),
}


@pytest.fixture(scope="module")
def old():
    """A fitted ranker of each kind."""
    return {name: make().fit(OLD) for name, make in SMALL.items()}


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("more", [{}, {"colsample_bytree": 0.5, "subsample": 0.5}])
def test_on_the_same_data_more_rounds_are_a_longer_training(name, more):
    first = SMALL[name](**more).fit(OLD)
    continued = SMALL[name](**more).fit(OLD, init_model=first)
    longer = SMALL[name](n_estimators=12, **more).fit(OLD)
    assert np.array_equal(continued.predict(LATEST), longer.predict(LATEST))
    assert continued.model_.trees.count == 12


@pytest.mark.parametrize("name", ["ensemble", "xgboost ensemble"])
def test_an_ensemble_starts_from_its_score_on_the_scale_of_its_models(name, old):
    """The mean of standardised scores, each of them the earlier trees and a model's own."""
    model = old[name].model_
    start = model.score(LATEST) * model.scale
    alone = SMALL["xgboost" if "xgboost" in name else "lightgbm"]()
    alone.fit(NEW, init_model=_as_one_model(old[name]))
    together = SMALL[name]().fit(NEW, init_model=old[name])
    assert together.model_.trees.count == 18 + 18  # earlier trees are saved once
    # The first model of an ensemble has the seed of a single model.
    first = alone.predict(LATEST) - start
    trees = _trees(together, 18, 24)
    ratio = trees / first
    assert np.allclose(ratio, ratio[0], rtol=1e-3)
    # All models have the same earlier scores, so their factor is the sum of the others.
    earlier = _trees(together, 0, 18) / start
    assert np.allclose(earlier, 1 / together.model_.scale, rtol=1e-4)


def _as_one_model(ranker):
    """The trees of an ensemble, on the scale of its models, as those of a single model."""
    model = ranker.model_
    columns = model.transform.outputs(model.features)
    trees = engine(model.engine).from_bytes(model.trees.scaled(model.scale), columns, ())
    one = type(ranker)(engine=model.engine)
    one._adopt(replace(model, trees=trees, scale=1.0, ensemble_size=1))
    return one


def _trees(ranker, first, last):
    """The sum of some trees."""
    (X,) = ranker.model_.engine_features(LATEST)
    booster = ranker.booster_
    if ranker.model_.engine == "lightgbm":
        return booster.predict(X, start_iteration=first, num_iteration=last - first)
    data = xgb.DMatrix(X)
    return booster.predict(data, iteration_range=(first, last), output_margin=True)


@pytest.mark.parametrize("name", SMALL)
def test_saved_loaded_and_exported(name, old, tmp_path):
    old[name].save(tmp_path / "old")
    new = SMALL[name]().fit(NEW, init_model=old[name], eval_set=LATEST)
    again = SMALL[name]().fit(NEW, init_model=tmp_path / "old", eval_set=LATEST)
    assert np.array_equal(new.predict(LATEST), again.predict(LATEST))
    assert not np.allclose(new.predict(LATEST), old[name].predict(LATEST))
    new.save(tmp_path / "new")
    assert np.array_equal(tr.load_model(tmp_path / "new").predict(LATEST), new.predict(LATEST))
    assert new.model_.provenance["partial_fits"] == 1
    new.export(tmp_path / "new.onnx", data=LATEST)
    session = onnxruntime.InferenceSession(tmp_path / "new.onnx")
    assert session.get_inputs()
    third = SMALL[name]().fit(OLD, init_model=tmp_path / "new")
    assert third.model_.provenance["partial_fits"] == 2


@pytest.mark.parametrize("name", ["net", "blend"])
def test_a_net_starts_from_its_weights(name, old):
    """With a tiny learning rate, they stay where they were; batch norm sees the new data."""
    slow = {"learning_rate": 1e-9, "epochs": 1}
    make = SMALL[name]()
    if name == "blend":
        slow = {f"net__{key}": value for key, value in slow.items()}
    new = make.set_params(**slow).fit(NEW, init_model=old[name])
    ours, before = (r.rankers_["net"] if name == "blend" else r for r in (new, old[name]))
    weights = [dict(each.model_.net.named_parameters()) for each in (ours, before)]
    for key, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][key], atol=1e-6, rtol=0)
    if name == "blend":
        assert new.rankers_["trees"].model_.trees.count == 12
        assert before.model_.transform.to_json() == ours.model_.transform.to_json()


class InterruptAfter(Callback):
    """Send SIGINT after an iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def on_iteration_end(self, trainer, record):
        """Interrupt."""
        if record["iteration"] == self.iteration:
            os.kill(os.getpid(), signal.SIGINT)

    def for_ranker(self, name):
        """Interrupt the trees of a blend."""
        return self if name == "trees" else Callback()


@pytest.mark.parametrize("name", SMALL)
def test_a_resumed_run_ends_with_the_same_model(name, old, tmp_path):
    start = {"init_model": old[name], "eval_set": LATEST}
    whole = SMALL[name]().fit(NEW, run=tmp_path / "whole", **start)
    with pytest.raises(TrainingInterrupted):
        SMALL[name]().fit(NEW, run=tmp_path / "run", callbacks=[InterruptAfter(2)], **start)
    resumed = SMALL[name]().fit(NEW, run=tmp_path / "run", resume=True, **start)
    assert np.array_equal(resumed.predict(LATEST), whole.predict(LATEST))
    with pytest.raises(tr.InputError, match="The init_model has changed"):
        SMALL[name]().fit(NEW, run=tmp_path / "run", resume=True, eval_set=LATEST)


@pytest.mark.parametrize("name", ["net", "lightgbm", "xgboost", "blend"])
def test_categories_and_columns_stay(name):
    """Codes are those of the first training; new categories are unknown ones."""
    rng = np.random.default_rng(0)

    def frame(texts, rows=80):
        values = {"a": rng.normal(size=rows), "shop": rng.choice(texts, rows), "b": np.ones(rows)}
        return pd.DataFrame(values), np.arange(rows) % 3, np.repeat(np.arange(rows // 8), 8)

    X, y, qid = frame(["x", "y"])
    first = SMALL[name]().fit(X, y, qid)
    more, labels, queries = frame(["y", "new"])
    second = SMALL[name]().fit(more[["b", "shop", "a"]], labels, queries, init_model=first)
    assert second.model_.encoding.columns == {1: ("x", "y")}
    assert second.model_.feature_names == ("a", "shop", "b")
    scores = [second.predict(more.assign(shop=text), queries) for text in ("new", "other", "x")]
    assert np.array_equal(scores[0], scores[1])
    with pytest.raises(tr.InputError, match="1 feature that init_model was trained without: 'c'"):
        SMALL[name]().fit(more.assign(c=1.0), labels, queries, init_model=first)
    with pytest.raises(tr.InputError, match="lacks 1 feature that the model was trained with: 'b'"):
        SMALL[name]().fit(more[["a", "shop"]], labels, queries, init_model=first)
    with pytest.raises(tr.InputError, match="is a number here, but the model was trained with"):
        SMALL[name]().fit(more.assign(shop=1.0), labels, queries, init_model=first)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("net", {"objective": "AP"}, "was trained on objective='nDCG', not 'AP'"),
        ("lightgbm", {"objective": "LambdaMART"}, "objective='nDCG', not 'LambdaMART'"),
        ("lightgbm", {"transforms": "none"}, "QueryZScore', which stay as they are, not 'none'"),
        ("net", {"transforms": "QueryMinMax"}, "not 'QueryMinMax'"),
        ("lightgbm", {"categorical_features": [1]}, "Feature 1 is categorical now, but not in"),
        ("lightgbm", {"engine": "xgboost"}, "has trees of lightgbm, which xgboost cannot"),
        ("lightgbm", {"engine_params": {"boosting": "dart"}}, "init_model needs boosting='gbdt'"),
        ("xgboost", {"engine_params": {"num_parallel_tree": 2}}, "num_parallel_tree=1, not 2"),
        ("net", {"architecture": "Linear"}, "cannot change the architecture"),
        ("net", {"ensemble_size": 2}, "cannot change ensemble_size"),
        ("blend", {"rankers": [tr.BoostedRanker()]}, "blends trees .*, net .a net., not trees"),
        ("blend", {"trees__objective": "AP"}, "Ranker 'trees': init_model was trained on"),
    ],
)
def test_differences_are_refused(name, changes, message, old):
    ranker = SMALL[name]().set_params(**changes)
    with pytest.raises(tr.InputError, match=message):
        ranker.fit(NEW, init_model=old[name])
    assert not hasattr(ranker, "model_")


def _squares(scores, labels, lists):
    return ((scores - labels) ** 2).mean()


def _cubes(scores, labels, lists):
    return ((scores - labels).abs() ** 3).mean()


@pytest.mark.parametrize("name", ["lightgbm", "net"])
def test_a_callable_objective_stays(name, tmp_path):
    SMALL[name](objective=_squares).fit(OLD).save(tmp_path / "model")
    for other in ("AP", _cubes):
        with pytest.raises(tr.InputError, match="trained on an objective of your own, not"):
            SMALL[name](objective=other).fit(NEW, init_model=tmp_path / "model")
    SMALL[name](objective=_squares).fit(NEW, init_model=tmp_path / "model")


def test_other_models_are_refused(old, tmp_path):
    with pytest.raises(tr.InputError, match="holds boosted trees, which cannot start a net"):
        SMALL["net"]().fit(NEW, init_model=old["lightgbm"])
    for wrong in (tr.BoostedRanker(), 3):
        with pytest.raises(tr.InputError, match="must be a fitted ranker or the folder of a saved"):
            SMALL["lightgbm"]().fit(NEW, init_model=wrong)
    with pytest.raises(tr.InputError, match="there is no such folder"):
        SMALL["lightgbm"]().fit(NEW, init_model=tmp_path / "absent")
    with pytest.raises(tr.InputError, match="unlabelled is for new nets"):
        SMALL["net"]().fit(NEW, init_model=old["net"], unlabelled=LATEST)


def test_auto_means_what_the_model_has(old):
    continued = tr.BoostedRanker(n_estimators=2, n_jobs=1).fit(NEW, init_model=old["lightgbm"])
    assert continued.model_.ensemble_size == 1
    other = SMALL["lightgbm"](ensemble_size=2).fit(NEW, init_model=old["lightgbm"])
    assert (other.model_.ensemble_size, other.model_.trees.count) == (2, 18)


def test_auto_does_not_follow_the_size_of_new_data(monkeypatch):
    """The first data set counts as large, and the others as smaller ones."""
    large, small = OLD.documents, OLD.documents // 4
    monkeypatch.setattr("twinrank.learning.training.settings.SMALL_DATA", small)
    new = OLD.select(slice(4))
    trees = tr.BoostedRanker(n_estimators=2, n_jobs=1).fit(OLD)
    resolved = trees.model_.provenance["resolved"]
    assert large > small > new.documents
    assert (resolved["num_leaves"], resolved["learning_rate"]) == (34, 0.057)  # 4 times as large
    assert trees.model_.ensemble_size == 2
    for _ in range(2):  # also if the earlier training has continued another
        trees = tr.BoostedRanker(n_estimators=2, n_jobs=1).fit(new, init_model=trees)
        assert trees.model_.provenance["resolved"] == resolved
        assert trees.model_.ensemble_size == 2
    net = tr.Ranker(epochs=1).fit(OLD)
    first, resolved = net.model_.net.architecture, net.model_.provenance["resolved"]
    assert first.width == 128
    net = tr.Ranker(epochs=1).fit(new, init_model=net)
    batch = "batch_documents"
    assert net.model_.net.architecture == first
    assert net.model_.provenance["resolved"][batch] == resolved[batch]
    before = net.model_
    assert net.partial_fit(OLD).model_.net.architecture == first
    assert net.model_.ensemble_size == before.ensemble_size == 2
    narrow = tr.Ranker(epochs=1).fit(new)
    models = narrow.model_.ensemble_size, narrow.model_.net.architecture
    assert models[0] == 5
    narrow.partial_fit(OLD)
    assert (narrow.model_.ensemble_size, narrow.model_.net.architecture) == models


@pytest.fixture(scope="module")
def files(old, tmp_path_factory):
    """Data as LETOR text, and a model."""
    folder = tmp_path_factory.mktemp("files")
    wrong = tr.Dataset.from_arrays(NEW.X, NEW.y.max() - NEW.y, qid=NEW.qid)
    for name, data in (("old", OLD), ("new", NEW), ("latest", LATEST), ("wrong", wrong)):
        data.save(folder / f"{name}.txt")
    old["ensemble"].save(folder / "model")
    return folder


TRAIN = ["--valid", "latest.txt", "--epochs", 4]


def test_command_line(cli, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    code, output, _ = cli("train", "new.txt", *TRAIN, "--from", "model", "--out", tmp_path / "run")
    assert code == 0, output
    new = tr.load_model(tmp_path / "run")
    same = SMALL["ensemble"](n_estimators=4).fit(NEW, eval_set=LATEST, init_model=files / "model")
    assert np.array_equal(new.predict(LATEST), same.predict(LATEST))
    wrong = cli("train", "new.txt", "--from", "model", "--objective", "AP", "--out", tmp_path / "x")
    assert wrong[0] == 2
    assert "--from was trained on --objective nDCG, not 'AP'" in wrong[2]
    assert cli("train", "new.txt", "--from", "model", "--blend")[0] == 2
    assert not (tmp_path / "x").exists()


def test_gate(cli, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    out, candidate = tmp_path / "live", tmp_path / "live.candidate"
    words = ["train", "new.txt", *TRAIN, "--from", "model", "--out", out, "--gate", "latest.txt"]
    code, output, _ = cli(*words, "--json")
    assert code == 0
    assert json.loads(output)["gate"]["passed"]
    assert not candidate.exists()
    before = {path.name: path.read_bytes() for path in (out / "model").iterdir()}
    bad = ["train", "wrong.txt", "--from", "model", "--out", out, "--gate", "old.txt"]
    bad += ["--epochs", 40, "--set", "learning_rate=0.5"]
    for _ in range(2):  # a rejected candidate does not stop the next training
        code, output, errors = cli(*bad, "--json")
        assert code == 3
        gate = json.loads(output)["gate"]
        assert gate["new"] < gate["old"]
        assert gate["p_value"] < 0.05
        assert "significantly worse on the newest queries" in errors
        assert before == {path.name: path.read_bytes() for path in (out / "model").iterdir()}
        assert tr.load_model(candidate).predict(LATEST).shape == (LATEST.documents,)
    assert cli(*words)[0] == 0
    assert not candidate.exists()


def test_errors_of_the_gate(cli, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    code, _, errors = cli("train", "new.txt", "--gate", "latest.txt", "--out", tmp_path / "a")
    assert (code, "--gate compares with the model of --from" in errors) == (2, True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("mine")
    words = ["train", "new.txt", "--from", "model", "--gate", "latest.txt", "--out"]
    code, _, errors = cli(*words, tmp_path / "other")
    assert (code, "exists and is not a model" in errors) == (2, True)
    assert (tmp_path / "other" / "notes").read_text() == "mine"
