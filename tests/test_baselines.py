"""The contract of every baseline loss: its formula, and properties of all losses."""

import math

import numpy as np
import pytest
import torch

import twinrank as tr
from baseline_references import (
    NOT_ITS_GRADIENT,
    REFERENCES,
    SAMPLED,
    SHUFFLE_TIED_LABELS,
    SHUFFLE_TIED_SCORES,
    ideal_dcg,
)
from twinrank.core.losses import NAMES, listmle, loss
from twinrank.support.arrays import device_path
from twinrank.support.errors import InputError
from twinrank.support.notation import parse

NOTATIONS = sorted({*NAMES, *REFERENCES})
EXACT = [name for name in NOTATIONS if parse(name).name not in SAMPLED]
SIZES = [7, 1, 0, 12, 2, 5]


def example(name, sizes=SIZES, seed=0):
    """Scores without ties and labels of lists that have something relevant, as float64."""
    draw = np.random.default_rng(seed)
    lists = tr.Lists.from_sizes(sizes)
    scores = torch.tensor(draw.standard_normal(lists.documents))
    labels = np.zeros(lists.documents)
    for documents in lists:
        size = documents.stop - documents.start
        if parse(name).name in SHUFFLE_TIED_LABELS:
            labels[documents] = draw.permutation(np.linspace(4, 0, size, endpoint=False))
        else:
            labels[documents] = draw.integers(0, 5, size)
            labels[documents][:1] = 3
    return scores, torch.tensor(labels), lists


def outcome(name, scores, labels, lists=None, weights=None, *, reduction="none", **more):
    """The loss and its gradient."""
    function = loss(name)
    function.reduction, function.generator = reduction, torch.Generator().manual_seed(3)
    scores = scores.detach().clone().requires_grad_()
    result = function(scores, labels, lists, weights, **more)
    result.sum().backward()
    return result.detach(), scores.grad


def expected(name, scores, labels, lists):
    """What the formula gives, list by list."""
    values, gradient = torch.zeros(len(lists), dtype=torch.float64), torch.zeros_like(scores)
    for q, documents in enumerate(lists):
        if documents.stop > documents.start:
            s = scores[documents].detach().clone().requires_grad_()
            value = REFERENCES[name](s, labels[documents])
            (slope,) = torch.autograd.grad(value, s)
            values[q], gradient[documents] = value.detach(), slope
    return values, gradient


def test_every_loss_has_a_reference():
    assert set(NAMES) == {parse(name).name for name in REFERENCES}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", EXACT)
def test_values_and_gradients(name, seed):
    data = example(name, seed=seed)
    values, gradient = outcome(name, *data)
    true_values, true_gradient = expected(name, *data)
    torch.testing.assert_close(values, true_values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, true_gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", EXACT)
def test_scores_of_any_size(name):
    """Gaps of 10,000 between scores: finite, and what the formula gives."""
    scores, labels, lists = example(name)
    scores = 1e4 * scores / scores.abs().max()
    values, gradient = outcome(name, scores, labels, lists)
    true_values, true_gradient = expected(name, scores, labels, lists)
    torch.testing.assert_close(values, true_values, rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(gradient, true_gradient, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("name", EXACT)
def test_lists_do_not_meet(name):
    """A ragged batch is the same as its lists one by one."""
    scores, labels, lists = example(name)
    values, gradient = outcome(name, scores, labels, lists)
    for q, documents in enumerate(lists):
        alone = tr.Lists.from_sizes([documents.stop - documents.start])
        value, slope = outcome(name, scores[documents], labels[documents], alone)
        torch.testing.assert_close(value[0], values[q], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(slope, gradient[documents], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NOTATIONS)
def test_padded_is_flat(name):
    scores, labels, lists = example(name)
    mask = torch.zeros(len(lists), lists.longest + 2, dtype=torch.bool)
    for q, size in enumerate(lists.sizes):
        mask[
            q, torch.randperm(mask.shape[1], generator=torch.Generator().manual_seed(q))[:size]
        ] = True
    padded_scores = torch.full(mask.shape, 7.0, dtype=torch.float64)
    padded_labels = torch.full(mask.shape, -1.0, dtype=torch.float64)
    padded_scores[mask], padded_labels[mask] = scores, labels
    values, gradient = outcome(name, padded_scores, padded_labels, mask=mask)
    flat_values, flat_gradient = outcome(name, scores, labels, lists)
    assert torch.equal(values, flat_values)
    assert torch.equal(gradient[mask], flat_gradient)
    assert not gradient[~mask].any()


@pytest.mark.parametrize("name", EXACT)
def test_order_of_documents_does_not_matter(name):
    scores, labels, lists = example(name)
    draw = np.random.default_rng(5)
    order = torch.tensor(
        np.concatenate([draw.permutation(np.arange(d.start, d.stop)) for d in lists])
    )
    values, gradient = outcome(name, scores, labels, lists)
    moved_values, moved_gradient = outcome(name, scores[order], labels[order], lists)
    torch.testing.assert_close(moved_values, values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(moved_gradient, gradient[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NOTATIONS)
def test_weights_and_reductions(name):
    scores, labels, lists = example(name)
    labels[lists.index(labels) == 4] = 0  # a list with nothing relevant
    weights = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0, 1.5])
    values, gradient = outcome(name, scores, labels, lists)
    counted = lists.any(labels > 0 if loss(name).needs_relevant else labels >= 0)
    assert not values[~counted].any()
    for chosen in (None, weights):
        share = counted.double() * (1 if chosen is None else chosen)
        for reduction, scale in (("sum", share), ("mean", share / share.sum())):
            total, slopes = outcome(name, scores, labels, lists, chosen, reduction=reduction)
            torch.testing.assert_close(total, (scale * values).sum(), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(slopes, lists.spread(scale) * gradient)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", NOTATIONS)
def test_low_precision(name, dtype):
    """Scores of few bits: the loss of these scores as float64, rounded."""
    scores, labels, lists = example(name)
    scores = scores.to(dtype)
    values, gradient = outcome(name, scores, labels, lists)
    true_values, true_gradient = outcome(name, scores.double(), labels, lists)
    assert gradient.dtype == dtype
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), true_values, rtol=1e-5, atol=1e-5)
    bits = 4 * torch.finfo(dtype).eps
    scale = float(true_gradient.abs().max())
    torch.testing.assert_close(
        gradient.double(), true_gradient, rtol=bits, atol=max(bits, 1e-5) * scale
    )


@pytest.mark.parametrize("name", NOTATIONS)
def test_ties(name):
    """Equal scores, equal labels: finite, reproducible, and the formula's where it says."""
    scores, labels, lists = example(name)
    scores, labels = scores.round(), labels.round()
    values, gradient = outcome(name, scores, labels, lists)
    again = outcome(name, scores, labels, lists)
    assert torch.equal(values, again[0])
    assert torch.equal(gradient, again[1])
    assert values.isfinite().all()
    assert gradient.isfinite().all()
    if parse(name).name not in SHUFFLE_TIED_LABELS | SHUFFLE_TIED_SCORES | SAMPLED:
        true_values, true_gradient = expected(name, scores, labels, lists)
        torch.testing.assert_close(values, true_values, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gradient, true_gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NOTATIONS)
def test_nothing_relevant(name):
    """Lists without anything relevant have no loss and no gradient; unjudged counts as 0."""
    scores, labels, lists = example(name)
    values, gradient = outcome(name, scores, 0 * labels, lists)
    if not loss(name).takes_any_label:
        unjudged = outcome(name, scores, 0 * labels - 1, lists)
        assert torch.equal(values, unjudged[0])
        assert torch.equal(gradient, unjudged[1])
    if loss(name).needs_relevant:
        assert not values.any()
        assert not gradient.any()
    else:
        assert (values[torch.tensor(SIZES) > 0] > 0).all()


@pytest.mark.parametrize("name", NOTATIONS)
def test_nothing_at_all(name):
    for sizes in ([], [0], [0, 0]):
        lists = tr.Lists.from_sizes(np.array(sizes, dtype=np.int64))
        for reduction in ("none", "mean", "sum"):
            nothing = torch.zeros(0)
            value, gradient = outcome(name, nothing, nothing, lists, reduction=reduction)
            assert not value.any()
            assert gradient.shape == (0,)


@pytest.mark.parametrize("name", NOTATIONS)
def test_long_list(name):
    """10,000 documents, or 2,000 if each pair takes an exponential: finite, and twice the same."""
    slow = parse(name).name in {"NeuralNDCG", "NDCGLoss1"}
    scores, labels, lists = example(name, sizes=[2_000 if slow else 10_000])
    values, gradient = outcome(name, scores, labels, lists)
    assert values.isfinite().all()
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0
    again = outcome(name, scores, labels, lists)
    assert torch.equal(values, again[0])
    assert torch.equal(gradient, again[1])


@pytest.mark.parametrize("name", [name for name in EXACT if name not in NOT_ITS_GRADIENT])
def test_downhill(name):
    """A short step against the gradient lowers the loss."""
    scores, labels, lists = example(name, sizes=[30])
    value, gradient = outcome(name, scores, labels, lists)
    lower, _ = outcome(name, scores - 1e-4 * gradient / gradient.abs().max(), labels, lists)
    assert lower < value


@pytest.mark.parametrize("name", NOTATIONS)
def test_other_devices_give_the_same(name):
    """The code for tensors on other devices, run on the CPU."""
    scores, labels, lists = example(name)
    for s, y in ((scores, labels), (scores.round(), labels.round()), (scores * 1e4, labels)):
        values, gradient = outcome(name, s, y, lists)
        with device_path("torch"):
            other_values, other_gradient = outcome(name, s, y, lists)
        torch.testing.assert_close(other_values, values, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(other_gradient, gradient, rtol=1e-8, atol=1e-8)


def test_listmle_shuffles_documents_of_one_label():
    """The order is drawn from the generator at each call; the formula holds for that order."""
    scores, _, lists = example("ListNet")
    labels = torch.tensor(np.random.default_rng(1).integers(0, 3, len(scores)).astype(float))
    labels[list(lists.offsets[:2])] = 2  # something relevant in the first two lists
    seen = set()
    for seed in range(20):
        ideal = tr.exact_ranks(labels, lists, generator=torch.Generator().manual_seed(seed))
        function = tr.ListMLE(reduction="none", generator=torch.Generator().manual_seed(seed))
        values = function(scores, labels, lists)
        true, _ = expected("ListMLE", scores, -ideal, lists)
        torch.testing.assert_close(values[0], true[0])
        seen.add(values[0].item())
        assert function(scores, labels, lists)[3] != values[3]  # another order
    assert len(seen) > 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("device", ["cpu", "other"])
def test_logarithms_of_cumulative_sums(device, reverse):
    """log Σ_j exp(x_j) over the documents before, or after, in a list."""
    lists = tr.Lists.from_sizes([1, 5, 0, 8, 2])
    x = torch.tensor(np.random.default_rng(0).standard_normal(16) * 1e3)
    with device_path("torch"):
        sums = listmle.log_cumsum_exp(x if device == "other" else x.numpy(), lists, reverse=reverse)
    for documents in lists:
        for i in range(documents.start, documents.stop):
            part = slice(i, documents.stop) if reverse else slice(documents.start, i + 1)
            assert sums[i] == pytest.approx(torch.logsumexp(x[part], 0).item(), rel=1e-12)


@pytest.mark.parametrize("name", ["PLRank", "PLRank(k=2)"])
def test_sampled_gradients_are_unbiased(name):
    """The mean over 40,000 rankings is that over all rankings, to within four standard errors."""
    scores, labels, lists = example(name, sizes=[5, 1, 0, 4])
    function = loss(name)
    function.samples, function.reduction = 100, "none"
    function.generator = torch.Generator().manual_seed(0)
    draws = []
    for _ in range(400):
        s = scores.clone().requires_grad_()
        values = function(s, labels, lists)
        values.sum().backward()
        draws.append(torch.cat([values.detach(), s.grad]))
    draws = torch.stack(draws)
    error = draws.std(0) / len(draws) ** 0.5
    true = torch.cat(expected(name, scores, labels, lists))
    assert ((draws.mean(0) - true).abs() <= 4 * error + 1e-12).all()
    assert error.max() < 0.01


def test_sampled_rankings_are_those_of_the_generator():
    """PL-Rank as its theorem writes it, document by document, for the rankings that were drawn."""
    scores, labels, lists = example("PLRank", sizes=[8])
    seed, samples = 5, 6
    ranks = tr.exact_ranks(
        scores, lists, perturbation=1.0, samples=samples,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    function = tr.PLRank(samples, k=3, generator=torch.Generator().manual_seed(seed))
    s = scores.clone().requires_grad_()
    value = function(s, labels, lists)
    value.backward()
    gains = (2**labels - 1) / ideal_dcg(labels, 3)
    discounts = [1 / math.log2(1 + x) if x <= 3 else 0.0 for x in range(1, 9)]
    reward, slopes = 0.0, torch.zeros(8, dtype=torch.float64)
    for sample in ranks:
        order = torch.argsort(sample).tolist()
        reward += sum(discounts[x] * gains[d] for x, d in enumerate(order))
        for rank, d in enumerate(order):
            slopes[d] += sum(discounts[x] * gains[order[x]] for x in range(rank + 1, 8))
            for x in range(rank + 1):
                chance = torch.softmax(scores[order[x:]], 0)[rank - x]
                rest = sum(discounts[y] * gains[order[y]] for y in range(x, 8))
                slopes[d] += chance * (discounts[x] * gains[d] - rest)
    torch.testing.assert_close(value, -reward / samples)
    torch.testing.assert_close(s.grad, -slopes / samples)


def test_mse_takes_any_finite_target():
    lists, targets = tr.Lists.from_sizes([2, 1]), torch.tensor([-0.5, -1.0, -7.25])
    scores = torch.zeros(3, requires_grad=True)
    found = tr.MSE(reduction="none")(scores, targets, lists)
    torch.testing.assert_close(found, torch.tensor([(0.25 + 1) / 2, 7.25**2]))
    with pytest.raises(InputError, match="labels are not finite"):
        tr.MSE()(scores, torch.tensor([0, 0, np.nan]), lists)
    for name in set(NAMES) - {"MSE"}:
        with pytest.raises(InputError, match="2 of 3 labels are below 0, but not -1"):
            loss(name)(scores, targets, lists)


def test_unjudged_documents_of_a_ranker_have_the_target_0():
    draw = np.random.default_rng(0)
    X, y = draw.standard_normal((40, 3)).astype(np.float32), draw.integers(-1, 3, 40)
    weights = []
    for labels in (y, y.clip(0)):
        data = tr.Dataset.from_arrays(X, labels, group=[10] * 4, unjudged="keep")
        fitted = tr.Ranker("MSE", epochs=1, random_state=0).fit(data)
        weights.append(fitted.predict(data))
    np.testing.assert_array_equal(*weights)


def test_probabilities_below_rel_are_explained():
    scores, lists = torch.zeros(2, requires_grad=True), tr.Lists.from_sizes([2])
    with pytest.warns(
        tr.DataWarning, match=r"rel is 1, but the highest label is 0.9.*AP\(rel=0.5\)"
    ):
        tr.DirectLoss("AP")(scores, torch.tensor([0.9, 0.2]), lists)
    tr.DirectLoss("AP(rel=0.5)")(scores, torch.tensor([0.9, 0.2]), lists)
    tr.DirectLoss("P(rel=2)@1")(
        scores, torch.tensor([1.5, 0.0]), lists
    )  # grades, not probabilities
    tr.DirectLoss("AP")(scores, torch.tensor([0.0, 0.0]), lists)  # a list without anything relevant
