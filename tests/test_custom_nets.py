"""A user's own torch module as the architecture of a ranker."""

import functools
import json
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import twinrank as tr
from twinrank.learning.estimators.saved_ranker import load_model
from twinrank.learning.training.callbacks import TrainingInterrupted
from twinrank.training import Callback

pytestmark = pytest.mark.usefixtures("one_thread")

TRAIN, NEW = tr.synthetic_web_search(queries=16).split(0.7, 0.3, random_state=0)
FEATURES = TRAIN.features


class Plain(nn.Module):
    """Scores each document alone, as a column."""

    def __init__(self, features, width=6):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2)
        )
        self.last = nn.Linear(width, 1)

    def forward(self, X):
        return self.last(self.layers(X))


class WithLists(nn.Module):
    """Scores each document by its distance from the mean of its query, as a vector."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, X, lists):
        assert X.shape == (lists.documents, FEATURES)
        scores = self.linear(X).squeeze(-1)
        means = [part.mean().expand(len(part)) for part in scores.split(lists.sizes.tolist())]
        return scores - torch.cat(means)


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self, features):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.second = nn.Linear(features, features)
        self.second.weight = self.first.weight

    def forward(self, X):
        return self.second(torch.relu(self.first(X))).mean(dim=1)


def sequential(features):
    return nn.Sequential(nn.Linear(features, 4), nn.Tanh(), nn.Linear(4, 1))


def make(architecture, **changes):
    parameters = {"epochs": 2, "batch_documents": 400, "learning_rate": 0.01, **changes}
    return tr.Ranker(architecture=architecture, **parameters)


SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, X):
        return self.linear(X)

class Outer:
    Inner = Net

def make_net(features):
    return Net(features)

number = 5
"""


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """A module of the user's on the path, that has not been imported."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "user_net.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield "user_net"
    sys.modules.pop("user_net", None)


@pytest.fixture
def explosive_module(tmp_path, monkeypatch):
    """A module whose import fails."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "explosive_net.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield "explosive_net"
    assert "explosive_net" not in sys.modules


# Ways to pass a net


@pytest.mark.parametrize(
    "architecture",
    [
        Plain,
        WithLists,
        Tied,
        sequential,
        lambda features: nn.Linear(features, 1),
        functools.partial(Plain, width=3),
        nn.Linear(FEATURES, 1),
        nn.Linear(FEATURES, 1).double(),
    ],
    ids=["class", "lists", "tied", "function", "lambda", "partial", "module", "double"],
)
def test_every_way_to_pass_a_net(architecture, tmp_path):
    ranker = make(architecture).fit(TRAIN, eval_set=NEW)
    scores = ranker.predict(NEW)
    assert scores.shape == (NEW.documents,)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
    assert ranker.model_.ensemble_size == 1
    losses = [record["loss"] for record in make(architecture, epochs=8).fit(TRAIN).history_]
    assert min(losses[1:]) < losses[0]
    ranker.save(tmp_path / "model")
    loaded = tr.Ranker.load(tmp_path / "model", architecture=architecture)
    assert np.array_equal(loaded.predict(NEW), scores)
    assert loaded.architecture is architecture
    assert loaded.history_ == ranker.history_
    assert loaded.best_iteration_ == ranker.best_iteration_


@pytest.mark.parametrize("name", ["Net", "make_net", "Outer.Inner"])
def test_import_paths(user_module, name, tmp_path):
    path = f"{user_module}:{name}"
    ranker = make(path).fit(TRAIN)
    assert ranker.architecture == path
    ranker.save(tmp_path / "model")
    loaded = tr.Ranker.load(tmp_path / "model", architecture=path)
    assert loaded.get_params() == ranker.get_params()
    assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
    module = sys.modules[user_module]
    assert np.array_equal(make(module.Net).fit(TRAIN).predict(NEW), ranker.predict(NEW))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("user_nte:Net", "'user_nte:Net' cannot be imported .No module named 'user_nte'"),
        ("user_net:Nte", "cannot be imported .*has no attribute 'Nte'.*package.module:name"),
        (":Net", "cannot be imported"),
        ("user_net:", "cannot be imported"),
        ("user_net:number", "Unknown architecture '5'"),
    ],
)
def test_wrong_import_paths_are_refused(user_module, path, message):
    with pytest.raises(tr.InputError, match=message):
        make(path).fit(TRAIN)


def test_lists_are_passed_to_nets_that_take_them():
    calls = []

    class Net(WithLists):
        def forward(self, X, lists=None):
            calls.append(lists.documents == len(X))
            return super().forward(X, lists)

    ranker = make(Net).fit(TRAIN)
    assert calls
    assert all(calls)
    assert ranker.model_.per_query
    with pytest.raises(tr.InputError, match="pass qid or group"):
        make(WithLists, transforms="none").fit(TRAIN).predict(NEW.X)
    alone = make(Plain, transforms="none").fit(TRAIN)
    assert not alone.model_.per_query
    assert np.allclose(alone.predict(NEW.X), alone.predict(NEW), atol=1e-5)


def test_the_users_module_is_left_alone():
    module = nn.Linear(FEATURES, 1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    ranker = make(module).fit(TRAIN)
    assert ranker.architecture is module
    assert module.training
    trained = ranker.model_.net.module.state_dict()
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert not torch.equal(tensor, trained[name])
    assert np.array_equal(make(module).fit(TRAIN).predict(NEW), ranker.predict(NEW))


# Nets that cannot be used


def returning(output):
    class Net(nn.Module):
        def __init__(self, features):
            super().__init__()
            self.linear = nn.Linear(features, 2)

        def forward(self, X):
            return output(self.linear(X))

    return Net


@pytest.mark.parametrize(
    ("output", "shape"),
    [
        (lambda scores: scores, r"\(\d+, 2\)"),
        (lambda scores: scores.sum(), r"\(\)"),
        (lambda scores: scores[1:, 0], r"\(\d+,\)"),
        (lambda scores: scores[None, :, 0], r"\(1, \d+\)"),
        (lambda scores: (scores,), "tuple"),
        (lambda scores: None, "NoneType"),
    ],
)
def test_wrong_outputs_are_refused(output, shape):
    with pytest.raises(
        tr.InputError, match=rf"Net returned {shape} for \d+ documents; it must return one score"
    ):
        make(returning(output)).fit(TRAIN)


def frozen(features):
    return nn.Linear(features, 1).requires_grad_(False)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (nn.ReLU(), "ReLU' has no weights to train"),
        (frozen, "frozen' has no weights to train"),
        (lambda features: features, "returned int; it must return a torch.nn.Module"),
        (lambda features: None, "returned NoneType"),
        (nn.Linear, r"Linear' must take the number of features and return .*out_features"),
        (lambda: nn.Linear(3, 1), "must take the number of features"),
        (5, "Unknown architecture '5'"),
    ],
)
def test_wrong_factories_are_refused(architecture, message):
    with pytest.raises(tr.InputError, match=message):
        make(architecture).fit(TRAIN)


def test_categories_need_our_own_architectures():
    with pytest.raises(
        tr.InputError, match="Categorical features need one of TwinRank's own architectures"
    ):
        make(Plain, categorical_features=[0]).fit(TRAIN)


# Ensembles and reproducibility


def test_an_ensemble_of_a_class(tmp_path):
    ranker = make(Plain, ensemble_size=3).fit(TRAIN, eval_set=NEW)
    first, second, _ = ranker.model_.net.models
    assert not torch.equal(first.module.last.weight, second.module.last.weight)
    assert ranker.model_.ensemble_size == 3
    assert ranker.best_score_ == pytest.approx(ranker.score(NEW))
    ranker.save(tmp_path / "model")
    loaded = tr.Ranker.load(tmp_path / "model", architecture=Plain)
    assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
    assert loaded.ensemble_size == 3
    with pytest.raises(tr.InputError, match="not a finished module"):
        make(Plain(FEATURES), ensemble_size=2).fit(TRAIN)
    with pytest.raises(tr.InputError, match="not a finished module"):
        tr.Ranker.load(tmp_path / "model", architecture=Plain(FEATURES))


@pytest.mark.parametrize("ensemble_size", [1, 2])
def test_the_seed_alone_decides_the_weights(ensemble_size):
    def scores(seed):
        ranker = make(Plain, random_state=seed, ensemble_size=ensemble_size)
        return ranker.fit(TRAIN).predict(NEW)

    first = scores(3)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert np.array_equal(scores(3), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not np.array_equal(scores(4), first)
    with pytest.raises(tr.InputError):
        make(lambda features: torch.rand(3)).fit(TRAIN)
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_leaves_the_random_generator_alone(tmp_path):
    make(Plain).fit(TRAIN).save(tmp_path / "model")
    before = torch.get_rng_state()
    tr.Ranker.load(tmp_path / "model", architecture=Plain)
    assert torch.equal(torch.get_rng_state(), before)


# Saving


def test_loading_imports_nothing(explosive_module, tmp_path, cli):
    make(Plain).fit(TRAIN).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    custom = config["architecture"]["custom"]
    assert custom.endswith("test_custom_nets:Plain")
    name = f"{explosive_module}:Net"
    config["architecture"]["custom"] = name
    config["provenance"]["parameters"]["architecture"] = name
    config["crc32"] = None
    path.write_text(json.dumps(config))
    message = f"Its net is your own. Pass architecture='{name}'"
    for load in (tr.Ranker.load, load_model):
        with pytest.raises(tr.InputError, match=message):
            load(tmp_path / "model")
    TRAIN.save(tmp_path / "data.txt")
    code, _, error = cli("predict", tmp_path / "model", tmp_path / "data.txt")
    assert code == 2
    assert f"Pass --architecture {name}; TwinRank never imports code" in " ".join(error.split())
    loaded = tr.Ranker.load(tmp_path / "model", architecture=Plain)  # the user's choice counts
    assert loaded.architecture is Plain
    loaded.predict(NEW)
    clone(loaded).fit(TRAIN)


def test_another_architecture_is_refused(tmp_path):
    make(Plain).fit(TRAIN).save(tmp_path / "own")
    make("Linear").fit(TRAIN).save(tmp_path / "ours")
    tr.BoostedRanker(n_estimators=1).fit(TRAIN).save(tmp_path / "trees")
    for architecture, message in [
        (sequential, "model.safetensors (lacks|has an unknown) tensor"),
        (
            functools.partial(Plain, width=7),
            r"0.weight has shape \(6, 136\).*the architecture needs \(7, 136\)",
        ),
        (Plain(FEATURES).double(), "type torch.float32, the architecture needs .*float64"),
        ("Linear", "Its net is your own, .*Plain, not Linear"),
        (lambda features: None, "returned NoneType"),
    ]:
        with pytest.raises(tr.InputError, match=message):
            tr.Ranker.load(tmp_path / "own", architecture=architecture)
    with pytest.raises(tr.InputError, match="not a net of your own; load it without architecture"):
        tr.Ranker.load(tmp_path / "ours", architecture=Plain)
    with pytest.raises(tr.InputError, match="It holds trees, which have no architecture"):
        load_model(tmp_path / "trees", Plain)


@pytest.mark.parametrize("custom", [5, [], {}, True])
def test_a_damaged_path_is_refused(custom, tmp_path):
    make(Plain).fit(TRAIN).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["architecture"]["custom"] = custom
    path.write_text(json.dumps(config))
    with pytest.raises(tr.InputError, match="model"):
        tr.Ranker.load(tmp_path / "model")


def test_export_is_refused(tmp_path, cli):
    ranker = make(Plain, ensemble_size=2).fit(TRAIN)
    message = r"Plain is your own net: export it with torch.onnx.export"
    with pytest.raises(tr.InputError, match=message):
        ranker.export(tmp_path / "model.onnx")
    ranker.save(tmp_path / "model")
    with pytest.raises(tr.InputError, match=message):
        tr.Ranker.load(tmp_path / "model", architecture=Plain).export(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
    code, _, error = cli("export", tmp_path / "model", "-o", tmp_path / "model.onnx")
    assert code == 2
    assert "your own" in error


# Training in parts


class InterruptAt(Callback):
    """Interrupts training after a step of an epoch, both counted from 1."""

    def __init__(self, epoch, step):
        self.place = (epoch - 1, step)

    def on_step_end(self, trainer):
        if (trainer.progress.iteration, trainer.progress.step) == self.place:
            trainer.interrupted = True


@pytest.mark.parametrize("ensemble_size", [1, 2])
@pytest.mark.parametrize("architecture", [Plain, WithLists, Tied])
def test_a_resumed_run_ends_with_the_same_model(architecture, ensemble_size, tmp_path):
    def ranker():
        return make(architecture, epochs=3, ensemble_size=ensemble_size)

    whole = ranker().fit(TRAIN, eval_set=NEW, run=tmp_path / "whole")
    run = tmp_path / "run"
    with pytest.raises(TrainingInterrupted, match="Stopped in epoch 2, step 1"):
        ranker().fit(TRAIN, eval_set=NEW, run=run, callbacks=[InterruptAt(2, 1)])
    with pytest.raises(tr.InputError, match=r"was started with architecture='.*', not '.*sequent"):
        make(sequential, epochs=3, ensemble_size=ensemble_size).fit(
            TRAIN, eval_set=NEW, run=run, resume=True
        )
    resumed = ranker().fit(TRAIN, eval_set=NEW, run=run, resume=True)
    assert np.array_equal(resumed.predict(NEW), whole.predict(NEW))
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("run", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    loaded = tr.Ranker.load(run, architecture=architecture)
    assert np.array_equal(loaded.predict(NEW), whole.predict(NEW))


@pytest.mark.parametrize("architecture", [Plain, Plain(FEATURES)], ids=["class", "module"])
def test_partial_fit(architecture, tmp_path):
    ranker = make(architecture).partial_fit(TRAIN)
    assert np.array_equal(ranker.predict(NEW), make(architecture).fit(TRAIN).predict(NEW))
    ranker.save(tmp_path / "model")
    first = ranker.predict(NEW)
    ranker.partial_fit(TRAIN)
    assert not np.array_equal(ranker.predict(NEW), first)
    loaded = tr.Ranker.load(tmp_path / "model", architecture=architecture).partial_fit(TRAIN)
    assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
    for other in (sequential, "Linear", "auto"):
        with pytest.raises(tr.InputError, match="cannot change the architecture"):
            ranker.set_params(architecture=other).partial_fit(TRAIN)


# scikit-learn


@pytest.mark.parametrize(
    "architecture", [Plain, sequential, Plain(FEATURES)], ids=["class", "function", "module"]
)
def test_parameters_and_clones(architecture):
    ranker = make(architecture)
    assert ranker.get_params()["architecture"] is architecture
    assert "architecture" in repr(ranker)
    ranker.fit(TRAIN)
    copy = clone(ranker)
    assert not hasattr(copy, "model_")
    assert np.array_equal(copy.fit(TRAIN).predict(NEW), ranker.predict(NEW))
    ranker.check_parameters()


def test_a_net_of_the_wrong_width_leaves_no_folder(tmp_path):
    with pytest.raises(tr.InputError, match=r"Your net cannot score X of shape .* Build it for"):
        tr.Ranker(architecture=nn.Linear(3, 1)).fit(
            tr.synthetic_web_search(queries=5), run=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_resuming_refuses_another_net_or_objective(tmp_path):
    data = tr.synthetic_web_search(queries=8)

    def first(scores, labels, lists):
        return ((scores - labels) ** 2).mean()

    def second(scores, labels, lists):
        return (scores - labels).abs().mean()

    def fit(folder, dropout=0.2, objective=first, **how):
        net = nn.Sequential(nn.Linear(136, 4), nn.Dropout(dropout), nn.Linear(4, 1))
        ranker = tr.Ranker(architecture=net, objective=objective, epochs=2)
        return ranker.fit(data, run=tmp_path / folder, **how)

    fit("run")
    with pytest.raises(tr.InputError, match="The architecture has changed since the run"):
        fit("run", dropout=0.9, resume=True)
    with pytest.raises(tr.InputError, match="The objective has changed since the run"):
        fit("run", objective=second, resume=True)
    fit("run", resume=True)
