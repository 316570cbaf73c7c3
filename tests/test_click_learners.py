"""Learning from simulated clicks, as a method of studies."""

from dataclasses import replace

import numpy as np
import pytest

import twinrank as tr
from test_clicks import made_data
from twinrank.clicks.simulation import click_probability
from twinrank.experiments.study.click_learners import LEARNERS, NOISE, ClickSetting, learn
from twinrank.experiments.study.click_ranker import ClickMethod
from twinrank.experiments.study.method_comparison import comparison_study
from twinrank.experiments.study.methods import CLICKS, method
from twinrank.experiments.study.study_source import Source

SETTING = ClickSetting(impressions=6000, share=0.3, rounds=15, leaves=7, rate=0.2)


@pytest.fixture(scope="module")
def log():
    return SETTING.log(made_data(40, 8))


@pytest.mark.parametrize("learner", LEARNERS)
def test_each_learner_finds_the_feature_that_matters(log, learner):
    if learner == "xgboost":
        pytest.importorskip("xgboost")
    test = made_data(30, 8, seed=1)
    scores = np.asarray(learn(learner, log, SETTING).predict(test))
    good, noise = (abs(np.corrcoef(scores, x)[0, 1]) for x in test.X.T)
    assert good > noise + 0.3


@pytest.mark.parametrize("learner", ["ips", "two-tower"])
def test_nets_learn_too(log, learner):
    test = made_data(30, 8, seed=1)
    ranker = learn(learner, log, replace(SETTING, model="net"))
    assert isinstance(ranker, tr.Ranker)
    good, noise = (abs(np.corrcoef(ranker.predict(test), x)[0, 1]) for x in test.X.T)
    assert good > noise + 0.3


def test_the_log_is_that_of_a_ranker_with_position_bias(log):
    assert log.impressions == 6000
    rates = log.summary.click_rates
    assert rates[0] > 2 * rates[4]
    assert log.summary.moved_share > 0


def test_a_study_of_clicks(tmp_path):
    names = [f"Clicks(learner={learner})" for learner in ("full", "naive")]
    shared = {"impressions": 1500, "n_estimators": 5, "num_leaves": 5}
    study = comparison_study(Source(queries=20, cut=1), names, shared=shared)
    results = study.run(tmp_path, jobs=1, progress=False)
    assert not results.failures
    comparison = results.comparison()
    assert list(comparison.means) == names
    [record] = results.units[0].history
    assert 0 <= record["validation"] <= 1
    again = ClickMethod("full", **shared).fit(*_sets(study.source))
    np.testing.assert_array_equal(
        results.units[0].scores, again.predict(study.source.sets(1)["test"])
    )


def _sets(source):
    sets = source.sets(1)
    return sets["train"], {"validation": sets["validation"]}


def test_names_and_mistakes():
    chosen = method("Clicks(learner=naive, eta=2)")
    assert chosen.kind is CLICKS
    assert str(chosen) == "Clicks(eta=2, learner=naive)"
    assert chosen.kind.iteration == "fit"
    with pytest.raises(tr.InputError, match="Unknown learner 'svm'"):
        ClickMethod("svm").check_parameters()
    with pytest.raises(tr.InputError, match=r"Unknown model 'svm'\. Choose from trees, net"):
        ClickMethod(model="svm").check_parameters()
    with pytest.raises(tr.InputError, match="xgboost has trees only; leave out model='net'"):
        ClickMethod("xgboost", model="net").check_parameters()
    with pytest.raises(tr.InputError, match="impressions must be a whole number of at least 1"):
        ClickMethod(impressions=0).check_parameters()
    with pytest.raises(tr.InputError, match="Unknown option of Clicks 'lerner'"):
        method("Clicks(lerner=ips)")


def test_a_logger_of_a_few_queries_ranks():
    X = np.random.default_rng(0).normal(size=(24, 3))
    few = tr.Dataset.from_arrays(X, X[:, 0] > 0.5, group=[8, 8, 8])
    scores = ClickSetting(share=0.01, rounds=5, leaves=3).logger(few).predict(few)
    assert len(np.unique(scores)) > 1


def test_the_true_propensities_of_users_who_trust_the_first_results():
    """The expected clicks at each position, where each document is shown everywhere."""
    data = tr.Dataset.from_arrays(np.zeros((6, 1)), [0, 1, 2, 3, 4, 0], group=[6])
    setting = ClickSetting(users="trust", eta=0.7)
    log = tr.simulate_clicks(data, model="trust", eta=0.7, impressions=60_000, random_state=0)
    own = setting.propensities(log.positions)
    relevance = click_probability(data, NOISE)[log.document]
    at = log.position - 1
    expected = np.asarray(own.values)[at] * relevance + np.asarray(own.trust)[at]
    rates, chances = (np.bincount(at, values) / 60_000 for values in (log.clicked, expected))
    np.testing.assert_allclose(rates, chances, atol=4 * 0.5 / np.sqrt(60_000))
    assert ClickSetting(eta=0.7).propensities(3).trust is None
