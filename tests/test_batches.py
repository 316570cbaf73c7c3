"""Batches: whole queries up to a budget, in an order that a seed decides, made ahead of use."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import twinrank as tr
from twinrank import Dataset, InputError, Lists, load, transform

NAME = "twinrank-batches_0"


def made(sizes):
    """Features that tell the document, labels that tell the query."""
    documents = int(np.sum(sizes))
    X = np.stack([np.arange(documents), np.random.default_rng(0).random(documents)], axis=1)
    return Dataset.from_arrays(X, np.repeat(np.arange(len(sizes)), sizes), group=sizes)


def same(one, other):
    return all(
        np.array_equal(a.X, b.X)
        and np.array_equal(a.y, b.y)
        and np.array_equal(a.queries, b.queries)
        and a.lists == b.lists
        for a, b in zip(one, other, strict=True)
    )


def workers():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def gone(seconds=5.0):
    """Whether all workers end soon."""
    end = time.monotonic() + seconds
    while workers() and time.monotonic() < end:
        time.sleep(0.01)
    return not workers()


sizes = st.lists(st.integers(0, 9), min_size=1, max_size=20).filter(any)
seeds = st.none() | st.integers(0, 5)


@given(sizes, st.integers(1, 25), seeds, st.integers(0, 3), st.integers(0, 3))
def test_every_query_once_within_the_budget(sizes, budget, seed, epoch, ahead):
    data = made(sizes)
    seen = []
    for batch in data.batches(budget, random_state=seed, ahead=ahead).epoch(epoch):
        assert batch.lists.documents <= budget or batch.queries.size == 1
        assert batch.lists.sizes.tolist() == data.lists.sizes[batch.queries].tolist()
        assert batch.X.shape == (batch.lists.documents, 2)
        assert batch.X.flags.c_contiguous
        rows = batch.X[:, 0].astype(int)
        assert np.array_equal(batch.X, data.X[rows])
        assert np.array_equal(batch.y, data.y[rows])
        assert np.array_equal(batch.y, np.repeat(batch.queries, batch.lists.sizes))
        for where in batch.lists:  # a query's documents, all of them and in their order
            assert (np.diff(rows[where]) == 1).all()
        seen += batch.queries.tolist()
    assert sorted(seen) == np.flatnonzero(sizes).tolist()


@given(sizes, st.integers(1, 25), seeds)
def test_batches_are_as_full_as_the_order_allows(sizes, budget, seed):
    data = made(sizes)
    plan = data.batches(budget, random_state=seed).plan(0)
    documents = [int(data.lists.sizes[queries].sum()) for queries in plan]
    following = [int(data.lists.sizes[queries[0]]) for queries in plan[1:]]
    assert all(n + more > budget for n, more in zip(documents, following, strict=False))


def test_a_seed_decides_the_order():
    data = made([3, 1, 4, 1, 5, 9, 2, 6] * 5)
    shuffled = data.batches(12, random_state=1)
    for ahead in (0, 1, 5):
        assert same(shuffled.epoch(2), data.batches(12, random_state=1, ahead=ahead).epoch(2))
    orders = [
        np.concatenate(data.batches(12, random_state=s).plan(e)) for s in (1, 2) for e in (0, 1)
    ]
    assert all(not np.array_equal(a, b) for a, b in pairwise(orders))
    assert same(shuffled, shuffled.epoch(0))
    in_order = data.batches(12)
    assert np.array_equal(np.concatenate(in_order.plan(0)), np.arange(data.queries))
    assert same(in_order.epoch(0), in_order.epoch(7))


def test_a_selection_has_batches_of_its_own():
    data = made([3, 1, 4, 1, 5])
    chosen = data.select([4, 0, 2])
    batches = list(chosen.batches(8))
    assert [batch.queries.tolist() for batch in batches] == [[0, 1], [2]]
    assert np.array_equal(np.concatenate([batch.X for batch in batches]), chosen.X)
    assert batches[0].y.tolist() == [4.0] * 5 + [0.0] * 3


def test_transforms_are_applied_to_copies():
    data = made([3, 1, 4])
    before = data.X.copy()

    def double(X, lists, out):
        assert lists.documents == X.shape[0]
        return np.multiply(X, 2, out=out)

    for ahead in (0, 2):
        changed = np.concatenate([b.X for b in data.batches(4, transform=double, ahead=ahead)])
        assert np.array_equal(changed, 2 * before)
    assert np.array_equal(data.X, before)


def test_the_librarys_transforms_fit_in():
    data = made([3, 1, 4])
    scale = transform("QueryZScore").fit(data.X, data.lists)
    parts = [batch.X for batch in data.batches(4, transform=scale)]
    assert np.allclose(np.concatenate(parts), scale(data.X, data.lists))


def test_an_error_in_the_worker_reaches_the_consumer():
    calls = []

    def fail(X, lists, out):
        calls.append(lists.documents)
        if len(calls) == 3:
            raise InputError("the third batch is bad")
        return X

    for ahead in (0, 1, 4):
        calls.clear()
        batches = made([2] * 10).batches(2, transform=fail, ahead=ahead).epoch(0)
        assert next(batches).queries.tolist() == [0]
        assert next(batches).queries.tolist() == [1]
        with pytest.raises(InputError, match="the third batch is bad"):
            next(batches)
        assert list(batches) == []
    assert gone()


def test_threads_end_with_their_iterator():
    data = made([2] * 1000)
    for _ in data.batches(2):
        break
    assert gone(), "left by break"
    batches = data.batches(2).epoch(0)
    next(batches)
    assert len(workers()) == 1
    batches.close()
    assert gone(), "closed"
    batches = data.batches(2).epoch(0)
    next(batches)
    del batches
    assert gone(), "dropped"
    list(data.batches(50))
    assert gone(), "used up"


def test_a_single_batch_needs_no_thread():
    def note(X, lists, out):
        assert threading.current_thread().name != NAME
        return X

    assert len(list(made([2] * 10).batches(20, transform=note))) == 1


def test_batches_are_made_ahead_but_not_all_at_once():
    made_so_far = []

    def note(X, lists, out):
        made_so_far.append(1)
        return X

    batches = made([2] * 100).batches(2, transform=note, ahead=3).epoch(0)
    next(batches)
    end = time.monotonic() + 5
    while len(made_so_far) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(made_so_far) == 4, "one in use, three ready"
    batches.close()


def test_several_epochs_at_once():
    data = made([2] * 30)
    pairs = zip(data.batches(4).epoch(0), data.batches(4, ahead=1).epoch(1), strict=True)
    assert all(same([a], [b]) for a, b in pairs)


def test_a_memory_map_stays_one(tmp_path, monkeypatch):
    """Batches read the rows they need: the whole matrix is never asked for."""
    made([5] * 40).save(tmp_path / "data")
    data = load(tmp_path / "data")
    assert not data.X.flags.owndata
    assert not data.X.flags.writeable
    asked = []
    whole = Dataset.X.func
    monkeypatch.setattr(Dataset, "X", property(lambda self: asked.append(1) or whole(self)))
    chosen = data.select(np.arange(39, -1, -2))
    total = sum(batch.X[:, 0].sum() for batch in chosen.batches(17, random_state=0))
    assert asked == []
    rows = np.arange(200).reshape(40, 5)[1::2]
    assert total == rows.sum()


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"documents": 0}, "A batch needs one document or more, not 0"),
        ({"documents": 5, "ahead": -1}, "ahead must be 0 or more, not -1"),
    ],
)
def test_bad_choices(choices, complaint):
    with pytest.raises(InputError, match=complaint):
        made([1]).batches(**choices)


def test_a_long_query_is_a_batch_by_itself():
    plan = made([2, 50, 2, 2]).batches(10).plan(0)
    assert [queries.tolist() for queries in plan] == [[0], [1], [2, 3]]


def test_lists_of_a_batch_are_lists():
    assert next(iter(made([2, 3]).batches(5))).lists == Lists.from_sizes([2, 3])


def test_what_a_transform_made_is_kept_where_it_fits():
    data = tr.synthetic_web_search(queries=12)
    calls = []

    class Counted(type(tr.transform("QueryZScore"))):
        def apply(self, x, lists, out):
            calls.append(len(lists))
            super().apply(x, lists, out)

    size = data.documents * data.features * 4
    for keep, expected in ((0, 36), (size - 1, 36), (size, 12)):
        calls.clear()
        kept = data.batches(300, random_state=0, transform=Counted(), keep=keep)
        plain = data.batches(300, random_state=0, transform=tr.transform("QueryZScore"))
        for epoch in range(3):
            for a, b in zip(kept.epoch(epoch), plain.epoch(epoch), strict=True):
                assert np.array_equal(a.X, b.X)
                assert np.array_equal(a.y, b.y)
                a.X[:] = 0  # a batch is the caller's own
        assert sum(calls) == expected
