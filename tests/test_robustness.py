"""Bad input gets an error that says what is wrong and where; odd input never gives a NaN."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinrank as tr

inf, nan = math.inf, math.nan
LISTS = tr.Lists.from_sizes([2, 1])
STRATEGIES = ("type1", "type2", "type3")
KERNELS = ("numba", "long", "torch", "auto")


def direct_loss(scores=(1.0, 2.0, 3.0), labels=(0, 1, 2), lists=LISTS, weights=None, **options):
    mask, measure = options.pop("mask", None), options.pop("measure", "nDCG")
    scores, labels = torch.as_tensor(scores), torch.as_tensor(labels)
    return tr.DirectLoss(measure, **options)(scores, labels, lists, weights, mask=mask)


def twin_ranks(scores=(1.0, 2.0, 3.0), labels=(0, 1, 2), lists=LISTS, **options):
    return tr.twin_ranks(torch.as_tensor(scores), torch.as_tensor(labels), lists, **options)


def exact_ranks(scores=(1.0, 2.0, 3.0), **options):
    return tr.exact_ranks(torch.as_tensor(scores), LISTS, **options)


ALL = (direct_loss, twin_ranks, exact_ranks)
WITH_GRADIENT = (direct_loss, twin_ranks)


def message_of(function, *arguments, **options):
    with pytest.raises(tr.InputError) as caught:
        function(*arguments, **options)
    assert isinstance(caught.value, ValueError)  # for those who don't know our own errors
    return str(caught.value)


class TestErrors:
    @pytest.mark.parametrize("function", ALL)
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_nan_scores(self, function, dtype):
        assert message_of(function, torch.tensor([1.0, nan, nan], dtype=dtype)) == (
            "2 of 3 scores are NaN; the first is document 1, in list 0."
        )
        assert message_of(function, torch.tensor([1.0, 2.0, nan], dtype=dtype)) == (
            "1 of 3 scores are NaN; the first is document 2, in list 1."
        )

    def test_empty_lists_count_when_a_document_is_placed(self):
        lists = tr.Lists.from_sizes([0, 2, 0, 0, 1, 0])
        assert message_of(direct_loss, [1.0, 2.0, nan], lists=lists).endswith("in list 4.")

    @pytest.mark.parametrize("function", WITH_GRADIENT)
    @pytest.mark.parametrize("bad", [inf, -inf])
    def test_infinite_scores_have_no_gradient(self, function, bad):
        assert message_of(function, [1.0, bad, 3.0]) == (
            "1 of 3 scores are not finite; the first is document 1, in list 0."
        )

    @pytest.mark.parametrize("make", [np.array, torch.tensor])
    def test_infinite_scores_have_ranks(self, make):
        scores = make([inf, 3e38, -inf, 0.0, inf, -3e38, -inf])
        ranks = tr.exact_ranks(scores, tr.Lists.from_sizes([7]), ties="stable")
        assert ranks.tolist() == [1, 3, 6, 4, 2, 5, 7]

    @pytest.mark.parametrize("bad", [nan, inf, -inf])
    @pytest.mark.parametrize(
        "measure", ["nDCG", "nDCG(gain=[0, 1])", "AP", "nERR", "P@2", "RR", "RBP", "Judged"]
    )
    def test_labels_that_are_no_numbers(self, measure, bad):
        assert message_of(direct_loss, labels=[0, bad, 1], measure=measure) == (
            "1 of 3 labels are not finite; the first is document 1, in list 0."
        )

    @pytest.mark.parametrize("loss", [tr.DirectLoss("AP"), tr.ListNet()])
    def test_padding_as_a_label_is_refused(self, loss):
        scores, labels = torch.rand(2, 3), torch.tensor([[1, 0, -100], [0, 1, 2]])
        assert message_of(loss, scores, labels) == (
            "1 of 6 labels are below 0, but not -1; the first is document 2, in list 0. Labels are "
            "at least 0, or -1 for unjudged documents; leave padding out with mask."
        )
        assert loss(scores, labels, mask=labels >= 0).isfinite()

    def test_labels_too_high_for_an_exponential_gain(self):
        message = message_of(direct_loss, labels=[0, 2000, 1])
        assert "of nDCG takes labels up to 100, but there is a label 2000; use gain=lin" in message

    def test_nan_labels_of_twin_ranks(self):
        assert message_of(twin_ranks, labels=[0, 1, nan]) == (
            "1 of 3 labels are not finite; the first is document 2, in list 1."
        )

    @pytest.mark.parametrize(
        ("function", "bad", "message"),
        [
            (
                direct_loss,
                {"labels": [0, 1]},
                "scores has shape (3,) but labels has shape (2,); "
                "both need one entry per document.",
            ),
            (
                direct_loss,
                {"labels": [[0], [1], [2]]},
                "scores has shape (3,) but labels has shape (3, 1); "
                "both need one entry per document.",
            ),
            (
                direct_loss,
                {"scores": [1.0, 2.0]},
                "scores has shape (2,) but labels has shape (3,); "
                "both need one entry per document.",
            ),
            (
                direct_loss,
                {"lists": tr.Lists.from_sizes([2, 2])},
                "scores has shape (3,) but lists has 4 documents in 2 lists; "
                "scores needs one entry per document.",
            ),
            (
                twin_ranks,
                {"scores": [1.0, 2.0]},
                "scores has shape (2,) but lists has 3 documents in 2 lists; "
                "scores needs one entry per document.",
            ),
            (
                twin_ranks,
                {"labels": [0, 1]},
                "labels has shape (2,) but lists has 3 documents in 2 lists; "
                "labels needs one entry per document.",
            ),
            (
                exact_ranks,
                {"scores": [[1.0, 2.0, 3.0]]},
                "scores has shape (1, 3) but lists has 3 documents in 2 lists; "
                "scores needs one entry per document.",
            ),
            (
                direct_loss,
                {"weights": torch.ones(4)},
                "weights has shape (4,) but there are 2 lists; "
                "weights needs one entry per list, or per document.",
            ),
            (
                direct_loss,
                {"weights": torch.ones(2, 1)},
                "scores has shape (3,) but weights has shape (2, 1); "
                "both need one entry per document.",
            ),
        ],
    )
    def test_lengths_that_differ(self, function, bad, message):
        assert message_of(function, **bad) == message

    @pytest.mark.parametrize(
        ("functions", "bad", "message"),
        [
            (WITH_GRADIENT, {"strategy": "typ3"}, "strategy 'typ3'. Did you mean 'type3', 'type2'"),
            (WITH_GRADIENT, {"strategy": "x"}, "strategy 'x'. Choose from type1, type2, type3"),
            (WITH_GRADIENT, {"kernel": "nmba"}, "kernel 'nmba'. Did you mean 'numba'?"),
            (
                WITH_GRADIENT,
                {"kernel": "x"},
                "kernel 'x'. Choose from auto, torch, triton, numba, long",
            ),
            (WITH_GRADIENT, {"kernel": "long@3"}, "kernel 'long@3'. Did you mean 'long'?"),
            (
                WITH_GRADIENT,
                {"kernel": "numba(block=3)"},
                "kernel numba has no option 'block'. Its options: none",
            ),
            ((direct_loss,), {"reduction": "means"}, "reduction 'means'. Did you mean 'mean'?"),
            ((direct_loss,), {"reduction": "avg"}, "'avg'. Choose from mean, sum, none"),
            ((direct_loss,), {"measure": "NDGC@5"}, "measure 'NDGC'. Did you mean 'nDCG'?"),
            ((exact_ranks,), {"ties": "stabel"}, "Unknown ties 'stabel'. Did you mean 'stable'?"),
            ((exact_ranks,), {"ties": "x"}, "'x'. Choose from random, stable, average"),
        ],
    )
    def test_names_that_do_not_exist(self, functions, bad, message):
        for function in functions:
            assert message in message_of(function, **bad)

    def test_alpha_is_refused_at_once(self):
        assert message_of(tr.DirectLoss, "AP", alpha=-1).startswith("alpha must be a positive")

    @pytest.mark.parametrize("function", WITH_GRADIENT)
    @pytest.mark.parametrize("alpha", [0, -1.0, nan, inf])
    def test_alpha(self, function, alpha):
        message = message_of(function, alpha=alpha)
        assert message == f"alpha must be a positive number, not {alpha}."

    @pytest.mark.parametrize("function", ALL)
    @pytest.mark.parametrize("perturbation", [-0.5, nan, inf])
    def test_perturbation(self, function, perturbation):
        message = message_of(function, perturbation=perturbation)
        assert message == f"perturbation must be a number of at least 0, not {perturbation}."

    @pytest.mark.parametrize("function", ALL)
    @pytest.mark.parametrize("samples", [0, -3])
    def test_samples(self, function, samples):
        message = message_of(function, samples=samples)
        assert message == f"samples must be a whole number of at least 1, not {samples}."

    @pytest.mark.parametrize("bad", [-1.0, nan, inf])
    def test_weights(self, bad):
        message = message_of(direct_loss, weights=torch.tensor([1.0, bad]))
        assert message == "weights must be finite and not negative."

    def test_integer_scores(self):
        message = message_of(direct_loss, [3, 2, 1])
        assert message == "scores must be floating-point numbers, not torch.int64."

    @pytest.mark.parametrize("function", ALL)
    @pytest.mark.parametrize("generator", [0, 7, "seed", np.random.RandomState(0)])
    def test_generator(self, function, generator):
        start = "generator must be a torch.Generator, a numpy.random.Generator or None, not "
        assert message_of(function, generator=generator) == f"{start}{generator!r}."

    @pytest.mark.parametrize("lists", [[2, 1], torch.tensor([0, 0, 1])])
    @pytest.mark.parametrize("function", WITH_GRADIENT)
    def test_sizes_or_query_ids_instead_of_lists(self, function, lists):
        message = message_of(function, lists=lists)
        assert message.startswith("lists must be Lists, made by Lists.from_sizes(sizes) or")

    @pytest.mark.parametrize("name", ["scores", "labels"])
    def test_arrays_that_are_no_tensors(self, name):
        arguments = {"scores": torch.rand(3), "labels": torch.ones(3), name: np.ones(3)}
        message = message_of(tr.DirectLoss("AP"), **arguments, lists=LISTS)
        assert message == f"{name} must be a torch tensor, not ndarray."

    @pytest.mark.parametrize(
        ("scores", "options", "message"),
        [
            ((2, 3), {"lists": LISTS}, "got scores (2, 3), lists Lists(2 lists, 3 documents"),
            ((1, 2, 3), {"lists": None}, "got scores (1, 2, 3), lists None"),
            ((), {"lists": None}, "got scores (), lists None"),
            ((3,), {"mask": torch.ones(3).bool()}, "documents, longest 2) and mask (3,)"),
            (
                (2, 3),
                {"lists": None, "mask": torch.ones(2, 2).bool()},
                "mask has shape (2, 2) but scores has shape (2, 3); both must be the same",
            ),
            *(
                (
                    (1, 3),
                    {"lists": None, "mask": torch.ones(1, 3, dtype=dtype)},
                    f"mask must be boolean with shape (lists, documents), not {str(dtype)[6:]}",
                )
                for dtype in (torch.int64, torch.uint8, torch.float32)
            ),
        ],
    )
    def test_neither_flat_nor_padded(self, scores, options, message):
        assert message in message_of(direct_loss, torch.rand(scores), torch.ones(scores), **options)

    def test_an_error_leaves_everything_usable(self):
        loss = tr.DirectLoss("AP")
        message_of(loss, torch.tensor([nan, 1.0, 2.0]), torch.ones(3), LISTS)
        assert loss(torch.rand(3), torch.ones(3), LISTS) == -1


# No NaN ever. Any warning, such as NumPy's for 0/0 or an overflow, is an error here.


def numbers_for(dtype):
    """Scores of very different kinds: ordinary, tied, next to nothing, enormous."""
    huge = torch.finfo(dtype).max
    least = torch.finfo(dtype).smallest_normal
    return st.sampled_from(
        [
            st.floats(-5, 5),
            st.just(0.25),
            st.sampled_from([0.0, -0.0, least, -least, least / 8]),
            st.sampled_from([huge, -huge]),
            st.sampled_from([huge, -huge, 1.0, 0.0, 100.0, -1e-3]),
            st.floats(-1000, 1000),
        ]
    )


LABELS = st.sampled_from(
    [
        st.just(0),  # nothing relevant
        st.just(2),  # all labels equal
        st.integers(0, 4),
        st.integers(-1, 1),  # with unjudged documents
        st.sampled_from([0, 0.5, 1, 2.25]),  # no whole numbers
    ]
)
MEASURES = ["nDCG", "nDCG(gain=linear)@2", "AP", "AP@3", "P@2", "nERR", "ERR@1", "RR", "RBP"]


@st.composite
def odd_problems(draw):
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    sizes = draw(st.lists(st.integers(0, 6), max_size=4))  # empty lists, or no lists at all
    documents = sum(sizes)

    def draw_each(kinds):
        return draw(st.lists(draw(kinds), min_size=documents, max_size=documents))

    scores = torch.tensor(draw_each(numbers_for(dtype)), dtype=dtype)
    labels = torch.tensor(draw_each(LABELS), dtype=torch.float64)
    return scores.requires_grad_(), labels, tr.Lists.from_sizes(np.array(sizes, dtype=np.int64))


class TestNoNaN:
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("strategy", STRATEGIES)
    @settings(max_examples=60)
    @given(
        problem=odd_problems(),
        measure=st.sampled_from(MEASURES),
        log_alpha=st.floats(-3, 3),
        samples=st.sampled_from([(0.0, 1), (0.5, 2)]),
        reduction=st.sampled_from(["mean", "sum", "none"]),
    )
    @pytest.mark.filterwarnings("ignore:The loss is 0, because no label")
    def test_loss_and_gradient(
        self, strategy, kernel, problem, measure, log_alpha, samples, reduction
    ):
        scores, labels, lists = problem
        options = {"kernel": kernel, "reduction": reduction}
        loss_function = tr.DirectLoss(measure, strategy, 10**log_alpha, *samples, **options)
        loss = loss_function(scores, labels, lists)
        loss.sum().backward()
        assert loss.isfinite().all()
        assert scores.grad.isfinite().all()
        # Scores matter by their differences alone: a gradient moves no list as a whole.
        moved = torch.tensor([scores.grad[docs].sum().abs() for docs in lists])
        assert (moved <= 1e-4 * (1 + scores.grad.abs().sum())).all()

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @settings(max_examples=60)
    @given(problem=odd_problems(), log_alpha=st.floats(-3, 3))
    def test_twin_ranks(self, strategy, problem, log_alpha):
        scores, labels, lists = problem
        ranks = tr.twin_ranks(scores, labels, lists, strategy=strategy, alpha=10**log_alpha)
        for docs in lists:
            assert sorted(ranks[docs].tolist()) == list(range(1, docs.stop - docs.start + 1))
        ranks.square().sum().backward()
        assert scores.grad.isfinite().all()

    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_uninitialised_memory_does_not_matter(self, strategy, kernel, monkeypatch):
        # The second list is too wide to interpolate, so that its place stays empty for a while.
        lists = tr.Lists.from_sizes([4, 3, 0])
        scores = torch.tensor([0.3, 1.0, 2.0, -1.0, 1e30, -1e30, 0.0], requires_grad=True)
        labels = torch.tensor([1, 0, 2, 0, 0, 1, 0])
        loss = tr.DirectLoss("AP", strategy, kernel=kernel)(scores, labels, lists)
        loss.backward(retain_graph=True)
        expected, scores.grad = scores.grad, None
        empty = np.empty

        def dirty(*arguments, **options):
            array = empty(*arguments, **options)
            if array.dtype.kind == "f":
                array.fill(np.finfo(array.dtype).max)
            return array

        monkeypatch.setattr(np, "empty", dirty)
        loss.backward()
        assert torch.equal(scores.grad, expected)

    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_nothing_to_learn_is_no_gradient(self, strategy, kernel):
        # One document, nothing relevant, nothing at all.
        lists = tr.Lists.from_sizes([1, 3, 0])
        scores = torch.tensor([0.3, 1.0, 2.0, -1.0], requires_grad=True)
        labels = torch.tensor([1, 0, 0, 0])
        loss = tr.DirectLoss("AP", strategy, kernel=kernel)(scores, labels, lists)
        loss.backward()
        assert loss == -1  # the list of one; the others have nothing relevant
        assert not scores.grad.any()
