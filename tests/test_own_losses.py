"""A user's own losses by name and import path: nets, trees, names of methods, studies."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import twinrank as tr
from twinrank.core import measures, own_losses
from twinrank.core.loss_names import METHODS
from twinrank.core.losses import NAMES, is_loss, loss
from twinrank.core.own_losses import is_own_loss
from twinrank.experiments.study.method_comparison import comparison_study
from twinrank.experiments.study.methods import ESTIMATORS, method
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import Unit
from twinrank.learning.training.net_settings import loss_of
from twinrank.learning.training.own_code import identities
from twinrank.learning.training.tree_parameters import ENGINE_OBJECTIVES

DATA = tr.synthetic_web_search(queries=24)
TRAIN, VALID = DATA.split(0.7, random_state=0)
FEW = {"n_estimators": 6, "ensemble_size": 1, "random_state": 0}


def squares(scores, labels, lists, weights=None):
    """A loss with autograd."""
    shares = torch.ones_like(scores) if weights is None else lists.spread(weights)
    return (shares * (scores - labels) ** 2).mean()


def newton(scores, labels, lists):
    """The gradient and hessian of the same."""
    assert len(scores) == lists.documents
    return (2 * (scores - labels)).detach().numpy(), np.full(len(labels), 2.0)


class Scaled(torch.nn.Module):
    """A class of losses with an option."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def forward(self, scores, labels, lists):
        return squares(scores, self.factor * labels, lists)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(own_losses, "_OWN", {})
    module = ModuleType("my_losses")
    module.squares, module.newton, module.number = squares, newton, 7
    monkeypatch.setitem(sys.modules, "my_losses", module)
    tr.register_loss("squares", squares)
    tr.register_loss("scaled", Scaled)


def test_names_and_paths():
    assert loss("squares") is loss("my_losses:squares") is squares
    assert loss("scaled(factor=3)").factor == 3
    for name in ("squares", "scaled(factor=3)", "my_losses:squares"):
        assert is_loss(name)
        assert is_own_loss(name)
    assert not is_own_loss("ListNet")
    assert not is_own_loss("nDCG@5")
    assert not is_own_loss(tr.measure("nDCG"))
    for name, complaint in (
        ("squares(factor=3)", "has no options"),
        ("scaled(size=3)", "Unknown option of scaled 'size'"),
        ("my_losses:other", "cannot be imported"),
        ("my_losses:number", "must be a function or a class of losses, not 7"),
    ):
        with pytest.raises(tr.InputError, match=complaint):
            loss(name)
    for name, own, complaint in (
        ("ListNet", squares, "built-in loss, a measure or a method"),
        ("nDCG", squares, "built-in loss, a measure or a method"),
        ("LambdaMART", squares, "built-in loss, a measure or a method"),
        ("two words", squares, "Can't read"),
        ("seven", 7, "takes a function or a class, not 7"),
    ):
        with pytest.raises(tr.InputError, match=complaint):
            tr.register_loss(name, own)


def test_a_method_is_no_name_of_a_loss():
    names = {*ESTIMATORS, *ENGINE_OBJECTIVES}
    assert set(METHODS) == {name for name in names if ":" not in name}


@pytest.mark.parametrize("name", ["squares", "my_losses:squares", "scaled(factor=1.0)"])
def test_a_net_learns_the_same_by_name_and_from_the_function(name):
    options = {"epochs": 1, "ensemble_size": 1, "random_state": 0}
    by_name = tr.Ranker(name, **options).fit(TRAIN)
    own = tr.Ranker(squares, **options).fit(TRAIN)
    np.testing.assert_array_equal(by_name.predict(VALID), own.predict(VALID))


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_trees_grow_on_a_gradient_and_a_hessian_as_the_engine_itself(engine):
    """The squared error of LightGBM, whose hessian is constant, gives the same order."""
    options = {**FEW, "engine": engine, "transforms": "none", "mode": "per-document"}
    grown = tr.BoostedRanker(newton, **options).fit(TRAIN)
    by_path = tr.BoostedRanker("my_losses:newton", **options).fit(TRAIN)
    np.testing.assert_array_equal(grown.predict(VALID), by_path.predict(VALID))
    error = [((scores - VALID.y) ** 2).mean() for scores in (grown.predict(VALID), 0 * VALID.y)]
    assert error[0] < error[1]


def test_a_loss_with_autograd_grows_trees_whatever_its_unit(tmp_path):
    scale = {f: tr.BoostedRanker(lambda s, y, lists, f=f: f * squares(s, y, lists), **FEW)
             for f in (1.0, 1024.0)}  # fmt: skip
    scores = [ranker.fit(TRAIN).predict(VALID) for ranker in scale.values()]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)
    own = tr.BoostedRanker("squares", **FEW).fit(TRAIN)
    np.testing.assert_array_equal(own.predict(VALID), scores[0])
    own.save(tmp_path / "model")
    np.testing.assert_array_equal(
        tr.BoostedRanker.load(tmp_path / "model").predict(VALID), scores[0]
    )
    shuffled = tr.evaluate(np.zeros(VALID.documents), VALID.y, VALID.lists, "nDCG@10")["nDCG@10"]
    assert own.score(VALID, measure="nDCG@10") > shuffled


@pytest.mark.parametrize(
    ("own", "complaint"),
    [
        (lambda s, y, lists: (s[:3], s[:3]), r"returned arrays of shape \(3,\) and \(3,\)"),
        (lambda s, y, lists: (s * np.nan, s * 0), "must return finite gradients"),
        (lambda s, y, lists: (s, -1 - 0 * s), "not negative"),
        (lambda s, y, lists: s, "must be one number, as a tensor with a gradient"),
        (lambda s, y, lists: 3, "must return a loss, or a gradient and a hessian"),
    ],
)
def test_mistakes_of_an_objective_are_explained(own, complaint):
    with pytest.raises(tr.InputError, match=complaint):
        tr.BoostedRanker(own, **FEW).fit(TRAIN)


def test_a_class_becomes_an_objective():
    trees = [tr.BoostedRanker(own, **FEW).fit(TRAIN).predict(VALID) for own in (Scaled, Scaled())]
    np.testing.assert_array_equal(*trees)
    assert isinstance(loss_of(tr.Ranker(Scaled).get_params()), Scaled)
    with pytest.raises(tr.InputError, match=r"MSELoss must take \(scores, labels, lists"):
        tr.BoostedRanker(objective=torch.nn.MSELoss).check_parameters()


def test_a_measure_cannot_have_the_name_of_a_loss():
    own = tr.Measure.from_functions("squares", lambda y, _: y, lambda rank: 1 / rank)
    with pytest.raises(tr.InputError, match="squares is the name of a loss"):
        tr.register_measure(own)
    for name in NAMES:
        own = tr.Measure.from_functions(name, lambda y, _: y, lambda rank: 1 / rank)
        with pytest.raises(tr.InputError, match=f"{name} is the name of a loss"):
            tr.register_measure(own)


def test_changed_code_is_another_training(monkeypatch):
    """In studies by name and by import path; also of nets and measures."""
    source = Source(queries=12, cut=3)

    def key(name, **parameters):
        return Unit.of(name, 1, 0, source, parameters).key

    def power(exponent):
        return lambda scores, labels, lists: ((scores - labels) ** exponent).mean()

    def net(width):
        return lambda features: torch.nn.Linear(features, 1 + 0 * width)

    def own_measure(base):
        return tr.Measure.from_functions("Own", lambda y, _: y / base, lambda rank: 1 / rank)

    monkeypatch.setattr(measures, "_OWN", {})
    keys = []
    for change in (2, 2, 4):
        tr.register_loss("changing", power(change))
        tr.register_measure(own_measure(change))
        sys.modules["my_losses"].net = net(change)
        names = ("changing", "changing (Boosted)", "Own-type3", "ListNet (my_losses:net)")
        keys.append([*map(key, names), key("ListNet", validation_measure="Own@5")])
        sums = ("nDCG + 0.5 * changing", "nDCG@5 + 0.5 * Own@3")
        keys[-1] += [identities({"objective": text})["objective"] for text in sums]
    assert keys[0] == keys[1]
    assert not set(keys[0]) & set(keys[2])
    assert Unit.of("nDCG-type3", 1, 0, source).own == {}
    study = comparison_study(source, ["changing"], measures=["nDCG@5"])
    assert study.units[0].own == Unit.of("changing", 1, 0, source).own != {}


def test_methods_and_a_study():
    """Own losses on nets and trees, beside built-in ones, trained and compared."""
    assert str(method("squares")) == "squares (Small)"
    assert str(method("my_losses:newton (Boosted)")) == "my_losses:newton (Boosted)"
    with pytest.raises(tr.InputError, match="ListNet is a loss for nets"):
        method("ListNet (Boosted)")
    with pytest.raises(tr.InputError, match="Unknown method 'sqaures'"):
        method("sqaures")


def test_a_study_trains_them_and_states_test_and_spread(tmp_path):
    names = ["my_losses:squares (Linear)", "squares (Boosted)"]
    shared = {"epochs": 1, "n_estimators": 3}
    testing = {"test": "t", "correction": "bh", "level": 0.2}
    source = Source(queries=24, cut=3)
    study = comparison_study(source, names, ["nDCG@5"], [1], (0, 1), shared, testing=testing)
    results = study.run(tmp_path / "out", jobs=1, progress=False)
    assert not results.failures
    comparison = results.comparison()
    assert (comparison.test, comparison.level, comparison.correction) == ("t", 0.2, "bh")
    from twinrank.experiments.study.comparison_results import table_of, write_comparison

    write_comparison(results, comparison, tmp_path)
    rows = (tmp_path / "queries.csv").read_text().splitlines()
    assert rows[0] == "system,seed,query,nDCG@5"
    queries = results.tests[0].queries
    assert len(rows) == 1 + 2 * 2 * queries
    seeds = results.seed_values(names[0])["nDCG@5"]
    assert seeds.shape == (2, queries)
    np.testing.assert_allclose(seeds.mean(0), comparison.values[names[0]]["nDCG@5"])
    spread = np.nanmean(seeds, axis=1).std(ddof=1)
    shown = table_of(results, comparison).to_text()
    assert f"± {spread:.4f}" in shown
    assert "p < 0.2 (paired t-test, Benjamini–Hochberg correction)" in shown
    assert "the standard deviation over 2 seeds" in shown
    with pytest.raises(tr.InputError, match="test"):
        comparison_study(source, names, testing={"test": "sign"})
