"""Models: the paper's nets, norms per query, embeddings, and folders that may be damaged."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import twinrank as tr
from twinrank.data.transforms import transform
from twinrank.data.transforms.combined import except_columns
from twinrank.learning.models.architecture import ACTIVATIONS, Architecture, architecture
from twinrank.learning.models.layers import DropoutLinear, draw_dropout_key
from twinrank.learning.models.net_model import NetModel
from twinrank.learning.models.saved_model import read_model, save_model
from twinrank.learning.models.scorer import QueryNorm, Scorer, score_all
from twinrank.support.random import random_word

pytestmark = pytest.mark.usefixtures("one_thread")

LISTS = tr.Lists.from_sizes([3, 1, 5, 0, 2])
NAMES = ["config.json", "history.jsonl", "model.safetensors"]
PAPER = ("R5", "CE5", "R4.L", "CE4.L")


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def kinds(scorer):
    return [type(layer).__name__ for layer in scorer.layers]


# Architectures


@pytest.mark.parametrize("features", [1, 46, 700])
@pytest.mark.parametrize("name", PAPER)
def test_the_papers_nets(name, features):
    scorer = Scorer(features, architecture(name), generator=seeded())
    activation = "ReLU" if name.startswith("R") else "CELU"
    hidden = ["DropoutLinear", "BatchNorm1d", activation]
    last = ["Linear", activation] if name.endswith("5") else ["Linear"]
    assert kinds(scorer) == hidden * 4 + last
    sizes = [x.weight.shape for x in scorer.layers if isinstance(x, nn.Linear)]
    assert sizes == [(100, features), (100, 100), (100, 100), (100, 100), (1, 100)]
    dropped = [x.p for x in scorer.layers if isinstance(x, DropoutLinear)]
    assert dropped == [0, 0.01, 0.01, 0.01]


def test_explicit_options_win_over_paper_mode():
    chosen = architecture("MLP(norm=layer, depth=1)", "paper")
    assert (chosen.norm, chosen.last_norm) == ("layer", True)


@pytest.mark.parametrize("part", ["activation", "norm", "dropout", "last_activation", "width"])
def test_an_architecture_is_read_whole(part):
    plain = architecture("Small").to_json()
    assert Architecture.from_json(plain) == architecture("Small")
    del plain[part]
    with pytest.raises(tr.InputError, match=f"is damaged: it has no {part}"):
        Architecture.from_json(plain)


@pytest.mark.parametrize("name", PAPER)
def test_paper_mode_normalises_everywhere_by_query(name):
    scorer = Scorer(9, architecture(name, "paper"))
    activation = "ReLU" if name.startswith("R") else "CELU"
    hidden = ["DropoutLinear", "QueryNorm", activation]
    last = ["Linear", "QueryNorm"] + [activation] * name.endswith("5")
    assert kinds(scorer) == hidden * 4 + last
    assert scorer.architecture.per_query


def test_weights_are_xavier_normal_and_come_from_one_generator():
    before = torch.get_rng_state()
    first, second = (Scorer(300, architecture("CE4.L"), {0: 3}, seeded(5)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    linear = first.layers[0]
    expected = (2 / (linear.in_features + linear.out_features)) ** 0.5
    assert float(linear.weight.detach().std()) == pytest.approx(expected, rel=0.03)
    assert not linear.bias.any()


def test_every_option_can_be_changed():
    for activation in ACTIVATIONS:
        chosen = architecture(f"MLP(width=7, depth=2, activation={activation}, dropout=0.5)")
        scorer = Scorer(4, chosen, generator=seeded()).eval()
        assert scorer(torch.randn(6, 4)).shape == (6,)
        assert [x.p for x in scorer.layers if isinstance(x, DropoutLinear)] == [0, 0.5]
    assert kinds(Scorer(4, architecture("Linear"))) == ["Linear"]
    assert kinds(Scorer(4, architecture("MLP(depth=1, norm=layer)")))[1] == "LayerNorm"
    assert architecture(Architecture(width=3)).width == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CE4L", "Did you mean 'CE4.L'"),
        ("MLP(wdth=3)", "Did you mean 'width'"),
        ("MLP(width=0)", "width must be a whole number of at least 1"),
        ("MLP(width=true)", "width must be"),
        ("MLP(depth=-1)", "depth must be"),
        ("MLP(dropout=1)", "dropout must be"),
        ("MLP(dropout=true)", "dropout must be"),
        ("MLP(activation=rely)", "Did you mean 'relu'"),
        ("MLP(norm=quary)", "Did you mean 'query'"),
        ("MLP(last_norm=5)", "last_norm must be true or false"),
        ("MLP(width=3)@5", "has no cutoff"),
        ("MLP(width=3", "Can't read"),
    ],
)
def test_wrong_architectures_are_refused(text, message):
    with pytest.raises(tr.InputError, match=message):
        architecture(text)
    with pytest.raises(tr.InputError, match="Did you mean 'paper'"):
        architecture("R5", "papre")


# Statistics per query


def test_query_norm_is_batch_norm_of_each_query_by_itself():
    """Values and gradients, in double precision."""
    mine, torchs = QueryNorm(4).double(), nn.BatchNorm1d(4, track_running_stats=False).double()
    for norm in (mine, torchs):
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([1.0, 2.0, -0.5, 0.3]))
            norm.bias.copy_(torch.tensor([0.1, 0.0, 3.0, -1.0]))
    lists = tr.Lists.from_sizes([3, 2, 5, 0, 40])
    x = torch.randn(50, 4, dtype=torch.float64, generator=seeded()) * 3 + 7
    weights = torch.randn(50, 4, dtype=torch.float64, generator=seeded(1))
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    pieces = [torchs(part) for part in inputs[1].split(lists.sizes.tolist()) if len(part)]
    results = [mine(inputs[0], lists), torch.cat(pieces)]
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    for result in results:
        (result * weights).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(mine.weight.grad, torchs.weight.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(mine.bias.grad, torchs.bias.grad, rtol=1e-10, atol=1e-12)


def test_query_norm_passes_gradcheck():
    norm = QueryNorm(2).double()
    x = torch.randn(11, 2, dtype=torch.float64, generator=seeded(), requires_grad=True)
    lists = tr.Lists.from_sizes([4, 2, 5])
    assert torch.autograd.gradcheck(lambda v: norm(v, lists), (x,))


@pytest.mark.parametrize("name", PAPER)
def test_paper_mode_with_one_query_a_step_is_plain_batch_norm(name):
    mine = Scorer(6, architecture(f"{name}(dropout=0)", "paper"), generator=seeded())
    plain = architecture(f"{name}(dropout=0, last_norm=true)")
    torchs = Scorer(6, plain, generator=seeded())  # in training mode: statistics of the batch
    x, lists = torch.randn(20, 6, generator=seeded(2)), tr.Lists.from_sizes([20])
    want = torchs(x)
    for training in (True, False):
        torch.testing.assert_close(mine.train(training)(x, lists), want, rtol=1e-4, atol=1e-5)
    gradients = [
        torch.autograd.grad(s(x, lists).sin().sum(), s.layers[0].weight) for s in (mine, torchs)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def test_a_query_does_not_depend_on_others_in_paper_mode():
    scorer = Scorer(5, architecture("CE4.L", "paper"), generator=seeded()).eval()
    x = torch.randn(11, 5, generator=seeded())
    together, start = scorer(x, LISTS), 0
    for size in LISTS.sizes:
        alone = scorer(x[start : start + size], tr.Lists.from_sizes([size]))
        torch.testing.assert_close(together[start : start + size], alone)
        start += size
    with pytest.raises(tr.InputError, match="pass lists"):
        scorer(x)


def test_in_the_default_mode_a_document_is_scored_by_itself():
    scorer = Scorer(5, architecture("CE4.L"), generator=seeded()).eval()
    x = torch.randn(11, 5, generator=seeded())
    torch.testing.assert_close(scorer(x)[3:4], scorer(x[3:4]))


# Categories


def test_categories_have_embeddings():
    scorer = Scorer(3, architecture("Linear"), {1: 4}, seeded()).eval()
    x = torch.zeros(8, 3)
    x[:, 1] = torch.tensor([0, 1, 2, 3, 4, -1, 0.5, torch.nan])
    scores = scorer(x)
    assert len(set(scores[:5].tolist())) == 5
    assert torch.equal(scores[4:], scores[4].expand(4))  # all that is unknown is one category
    assert Scorer(1, architecture("Linear"), {0: 2}, seeded())(torch.zeros(2, 1)).shape == (2,)
    assert Scorer(1, architecture("Linear"), {"0": 2}).categories == {0: 2}


@pytest.mark.parametrize(
    "wrong", [5, [1], {3: 2}, {-1: 2}, {0: 0}, {0: 1.5}, {"x": 2}, {0: True}, {0: "3"}]
)
def test_wrong_categories_are_refused(wrong):
    with pytest.raises(tr.InputError, match="categor"):
        Scorer(3, architecture("Linear"), wrong)


@pytest.mark.parametrize("name", ["QueryZScore", "Standardise", "SignedLog1p + QueryMinMax"])
def test_a_transform_leaves_categories_alone(name):
    X = np.random.default_rng(0).random((11, 3), np.float32)
    X[:, 1] = np.arange(11)
    plain = transform(name).fit(X, LISTS)
    mine = except_columns(transform(name), {1: 11}).fit(X, LISTS)
    for out in (None, X.copy()):
        result = mine(X if out is None else out, LISTS, out=out)
        assert np.array_equal(result[:, 1], X[:, 1])
        assert np.array_equal(result[:, [0, 2]], plain(X, LISTS)[:, [0, 2]])
    assert mine.to_json() == plain.to_json()
    assert mine.per_query == plain.per_query == (name != "Standardise")


def test_a_category_appears_once_beside_transforms_side_by_side():
    X = np.random.default_rng(0).random((11, 3), np.float32)
    X[:, 1] = np.arange(11)
    union = transform("PiecewiseLinear(bins=2) | QueryZScore")
    plain = union.fit(X, LISTS)
    mine = except_columns(union, {1: 11}).fit(X, LISTS)
    assert plain.sources(3).tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    assert mine.sources(3).tolist() == [0, 1, 0, 2, 2, 0, 2]
    assert mine.outputs(3) == 7
    result = mine(X, LISTS)
    assert np.array_equal(result[:, 1], X[:, 1])
    others = plain(X, LISTS)[:, [0, 1, 4, 5, 6, 8]]
    assert np.array_equal(result[:, [0, 2, 3, 4, 5, 6]], others)
    every = except_columns(union, {0: 1, 1: 11, 2: 1}).fit(X, LISTS)
    assert np.array_equal(every(X, LISTS), X)


def test_a_category_decides():
    """Relevance depends on a category in a way that no linear function of its number gives."""
    random = np.random.default_rng(0)
    X = random.random((600, 2), np.float32)
    X[:, 1] = random.integers(0, 6, 600)
    y = np.isin(X[:, 1], [1, 4])
    qid = np.repeat(np.arange(30), 20)
    ranker = tr.Ranker(
        "AP", architecture="Linear", categorical_features=[1], epochs=60, learning_rate=0.1
    )
    assert ranker.fit(X, y, qid=qid).score(X, y, qid=qid) > 0.999
    assert ranker.model_.per_query


# Folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model that has every part."""
    scorer = Scorer(4, architecture("CE4.L(width=5, depth=2)"), {3: 2}, seeded()).eval()
    X = np.random.default_rng(0).random((11, 4), np.float32)
    fitted = except_columns(transform("Standardise"), {3: 2}).fit(X, LISTS)
    model = NetModel(
        net=scorer,
        transform=fitted,
        features=4,
        feature_names=("a", "b", "c", "é"),
        best_iteration=2,
        best_score=0.5,
        provenance={"parameters": {"epochs": 3}},
        history=[{"iteration": 1, "seconds": 0.1}, {"iteration": 2, "seconds": 0.2}],
    )
    path = tmp_path_factory.mktemp("models") / "model"
    save_model(model, path)
    return path


def dataset():
    X = np.random.default_rng(1).random((11, 4), np.float32)
    return tr.Dataset.from_arrays(X, np.zeros(11), group=[3, 1, 5, 2])


def test_a_folder_holds_everything(folder, tmp_path):
    assert sorted(p.name for p in folder.iterdir()) == NAMES
    assert len({p.stat().st_mode for p in folder.iterdir()}) == 1  # all may be read by the same
    before = torch.get_rng_state()
    model = read_model(folder)
    assert torch.equal(before, torch.get_rng_state())
    assert model.feature_names == ("a", "b", "c", "é")
    assert model.provenance == {"parameters": {"epochs": 3}}
    assert (model.best_iteration, model.best_score) == (2, 0.5)
    assert [record["iteration"] for record in model.history] == [1, 2]
    save_model(model, tmp_path / "again")
    for name in NAMES:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    scores = model.score(dataset())
    assert np.array_equal(read_model(tmp_path / "again").score(dataset()), scores)
    assert np.allclose(model.score(dataset(), 3), scores, atol=1e-6)  # other batches
    save_model(model, tmp_path / "again")  # over a model


def test_only_models_are_overwritten(folder, tmp_path):
    model = read_model(folder)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    for name in ("file", "mine"):
        with pytest.raises(tr.InputError, match="exists and is not a model"):
            save_model(model, tmp_path / name)
    (tmp_path / "empty").mkdir()
    save_model(model, tmp_path / "empty")
    assert read_model(tmp_path / "empty").net.features == 4


WRONG = [None, True, -1, 0, 3, 1.5, 10**15, "x", [], ["a"], {}, {"a": 1}, [[]], {"0": "x"}]
KEYS = ["format", "version", "kind", "features", "architecture", "categories", "transform"]
KEYS += ["ensemble_size", "provenance"]
FINE = [
    ("categories", {}),
    ("provenance", {}),
    ("provenance", {"a": 1}),
    ("provenance", {"0": "x"}),
]


@pytest.fixture
def damaged(folder, tmp_path):
    """A copy of the model, and a function that says how loading it fails."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)

    def refused(match="copy"):
        with pytest.raises(tr.InputError, match=match) as caught:
            read_model(copy)
        assert "copy" in str(caught.value)
        return True

    return copy, refused


def test_wrong_values_at_every_key(damaged):
    copy, refused = damaged
    good = json.loads((copy / "config.json").read_text())
    cases = [(key, value) for key in KEYS for value in WRONG if (key, value) not in FINE]
    cases += [("feature_names", value) for value in WRONG if value is not None]
    cases += [("feature_names", "abcd"), ("feature_names", [1, 2, 3, 4]), ("version", 3)]
    cases += [("best_iteration", value) for value in (-1, 1.5, True, "x", [])]
    cases += [("best_score", value) for value in (True, "x", [], {})]
    cases += [("provenance", {"parameters": 5}), ("categories", {"3": 3}), ("categories", {})]
    for key, value in cases:
        (copy / "config.json").write_text(json.dumps(good | {key: value}))
        assert refused(), (key, value)
    for key in KEYS:
        (copy / "config.json").write_text(json.dumps({k: v for k, v in good.items() if k != key}))
        assert refused()
    for part in ("architecture", "transform"):
        for key, was in good[part].items():
            either = "last" in key or key == "shared"  # one net shares nothing
            fine = [was, 0] if key == "dropout" else [True, False] if either else [was]
            for value in WRONG:
                if not any(value == x and type(value) is type(x) for x in fine):
                    changed = good | {part: good[part] | {key: value}}
                    (copy / "config.json").write_text(json.dumps(changed))
                    assert refused(), (part, key, value)


def test_a_damaged_config_is_refused(damaged):
    copy, refused = damaged
    whole = (copy / "config.json").read_bytes()
    for content in (b"", b"{", b"\xff\xfe\x00", b"[1]", b"null", whole[:-9], b"[" * 99_999):
        (copy / "config.json").write_bytes(content)
        assert refused()
    (copy / "config.json").write_text(json.dumps(json.loads(whole) | {"version": 3}))
    assert refused("version 3 of the format; this TwinRank reads 2")
    (copy / "config.json").unlink()
    assert refused(r"it has no config\.json")
    shutil.rmtree(copy)
    assert refused("is not a model")
    copy.write_text("a file")
    assert refused("is not a model")


def test_damaged_weights_are_refused(damaged):
    copy, refused = damaged
    path = copy / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert refused("model.safetensors is damaged")
    for content in (whole + b"x", b"\xff" * 200, bytes(200), b"\x80\x04K\x01."):
        path.write_bytes(content)
        assert refused("model.safetensors is damaged")
    path.unlink()
    assert refused(r"There is no model\.safetensors")


def test_weights_of_another_shape_are_refused(damaged):
    copy, refused = damaged
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"checksums": {}}))
    path = copy / "model.safetensors"
    good = load_file(path)
    name = "layers.0.weight"
    cases = [
        ({name: good[name][:, :3].contiguous()}, "has shape"),
        ({name: good[name][:4].contiguous()}, "has shape"),
        ({name: good[name].double()}, "type"),
        ({name: torch.full_like(good[name], torch.nan)}, "are not finite"),
        ({name: torch.full_like(good[name], torch.inf)}, "are not finite"),
        ({"layers.1.running_var": torch.full((5,), -1.0)}, "negative variance"),
        ({"other": torch.zeros(3)}, "unknown tensor other"),
    ]
    for change, message in cases:
        save_file(good | change, path)
        assert refused(message)
    save_file({k: v for k, v in good.items() if k != name}, path)
    assert refused(f"lacks tensor {name}")
    save_file({}, path)
    assert refused("too few")


def dropout_mask(shape, p):
    """The mask of the next dropout, in plain NumPy."""
    first, second, below = draw_dropout_key(p)
    words = random_word(first, second, np.arange(shape.numel(), dtype=np.uint32))
    return torch.from_numpy(words < below).view(shape)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_dropout_drops_every_value_alike_and_independently(p):
    torch.manual_seed(0)
    first, second = torch.zeros(2, 2000, 50, dtype=torch.bool)
    for mask in (first, second):
        mask[:] = dropout_mask(mask.shape, p)
    deviation = (p * (1 - p) / first.numel()) ** 0.5
    assert abs(first.float().mean() - p) < 5 * deviation
    for a, b in ((first, second), (first[:, 1:], first[:, :-1]), (first[1:], first[:-1])):
        both = (a & b).float().mean()
        assert abs(both - p * p) < 5 * (p * p * (1 - p * p) / a.numel()) ** 0.5 + 1e-6
    for half in (first[:1000], first[1000:], first[:, :25], first[:, 25:]):
        assert abs(half.float().mean() - p) < 6 * deviation


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["batch", "query", "layer", "none"])
def test_gradients_with_dropout_are_those_of_a_mask(activation, norm):
    chosen = architecture(
        f"MLP(width=6, depth=3, dropout=0.3, norm={norm}, activation={activation})"
    )
    scorer = Scorer(4, chosen, generator=seeded()).double().train()
    X, lists = (
        torch.randn(30, 4, dtype=torch.float64, generator=seeded(1)),
        tr.Lists.from_sizes([20, 10]),
    )
    torch.manual_seed(3)
    scorer(X, lists).pow(2).sum().backward()
    gradients = [p.grad.clone() for p in scorer.parameters()]
    scorer.zero_grad()
    torch.manual_seed(3)
    x = X
    for layer in scorer.layers:  # the same, written out of place
        if isinstance(layer, DropoutLinear):
            left = x.masked_fill(dropout_mask(x.shape, layer.p), 0) / (1 - layer.p)
            x = nn.functional.linear(left, layer.weight, layer.bias)
        else:
            x = layer(x, lists) if isinstance(layer, QueryNorm) else layer(x.clone())
    x.squeeze(-1).pow(2).sum().backward()
    for a, p in zip(gradients, scorer.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-9, atol=1e-9)


def test_dropout_is_for_training_and_leaves_the_mean_as_it_is():
    layer = DropoutLinear(50, 1, 0.25).double()
    x = torch.rand(4000, 50, dtype=torch.float64)
    plain = nn.functional.linear(x, layer.weight, layer.bias)
    assert layer.eval()(x).equal(plain)
    torch.manual_seed(0)
    dropped = layer.train()(x.clone())
    assert not dropped.equal(plain)
    assert float((dropped - plain).detach().mean()) == pytest.approx(0, abs=0.02)
    assert DropoutLinear(50, 1, 0.0).train()(x.float()).shape == (4000, 1)
    torch.manual_seed(0)
    assert layer(x.clone()).equal(dropped)  # torch's generator alone decides


def test_parts_of_the_scoring_add_up_to_the_same_bits():
    data = tr.synthetic_web_search(queries=11)
    scorer = Scorer(136, architecture("CE4.L(width=9)"), generator=seeded())
    arguments = (scorer, data, transform("QueryZScore"), 250)
    parts = [score_all(*arguments, part=(i, 3)) for i in range(3)]
    assert all((part == 0).any() and (part != 0).any() for part in parts)
    assert np.array_equal(sum(parts), score_all(*arguments))
