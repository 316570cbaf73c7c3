"""Conventions: what trec_eval, scikit-learn, LightGBM and XGBoost print, reproduced to 1e-6."""

from math import log2

import lightgbm
import numpy as np
import pytest
import pytrec_eval
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import dcg_score, ndcg_score

import twinrank as tr
from twinrank.core.lists import Lists
from twinrank.evaluation.conventions import CONVENTIONS, Convention
from twinrank.support.errors import InputError

seeds = pytest.mark.parametrize("seed", range(4))
either = pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])


def close(found, expected):
    assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def batch(seed, tied, longest=60):
    """Ragged lists, a quarter of them with nothing relevant."""
    rng = np.random.default_rng(seed)
    lists = Lists.from_sizes(np.r_[1, 1, 2, rng.integers(1, longest, 60)])
    barren = lists.spread(rng.random(len(lists)) < 0.25)
    labels = rng.choice(5, lists.documents, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    scores = rng.integers(0, 4, lists.documents) if tied else rng.permutation(lists.documents)
    return scores.astype(np.float64), np.where(barren, 0, labels), lists


# trec_eval

OURS = {  # trec_eval's name: ours
    "map": "AP",
    "map_cut_5": "AP@5",
    "ndcg": "nDCG",
    "ndcg_cut_5": "nDCG@5",
    "ndcg_cut_10": "nDCG@10",
    "P_5": "P@5",
    "P_30": "P@30",
    "recall_5": "Recall@5",
    "recall_100": "Recall@100",
    "recip_rank": "RR",
    "Rprec": "Rprec",
    "success_1": "Success@1",
    "success_10": "Success@10",
    "set_P": "P",
    "set_recall": "Recall",
}
COUNTS = ("num_ret", "num_rel", "num_rel_ret")
THEIRS = {"map", "map_cut.5", "ndcg", "ndcg_cut.5,10", "P.5,30", "recall.5,100", "recip_rank"}
THEIRS |= {"Rprec", "success.1,10", "set_P", "set_recall", *COUNTS}


def as_trec_eval(run, qrels, level=1):
    """trec_eval's values by query; it may loop for ever on one with negative grades only."""
    assert all(max(grades.values()) >= 0 for grades in qrels.values())
    run = {query: {d: float(s) for d, s in found.items()} for query, found in run.items()}
    return pytrec_eval.RelevanceEvaluator(qrels, THEIRS, relevance_level=level).evaluate(run)


def check_run(run, qrels, level):
    expected = as_trec_eval(run, qrels, level)
    names = [*OURS, *COUNTS]
    for complete in (False, True):
        found = tr.evaluate_run(run, qrels, names, level=level, complete=complete)
        own_names = [name if name != "P" else "SetP" for name in OURS.values()]
        ours = tr.evaluate_run(run, qrels, own_names, level=level, complete=complete)
        queries = found.query_ids.tolist()
        assert queries == sorted(qrels if complete else expected)
        for theirs, name in zip(OURS, own_names, strict=True):
            wanted = [expected[q][theirs] if q in expected else 0.0 for q in queries]
            close(found.values[theirs], wanted)
            close(ours.values[name], wanted)
            close(found[theirs], np.mean(wanted))
        for name in COUNTS:
            wanted = [expected[q][name] if q in expected else 0 for q in queries]
            if name == "num_rel":  # of all judged queries, as trec_eval prints their sum
                wanted = [sum(grade >= level for grade in qrels[q].values()) for q in queries]
                assert all(wanted[queries.index(q)] == by[name] for q, by in expected.items())
            assert found.counts[name].tolist() == wanted, name


def random_run(seed):
    """A run and judgements that meet all that trec_eval has an opinion on."""
    rng = np.random.default_rng(seed)
    run, qrels = {}, {}
    for q in range(40):
        documents = [f"d{i}" for i in rng.choice(200, rng.integers(1, 60), replace=False)]
        # 1 + 1e-9 and 16,777,217 are other numbers in double precision only.
        scores = rng.choice([1.0, 1.0 + 1e-9, 16_777_216, 16_777_217, -3, 0.25, 1e-30], 200)
        if q % 3:
            scores = rng.standard_normal(200)
        judged = [f"d{i}" for i in rng.choice(200, rng.integers(1, 80), replace=False)]
        grades = rng.choice([0] if q % 5 == 0 else [-2, -1, 0, 0, 1, 1, 2, 3], 200)
        if q not in (3, 17):
            run[f"q{q}"] = dict(zip(documents, scores.tolist(), strict=False))
        if q not in (8, 21):
            qrels[f"q{q}"] = dict(zip(judged, grades.tolist(), strict=False)) | {"other": 0}
    return run, qrels


@seeds
@pytest.mark.parametrize("level", [1, 2])
def test_trec_eval(seed, level):
    check_run(*random_run(seed), level)


documents = st.sampled_from(["a", "B", "b", "é", "10", "9", "d_1", "Z"])
some_scores = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-9, -1.0, 0.1, 3.0e38, -3.0e38])
queries = st.sampled_from(["1", "10", "2", "q", "Q"])


some_grades = st.dictionaries(documents, st.integers(-1, 3)).map(lambda found: found | {"A": 0})


@given(
    st.dictionaries(queries, st.dictionaries(documents, some_scores, min_size=1), min_size=1),
    st.dictionaries(queries, some_grades, min_size=1),
    st.integers(1, 3),
)
@settings(max_examples=60)
def test_any_run_as_trec_eval(run, qrels, level):
    if run.keys() & qrels.keys():
        check_run(run, qrels, level)
    else:
        with pytest.raises(InputError, match="no query in common"):
            tr.evaluate_run(run, qrels, level=level)


@seeds
def test_trec_eval_on_arrays(seed):
    """The convention on arrays, with document ids that aren't text."""
    scores, labels, lists = batch(seed, tied=True)
    ids = np.random.default_rng(seed).permutation(lists.documents)
    run, qrels = {}, {}
    for q, one in enumerate(lists):
        names = [str(i) for i in ids[one]]
        run[f"{q:03}"] = dict(zip(names, scores[one].tolist(), strict=True))
        qrels[f"{q:03}"] = dict(zip(names, labels[one].tolist(), strict=True))
    expected = as_trec_eval(run, qrels)
    found = tr.evaluate(scores, labels, lists, list(OURS.values()), convention="trec", docids=ids)
    for theirs, name in OURS.items():
        close(found.values[name], [expected[q][theirs] for q in sorted(run)])


# scikit-learn


@seeds
@either
@pytest.mark.parametrize("k", [None, 1, 3, 5, 12, 50])
def test_scikit_learn(seed, tied, k):
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, (20, 12))
    labels[[3, 7]] = 0
    scores = rng.choice(3, (20, 12)) if tied else rng.permutation(240).reshape(20, 12)
    lists, name = Lists.from_sizes([12] * 20), "nDCG" if k is None else f"nDCG@{k}"
    linear = Convention("scikit-learn", "linear", "min", "zero", "average")
    found = tr.evaluate(scores.ravel(), labels.ravel(), lists, [name, name[1:]], convention=linear)
    close(found[name], ndcg_score(labels, scores, k=k))
    close(found[name[1:]], dcg_score(labels, scores, k=k))
    # Without regard to ties it takes NumPy's order from the back, whatever that is.
    order = np.argsort(scores)[:, ::-1]
    ranks = np.argsort(order, axis=1)
    found = tr.evaluate(-ranks.ravel(), labels.ravel(), lists, name, convention=linear)
    close(found[name], ndcg_score(labels, scores, k=k, ignore_ties=True))
    if not tied:
        other = tr.evaluate(
            scores.ravel(), labels.ravel(), lists, name.replace("nDCG", "nDCG(gain=linear)"),
            empty="zero",
        )  # fmt: skip
        close(next(iter(other.means.values())), ndcg_score(labels, scores, k=k, ignore_ties=True))


def test_averaged_ties_are_the_mean_over_random_orders():
    scores, labels, lists = batch(1, tied=True, longest=15)
    names = ["nDCG@5", "DCG", "P@3", "P", "Recall@4", "RBP", "Judged@3"]
    average = tr.evaluate(scores, labels, lists, names, ties="average")
    seen = [tr.evaluate(scores, labels, lists, names, random_state=i).values for i in range(400)]
    for name in names:
        values = np.array([one[name] for one in seen])
        error = values.std(axis=0) / 20
        off = np.abs(values.mean(axis=0) - average.values[name])
        assert np.nanmax(off - 5 * error) < 1e-12, name


# LightGBM and XGBoost

AT = (1, 3, 5, 10, 100)


def as_lightgbm(scores, labels, lists):
    """LightGBM's own metrics of given scores: those of a model without trees on init_score."""
    features = np.arange(lists.documents, dtype=np.float64)[:, None]
    quiet = {"verbose": -1, "num_threads": 1}
    data = lightgbm.Dataset(features, labels, group=lists.sizes, init_score=scores, params=quiet)
    options = {"objective": "lambdarank", "metric": ["ndcg", "map"], "eval_at": AT, **quiet}
    return {name: value for _, name, value, _ in lightgbm.Booster(options, data).eval_train()}


@seeds
@either
def test_lightgbm(seed, tied):
    scores, labels, lists = batch(seed, tied)
    names = {f"nDCG@{k}": f"ndcg@{k}" for k in AT} | {f"AP@{k}": f"map@{k}" for k in AT}
    found = tr.evaluate(scores, labels, lists, list(names), convention="lightgbm")
    expected = as_lightgbm(scores, labels, lists)
    for name, theirs in names.items():
        close(found[name], expected[theirs])


def as_xgboost(scores, labels, lists, metrics):
    """XGBoost's own metrics of given scores: those of a model without trees on base_margin."""
    data = xgboost.DMatrix(
        np.zeros((lists.documents, 1)), labels, base_margin=scores, group=lists.sizes, nthread=1
    )
    options = {"objective": "rank:ndcg", "eval_metric": metrics, "base_score": 0.0, "nthread": 1}
    shown = xgboost.train(options, data, 0).eval(data).split()[1:]
    found = (word.removeprefix("eval-").rsplit(":", 1) for word in shown)
    return {name: float(value) for name, value in found}


@seeds
@either
def test_xgboost(seed, tied):
    """As LightGBM; a minus after the name counts lists with nothing relevant as 0.

    Its cutoff is 32 where a name has none. Its map is for binary labels only.
    """
    scores, labels, lists = batch(seed, tied)
    graded = {f"nDCG@{k}": f"ndcg@{k}" for k in AT} | {"nDCG@32": "ndcg"}
    binary = graded | {f"AP@{k}": f"map@{k}" for k in AT} | {"AP@32": "map"}
    for grades, names in ((labels, graded), ((labels > 0) * 1, binary)):
        for empty, minus in (("one", ""), ("zero", "-")):
            found = tr.evaluate(
                scores, grades, lists, list(names), convention="lightgbm", empty=empty
            )
            asked = [theirs + minus for theirs in names.values()]
            expected = as_xgboost(scores, grades, lists, asked)
            for name, theirs in names.items():
                close(found[name], expected[theirs + minus])


# The presets, by hand

# One list in the order given, with ties, and one with nothing relevant.
SCORES, LABELS, SIZES = [3, 2, 2, 1, 5, 4], [1, 0, 2, 1, 0, 0], [4, 2]
GAINS = {"exponential": lambda y: 2**y - 1, "linear": lambda y: y}


def by_hand(gain, divisor):
    order, ideal = [1, 0, 2, 1], [2, 1, 1, 0]
    ndcg, best = (
        sum(GAINS[gain](y) / log2(j) for j, y in enumerate(ys[:3], start=2))
        for ys in (order, ideal)
    )
    ap = (1 / 1 + 2 / 3) / {"min": 3, "R": 3, "paper": 2 + 1 + 1}[divisor]
    ap_at_2 = 1 / {"min": 2, "R": 3, "paper": 2 + 1}[divisor]
    return ndcg / best, ap, ap_at_2


@pytest.mark.parametrize(
    ("name", "gain", "divisor", "empty"),
    [
        ("twinrank", "exponential", "min", np.nan),
        ("all-lists", "exponential", "min", 0),
        ("trec", "linear", "R", 0),
        ("lightgbm", "exponential", "min", 1),
        ("paper", "exponential", "paper", np.nan),
    ],
)
def test_presets(name, gain, divisor, empty):
    lists = Lists.from_sizes(SIZES)
    ids = ["d", "c", "a", "b", "x", "y"]  # trec_eval takes c before a, as the order given
    result = tr.evaluate(
        [*np.add(SCORES, [0, 0.5, 0, 0, 0, 0])] if name in ("twinrank", "paper") else SCORES,
        LABELS, lists, ["nDCG@3", "AP@3", "AP@2"], convention=name, docids=ids,
    )  # fmt: skip
    for found, expected in zip(result.values.values(), by_hand(gain, divisor), strict=True):
        assert found[0] == pytest.approx(expected, abs=1e-12)
        assert np.array_equal(found[1], empty, equal_nan=True)
    assert f"Convention: {CONVENTIONS[name]}." in str(result)


def test_every_preset_says_what_it_is():
    assert str(CONVENTIONS["trec"]) == (
        "trec (gain y; AP@k over R; lists without relevant documents count as 0; "
        "ties by descending document id)"
    )
    assert str(CONVENTIONS["letor"]) == (
        "letor (gain 2ʸ − 1, ranks 1 and 2 not discounted; AP@k over min(R, k); "
        "lists without relevant documents count as 0; ties in input order; "
        "nDCG@k of lists with fewer than k documents are 0)"
    )
    assert len({str(one) for one in CONVENTIONS.values()}) == len(CONVENTIONS) == 8


def test_a_part_of_a_preset_can_be_replaced_and_is_stated():
    lists = Lists.from_sizes(SIZES)
    shown = str(tr.evaluate(SCORES, LABELS, lists, "AP", convention="trec", ties="stable"))
    assert "Convention: trec, changed (gain y; " in shown
    assert "ties in input order" in shown
    same = str(tr.evaluate(SCORES, LABELS, lists, "AP", convention="all-lists", ties="stable"))
    assert "Convention: all-lists (" in same


def test_options_that_a_name_spells_out_stay():
    trec, paper = CONVENTIONS["trec"], CONVENTIONS["paper"]
    assert str(trec.measure("nDCG(gain=exponential)@3")) == "nDCG@3"
    assert str(trec.measure("NDCG@3")) == "nDCG(gain=linear)@3"
    assert str(trec.measure("AP(divisor=min)@3")) == "AP@3"
    assert str(trec.measure("MAP(rel=2)")) == "AP(rel=2, divisor=R)"
    assert str(paper.measure("AP(rel=2)@3")) == "paperAP(rel=2)@3"
    assert str(paper.measure("AP(divisor=R)@3")) == "AP(divisor=R)@3"
    own = tr.measure("nDCG@3")
    assert trec.measure(own) is own
