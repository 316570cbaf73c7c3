"""TREC runs and qrels: files as they come, queries on one side only, trec_eval's own names."""

import gzip
import lzma
import shutil

import ir_measures
import numpy as np
import pandas
import polars
import pytest
import pytrec_eval
from hypothesis import assume, given
from hypothesis import strategies as st

import twinrank as tr
from twinrank.evaluation import trec_files
from twinrank.evaluation.conventions import CONVENTIONS
from twinrank.evaluation.measure_names import MAIN, SETS, trec_names
from twinrank.evaluation.run_evaluation import named_measures
from twinrank.evaluation.trec_files import Run, read_qrels, read_run, read_scores
from twinrank.support.errors import FileError, InputError

RUN = "q1 Q0 d1 1 2.5 bm25\nq1\tQ0\td2\t2\t-1e-3\tbm25\r\n\n  q2 Q0 d1 1 7 bm25  \n"
QRELS = "q1 0 d1 2\nq1 0 d3 1\nq2 0 d9 0\nq3 0 d1 1\n"


@pytest.fixture
def write(tmp_path):
    def one(content, name="file.txt"):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "wb") as file:
            file.write(content)
        return path

    return one


# Reading


@pytest.mark.parametrize("name", ["a.run", "a.run.gz", "a.xz"])
def test_runs_and_qrels_are_read_plain_and_compressed(write, name):
    run = read_run(write(RUN, name))
    assert run == Run("bm25", {"q1": {"d1": 2.5, "d2": -0.001}, "q2": {"d1": 7.0}})
    assert read_qrels(str(write(QRELS, name))) == {
        "q1": {"d1": 2, "d3": 1},
        "q2": {"d9": 0},
        "q3": {"d1": 1},
    }


def test_the_tag_is_the_last_lines_and_ranks_do_not_count(write):
    run = read_run(write("q Q0 a 9 1 first\nq Q0 b 1 0.5 second"))
    assert run.name == "second"
    assert tr.evaluate_run(run, {"q": {"a": 1}}, ["recip_rank", "runid"])["recip_rank"] == 1


def test_a_byte_order_mark_and_letters_of_all_kinds(write):
    found = read_run(write("\ufeffq1 Q0 d\u00a0é\u2003x 1 1 läuft\n".encode()))
    assert found == Run("läuft", {"q1": {"d\u00a0é\u2003x": 1.0}})


def test_lines_across_pieces(write, monkeypatch):
    rows = [f"q{i % 7} Q0 d{i} {i} {i / 3!r} tag" for i in range(50)]
    whole = read_run(write("\n".join(rows)))
    assert sum(map(len, whole.scores.values())) == 50
    for piece in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr(trec_files, "_PIECE", piece)
        assert read_run(write("\n".join(rows))) == whole
        assert read_run(write("\n".join(rows) + "\n")) == whole


names = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=5)
floats = st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(names, st.dictionaries(names, floats, min_size=1), min_size=1))
def test_whatever_is_written_is_read_again(tmp_path_factory, scores):
    assume(not next(iter(scores)).startswith("\ufeff"))  # at the start, a mark of the encoding
    assume(not any(query.startswith("#") for query in scores))  # a comment
    path = tmp_path_factory.mktemp("run") / "a.run"
    lines = [f"{q} Q0 {d} 1 {s!r} t\n" for q, found in scores.items() for d, s in found.items()]
    path.write_bytes("".join(lines).encode())
    assert read_run(path).scores == scores


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            "q1 Q0 d1 1 0.5 t\nq1 Q0 d2 2 0.5\n",
            "line 2: a run has at least six columns, query Q0 document",
        ),
        ("\n\nq1 Q0 d1 1 high t\n", "line 3: a score must be a finite number; found 'high'"),
        ("q1 Q0 d1 1 nan t\n", "line 1: a score must be a finite number; found 'nan'"),
        ("q1 Q0 d1 1 1e999 t\n", "line 1: a score must be a finite number; found '1e999'"),
        ("q1 Q0 d1 1 1 t\nq1 Q0 d1 2 0 t\n", "line 2: query 'q1' has document 'd1' twice"),
        ("", "has no retrieved documents"),
        (" \n\t\n", "has no retrieved documents"),
        (b"q1 Q0 caf\xe9 1 0.5 t\n", r"line 1: not UTF-8 text; found 'caf\\xe9'"),
        (b"\x00\xff\x1f\x8b" * 100, "line 1: a run has at least six columns"),
        ("x" * 10_000, r"line 1: a run has at least six columns.*x{80}…'\.$"),
    ],
)
def test_wrong_runs(write, content, complaint):
    path = write(content)
    with pytest.raises(InputError, match=complaint) as error:
        read_run(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("q1 0 d1\n", "line 1: qrels have four columns, query 0 document grade; found 'q1 0 d1'"),
        (RUN, "line 1: qrels have four columns"),
        ("q1 0 d1 1\nq1 0 d2 1.5\n", "line 2: a grade must be a whole number; found '1.5'"),
        ("q1 0 d1 1\nq1 0 d1 0\n", "line 2: query 'q1' has document 'd1' twice"),
        ("", "has no judgements"),
    ],
)
def test_wrong_qrels(write, content, complaint):
    with pytest.raises(InputError, match=complaint):
        read_qrels(write(content))


def test_damaged_and_missing_files(write, tmp_path):
    whole = write(RUN * 1000, "whole.run.gz").read_bytes()
    cut = tmp_path / "cut.run.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="truncated"):
        read_run(cut)
    cut.write_bytes(b"no archive")
    with pytest.raises(InputError, match="is damaged, or its suffix is wrong"):
        read_qrels(cut)
    with pytest.raises(FileError, match=r"Can't read .*nowhere\.run: No such file"):
        read_run(tmp_path / "nowhere.run")
    with pytest.raises(InputError, match="is a folder"):
        read_run(tmp_path)


def test_scores_one_a_line(write):
    assert list(read_scores(write("1.5\n-2e3\n\n7\n", "s.gz"))) == [1.5, -2000.0, 7.0]
    assert len(read_scores(write(""))) == 0
    with pytest.raises(InputError, match="line 2: expected one score per line; found '1 2'"):
        read_scores(write("1\n1 2\n"))
    with pytest.raises(InputError, match="line 1: expected one score per line; found 'a'"):
        read_scores(write("a"))
    for value in ("nan", "inf"):
        with pytest.raises(InputError, match="line 2: a score must be a finite number"):
            read_scores(write(f"1\n{value}\n"))


# Evaluating


def test_files_dictionaries_and_runs_are_the_same(write):
    run, qrels = write(RUN, "a.run.gz"), write(QRELS, "qrels.txt")
    expected = tr.evaluate_run(read_run(run).scores, read_qrels(qrels), "map").means
    for given_run in (run, str(run), read_run(run)):
        for given_qrels in (qrels, str(qrels), read_qrels(qrels)):
            assert tr.evaluate_run(given_run, given_qrels, "map").means == expected


def test_queries_on_one_side_only(write):
    run = {"both": {"a": 1.0}, "run": {"a": 1.0}}
    qrels = {"both": {"a": 1}, "judged": {"a": 1}, "barren": {"a": 0}}
    found = tr.evaluate_run(run, qrels, ["map", "num_q", "num_ret", "num_rel"])
    assert found.query_ids.tolist() == ["both"]
    assert found["map"] == 1
    complete = tr.evaluate_run(run, qrels, ["map", "num_q", "num_ret", "num_rel"], complete=True)
    assert complete.query_ids.tolist() == ["barren", "both", "judged"]
    assert complete["map"] == pytest.approx(1 / 3)
    assert {name: count.sum() for name, count in complete.counts.items()} == {
        "num_q": 3, "num_ret": 1, "num_rel": 2,
    }  # fmt: skip
    assert complete.absent.tolist() == [True, False, True]
    assert complete.trec_lines(per_list=True) == [
        "num_ret               \tboth\t1",
        "num_rel               \tboth\t1",
        "map                   \tboth\t1.0000",
        "num_q                 \tall\t3",
        "num_ret               \tall\t1",
        "num_rel               \tall\t2",
        "map                   \tall\t0.3333",
    ]


def test_the_usual_measures_as_trec_eval_prints_them(write):
    lines = tr.evaluate_run(write(RUN, "a.run"), write(QRELS, "q")).trec_lines()
    assert lines[:6] == [
        "runid                 \tall\tbm25",
        "num_q                 \tall\t2",
        "num_ret               \tall\t3",
        "num_rel               \tall\t2",
        "num_rel_ret           \tall\t1",
        "map                   \tall\t0.2500",
    ]
    assert [line.split()[0] for line in lines] == list(MAIN)


def test_the_table_of_a_run(write):
    shown = str(
        tr.evaluate_run(write(RUN, "a.run"), write(QRELS, "q"), ["runid", "num_ret", "P@1"])
    )
    assert shown.splitlines()[:5] == [
        "bm25: 2 lists, 3 documents",
        "measure  mean or sum  lists",
        "───────  ───────────  ─────",
        "num_ret            3      2",
        "P@1           0.5000      2",
    ]
    assert "Convention: trec (" in shown


def test_other_conventions_count_documents_not_retrieved_as_well():
    run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 1, "c": 2}}
    found = tr.evaluate_run(run, qrels, ["nDCG", "AP@1", "Recall"], convention="twinrank")
    ideal = 3 + 1 / np.log2(3)
    assert found["nDCG"] == pytest.approx(1 / np.log2(3) / ideal)
    assert found["AP@1"] == 0
    assert found["Recall"] == 0.5
    averaged = tr.evaluate_run({"q": {"a": 1, "b": 1}}, qrels, ["P@1", "nDCG"], ties="average")
    assert averaged["P@1"] == 0.5


def test_judged_tells_unjudged_documents_from_those_that_are_not_relevant():
    run = {"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}
    assert (
        tr.evaluate_run(run, {"q": {"a": 0, "b": -1, "c": 1, "e": 2}}, "Judged")["Judged"] == 0.75
    )


def test_bpref_treats_negative_grades_as_unjudged():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    for grade in (-1, -2):
        qrels = {"q": {"a": grade, "b": 1, "c": 1, "x": 0}}
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {"bpref", "map"}).evaluate(run)["q"]
        found = tr.evaluate_run(run, qrels, ["bpref", "map", "Judged@1"]).means
        assert found == pytest.approx({**theirs, "Judged@1": 1})  # as in ir_measures
        assert theirs["bpref"] == 1


def test_sums_in_runs():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    qrels = {"q": {"a": 1, "b": 2, "c": 0, "d": 2, "e": 0}}
    names = ["0.5 * P@2 + 0.5 * AP", "P@2 + 2 * Bpref", "1 * Bpref", "RR + AP(rel=1)"]
    means = tr.evaluate_run(run, qrels, names, level=2).means
    single = tr.evaluate_run(run, qrels, ["P@2", "AP", "bpref", "RR", "AP(rel=1)"], level=2).means
    assert single["bpref"] > 0
    expected = [
        0.5 * single["P@2"] + 0.5 * single["AP"],
        single["P@2"] + 2 * single["bpref"],
        single["bpref"],
        single["RR"] + single["AP(rel=1)"],
    ]
    assert [means[name] for name in names] == pytest.approx(expected)
    assert list(means)[:4] == names


@pytest.mark.parametrize("kind", [set, iter, np.array, tuple])
def test_names_may_come_in_any_iterable(kind):
    run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 1}}
    found = tr.evaluate_run(run, qrels, kind(["AP", "P@1", "RR"])).means
    assert found == {"AP": 0.5, "P@1": 0, "RR": 0.5}
    assert list(found) == ["AP", "P@1", "RR"]


@pytest.mark.parametrize(
    ("run", "qrels", "options", "complaint"),
    [
        (
            {"q": {"a": 1.0}},
            {"p": {"a": 1}},
            {},
            "no query in common. The first query of the run is 'q'",
        ),
        ({}, {"p": {"a": 1}}, {}, "no query in common. The first query of the run is none"),
        ({"q": {"a": np.nan}}, {"q": {"a": 1}}, {}, "document 'a' for query 'q' must be a finite"),
        ({"q": {"a": -np.inf}}, {"q": {"a": 1}}, {}, "must be a finite number, not -inf"),
        ({"q": {"a": 1.0}}, {"q": {"a": np.nan}}, {}, "labels are not finite"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1}}, {"level": 0}, "relevance level must be a positive"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1}}, {"measures": []}, r"Give at least one measure\.$"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1}}, {"measures": "num_q"}, "one measure besides num_q"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1}}, {"measures": "mapp"}, "Unknown measure 'mapp'. Did"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1}}, {"measures": "ndcg_cut_0"}, "must be at least 1"),
        ({"q": {"a": 1.0}}, {"q": {"a": 0}}, {"empty": "error"}, "1 of 1 lists have no relevant"),
        ("nowhere.run", {"q": {"a": 0}}, {}, "Can't read nowhere.run"),
    ],
)
def test_mistakes(run, qrels, options, complaint):
    with pytest.raises((InputError, FileError), match=complaint):
        tr.evaluate_run(run, qrels, **options)


def test_comments_and_further_columns_are_read_as_in_trec_eval_10(write):
    run = read_run(write("# made today\nq1 Q0 d1 1 2.5 tag and more\n#q1 Q0 d1 1 1 tag\n"))
    assert run == Run("tag", {"q1": {"d1": 2.5}})
    assert read_qrels(write("# judged\nq1 0 d1 2\n")) == {"q1": {"d1": 2}}


def test_a_gain_of_grade_0_counts_judged_documents_only():
    """Retrieved: judged 0, unjudged, judged 1; judged 0 and not retrieved: one more."""
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    qrels = {"q": {"a": 0, "c": 1, "d": 0}}
    found = tr.evaluate_run(run, qrels, ["nDCG(gain=[1, 3])", "DCG(gain=[1, 3])"])
    dcg = 1 + 3 / 2
    assert found["DCG(gain=[1, 3])"] == pytest.approx(dcg)
    assert found["nDCG(gain=[1, 3])"] == pytest.approx(dcg / (3 + 1 / np.log2(3) + 1 / 2))


def example(seed=0):
    """A run and judgements with unjudged documents and relevant ones that were not retrieved."""
    draw = np.random.default_rng(seed)
    docs = [f"d{i:02}" for i in range(20)]
    qrels = {f"{q}": {d: int(draw.integers(0, 3)) for d in draw.choice(docs, 9, replace=False)}
             for q in range(6)}  # fmt: skip
    run = {q: {d: float(draw.integers(0, 99)) + i / 100 for i, d in
               enumerate(draw.choice(docs, 12, replace=False))} for q in qrels}  # fmt: skip
    return run, qrels


@pytest.mark.parametrize("name", ["official", "set", "all_trec"])
def test_the_sets_of_trec_eval(name):
    run, qrels = example()
    found = tr.evaluate_run(Run("own", run), qrels, name)
    theirs = {n for n in SETS[name] if n not in ("runid", "num_q", "gm_map")}
    values = pytrec_eval.RelevanceEvaluator(qrels, theirs).evaluate(run)
    for measure in next(iter(values.values())):
        by_query = [values[q][measure] for q in sorted(run)]
        ours = found.counts.get(measure, found.values.get(measure))
        np.testing.assert_allclose(ours, by_query, rtol=1e-12, err_msg=measure)
    if name != "set":
        logs = [max(values[q]["map"], 1e-5) for q in run]
        assert found["gm_map"] == pytest.approx(np.exp(np.log(logs).mean()))
        assert not any(line.startswith("gm_map") and "\t0\t" in line
                       for line in found.trec_lines(per_list=True))  # fmt: skip


IR_NAMES = [
    "nDCG(dcg='exp-log2')@10", "nDCG@5", "nDCG(gains={0:0,1:5,2:7})@5", "nDCG(judged_only=True)@10",
    "AP(rel=2)@10", "AP(rel=2,judged_only=True)", "P(judged_only=True)@5", "R@5", "Rprec",
    "RR(judged_only=True)", "Bpref", "Bpref(rel=2)", "IPrec@0.5", "IPrec(rel=2)@0.0",
    "SetP(rel=2)", "SetR", "SetF(beta=2.0)", "SetF", "Success@1", "Judged@5",
]  # fmt: skip


def test_measures_of_ir_measures_by_name_and_as_objects():
    run, qrels = example(3)
    names = [n for n in IR_NAMES if shutil.which("perl") or "exp" not in n]  # gdeval needs Perl
    objects = [ir_measures.parse_measure(name) for name in names]
    found = tr.evaluate_run(run, qrels, objects)
    by_name = tr.evaluate_run(run, qrels, names)
    for theirs, name in zip(objects, names, strict=True):
        expected = {m.query_id: m.value for m in ir_measures.iter_calc([theirs], qrels, run)}
        values = [expected[q] for q in sorted(run)]
        tolerance = 6e-6 if "exp" in name else 0  # gdeval prints five digits
        np.testing.assert_allclose(
            found.values[str(theirs)], values, rtol=1e-9, atol=tolerance, err_msg=name
        )
        np.testing.assert_array_equal(found.values[str(theirs)], by_name.values[name])
    counted = tr.evaluate_run(run, qrels, [ir_measures.NumRelRet, ir_measures.AP])
    expected = ir_measures.calc_aggregate([ir_measures.NumRelRet], qrels, run)
    assert counted.counts["num_rel_ret"].sum() == expected[ir_measures.NumRelRet]


def test_frames_and_named_tuples_of_ir_measures_and_pyterrier():
    run, qrels = example(5)
    expected = tr.evaluate_run(run, qrels, ["ndcg_cut_10", "map"]).means
    rows = [(q, d, s) for q, by in run.items() for d, s in by.items()]
    grades = [(q, d, g) for q, by in qrels.items() for d, g in by.items()]
    runs = [
        pandas.DataFrame(rows, columns=["query_id", "doc_id", "score"]),
        polars.DataFrame(rows, schema=["qid", "docno", "score"], orient="row"),
        [ir_measures.ScoredDoc(*row) for row in rows],
    ]
    judgements = [
        pandas.DataFrame(grades, columns=["query_id", "doc_id", "relevance"]),
        polars.DataFrame(grades, schema=["qid", "docno", "label"], orient="row"),
        (ir_measures.Qrel(*row) for row in grades),
    ]
    for own_run, own_qrels in zip(runs, judgements, strict=True):
        assert tr.evaluate_run(own_run, own_qrels, ["ndcg_cut_10", "map"]).means == expected
    numbered = [pandas.DataFrame({"qid": [1, 1], "docno": [7, 8], n: [1, 0]}) for n in
                ("score", "label")]  # fmt: skip
    assert tr.evaluate_run(numbered[0], {"1": {"7": 1}}, "map")["map"] == 1
    for run_, qrels_, complaint in (
        (pandas.DataFrame({"qid": [1]}), {"1": {}}, "run has no column doc_id or docno"),
        ([(1, 2)], {"1": {}}, "run: tuple has no field query_id"),
        (7, {"1": {}}, "run must be a file, a dictionary, a frame or an iterable"),
        ({"q": {"a": 1.0}}, pandas.concat([numbered[1]] * 2), "qrels: query 1 has document 7 twic"),
        ({"q": ["a"]}, {"q": {"a": 1}}, "run: query 'q' must have a dictionary of documents, not"),
        ({"q": {"a": "x"}}, {"q": {"a": 1}}, "run: the score of document 'a' .* not 'x'"),
        ({"q": {"a": 1}}, {"q": {"a": None}}, "qrels: the relevance of document 'a' .* not None"),
    ):
        with pytest.raises(InputError, match=complaint):
            tr.evaluate_run(run_, qrels_, "map")


# Names


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("map", {"map": "AP(divisor=R)"}),
        ("ndcg", {"ndcg": "nDCG(gain=linear)"}),
        ("recip_rank", {"recip_rank": "RR"}),
        ("P_5", {"P_5": "P@5"}),
        ("P.5,10", {"P_5": "P@5", "P_10": "P@10"}),
        ("success", {f"success_{k}": f"Success@{k}" for k in (1, 5, 10)}),
        ("recall.7", {"recall_7": "Recall@7"}),
        ("map_cut_3", {"map_cut_3": "AP(divisor=R)@3"}),
        ("P", {f"P_{k}": f"P@{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)}),
        ("P@5", {}),
        ("bpref", {"bpref": "Bpref"}),
        (
            "iprec_at_recall.0.1,1",
            {
                "iprec_at_recall_0.10": "IPrec(recall=0.1)",
                "iprec_at_recall_1.00": "IPrec(recall=1.0)",
            },
        ),
        ("iprec_at_recall_1.2.3", {}),
        ("Rprec", {}),
        ("P_x", {}),
        ("ndcg_10", {}),
    ],
)
def test_trec_evals_names(name, means):
    assert trec_names(name) == means


def test_usual_cutoffs():
    cutoffs = [5, 10, 15, 20, 30, 100, 200, 500, 1000]
    assert list(trec_names("ndcg_cut")) == [f"ndcg_cut_{k}" for k in cutoffs]


def test_the_level_is_for_names_that_do_not_say():
    trec = CONVENTIONS["trec"]
    asked = ["AP", "AP(rel=1)", "P(rel=3)@5", "map", "nDCG@5", tr.measure("RR")]
    found = named_measures(asked, trec, level=2)
    assert [str(one) for one in found.measures.values()] == [
        "AP(rel=2, divisor=R)", "AP(divisor=R)", "P(rel=3)@5", "AP(rel=2, divisor=R)",
        "nDCG(gain=linear)@5", "RR",
    ]  # fmt: skip
