"""`evaluate`: the measures' own values, whatever the blocks and threads; shown and saved."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from math import log2
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import twinrank as tr
from twinrank.core.lists import Lists
from twinrank.core.measures import MEASURES, Measure
from twinrank.evaluation import evaluate as evaluate_module
from twinrank.evaluation import ranking, topk
from twinrank.evaluation.retrieved_lists import RetrievedLists
from twinrank.evaluation.topk import TopK
from twinrank.support import compiled
from twinrank.support.errors import InputError

NAMES = [
    *(kind.name for kind in MEASURES),
    *(f"{kind.name}@{k}" for kind in MEASURES for k in (1, 3, 10)),
    "nDCG(gain=linear)@5", "nDCG(gain=[0, 5, 1, 2, 3])@5", "AP(divisor=R)@5", "AP(rel=2)@3",
    "P(rel=3)@5", "ERR(max_grade=4)@5", "RBP(p=0.3)", "RR(rel=2)", "Judged@5",
]  # fmt: skip


def batch(seed=0, sizes=None, tied=True, unjudged=True):
    """Scores, labels and lists: some empty, some of one document, some with nothing relevant."""
    rng = np.random.default_rng(seed)
    sizes = np.r_[0, 1, 1, 0, rng.integers(1, 30, 40), 0] if sizes is None else sizes
    lists = Lists.from_sizes(sizes)
    barren = lists.spread(rng.random(len(lists)) < 0.2)
    labels = rng.choice([-1, 0, 1, 2, 3, 4] if unjudged else [0, 1, 2, 3, 4], lists.documents)
    scores = rng.integers(0, 6, lists.documents) if tied else rng.permutation(lists.documents)
    return scores.astype(float), np.where(barren, 0, labels), lists


# The same as one measure after the other


def test_the_registry_is_covered():
    assert {kind.name for kind in MEASURES} == {name for name in NAMES if name.isidentifier()}


@pytest.mark.parametrize("ties", ["random", "stable"])
@pytest.mark.parametrize("empty", ["skip", "zero", "one"])
def test_values_are_the_measures_own(ties, empty):
    scores, labels, lists = batch()
    result = tr.evaluate(scores, labels, lists, NAMES, ties=ties, empty=empty, random_state=5)
    assert list(result.values) == NAMES
    for name in NAMES:
        generator = np.random.default_rng(5)
        own = tr.measure(name)(scores, labels, lists, ties=ties, empty=empty, generator=generator)
        assert_allclose(result.values[name], own, rtol=1e-12, err_msg=name)
        mean = np.nanmean(own)
        assert result[name] == pytest.approx(mean, rel=1e-12), name
        assert result.means[name] == result[name]


@pytest.mark.parametrize("block", [1, 2, 17, 100, 1 << 20])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("ties", ["random", "average"])
def test_blocks_and_threads_change_nothing(monkeypatch, block, threads, ties):
    scores, labels, lists = batch(sizes=[0, 1, 90, 30, 3, 0, 200, 1, 0, 12, 0])
    names = [name for name in NAMES if ties == "random" or name.startswith(("n", "P", "R"))]
    names = [name for name in names if not name.startswith(("nERR", "RR", "Rprec"))]
    expected = tr.evaluate(scores, labels, lists, names, ties=ties)
    monkeypatch.setattr(evaluate_module, "_BLOCK", block)
    monkeypatch.setattr(evaluate_module, "_SMALL", 0)
    for module in (evaluate_module, topk, ranking):
        monkeypatch.setattr(module, "_PER_THREAD", 10)
    monkeypatch.setattr(compiled, "threads", lambda: threads)
    found = tr.evaluate(scores, labels, lists, names, ties=ties)
    for name in names:
        assert_allclose(found.values[name], expected.values[name], rtol=1e-13, err_msg=name)


@given(st.integers(0, 10_000), st.sampled_from(["random", "stable"]))
@settings(max_examples=25)
def test_any_lists(seed, ties):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 1, 2, 3, 50], rng.integers(0, 8))
    scores, labels, lists = batch(seed, sizes)
    result = tr.evaluate(scores, labels, lists, ["nDCG@3", "AP", "Judged"], ties=ties)
    assert result.lists == len(sizes)
    for name, values in result.values.items():
        own = tr.measure(name)(scores, labels, lists, ties=ties, generator=np.random.default_rng(0))
        assert_allclose(values, own, rtol=1e-12)


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]])
def test_nothing_at_all(sizes):
    result = tr.evaluate([], [], Lists.from_sizes(sizes), ["nDCG@3", "P"])
    assert result.lists == len(sizes)
    assert np.isnan(result["nDCG@3"])
    assert "–" in str(result)
    assert result.to_json()["means"]["P"] is None
    assert result.to_csv().splitlines()[0] == "query,nDCG@3,P"


def test_random_ties_follow_the_seed_and_stable_ones_the_order():
    lists = Lists.from_sizes([30])
    scores, labels = np.zeros(30), np.arange(30) % 4
    seeds = {tr.evaluate(scores, labels, lists, "nDCG", random_state=i)["nDCG"] for i in range(5)}
    again = {tr.evaluate(scores, labels, lists, "nDCG", random_state=i)["nDCG"] for i in range(5)}
    assert len(seeds) == 5
    assert seeds == again
    stable = tr.evaluate(scores, labels, lists, "nDCG", ties="stable")["nDCG"]
    in_order = tr.evaluate(-np.arange(30), labels, lists, "nDCG")["nDCG"]
    assert stable == in_order


@pytest.mark.parametrize(
    "given_as",
    [
        list,
        tuple,
        np.float32,
        np.int64,
        torch.tensor,
        lambda x: torch.tensor(x, requires_grad=True),
        lambda x: torch.tensor(x, dtype=torch.bfloat16),
    ],
)
def test_scores_and_labels_of_any_kind(given_as):
    scores, labels, lists = batch()
    expected = tr.evaluate(scores, labels, lists, ["nDCG@3", "AP"]).values
    found = tr.evaluate(given_as(scores), given_as(labels.astype(float)), lists, ["nDCG@3", "AP"])
    for name, values in found.values.items():
        assert_allclose(values, expected[name], rtol=1e-12)


def test_arguments_stay_untouched_and_read_only_ones_work():
    scores, labels, lists = batch()
    kept = scores.copy(), labels.copy()
    scores.flags.writeable = labels.flags.writeable = False
    tr.evaluate(scores, labels, lists, NAMES)
    tr.evaluate(scores, labels, lists, ["nDCG"], convention="trec", docids=np.arange(scores.size))
    assert_array_equal(scores, kept[0])
    assert_array_equal(labels, kept[1])


def test_infinite_scores_are_refused_as_in_losses():
    with pytest.raises(InputError, match="1 of 3 scores are not finite; the first is document 0"):
        tr.evaluate([-np.inf, 1.0, 0.0], [0, 1, 2], Lists.from_sizes([3]), ["P@1"])


# Documents without a rank, against a slow reference


def stop_chances(labels, top):
    return [(2 ** max(y, 0) - 1) / 2**top for y in labels]


def err(labels, top, k):
    going, total = 1.0, 0.0
    for j, chance in enumerate(stop_chances(labels, top)[:k], start=1):
        total += going * chance / j
        going *= 1 - chance
    return total


def dcg(labels, k):
    return sum((2 ** max(y, 0) - 1) / log2(j + 1) for j, y in enumerate(labels[:k], start=1))


def average_precision(labels, k):
    hits = [j for j, y in enumerate(labels[:k], start=1) if y >= 1]
    return sum(n / j for n, j in enumerate(hits, start=1))


def bpref(ranked, relevant, against):
    total, above = 0.0, 0
    for y in ranked:
        if y >= 1:
            total += 1 - (min(above, relevant) / min(against, relevant) if above else 0)
        above += y == 0
    return total / relevant


def by_log(rank):
    return 1 / log2(rank + 1)


def by_rank(rank):
    return 1 / rank


def variety(labels, k, discount):
    """The documents above 0 have the only sub-topic, which halves with each of them."""
    places = [j for j, y in enumerate(labels[:k], start=1) if y >= 1]
    return sum(0.5**c * discount(j) for c, j in enumerate(places))


def reference(name, ranked, known, k):
    """One list's value: labels in rank order, labels of all documents, and the cutoff."""
    ideal = sorted(known, reverse=True)
    relevant = sum(y >= 1 for y in known)
    top = max(0, *known)
    hits = sum(y >= 1 for y in ranked[:k])
    first = next((j for j, y in enumerate(ranked[:k], start=1) if y >= 1), None)
    depth, perfect = len(ranked[:k]), [1] * (k or len(known))
    return {
        "nDCG": lambda: dcg(ranked, k) / dcg(ideal, k),
        "DCG": lambda: dcg(ranked, k),
        "AP": lambda: average_precision(ranked, k) / min(relevant, k or relevant),
        "paperAP": lambda: average_precision(ranked, k) / sum(max(y, 0) for y in ideal[:k]),
        "P": lambda: hits / (k or depth or 1),
        "Recall": lambda: hits / relevant,
        "Rprec": lambda: sum(y >= 1 for y in ranked[: min(relevant, k or relevant)]) / relevant,
        "RR": lambda: 1 / first if first else 0.0,
        "Success": lambda: float(first is not None),
        "nERR": lambda: err(ranked, top, k) / err(ideal, top, k),
        "ERR": lambda: err(ranked, top, k),
        "RBP": lambda: 0.2 * sum(0.8**j for j, y in enumerate(ranked[:k]) if y >= 1),
        "Bpref": lambda: bpref(ranked[:k], relevant, sum(y == 0 for y in known)),
        "IPrec": lambda: max(
            (sum(y >= 1 for y in ranked[:j]) / j for j in range(1, depth + 1)), default=0.0
        ),
        "SetF": lambda: 2 * hits / (relevant + depth),
        "alpha_nDCG": lambda: variety(ranked, k, by_log) / variety(ideal, k, by_log),
        "alpha_DCG": lambda: variety(ranked, k, by_log) / variety(perfect, k, by_log),
        "nERR_IA": lambda: variety(ranked, k, by_rank) / variety(ideal, k, by_rank),
        "ERR_IA": lambda: variety(ranked, k, by_rank) / variety(perfect, k, by_rank),
        "Judged": lambda: sum(y >= 0 for y in ranked[:k]) / (depth or 1),
    }[name]()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [1, 40, 1 << 15])
def test_documents_without_a_rank(monkeypatch, seed, block):
    monkeypatch.setattr(evaluate_module, "_BLOCK", block)
    scores, labels, plain = batch(seed)
    rng = np.random.default_rng(seed)
    ranked = rng.integers(0, plain.sizes + 1)
    lists = RetrievedLists(plain.offsets, ranked)
    for documents, count in zip(lists, ranked, strict=True):
        scores[documents][count:] = -np.inf
        labels[documents][count:] = labels[documents][count:].clip(1)
    found = tr.evaluate(scores, labels, lists, NAMES, ties="stable")
    for q, (documents, count) in enumerate(zip(plain, ranked, strict=True)):
        grades, order = labels[documents], np.argsort(-scores[documents][:count], kind="stable")
        for kind in MEASURES:
            for k in (None, 1, 3, 10):
                name = kind.name if k is None else f"{kind.name}@{k}"
                filled = grades.size > 0 if kind.name == "Judged" else (grades >= 1).any()
                value = found.values[name][q]
                if not filled:
                    assert np.isnan(value), name
                    continue
                expected = reference(kind.name, grades[order].tolist(), grades.tolist(), k)
                assert value == pytest.approx(expected, rel=1e-12, abs=1e-15), (name, q)


def test_the_reference_covers_the_registry():
    for kind in MEASURES:
        assert np.isfinite(reference(kind.name, [1, 0], [1, 0, 2], None))


# Long lists, of which only the beginning is ordered


@pytest.fixture
def seen(monkeypatch):
    """How often lists were cut to the top k, and with which labels that couldn't be done."""
    monkeypatch.setattr(evaluate_module, "_SMALL", 0)
    counts = {"cut": 0, "not": 0}
    of = TopK.of

    def counted(*arguments):
        found = of(*arguments)
        counts["not" if found is None else "cut"] += 1
        return found

    monkeypatch.setattr(TopK, "of", counted)
    return counts


LONG = [0, 1, 200, 7, 64, 333, 0, 90]


@pytest.mark.parametrize("ties", ["random", "stable", "docid"])
@pytest.mark.parametrize("levels", [2, 40, 10**6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_top_k_lists_change_nothing(monkeypatch, seen, ties, levels, dtype):
    _, labels, lists = batch(1, LONG)
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, lists.documents).astype(dtype)
    choices = {"ties": ties, "docids": rng.permutation(lists.documents), "random_state": 3}
    found = tr.evaluate(scores, labels, lists, NAMES, **choices)
    assert seen == {"cut": 1, "not": 0}
    monkeypatch.setattr(evaluate_module, "_MAX_TOPK", 0)
    slow = tr.evaluate(scores, labels, lists, NAMES, **choices)
    assert seen == {"cut": 1, "not": 0}
    assert found.empty_lists == slow.empty_lists
    for name in NAMES:
        assert_allclose(found.values[name], slow.values[name], rtol=1e-12, err_msg=name)


@given(
    st.lists(st.integers(0, 80), min_size=1, max_size=6),
    st.integers(0, 1000),
    st.sampled_from(["random", "stable", "docid"]),
    st.sets(st.integers(1, 40), min_size=1, max_size=4),
)
@settings(max_examples=40)
def test_any_top_k(sizes, seed, ties, cutoffs):
    scores, labels, lists = batch(seed, sizes)
    names = [f"{kind.name}@{k}" for kind in MEASURES for k in cutoffs]
    choices = {"ties": ties, "docids": np.arange(lists.documents), "empty": "zero"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_module, "_SMALL", 0)
        found = tr.evaluate(scores, labels, lists, names, **choices)
        patch.setattr(evaluate_module, "_MAX_TOPK", 0)
        slow = tr.evaluate(scores, labels, lists, names, **choices)
    for name in names:
        assert_allclose(found.values[name], slow.values[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("label", [0.5, 2.5, 32, 1e6])
def test_labels_that_are_no_grades(seen, label):
    scores, labels, lists = batch(1, LONG)
    labels = labels.astype(float)
    labels[100] = label
    name = "nDCG(gain=linear)@3"
    found = tr.evaluate(scores, labels, lists, name, ties="stable")
    assert seen == {"cut": 0, "not": 1}
    own = tr.measure(name)(scores, labels, lists, ties="stable")
    assert_allclose(found.values[name], own, rtol=1e-12)


def test_top_k_of_unusual_arrays(seen):
    scores, labels, lists = batch(1, LONG)
    expected = tr.evaluate(scores, labels, lists, "nDCG@3").values["nDCG@3"]
    twice = np.repeat(scores, 2)[::2], np.repeat(labels, 2)[::2]
    frozen = scores.copy(), labels.copy()
    for array in frozen:
        array.flags.writeable = False
    swapped = scores.astype(">f8"), labels.astype(">i4")
    for given_scores, given_labels in (twice, frozen, swapped):
        found = tr.evaluate(given_scores, given_labels, lists, "nDCG@3")
        assert_allclose(found.values["nDCG@3"], expected, rtol=1e-12)
    assert seen["cut"] == 4


def test_ones_own_measure_may_look_beyond_its_cutoff(seen):
    def credit(labels, lists):
        return lists.cumsum(labels, reverse=True) / lists.spread(lists.sum(labels) + 1)

    own = Measure.from_functions("beyond", credit, lambda rank: 1 / rank, cutoff=3)
    scores, labels, lists = batch(1, LONG, tied=False)
    found = tr.evaluate(scores, labels, lists, [own, "P@3"])
    assert seen["cut"] == 1
    expected = own(torch.tensor(scores), torch.tensor(labels), lists)
    assert_allclose(found.values["beyond@3"], expected, rtol=1e-12)


# Measures of one's own


def by_torch():
    def credit(labels, lists):
        return torch.relu(labels.double()) / lists.spread(lists.sum(labels.clamp(min=0)) + 1)

    return Measure.from_functions("torched", credit, lambda rank: 1 / torch.log2(1 + rank))


def by_operators():
    def credit(labels, lists):
        return (labels > 0) * labels / lists.spread(lists.sum((labels > 0) * labels) + 1)

    return Measure.from_functions("plain", credit, lambda rank: rank**-0.5, cutoff=4)


@dataclass(frozen=True, kw_only=True)
class Hits(Measure):
    """How many relevant documents there are up to k, for NumPy arrays and tensors."""

    name: ClassVar[str] = "Hits"

    def credit(self, labels, lists):
        return (labels > 0) * lists.positions(labels)

    def discount(self, rank):
        return 1 / rank


@pytest.mark.parametrize("own", [by_torch(), by_operators(), Hits(cutoff=3), Hits()], ids=str)
def test_a_measure_of_ones_own(own):
    scores, labels, lists = batch(tied=False)
    result = tr.evaluate(scores, labels, lists, ["nDCG@3", own])
    in_numpy_too = own.name == "Hits"
    given_as = np.asarray if in_numpy_too else torch.tensor
    expected = np.asarray(own(given_as(scores), given_as(labels), lists))
    assert_allclose(result.values[str(own)], expected, rtol=1e-12)
    assert list(result.values) == ["nDCG@3", str(own)]
    assert f"\n{own} " in str(result)


def test_a_wrong_credit_of_ones_own_is_told():
    own = Measure.from_functions("short", lambda labels, lists: labels[:1], lambda rank: 1 / rank)
    with pytest.raises(InputError, match="credit"):
        tr.evaluate(*batch(), own)


# What is shown and saved


@pytest.fixture
def result():
    scores = [0.3, 0.9, 0.5, 0.1, 0.2, 0.7]
    return tr.evaluate(
        scores, [1, 0, 0, 0, 1, 0], Lists.from_sizes([3, 2, 1]), ["nDCG@3", "RR"],
        query_ids=["a", "b,c", "ü"],
    )  # fmt: skip


def test_the_table_states_the_convention_and_what_was_left_out(result):
    assert str(result) == (
        "3 lists, 6 documents\n"
        "measure    mean  lists\n"
        "───────  ──────  ─────\n"
        "nDCG@3   0.7500      2\n"
        "RR       0.6667      2\n"
        "Convention: twinrank (gain 2ʸ − 1; AP@k over min(R, k); lists without relevant documents "
        "are skipped; ties broken at random).\n"
        "1 of 3 lists has no relevant document."
    )
    for text in (result.table().to_markdown(), result.table().to_latex(), result._repr_html_()):
        assert "0.6667" in text
        assert "Convention: twinrank" in text


def test_lists_with_nothing_relevant_are_counted_by_measure():
    lists = Lists.from_sizes([2, 2, 2])
    shown = str(tr.evaluate([2, 1] * 3, [0, 0, 1, 0, 2, 0], lists, ["RR", "RR(rel=2)"]))
    assert "1 to 2 of 3 lists have no relevant document, depending on the measure." in shown


def test_json_and_back(result, tmp_path):
    result.save(tmp_path / "r.json")
    read = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert read == result.to_json()
    assert read["queries"] == ["a", "b,c", "ü"]
    assert read["values"]["RR"] == [pytest.approx(1 / 3), 1.0, None]
    assert read["means"]["nDCG@3"] == 0.75
    assert read["empty_lists"] == {"nDCG@3": 1, "RR": 1}
    assert read["convention"].startswith("twinrank (")
    assert "values" not in result.to_json(per_list=False)


def test_csv_and_back(result, tmp_path):
    result.save(tmp_path / "r.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "r.csv").read_text("utf-8"))))
    assert rows[0] == ["query", "nDCG@3", "RR"]
    assert rows[2] == ["b,c", "1.0", "1.0"]
    assert rows[3] == ["ü", "", ""]
    assert float(rows[1][2]) == result.values["RR"][0]
    assert result.to_csv(per_list=False) == "measure,mean\nnDCG@3,0.75\nRR,0.6666666666666666\n"


def test_frames(result, monkeypatch):
    frame = result.to_frame()
    assert type(frame).__module__.startswith("polars")
    assert frame["query"].to_list() == ["a", "b,c", "ü"]
    monkeypatch.setitem(sys.modules, "polars", None)
    frame = result.to_frame()
    assert type(frame).__module__.startswith("pandas")
    assert_array_equal(frame["RR"], result.values["RR"])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install polars"):
        result.to_frame()


def test_without_query_ids_lists_are_numbered(result):
    anonymous = tr.evaluate([1, 2], [0, 1], Lists.from_sizes([1, 1]), "RR")
    assert anonymous.to_frame()["query"].to_list() == [0, 1]
    assert anonymous.to_csv().splitlines()[1:] == ["0,", "1,1.0"]
    assert "queries" not in anonymous.to_json()


def test_save_refuses_other_suffixes_and_missing_folders(result, tmp_path):
    with pytest.raises(InputError, match=r"Choose a name with suffix \.json or \.csv"):
        result.save(tmp_path / "r.xlsx")
    with pytest.raises(tr.FileError, match="Can't write"):
        result.save(tmp_path / "nowhere" / "r.json")
    assert not list(tmp_path.iterdir())


def test_names_that_the_result_is_to_have():
    found = tr.evaluate([2, 1], [0, 1], Lists.from_sizes([2]), {"first": "P@1", "rr": Hits()})
    assert found.means == {"first": 0.0, "rr": 1.0}
    assert list(tr.evaluate([1], [1], Lists.from_sizes([1])).values) == list(
        evaluate_module.DEFAULT
    )
    with pytest.raises(KeyError, match="P@2 was not measured; the measures are first, rr"):
        found["P@2"]


# Mistakes


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"scores": [1.0, 2.0]}, r"scores has shape \(2,\) but lists has 3 documents"),
        ({"labels": [1, 2, 3, 4]}, r"labels has shape \(4,\) but lists has 3 documents"),
        ({"scores": [[1.0, 2.0, 3.0]]}, r"scores has shape \(1, 3\) but lists"),
        ({"scores": [1.0, np.nan, 2.0]}, "1 of 3 scores are NaN; the first is document 1, in list"),
        ({"labels": [1, np.nan, 2]}, "1 of 3 labels are not finite"),
        ({"labels": [1, np.inf, 2]}, "1 of 3 labels are not finite"),
        ({"scores": ["a", "b", "c"]}, "scores must be numbers, not <U1"),
        ({"scores": [1j, 2, 3]}, "scores must be numbers, not complex128"),
        ({"labels": [None, 1, 2]}, "labels must be numbers, not object"),
        ({"lists": [2, 1]}, "lists must be Lists"),
        ({"measures": "ndcg@10"}, "Unknown measure 'ndcg'. Did you mean 'nDCG'"),
        ({"measures": ["nDCG@10", "PP@3"]}, "Unknown measure 'PP'"),
        ({"measures": "nDCG@ten"}, "Can't read 'nDCG@ten'. Write Name, Name@k"),
        ({"measures": "nDGC@@1"}, "Unknown measure 'nDGC'. Did you mean 'nDCG'"),
        ({"measures": "nDCG(gian=linear)"}, "Unknown option of nDCG 'gian'. Did you mean 'gain'"),
        ({"measures": []}, "Give at least one measure"),
        ({"measures": {}}, "Give at least one measure"),
        ({"measures": [3]}, "Can't read 3"),
        ({"convention": "letr"}, "Unknown convention 'letr'. Did you mean 'letor'"),
        ({"empty": "nan"}, "Unknown empty 'nan'"),
        ({"ties": "docids"}, "Unknown ties 'docids'. Did you mean 'docid'"),
        ({"ties": "docid"}, "ties='docid' needs the id of each document; pass docids"),
        ({"ties": "docid", "docids": ["a"]}, r"docids has shape \(1,\) but lists has 3 documents"),
        ({"query_ids": ["a"]}, "query_ids has 1 entries but there are 2 lists"),
        ({"measures": "AP", "ties": "average"}, "ties='average' is for measures that add up"),
        ({"measures": "AP", "empty": "error"}, "1 of 2 lists have no relevant document for AP"),
        ({"measures": "ERR(max_grade=1)"}, "takes labels up to 1"),
    ],
)
def test_mistakes(change, complaint):
    good = {
        "scores": [3.0, 2.0, 1.0], "labels": [2, 1, 0], "lists": Lists.from_sizes([2, 1]),
        "measures": "nDCG",
    }  # fmt: skip
    with pytest.raises(InputError, match=complaint):
        tr.evaluate(**good | change)


def test_torch_stays_unloaded():
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *rest):\n"
        "        assert name.split('.')[0] != 'torch'\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import twinrank as tr\n"
        "lists = tr.Lists.from_sizes([2, 1])\n"
        "result = tr.evaluate([1, 2, 3], [0, 1, 1], lists, ['nDCG', 'P'], ties='average')\n"
        "tr.compare({'a': [1, 2, 3], 'b': [3, 2, 1]}, [0, 1, 1], lists)\n"
        "tr.evaluate_run({'q': {'d': 1}}, {'q': {'d': 1}})\n"
        "assert result['nDCG'] == 1\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


# Pictures


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_cutoffs_are_drawn(tmp_path, suffix):
    scores, labels, lists = batch()
    path = tmp_path / f"cutoffs{suffix}"
    systems = {"_a": scores, "b$^{": -scores}
    tr.draw_cutoffs(path, systems, labels, lists, ["nDCG", "P", "RR"], [1, 2, 5], ties="stable")
    head = path.read_bytes()[:300]
    assert {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}[suffix] in head
    if suffix == ".svg":
        text = path.read_text("utf-8")
        assert all(word in text for word in ("mean nDCG@k", "Convention: twinrank, changed", "_a"))
        tr.draw_cutoffs(path, systems, labels, lists, ["nDCG", "P", "RR"], [1, 2, 5], ties="stable")
        assert path.read_text("utf-8") == text


def test_cutoffs_that_cannot_be_drawn(tmp_path):
    scores, labels, lists = batch()
    with pytest.raises(InputError, match=r"Choose a name with \.png"):
        tr.draw_cutoffs(tmp_path / "a.txt", {"a": scores}, labels, lists)
    with pytest.raises(InputError, match="at least one system"):
        tr.draw_cutoffs(tmp_path / "a.png", {}, labels, lists)
    assert not list(tmp_path.iterdir())
