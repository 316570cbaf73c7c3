"""DirectLoss in a user's own training code: autograd, precisions, reductions, padding, copies."""

import copy
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

import twinrank as tr
from twinrank.learning.models.devices import one_torch_thread
from twinrank.learning.training.callbacks import Callback

STRATEGIES = ("type1", "type2", "type3")
KERNELS = ("numba", "long", "torch")

needs_compiler = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler"),
]


def problem(seed=0, dtype=torch.float32, sizes=(5, 8, 1, 3)):
    """Scores that are numbers of every precision, labels, and lists with something relevant."""
    random = torch.Generator().manual_seed(seed)
    documents = sum(sizes)
    scores = torch.randint(-64, 64, (documents,), generator=random) / 32
    labels = torch.randint(0, 3, (documents,), generator=random)
    lists = tr.Lists.from_sizes(sizes)
    labels[lists.offsets[:-1][lists.sizes > 0]] = 2
    return scores.to(dtype).requires_grad_(), labels, lists


def loss_of(scores, labels, lists, *arguments, measure="nDCG", **options):
    """A loss that breaks ties in the same order each time."""
    generator = torch.Generator().manual_seed(0)
    return tr.DirectLoss(measure, generator=generator, **options)(scores, labels, lists, *arguments)


def gradient(loss, scores):
    return torch.autograd.grad(loss, scores)[0]


class TestAutograd:
    def test_the_first_derivative_is_the_same_with_create_graph(self):
        scores, labels, lists = problem()
        once = gradient(loss_of(scores, labels, lists), scores)
        (again,) = torch.autograd.grad(loss_of(scores, labels, lists), scores, create_graph=True)
        assert torch.equal(once, again)
        assert once.any()

    @pytest.mark.parametrize("function", [loss_of, tr.twin_ranks])
    def test_a_second_derivative_is_refused(self, function):
        scores, labels, lists = problem()
        output = function(scores, labels, lists).square().sum()
        (first,) = torch.autograd.grad(output, scores, create_graph=True)
        with pytest.raises(RuntimeError, match=r"first derivative only.*without create_graph=True"):
            first.square().sum().backward()

    def test_a_penalty_on_another_path_has_its_second_derivative(self):
        # create_graph=True for a gradient penalty elsewhere must not affect this loss.
        scores, labels, lists = problem()
        weight = torch.tensor(2.0, requires_grad=True)
        penalty = torch.autograd.grad(weight**3, weight, create_graph=True)[0]
        (loss_of(scores, labels, lists) + penalty).backward()
        assert weight.grad == 6 * weight
        assert scores.grad.any()

    def test_backward_twice_is_torchs_own_error(self):
        scores, labels, lists = problem()
        loss = loss_of(scores, labels, lists)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()

    def test_retain_graph_adds_the_gradient_up(self):
        scores, labels, lists = problem()
        loss = loss_of(scores, labels, lists)
        loss.backward(retain_graph=True)
        once = scores.grad.clone()
        loss.backward()
        assert torch.equal(scores.grad, 2 * once)

    def test_scores_changed_in_place_are_noticed(self):
        scores, labels, lists = problem()
        changed = scores * 1
        loss = loss_of(changed, labels, lists)
        changed += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_labels_changed_in_place_do_no_harm(self):
        # A loader may fill the same buffer with the next batch before backward is called.
        for dtype in (torch.float32, torch.int64):
            scores, labels, lists = problem()
            labels = labels.to(dtype)
            expected = gradient(loss_of(scores, labels, lists), scores)
            loss = loss_of(scores, labels, lists)
            labels.zero_()
            assert torch.equal(gradient(loss, scores), expected)

    def test_no_grad(self):
        scores, labels, lists = problem()
        expected = loss_of(scores, labels, lists)
        for context in (torch.no_grad(), torch.inference_mode()):
            with context:
                loss = loss_of(scores, labels, lists)
            assert not loss.requires_grad
            assert loss == expected

    def test_scores_without_a_gradient(self):
        scores, labels, lists = problem()
        assert not loss_of(scores.detach(), labels, lists).requires_grad

    def test_a_gradient_for_the_scores_alone(self):
        scores, labels, lists = problem()
        labels, weights = labels.float().requires_grad_(), torch.ones(4, requires_grad=True)
        loss_of(scores, labels, lists, weights).backward()
        assert scores.grad.any()
        assert labels.grad is None
        assert weights.grad is None

    def test_the_upstream_gradient_scales_the_gradient(self):
        # What a GradScaler does, and an objective with several terms.
        scores, labels, lists = problem()
        plain = gradient(loss_of(scores, labels, lists), scores)
        assert torch.equal(gradient(-1024 * loss_of(scores, labels, lists), scores), -1024 * plain)


PRECISIONS = [
    # dtype, precision of ranks and loss, how near to float64's gradient
    (torch.float16, torch.float32, 1e-3),
    (torch.bfloat16, torch.float32, 1e-2),
    (torch.float32, torch.float32, 1e-5),
    (torch.float64, torch.float64, 1e-9),
]


class TestPrecision:
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize(("dtype", "working", "near"), PRECISIONS)
    def test_gradient(self, dtype, working, near, strategy, kernel):
        scores, labels, lists = problem(dtype=dtype)
        loss = loss_of(scores, labels, lists, strategy=strategy, kernel=kernel)
        result = gradient(loss, scores)
        exact = scores.detach().double().requires_grad_()
        expected = gradient(loss_of(exact, labels, lists, strategy=strategy, kernel="numba"), exact)
        assert loss.dtype == working
        assert result.dtype == dtype
        assert (result.double() - expected).abs().max() <= near * expected.abs().max()

    @pytest.mark.parametrize(("dtype", "working", "near"), PRECISIONS)
    def test_ranks(self, dtype, working, near):
        scores, labels, lists = problem(dtype=dtype)
        ranks = tr.twin_ranks(scores, labels, lists)
        assert ranks.dtype == working
        ranks.sum().backward()
        assert scores.grad.dtype == dtype

    def test_bfloat16_counts_past_256(self):
        # bfloat16 itself has no number between 256 and 258.
        scores = torch.zeros(1000, dtype=torch.bfloat16)
        ranks = tr.twin_ranks(scores, torch.zeros(1000), tr.Lists.from_sizes([1000]))
        assert torch.equal(ranks.sort().values, torch.arange(1.0, 1001))

    def test_autocast(self):
        _, labels, lists = problem()
        torch.manual_seed(0)
        model, features = nn.Linear(4, 1), torch.randn(lists.documents, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(features).squeeze(-1)
            loss = loss_of(scores, labels, lists)
        assert (scores.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
        loss.backward()
        low = model.weight.grad.clone()
        model.zero_grad()
        full = scores.detach().float().requires_grad_()  # the same scores in full precision
        expected = gradient(loss_of(full, labels, lists), full) @ features
        assert (low - expected).abs().max() <= 0.02 * expected.abs().max()


class TestReductions:
    # The third list has one document, the last two nothing relevant: one empty, one of zeros.
    sizes = (5, 8, 1, 0, 3)

    def none(self, *arguments):
        scores, labels, lists = self.problem()
        return loss_of(scores, labels, lists, *arguments, reduction="none"), scores

    def problem(self):
        scores, labels, lists = problem(sizes=self.sizes)
        labels[-3:] = 0
        return scores, labels, lists

    def test_none_is_minus_the_measure(self):
        scores, labels, lists = self.problem()
        losses, _ = self.none()
        generator = torch.Generator().manual_seed(0)
        values = tr.measure("nDCG")(scores, labels, lists, empty="zero", generator=generator)
        torch.testing.assert_close(losses, -values.float())
        assert losses[3:].tolist() == [0, 0]

    @pytest.mark.parametrize(
        ("weights", "share_of_mean"),
        [
            (None, [1 / 3, 1 / 3, 1 / 3, 0, 0]),  # lists with nothing relevant don't count
            ([1.0, 2.0, 5.0, 7.0, 9.0], [1 / 8, 2 / 8, 5 / 8, 0, 0]),
            ([0.0, 3.0, 0.0, 0.0, 0.0], [0, 1, 0, 0, 0]),
            ([0.0, 0.0, 0.0, 1.0, 1.0], [0, 0, 0, 0, 0]),  # nothing to average: 0, not NaN
        ],
    )
    def test_sum_and_mean_by_hand(self, weights, share_of_mean):
        arguments = () if weights is None else (torch.tensor(weights),)
        for reduction, share in (("sum", weights or [1.0] * 5), ("mean", share_of_mean)):
            scores, labels, lists = self.problem()
            loss = loss_of(scores, labels, lists, *arguments, reduction=reduction)
            losses, leaf = self.none()
            by_hand = (losses * torch.tensor(share)).sum()
            torch.testing.assert_close(loss, by_hand)
            torch.testing.assert_close(gradient(loss, scores), gradient(by_hand, leaf))

    def test_weights_without_reduction(self):
        weights = torch.tensor([1.0, 2.0, 5.0, 7.0, 9.0])
        torch.testing.assert_close(self.none(weights)[0], weights * self.none()[0])

    def test_samples_are_averaged(self):
        scores, labels, lists = self.problem()
        options = {"perturbation": 0.5, "samples": 4}
        loss = loss_of(scores, labels, lists, reduction="none", **options)
        generator = torch.Generator().manual_seed(0)
        orders = tr.exact_ranks(scores, lists, generator=generator, **options)
        each = [tr.measure("nDCG")(-r, labels, lists, empty="zero") for r in orders]
        torch.testing.assert_close(loss, -torch.stack(each).mean(0).float())
        assert len({tuple(r.tolist()) for r in orders}) > 1


class TestPadding:
    # Holes, an all-padding row, a full row, a single document.
    mask = torch.tensor(
        [[1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 0]]
    ).bool()

    @pytest.mark.parametrize("padding", [0.0, 1e9, float("inf"), float("nan")])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_equals_the_flat_form(self, strategy, padding):
        flat, labels, lists = problem(sizes=(4, 0, 6, 1))
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
        padded = torch.full(self.mask.shape, padding)
        padded[self.mask] = flat.detach()
        padded.requires_grad_()
        # No label means padding: the highest one there may stand for a document or for none.
        labels_there = torch.full(self.mask.shape, 2).masked_scatter(self.mask, labels)
        expected = loss_of(flat, labels, lists, weights, strategy=strategy)
        generator = torch.Generator().manual_seed(0)
        loss_function = tr.DirectLoss("nDCG", strategy, generator=generator)
        loss = loss_function(padded, labels_there, mask=self.mask, weights=weights)
        assert loss == expected
        result = gradient(loss, padded)
        assert torch.equal(result[self.mask], gradient(expected, flat))
        assert not result[~self.mask].any()

    def test_without_a_mask_nothing_is_padding(self):
        scores, labels, lists = problem(sizes=(3, 3, 3))
        square = loss_of(scores.view(3, 3), labels.view(3, 3), None)
        assert square == loss_of(scores, labels, lists)

    def test_flat_scores_without_lists_are_refused(self):
        # Taken for one list, they would train on queries mixed up, without a word.
        scores, labels, _ = problem(sizes=(9,))
        with pytest.raises(tr.InputError, match="Flat scores need lists"):
            loss_of(scores, labels, None)

    def test_only_padding(self):
        scores = torch.rand(2, 3, requires_grad=True)
        mask = torch.zeros(2, 3, dtype=torch.bool)
        loss = tr.DirectLoss("AP")(scores, torch.ones(2, 3), mask=mask)
        loss.backward()
        assert loss == 0
        assert not scores.grad.any()


class TestModule:
    loss = tr.DirectLoss(
        "nDCG(gain=linear)@3", "type2", 2.5, 0.5, 3, reduction="sum", kernel="long(accuracy=1e-6)"
    )

    @pytest.mark.parametrize(
        "duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))]
    )
    def test_copies_behave_the_same(self, duplicate):
        original = copy.deepcopy(self.loss)
        original.generator = torch.Generator().manual_seed(5)
        duplicated = duplicate(original)
        assert repr(duplicated) == repr(original)
        for _ in range(2):  # the copy's generator starts where the original's stood
            scores, labels, lists = problem()
            first, second = original(scores, labels, lists), duplicated(scores, labels, lists)
            assert first == second
            assert torch.equal(gradient(first, scores), gradient(second, scores))

    def test_repr(self):
        assert repr(tr.DirectLoss("AP")) == "DirectLoss(AP, strategy=type3, alpha=1)"
        shown = "nDCG(gain=linear)@3, strategy=type2, alpha=2.5, perturbation=0.5, samples=3"
        assert repr(self.loss) == f"DirectLoss({shown})"

    def test_has_nothing_to_learn_or_save(self):
        assert list(self.loss.parameters()) == []
        assert self.loss.state_dict() == {}


class TestTraining:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_plain_loop_learns_to_rank(self, strategy):
        torch.manual_seed(0)
        lists = tr.Lists.from_sizes([20] * 30)
        features = torch.randn(lists.documents, 8)
        utility = features @ torch.randn(8) + 0.3 * torch.randn(lists.documents)
        labels = torch.bucketize(utility, torch.tensor([1.0, 3.0, 5.0]))
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

        def ndcg():
            return tr.measure("nDCG@5")(model(features).squeeze(-1), labels, lists).nanmean()

        before = ndcg()
        loss_function = tr.DirectLoss("nDCG", strategy)
        for _ in range(40):
            optimizer.zero_grad()
            loss_function(model(features).squeeze(-1), labels, lists).backward()
            optimizer.step()
        assert before < 0.7
        assert ndcg() > 0.9

    def test_the_seed_settles_everything(self):
        def run():
            torch.manual_seed(3)
            model = nn.Linear(4, 1)
            features = torch.randn(17, 4).round()
            _, labels, lists = problem()
            loss_function = tr.DirectLoss("AP", perturbation=1.0, samples=2)
            for _ in range(5):
                model.zero_grad()
                loss_function(model(features).squeeze(-1), labels, lists).backward()
                with torch.no_grad():
                    model.weight -= model.weight.grad
            return model.weight.detach()

        assert torch.equal(run(), run())

    # Torch's compiler uses what torch deprecates, and asks for .grad wherever a graph breaks.
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
    @pytest.mark.parametrize(
        "function", ["DirectLoss", pytest.param("twin_ranks", marks=pytest.mark.slow), "measure"]
    )
    @pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=needs_compiler)])
    def test_torch_compile(self, backend, function):
        def train(wrap):
            random = torch.Generator().manual_seed(0)
            torch.manual_seed(0)
            model = nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loss_function = tr.DirectLoss("nDCG", perturbation=0.5, samples=2)

            def step(features, labels, lists):
                optimizer.zero_grad()
                scores = model(features).squeeze(-1) * 2
                if function == "measure":
                    return tr.measure("nDCG")(scores, labels, lists).mean()
                if function == "DirectLoss":
                    loss = loss_function(scores, labels, lists)
                else:
                    loss = (tr.twin_ranks(scores, labels, lists) * labels).mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            step, losses = wrap(step), []
            for _ in range(12):  # other lists each time: more than the compiler makes variants of
                sizes = torch.randint(1, 9, (5,), generator=random)
                features = torch.randn(int(sizes.sum()), 4, generator=random)
                labels = torch.randint(1, 3, (len(features),), generator=random)
                losses.append(step(features, labels, tr.Lists.from_sizes(sizes)))
            return torch.stack(losses), model.weight.detach()

        losses, weights = train(lambda step: step)
        torch.compiler.reset()
        counters = torch._dynamo.utils.counters
        counters.clear()
        result = train(lambda step: torch.compile(step, backend=backend))
        torch.testing.assert_close(result, (losses, weights))
        assert counters["stats"]["unique_graphs"] > 0  # the step around it was compiled …
        if backend == "eager":  # … and the compiler didn't look into the library
            assert counters["frames"]["total"] < 40

    def test_the_compiler_is_not_imported_without_need(self):
        # torch._dynamo takes over a second to import, and only torch.compile needs it.
        script = """if True:
            import sys, torch, twinrank as tr
            scores = torch.tensor([1.0, 2.0], requires_grad=True)
            labels, lists = torch.tensor([1, 0]), tr.Lists.from_sizes([2])
            tr.DirectLoss("AP")(scores, labels, lists).backward()
            tr.twin_ranks(scores, labels, lists).sum().backward()
            print("torch._dynamo" in sys.modules)
            """
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(("batch", "threads"), [(500, 1), (12_000, 2)])
def test_small_steps_use_one_thread(batch, threads):
    seen, before = set(), torch.get_num_threads()

    class Look(Callback):
        def on_step_end(self, trainer):
            seen.add(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        ranker = tr.Ranker(epochs=1, batch_documents=batch)
        ranker.fit(tr.synthetic_web_search(queries=6), callbacks=[Look()])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {threads}


def test_threads_come_back_when_small_trainings_overlap():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_torch_thread(), one_torch_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
