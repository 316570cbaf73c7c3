"""Several members in one ranker: each trained as if it were alone, the mean of them ranking."""

import json
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest
import torch
import xgboost as xgb

import twinrank as tr
from twinrank.boosting.newton import Newton
from twinrank.data.transforms import transform
from twinrank.losses import loss
from twinrank.models.architecture import architecture
from twinrank.models.ensemble import net
from twinrank.training.callbacks import Callback
from twinrank.training.checkpoints import load_checkpoint, save_checkpoint
from twinrank.training.loop import Trainer
from twinrank.training.plan import Plan

DATA, NEW = tr.synthetic_web_search(queries=40).split(0.6, 0.4, random_state=0)
ROUNDS, LEAVES, RATE = 8, 6, 0.1
NET = "MLP(width=8, depth=2, dropout={})"
both = pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])


def boosted(members, **changes):
    given = {"n_estimators": ROUNDS, "num_leaves": LEAVES, "learning_rate": RATE, "n_jobs": 1}
    return tr.BoostedRanker("AP", members=members, **{**given, **changes})


def alone_by_lightgbm(newton):
    """The scores of trees that LightGBM grows on an objective by itself."""
    objective = replace(tr.lightgbm_objective("AP"), newton=newton)
    data = lgb.Dataset(DATA.X, DATA.y, group=DATA.lists.sizes)
    settings = {"objective": objective, "num_leaves": LEAVES, "learning_rate": RATE}
    quiet = {"verbosity": -1, "deterministic": True, "force_col_wise": True, "num_threads": 1}
    return lgb.train({**settings, **quiet}, data, ROUNDS).predict(NEW.X, raw_score=True)


def alone_by_xgboost(newton):
    """The scores of trees that XGBoost grows on an objective by itself."""
    objective = replace(tr.xgboost_objective("AP"), newton=newton)
    data = xgb.DMatrix(DATA.X, DATA.y, group=DATA.lists.sizes)
    settings = {"max_leaves": LEAVES, "max_depth": 0, "grow_policy": "lossguide", "eta": RATE}
    settings.update(base_score=0.0, disable_default_eval_metric=True, nthread=1)
    found = xgb.train(settings, data, ROUNDS, obj=objective)
    return found.predict(xgb.DMatrix(NEW.X), output_margin=True)


class TestTrees:
    @pytest.mark.parametrize(
        ("engine", "alone"), [("lightgbm", alone_by_lightgbm), ("xgboost", alone_by_xgboost)]
    )
    def test_a_member_is_what_it_would_be_alone(self, engine, alone):
        # Noise depends on every bit of the scores. Those of two members are halved and doubled on
        # the way, which loses none.
        one, two = (alone(replace(Newton.of("AP"), member=m)) for m in range(2))
        assert np.abs(one - two).max() > 0.01
        found = boosted(2, engine=engine).fit(DATA).predict(NEW)
        np.testing.assert_allclose(found, (one + two) / 2, rtol=1e-5, atol=1e-6)

    @both
    def test_the_first_member_is_the_ranker_without_others(self, engine):
        one = boosted(1, engine=engine).fit(DATA)
        alone = {"lightgbm": alone_by_lightgbm, "xgboost": alone_by_xgboost}[engine]
        np.testing.assert_allclose(one.predict(NEW), alone(Newton.of("AP")), rtol=1e-5, atol=1e-6)

    @both
    def test_all_trees_are_one_boosters(self, engine, tmp_path):
        ranker = boosted(3, engine=engine).fit(DATA, eval_set=NEW)
        scores, rounds = ranker.predict(NEW), ranker.best_iteration_
        assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
        assert rounds == 1 + np.argmax([one["validation"] for one in ranker.history_])
        assert ranker.model_.trees.count == 3 * rounds
        np.testing.assert_allclose(ranker.contributions(NEW).sum(1), scores, rtol=1e-4, atol=1e-5)
        ranker.save(tmp_path / "model")
        loaded = tr.BoostedRanker.load(tmp_path / "model")
        assert np.array_equal(loaded.predict(NEW), scores)
        assert (loaded.members, loaded.best_iteration_) == (3, rounds)
        if engine == "lightgbm":
            ranker.export(tmp_path / "trees.txt")
            theirs = lgb.Booster(model_file=tmp_path / "trees.txt").predict(NEW.X)
        else:
            ranker.export(tmp_path / "trees.json")
            booster = xgb.Booster(model_file=tmp_path / "trees.json")
            theirs = booster.predict(xgb.DMatrix(NEW.X))
        np.testing.assert_allclose(theirs, scores, rtol=1e-6)

    def test_how_many_there_are_without_a_word(self, monkeypatch):
        assert boosted("auto").fit(DATA).model_.members == 5
        lambdamart = tr.BoostedRanker("LambdaMART", n_estimators=2, num_leaves=LEAVES)
        assert lambdamart.fit(DATA).model_.members == 1
        dart = boosted("auto", engine="xgboost", engine_params={"booster": "dart"})
        assert dart.fit(DATA).model_.members == 1
        monkeypatch.setattr("twinrank.support.members.FEW", DATA.documents - 1)
        assert boosted("auto").fit(DATA).model_.members == 1

    def test_lightgbm_goes_on_from_them(self, tmp_path):
        path = tmp_path / "trees.txt"
        boosted(3).fit(DATA).export(path)
        data = lgb.Dataset(DATA.X, DATA.y, group=DATA.lists.sizes)
        more = lgb.train({"objective": "lambdarank", "verbosity": -1}, data, 2, init_model=path)
        assert more.num_trees() == 3 * ROUNDS + 2
        assert more.predict(NEW.X).shape == (NEW.documents,)

    def test_the_same_with_any_number_of_jobs(self):
        one, two = (boosted(3, n_jobs=jobs).fit(DATA) for jobs in (1, 2))
        assert one.model_.trees.to_bytes() != two.model_.trees.to_bytes()  # it notes the number
        assert np.array_equal(one.predict(NEW), two.predict(NEW))

    def test_small_data_takes_one_thread(self, monkeypatch):
        def threads(**given):
            text = boosted(2, **given).fit(DATA).model_.trees.to_bytes().decode()
            return int(text.partition("[num_threads: ")[2].partition("]")[0])

        assert (threads(n_jobs=None), threads(n_jobs=2)) == (1, 2)
        monkeypatch.setattr("twinrank.boosting.session._WORTH_THREADS", 1)
        assert threads(n_jobs=None) == 0  # as many as there are

    def test_weights_of_queries(self):
        weights = np.where(np.arange(DATA.queries) % 2, 3.0, 1.0)
        plain, weighted = (boosted(2).fit(DATA, sample_weight=w) for w in (None, weights))
        assert not np.array_equal(plain.predict(NEW), weighted.predict(NEW))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"members": 0}, "members must be a whole number from 1 on, not 0"),
            ({"members": 2.5}, "members must be a whole number from 1 on"),
            ({"members": "many"}, "members must be a whole number from 1 on"),
            ({"members": 2, "objective": "LambdaMART"}, "LambdaMART has no noise"),
            ({"engine_params": {"num_classes": 3}}, "set members of the ranker"),
            (
                {"members": 2, "engine": "xgboost", "engine_params": {"booster": "dart"}},
                "trees of booster='dart' can't be put together",
            ),
            (
                {"engine": "xgboost", "engine_params": {"multi_strategy": "multi_output_tree"}},
                "can't set multi_strategy: set members of the ranker",
            ),
            ({"engine_params": {"bagging_by_query": True}}, "is for LightGBM's own objectives"),
        ],
    )
    def test_what_is_refused(self, given, message):
        with pytest.raises(tr.InputError, match=message):
            tr.BoostedRanker(**given).fit(DATA)

    @pytest.mark.parametrize("members", [0, 5, 10**9, "3", None, True])
    def test_a_damaged_number_is_told(self, members, tmp_path):
        boosted(3).fit(DATA).save(tmp_path / "model")
        path = tmp_path / "model" / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "members": members}))
        with pytest.raises(tr.InputError, match=r"damaged: 24 trees of .* members"):
            tr.BoostedRanker.load(tmp_path / "model")

    def test_a_model_without_the_number_has_one_member(self, tmp_path):
        boosted(1).fit(DATA).save(tmp_path / "model")
        path = tmp_path / "model" / "config.json"
        config = json.loads(path.read_text())
        del config["members"]
        path.write_text(json.dumps(config))
        assert tr.BoostedRanker.load(tmp_path / "model").best_iteration_ == ROUNDS


def net_of(options, seed=0):
    chosen = architecture(NET.format(options))
    return net(DATA.features, chosen, generator=torch.Generator().manual_seed(seed))


def trainer(scorer, evaluation=None, **changes):
    """Training without noise, so that members and single nets can be compared."""
    plan = Plan(**{"epochs": 6, "batch_documents": 300, "learning_rate": 0.01, **changes})
    sets = {} if evaluation is None else {"validation": evaluation}
    return Trainer(scorer, loss("MSE"), DATA, plan, transform("QueryZScore"), evaluation=sets)


def together_and_alone(evaluation=None, **changes):
    """Trainers of three members, and of each of them alone."""
    together = net_of("0.0, norm=none, members=3")
    single = [net_of("0.0, norm=none") for _ in range(3)]
    for one, member in zip(single, together.members, strict=True):
        one.load_state_dict(member.state_dict())
    trainers = [trainer(one, evaluation, **changes) for one in (together, *single)]
    for one in trainers:
        one.run()
    return trainers[0], trainers[1:]


class TestNets:
    def test_the_mean_is_the_score(self):
        scorer = net_of("0.0, members=3")
        X = torch.from_numpy(DATA.X[:50])
        assert scorer(X).shape == (50, 3)  # in training, which moves the norms' statistics
        scorer.eval()
        apart = [one(X) for one in scorer.members]
        assert not torch.equal(apart[0], apart[1])
        torch.testing.assert_close(scorer(X), torch.stack(apart).mean(0))

    def test_the_first_member_begins_where_a_single_net_does(self):
        first, one = net_of("0.0, members=2").members[0], net_of("0.0")
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, first.state_dict()[name])

    @pytest.mark.parametrize("clip", [None, 0.05])
    @pytest.mark.parametrize("optimiser", ["sgd", "adam"])
    def test_a_member_learns_as_if_it_were_alone(self, optimiser, clip):
        together, single = together_and_alone(optimiser=optimiser, weight_decay=0.1, clip=clip)
        for one, member in zip(single, together.scorer.members, strict=True):
            for a, b in zip(one.scorer.parameters(), member.parameters(), strict=True):
                torch.testing.assert_close(a, b)
        losses = [one.progress.history[-1]["loss"] for one in single]
        assert together.progress.history[-1]["loss"] == pytest.approx(np.mean(losses))

    def test_a_member_is_kept_as_it_was_in_its_own_best_epoch(self):
        together, single = together_and_alone(NEW, epochs=10, learning_rate=0.03)
        assert len({one.validation.best.epoch for one in single}) > 1
        for one, member in zip(single, together.scorer.members, strict=True):
            for a, b in zip(one.scorer.parameters(), member.parameters(), strict=True):
                torch.testing.assert_close(a, b)
        best = together.validation.best
        assert best.members == pytest.approx([one.validation.best.value for one in single])
        assert best.epoch == max(one.validation.best.epoch for one in single)
        assert best.value == pytest.approx(together.validation.measure(NEW))
        assert best.value == together.progress.history[best.epoch - 1]["validation"]

    def test_all_curves_are_of_the_members_that_are_kept(self):
        ranker = tr.Ranker(architecture="Small(members=3)", epochs=8, learning_rate=0.03)
        ranker.fit(DATA, eval_set={"validation": NEW, "again": NEW, "train": DATA})
        assert all(one["validation"] == one["again"] for one in ranker.history_)
        kept = ranker.history_[ranker.best_epoch_ - 1]
        assert kept["validation"] == ranker.best_score_ == pytest.approx(ranker.score(NEW))
        assert kept["train"] == pytest.approx(ranker.score(DATA))

    def test_training_stops_when_no_member_gains(self, capsys):
        ranker = tr.Ranker(
            architecture="Small(members=3)", epochs=60, early_stopping=2, verbose=True
        ).fit(DATA, eval_set=NEW)
        assert len(ranker.history_) == ranker.best_epoch_ + 2 < 60
        told = capsys.readouterr().err
        last = f"members kept: {ranker.best_score_:.4f}, last gain in epoch {ranker.best_epoch_}"
        assert last in told
        reason = f"no member with a better nDCG@5 than until epoch {ranker.best_epoch_}"
        assert f"stopped: {reason} for 2 epochs" in told

    def test_taken_up_again_it_is_the_same(self, tmp_path):
        shape = "0.3, members=3"
        whole, half = trainer(net_of(shape), NEW), trainer(net_of(shape), NEW)
        whole.run()

        def stop(trainer, _):
            if trainer.progress.epoch == 3:
                save_checkpoint(trainer, tmp_path / "checkpoint")

        half.callbacks.append(type("Stop", (Callback,), {"on_epoch": staticmethod(stop)})())
        half.run()
        again = trainer(net_of(shape, seed=1), NEW)
        load_checkpoint(again, tmp_path / "checkpoint")
        again.run()
        found, expected = again.validation.best, whole.validation.best
        assert (found.epoch, found.value) == (expected.epoch, expected.value)
        assert found.members == expected.members
        assert [one["validation"] for one in again.progress.history] == [
            one["validation"] for one in whole.progress.history
        ]
        state = again.scorer.state_dict()
        for name, tensor in whole.scorer.state_dict().items():
            assert torch.equal(tensor, state[name])

    def test_saved_and_exported(self, tmp_path):
        pytest.importorskip("onnxruntime")
        categories = {1: 4}
        ranker = tr.Ranker(architecture="Small(members=3)", epochs=2, categories=categories)
        ranker.fit(DATA, eval_set=NEW)
        assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
        ranker.save(tmp_path / "model")
        loaded = tr.Ranker.load(tmp_path / "model")
        assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
        ranker.export(tmp_path / "model.onnx")  # which compares the scores

    def test_how_many_there_are_without_a_word(self, monkeypatch):
        ranker = tr.Ranker(epochs=1).fit(DATA)
        assert len(ranker.model_.scorer.members) == 5
        monkeypatch.setattr("twinrank.support.members.FEW", DATA.documents - 1)
        assert tr.Ranker(epochs=1).fit(DATA).model_.scorer.architecture.members == 1

    @pytest.mark.parametrize("members", [0, -1, 2.5, True])
    def test_what_is_refused(self, members):
        with pytest.raises(tr.InputError, match="members must be a whole number from 1 on"):
            replace(architecture("Small"), members=members)

    def test_a_damaged_number_costs_nothing(self, tmp_path):
        tr.Ranker(architecture="Small(members=2)", epochs=1).fit(DATA).save(tmp_path / "model")
        path = tmp_path / "model" / "config.json"
        config = json.loads(path.read_text())
        config["architecture"]["members"] = 10**9
        path.write_text(json.dumps(config))
        with pytest.raises(tr.InputError, match="tensors, too few"):
            tr.Ranker.load(tmp_path / "model")
