"""CatBoost as a method of studies; a small substitute replaces the package where it is absent."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import twinrank as tr
from twinrank.experiments.study import catboost_ranker
from twinrank.experiments.study.catboost_ranker import CATBOOST_LOSSES, CatBoostMethod
from twinrank.experiments.study.method_comparison import (
    METHODS,
    comparison_study,
    default_methods,
    note_on_missing,
)
from twinrank.experiments.study.methods import CATBOOST, Method, method
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import full_parameters

TRAIN, VALID = tr.synthetic_web_search(queries=12).split(0.6, random_state=0)


class _Booster:
    """A "booster" whose scores are random, but fixed by the seed and the round."""

    def __init__(self, settings):
        self.settings = settings

    def fit(self, pool, eval_set, callbacks):
        assert pool.X.shape[1] == eval_set.X.shape[1]
        for i in range(self.settings["iterations"]):
            for callback in callbacks:
                assert callback.after_iteration(SimpleNamespace(iteration=i + 1))

    def staged_predict(self, X):
        return (self.predict(X, i + 1) for i in range(self.settings["iterations"]))

    def predict(self, X, ntree_end):
        rng = np.random.default_rng([self.settings["random_seed"], ntree_end])
        return np.asarray(X, float) @ rng.standard_normal(X.shape[1])


@pytest.fixture
def catboost(monkeypatch):
    """CatBoost, or the substitute."""
    if not catboost_ranker.is_installed():
        module = ModuleType("catboost")
        module.__spec__ = ModuleSpec("catboost", None)
        module.CatBoost = _Booster
        module.Pool = lambda X, y, group_id: SimpleNamespace(X=X, y=y, group_id=group_id)
        monkeypatch.setitem(sys.modules, "catboost", module)


@pytest.fixture
def _absent(monkeypatch):
    monkeypatch.setattr(catboost_ranker, "find_spec", lambda _: None)


@pytest.mark.usefixtures("catboost")
@pytest.mark.parametrize("loss", ["YetiRank", "YetiLoss", "LambdaMart", "StochasticRank"])
def test_the_best_round_by_validation_is_kept(loss):
    seen = []
    watch = SimpleNamespace(
        on_train_begin=lambda trainer: seen.append(trainer.plan.iterations),
        on_iteration_end=lambda _, record: seen.append(record["iteration"]),
    )

    def fitted():
        ranker = CatBoostMethod(loss=loss, n_estimators=6, random_state=3)
        return ranker.fit(TRAIN, {"validation": VALID, "train": TRAIN}, [watch])

    one, two = fitted(), fitted()
    assert seen[:7] == [6, 1, 2, 3, 4, 5, 6]
    values = [record["validation"] for record in one.history_]
    assert one.best_score_ == max(values) == values[one.best_iteration_ - 1]
    scores = one.predict(VALID)
    measured = tr.evaluate(scores, VALID.y, VALID.lists, ["nDCG@5"]).means["nDCG@5"]
    assert measured == pytest.approx(one.best_score_)
    assert scores.dtype == np.float32
    assert np.array_equal(scores, two.predict(VALID))
    assert one.history_[0].keys() == {"iteration", "seconds", "validation", "train"}
    seconds = [record["seconds"] for record in one.history_]
    assert seconds == sorted(seconds)  # since the start, as of other rankers


@pytest.mark.usefixtures("catboost")
def test_a_study_with_catboost(tmp_path):
    names = ["CatBoost(loss=StochasticRank)", "CatBoost"]
    study = comparison_study(Source(queries=12, cut=1), names, shared={"n_estimators": 3})
    results = study.run(tmp_path, jobs=1, progress=False)
    assert not results.failures
    comparison = results.comparison()
    assert list(comparison.means) == names
    assert [len(unit.history) for unit in results.units] == [3, 3]


def test_the_settings_are_those_of_catboost():
    ranker = CatBoostMethod(loss="StochasticRank", validation_measure="nDCG@10", n_jobs=2)
    settings = ranker._settings()
    assert settings["loss_function"] == "StochasticRank:metric=NDCG;type=Exp;top=10"
    assert settings["eval_metric"] == "NDCG:top=10;type=Exp"
    assert (settings["iterations"], settings["depth"], settings["thread_count"]) == (1000, 6, 2)
    assert settings["early_stopping_rounds"] == 50
    assert "learning_rate" not in settings  # CatBoost chooses it
    assert (
        CatBoostMethod(early_stopping=None)
        ._settings()
        .keys()
        .isdisjoint({"early_stopping_rounds", "thread_count"})
    )
    assert set(CATBOOST_LOSSES) >= {"YetiRank", "StochasticRank"}


@pytest.mark.parametrize(
    ("measure", "loss", "expected", "watched"),
    [
        ("nDCG@10", "YetiLoss", "YetiRank:mode=NDCG;dcg_type=Exp;top=10", "NDCG:top=10;type=Exp"),
        ("nDCG@10", "LambdaMart", "LambdaMart:metric=NDCG;top=10;type=Exp", "NDCG:top=10;type=Exp"),
        ("AP", "YetiLoss", "YetiRank:mode=MAP", "MAP:top=-1"),
        ("RR@5", "LambdaMart", "LambdaMart:metric=MRR", "MRR:top=5"),
        ("nERR@10", "YetiLoss", "YetiRank:mode=ERR", "ERR:top=10"),
        ("P@5", "YetiLoss", "YetiRank:mode=NDCG;dcg_type=Exp;top=5", "NDCG:top=5;type=Exp"),
        ("AP", "YetiRank", "YetiRank", "NDCG:top=-1;type=Exp"),
    ],
)
def test_what_is_optimised_follows_the_measure(measure, loss, expected, watched):
    settings = CatBoostMethod(loss=loss, validation_measure=measure)._settings()
    assert (settings["loss_function"], settings["eval_metric"]) == (expected, watched)


@pytest.mark.usefixtures("catboost")
@pytest.mark.parametrize(
    "name",
    [
        "CatBoost(loss=YetiLoss, metric=MAP)",
        "CatBoost(loss=YetiLoss, metric=ERR)",
        "CatBoost(loss=LambdaMart, ensemble_size=3)",
    ],
)
def test_metrics_and_ensembles_train(name):
    options = method(name).parameters()
    ranker = CatBoostMethod(**options, n_estimators=4, random_state=1)
    ranker.fit(TRAIN, {"validation": VALID})
    size = options.get("ensemble_size", 1)
    scores = [b.predict(VALID.X, ntree_end=best) for b, best in ranker._boosters]
    assert len(scores) == size
    assert len({s.tobytes() for s in scores}) == size
    np.testing.assert_allclose(ranker.predict(VALID), np.mean(scores, 0), rtol=1e-6)
    assert method(name).kind.iteration == "round"


def test_a_metric_needs_a_loss_that_takes_it():
    with pytest.raises(
        tr.InputError, match="The loss YetiRank has no metric; use YetiLoss or LambdaMart"
    ):
        CatBoostMethod(metric="MAP").check_parameters()
    with pytest.raises(tr.InputError, match="metric"):
        CatBoostMethod(loss="YetiLoss", metric="P").check_parameters()


def test_names():
    chosen = method("CatBoost(loss=StochasticRank, depth=4)")
    assert chosen == Method("", "", "CatBoost(depth=4, loss=StochasticRank)")
    assert chosen.kind is CATBOOST
    assert chosen.kind.iteration == "round"
    assert chosen.parameters() == {"loss": "StochasticRank", "depth": 4}
    assert method(str(chosen)) == chosen
    assert str(method("CatBoost")) == "CatBoost"
    with pytest.raises(tr.InputError, match="Unknown option of CatBoost 'los'"):
        method("CatBoost(los=YetiRank)")
    with pytest.raises(tr.InputError, match="Did you mean 'CatBoost'"):
        method("Catboost")
    with pytest.raises(tr.InputError, match="Unknown loss of CatBoost 'YetiRan'"):
        full_parameters("CatBoost(loss=YetiRan)")


@pytest.mark.usefixtures("_absent")
def test_without_the_package():
    with pytest.raises(
        tr.InputError, match=r"CatBoost is not installed; install it with pip install 'twinrank\["
    ):
        full_parameters("CatBoost")
    assert "CatBoost" not in default_methods()
    source = Source(queries=12, cut=1)
    assert "pip install" in note_on_missing(comparison_study(source))
    assert note_on_missing(comparison_study(source, ["LambdaMART"])) == ""


@pytest.mark.usefixtures("catboost")
def test_with_the_package():
    assert default_methods() == [str(method(name)) for name in METHODS]


def test_err_labels_of_all_pools_are_divided_by_the_same_number():
    pytest.importorskip("catboost")
    data = tr.Dataset.from_arrays(np.zeros((3, 1)), [0, 1, 2], qid=[1, 1, 1])
    labels = np.array(catboost_ranker._pool(data, "ERR", 4.0).get_label(), np.float64)
    np.testing.assert_allclose(labels, [0, 1 / 16, 3 / 16])
