"""The conventions "letor", "letor3" and "ptranking" against ports of the tools of these names.

The ports are written from the definitions of the scripts, one list at a time.
"""

from math import log2

import numpy as np
import pytest

import twinrank as tr
from twinrank import Lists

CUTOFFS = range(1, 13)
GAIN = {0: 0, 1: 1, 2: 3, 3: 7, 4: 15}


def letor_script(scores, labels, version):
    """Eval-Score-4.0.pl, or LETOR 3.0's script, of one query: nDCG@k, P@k and MAP."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])  # equal scores keep their order
    ranked = [labels[i] for i in order]

    def dcg(rates, k):
        gains = [GAIN[rate] for rate in rates[:k]]
        return sum(gain if p <= 2 else gain / log2(p) for p, gain in enumerate(gains, 1))

    ndcg, precision = {}, {}
    for k in CUTOFFS:
        best = dcg(sorted(labels, reverse=True), k)
        ndcg[k] = dcg(ranked, k) / best if best and k <= len(labels) else 0.0
        hits = sum(rate > 0 for rate in ranked[:k])
        precision[k] = hits / k if version == 4 or k <= len(labels) else 0.0
    hits, total = 0, 0.0
    for p, rate in enumerate(ranked, 1):
        if rate > 0:
            hits += 1
            total += hits / p
    return ndcg, precision, total / hits if hits else 0.0


def ptranking(scores, labels):
    """nDCG@k, AP@k, P@k and nERR@k of one query as the paper's author computed them."""
    ideal = sorted(labels, reverse=True)
    presorted = sorted(range(len(labels)), key=lambda i: -labels[i])
    ranked = [labels[i] for i in sorted(presorted, key=lambda i: -scores[i])]
    values = {}
    for k in CUTOFFS:
        short = len(labels) < k
        hits = np.cumsum([rate > 0 for rate in ranked[:k]])
        precisions = sum(hits[p] / (p + 1) for p in range(len(hits)) if ranked[p] > 0)
        values[f"nDCG@{k}"] = 0.0 if short else dcg(ranked[:k]) / dcg(ideal[:k])
        values[f"AP@{k}"] = 0.0 if short else precisions / sum(ideal[:k])
        values[f"P@{k}"] = 0.0 if short else hits[-1] / k
        values[f"nERR@{k}"] = 0.0 if short else err(ranked[:k], ideal) / err(ideal[:k], ideal)
    return values


def dcg(rates):
    return sum(GAIN[rate] / log2(p + 1) for p, rate in enumerate(rates, 1))


def err(rates, ideal):
    total, unsatisfied = 0.0, 1.0
    for p, rate in enumerate(rates, 1):
        satisfied = GAIN[rate] / 2 ** max(ideal)
        total += unsatisfied * satisfied / p
        unsatisfied *= 1 - satisfied
    return total


def queries(least_relevant):
    """Lists of 1 to 14 documents with tied scores."""
    random = np.random.default_rng(5)
    sizes = np.r_[1, 2, 3, random.integers(1, 15, 37)]
    lists = Lists.from_sizes(sizes)
    labels = random.choice(5, lists.documents, p=[0.6, 0.2, 0.1, 0.05, 0.05])
    if least_relevant:
        labels[lists.offsets[:-1]] = np.maximum(labels[lists.offsets[:-1]], 1)
    return random.integers(0, 6, lists.documents).astype(float), labels, lists


@pytest.mark.parametrize(("convention", "version"), [("letor", 4), ("letor3", 3)])
def test_letors_script(convention, version):
    scores, labels, lists = queries(0)
    names = [*(f"nDCG@{k}" for k in CUTOFFS), *(f"P@{k}" for k in CUTOFFS), "AP"]
    found = tr.evaluate(scores, labels, lists, names, convention=convention).values
    for q, (first, last) in enumerate(zip(lists.offsets, lists.offsets[1:], strict=False)):
        own = slice(first, last)
        ndcg, precision, average = letor_script(list(scores[own]), list(labels[own]), version)
        for k in CUTOFFS:
            assert found[f"nDCG@{k}"][q] == pytest.approx(ndcg[k], abs=1e-12)
            assert found[f"P@{k}"][q] == pytest.approx(precision[k], abs=1e-12)
        assert found["AP"][q] == pytest.approx(average, abs=1e-12)


def test_large_data_takes_the_same_rules():
    """With many documents, the first k are found without sorting the rest."""
    scores, labels, lists = queries(0)
    times = 40_000 // lists.documents + 1
    names = ["nDCG@3", "P@3", "AP@3"]
    for convention in ("letor", "letor3", "ptranking"):
        small = tr.evaluate(scores, labels, lists, names, convention=convention)
        many = Lists.from_sizes(np.r_[np.tile(lists.sizes, times), 40_000])
        large = [np.r_[np.tile(x, times), np.zeros(40_000)] for x in (scores, labels)]
        found = tr.evaluate(*large, many, names, convention=convention)
        for name in names:
            expected = np.tile(small.values[name], times)
            np.testing.assert_allclose(found.values[name][:-1], expected, rtol=1e-12)


def test_ptranking():
    scores, labels, lists = queries(1)
    names = [f"{name}@{k}" for name in ("nDCG", "AP", "P", "nERR") for k in CUTOFFS]
    found = tr.evaluate(scores, labels, lists, names, convention="ptranking").values
    for q, (first, last) in enumerate(zip(lists.offsets, lists.offsets[1:], strict=False)):
        expected = ptranking(list(scores[first:last]), list(labels[first:last]))
        for name in names:
            assert found[name][q] == pytest.approx(expected[name], abs=1e-12), (q, name)


def test_ties_can_favour_relevant_documents():
    lists, options = Lists.from_sizes([3]), {"convention": "paper"}
    best = tr.evaluate([1, 1, 1], [0, 0, 2], lists, "nDCG@1", ties="relevant", **options)
    worst = tr.evaluate([1, 1, 1], [0, 0, 2], lists, "nDCG@1", ties="stable", **options)
    assert (best["nDCG@1"], worst["nDCG@1"]) == (1, 0)
    run, qrels = {"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 1, "c": 1}}
    assert tr.evaluate_run(run, qrels, "nDCG@1", ties="relevant")["nDCG@1"] == 1
    assert tr.evaluate_run(run, qrels, "nDCG@3", convention="ptranking")["nDCG@3"] == 0


def test_letors_discount_trains():
    """Its slope is that of 1 / log2(rank), and 0 before rank 2."""
    measure = tr.measure("nDCG(discounting=letor)@5")
    ranks = np.array([1.0, 1.5, 3.0, 7.0])
    h = 1e-6
    numeric = (measure.discount(ranks + h) - measure.discount(ranks - h)) / (2 * h)
    np.testing.assert_allclose(measure.slope(ranks), numeric, atol=1e-8)
    np.testing.assert_allclose(measure.discount(np.array([1.0, 2.0, 4.0])), [1, 1, 0.5])
    with pytest.raises(tr.InputError, match=r"Unknown discounting 'leto'. Did you mean 'letor'"):
        tr.measure("nDCG(discounting=leto)")
