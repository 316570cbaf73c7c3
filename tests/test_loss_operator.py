"""Losses under torch.compile, torch.func, autocast and gradient accumulation."""

import copy
import pickle

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import twinrank as tr


def draw(sizes, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    lists = tr.Lists.from_sizes(sizes)
    scores = torch.randn(lists.documents, dtype=dtype)
    return scores, torch.randint(0, 4, (lists.documents,)), lists


FUNCTIONS = [
    tr.DirectLoss("nDCG@5"),
    tr.DirectLoss("AP", "swap", reduction="none", kernel="torch"),
    tr.LambdaRank(reduction="none"),
]


def gradient(run, scores, *rest):
    scores = scores.detach().clone().requires_grad_()
    run(scores, *rest).backward()
    return scores.grad


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
def test_compiled_without_a_graph_break(function):
    """Lists of new sizes do not compile again and again."""

    def run(scores, labels, lists, weights):
        return (function(3 * scores, labels, lists, weights) * 2).sum()

    torch._dynamo.reset()
    count = CompileCounter()
    compiled = torch.compile(run, backend=count, fullgraph=True)
    for size in (4, 5, 6):
        scores, labels, lists = draw([size, 0, 1, 2 * size], seed=size)
        weights = torch.rand(4)
        expected = gradient(run, scores, labels, lists, weights)
        result = gradient(compiled, scores, labels, lists, weights)
        torch.testing.assert_close(result, expected)
    assert count.frame_count <= 2
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(scores, labels, lists, weights), run(scores, labels, lists, weights)
        )


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
def test_torch_func(function):
    scores, labels, lists = draw([5, 0, 1, 9])
    many = torch.stack([scores, scores + 1, -2 * scores])

    def run(scores):
        return function(scores, labels, lists).sum()

    expected = torch.stack([gradient(run, x) for x in many])
    torch.testing.assert_close(torch.func.grad(run)(scores), expected[0])
    torch.testing.assert_close(torch.vmap(torch.func.grad(run))(many), expected)
    torch.testing.assert_close(torch.vmap(run)(many), torch.stack([run(x) for x in many]))
    twice = torch.func.grad(lambda x: torch.func.grad(run)(x).square().sum())
    with pytest.raises(RuntimeError, match="first derivative only"):
        twice(scores)


def test_torch_func_needs_flat_scores():
    with pytest.raises(tr.InputError, match="flat scores with lists"):
        torch.func.grad(tr.RankNet())(torch.randn(2, 3), torch.ones(2, 3))


def test_compiled_losses_check_their_input():
    scores, labels, lists = draw([5, 3])
    compiled = torch.compile(tr.RankNet(), backend="eager", fullgraph=True)
    with pytest.raises(tr.InputError, match="labels are below 0"):
        compiled(scores, labels - 5, lists)
    with pytest.raises(tr.InputError, match="documents"):
        compiled(scores[1:], labels[1:], lists)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_a_loss_is_an_operator_of_its_own(again):
    original = tr.RankNet(sigma=2.0)
    other = again(original)
    other.sigma = 5.0
    data = draw([5, 3])
    torch.testing.assert_close(
        torch.func.grad(other)(*data), gradient(tr.RankNet(sigma=5.0), *data)
    )
    torch.testing.assert_close(torch.func.grad(original)(*data), gradient(original, *data))


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize("strategy", ["type3", "swap"])
def test_autocast(kernel, strategy):
    """Scores of a net in bfloat16: ranks and sums are in single precision."""
    _, labels, lists = draw([5, 0, 30])
    X, net = torch.randn(35, 6), torch.nn.Linear(6, 1)
    function = tr.DirectLoss("nDCG", strategy, kernel=kernel)
    with torch.autocast("cpu", torch.bfloat16):
        scores = net(X)[:, 0]
        scores.retain_grad()
        value = function(scores, labels, lists)
    value.backward()
    assert (scores.dtype, value.dtype) == (torch.bfloat16, torch.float32)
    expected = gradient(function, scores.float(), labels, lists)
    torch.testing.assert_close(scores.grad, expected.bfloat16(), rtol=0.01, atol=1e-4)


def test_gradients_accumulate():
    scores, labels, lists = draw([5, 8])
    function, parts = tr.DirectLoss("nDCG", reduction="sum", kernel="torch"), list(lists)
    expected = gradient(function, scores, labels, lists)
    scores.requires_grad_()
    for part in parts:
        own = tr.Lists.from_sizes([part.stop - part.start])
        function(scores[part], labels[part], own).backward()
    torch.testing.assert_close(scores.grad, expected)
