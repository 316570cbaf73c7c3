"""What must not matter to a loss: the order of documents and of lists, padding, neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinrank as tr

STRATEGIES = ["type1", "type2", "type3"]
MEASURES = ["nDCG", "nDCG@3", "AP", "P@2", "nERR@10", "RR", "RBP"]
batches = st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
few = settings(max_examples=15)


def draw(batch):
    """Lists with distinct scores, so that no tie is broken at random."""
    sizes, seed = batch
    random, lists = np.random.default_rng(seed), tr.Lists.from_sizes(sizes)
    scores = random.permutation(lists.documents) / 3.0
    return torch.tensor(scores), torch.tensor(random.integers(0, 4, lists.documents)), lists, random


def outcome(measure, strategy, scores, labels, lists=None, **options):
    """Losses per list, and the gradient of their sum."""
    leaf = scores.clone().requires_grad_()
    losses = tr.DirectLoss(measure, strategy, reduction="none")(leaf, labels, lists, **options)
    losses.sum().backward()
    return losses.detach(), leaf.grad


def agree(first, second):
    for left, right in zip(first, second, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("measure", MEASURES)
@given(batch=batches)
@few
def test_the_order_of_documents(measure, strategy, batch):
    """Permuting the documents of a list permutes their gradients and changes no loss."""
    scores, labels, lists, random = draw(batch)
    order = np.concatenate(
        [docs.start + random.permutation(docs.stop - docs.start) for docs in lists]
    )
    order = torch.from_numpy(order.astype(np.int64))
    losses, gradient = outcome(measure, strategy, scores, labels, lists)
    agree(
        outcome(measure, strategy, scores[order], labels[order], lists), (losses, gradient[order])
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("measure", MEASURES)
@given(batch=batches)
@few
def test_neighbours(measure, strategy, batch):
    """A list alone has the loss and the gradient that it has among others."""
    scores, labels, lists, _ = draw(batch)
    losses, gradient = outcome(measure, strategy, scores, labels, lists)
    for q, docs in enumerate(lists):
        single = tr.Lists.from_sizes([docs.stop - docs.start])
        alone = outcome(measure, strategy, scores[docs], labels[docs], single)
        agree(alone, (losses[q : q + 1], gradient[docs]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("measure", MEASURES)
@given(batch=batches, padding=st.integers(0, 4))
@few
def test_padding(measure, strategy, batch, padding):
    """A padded batch, padding anywhere in its rows, is the flat one; padding gets no gradient."""
    scores, labels, lists, random = draw(batch)
    mask = np.zeros((len(lists), lists.longest + padding), bool)
    for row, size in zip(mask, lists.sizes, strict=True):
        row[random.permutation(row.size)[:size]] = True
    mask = torch.from_numpy(mask)
    padded, graded = torch.full(mask.shape, 7.0, dtype=torch.float64), torch.full(mask.shape, 3)
    padded[mask], graded[mask] = scores, labels
    losses, gradient = outcome(measure, strategy, padded, graded, mask=mask)
    agree((losses, gradient[mask]), outcome(measure, strategy, scores, labels, lists))
    assert not gradient[~mask].any()


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(batch=batches, shift=st.sampled_from([-64.0, 0.5, 1024.0]))
@few
def test_a_shift_of_all_scores(strategy, batch, shift):
    """Only differences of scores count, list by list."""
    scores, labels, lists, _ = draw(batch)
    scores = torch.round(scores * 8) / 8  # so that the shift is exact
    ranks = tr.exact_ranks(scores, lists, ties="stable")
    shifted = tr.exact_ranks(scores + shift, lists, ties="stable")
    assert torch.equal(ranks, shifted)
    gradients = []
    for moved in (scores, scores + shift):
        leaf = moved.clone().requires_grad_()
        twins = tr.twin_ranks(leaf, labels, lists, strategy=strategy)
        twins.backward(torch.linspace(-1, 1, lists.documents, dtype=torch.float64))
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-13)
