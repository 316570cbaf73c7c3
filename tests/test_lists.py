"""Lists against plain Python loops over lists, in NumPy and in torch."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twinrank.core.lists import Lists
from twinrank.support.errors import InputError

LIBRARIES = [np.asarray, torch.tensor]
in_both = pytest.mark.parametrize("library", LIBRARIES, ids=["numpy", "torch"])
# The first call of a compiled loop may take longer than hypothesis allows an example.
quick = settings(deadline=None, max_examples=40)

# Whole numbers add up, and powers of two multiply, without rounding: loops in any order agree to
# the last bit. Lists without documents come first, last and in between.
whole = st.integers(-8, 8).map(float)
power = st.sampled_from([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 0.0])


def lists_of(values):
    return st.lists(st.lists(values, max_size=6), max_size=6)


def flat(nested):
    return np.array([x for row in nested for x in row], float)


def lists_like(nested):
    return Lists.from_sizes([len(row) for row in nested])


def check(result, expected, library):
    """Equal to the last bit, in double precision, in the library that was asked."""
    assert isinstance(result, np.ndarray if library is np.asarray else torch.Tensor)
    assert str(result.dtype).endswith("float64")
    assert result.tolist() == list(expected)


# How lists are made


@pytest.mark.parametrize(
    "lists",
    [
        Lists([0, 2, 2, 5]),
        Lists.from_offsets([0, 2, 2, 5]),
        Lists.from_offsets(torch.tensor([0, 2, 2, 5])),
        Lists.from_offsets(np.array([0, 2, 2, 5], np.uint16)),
        Lists.from_sizes([2, 0, 3]),
        Lists.from_sizes((2, 0, 3)),
        Lists.from_sizes(torch.tensor([2, 0, 3], dtype=torch.int32)),
        Lists.from_sizes(np.array([2, 0, 3], np.uint8)),
        # The mask may have holes: what counts is how many documents a row has.
        Lists.from_mask(np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]], bool)),
        Lists.from_mask(torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)),
    ],
)
def test_every_constructor_makes_the_same_lists(lists):
    assert lists == Lists([0, 2, 2, 5])
    assert lists.offsets.tolist() == [0, 2, 2, 5]
    assert lists.sizes.tolist() == [2, 0, 3]
    assert lists.offsets.dtype == lists.sizes.dtype == np.int64
    assert (len(lists), lists.documents, lists.longest) == (3, 5, 3)
    assert list(lists) == [slice(0, 2), slice(2, 2), slice(2, 5)]
    assert repr(lists) == "Lists(3 lists, 5 documents, longest 3)"


@pytest.mark.parametrize(
    "qid",
    [
        [7, 7, 3, 9, 9, 9],
        ["shoes", "shoes", "a longer query", "hats", "hats", "hats"],
        np.array(["b", "b", "a", "c", "c", "c"], dtype=object),
        np.array([7, 7, 3, 9, 9, 9], np.uint64),
        np.array([0.5, 0.5, 0.25, 1.0, 1.0, 1.0]),
        torch.tensor([7, 7, 3, 9, 9, 9]),
    ],
    ids=["int", "str", "object", "uint64", "float", "torch"],
)
def test_query_ids_need_only_be_adjacent_not_sorted(qid):
    assert Lists.from_qid(qid).sizes.tolist() == [2, 1, 3]


@quick
@given(lists_of(whole))
def test_query_ids_give_the_lists_that_have_documents(nested):
    qid = [f"query {q}" for q, row in enumerate(nested) for _ in row]
    assert Lists.from_qid(qid).sizes.tolist() == [len(row) for row in nested if row]


@in_both
@quick
@given(rows=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=5))
def test_a_mask_selects_the_documents_of_its_lists(library, rows):
    mask = library(np.array(rows, bool).reshape(-1, 4))
    padded = library(np.arange(mask.shape[0] * 4.0).reshape(-1, 4))
    lists = Lists.from_mask(mask)
    assert [list(padded[mask][row]) for row in lists] == [
        list(row[keep]) for row, keep in zip(padded, mask, strict=True)
    ]


@pytest.mark.parametrize(
    "lists",
    [Lists([0]), Lists.from_sizes([]), Lists.from_qid([]), Lists.from_mask(np.ones((0, 3), bool))],
)
def test_no_lists_at_all(lists):
    assert (len(lists), lists.documents, lists.longest, list(lists)) == (0, 0, 0, [])
    assert lists.sum(np.empty(0)).shape == lists.sum(torch.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Lists([]), "offsets must start with 0 and hold one more entry than there are"),
        (lambda: Lists([1, 2]), "offsets must start with 0"),
        (lambda: Lists([0, 3, 2]), r"must not decrease: offsets\[1\] = 3, offsets\[2\] = 2"),
        (lambda: Lists([[0, 1]]), r"offsets must have one dimension, but has shape \(1, 2\)"),
        (lambda: Lists([0.0, 2.5]), "offsets must be whole numbers, not float64"),
        (lambda: Lists.from_offsets(5), r"offsets must have one dimension, but has shape \(\)"),
        (lambda: Lists.from_sizes([2, -1]), r"must not be negative: sizes\[1\] = -1"),
        (lambda: Lists.from_sizes([2.5, 3.0]), "sizes must be whole numbers, not float64"),
        (lambda: Lists.from_sizes(torch.ones(2) / 2), "sizes must be whole numbers, not float32"),
        (lambda: Lists.from_sizes([2.0, math.nan]), "sizes must be whole numbers, not float64"),
        (lambda: Lists.from_sizes([2.0, math.inf]), "sizes must be whole numbers, not float64"),
        (lambda: Lists.from_sizes([2.0, -1.0]), r"must not be negative: sizes\[1\] = -1"),
        (lambda: Lists.from_sizes([True, False]), "sizes must be whole numbers, not bool"),
        (lambda: Lists.from_sizes(["2"]), "sizes must be whole numbers, not <U1"),
        (lambda: Lists.from_sizes([[2, 3]]), r"sizes must have one dimension, but .* \(1, 2\)"),
        (lambda: Lists.from_qid([[1, 2]]), r"qid must have one dimension, but has shape \(1, 2\)"),
        (lambda: Lists.from_qid([1.0, math.nan]), r"qid of document 1 is missing \(nan\)"),
        (lambda: Lists.from_qid([4, 4, 2, 4]), "query 4 starts again at document 3"),
        (lambda: Lists.from_qid(["a", "b", "a"]), "query a starts again at document 2"),
        (lambda: Lists.from_mask(np.ones((2, 3))), r"mask must be boolean .* not float64 .*2, 3"),
        (lambda: Lists.from_mask(np.ones((2, 3), int)), "mask must be boolean .* not int64"),
        (lambda: Lists.from_mask(np.ones(3, bool)), r"must .* \(lists, documents\), .*\(3,\)"),
        (lambda: Lists.from_mask(torch.ones(2, 3)), "mask must be boolean .* not float32"),
    ],
)
def test_invalid_lists_say_why(make, complaint):
    with pytest.raises(InputError, match=complaint):
        make()


def test_whole_numbers_may_be_floats():
    """As np.loadtxt reads them."""
    expected = Lists.from_sizes([2, 0, 3])
    for sizes in ([2.0, 0.0, 3.0], np.float32([2, 0, 3]), torch.tensor([2.0, 0.0, 3.0])):
        lists = Lists.from_sizes(sizes)
        assert lists == expected
        assert lists.offsets.dtype == lists.sizes.dtype == np.int64
    assert Lists([0.0, 2.0, 2.0, 5.0]) == expected


def test_scattered_queries_come_with_a_hint_that_helps():
    qid = np.array([4, 2, 4, 2])
    with pytest.raises(InputError, match=r"order = np.argsort\(qid, kind='stable'\)"):
        Lists.from_qid(qid)
    order = np.argsort(qid, kind="stable")
    assert Lists.from_qid(qid[order]).sizes.tolist() == [2, 2]


# Values that don't change


def test_lists_cannot_be_changed():
    given_offsets = np.array([0, 2, 5])
    lists = Lists(given_offsets)
    for name in ("offsets", "sizes", "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(lists, name, given_offsets)
    for array in (lists.offsets, lists.sizes, lists.positions(np.empty(0))):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    given_offsets[1] = 3  # the caller's array stays the caller's
    assert lists.sizes.tolist() == [2, 3]


def test_equal_lists_are_one_key():
    lists, same, different = Lists([0, 2, 5]), Lists.from_sizes([2, 3]), Lists.from_sizes([3, 2])
    assert lists == same
    assert lists != different
    assert lists != Lists([0, 2, 5, 5])  # one more list, without documents
    assert lists != [0, 2, 5]
    assert {lists: "found"}[same] == "found"
    assert len({lists, same, different}) == 2


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda lists: pickle.loads(pickle.dumps(lists))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_equal_and_work(again):
    lists = Lists.from_sizes([2, 0, 3]).to("cpu")
    lists.positions(np.empty(0))  # what lists remember need not survive, but must not harm
    copied = again(lists)
    assert copied == lists
    assert hash(copied) == hash(lists)
    assert copied.sum(torch.ones(5)).tolist() == [2, 0, 3]


def test_moving_to_a_device_gives_the_same_lists():
    lists = Lists.from_sizes([2, 3])
    assert lists.to("cpu") is lists
    assert lists.to(torch.device("cpu")).index(torch.empty(0)).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_tiled_lists_are_the_same_lists_again_and_again(times):
    lists = Lists.from_sizes([2, 0, 3])
    tiled = lists.tile(times)
    assert tiled.sizes.tolist() == [2, 0, 3] * times
    assert tiled.sum(np.tile(np.arange(5.0), times)).tolist() == [0 + 1, 0, 2 + 3 + 4] * times
    assert lists.tile(times) is tiled  # made once


@quick
@given(lists_of(whole))
def test_list_of_a_document(nested):
    lists = lists_like(nested)
    expected = [q for q, row in enumerate(nested) for _ in row]
    assert [lists.list_of(i) for i in range(lists.documents)] == expected
    assert lists.index(np.empty(0)).tolist() == expected
    assert lists.index(torch.empty(0)).tolist() == expected
    starts = [lists.offsets[q] for q in expected]
    assert lists.starts(np.empty(0)).tolist() == lists.starts(torch.empty(0)).tolist() == starts


@in_both
def test_arrays_that_do_not_align_are_refused(library):
    lists = Lists.from_sizes([2, 3])
    lists.check(scores=library(np.ones(5)), labels=library(np.ones(5)))
    for wrong in (np.ones(4), np.ones((5, 1))):
        with pytest.raises(
            InputError, match=r"labels has shape \([45],.*\) but lists has 5 documents in 2"
        ):
            lists.check(scores=library(np.ones(5)), labels=library(wrong))


# What lists compute


@in_both
@quick
@given(nested=lists_of(whole))
def test_sums_maxima_and_sorts(library, nested):
    lists, x = lists_like(nested), library(flat(nested))
    check(lists.sum(x), map(math.fsum, nested), library)
    check(lists.max(x), (max(row, default=0.0) for row in nested), library)
    check(lists.sort(x), flat([sorted(row, reverse=True) for row in nested]), library)


@in_both
@quick
@given(nested=lists_of(st.floats(allow_nan=False, width=64)))
def test_sorts_of_any_numbers(library, nested):
    # Small whole numbers are counted, all others sorted: infinities and −0 among them.
    lists, x = lists_like(nested), library(flat(nested))
    check(lists.sort(x), flat([sorted(row, reverse=True) for row in nested]), library)


@in_both
@pytest.mark.parametrize("odd_one", [0, 255, 256, 2047, 2048, 10**6, 2**53, 0.5, -1, math.inf])
def test_one_odd_number_among_small_whole_ones_is_sorted_too(library, odd_one):
    lists, x = Lists.from_sizes([3, 0, 2]), library([1.0, 3.0, 2.0, float(odd_one), 7.0])
    check(lists.sort(x), [3, 2, 1, max(odd_one, 7), min(odd_one, 7)], library)


@in_both
@pytest.mark.parametrize("draw", ["normal", "integers"])
def test_sorts_of_long_lists(library, draw):
    rng = np.random.default_rng(0)
    x = rng.normal(size=1300) if draw == "normal" else rng.integers(0, 5, 1300).astype(float)
    expected = np.r_[np.sort(x[:300])[::-1], np.sort(x[300:])[::-1]]
    check(Lists.from_sizes([300, 1000]).sort(library(x)), expected, library)


@in_both
@quick
@given(nested=lists_of(whole))
def test_cumulative_sums_from_either_end(library, nested):
    lists, x = lists_like(nested), library(flat(nested))
    front = [list(itertools.accumulate(row)) for row in nested]
    back = [list(itertools.accumulate(row[::-1]))[::-1] for row in nested]
    check(lists.cumsum(x), flat(front), library)
    check(lists.cumsum(x, reverse=True), flat(back), library)


@in_both
@quick
@given(nested=lists_of(power))
def test_cumulative_products(library, nested):
    lists, x = lists_like(nested), library(flat(nested))
    expected = [itertools.accumulate(row, lambda a, b: a * b) for row in nested]
    check(lists.cumprod(x), flat(expected), library)


@quick
@given(nested=lists_of(power), reverse=st.booleans())
def test_scans_by_doubling_are_scans(nested, reverse):
    # This is how scans run on devices that the compiled loops can't reach.
    lists, x = lists_like(nested), torch.tensor(flat(nested))
    total = lists.scan_by_doubling(x, torch.add, reverse=reverse)
    assert torch.equal(total, lists.cumsum(x, reverse=reverse))
    assert torch.equal(lists.scan_by_doubling(x, torch.mul), lists.cumprod(x))


@pytest.mark.parametrize("longest", [1, 2, 3, 4, 5, 31, 32, 33, 1000])
def test_scans_by_doubling_reach_the_end_of_long_lists(longest):
    lists = Lists.from_sizes([longest, 0, 2, longest])
    x = torch.arange(1.0, lists.documents + 1, dtype=torch.float64)
    for reverse in (False, True):
        scanned = lists.scan_by_doubling(x, torch.add, reverse=reverse)
        assert torch.equal(scanned, lists.cumsum(x, reverse=reverse))


@in_both
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_no_list_spills_into_its_neighbours(library, bad):
    lists, x = Lists.from_sizes([2, 2, 2]), library([1.0, 2.0, bad, bad, 3.0, 4.0])
    outside = [0, 1, 4, 5]
    assert lists.sum(x)[[0, 2]].tolist() == [1 + 2, 3 + 4]
    assert lists.cumsum(x)[outside].tolist() == [1, 1 + 2, 3, 3 + 4]
    assert lists.cumsum(x, reverse=True)[outside].tolist() == [2 + 1, 2, 4 + 3, 4]
    assert lists.cumprod(x)[outside].tolist() == [1, 1 * 2, 3, 3 * 4]
    doubled = lists.scan_by_doubling(torch.as_tensor(x), torch.add)
    assert doubled[outside].tolist() == [1, 1 + 2, 3, 3 + 4]


@in_both
@quick
@given(nested=lists_of(whole))
def test_values_by_list_and_by_position(library, nested):
    lists = lists_like(nested)
    per_list = library(np.arange(len(nested)) / 4)
    check(
        lists.spread(per_list), flat([[q / 4] * len(row) for q, row in enumerate(nested)]), library
    )
    places = [range(len(row)) for row in nested]
    check(lists.positions(per_list), flat([[i + 1 for i in row] for row in places]), library)
    table = library(1.0 / np.arange(1, 10))  # a table may be longer than any list
    expected = flat([[1 / (i + 1) for i in row] for row in places])
    check(lists.by_position(table), expected, library)


@in_both
@quick
@given(nested=lists_of(whole), random=st.randoms(use_true_random=False))
def test_rank_order_and_back(library, nested, random):
    lists, x = lists_like(nested), library(flat(nested))
    ranks = [random.sample(range(1, len(row) + 1), len(row)) for row in nested]
    by_rank = [
        [value for _, value in sorted(zip(rank, row, strict=True))]
        for rank, row in zip(ranks, nested, strict=True)
    ]
    check(lists.arrange(x, library(flat(ranks))), flat(by_rank), library)
    check(lists.restore(library(flat(by_rank)), library(flat(ranks))), flat(nested), library)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.float16, np.float32])
def test_any_numbers_are_summed_in_double_precision(dtype):
    lists, x = Lists.from_sizes([1, 0, 2]), np.array([1, 0, 1], dtype)
    for library in LIBRARIES:
        check(lists.sum(library(x)), [1, 0, 0 + 1], library)
        check(lists.max(library(x)), [1, 0, 1], library)
        check(lists.cumsum(library(x)), [1, 0, 0 + 1], library)


def test_precision_is_that_of_double_numbers():
    # 2²⁴ + 1 is no float32: summed in single precision the ones would vanish.
    x = torch.tensor([2.0**24, 1.0, 1.0, 1.0], dtype=torch.float32)
    lists = Lists.from_sizes([4])
    assert lists.sum(x).item() == lists.cumsum(x)[-1].item() == 2**24 + 3


@in_both
def test_strided_arrays(library):
    lists, x = Lists.from_sizes([2, 3]), library(np.arange(10.0))[::2]
    check(lists.sum(x), [0 + 2, 4 + 6 + 8], library)
    check(lists.sort(x), [2, 0, 8, 6, 4], library)
    check(lists.cumsum(x), [0, 2, 4, 4 + 6, 4 + 6 + 8], library)
    check(lists.arrange(x, library([2.0, 1.0, 3.0, 1.0, 2.0])), [2, 0, 6, 8, 4], library)


@quick
@given(nested=lists_of(whole))
def test_sums_pass_gradients_on(nested):
    lists = lists_like(nested)
    x = torch.tensor(flat(nested), requires_grad=True)
    total = lists.sum(x)
    assert total.tolist() == lists.sum(x.detach()).tolist()  # another path, the same value
    weight = torch.arange(1.0, len(lists) + 1, dtype=torch.float64)
    (total * weight).sum().backward()
    assert x.grad.tolist() == [q + 1 for q, row in enumerate(nested) for _ in row]


def test_gradients_of_sums_agree_with_differences():
    lists = Lists.from_sizes([2, 0, 3])
    x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: lists.sum(x**3), x)


def test_methods_without_a_gradient_detach():
    lists, x = Lists.from_sizes([2, 3]), torch.ones(5, requires_grad=True)
    for result in (lists.max(x), lists.sort(x), lists.cumsum(x), lists.cumprod(x)):
        assert not result.requires_grad


@pytest.mark.parametrize("kind", [np.ones, torch.ones])
@pytest.mark.parametrize("name", ["sum", "max", "min", "cumsum", "cumprod", "sort"])
@pytest.mark.parametrize("size", [3, 9])
def test_arrays_of_another_length_are_refused(name, size, kind):
    """Before a compiled loop could read or write past their end."""
    with pytest.raises(
        InputError, match=rf"values has shape \({size},\) but lists has 5 documents"
    ):
        getattr(Lists.from_sizes([2, 3]), name)(kind(size))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_ranks_and_tables_that_do_not_fit_are_refused(kind):
    lists = Lists.from_sizes([2, 3])
    with pytest.raises(InputError, match="A table of 2 entries is too short for a list of 3"):
        lists.by_position(kind([1.0, 2.0]))
    with pytest.raises(InputError, match=r"ranks has shape \(4,\)"):
        lists.arrange(kind([1.0] * 5), kind([1, 2, 1, 2]))


def test_ranks_beyond_their_list_are_refused():
    lists = Lists.from_sizes([2, 3])
    for ranks in ([1, 3, 1, 2, 3], [0, 1, 1, 2, 3]):
        with pytest.raises(InputError, match="between 1 and the length"):
            lists.arrange(np.ones(5), np.array(ranks))


@pytest.mark.parametrize("missing", [None, math.nan, np.datetime64("NaT")])
def test_missing_query_ids_are_refused(missing):
    with pytest.raises(InputError, match="qid of document 1 is missing"):
        Lists.from_qid(np.array(["a", missing, missing], dtype=object))


def test_query_ids_of_mixed_types_are_compared_as_text():
    assert Lists.from_qid(np.array(["a", "a", 1, 1, 2.5], dtype=object)).sizes.tolist() == [2, 2, 1]
