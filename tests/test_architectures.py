"""Options of architectures: context, shared weights, numeric embeddings."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

import twinrank as tr
from twinrank.learning.models import context_layers, fused, scorer
from twinrank.learning.models.architecture import ARCHITECTURES, Architecture, architecture
from twinrank.learning.models.context_layers import AttentionBlock, PooledLinear, similar_lengths
from twinrank.learning.models.ensemble import Ensemble, build_net
from twinrank.learning.models.layers import DropoutLinear, NumericEmbedding
from twinrank.learning.models.net_model import NetModel
from twinrank.learning.models.saved_model import read_model, save_model
from twinrank.learning.models.scorer import Scorer, SharedEnsemble

pytestmark = pytest.mark.usefixtures("one_thread")

LISTS = tr.Lists.from_sizes([3, 1, 7, 0, 2, 12, 13])
FEATURES, CATEGORIES = 5, {1: 3}
OPTIONS = (
    "context=pool",
    "context=attention",
    "context=attention, heads=2, blocks=2, induced=3",
    "shared=true",
    "shared=true, context=pool, norm=none",
    "shared=true, context=attention, induced=2, norm=layer",
    "shared=true, norm=query, last_norm=true, last_activation=true",
    "embedding=linear, embedding_size=3",
    "embedding=periodic, embedding_size=3, context=pool, shared=true",
)
VARIANTS = [*ARCHITECTURES, *(f"Small(width=8, {options})" for options in OPTIONS)]
variants = pytest.mark.parametrize("name", VARIANTS)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def net(name, size=3, dtype=torch.float64, categories=CATEGORIES):
    return build_net(FEATURES, architecture(name), size, categories, seeded()).to(dtype)


def features(lists=LISTS, dtype=torch.float64):
    X = torch.randn(lists.documents, FEATURES, generator=seeded(1), dtype=torch.float64)
    X[:, 1] = X[:, 1].round().clamp(0, 4)
    return X.to(dtype)


# Every architecture


@variants
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_queries_are_scored_as_one_by_one(name, dtype, most, monkeypatch):
    monkeypatch.setattr(context_layers, "_FREE_WASTE", 0)  # several blocks
    made, X = net(name, dtype=dtype).eval(), features(dtype=dtype)
    scores = made.columns(X, LISTS)
    assert scores.shape == (len(X), 3)
    assert scores.dtype == dtype
    assert torch.isfinite(scores).all()
    for rows in LISTS:
        alone = made.columns(X[rows], tr.Lists.from_sizes([rows.stop - rows.start]))
        torch.testing.assert_close(alone, scores[rows], rtol=0, atol=most)


@variants
def test_the_order_of_documents_does_not_matter(name):
    made, X = net(name).eval(), features()
    random = np.random.default_rng(0)
    order = np.concatenate([random.permutation(np.r_[rows]) for rows in LISTS])
    moved = made(X[order], LISTS)
    torch.testing.assert_close(moved, made(X, LISTS)[order], rtol=0, atol=1e-12)


@variants
def test_per_query_says_whether_other_documents_matter(name):
    made, X = net(name, size=1).eval(), features()
    changed = X.clone()
    changed[LISTS.offsets[5]] += 1  # one document of one query
    same = made(X, LISTS) == made(changed, LISTS)
    others = np.delete(np.arange(LISTS.offsets[5], LISTS.offsets[6]), 0)
    assert same[: LISTS.offsets[5]].all()
    assert same[LISTS.offsets[6] :].all()
    assert made.per_query is not bool(same[others].all())
    if made.per_query:
        with pytest.raises(tr.InputError, match="needs the query of each document; pass lists"):
            made(X)


@variants
def test_every_weight_learns(name):
    made, X = net(name, dtype=torch.float32).train(), features(dtype=torch.float32)
    torch.manual_seed(0)
    out = made(X, LISTS)
    (out * torch.linspace(-1, 2, len(X))[:, None]).sum().backward()
    for key, weight in made.named_parameters():
        assert torch.isfinite(weight.grad).all(), key
    without = {k for k, w in made.named_parameters() if not w.grad.any() and not k.endswith("bias")}
    assert without == set()


@variants
def test_saved_and_loaded(name, tmp_path):
    made = net(name, dtype=torch.float32).eval()
    model = NetModel(features=FEATURES, net=made, ensemble_size=3)
    save_model(model, tmp_path / "model")
    loaded = read_model(tmp_path / "model")
    assert type(loaded.net) is type(made)
    X = features(dtype=torch.float32)
    assert torch.equal(loaded.net(X, LISTS), made(X, LISTS))
    path = tmp_path / "model" / "config.json"
    good = json.loads(path.read_text())
    assert Architecture.from_json(good["architecture"]) == made.architecture
    for key, value in good["architecture"].items():
        # The weights of 4 heads fit 8 as well, and a linear net has no width.
        if type(value) is not int or key == "heads" or (key == "width" and name == "Linear"):
            continue
        for wrong in (10**15, value + 1):
            changed = good["architecture"] | {key: wrong}
            path.write_text(json.dumps(good | {"architecture": changed}))
            with pytest.raises(tr.InputError, match="Cannot load"):
                read_model(tmp_path / "model")
    for wrong in (4, 10**9):
        path.write_text(json.dumps(good | {"ensemble_size": wrong}))
        with pytest.raises(tr.InputError, match="Cannot load"):
            read_model(tmp_path / "model")


def test_older_models_lack_the_options():
    plain = architecture("Small").to_json()
    names = ("context", "heads", "blocks", "induced", "shared", "embedding", "embedding_size")
    older = {key: value for key, value in plain.items() if key not in names}
    assert len(older) == len(plain) - 7
    assert Architecture.from_json(older) == architecture("Small")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MLP(context=pol)", "Did you mean 'pool'"),
        ("MLP(context=pool, depth=1)", "needs a depth of at least 2, not 1"),
        ("MLP(context=pool, norm=query)", "no effect with norm=query"),
        ("Linear(context=attention)", "needs a depth of at least 1"),
        ("MLP(context=attention, heads=3)", "100 is not one of 3"),
        ("MLP(context=attention, induced=-1)", "induced must be"),
        ("MLP(heads=2)", "heads has no effect without context=attention"),
        ("MLP(embedding_size=4)", "embedding_size has no effect without embedding="),
        ("MLP(embedding=linear, embedding_size=0)", "embedding_size must be"),
        ("MLP(shared=3)", "shared must be true or false"),
        ("Linear(shared=true)", "shared=true needs a depth of at least 1"),
    ],
)
def test_wrong_combinations_are_refused(text, message):
    with pytest.raises(tr.InputError, match=message):
        architecture(text)


def test_none_is_a_word():
    assert architecture("MLP(context=none, embedding=none)") == architecture("MLP")


# Context


def reference(layer, x, lists):
    """A pooled layer as one product of values, means and maxima side by side."""
    parts = [x[rows] for rows in lists if rows.stop > rows.start]
    pooled = [torch.cat([part.mean(0), part.amax(0)]).expand(len(part), -1) for part in parts]
    weight = torch.cat([layer.linear.weight, layer.context.weight], dim=1)
    return functional.linear(torch.cat([x, torch.cat(pooled)], dim=1), weight, layer.bias)


def test_pooling_is_a_product_with_mean_and_maximum():
    layer = PooledLinear(DropoutLinear(4, 3, 0.0), DropoutLinear(8, 3, 0.0, bias=False)).double()
    x = torch.randn(LISTS.documents, 4, dtype=torch.float64).relu().requires_grad_()  # with ties
    weights = torch.randn(LISTS.documents, 3, dtype=torch.float64)
    results = [f(x, LISTS) for f in (layer, lambda *a: reference(layer, *a))]
    torch.testing.assert_close(*results)
    inputs = [x, *layer.parameters()]
    for mine, other in zip(
        *(torch.autograd.grad((y * weights).sum(), inputs) for y in results), strict=True
    ):
        torch.testing.assert_close(mine, other)
    y = torch.randn(LISTS.documents, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: layer(y, LISTS), (y,))


def test_attention_is_a_softmax_over_the_documents_of_a_query():
    block = AttentionBlock(6, 2, 0.0).double()
    x = torch.randn(LISTS.documents, 6, dtype=torch.float64)
    attended = block._attended(block.project(block.norm(x))[:, None], LISTS)[:, 0]
    q, k, v = block.project(block.norm(x)).split(6, dim=1)
    for r in LISTS:
        for h in (slice(0, 3), slice(3, 6)):
            weights = (q[r, h] @ k[r, h].T / 3**0.5).softmax(dim=1)
            torch.testing.assert_close(attended[r, h], weights @ v[r, h])


def test_blocks_waste_little():
    random = np.random.default_rng(0)
    for sizes in (random.integers(0, 1000, 300), random.geometric(0.02, 500), np.array([5]), []):
        sizes = np.array(sizes, np.int64)
        groups = similar_lengths(sizes)
        assert sorted(np.concatenate([*groups, []])) == np.flatnonzero(sizes).tolist()
        for group in groups:
            padded = len(group) * sizes[group].max() ** 2
            assert padded <= 1.26 * (sizes[group] ** 2).sum() + context_layers._FREE_WASTE
        assert len(groups) < 25


@pytest.mark.parametrize("name", ["context=pool", "shared=true", "shared=true, context=pool"])
@pytest.mark.parametrize("dropout", [0, 0.3])
def test_fused_layers_give_the_same(name, dropout, monkeypatch):
    outcomes = []
    for is_fused in (True, False):
        monkeypatch.setattr(fused, "MIN_VALUES", 0)
        if not is_fused:
            monkeypatch.setattr(scorer, "can_fuse", lambda *_: False)
        made, X = net(f"Small(width=8, {name}, dropout={dropout})").train(), features()
        torch.manual_seed(0)
        out = made(X, LISTS)
        (out.sin() * torch.linspace(-1, 2, len(X))[:, None]).sum().backward()
        gradients = {k: w.grad for k, w in made.named_parameters()}
        outcomes.append({"scores": out.detach(), **gradients, **dict(made.named_buffers())})
    for key, value in outcomes[0].items():
        torch.testing.assert_close(value, outcomes[1][key], rtol=1e-9, atol=1e-9, msg=key)


def test_the_context_is_worth_something():
    """The three documents nearest to the mean of their query are relevant."""
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 1)).astype(np.float32)
    qid = np.repeat(np.arange(90), 10)
    X += np.repeat(3 * random.normal(size=(90, 1)), 10, axis=0).astype(np.float32)
    mean = np.repeat(X.reshape(90, 10).mean(axis=1), 10)
    y = -np.abs(X[:, 0] - mean)
    y = (y > np.repeat(np.sort(y.reshape(90, 10))[:, -4], 10)).astype(np.float32)
    quality = {}
    for options in ("", ", context=pool", ", context=attention"):
        ranker = tr.Ranker(
            "SoftmaxCrossEntropy",
            architecture=f"MLP(width=16, depth=3, dropout=0.0{options})",
            transforms="Standardise",
            epochs=10,
            batch_documents=100,
            learning_rate=0.01,
            random_state=0,
        )
        quality[options] = ranker.fit(X, y, qid=qid).score(X, y, qid=qid)
    assert min(quality[", context=pool"], quality[", context=attention"]) > quality[""] + 0.1


# Shared weights


def separated(shared):
    """The nets of an ensemble with shared weights, by themselves."""
    made = Ensemble([Scorer(FEATURES, shared.architecture, CATEGORIES) for _ in range(3)]).double()
    for k, own in enumerate(made.models):
        own.embeddings.load_state_dict(shared.embeddings.state_dict())
        for mine, theirs in zip(own.layers, shared.layers, strict=True):
            if hasattr(theirs, "scale"):
                output = torch.ones(3 * 8) if theirs.output_scale is None else theirs.output_scale
                mine.weight.data = theirs.weight * theirs.scale[k] * output.view(3, 8)[k][:, None]
                mine.bias.data = theirs.bias.view(3, 8)[k]
            else:
                for key, value in theirs.state_dict().items():
                    part = value.view(3, -1)[k] if value.ndim else value
                    getattr(mine, key).data = part.view(getattr(mine, key).shape)
    return made


@pytest.mark.parametrize("norm", ["batch", "query", "layer", "none"])
def test_nets_that_share_weights_equal_separate_ones(norm):
    shared = net(f"Small(width=8, shared=true, norm={norm}, dropout=0.0)")
    assert isinstance(shared, SharedEnsemble)
    with torch.no_grad():
        for weight in shared.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=seeded(2), dtype=torch.float64)
    own, X = separated(shared), features()
    for made in (shared.train(), own.train(), shared.eval(), own.eval()):
        made(X, LISTS)
    torch.testing.assert_close(shared.columns(X, LISTS), own.columns(X, LISTS))
    torch.testing.assert_close(shared(X, LISTS), own(X, LISTS))


def test_scales_start_as_signs_in_the_first_layer_and_as_ones_elsewhere():
    layers = [layer for layer in net("Small(shared=true)", 16).layers if hasattr(layer, "scale")]
    assert layers[0].scale.abs().eq(1).all()
    assert 0.3 < float(layers[0].scale.detach().gt(0).double().mean()) < 0.7
    assert all(layer.scale.eq(1).all() for layer in layers[1:])
    assert isinstance(net("Small(shared=true)", 1), Scorer)


def test_nets_that_share_weights_are_selected_as_a_whole():
    data, new = tr.synthetic_web_search(queries=24).split(0.6, 0.4, random_state=0)
    ranker = tr.Ranker(
        architecture="Small(width=8, shared=true, context=pool)",
        ensemble_size=3,
        epochs=4,
        clip=0.5,
        learning_rate=0.01,
        tolerance=0,
        random_state=0,
    ).fit(data, eval_set=new)
    values = [record["validation"] for record in ranker.history_]
    assert ranker.best_iteration_ == 1 + np.argmax(values)
    assert ranker.best_score_ == max(values) == pytest.approx(ranker.score(new), abs=1e-6)
    assert ranker.model_.ensemble_size == 3


# Numeric embeddings


@pytest.mark.parametrize("periodic", [False, True])
def test_each_feature_has_its_own_embedding(periodic):
    layer = NumericEmbedding(3, 4, periodic)
    layer.initialise(seeded())
    x = torch.randn(6, 3)
    expected = []
    for j in range(3):
        v = x[:, j : j + 1]
        if periodic:
            angles = 2 * np.pi * v * layer.frequencies[j]
            v = torch.cat([angles.sin(), angles.cos()], dim=1)
        expected.append((v @ layer.weight[j] + layer.bias[j]).relu())
    torch.testing.assert_close(layer(x), torch.cat(expected, dim=1))
