"""The trial that decides whether trees on large data have z-scores beside the raw features."""

from contextlib import nullcontext

import numpy as np
import pytest

import twinrank as tr
from twinrank.learning.training import feature_trial, tree_learner
from twinrank.learning.training.feature_trial import raw_features_suffice
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Task
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.settings import Plan
from twinrank.training import Callback

BOTH = "none | QueryZScore"
SETTINGS = {"random_state": 0, "transforms": BOTH}


@pytest.fixture(scope="module")
def data():
    return tr.synthetic_web_search(queries=30)


@pytest.fixture
def large(monkeypatch):
    """Data of a thousand documents is large."""
    monkeypatch.setattr(tree_learner, "LARGE_DATA", 1_000)
    monkeypatch.setattr(feature_trial, "SAMPLE", 1_500)


class Notes(Callback):
    def __init__(self):
        self.notes = []

    def on_prepare(self, note):
        self.notes.append(note)


class Scorer:
    """A learner whose scores are the labels with noise, which depends on the transforms."""

    def __init__(self, noise, parameters, task):
        self.noise, self.judge, self.learned = noise[parameters["transforms"]], task.evaluation, 0
        assert task.train.data.documents <= feature_trial.SAMPLE
        (judge,) = task.evaluation.values()
        seen = set(task.train.data.query_ids) & set(judge.query_ids)
        assert not seen

    def training(self):
        return nullcontext()

    def steps(self, iteration, first):
        self.learned += 1
        yield 1

    def scores(self, name):
        assert self.learned == 100
        labels = self.judge[name].y
        noise = np.random.default_rng(0).normal(size=len(labels))
        return (labels + self.noise * noise).astype(np.float32)[:, None]


@pytest.mark.parametrize(
    ("raw", "both", "expected"), [(0.1, 3.0, True), (3.0, 0.1, False), (1.0, 1.0, False)]
)
def test_raw_features_must_be_better_on_other_queries(data, large, raw, both, expected):
    task = Task(TrainingSet(data), {}, Plan(iterations=1), ProcessGroup())
    noise = {"none": raw, BOTH: both}

    def prepare(parameters, own):
        return Scorer(noise, parameters, own)

    assert raw_features_suffice(prepare, SETTINGS, task) is expected


def test_one_query_decides_nothing(data, large):
    task = Task(TrainingSet(data.select([0])), {}, Plan(iterations=1), ProcessGroup())
    assert not raw_features_suffice(lambda *_: pytest.fail("trained"), SETTINGS, task)


def test_z_scores_stay_where_they_are_needed(large):
    """The unit of the only useful feature differs from query to query."""
    rng = np.random.default_rng(0)
    sizes = np.full(150, 20)
    lists = tr.Lists.from_sizes(sizes)
    signal = rng.normal(size=lists.documents)
    X = signal * lists.spread(rng.lognormal(0, 2, 150)) + lists.spread(rng.normal(0, 30, 150))
    relevant = signal + rng.normal(size=len(signal)) > 0.5
    own = tr.Dataset.from_arrays(X[:, None], relevant.astype(int), group=sizes)
    notes = Notes()
    ranker = tr.BoostedRanker(n_estimators=2, ensemble_size=1).fit(own, callbacks=[notes])
    assert ranker.model_.transforms() == BOTH
    assert "raw features were not better" in notes.notes[0]


def test_the_choice_is_saved_and_continued(data, large, monkeypatch, tmp_path):
    monkeypatch.setattr(tree_learner, "raw_features_suffice", lambda *_: True)
    train, valid = data.split(0.7)
    notes = Notes()
    ranker = tr.BoostedRanker(n_estimators=3, ensemble_size=1, random_state=0)
    ranker.fit(train, eval_set=valid, callbacks=[notes], run=tmp_path / "run")
    assert ranker.model_.transforms() == "none"
    assert ranker.model_.provenance["resolved"]["transforms"] == "none"
    assert "transforms='none'" in notes.notes[0]
    scores = ranker.predict(valid)
    assert (tr.load_model(tmp_path / "run").predict(valid) == scores).all()

    monkeypatch.setattr(tree_learner, "raw_features_suffice", lambda *_: pytest.fail("tried again"))
    further = tr.BoostedRanker(n_estimators=2, ensemble_size=1)
    further.fit(train, eval_set=valid, init_model=ranker)
    assert further.model_.transforms() == "none"


@pytest.mark.parametrize(
    "parameters",
    [
        {"transforms": BOTH},
        {"mode": "per-document"},
        {"mode": "paper"},
        {"objective": "LambdaMART"},
        {"engine_params": {"monotone_constraints": [0] * 136}},
    ],
)
def test_explicit_and_other_defaults_are_not_tried(data, large, monkeypatch, parameters):
    monkeypatch.setattr(tree_learner, "raw_features_suffice", lambda *_: pytest.fail("tried"))
    parameters = {"n_estimators": 1, "ensemble_size": 1, **parameters}
    tr.BoostedRanker(**parameters).fit(data)


def test_usual_data_is_not_tried(data, monkeypatch):
    monkeypatch.setattr(tree_learner, "raw_features_suffice", lambda *_: pytest.fail("tried"))
    ranker = tr.BoostedRanker(n_estimators=1, ensemble_size=1).fit(data)
    assert ranker.model_.transforms() == BOTH
