"""Ensembles: each model is trained as if it were alone, and the mean of their scores ranks."""

import json
import threading
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest
import torch
import xgboost as xgb

import twinrank as tr
from twinrank.core.losses import loss
from twinrank.data.transforms import transform
from twinrank.learning.boosting.engines import TreeSettings, draw_queries
from twinrank.learning.boosting.newton import Newton
from twinrank.learning.models.architecture import architecture
from twinrank.learning.models.ensemble import build_net
from twinrank.learning.training.checkpoints import load_checkpoint, save_checkpoint
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Task
from twinrank.learning.training.loop import Trainer
from twinrank.learning.training.net_learner import NetLearner
from twinrank.learning.training.net_settings import NetSettings
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.settings import Plan
from twinrank.support.compiled import threads
from twinrank.training import Callback

DATA, NEW = tr.synthetic_web_search(queries=40).split(0.6, 0.4, random_state=2)
ROUNDS, LEAVES, RATE = 8, 6, 0.1
NET = "MLP(width=8, depth=2, dropout={})"
both = pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])


def boosted(ensemble_size, **changes):
    settings = {"n_estimators": ROUNDS, "num_leaves": LEAVES, "learning_rate": RATE, "n_jobs": 1}
    settings |= {"objective": "AP", "ensemble_size": ensemble_size, "colsample_bytree": 1.0}
    settings |= {"transforms": "none"}
    return tr.BoostedRanker(**{**settings, **changes})


def alone_by_lightgbm(newton):
    """The scores, after each round on both sets, of trees that LightGBM grows by itself."""
    objective = replace(tr.lightgbm_objective("AP"), newton=newton)
    data = lgb.Dataset(DATA.X, DATA.y, group=DATA.lists.sizes)
    settings = {"objective": objective, "num_leaves": LEAVES, "learning_rate": RATE}
    quiet = {"verbosity": -1, "deterministic": True, "force_col_wise": True, "num_threads": 1}
    booster = lgb.train({**settings, **quiet}, data, ROUNDS)
    return [
        [booster.predict(other.X, raw_score=True, num_iteration=r + 1) for other in (NEW, DATA)]
        for r in range(ROUNDS)
    ]


def alone_by_xgboost(newton):
    """The scores, after each round on both sets, of trees that XGBoost grows by itself."""
    objective = replace(tr.xgboost_objective("AP"), newton=newton)
    data = xgb.DMatrix(DATA.X, DATA.y, group=DATA.lists.sizes)
    settings = {"max_leaves": LEAVES, "max_depth": 0, "grow_policy": "lossguide", "eta": RATE}
    settings.update(base_score=0.0, disable_default_eval_metric=True, nthread=1)
    booster = xgb.train(settings, data, ROUNDS, obj=objective)
    new = xgb.DMatrix(NEW.X)
    return [
        [booster[: r + 1].predict(other, output_margin=True) for other in (new, data)]
        for r in range(ROUNDS)
    ]


ALONE = {"lightgbm": alone_by_lightgbm, "xgboost": alone_by_xgboost}


def standardised(scores, training_scores):
    """Scores divided by the standard deviation of training scores within queries."""
    squares = [(training_scores[q] - training_scores[q].mean()) ** 2 for q in DATA.lists]
    return scores / np.sqrt(np.concatenate(squares).mean())


def coarse(data):
    """The trainable queries, with few values per feature, so that samples have the same bins."""
    X = data.X.argsort(axis=0, kind="stable").argsort(axis=0) * 4 // data.documents
    keep = np.flatnonzero(data.lists.max(data.y) > 0)
    return tr.Dataset.from_arrays(X, data.y, qid=data.qid).select(keep)


class TestTrees:
    @both
    def test_each_model_is_trained_as_if_it_were_alone(self, engine):
        newtons = [replace(Newton.of("AP"), model=m) for m in range(2)]
        first, second = (standardised(*ALONE[engine](newton)[-1]) for newton in newtons)
        assert np.abs(first - second).max() > 0.01
        scores = boosted(2, engine=engine).fit(DATA).predict(NEW)
        np.testing.assert_allclose(scores, (first + second) / 2, rtol=1e-4, atol=1e-5)

    @both
    def test_the_first_model_is_that_of_a_single_ranker(self, engine):
        single = boosted(1, engine=engine).fit(DATA)
        expected, _ = ALONE[engine](Newton.of("AP"))[-1]
        np.testing.assert_allclose(single.predict(NEW), expected, rtol=1e-5, atol=1e-6)

    @both
    def test_all_trees_are_in_one_booster(self, engine, tmp_path):
        ranker = boosted(3, engine=engine).fit(DATA, eval_set=NEW)
        scores, rounds = ranker.predict(NEW), ranker.best_iteration_
        assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
        assert rounds < ranker.model_.trees.count <= 3 * rounds
        np.testing.assert_allclose(ranker.contributions(NEW).sum(1), scores, rtol=1e-4, atol=1e-5)
        ranker.save(tmp_path / "model")
        loaded = tr.BoostedRanker.load(tmp_path / "model")
        assert np.array_equal(loaded.predict(NEW), scores)
        assert (loaded.ensemble_size, loaded.best_iteration_) == (3, rounds)
        if engine == "lightgbm":
            ranker.export(tmp_path / "trees.txt")
            theirs = lgb.Booster(model_file=tmp_path / "trees.txt").predict(NEW.X)
        else:
            ranker.export(tmp_path / "trees.json")
            booster = xgb.Booster(model_file=tmp_path / "trees.json")
            theirs = booster.predict(xgb.DMatrix(NEW.X))
        np.testing.assert_allclose(theirs, scores, rtol=1e-6)

    @both
    def test_each_model_is_kept_at_its_own_best_round(self, engine):
        ranker = boosted(3, engine=engine, tolerance=0).fit(DATA, eval_set=NEW)
        assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
        expected, best = 0.0, []
        for model in range(3):
            rounds = ALONE[engine](replace(Newton.of("AP"), model=model))
            values = [tr.evaluate(new, NEW.y, NEW.lists, "nDCG@5")["nDCG@5"] for new, _ in rounds]
            best.append(int(np.argmax(values)))
            expected += standardised(*rounds[best[-1]]) / 3
        assert len(set(best)) > 1
        assert ranker.model_.trees.count == sum(best) + 3
        assert ranker.best_iteration_ == max(best) + 1
        np.testing.assert_allclose(ranker.predict(NEW), expected, rtol=1e-4, atol=1e-5)

    @both
    def test_a_sample_of_queries_is_like_a_smaller_data_set(self, engine):
        whole = coarse(DATA)
        settings = TreeSettings(learning_rate=RATE, num_leaves=LEAVES, subsample=0.5)
        part = whole.select(draw_queries(settings, whole.queries, 0))
        least = {"lightgbm": {"min_data_in_leaf": 1}, "xgboost": {}}[engine]
        own = {"engine": engine, "engine_params": least, "n_estimators": 1}
        sampled = boosted(1, subsample=0.5, **own).fit(whole)
        expected = boosted(1, **own).fit(part).predict(whole)
        assert np.unique(expected).size > 2
        np.testing.assert_allclose(sampled.predict(whole), expected, rtol=1e-5)

    @both
    def test_each_model_and_round_has_its_own_columns(self, engine):
        ranker = boosted(3, engine=engine, colsample_bytree=0.01).fit(DATA)  # one for each tree
        table = ranker.booster_.trees_to_dataframe()
        tree, column = (
            ("tree_index", "split_feature") if "split_feature" in table else ("Tree", "Feature")
        )
        table = table[~table[column].isin(["Leaf", None])]
        used = table.groupby(tree)[column].unique()
        assert used.map(len).max() == 1
        assert used.map(lambda columns: columns[0]).nunique() > 2 * ROUNDS

    @pytest.mark.parametrize(
        ("engine", "objective"), [("lightgbm", "LambdaMART"), ("xgboost", "rank:ndcg")]
    )
    def test_own_objectives_of_the_engines(self, engine, objective):
        settings = {"objective": objective, "engine": engine, "subsample": 0.7}
        ranker = boosted(3, **settings).fit(DATA, eval_set=NEW)
        assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
        again = boosted(3, **settings).fit(DATA, eval_set=NEW)
        assert np.array_equal(ranker.predict(NEW), again.predict(NEW))
        single = boosted(1, **settings).fit(DATA, eval_set=NEW)
        assert np.corrcoef(single.predict(NEW), ranker.predict(NEW))[0, 1] < 0.999

    def test_default_size(self, monkeypatch):
        assert boosted("auto").fit(DATA).model_.ensemble_size == 5
        lambdamart = tr.BoostedRanker("LambdaMART", n_estimators=2, num_leaves=LEAVES)
        assert lambdamart.fit(DATA).model_.ensemble_size == 1
        dart = boosted("auto", engine="xgboost", engine_params={"booster": "dart"})
        assert dart.fit(DATA).model_.ensemble_size == 1
        assert (
            boosted("auto", engine_params={"boosting": "dart"}).fit(DATA).model_.ensemble_size == 1
        )
        monkeypatch.setattr("twinrank.learning.training.settings.SMALL_DATA", DATA.documents / 2.5)
        ranker = boosted("auto").fit(DATA)
        assert ranker.model_.ensemble_size == 3

    def test_lightgbm_continues_from_an_exported_ensemble(self, tmp_path):
        path = tmp_path / "trees.txt"
        boosted(3).fit(DATA).export(path)
        data = lgb.Dataset(DATA.X, DATA.y, group=DATA.lists.sizes)
        more = lgb.train({"objective": "lambdarank", "verbosity": -1}, data, 2, init_model=path)
        assert more.num_trees() == 3 * ROUNDS + 2
        assert more.predict(NEW.X).shape == (NEW.documents,)

    def test_the_same_with_any_number_of_jobs(self):
        single, double = (boosted(3, n_jobs=jobs).fit(DATA) for jobs in (1, 2))
        files = [ranker.model_.trees.to_bytes() for ranker in (single, double)]
        assert files[0] == files[1]
        assert np.array_equal(single.predict(NEW), double.predict(NEW))

    def test_small_data_uses_one_thread(self, monkeypatch):
        def threads(**settings):
            text = boosted(1, **settings).fit(DATA).model_.trees.to_bytes().decode()
            return int(text.partition("[num_threads: ")[2].partition("]")[0])

        assert (threads(n_jobs=None), threads(n_jobs=2)) == (1, 2)
        monkeypatch.setattr("twinrank.learning.training.tree_learner._WORTH_THREADS", 1)
        assert threads(n_jobs=None) == 0  # as many as there are

    @pytest.mark.skipif(threads() < 2, reason="one thread")
    def test_models_grow_beside_each_other_quietly(self, capfd):
        started = []

        class Watch(Callback):
            def on_iteration_end(self, trainer, record):
                started.append({t.name for t in threading.enumerate() if "Pool" in t.name})

        boosted(2, n_jobs=2).fit(DATA, callbacks=[Watch()])
        assert len(started[-1]) == 2
        assert capfd.readouterr().out == ""

    def test_weights_of_queries(self):
        weights = np.where(np.arange(DATA.queries) % 2, 3.0, 1.0)
        plain, weighted = (boosted(2).fit(DATA, sample_weight=w) for w in (None, weights))
        assert not np.array_equal(plain.predict(NEW), weighted.predict(NEW))

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"ensemble_size": 0}, "ensemble_size must be a whole number of at least 1, not 0"),
            ({"ensemble_size": 2.5}, "ensemble_size must be a whole number of at least 1"),
            ({"ensemble_size": "many"}, "ensemble_size must be a whole number of at least 1"),
            (
                {"ensemble_size": 2, "objective": "LambdaMART"},
                "needs models that differ, but LambdaMART has no random numbers. Set subsample",
            ),
            ({"subsample": 0}, "subsample must be a positive number, not 0"),
            ({"colsample_bytree": 1.5}, "colsample_bytree is a share of at most 1, not 1.5"),
            ({"subsample_freq": -1}, "subsample_freq must be a whole number of at least 0, not -1"),
            ({"engine_params": {"feature_fraction": 0.5}}, "set colsample_bytree of the ranker"),
            (
                {"subsample": 0.5, "engine_params": {"bagging_fraction": 0.5}},
                "bagging_fraction, which samples rows, and subsample=0.5 samples queries",
            ),
            ({"engine_params": {"num_classes": 3}}, "set ensemble_size of the ranker"),
            (
                {"ensemble_size": 2, "engine": "xgboost", "engine_params": {"booster": "dart"}},
                "ensemble_size > 1 needs booster='gbtree' in engine_params, not 'dart'",
            ),
            (
                {"ensemble_size": 2, "engine_params": {"boosting_type": "dart"}},
                "ensemble_size > 1 needs boosting='gbdt' in engine_params, not 'dart'",
            ),
            (
                {"engine": "xgboost", "engine_params": {"multi_strategy": "multi_output_tree"}},
                "cannot set multi_strategy: set ensemble_size of the ranker",
            ),
            (
                {"engine_params": {"bagging_by_query": True}},
                "bagging_by_query, which only works with LightGBM's own objectives",
            ),
        ],
    )
    def test_impossible_ensembles_are_refused(self, parameters, message):
        with pytest.raises(tr.InputError, match=message):
            tr.BoostedRanker(**parameters).fit(DATA)

    @pytest.mark.parametrize("size", [0, 25, 10**9, "3", None, True])
    def test_a_damaged_size_is_refused(self, size, tmp_path):
        boosted(3).fit(DATA).save(tmp_path / "model")
        path = tmp_path / "model" / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "ensemble_size": size}))
        with pytest.raises(tr.InputError, match=r"config.json is damaged: .*ensemble_size"):
            tr.BoostedRanker.load(tmp_path / "model")


def net_of(options, ensemble_size=1, seed=0):
    chosen = architecture(NET.format(options))
    generator = torch.Generator().manual_seed(seed)
    return build_net(DATA.features, chosen, ensemble_size, generator=generator)


def make_trainer(net, evaluation=None, iterations=6, **changes):
    """Training without noise, so that ensembles and single nets can be compared."""
    settings = NetSettings(**{"batch_documents": 300, "learning_rate": 0.01, **changes})
    sets = {} if evaluation is None else {"validation": evaluation}
    task = Task(TrainingSet(DATA), sets, Plan(iterations=iterations), ProcessGroup())
    return Trainer(NetLearner(net, loss("MSE"), transform("QueryZScore"), task, settings), task)


def together_and_alone(evaluation=None, **changes):
    """The finished trainers of an ensemble of three, and of each of its nets alone."""
    ensemble = net_of("0.0, norm=none", 3)
    singles = [net_of("0.0, norm=none") for _ in range(3)]
    for single, model in zip(singles, ensemble.models, strict=True):
        single.load_state_dict(model.state_dict())
    trainers = [make_trainer(net, evaluation, **changes) for net in (ensemble, *singles)]
    for trainer in trainers:
        trainer.run()
        trainer.learner.finish()
    return trainers[0], trainers[1:]


def assert_same_weights(together, singles):
    for single, model in zip(singles, together.learner.net.models, strict=True):
        for a, b in zip(single.learner.net.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(a, b)


class TestNets:
    def test_the_mean_is_the_score(self):
        net = net_of("0.0", 3)
        X = torch.from_numpy(DATA.X[:50])
        assert net(X).shape == (50, 3)  # in training, which moves the norms' statistics
        net.eval()
        scores = [model(X) for model in net.models]
        assert not torch.equal(scores[0], scores[1])
        torch.testing.assert_close(net(X), torch.stack(scores).mean(0))

    def test_the_first_model_starts_as_a_single_net_does(self):
        first, single = net_of("0.0", 2).models[0], net_of("0.0")
        for name, tensor in single.state_dict().items():
            assert torch.equal(tensor, first.state_dict()[name])

    @pytest.mark.parametrize("clip", [None, 0.05])
    @pytest.mark.parametrize("optimiser", ["sgd", "adam"])
    def test_each_model_learns_as_if_it_were_alone(self, optimiser, clip):
        together, singles = together_and_alone(optimiser=optimiser, weight_decay=0.1, clip=clip)
        assert_same_weights(together, singles)
        losses = [single.progress.history[-1]["loss"] for single in singles]
        assert together.progress.history[-1]["loss"] == pytest.approx(np.mean(losses))

    def test_each_model_is_kept_at_its_own_best_epoch(self):
        together, singles = together_and_alone(NEW, iterations=10, learning_rate=0.03)
        assert len({single.best.iteration for single in singles}) > 1
        assert_same_weights(together, singles)
        best = together.best
        assert best.tops == pytest.approx([single.best.value for single in singles])
        assert best.iteration == max(single.best.iteration for single in singles)
        scores = together.learner.finish().score(NEW)
        assert best.value == pytest.approx(tr.evaluate(scores, NEW.y, NEW.lists)["nDCG@5"])
        assert best.value == together.progress.history[best.iteration - 1]["validation"]

    def test_all_curves_are_of_the_models_that_are_kept(self):
        ranker = tr.Ranker(architecture="Small", ensemble_size=3, epochs=8, learning_rate=0.03)
        ranker.fit(DATA, eval_set={"validation": NEW, "again": NEW, "train": DATA})
        assert all(record["validation"] == record["again"] for record in ranker.history_)
        kept = ranker.history_[ranker.best_iteration_ - 1]
        assert kept["validation"] == ranker.best_score_ == pytest.approx(ranker.score(NEW))
        assert kept["train"] == pytest.approx(ranker.score(DATA))

    @pytest.mark.parametrize("tolerance", [0, 1])
    def test_nets_that_share_weights_are_kept_together(self, tolerance):
        shared = "MLP(width=8, shared=true)"
        ranker = tr.Ranker(architecture=shared, ensemble_size=3, epochs=6, tolerance=tolerance)
        ranker.fit(DATA, eval_set={"validation": NEW, "train": DATA})
        kept = ranker.history_[ranker.best_iteration_ - 1]
        assert kept["validation"] == ranker.best_score_ == pytest.approx(ranker.score(NEW))
        assert kept["train"] == pytest.approx(ranker.score(DATA))

    def test_training_stops_when_no_model_improves(self, capsys):
        ranker = tr.Ranker(
            architecture="Small",
            ensemble_size=3,
            epochs=60,
            early_stopping=2,
            tolerance=0,
            verbose=True,
        ).fit(DATA, eval_set=NEW)
        assert len(ranker.history_) == ranker.best_iteration_ + 2 < 60
        output = capsys.readouterr().err
        best, epoch = ranker.best_score_, ranker.best_iteration_
        assert f"kept ensemble {best:.4f} (last gain in epoch {epoch})" in output
        reason = f"no model of the ensemble improved its nDCG@5 after epoch {epoch}"
        assert f"stopped: {reason} for 2 epochs" in output

    def test_a_resumed_ensemble_is_the_same(self, tmp_path):
        whole, half = (make_trainer(net_of("0.3", 3), NEW) for _ in range(2))
        whole.run()

        def save(trainer, _):
            if trainer.progress.iteration == 3:
                save_checkpoint(trainer, tmp_path / "checkpoint")

        half.callbacks.append(type("Save", (Callback,), {"on_iteration_end": staticmethod(save)})())
        half.run()
        resumed = make_trainer(net_of("0.3", 3, seed=1), NEW)
        load_checkpoint(resumed, tmp_path / "checkpoint")
        resumed.run()
        assert resumed.best == whole.best
        assert [record["validation"] for record in resumed.progress.history] == [
            record["validation"] for record in whole.progress.history
        ]
        for trainer in (resumed, whole):
            trainer.learner.finish()
        state = resumed.learner.net.state_dict()
        for name, tensor in whole.learner.net.state_dict().items():
            assert torch.equal(tensor, state[name])

    def test_saved_and_exported(self, tmp_path):
        pytest.importorskip("onnxruntime")
        ranker = tr.Ranker(
            architecture="Small", ensemble_size=3, epochs=2, categorical_features=[1]
        )
        ranker.fit(DATA, eval_set=NEW)
        assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
        ranker.save(tmp_path / "model")
        loaded = tr.Ranker.load(tmp_path / "model")
        assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
        assert loaded.model_.ensemble_size == loaded.ensemble_size == 3
        ranker.export(tmp_path / "model.onnx")  # which compares the scores

    def test_default_size(self, monkeypatch):
        assert len(tr.Ranker(epochs=1).fit(DATA).model_.net.models) == 5
        assert tr.Ranker(epochs=1, architecture="Small").fit(DATA).model_.ensemble_size == 1
        monkeypatch.setattr("twinrank.learning.training.settings.SMALL_DATA", DATA.documents / 2.5)
        assert tr.Ranker(epochs=1).fit(DATA).model_.ensemble_size == 3

    @pytest.mark.parametrize("size", [0, -1, 2.5, True])
    def test_impossible_sizes_are_refused(self, size):
        with pytest.raises(tr.InputError, match="ensemble_size must be a whole number of at least"):
            tr.Ranker(ensemble_size=size).fit(DATA)

    def test_a_damaged_size_is_refused_before_nets_are_built(self, tmp_path):
        ranker = tr.Ranker(architecture="Small", ensemble_size=2, epochs=1).fit(DATA)
        ranker.save(tmp_path / "model")
        path = tmp_path / "model" / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "ensemble_size": 10**9}))
        with pytest.raises(tr.InputError, match="tensors, too few"):
            tr.Ranker.load(tmp_path / "model")
