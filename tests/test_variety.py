"""Measures of variety: sub-topics as sets and as columns, ndeval's values, swaps, training."""

from collections import namedtuple
from itertools import combinations

import numpy as np
import polars as pl
import pytest
import torch

import twinrank as tr
from twinrank.core.measures import MEASURES
from twinrank.core.measures.variety import VarietyMeasure
from twinrank.learning.boosting.newton import Newton

NAMES = [kind.name for kind in MEASURES if issubclass(kind, VarietyMeasure)]
LISTS = tr.Lists.from_sizes([5, 0, 8, 1, 6])


def sets_of(seed=0, subtopics=3):
    random = np.random.default_rng(seed)
    sets = random.integers(0, 2**subtopics, LISTS.documents)
    sets[random.random(sets.size) < 0.4] = 0
    return sets.astype(float), random.normal(size=sets.size)


def at(name, k, subtopics=3):
    return tr.measure(f"{name}(subtopics={subtopics})" + ("" if k is None else f"@{k}"))


# Values


def gain(sets, order, beta, discount, k):
    """Σ discount · Σ_t βᶜ of documents in this order, as Clarke et al. write it."""
    total, seen = 0.0, {}
    for rank, document in enumerate(order[:k], 1):
        for t in range(10):
            if int(sets[document]) >> t & 1:
                total += beta ** seen.get(t, 0) * discount(rank)
                seen[t] = seen.get(t, 0) + 1
    return total


def greedy(sets, beta, discount, k):
    order, left = [], sorted(range(len(sets)), key=lambda i: -sets[i])
    while left:
        worth = [gain(sets, [*order, i], beta, lambda rank: 1.0, None) for i in left]
        order.append(left.pop(int(np.argmax(worth))))
    return gain(sets, order, beta, discount, k)


def definition(name, sets, order, k):
    """The measure of one list, from its definition."""
    beta, discount = 0.5, (lambda r: 1 / r) if "ERR" in name else (lambda r: 1 / np.log2(1 + r))
    value = gain(sets, order, beta, discount, k)
    if name in ("alpha_nDCG", "nERR_IA"):
        return value / greedy(sets, beta, discount, k)
    subtopics = sum(any(int(x) >> t & 1 for x in sets) for t in range(10))
    last = k or len(sets)
    return value / subtopics / sum(beta ** (r - 1) * discount(r) for r in range(1, last + 1))


@pytest.mark.parametrize("k", [None, 1, 3, 10])
@pytest.mark.parametrize("name", NAMES)
def test_values_follow_the_definition(name, k):
    for seed in range(5):
        sets, scores = sets_of(seed)
        found = at(name, k)(scores, sets, LISTS)
        for q, docs in enumerate(LISTS):
            if not sets[docs].any():
                assert np.isnan(found[q])
                continue
            order = np.argsort(-scores[docs])
            assert found[q] == pytest.approx(definition(name, sets[docs], order, k), rel=1e-12)


NDEVAL = {  # pyndeval 0.0.8, for the run and the judgements below
    "alpha-nDCG@5": 0.8301922071916303,
    "alpha-DCG@5": 0.5642707193945296,
    "ERR-IA@5": 0.508320726172466,
    "nERR-IA@5": 0.7522388059701494,
    "alpha-nDCG@10": 0.8301922071916302,
    "alpha-DCG@10": 0.5567381072415154,
    "ERR-IA@10": 0.5050032430498088,
}
RUN = {"1": {"d2": 5.0, "d1": 4.0, "dX": 3.0, "d3": 2.0, "d4": 1.0}}
QRELS = "1 a d1 1\n1 a d2 1\n1 b d3 1\n1 b d1 0\n1 c d4 2\n1 c d1 1\n"


@pytest.mark.parametrize("name", NDEVAL)
def test_values_of_ndeval(name):
    own, k = name.replace("-", "_").split("@")
    sets = np.array([1, 5, 0, 2, 4])  # a: 1, b: 2, c: 4
    scores = -np.arange(5.0)
    found = at(own, int(k))(scores, sets, tr.Lists.from_sizes([5]))
    assert found[0] == pytest.approx(NDEVAL[name], rel=1e-14)


def test_a_run_with_judgements_of_sub_topics(tmp_path, cli):
    """As a file, a dictionary, a frame or named tuples; other measures take the highest grade."""
    path, run = tmp_path / "qrels.txt", tmp_path / "run.txt"
    path.write_text(QRELS)
    run.write_text("".join(f"1 Q0 {d} 1 {s} x\n" for d, s in RUN["1"].items()))
    rows = [line.split() for line in QRELS.splitlines()]
    nested: dict = {}
    for q, t, d, grade in rows:
        nested.setdefault(q, {}).setdefault(d, {})[t] = int(grade)
    columns = ("query_id", "iteration", "doc_id", "relevance")
    frame = pl.DataFrame({n: [row[i] for row in rows] for i, n in enumerate(columns)})
    tuples = [namedtuple("Qrel", columns)(*row[:3], int(row[3])) for row in rows]
    for qrels in (path, nested, frame, tuples):
        found = tr.evaluate_run(RUN, qrels, [*(n.replace("-", "_") for n in NDEVAL), "P@1", "P_5"])
        for name, value in NDEVAL.items():
            assert found.means[name.replace("-", "_")] == pytest.approx(value, rel=1e-14)
        assert found.means["P@1"] == 1
        assert found.means["P_5"] == 0.8
    stricter = tr.evaluate_run(RUN, nested, ["ERR_IA@5"], level=2)
    assert stricter.means["ERR_IA@5"] == pytest.approx(
        1 / 5 / sum(0.5**i / (i + 1) for i in range(5))
    )
    with pytest.raises(tr.InputError, match="twice for sub-topic 'a'"):
        tr.evaluate_run(RUN, tuples + tuples, ["ERR_IA@5"])
    with pytest.raises(tr.InputError, match="name the terms one by one"):
        tr.evaluate_run(RUN, path, ["0.5 * ERR_IA@5 + P@5"])
    args = ["evaluate", "--run", str(run), "--qrels", str(path), "-m", "alpha_nDCG@5", "-o", "trec"]
    assert cli(*args)[1].split() == ["alpha_nDCG@5", "all", "0.8302"]
    path.write_text(QRELS + "1 a d1 0\n")
    code, _, error = cli(*args)
    assert code == 2
    assert "line 7: query '1' has document 'd1' twice for sub-topic 'a'" in error


def test_a_run_of_plain_judgements_has_one_sub_topic():
    judged = {"1": {"d1": 1, "d3": 1}}
    found = tr.evaluate_run(RUN, judged, ["alpha_nDCG@3"])
    expected = (1 / np.log2(3)) / (1 + 0.5 / np.log2(3))
    assert found.means["alpha_nDCG@3"] == pytest.approx(expected)


def test_sets_that_are_none_are_refused():
    lists = tr.Lists.from_sizes([2])
    for label in (4, 0.5):
        with pytest.raises(tr.InputError, match=r"a whole number from 0 to 3; the highest"):
            at("alpha_nDCG", 5, 2)(np.zeros(2), np.array([label, 0.0]), lists)
    for text, message in (
        ("alpha_nDCG(subtopics=0)", "subtopics of alpha_nDCG must be"),
        ("ERR_IA(subtopics=51)", "takes up to 50 sub-topics"),
        ("alpha_nDCG(alpha=1)", "alpha of alpha_nDCG must be below 1"),
        ("alpha_nDCG(label=[])", "list of columns of label is empty"),
        ("alpha_nDCG(label=[a, a])", "names each column once"),
        ("nDCG(label=[a, b])", r"a list is for measures of sub-topics: alpha_nDCG"),
    ):
        with pytest.raises(tr.InputError, match=message):
            tr.measure(text)


# Columns of labels

COLUMNS = "alpha_nDCG(label=[a, b, c])@3"


def columns_of(sets):
    return {"main": sets > 0, **{n: sets.astype(int) >> t & 1 for t, n in enumerate("abc")}}


def test_columns_are_sub_topics():
    sets, scores = sets_of()
    expected = at("alpha_nDCG", 3)(scores, sets, LISTS)
    found = tr.evaluate(scores, columns_of(sets), LISTS, [COLUMNS, "nDCG@3"])
    np.testing.assert_array_equal(found.values[COLUMNS], expected)
    with pytest.raises(tr.InputError, match="needs a column of labels called 'd'"):
        tr.evaluate(scores, columns_of(sets), LISTS, "alpha_nDCG(label=[a, d])@3")


def test_a_measure_of_columns_prints_back_as_parsed():
    for text in (COLUMNS, "ERR_IA(label=[a, b])", "alpha_DCG(label=[a, b], alpha=0.2)@5"):
        assert str(tr.measure(text)) == text
        assert tr.measure(str(tr.measure(text))) == tr.measure(text)
    both = tr.measure(f"0.5 * nDCG@3 + 0.5 * {COLUMNS}")
    assert list(both.parts()) == ["nDCG@3", COLUMNS]
    assert both.labels == ("a", "b", "c")


# Swaps


def loss_of_swaps(measure, scores, sets, ranks):
    """Σ_j of the push between a and j towards the better of their two orders, and its slope."""
    order, lists = np.argsort(ranks), tr.Lists.from_sizes([len(scores)])
    gradient, curvature = np.zeros((2, len(scores)))

    def value(order):
        ordered = np.empty(len(order))
        ordered[order] = -np.arange(len(order))
        return measure(ordered, sets, lists, empty="zero")[0]

    for p, q in combinations(range(len(order)), 2):
        swapped = order.copy()
        swapped[[p, q]] = order[[q, p]]
        change = value(order) - value(swapped)  # of the upper document before the lower one
        a, j = order[p], order[q]
        wrong = 1 / (1 + np.exp(np.sign(change) * (scores[a] - scores[j])))
        gradient[a] -= change * wrong
        gradient[j] += change * wrong
        curvature[[a, j]] += abs(change) * wrong * (1 - wrong)
    return gradient, curvature


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("name", [*NAMES, "alpha_nDCG(alpha=0.2)"])
def test_swaps_are_those_of_the_measure(name, k):
    """Float64, pair by pair, with the measure computed again for each swap."""
    head, _, options = name.partition("(")
    text = f"{head}(subtopics=3{', ' + options[:-1] if options else ''})"
    measure = tr.measure(text).at(k)
    sets, scores = sets_of(2)
    expected = [
        loss_of_swaps(measure, scores[d], sets[d], tr.exact_ranks(scores, LISTS)[d])
        for d in LISTS
        if d.stop > d.start
    ]
    gradient, curvature = (np.concatenate(x) for x in zip(*expected, strict=True))
    y = torch.tensor(scores, requires_grad=True)
    tr.DirectLoss(measure, "swap", reduction="sum")(y, torch.tensor(sets), LISTS).backward()
    assert y.grad.numpy() == pytest.approx(gradient, abs=1e-12)
    newton = Newton.of(measure, "swap", perturbation=0.0, samples=1).sums(scores, sets, LISTS)
    assert newton[0] == pytest.approx(gradient, abs=1e-6)
    assert newton[1] == pytest.approx(curvature, abs=1e-6)


def test_samples_average_the_change_before_its_sign():
    """At equal scores a push is half the mean change; opposite changes cancel."""
    measure, lists = at("alpha_nDCG", 2, 2), tr.Lists.from_sizes([4])
    sets = np.array([1.0, 2, 1, 2])
    ranks = np.array([[2, 3, 1, 4], [2, 3, 4, 1]])  # first sub-topic 0 is known, then sub-topic 1
    both = measure.swap_gradient(np.zeros(4), ranks, sets, lists)
    each = [measure.swap_gradient(np.zeros(4), r, sets, lists) for r in ranks]
    assert both[0] == pytest.approx((each[0][0] + each[1][0]) / 2, abs=1e-15)
    assert both[1].sum() < (each[0][1] + each[1][1]).sum() / 2 - 1e-3


@pytest.mark.parametrize("number", [1, 3])
def test_bits_do_not_depend_on_threads(number):
    from twinrank.support.compiled import threads_at_most

    random = np.random.default_rng(0)
    lists = tr.Lists.from_sizes(random.integers(1, 150, 60))
    sets, scores = random.integers(0, 8, lists.documents), random.normal(size=lists.documents)
    newton = Newton.of(at("alpha_nDCG", 10), "swap", samples=3)
    with threads_at_most(1):
        expected = newton(scores, sets, lists)
    with threads_at_most(number):
        found = newton(scores, sets, lists)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_sum_pushes_by_each_of_its_measures():
    sets, scores = sets_of()
    labels = np.column_stack(list(columns_of(sets).values())).astype(float)
    y = torch.tensor(scores, requires_grad=True)
    loss = tr.DirectLoss(f"0.3 * nDCG@3 + 2 * {COLUMNS}", "swap", reduction="sum")
    loss(y, torch.tensor(labels), LISTS).backward()
    expected = 0
    for weight, measure, own in ((0.3, "nDCG@3", labels[:, 0]), (2, at("alpha_nDCG", 3), sets)):
        each = torch.tensor(scores, requires_grad=True)
        tr.DirectLoss(measure, "swap", reduction="sum")(each, torch.tensor(own), LISTS).backward()
        expected = expected + weight * each.grad
    torch.testing.assert_close(y.grad, expected)
    newton = Newton.of(f"0.3 * nDCG@3 + 2 * {COLUMNS}", "swap", perturbation=0.0, samples=1)
    assert newton.sums(scores, labels, LISTS)[0] == pytest.approx(expected.numpy(), abs=1e-6)


# Training


def made_up(queries, seed, documents=40):
    """Documents of a common, a rare and a very rare sub-topic; features show which it is."""
    random = np.random.default_rng(seed)
    count = queries * documents
    topic, quality = random.choice(3, count, p=[0.7, 0.2, 0.1]), random.normal(size=count)
    relevant = quality + 0.5 * random.normal(size=count) > 0.5
    shown = np.eye(3)[topic] + 0.4 * random.normal(size=(count, 3))
    X = np.column_stack([quality + 0.3 * random.normal(size=count), shown])
    labels = {"relevant": relevant, **{n: relevant & (topic == t) for t, n in enumerate("abc")}}
    return tr.Dataset.from_arrays(X, group=[documents] * queries, labels=labels)


GOAL = "alpha_nDCG(label=[a, b, c])@5"


@pytest.mark.parametrize("learner", ["trees", "net"])
def test_training_makes_rankings_more_varied(learner):
    train, test = made_up(120, 0), made_up(120, 1)
    if learner == "trees":
        own = {"n_estimators": 40, "ensemble_size": 1, "early_stopping": None, "random_state": 0}
        make = tr.BoostedRanker
    else:
        own = {"epochs": 8, "ensemble_size": 1, "transforms": "Standardise", "random_state": 0}
        make = tr.Ranker
    plain = make("nDCG@5", **own).fit(train)
    varied = make(GOAL, "swap", **own).fit(train)
    values = [
        tr.evaluate(r.predict(test), test.labels, test.lists, [GOAL])[GOAL] for r in (plain, varied)
    ]
    assert values[1] > values[0] + 0.01


def test_the_other_strategies_are_explained():
    data = made_up(20, 0)
    own = {"n_estimators": 2, "ensemble_size": 1}
    for objective in (GOAL, f"0.5 * nDCG@5 + 0.5 * {GOAL}"):
        with pytest.warns(tr.DataWarning, match="has no effect on variety.*strategy='swap'"):
            tr.BoostedRanker(objective, **own).fit(data)
        tr.BoostedRanker(objective, "swap", **own).fit(data)
