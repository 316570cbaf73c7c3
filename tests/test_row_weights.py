"""Weights of documents: references in float64, properties, and the way from data to a ranker."""

import lightgbm as lgb
import numpy as np
import polars as pl
import pytest
import torch
from torch.nn.functional import softplus

import twinrank as tr
from reference import differentiable_ranks
from twinrank.core.lists.row_weights import query_and_document_weights, weighted_gains
from twinrank.core.losses import LOSSES
from twinrank.core.measures import MEASURES
from twinrank.core.measures.dcg import DCG
from twinrank.experiments.study.method_comparison import comparison_study
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.tuning.space import for_weights_of_rows, spaces_of
from twinrank.learning.models.score_map import fit_map
from twinrank.learning.training.callbacks import TrainingInterrupted

LISTS = tr.Lists.from_sizes([6, 4, 9])
RANDOM = np.random.default_rng(0)
SCORES = RANDOM.normal(size=19)
LABELS = RANDOM.integers(0, 4, 19).astype(float)
LABELS[[0, 7, 12]] = 2  # every list counts
ROWS = RANDOM.integers(0, 5, 19).astype(float)
ROWS[[0, 7, 12]] = 3
STRATEGIES = ("type1", "type2", "type3")


def relative(rows):
    return np.concatenate([rows[part] / rows[part].mean() for part in LISTS])


def tensors(*arrays):
    return [torch.from_numpy(np.asarray(array, float)) for array in arrays]


def loss_and_gradient(loss, *arguments, scores=SCORES, lists=LISTS):
    own = torch.tensor(scores, requires_grad=True)
    labels, *weights = tensors(*arguments)
    torch.manual_seed(0)
    value = loss(own, labels, lists, *weights)
    value.sum().backward()
    return value.detach().numpy(), own.grad.numpy()


# Weights of queries and documents


def test_weights_of_queries_and_of_documents():
    queries, documents = query_and_document_weights(ROWS, LISTS)
    assert queries == pytest.approx([ROWS[part].mean() for part in LISTS])
    assert documents == pytest.approx(relative(ROWS))
    same = np.array([0.1, 0.7, 0.3])
    queries, documents = query_and_document_weights(LISTS.spread(same), LISTS)
    assert documents is None
    assert np.array_equal(queries, same)  # a mean of equal numbers may differ in the last bit
    mixed = np.where(LISTS.index(ROWS) == 1, 0.1, ROWS)
    queries, documents = query_and_document_weights(mixed, LISTS)
    assert queries[1] == 0.1
    assert (documents[6:10] == 1).all()
    for factor in (1e308 / 5, 1e-300):
        assert query_and_document_weights(ROWS * factor, LISTS)[1] == pytest.approx(relative(ROWS))
    zero = np.where(LISTS.index(ROWS) == 1, 0.0, ROWS)
    queries, documents = query_and_document_weights(zero, LISTS)
    assert queries[1] == 0
    assert (documents[6:10] == 1).all()
    on_torch = query_and_document_weights(
        torch.from_numpy(mixed), tr.Lists.from_sizes([6, 4, 0, 9])
    )
    assert on_torch[1].numpy() == pytest.approx(query_and_document_weights(mixed, LISTS)[1])


# Measures


def by_rank(gain, ranks, k):
    """Σ gain / log2(1 + rank) up to k."""
    return sum(g / torch.log2(1 + r) for g, r in zip(gain, ranks, strict=True) if r < k + 0.5)


def counted(gain, ranks, k):
    """Σ gain up to k, as the paper writes counts: rank / rank′ with the gradient in rank′."""
    pairs = zip(gain, ranks, strict=True)
    return sum(g * r.detach().round() / r for g, r in pairs if r < k + 0.5)


def ideal(gain):
    return torch.argsort(torch.argsort(gain, descending=True)).double() + 1


def ndcg(gain, ranks, k):
    return by_rank(gain, ranks, k) / by_rank(gain, ideal(gain), k)


LISTED = torch.tensor([0.0, 1.0, 5.0, 6.0])
# For one list: the gain of a label, and the value of gains that are multiplied by weights.
ADDITIVE = {
    "nDCG@3": (lambda y: 2**y - 1, lambda g, r: ndcg(g, r, 3)),
    "nDCG(gain=linear)": (lambda y: y, lambda g, r: ndcg(g, r, 99)),
    "nDCG(gain=[0, 1, 5, 6])@5": (lambda y: LISTED[y.long()], lambda g, r: ndcg(g, r, 5)),
    "DCG@4": (lambda y: 2**y - 1, lambda g, r: by_rank(g, r, 4)),
    "P@3": (lambda y: y >= 1, lambda g, r: counted(g, r, 3) / 3),
    "P(rel=2)@3": (lambda y: y >= 2, lambda g, r: counted(g, r, 3) / 3),
    "P(gain=linear)@3": (lambda y: y, lambda g, r: counted(g, r, 3) / 3),
    "Recall@4": (lambda y: y >= 1, lambda g, r: counted(g, r, 4) / g.sum()),
    "Recall(rel=2)@4": (lambda y: y >= 2, lambda g, r: counted(g, r, 4) / g.sum()),
    "SetF(beta=2)@3": (lambda y: y >= 1, lambda g, r: 3 * counted(g, r, 3) / (2 * g.sum() + 3)),
    "RBP(p=0.6)": (lambda y: y >= 1, lambda g, r: 0.4 * (g * 0.6 ** (r - 1)).sum()),
    "0.7 * nDCG@3 + 0.3 * P@2": None,
}


def reference(name, part, strategy):
    """The value of a list and its gradient, by autograd through the ranks of the paper."""
    scores, labels, rows = tensors(SCORES[part], LABELS[part], ROWS[part])
    gain_of, value_of = ADDITIVE[name]
    gain = gain_of(labels) * rows / rows.mean()
    scores.requires_grad_()
    ranks = differentiable_ranks(scores, gain, -torch.arange(len(gain)), strategy, 1.0)
    value = value_of(gain, ranks)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.item(), gradient.numpy()


@pytest.mark.parametrize("name", [name for name in ADDITIVE if ADDITIVE[name]])
def test_credits_are_multiplied(name):
    for strategy in STRATEGIES:
        expected = [reference(name, part, strategy) for part in LISTS]
        for kernel in ("auto", "torch"):
            loss = tr.DirectLoss(name, strategy, reduction="none", kernel=kernel)
            value, gradient = loss_and_gradient(loss, LABELS, ROWS)
            weights = np.array([ROWS[part].mean() for part in LISTS])
            share = weights  # without a reduction, a list's loss is multiplied by its weight
            np.testing.assert_allclose(value, -share * [v for v, _ in expected], rtol=1e-9)
            wanted = -LISTS.spread(share) * np.concatenate([g for _, g in expected])
            np.testing.assert_allclose(gradient, wanted, rtol=1e-7, atol=1e-12)
    values = [v for v, _ in expected]
    np.testing.assert_allclose(tr.measure(name)(SCORES, LABELS, LISTS, ROWS), values)
    found = tr.evaluate(SCORES, LABELS, LISTS, [name], weights=ROWS)
    np.testing.assert_allclose(found.values[name], values)


def test_weights_in_sums_of_measures():
    text = "0.7 * nDCG(label=a)@3 + 0.3 * P(label=b)@2"
    columns = {"a": LABELS, "b": LABELS[::-1].copy()}
    parts = {"nDCG@3": LABELS, "P@2": LABELS[::-1].copy()}
    found = tr.evaluate(SCORES, columns, LISTS, [text], weights=ROWS)
    a, b = (tr.measure(n)(SCORES, y, LISTS, ROWS, empty="zero") for n, y in parts.items())
    np.testing.assert_allclose(found.values[text], 0.7 * a + 0.3 * b)
    both = np.column_stack([LABELS, *columns.values()])
    loss = tr.DirectLoss(text, "type1", reduction="sum")
    value, gradient = loss_and_gradient(loss, both, ROWS)
    queries = np.array([ROWS[part].mean() for part in LISTS])
    np.testing.assert_allclose(value, -(queries * found.values[text]).sum())
    single = [
        loss_and_gradient(tr.DirectLoss(n, "type1", reduction="sum"), y, ROWS)[1]
        for n, y in parts.items()
    ]
    np.testing.assert_allclose(gradient, 0.7 * single[0] + 0.3 * single[1], atol=1e-12)


def test_which_measures_take_weights():
    taking = {kind.name for kind in MEASURES if kind().takes_weights}
    assert taking == {"nDCG", "DCG", "P", "Recall", "SetF", "RBP"}
    for kind in MEASURES:
        own = kind(cutoff=5)
        if own.takes_weights:
            weighted, labels = own.weighted(LABELS, np.ones(19))
            values = weighted(SCORES, labels, LISTS)
            assert np.array_equal(values, own(SCORES, LABELS, LISTS)), own.name  # every bit
            continue
        for run in (
            lambda own=own: own(SCORES, LABELS, LISTS, ROWS),
            lambda own=own: tr.evaluate(SCORES, LABELS, LISTS, [own], weights=ROWS),
            lambda own=own: loss_and_gradient(tr.DirectLoss(own), LABELS, ROWS),
        ):
            with pytest.raises(tr.InputError, match=f"{own} is not a sum of gains"):
                run()
        same = LISTS.spread(np.array([1.0, 2.0, 3.0]))
        assert np.array_equal(own(SCORES, LABELS, LISTS, same), own(SCORES, LABELS, LISTS))
    assert not tr.measure("0.5 * nDCG + AP").takes_weights
    sum_of_both = tr.measure("0.5 * nDCG + AP")
    with pytest.raises(tr.InputError, match="AP is not a sum of gains"):
        sum_of_both(SCORES, LABELS, LISTS, ROWS)
    default = tr.evaluate(SCORES, LABELS, LISTS, weights=ROWS)
    assert list(default.values) == ["nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "nDCG", "P@5"]


def test_another_credit_takes_no_weights():
    """Weights would multiply the wrong gains."""

    class Squares(DCG):
        name = "Squares"

        def credit(self, labels, lists):
            return labels**2

    class Louder(DCG):
        """Its credit is that of DCG."""

        def discount(self, rank):
            return 1 / rank

    assert not Squares().takes_weights
    with pytest.raises(tr.InputError, match="Squares is not a sum of gains"):
        Squares()(SCORES, LABELS, LISTS, ROWS)
    assert Louder().takes_weights
    own = tr.Measure.from_functions("Own", lambda y, lists: y, lambda r: 1 / r)
    with pytest.raises(tr.InputError, match="Own is not a sum of gains"):
        tr.evaluate(SCORES, LABELS, LISTS, [own], weights=ROWS)


def test_a_weight_of_0_is_a_label_of_0():
    without = np.where(ROWS == 0, 0, LABELS)
    assert not np.array_equal(without, LABELS)
    for name in ADDITIVE:
        values = (tr.measure(name)(SCORES, y, LISTS, ROWS) for y in (LABELS, without))
        assert np.array_equal(*values), name
        for strategy in STRATEGIES:
            loss = tr.DirectLoss(name, strategy)
            results = [loss_and_gradient(loss, y, ROWS) for y in (LABELS, without)]
            assert np.array_equal(results[0][1], results[1][1]), name
    nothing = np.where(LISTS.index(ROWS) == 1, 0.0, 1.0)
    alone = np.where((LABELS > 0) & (nothing == 0), 0.0, 1.0)  # relevant ones of one list
    assert np.isnan(tr.measure("nDCG")(SCORES, LABELS, LISTS, alone)[1])


@pytest.mark.parametrize("ties", ["random", "stable", "average", "relevant"])
def test_ties_of_weighted_documents(ties):
    scores = np.round(SCORES)
    names = ["nDCG@3", "P@2", "Recall"]
    found = tr.evaluate(scores, LABELS, LISTS, names, weights=ROWS, ties=ties)
    linear = {"nDCG@3": 2**LABELS - 1, "P@2": LABELS >= 1, "Recall": LABELS >= 1}
    for name, gain in linear.items():
        base, _, cutoff = name.partition("@")
        own = f"{base}(gain=linear)" + (f"@{cutoff}" if cutoff else "")
        again = tr.evaluate(scores, gain * relative(ROWS), LISTS, [own], ties=ties)
        if ties != "relevant":  # which orders ties by label, here not by gain
            np.testing.assert_allclose(found.values[name], again.values[own], rtol=1e-10)


def test_many_documents_in_evaluation():
    """The first k documents are selected without a sort of the others."""
    random = np.random.default_rng(1)
    lists = tr.Lists.from_sizes(np.full(400, 100))
    scores, rows = random.normal(size=40_000), random.random(40_000)
    labels = random.integers(0, 4, 40_000)
    found = tr.evaluate(scores, labels, lists, ["nDCG@5", "Recall@3"], weights=rows)
    for name in found.values:
        np.testing.assert_allclose(
            found.values[name], tr.measure(name)(scores, labels, lists, rows), rtol=1e-12
        )


def test_compare_takes_weights():
    systems = {"a": SCORES, "b": -SCORES}
    found = tr.compare(systems, LABELS, LISTS, ["nDCG@3"], weights=ROWS)
    alone = tr.evaluate(SCORES, LABELS, LISTS, ["nDCG@3"], weights=ROWS)
    assert found.means["a"]["nDCG@3"] == alone["nDCG@3"]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (ROWS[1:], "weights has shape"),
        (ROWS - 9, "finite and not negative"),
        (np.where(ROWS == 3, np.nan, ROWS), "finite and not negative"),
        (np.where(ROWS == 3, np.inf, ROWS), "finite and not negative"),
    ],
)
def test_weights_that_cannot_be_used(weights, message):
    for run in (
        lambda: tr.evaluate(SCORES, LABELS, LISTS, ["nDCG"], weights=weights),
        lambda: tr.measure("nDCG")(SCORES, LABELS, LISTS, weights),
        lambda: loss_and_gradient(tr.DirectLoss("nDCG"), LABELS, weights),
        lambda: loss_and_gradient(tr.MSE(), LABELS, weights),
    ):
        with pytest.raises(tr.InputError, match=message):
            run()


@pytest.mark.parametrize("unit", [1 / 3, 0.1, 7.0, 1e9])
def test_the_unit_of_weights_makes_no_difference(unit):
    """Equal products of gains and weights stay ties, also if the weights are rounded."""
    random = np.random.default_rng(2)
    lists = tr.Lists.from_sizes([50] * 40)
    labels, rows = random.integers(0, 3, 2000), random.choice([1.0, 3.0], 2000)
    scores = random.normal(size=2000)
    for loss in (tr.DirectLoss("DCG@5"), tr.LambdaRank()):
        gradients = [
            loss_and_gradient(loss, labels, w, scores=scores, lists=lists)[1]
            for w in (rows, rows * unit)
        ]
        np.testing.assert_allclose(*gradients, rtol=1e-7, atol=1e-12)


# Losses

TAKING = [kind for kind in LOSSES if kind.weighted_per_list is not tr.ListMLE.weighted_per_list]


def test_which_losses_take_weights():
    names = {kind.name for kind in LOSSES} - {kind.name for kind in TAKING}
    assert names == {"ListMLE", "PListMLE", "WassRank", "ADRMSE"}
    for kind in LOSSES:
        if kind not in TAKING:
            with pytest.raises(tr.InputError, match=f"{kind.name} takes no weights that differ"):
                loss_and_gradient(kind(), LABELS, ROWS)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_weights_that_are_equal_within_lists_change_no_bit(reduction):
    queries = np.array([0.1, 0.7, 0.3])
    losses = [kind(reduction=reduction) for kind in LOSSES]
    losses += [tr.DirectLoss(n, "type2", 1, 1.0, 3, reduction=reduction) for n in ("AP", "nDCG@3")]
    for loss in losses:
        results = [loss_and_gradient(loss, LABELS, w) for w in (queries, LISTS.spread(queries))]
        for x, y in zip(*results, strict=True):
            assert np.array_equal(x, y), loss


def one_list(kind, scores, labels, weights):
    """The loss of one list, from the definition."""
    gain = (2**labels - 1) * weights
    above = gain[:, None] > gain[None, :]
    ranks = ideal(scores)
    ahead = scores[:, None] - scores[None, :]
    D = 1 / torch.log2(1 + ranks)
    best = (gain.sort(descending=True)[0] / torch.log2(torch.arange(len(gain)).double() + 2)).sum()
    log_q = torch.log_softmax(scores, 0)
    match kind.name:
        case "ListNet":
            p = weights * labels.exp()
            return -(p / p.sum() * log_q).sum()
        case "SoftmaxCrossEntropy":
            p = weights * labels
            return -(p / p.sum() * log_q).sum()
        case "MSE":
            return (weights * (scores - labels) ** 2).sum() / weights.sum()
        case "SigmoidCrossEntropy":
            b = (labels >= 1).double()
            return (weights * (softplus(scores) - b * scores)).sum() / weights.sum()
        case "RankNet":
            pairs = (labels[:, None] > labels[None, :]) * weights[:, None]
            return (pairs * softplus(-ahead)).sum() / pairs.sum()
        case "ApproxNDCG":
            soft = 0.5 + torch.sigmoid(-10 * ahead).sum(1)
            return -(gain / torch.log2(1 + soft)).sum() / best
        case "LambdaRank":
            change = ((gain[:, None] - gain) * (D[:, None] - D)).abs() / best
            return (above * change * softplus(-ahead)).sum()
        case "LambdaLoss":
            between = (ranks[:, None] - ranks).abs()
            near = 1 / torch.log2(1 + between) - 1 / torch.log2(2 + between)
            change = (gain[:, None] - gain).abs() / best
            both = (D[:, None] - D).abs() + 10 * torch.where(above, near, 0.0)
            return (above * change * both * softplus(-ahead)).sum() / np.log(2)
        case "NDCGLoss1":
            others = softplus(-ahead) * (1 - torch.eye(len(gain)))
            return ((gain / best * D)[:, None] * others).sum() / np.log(2)
    return None


@pytest.mark.parametrize("kind", TAKING, ids=lambda kind: kind.name)
def test_losses_of_weighted_documents(kind):
    weights = relative(ROWS)
    if kind.name in ("NeuralNDCG", "PLRank"):  # gains of labels are multiplied
        linear = np.log2(1 + weights * (2**LABELS - 1))
        expected = loss_and_gradient(kind(reduction="sum"), linear, LISTS_WEIGHTS)
    else:
        scores = torch.tensor(SCORES, requires_grad=True)
        labels, relative_weights = tensors(LABELS, weights)
        total = sum(
            w * one_list(kind, scores[part], labels[part], relative_weights[part])
            for w, part in zip(LISTS_WEIGHTS, LISTS, strict=True)
        )
        total.backward()
        expected = total.item(), scores.grad.numpy()
    value, gradient = loss_and_gradient(kind(reduction="sum"), LABELS, ROWS)
    np.testing.assert_allclose(value, expected[0], rtol=1e-9)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-6, atol=1e-9)


LISTS_WEIGHTS = np.array([ROWS[part].mean() for part in LISTS])


SMOOTH = ("ListNet", "SoftmaxCrossEntropy", "MSE", "RankNet", "ApproxNDCG", "SigmoidCrossEntropy")


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_by_finite_differences(name):
    kind = getattr(tr, name)
    _, gradient = loss_and_gradient(kind(), LABELS, ROWS)
    for i in (0, 7, 11):
        step = np.eye(19)[i] * 1e-6
        up, down = (
            loss_and_gradient(kind(), LABELS, ROWS, scores=SCORES + s)[0] for s in (step, -step)
        )
        assert gradient[i] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("kind", [tr.MSE, tr.SigmoidCrossEntropy])
def test_a_weight_of_k_is_k_copies_in_a_pointwise_loss(kind):
    copies = np.repeat(np.arange(19), ROWS.astype(int))
    sizes = [int(ROWS[part].sum()) for part in LISTS]
    many = tr.Lists.from_sizes(sizes)
    value, gradient = loss_and_gradient(kind(reduction="sum"), LABELS, relative(ROWS))
    alone, parts = loss_and_gradient(
        kind(reduction="sum"), LABELS[copies], scores=SCORES[copies], lists=many
    )
    np.testing.assert_allclose(value, alone)
    np.testing.assert_allclose(gradient, np.bincount(copies, parts, 19))


def test_weights_in_sums_of_measures_and_losses():
    text = "0.7 * nDCG@3 + 0.3 * P@2 + 0.5 * SigmoidCrossEntropy + 0.2 * RankNet"
    value, gradient = loss_and_gradient(tr.LossSum(text, reduction="sum"), LABELS, ROWS)
    terms = [(0.7, tr.DirectLoss("nDCG@3")), (0.3, tr.DirectLoss("P@2"))]
    terms += [(0.5, tr.SigmoidCrossEntropy()), (0.2, tr.RankNet())]
    parts = []
    for weight, own in terms:
        own.reduction = "sum"
        parts.append((weight, *loss_and_gradient(own, LABELS, ROWS)))
    np.testing.assert_allclose(value, sum(w * v for w, v, _ in parts))
    losses = sum(w * g for w, _, g in parts[2:])
    sum_of_measures = tr.DirectLoss("0.7 * nDCG@3 + 0.3 * P@2", reduction="sum")
    measures = loss_and_gradient(sum_of_measures, LABELS, ROWS)[1]
    np.testing.assert_allclose(gradient, measures + losses, atol=1e-12)
    for text in ("nDCG + ListMLE", "AP + MSE"):
        with pytest.raises(tr.InputError, match="differ within a query"):
            loss_and_gradient(tr.LossSum(text), LABELS, ROWS)


def test_labels_of_0_and_softmax_cross_entropy():
    results = [
        loss_and_gradient(tr.SoftmaxCrossEntropy(), *pair)
        for pair in ((LABELS, ROWS), (LABELS * relative(ROWS), LISTS_WEIGHTS))
    ]
    np.testing.assert_allclose(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1])


def test_padded_and_transformed_losses_take_weights():
    loss = tr.DirectLoss("nDCG@3")
    scores, labels, rows = tensors(SCORES, LABELS, ROWS)
    expected = loss(scores, labels, LISTS, rows)
    mask = torch.arange(9) < torch.tensor([[6], [4], [9]])
    padded = [torch.zeros(3, 9, dtype=torch.float64) for _ in range(3)]
    for place, values in zip(padded, (scores, labels, rows), strict=True):
        place[mask] = values
    assert loss(padded[0], padded[1], weights=padded[2], mask=mask) == expected
    gradient = torch.func.grad(lambda s: loss(s, labels, LISTS, rows))(scores)
    again = scores.clone().requires_grad_()
    loss(again, labels, LISTS, rows).backward()
    torch.testing.assert_close(gradient, again.grad)
    for kind in (tr.RankNet, tr.MSE, tr.LambdaRank):  # arrays on other devices
        on_device = kind(generator=torch.Generator().manual_seed(0))
        from twinrank.support.arrays import device_path

        with device_path("torch"):
            value = on_device(scores, labels, LISTS, rows)
        torch.testing.assert_close(value, kind()(scores, labels, LISTS, rows))


# Data


def make_data(seed=1, queries=24, **options):
    random = np.random.default_rng(seed)
    X = random.normal(size=(queries * 8, 3)).astype(np.float32)
    y = np.clip(np.rint(X[:, 0] + random.normal(size=len(X)) + 1), 0, 3)
    qid = np.repeat(np.arange(queries) + 100 * seed, 8)
    weight = random.integers(1, 4, len(X)).astype(float)
    weight[qid == qid[-1]] = 2
    return X, y, qid, weight


X, Y, QID, WEIGHT = make_data()
DATA = tr.Dataset.from_arrays(X, Y, qid=QID, weight=WEIGHT)
OTHER = tr.Dataset.from_arrays(*make_data(2)[:2], qid=make_data(2)[2], weight=make_data(2)[3])


@pytest.mark.filterwarnings("ignore:.*The rows of 24 queries were")
def test_weights_of_rows_from_every_road(tmp_path):
    order = np.random.default_rng(3).permutation(Y.size)  # scattered rows
    table = pl.DataFrame({"qid": QID, "label": Y, "w": WEIGHT, "a": X[:, 0], "b": X[:, 1]})
    table = table[order]
    table.write_parquet(tmp_path / "a.parquet")
    table.write_csv(tmp_path / "a.csv")
    (tmp_path / "parts").mkdir()
    for i in range(3):
        table[i * 70 : (i + 1) * 70].write_parquet(tmp_path / "parts" / f"{i}.parquet")
    read = {"weight": "w", "cache_dir": tmp_path / "cache"}
    roads = {
        "arrays": tr.Dataset.from_arrays(
            X[order][:, :2], Y[order], qid=QID[order], weight=WEIGHT[order]
        ),
        "frame": tr.Dataset.from_frame(table, weight="w"),
        "parquet": tr.load(tmp_path / "a.parquet", **read),
        "csv": tr.load(tmp_path / "a.csv", **read),
        "parts": tr.load(tmp_path / "parts", **read),
        "cached": tr.load(tmp_path / "parts", **read),
    }
    roads["csv"].save(tmp_path / "folder")
    roads["folder"] = tr.load(tmp_path / "folder", verify=True)
    for name in ("b.parquet", "b.csv"):
        roads["frame"].save(tmp_path / name)
        roads[name] = tr.load(tmp_path / name, weight="weight")
    roads["rechecked"] = tr.load(tmp_path / "folder", unjudged="keep")
    expected = WEIGHT[order]
    for name, data in roads.items():
        first = roads["frame"]
        assert np.array_equal(data.row_weights, first.row_weights), name
        assert np.array_equal(data.weights, first.weights), name
        if name not in ("folder", "b.parquet", "b.csv", "rechecked"):
            assert np.array_equal(data.in_source_order(data.row_weights), expected), name
    means = [WEIGHT[query == QID].mean() for query in first.query_ids]
    assert first.weights == pytest.approx(means)
    with pytest.raises(tr.InputError, match=r"LETOR text has .* weights"):
        first.save(tmp_path / "a.txt")


def test_weights_of_selected_queries():
    parts = [DATA.select([5, 2]), DATA.select([3]), *DATA.split(0.5), DATA.filter(min_relevant=4)]
    for part in parts:
        rows = np.concatenate([WEIGHT[query == QID] for query in part.query_ids])
        assert np.array_equal(part.row_weights, rows)
    constant = DATA.select([DATA.queries - 1])
    assert constant.row_weights is None  # so that every measure works
    assert constant.weights.tolist() == [2]
    dropped = tr.Dataset.from_arrays(
        X[:4], [-1, 1, 0, 2], qid=[1, 1, 1, 1], weight=[9, 1, 3, 2], unjudged="drop"
    )
    assert dropped.row_weights.tolist() == [1, 3, 2]
    assert dropped.weights.tolist() == [2]


def test_the_summary_shows_weights():
    assert "weights              1 to 3, different within queries" in str(DATA)
    assert "equal within queries" in str(DATA.select([DATA.queries - 1]))
    assert "weights" not in str(tr.Dataset.from_arrays(X, Y, qid=QID))


def test_the_default_measures_of_a_comparison_allow_weights(tmp_path):
    DATA.save(tmp_path / "data")
    source = Source(str(tmp_path / "data"), cut=3)
    study = comparison_study(source, ["nDCG-type3 (Boosted)"])
    assert study.measures == ["nDCG@1", "nDCG@5", "nDCG@10"]
    with pytest.raises(tr.InputError, match="AP is not a sum of gains"):
        comparison_study(source, ["nDCG-type3 (Boosted)"], ["AP"])


def test_data_saved_before_has_weights_of_queries(tmp_path):
    data = tr.Dataset.from_arrays(X, Y, qid=QID, weight=np.repeat(DATA.weights, 8))
    assert data.row_weights is None
    data.save(tmp_path / "folder")
    assert not (tmp_path / "folder" / "row_weights.npy").exists()
    loaded = tr.load(tmp_path / "folder")
    assert np.array_equal(loaded.weights, DATA.weights)
    assert loaded.row_weights is None


# Rankers


def net(**changes):
    return tr.Ranker(epochs=2, architecture="MLP(width=8)", ensemble_size=1, **changes)


def trees(**changes):
    return tr.BoostedRanker(n_estimators=4, **{"ensemble_size": 1, "num_leaves": 7, **changes})


def xgboost(**changes):
    return trees(engine="xgboost", **changes)


def blend(**changes):
    return tr.Blend([trees(), net()], **changes)


RANKERS = (net, trees, xgboost, blend)


def same(a, b):
    return np.array_equal(a.predict(X, qid=QID), b.predict(X, qid=QID))


@pytest.mark.parametrize("make", RANKERS)
def test_fit_and_score_with_weights_of_rows(make):
    unweighted = tr.Dataset.from_arrays(X, Y, qid=QID)
    ranker = make().fit(DATA, eval_set=OTHER)
    by_argument = make().fit(X, Y, qid=QID, sample_weight=WEIGHT, eval_set=OTHER)
    assert same(ranker, by_argument)
    assert same(ranker, make().fit(unweighted, sample_weight=WEIGHT, eval_set=OTHER))
    order = np.random.default_rng(0).permutation(24)
    chosen = unweighted.select(order)
    rows = np.concatenate([WEIGHT[query == QID] for query in chosen.query_ids])
    by_selection = make().fit(chosen, sample_weight=rows, eval_set=OTHER)
    again = make().fit(DATA.select(order), eval_set=OTHER)
    assert same(again, by_selection)
    assert not same(ranker, make().fit(X, Y, qid=QID, eval_set=OTHER))
    means = DATA.lists.spread(DATA.weights)
    assert not same(ranker, make().fit(X, Y, qid=QID, sample_weight=means, eval_set=OTHER))
    scores = ranker.predict(X, qid=QID)
    values = tr.evaluate(scores, Y, DATA.lists, ["nDCG@5"], weights=WEIGHT).values["nDCG@5"]
    expected = np.average(values, weights=DATA.weights)
    assert ranker.score(DATA, measure="nDCG@5") == pytest.approx(expected)
    by_argument = ranker.score(X, Y, qid=QID, sample_weight=WEIGHT, measure="nDCG@5")
    assert by_argument == pytest.approx(expected)
    scores, measure = ranker.predict(OTHER), ranker.validation_measure
    other = tr.evaluate(scores, OTHER.y, OTHER.lists, [measure], weights=OTHER.row_weights)
    assert ranker.best_score_ == pytest.approx(other[measure], rel=1e-6)


@pytest.mark.parametrize("make", RANKERS)
@pytest.mark.parametrize("objective", ["nDCG@5", "P@3"])
def test_training_on_weights_is_training_on_multiplied_gains(make, objective):
    """With weights whose mean is 1, rows have the labels gain × weight."""
    rows = np.tile([0.0, 0.5, 0.5, 1, 1, 1, 2, 2], 24)
    gain = 2**Y - 1 if objective == "nDCG@5" else (Y >= 1) * 1.0
    linear = objective.replace("@", "(gain=linear)@")
    if make is blend:
        ranker, expected = (
            tr.Blend([trees(objective=name), net(objective=name)]) for name in (objective, linear)
        )
    else:
        ranker, expected = make(objective=objective), make(objective=linear)
    ranker.fit(X, Y, qid=QID, sample_weight=rows)
    assert same(ranker, expected.fit(X, gain * rows, qid=QID))


def test_sums_of_measures_train_on_weights():
    rows = np.tile([0.0, 0.5, 0.5, 1, 1, 1, 2, 2], 24)
    columns = {"a": Y, "b": np.roll(Y, 3)}
    data = tr.Dataset.from_arrays(X, qid=QID, labels=columns, weight=rows)
    gains = {"a": (2**Y - 1) * rows, "b": np.roll(Y, 3) * rows}
    multiplied = tr.Dataset.from_arrays(X, qid=QID, labels=gains)
    for make in (net, trees):
        text = "0.7 * nDCG(label=a)@5 + 0.3 * DCG(label=b, gain=linear)@5"
        linear = "0.7 * nDCG(label=a, gain=linear)@5 + 0.3 * DCG(label=b, gain=linear)@5"
        assert same(make(objective=text).fit(data), make(objective=linear).fit(multiplied))


@pytest.mark.parametrize(
    "name", [*(kind.name for kind in TAKING), "nDCG + 0.5 * SigmoidCrossEntropy"]
)
def test_nets_pass_weights_to_losses(name):
    ranker = net(objective=name).fit(DATA)
    assert not same(ranker, net(objective=name).fit(X, Y, qid=QID))
    same_weights = tr.Dataset.from_arrays(X, Y, qid=QID, weight=np.full(Y.size, 3.0))
    plain = net(objective=name).fit(X, Y, qid=QID, sample_weight=np.full(24, 3.0))
    assert same(net(objective=name).fit(same_weights), plain)


def test_a_net_learns_pointwise_from_copies():
    """A query with copies of its documents is the query with weights."""
    copies = np.repeat(np.arange(Y.size), WEIGHT.astype(int))
    options = {"objective": "MSE", "transforms": "none", "learning_rate": 0.01}
    options |= {"batch_documents": 10_000, "shuffle": False, "feature_noise": 0.0}
    rows = WEIGHT / DATA.lists.spread(DATA.weights)  # with the mean weight of copies: 1
    options["architecture"] = "MLP(width=8, dropout=0, norm=layer)"
    one, two = (tr.Ranker(epochs=2, ensemble_size=1, **options) for _ in range(2))
    one.fit(X, Y, qid=QID, sample_weight=rows)
    two.fit(X[copies], Y[copies], qid=QID[copies])
    np.testing.assert_allclose(one.predict(X, qid=QID), two.predict(X, qid=QID), atol=1e-4)


def test_a_teacher_with_weights_of_rows():
    teacher = trees().fit(X, Y, qid=QID)
    rankers = [
        net(objective=name).fit(DATA, teacher=teacher) for name in ("nDCG", "SoftmaxCrossEntropy")
    ]
    assert not same(*rankers)
    scores = teacher.predict(X, qid=QID)
    by_array = net(objective="nDCG").fit(X, Y, qid=QID, sample_weight=WEIGHT, teacher=scores)
    assert same(rankers[0], by_array)


@pytest.mark.parametrize("make", [net, trees])
def test_a_resumed_training_has_the_same_bits(make, tmp_path):
    class Stop(tr.training.Callback):
        def on_iteration_end(self, trainer, record):
            if trainer.progress.iteration == 1:
                raise KeyboardInterrupt

    whole = make().fit(DATA)
    with pytest.raises((KeyboardInterrupt, TrainingInterrupted)):
        make().fit(DATA, run=tmp_path / "run", callbacks=[Stop()])
    changed = WEIGHT.copy()
    changed[[0, 1]] = changed[[1, 0]] + [0.5, -0.5]
    with pytest.raises(tr.InputError):
        make().fit(X, Y, qid=QID, sample_weight=changed, run=tmp_path / "run", resume=True)
    assert same(whole, make().fit(DATA, run=tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (net(objective="AP"), "AP is not a sum of gains"),
        (trees(objective="nERR@5"), "nERR@5 is not a sum of gains"),
        (net(objective="AP + MSE"), "AP is not a sum of gains"),
        (net(objective="nDCG + ListMLE"), "ListMLE takes no weights that differ"),
        (net(objective="ListMLE"), "ListMLE takes no weights that differ"),
        (net(objective=lambda s, y, lists, weights=None: s.sum()), "one weight per query"),
        (trees(objective="LambdaMART"), "LambdaMART takes no weights"),
        (xgboost(objective="rank:ndcg"), "rank:ndcg takes no weights"),
        (trees(objective=lambda s, y, lists: (s * y).sum()), "takes no weights that differ"),
        (net(validation_measure="AP"), "'validation': .*AP is not a sum of gains"),
    ],
)
def test_objectives_that_take_no_weights(ranker, message, tmp_path):
    with pytest.raises(tr.InputError, match=message):
        ranker.fit(DATA, eval_set=OTHER, run=tmp_path / "run")
    means = DATA.lists.spread(DATA.weights)
    ranker.fit(X, Y, qid=QID, sample_weight=means)  # of queries


def test_objectives_for_lightgbm_take_weights_of_rows():
    objective = tr.lightgbm_objective("nDCG@5", samples=1, perturbation=0.0)
    data = lgb.Dataset(X, Y, group=DATA.lists.sizes, weight=WEIGHT).construct()
    scores = np.random.default_rng(0).normal(size=Y.size)
    gradient, hessian = objective(scores, data)
    linear = tr.lightgbm_objective("nDCG(gain=linear)@5", samples=1, perturbation=0.0)
    relative = query_and_document_weights(WEIGHT, DATA.lists)[1]
    expected = linear.newton(scores, weighted_gains(2**Y - 1, relative), DATA.lists, DATA.weights)
    for found, wanted in zip((gradient, hessian), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    _, value, _ = tr.lightgbm_metric("nDCG@5")(scores, data)
    values = tr.evaluate(scores, Y, DATA.lists, ["nDCG@5"], weights=WEIGHT).values["nDCG@5"]
    assert value == pytest.approx(np.average(values, weights=DATA.weights))


def test_a_blend_does_not_count_queries_of_weight_0():
    weights = np.arange(24) % 3 > 0
    huge = X * np.where(np.repeat(weights, 8), 1, 1000)[:, None]
    kept = np.repeat(weights, 8)
    whole = blend().fit(huge, Y, qid=QID, sample_weight=weights * 1.0)
    alone = blend().fit(X[kept], Y[kept], qid=QID[kept])
    assert whole.model_.scales == pytest.approx(alone.model_.scales)
    test = tr.Dataset.from_arrays(huge, Y, qid=QID, weight=kept * 1.0)
    part = test.select(np.flatnonzero(weights))
    scales = [blend().fit(OTHER, eval_set=held).model_.scales for held in (test, part)]
    assert scales[0] == scales[1]


def test_calibration_counts_rows_by_weight():
    ranker = trees().fit(DATA).calibrate(OTHER)
    found = ranker.predict(X, qid=QID, output="probability")
    scores = ranker.predict(OTHER)
    rows, means = OTHER.row_weights, OTHER.lists.spread(OTHER.weights)
    for weights, expected in ((rows, True), (means, False)):
        own = fit_map(scores, OTHER.y, OTHER.lists, "probability", weights=weights)
        again = own(ranker.predict(X, qid=QID), DATA.lists)
        assert np.array_equal(found, again) == expected


def test_weights_of_rows_on_the_command_line(cli, tmp_path):
    table = pl.DataFrame({"qid": QID, "label": Y, "w": WEIGHT, "a": X[:, 0], "b": X[:, 1]})
    table.write_csv(data := tmp_path / "a.csv")
    own = ["--weight", "w", "--cache-dir", tmp_path / "cache"]
    settings = ["--set", "n_estimators=3", "--set", "ensemble_size=1"]
    code, _, err = cli("train", data, "--trees", "--out", tmp_path / "run", *settings, *own)
    assert code == 0, err
    ranker, loaded = tr.load_model(tmp_path / "run"), tr.load(data, weight="w")
    _, out, err = cli("evaluate", tmp_path / "run", data, *own)
    assert "AP, RR and nERR@10 take no weights that differ within a query" in err
    found = tr.evaluate(ranker.predict(loaded), Y, loaded.lists, weights=WEIGHT)
    assert f"{found['nDCG@5']:.4f}" in out
    for words in (
        ("evaluate", tmp_path / "run", data, "--measure", "AP"),
        ("train", data, "--trees", "--objective", "AP", "--out", tmp_path / "other"),
    ):
        code, _, err = cli(*words, *own)
        assert code == 2
        assert "AP is not a sum of gains" in err
    assert not (tmp_path / "other").exists()


def test_distillation_compares_with_weights():
    teacher = tr.BoostedRanker(n_estimators=3, ensemble_size=1).fit(DATA)
    student = teacher.distill(DATA, OTHER, max_trees=2, max_leaves=3)
    own = tr.evaluate(teacher.predict(OTHER), OTHER.y, OTHER.lists, weights=OTHER.row_weights)
    assert student.distillation_.means["teacher"] == {n: own[n] for n in own.values}


def test_a_search_leaves_out_objectives_without_weights():
    spaces, without = for_weights_of_rows(spaces_of(["net", "trees", "blend"]))
    assert without == ["AP", "nERR@10", "LambdaMART"]
    assert spaces[0].dimensions["objective"].options == ("nDCG", "ListNet", "ApproxNDCG")
    assert spaces[1].dimensions["objective"].options == ("nDCG",)
    names = [name for name in spaces[2].dimensions if name.endswith("objective")]
    assert len(names) == 2
    assert all("AP" not in spaces[2].dimensions[name].options for name in names)
