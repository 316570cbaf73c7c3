"""Every measure against what others define, against arithmetic, and against the common contract."""

import inspect
import math
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields
from math import log2
from typing import ClassVar, NamedTuple

import ir_measures
import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, ERR, RR, Judged, P, R, Rprec, Success, nDCG
from numpy.testing import assert_allclose
from sklearn.metrics import average_precision_score, dcg_score, ndcg_score

import twinrank as tr
from twinrank.core import measures
from twinrank.core.lists import Lists
from twinrank.core.measures import MEASURES, Measure, measure
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.support.errors import InputError

in_both = pytest.mark.parametrize("library", [np.asarray, torch.tensor], ids=["numpy", "torch"])
# The first call of a compiled loop may take longer than hypothesis allows an example.
quick = settings(deadline=None, max_examples=25)


def close(actual, expected, name=""):
    assert_allclose(actual, expected, rtol=1e-12, err_msg=name)


# Against others, on random ragged lists


class Batch(NamedTuple):
    scores: np.ndarray
    labels: np.ndarray
    lists: Lists

    def as_trec(self, *, last_name_first):
        """Judgements and run by query; unjudged documents are in the run only.

        Others order tied documents by name, so a document's name tells its place in the list.
        """
        qrels, run = {}, {}
        for q, docs in enumerate(self.lists):
            place = range(docs.stop - docs.start)
            names = [f"{999 - i if last_name_first else i:03}" for i in place]
            pairs = zip(names, self.labels[docs].tolist(), strict=True)
            qrels[str(q)] = {name: label for name, label in pairs if label >= 0}
            run[str(q)] = dict(zip(names, self.scores[docs].tolist(), strict=True))
        return qrels, run


def random_batch(*, tied):
    """Lists of 1 to 40 documents: some with nothing relevant, some with unjudged documents."""
    rng = np.random.default_rng(7)
    lists = Lists.from_sizes(np.r_[1, 1, 1, rng.integers(1, 41, 77)])
    barren = lists.spread(rng.random(80) < 0.2)
    labels = np.where(barren, 0, rng.choice([-1, 0, 1, 2, 3, 4], lists.documents))
    labels[lists.offsets[:-1]] = labels[lists.offsets[:-1]].clip(0)  # others skip unjudged lists
    # Whole numbers, since trec_eval holds scores in single precision: distinct stays distinct.
    scores = rng.integers(0, 5, lists.documents) if tied else rng.permutation(lists.documents)
    return Batch(scores.astype(float), labels, lists)


DISTINCT, TIED = random_batch(tied=False), random_batch(tied=True)
either = pytest.mark.parametrize("batch", [DISTINCT, TIED], ids=["distinct", "tied"])

TREC_EVAL = [  # ours, theirs, from which label on a document is relevant for them
    ("AP", "map", 1),
    ("AP(rel=2)", "map", 2),
    ("AP(divisor=R)@5", "map_cut_5", 1),
    ("AP(rel=2, divisor=R)@5", "map_cut_5", 2),
    ("AP@1000", "map_cut_1000", 1),  # the divisors R and min(R, k) are one as long as R ≤ k
    ("P", "set_P", 1),
    ("P@1", "P_1", 1),
    ("P@5", "P_5", 1),
    ("P@30", "P_30", 1),  # beyond most lists, and yet divided by 30
    ("P(rel=3)@5", "P_5", 3),
    ("Recall", "set_recall", 1),
    ("Recall@5", "recall_5", 1),
    ("Recall(rel=2)@5", "recall_5", 2),
    ("Rprec", "Rprec", 1),
    ("Rprec(rel=3)", "Rprec", 3),
    ("RR", "recip_rank", 1),
    ("RR(rel=4)", "recip_rank", 4),
    ("Success@1", "success_1", 1),
    ("Success@5", "success_5", 1),
    ("Success(rel=4)@5", "success_5", 4),
    ("Success", "success_1000", 1),
    ("Bpref", "bpref", 1),
    ("Bpref(rel=3)", "bpref", 3),
    ("IPrec", "iprec_at_recall_0.00", 1),
    ("IPrec(recall=0.3)", "iprec_at_recall_0.30", 1),
    ("IPrec(rel=3, recall=1)", "iprec_at_recall_1.00", 3),
    ("SetF", "set_F", 1),
    ("nDCG(gain=linear)", "ndcg", 1),
    ("nDCG(gain=linear)@1", "ndcg_cut_1", 1),
    ("nDCG(gain=linear)@5", "ndcg_cut_5", 1),
    ("nDCG(gain=linear)@30", "ndcg_cut_30", 1),
]

EXPONENTIAL = {label: 2**label - 1 for label in range(5)}
UNEVEN = {0: 0, 1: 2, 2: 3, 3: 11, 4: 12}
IR_MEASURES = [
    ("P(rel=2)@5", P(rel=2) @ 5),
    ("AP(rel=2)", AP(rel=2)),
    ("AP(divisor=R)@10", AP @ 10),
    ("Recall(rel=2)@10", R(rel=2) @ 10),
    ("Rprec(rel=2)", Rprec(rel=2)),
    ("Success(rel=2)@3", Success(rel=2) @ 3),
    ("RR", RR),
    ("RR@1", RR @ 1),
    ("RR@3", RR @ 3),
    ("RR(rel=4)@10", RR(rel=4) @ 10),
    ("Judged", Judged),
    ("Judged@1", Judged @ 1),
    ("Judged@5", Judged @ 5),
    ("Judged@30", Judged @ 30),
    ("nDCG", nDCG(gains=EXPONENTIAL)),
    ("nDCG@5", nDCG(gains=EXPONENTIAL) @ 5),
    ("nDCG(gain=linear)@5", nDCG @ 5),
    ("nDCG(gain=[0, 2, 3, 11, 12])@5", nDCG(gains=UNEVEN) @ 5),
]

SKLEARN = ["DCG", "DCG@1", "DCG@5", "DCG(gain=linear)@5", "DCG(gain=[0, 2, 3, 11, 12])@5"]
SKLEARN += [f"n{name}" for name in SKLEARN]


@either
@pytest.mark.parametrize(("ours", "theirs", "rel"), TREC_EVAL)
def test_trec_eval(ours, theirs, rel, batch):
    # trec_eval puts the last name first among tied documents.
    qrels, run = batch.as_trec(last_name_first=True)
    asked = theirs.replace("recall_", "recall.") if "iprec" in theirs else theirs
    result = pytrec_eval.RelevanceEvaluator(qrels, {asked}, relevance_level=rel).evaluate(run)
    expected = [result[str(q)][theirs] for q in range(len(batch.lists))]
    close(measure(ours)(*batch, empty="zero", ties="stable"), expected)


@either
@pytest.mark.parametrize(("ours", "theirs"), IR_MEASURES, ids=[ours for ours, _ in IR_MEASURES])
def test_ir_measures(ours, theirs, batch):
    # The providers written in Python put the first name first, trec_eval behind others the last.
    qrels, run = batch.as_trec(last_name_first=not ours.startswith(("RR@", "RR(", "Judged")))
    result = {m.query_id: m.value for m in ir_measures.iter_calc([theirs], qrels, run)}
    expected = [result[str(q)] for q in range(len(batch.lists))]
    close(measure(ours)(*batch, empty="zero", ties="stable"), expected)


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl script")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("ERR(max_grade=4)@1", ERR @ 1),
        ("ERR(max_grade=4)@5", ERR @ 5),
        ("ERR(max_grade=4)@20", ERR @ 20),
        ("nDCG@5", nDCG(dcg="exp-log2") @ 5),
    ],
)
def test_gdeval(ours, theirs):
    qrels, run = DISTINCT.as_trec(last_name_first=True)
    result = {m.query_id: m.value for m in ir_measures.iter_calc([theirs], qrels, run)}
    expected = [result[str(q)] for q in range(len(DISTINCT.lists))]
    values = measure(ours)(*DISTINCT, empty="zero")
    assert_allclose(values, expected, rtol=1e-12, atol=0.5e-5)  # it prints five decimals


@pytest.mark.parametrize("name", SKLEARN)
def test_sklearn_dcg(name):
    # scikit-learn takes gains, and no lists of a single document.
    ours, theirs = measure(name), ndcg_score if name.startswith("n") else dcg_score
    table = {"exponential": EXPONENTIAL, "linear": range(5)}.get(ours.gain, ours.gain)
    values, gains = ours(*DISTINCT, empty="zero"), [table[max(y, 0)] for y in DISTINCT.labels]
    for value, docs in zip(values, DISTINCT.lists, strict=True):
        if docs.stop - docs.start > 1:
            score = DISTINCT.scores[docs]
            close(value, theirs([gains[docs]], [score], k=ours.cutoff, ignore_ties=True))


@pytest.mark.parametrize("rel", [1, 3])
def test_sklearn_average_precision(rel):
    values = measure(f"AP(rel={rel})")(*DISTINCT)
    for value, docs in zip(values, DISTINCT.lists, strict=True):
        relevant = DISTINCT.labels[docs] >= rel
        assert math.isnan(value) == (not relevant.any())
        if relevant.any():
            close(value, average_precision_score(relevant, DISTINCT.scores[docs]))


# Against arithmetic: labels in rank order, and what they are worth

WORKED = [
    # Label 3 of at most 3 stops the reader with chance 7/8, label 2 with 3/8, label 1 with 1/8.
    ("ERR", [3, 0, 1, 2], 7 / 8 + 1 / 8 * 1 / 8 / 3 + 1 / 8 * 7 / 8 * 3 / 8 / 4),
    ("ERR@3", [3, 0, 1, 2], 7 / 8 + 1 / 8 * 1 / 8 / 3),
    ("ERR@1", [0, 3], 0),
    # Sub-topics {a}, {a, c}, none, {b}, {c}: the values of pyndeval 0.0.8.
    ("alpha_nDCG(subtopics=3)@5", [1, 5, 0, 2, 4], 0.8301922071916303),
    ("alpha_DCG(subtopics=3)@5", [1, 5, 0, 2, 4], 0.5642707193945296),
    ("ERR_IA(subtopics=3)@5", [1, 5, 0, 2, 4], 0.508320726172466),
    ("nERR_IA(subtopics=3)@5", [1, 5, 0, 2, 4], 0.7522388059701494),
    ("ERR", [1, 1, 0], 1 / 2 + 1 / 2 * 1 / 2 / 2),  # the maximum is that of the list
    ("ERR(max_grade=2)", [1, 1, 0], 1 / 4 + 3 / 4 * 1 / 4 / 2),
    ("ERR(max_grade=4)", [3, -1, 1], 7 / 16 + 9 / 16 * 1 / 16 / 3),
    (
        "nERR",
        [3, 0, 1, 2],
        (7 / 8 + 1 / 8 * 1 / 8 / 3 + 1 / 8 * 7 / 8 * 3 / 8 / 4)
        / (7 / 8 + 1 / 8 * 3 / 8 / 2 + 1 / 8 * 5 / 8 * 1 / 8 / 3),
    ),
    ("nERR@2", [0, 1, 3], (7 / 8 * 0 + 1 / 8 / 2) / (7 / 8 + 1 / 8 * 1 / 8 / 2)),
    ("nERR(max_grade=4)@2", [1, 3], (1 / 16 + 15 / 16 * 7 / 16 / 2) / (7 / 16 + 9 / 16 / 16 / 2)),
    ("nERR@1", [2, 3], (3 / 8) / (7 / 8)),
    ("RBP(p=0.75)", [1, 0, 2, 0], 1 / 4 * (1 + 3 / 4 * 3 / 4)),
    ("RBP(p=0.5)", [0, 1, 1, 1], 1 / 2 * (1 / 2 + 1 / 4 + 1 / 8)),
    ("RBP(p=0.5)@3", [0, 1, 1, 1], 1 / 2 * (1 / 2 + 1 / 4)),
    ("RBP(rel=2, p=0.5)", [1, 2, -1, 3], 1 / 2 * (1 / 2 + 1 / 8)),
    # Precision 1/1, 2/3 and 3/4 at the relevant documents; the highest labels are 3, 2 and 1.
    ("paperAP", [2, 0, 1, 3], (1 / 1 + 2 / 3 + 3 / 4) / (3 + 2 + 1)),
    ("paperAP@3", [2, 0, 1, 3, 1], (1 / 1 + 2 / 3) / (3 + 2 + 1)),
    ("paperAP@1", [2, 0, 1, 3], (1 / 1) / 3),
    ("paperAP(rel=2)@4", [2, -1, 1, 3, 2], (1 / 1 + 2 / 4) / (3 + 2 + 2 + 1)),
    ("AP", [2, 0, 1, 3], (1 / 1 + 2 / 3 + 3 / 4) / 3),
    ("AP@3", [2, 0, 1, 3], (1 / 1 + 2 / 3) / 3),
    ("AP@2", [2, 0, 1, 3], (1 / 1) / 2),  # min(R, k)
    ("AP(divisor=R)@2", [2, 0, 1, 3], (1 / 1) / 3),
    ("AP(rel=2)@3", [2, 0, 1, 3], (1 / 1) / 2),
    ("nDCG", [0, 2, 1], (3 / log2(3) + 1 / log2(4)) / (3 / log2(2) + 1 / log2(3))),
    ("nDCG@2", [0, 2, 1], (3 / log2(3)) / (3 / log2(2) + 1 / log2(3))),
    ("nDCG(gain=[1, 0, 5])", [0, 2], (1 / log2(2) + 5 / log2(3)) / (5 / log2(2) + 1 / log2(3))),
    ("nDCG(gain=[1, 0])", [1, 0], (1 / log2(3)) / (1 / log2(2))),  # what gains is relevant
    ("DCG", [0.5, 0, 2], (2**0.5 - 1) / log2(2) + 3 / log2(4)),  # labels may lie between grades
    ("RR@2", [0, 0, 1], 0),
    ("Rprec", [1, 0, 1, 1], 2 / 3),
    ("Judged@3", [0, -1, 1, -1], 2 / 3),
    ("Judged@5", [0, -1], 1 / 2),
]


@in_both
@pytest.mark.parametrize(("name", "labels", "expected"), WORKED)
def test_worked_examples(name, labels, expected, library):
    scores = library(-np.arange(float(len(labels))))
    close(
        measure(name)(scores, library(np.array(labels)), Lists.from_sizes([len(labels)])), expected
    )


def test_every_measure_is_checked_against_something_we_did_not_write():
    names = [row[0] for row in (*TREC_EVAL, *IR_MEASURES, *WORKED)] + SKLEARN
    assert {type(measure(name)) for name in names} == set(MEASURES)


# The contract of all measures in the registry; new ones are tested automatically

VARIANTS = [
    "nDCG(gain=linear)",
    "nDCG(gain=[0, 1, 2, 5, 9.5])@4",
    "DCG(gain=linear)@2",
    "AP(divisor=R)@3",
    "AP(rel=2)",
    "AP(rel=2, divisor=R)@2",
    "paperAP(rel=2)@3",
    "P(rel=2)@3",
    "P(gain=linear)@3",
    "Recall(rel=2)@2",
    "Rprec(rel=2)",
    "RR(rel=2)@4",
    "Success(rel=2)@2",
    "ERR(max_grade=4)",
    "nERR(max_grade=5)@2",
    "RBP(rel=2, p=0.5)@4",
    "RBP(gain=linear)@4",
]
EVERY = [name for kind in MEASURES for name in (kind.name, f"{kind.name}@3")] + VARIANTS
every_measure = pytest.mark.parametrize("name", EVERY)


@st.composite
def batches(draw, lowest=-1, highest=4):
    """Ragged lists, with and without documents, of distinct scores."""
    nested = draw(st.lists(st.lists(st.integers(lowest, highest), max_size=7), max_size=5))
    lists = Lists.from_sizes([len(row) for row in nested])
    scores = np.array(draw(st.permutations(range(lists.documents))), float)
    return Batch(scores, np.array([y for row in nested for y in row], float), lists)


def ideal(batch):
    """The same documents, scored by their labels; places break ties."""
    return batch._replace(scores=batch.labels - np.arange(batch.lists.documents) / 1000)


@every_measure
def test_a_measure_prints_back_as_parsed(name):
    original = measure(name)
    assert str(original) == name
    assert original == measure(name)
    assert hash(original) == hash(measure(name))
    assert measure(original) is original
    assert pickle.loads(pickle.dumps(original)) == original
    assert original.at(7).cutoff == 7
    assert original.at(7).at(original.cutoff) == original
    with pytest.raises(FrozenInstanceError):
        original.cutoff = 5


def test_measures_that_print_differently_differ():
    assert len({measure(name) for name in EVERY}) == len(set(EVERY)) == len(EVERY)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (" nDCG ( gain = linear ) @ 5 ", "nDCG(gain=linear)@5"),
        ("nDCG(gain=exponential)@3", "nDCG@3"),
        ("AP(divisor=min, rel=1)", "AP"),
        ("AP(divisor=R, rel=2)", "AP(rel=2, divisor=R)"),
        ("ERR(max_grade=none)", "ERR"),
        ("RBP(p=0.80)", "RBP"),
    ],
)
def test_one_measure_has_one_name(text, printed):
    assert str(measure(text)) == printed
    assert measure(text) == measure(printed)


@pytest.mark.parametrize(
    ("alias", "kind"), [(alias, kind) for kind in MEASURES for alias in kind.aliases]
)
def test_aliases_name_the_same_measure(alias, kind):
    assert measure(alias) == measure(kind.name) == kind()
    assert measure(f"{alias}@7") == measure(f"{kind.name}@7") == kind(cutoff=7)
    assert str(measure(f"{alias}@7")) == f"{kind.name}@7"


def test_the_names_that_others_use_are_known():
    pairs = [("Precision", "P"), ("Pre", "P"), ("MAP", "AP"), ("MRR", "RR"), ("R", "Recall")]
    assert all(measure(theirs) == measure(ours) for theirs, ours in pairs)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nDGC@5", "Unknown measure 'nDGC'. Did you mean 'nDCG'"),
        ("Sucess@5", r"Unknown measure 'Sucess'. Did you mean 'Success'\?"),
        ("judged", r"Unknown measure 'judged'. Did you mean 'Judged'\?"),
        ("xyzzy", "Unknown measure 'xyzzy'. Choose from nDCG, .*Judged"),
        ("", "Can't read ''"),
        ("nDCG@0", "The cutoff in 'nDCG@0' must be at least 1"),
        ("nDCG(gian=linear)", r"Unknown option of nDCG 'gian'. Did you mean 'gain'\?"),
        ("AP(cutoff=5)", "Unknown option of AP 'cutoff'. Choose from rel, divisor"),
        ("Judged(rel=2)", r"Judged has no options, but 'Judged\(rel=2\)' sets rel"),
        ("nDCG(gain=liner)", r"Unknown gain 'liner'. Did you mean 'linear'\?"),
        ("nDCG(gain=[])", "gain of nDCG must list numbers ≥ 0, one per label"),
        ("DCG(gain=[0, -1])", "gain of DCG must list numbers ≥ 0"),
        ("AP(divisor=r)", r"Unknown divisor 'r'. Did you mean 'R'\?"),
        ("P(rel=0)", "rel of P must be a positive number, not 0"),
        ("P(rel=true)", "rel of P must be a positive number, not True"),
        ("P(gain=exponential)", "Unknown gain 'exponential'. Choose from binary, linear"),
        ("P(rel=2, gain=linear)", "rel of P has no effect with gain=linear"),
        ("RR(rel=some)", "rel of RR must be a positive number, not 'some'"),
        ("RBP(p=1)", "p of RBP must lie between 0 and 1, not 1"),
        ("RBP(p=0)", "p of RBP must lie between 0 and 1, not 0"),
        ("RBP(p=high)", "p of RBP must lie between 0 and 1, not 'high'"),
        ("ERR(max_grade=0)", "max_grade of ERR must be a positive number, not 0"),
        ("nERR(max_grade=top)", "max_grade of nERR must be a positive number, not 'top'"),
    ],
)
def test_invalid_measures_say_why(text, complaint):
    with pytest.raises(InputError, match=complaint):
        measure(text)


@pytest.mark.parametrize("kind", MEASURES)
def test_no_measure_takes_a_cutoff_below_one(kind):
    for cutoff in (0, -3, 2.5, True):
        with pytest.raises(InputError, match=f"cutoff of {kind.name} must be a whole number"):
            kind(cutoff=cutoff)


@pytest.mark.parametrize("kind", MEASURES)
def test_every_option_is_keyword_only_and_documented(kind):
    assert inspect.getdoc(kind) != inspect.getdoc(Measure)
    assert all(field.kw_only for field in fields(kind))


@in_both
@pytest.mark.parametrize(
    ("name", "labels", "complaint"),
    [
        ("ERR(max_grade=2)", [0, 3], r"ERR\(max_grade=2\) takes labels up to 2, .* a label 3"),
        ("nDCG(gain=[0, 1])", [0, 2], "lists the gains of labels 0…1, but not of 2"),
        ("nDCG(gain=[0, 1, 3])", [0, 1.5], "lists the gains of labels 0…2"),
    ],
)
def test_labels_that_a_measure_cannot_grade_are_refused(name, labels, complaint, library):
    with pytest.raises(InputError, match=complaint):
        measure(name)(library([0.1, 0.2]), library(np.array(labels)), Lists.from_sizes([2]))


# Lists with nothing relevant


def mostly_empty(library):
    """Something relevant; nothing relevant; nothing judged; no documents."""
    lists = Lists.from_sizes([2, 2, 2, 0])
    return library(np.arange(6.0)), library(np.array([0, 4, 0, 0, -1, -1])), lists


@in_both
@every_measure
@pytest.mark.parametrize(("empty", "worth"), [("skip", math.nan), ("zero", 0), ("one", 1)])
def test_value_of_lists_without_relevant_documents(name, empty, worth, library):
    scores, labels, lists = mostly_empty(library)
    values = measure(name)(scores, labels, lists, empty=empty)
    expected = [worth, worth, worth]
    if name.startswith("Judged"):  # a judgement is all it takes; only no documents are nothing
        expected = [1, 0, worth]
    close(values[1:], expected)
    assert 0 < values[0] < math.inf


@in_both
@every_measure
def test_lists_with_nothing_relevant_can_be_errors(name, library):
    scores, labels, lists = mostly_empty(library)
    empty, first = (1, 3) if name.startswith("Judged") else (3, 1)
    with pytest.raises(InputError) as error:
        measure(name)(scores, labels, lists, empty="error")
    assert str(error.value) == (
        f"{empty} of 4 lists have nothing relevant for {name}; the first is list {first}."
    )
    values = measure(name)(scores[:2], labels[:2], Lists.from_sizes([2]), empty="error")
    close(values, measure(name)(scores[:2], labels[:2], Lists.from_sizes([2])))


@in_both
@every_measure
@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_lists_without_documents(name, sizes, library):
    nothing = library(np.empty(0))
    values = measure(name)(nothing, nothing, Lists.from_sizes(sizes))
    assert isinstance(values, type(nothing))
    close(values, [math.nan] * len(sizes))


def test_labels_without_a_gain_are_not_relevant():
    values = measure("nDCG(gain=[0, 0, 1])")([0.1, 0.2, 0.3], [1, 1, 2], Lists.from_sizes([2, 1]))
    close(values, [math.nan, 1])


def test_other_words_are_refused():
    for words, complaint in [
        ({"empty": "skipp"}, r"Unknown empty 'skipp'. Did you mean 'skip'\?"),
        ({"ties": "average"}, "A measure needs one order of the documents"),
        ({"ties": "tsable"}, r"Unknown ties 'tsable'. Did you mean 'stable'\?"),
    ]:
        with pytest.raises(InputError, match=complaint):
            measure("AP")(*DISTINCT, **words)


@in_both
def test_arrays_that_do_not_align_are_refused(library):
    two, three, lists = library(np.ones(2)), library(np.ones(3)), Lists.from_sizes([1, 1])
    with pytest.raises(InputError, match=r"scores has shape \(3,\) but labels has shape \(2,\)"):
        measure("AP")(three, two, lists)
    with pytest.raises(InputError, match=r"scores has shape \(3,\) but lists has 2 documents"):
        measure("AP")(three, three, lists)


# Values


ONE_DOCUMENT = {"DCG": 2**2 - 1, "ERR": 3 / 4, "RBP": 1 - 0.8, "paperAP": 1 / 2}


@pytest.mark.parametrize("kind", MEASURES)
def test_one_document(kind):
    values = kind()([0.3, 0.1], [2, 0], Lists.from_sizes([1, 1]), empty="zero")
    close(values, [ONE_DOCUMENT.get(kind.name, 1), kind.name == "Judged"])


@quick
@given(batch=batches(lowest=2, highest=2))
def test_equal_labels_make_all_orders_equal(batch):
    for name in EVERY:
        values = measure(name)(*batch)
        close(values, measure(name)(*batch._replace(scores=-batch.scores)), name)
        close(values, measure(name)(*batch._replace(scores=0 * batch.scores)), name)


@quick
@given(batch=batches())
def test_unjudged_documents_count_as_irrelevant(batch):
    for name in EVERY:
        if not name.startswith(("Judged", "Bpref")):
            judged = batch._replace(labels=batch.labels.clip(0))
            close(measure(name)(*batch), measure(name)(*judged), name)


@quick
@given(batch=batches())
def test_values_lie_between_nothing_and_the_ideal(batch):
    for name in EVERY:
        values = measure(name)(*batch, empty="zero")
        best = measure(name)(*ideal(batch), empty="zero")
        assert (values >= 0).all(), name
        assert (values <= best + 1e-12).all(), name
        unbounded = name.startswith(("DCG", "P(gain", "RBP(gain"))  # sums of labels
        assert unbounded or (best <= 1 + 1e-12).all(), name


@pytest.mark.parametrize(
    "name",
    ["nDCG", "nDCG@3", "nDCG(gain=linear)@3", "nDCG(gain=[0, 1, 2, 5, 9])", "nERR", "nERR@3",
     "nERR(max_grade=4)@2", "AP", "AP@3", "AP(rel=2)@3", "RR", "RR@1", "RR(rel=3)", "Rprec",
     "Success@1", "Recall"],
)  # fmt: skip
@quick
@given(batch=batches())
def test_the_ideal_order_is_worth_one(name, batch):
    relevant = batch.labels >= getattr(measure(name), "rel", 1)
    something = np.array([relevant[docs].any() for docs in batch.lists], bool)
    close(measure(name)(*ideal(batch)), np.where(something, 1.0, math.nan))


@quick
@given(batch=batches())
def test_numpy_and_torch_agree(batch):
    scores, labels = torch.tensor(batch.scores, requires_grad=True), torch.tensor(batch.labels)
    for name in EVERY:
        values = measure(name)(scores, labels, batch.lists)
        assert values.dtype == torch.float64, name
        assert not values.requires_grad, name
        close(values, measure(name)(*batch), name)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_padded_lists_have_the_values_of_flat_ones(library):
    make = np.array if library == "numpy" else torch.tensor
    scores, labels = make([[0.3, 0.1, 0.9], [0.5, 0.7, 0.2]]), make([[2, 0, -100], [0, 1, 2]])
    padded = tr.measure("nDCG")(scores, labels, mask=labels >= 0)
    flat = make([0.3, 0.1, 0.5, 0.7, 0.2]), make([2, 0, 0, 1, 2])
    expected = tr.measure("nDCG")(*flat, tr.Lists.from_sizes([2, 3]))
    assert padded.tolist() == expected.tolist()


@quick
@given(batch=batches(), random=st.randoms(use_true_random=False))
def test_the_place_of_a_document_in_its_list_does_not_matter(batch, random):
    order = np.arange(batch.lists.documents)
    for docs in batch.lists:
        order[docs] = random.sample(order[docs].tolist(), len(order[docs]))
    moved = Batch(batch.scores[order], batch.labels[order], batch.lists)
    for name in EVERY:
        close(measure(name)(*moved), measure(name)(*batch), name)


@quick
@given(batch=batches())
def test_a_list_does_not_depend_on_its_neighbours(batch):
    parts = [(batch.scores[docs], batch.labels[docs]) for docs in batch.lists]
    for name in EVERY:
        alone = [measure(name)(*part, Lists.from_sizes([len(part[0])])) for part in parts]
        close(measure(name)(*batch), np.ravel(alone), name)


@quick
@given(batch=batches())
def test_only_the_order_of_scores_matters(batch):
    for name in EVERY:
        curved = batch._replace(scores=np.exp(batch.scores / 4) - 3)
        close(measure(name)(*curved), measure(name)(*batch), name)


@quick
@given(batch=batches())
def test_a_cutoff_beyond_every_list_changes_nothing(batch):
    for name in EVERY:
        whole = measure(name).at(None)
        # P@k alone divides by k, come what may.
        factor = batch.lists.sizes / 1000 if whole.name == "P" else 1
        if whole.name in ("alpha_DCG", "ERR_IA"):  # so do these, by the value of k documents
            ranks = np.arange(1.0, 1001)
            best = np.cumsum(whole.beta ** (ranks - 1) * whole.discount(ranks))
            factor = best[np.maximum(batch.lists.sizes, 1) - 1] / best[-1]
        close(whole.at(1000)(*batch), whole(*batch) * factor, name)


@pytest.mark.parametrize("cutoff", [1, 3])
@quick
@given(batch=batches())
def test_a_cutoff_is_the_same_as_no_further_documents(cutoff, batch):
    first = [np.argsort(-batch.scores[docs])[:cutoff] + docs.start for docs in batch.lists]
    top = np.concatenate([*first, np.empty(0)]).astype(int)
    short = Lists.from_sizes(batch.lists.sizes.clip(max=cutoff))
    # The others divide by what is there as a whole.
    for name in ("DCG", "RBP", "RR", "Success", "ERR(max_grade=4)", "Judged"):
        expected = measure(name)(batch.scores[top], batch.labels[top], short, empty="zero")
        close(measure(name).at(cutoff)(*batch, empty="zero"), expected, name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64"])
def test_scores_and_labels_of_any_precision(dtype):
    scores, labels, lists = TIED
    expected = measure("nDCG@5")(scores, labels, lists, ties="stable")
    typed = getattr(torch, dtype)
    values = measure("nDCG@5")(
        torch.tensor(scores, dtype=typed), torch.tensor(labels, dtype=typed), lists, ties="stable"
    )
    close(values, expected)
    if dtype != "bfloat16":
        values = measure("nDCG@5")(scores.astype(dtype), labels.astype(dtype), lists, ties="stable")
        close(values, expected)


def test_plain_python_lists_will_do():
    values = measure("RR")([0.3, 0.9, 0.5], [1, 0, 0], Lists.from_sizes([3]))
    close(values, [1 / 3])


def test_minus_zero_is_tied_with_zero():
    values = measure("RR")(
        [-0.0, 0.0, 0.0, -0.0], [1, 0, 1, 0], Lists.from_sizes([2, 2]), ties="stable"
    )
    close(values, [1, 1])


def test_random_ties_are_seeded_and_reach_every_order():
    scores, labels, lists = np.zeros(3), np.array([1, 0, 0]), Lists.from_sizes([3])

    def reciprocal_rank(seed):
        rng = np.random.default_rng(seed)
        return measure("RR")(scores, labels, lists, generator=rng).item()

    values = [reciprocal_rank(seed) for seed in range(30)]
    assert values == [reciprocal_rank(seed) for seed in range(30)]
    assert set(values) == {1, 1 / 2, 1 / 3}


@every_measure
def test_the_slope_is_the_derivative_of_the_discount(name):
    rank = torch.linspace(1, 50, 99, dtype=torch.float64, requires_grad=True)
    discount = measure(name).discount(rank)
    (derivative,) = torch.autograd.grad(discount.sum(), rank)
    close(measure(name).slope(rank.detach()), derivative)
    close(measure(name).slope(rank.detach().numpy()), derivative)
    close(measure(name).discount(rank.detach().numpy()), discount.detach())
    assert (derivative < 0).all()  # a document is worth less further down


# A user's own measure


def halves(labels, lists):
    """Each document's share of the labels."""
    return labels / lists.spread(lists.sum(labels).clip(1))


def halving(rank):
    return 0.5 ** (rank - 1)


@in_both
def test_a_measure_of_your_own(library):
    own = Measure.from_functions("Half", halves, halving)
    scores, labels = library([0.1, 0.3, 0.2, 0.5]), library([3.0, 1.0, 0.0, 2.0])
    values = own(scores, labels, Lists.from_sizes([3, 1]))
    assert isinstance(values, type(scores))
    close(values, [1 / 4 * 1 + 0 / 4 * 1 / 2 + 3 / 4 * 1 / 4, 2 / 2])
    close(own.at(2)(scores, labels, Lists.from_sizes([3, 1])), [1 / 4, 2 / 2])


def test_a_measure_of_your_own_is_a_value_too():
    own = Measure.from_functions("Half", halves, halving, cutoff=5)
    assert str(own) == "Half@5"
    assert own == Measure.from_functions("Half", halves, halving).at(5)
    assert own != Measure.from_functions("Half", halves, np.log2, cutoff=5)
    assert hash(own) == hash(Measure.from_functions("Half", halves, halving, cutoff=5))
    assert measure(own) is own
    with pytest.raises(InputError, match=r"cutoff of .* must be a whole number"):
        Measure.from_functions("Half", halves, halving, cutoff=0)


@in_both
def test_the_slope_of_your_own_discount_need_not_be_said(library):
    rank = library(np.arange(1.0, 20))
    for discount, slope in [
        (halving, math.log(0.5) * 0.5 ** (rank - 1)),
        (lambda rank: rank**-1.5, -1.5 * rank**-2.5),
    ]:
        result = Measure.from_functions("Own", halves, discount).slope(rank)
        assert isinstance(result, type(rank))
        close(result, slope)
    said = Measure.from_functions("Own", halves, halving, slope=lambda rank: 7 * rank)
    close(said.slope(rank), 7 * rank)


def test_your_own_measure_trains():
    # AP once more, written by a user: the same loss and the same gradient.
    def credit(labels, lists):
        relevant, position = (labels > 0) * 1.0, lists.positions(labels)
        later = lists.cumsum(relevant / position, reverse=True)
        return relevant * position * later / lists.spread(lists.sum(relevant).clip(1))

    own = Measure.from_functions("MyAP", credit, lambda rank: 1 / rank)
    labels, grads = torch.tensor(DISTINCT.labels), []
    for objective in (own, "AP"):
        scores = torch.tensor(DISTINCT.scores / 100, requires_grad=True)
        loss = tr.DirectLoss(objective)(scores, labels, DISTINCT.lists)
        close(loss.item(), -np.nanmean(measure("AP")(*DISTINCT)))
        loss.backward()
        grads.append(scores.grad)
    assert grads[0].abs().max() > 1e-3
    close(grads[0], grads[1])


def test_measuring_numpy_arrays_never_imports_torch():
    # torch takes seconds to import, and evaluation has no use for it.
    script = """
        import sys
        import numpy as np
        import twinrank as tr
        from twinrank.core.measures import MEASURES
        lists = tr.Lists.from_qid(["a", "a", "b"])
        for kind in MEASURES:
            for text in (kind.name, f"{kind.name}@2"):
                values = tr.measure(text)(np.array([0.1, 0.2, 0.3]), np.array([1, 0, 2]), lists)
                assert np.isfinite(values).all()
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-W", "error", "-c", inspect.cleandoc(script)], check=True)


def test_a_discount_may_use_torch_functions_but_must_be_differentiable():
    labels, lists = torch.tensor([1.0, 0.0, 2.0]), Lists.from_sizes([3])
    scores = torch.tensor([0.1, 0.3, 0.2], requires_grad=True)

    def gain(labels, lists):
        return labels

    own = Measure.from_functions("Mine", gain, lambda rank: 1 / torch.log2(1 + rank))
    loss = tr.DirectLoss(own, "type3")(scores, labels, lists)
    loss.backward()
    mine, scores.grad = scores.grad, None
    tr.DirectLoss("DCG(gain=linear)", "type3")(scores, labels, lists).backward()
    torch.testing.assert_close(mine, scores.grad)

    constant = Measure.from_functions("Mine", gain, lambda rank: 1 / rank.detach())
    with pytest.raises(InputError, match="The discount of Mine cannot be differentiated by torch"):
        tr.DirectLoss(constant)(scores, labels, lists)


@pytest.mark.parametrize(
    ("credit", "discount", "complaint"),
    [
        (lambda labels, lists: None, lambda rank: 1 / rank, r"credit has shape \(\)"),
        (lambda labels, lists: labels[1:], lambda rank: 1 / rank, r"credit has shape \(2,\)"),
        (lambda labels, lists: labels, lambda rank: 1.0, "must return a number for each rank"),
    ],
)
def test_functions_that_return_something_else_are_refused(credit, discount, complaint):
    own = Measure.from_functions("Mine", credit, discount)
    with pytest.raises(InputError, match=complaint):
        own(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]), Lists.from_sizes([3]))


@pytest.fixture
def _own_names(monkeypatch):
    monkeypatch.setattr(measures, "_OWN", {})


@pytest.mark.usefixtures("_own_names")
def test_registered_measures_are_known_by_name():
    own = tr.Measure.from_functions("Mine", lambda labels, lists: labels, lambda rank: 1 / rank)
    tr.register_measure(own)
    assert tr.measure("Mine@3") == own.at(3)
    lists, labels = tr.Lists.from_sizes([2, 1]), np.array([0, 1, 1])
    scores = {"A": np.array([2.0, 1.0, 0.0]), "B": np.array([1.0, 2.0, 0.0])}
    found = tr.compare(scores, labels, lists, ["Mine", own.at(1)])
    assert found.means == {"A": {"Mine": 0.75, "Mine@1": 0.5}, "B": {"Mine": 1.0, "Mine@1": 1.0}}
    with pytest.raises(tr.InputError, match="Mine has no options"):
        tr.measure("Mine(gain=linear)")

    @dataclass(frozen=True, kw_only=True)
    class Late(BinaryMeasure):
        name: ClassVar[str] = "Late"

        def credit(self, labels, lists):
            return self.relevant(labels) * 1.0

    tr.register_measure(Late(rel=2))
    assert tr.measure("Late(rel=3)@2") == Late(rel=3, cutoff=2)


@pytest.mark.usefixtures("_own_names")
@pytest.mark.parametrize(
    ("own", "said"),
    [
        (tr.Measure.from_functions("AP", None, None), "AP is a built-in measure"),
        (tr.Measure.from_functions("two words", None, None), "Can't read 'two words'"),
        ("Mine", "takes a Measure, not 'Mine'"),
    ],
)
def test_names_that_cannot_be_registered(own, said):
    with pytest.raises(tr.InputError, match=said):
        tr.register_measure(own)


def test_processes_import_measures(tmp_path):
    (tmp_path / "my_measures.py").write_text(
        "import twinrank as tr\n"
        "tr.register_measure(tr.Measure.from_functions('Mine', lambda y, _: y, lambda r: 1 / r))\n"
    )
    command = [sys.executable, "-m", "twinrank", "measures", "Mine@3"]
    found = {
        module: subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "TWINRANK_IMPORT": module},
        )
        for module in ("my_measures", "no_such_module")
    }  # fmt: skip
    assert "Mine@3 is valid." in found["my_measures"].stdout
    assert "TWINRANK_IMPORT names 'no_such_module'" in found["no_such_module"].stderr


# A discount and its slope belong together


@dataclass(frozen=True, kw_only=True)
class Halving(BinaryMeasure):
    """A discount of its own, and no slope."""

    name: ClassVar[str] = "Halving"

    def credit(self, labels, lists):
        return self.relevant(labels) * 1.0

    def discount(self, rank):
        return 2.0 ** (1.0 - rank)


@dataclass(frozen=True, kw_only=True)
class Doubled(Halving):
    """A class that inherits both."""


@in_both
@pytest.mark.parametrize("kind", [Halving, Doubled])
def test_a_discount_without_a_slope_does_not_inherit_that_of_another(library, kind):
    rank = library(np.array([1.0, 2.0, 5.0]))
    expected = -math.log(2) * 2.0 ** (1 - np.array([1.0, 2.0, 5.0]))
    close(np.asarray(kind().slope(rank)), expected)


class HalvingMix:
    """A discount from outside the measures."""

    def discount(self, rank):
        return 2.0 ** (1.0 - rank)


class SlopeMix:
    def slope(self, rank):
        return 0 * rank


def test_the_discount_of_a_mixin_has_its_own_slope():
    class Mixed(HalvingMix, measures.DCG):
        pass

    class Sloped(SlopeMix, measures.DCG):
        pass

    rank = np.array([1.0, 2.0, 5.0])
    close(Mixed().slope(rank), -math.log(2) * 2.0 ** (1 - rank))
    close(Sloped().slope(rank), 0 * rank)


def test_training_follows_the_slope_of_the_own_discount():
    scores = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    labels, lists = torch.tensor([1.0, 0.0]), Lists.from_sizes([2])
    tr.DirectLoss(Halving(), strategy="type1")(scores, labels, lists).backward()
    slope = math.log(2) / 2  # −∂discount/∂rank at rank 2
    sigmoid = 1 / (1 + math.exp(1))
    close(scores.grad[0].item(), -slope * sigmoid * (1 - sigmoid))


def test_a_numpy_discount_says_how_to_get_a_slope():
    class Wrong(Halving):
        def discount(self, rank):
            return np.exp(-np.asarray(rank.detach() if torch.is_tensor(rank) else rank))

    with pytest.raises(InputError, match="or define its derivative as slope"):
        Wrong().slope(np.array([1.0]))


@in_both
def test_measures_refuse_scores_and_labels_as_losses_do(library):
    lists, good = Lists.from_sizes([2]), library(np.array([1.0, 0.0]))
    for scores, labels, complaint in (
        ([-np.inf, 0.0], [1.0, 0.0], "scores are not finite"),
        ([1.0, 0.0], [1.0, -0.5], "labels are below 0, but not -1"),
    ):
        arguments = (library(np.array(scores)), library(np.array(labels)), lists)
        with pytest.raises(InputError, match=complaint):
            measure("AP")(*arguments)
        if torch.is_tensor(good):
            for loss in (tr.DirectLoss("AP"), tr.ListNet()):
                with pytest.raises(InputError, match=complaint):
                    loss(*arguments)
