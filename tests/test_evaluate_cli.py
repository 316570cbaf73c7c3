"""`twinrank evaluate` with TREC runs and with files of scores."""

import csv
import gzip
import io
import json
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import pytrec_eval

import twinrank as tr


@pytest.fixture
def run(cli, monkeypatch, tmp_path):
    """twinrank evaluate in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(cli, "evaluate")


@pytest.fixture
def files(tmp_path):
    """Two runs and qrels: q8 is judged only, q99 retrieved only."""
    rng = np.random.default_rng(0)
    qrels, runs = {}, {"a.run": {}, "b.run.gz": {}}
    for q in range(1, 9):
        grades = {f"d{i}": int(rng.integers(-1, 3)) for i in rng.choice(30, 12, replace=False)}
        qrels[f"q{q}"] = grades | {"other": 0}
        for noise, run in enumerate(runs.values(), start=1):
            if q < 8:
                documents = [f"d{i}" for i in rng.choice(30, 15, replace=False)]
                scores = [grades.get(d, 0) + noise * rng.standard_normal() for d in documents]
                run[f"q{q}"] = dict(zip(documents, np.round(scores, 1).tolist(), strict=True))
    lines = [f"{q} 0 {d} {g}\n" for q, grades in qrels.items() for d, g in grades.items()]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    for (name, run), tag in zip(runs.items(), ("bm25", "m|<y>_&"), strict=True):
        run["q99"] = {"d1": 1.0}
        lines = [f"{q} Q0 {d} 1 {s} {tag}\n" for q, by in run.items() for d, s in by.items()]
        opener = gzip.open if name.endswith(".gz") else open
        with opener(tmp_path / name, "wt") as file:
            file.writelines(lines)
    return qrels, list(runs.values())


RUNS = ("--run", "a.run", "--run", "b.run.gz", "--qrels", "qrels.txt")
ONE = ("--run", "a.run", "--qrels", "qrels.txt")


def expected(files, system=0, level=1):
    """trec_eval's values by query."""
    qrels, runs = files
    measures = {"map", "ndcg_cut.10", "P.5,10", "recip_rank", "num_ret", "num_rel", "num_rel_ret"}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=level)
    return evaluator.evaluate(runs[system])


# One run


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("complete", [False, True])
def test_trec_output_is_that_of_trec_eval(run, files, level, complete):
    flags = ["-c"] if complete else []
    names = ["runid", "num_q", "num_ret", "num_rel", "num_rel_ret", "map", "recip_rank"]
    words = [word for name in [*names, "P.5,10", "ndcg_cut_10"] for word in ("-m", name)]
    code, out, _ = run(*ONE, "-o", "trec", "-q", "-l", level, *flags, *words)
    assert code == 0
    by_query, queries = expected(files, level=level), 8 if complete else 7
    shown = ["num_ret", "num_rel", "num_rel_ret", "map", "recip_rank", "P_5", "P_10", "ndcg_cut_10"]
    lines = []

    def line(name, query, value):
        value = f"{value:.0f}" if name.startswith("num") else f"{value:6.4f}"
        lines.append(f"{name:<22}\t{query}\t{value}")

    for query in sorted(by_query):
        for name in shown:
            line(name, query, by_query[query][name])
    lines.append(f"{'runid':<22}\tall\tbm25")
    line("num_q", "all", queries)
    for name in shown:
        total = sum(by[name] for by in by_query.values())
        if name == "num_rel" and complete:  # also of the query that the run does not contain
            total += sum(grade >= level for grade in files[0]["q8"].values())
        line(name, "all", total if name.startswith("num") else total / queries)
    assert out.splitlines() == lines


def test_only_what_is_asked_for_is_printed(run, files):
    _, out, _ = run(*ONE, "-m", "map", "-o", "trec")
    assert [line.split("\t")[:2] for line in out.splitlines()] == [[f"{'map':<22}", "all"]]
    _, out, _ = run(*ONE, "-o", "trec")
    assert out.splitlines()[0] == f"{'runid':<22}\tall\tbm25"
    assert out.splitlines()[1].split() == ["num_q", "all", "7"]


def test_the_table_and_the_notes(run, files):
    code, out, err = run(*ONE, "-m", "nDCG@10", "-m", "AP")
    assert code == 0
    mean = np.mean([values["map"] for values in expected(files).values()])
    assert out.splitlines()[0] == "7 lists, 105 documents"
    assert f"AP       {mean:.4f}      7" in out
    assert out.splitlines()[-1].startswith("Convention: trec (gain y; AP@k over R; ")
    assert err.splitlines() == [
        "Note: a.run: 1 query (q99) without judgements, ignored.",
        "Note: a.run: 1 query (q8) of qrels.txt absent, left out; -c counts them as 0.",
    ]
    assert "absent, counted as 0" in run(*ONE, "-m", "AP", "-c")[2]


def test_per_query_in_every_form(run, files):
    by_query = expected(files)
    _, out, _ = run(*ONE, "-m", "map", "--per-query")
    assert f"q3     {by_query['q3']['map']:.4f}" in out
    _, out, _ = run(*ONE, "-m", "map", "-m", "P_5", "-q", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["query"]: float(row["map"]) for row in rows} == pytest.approx(
        {query: values["map"] for query, values in by_query.items()}
    )
    _, out, _ = run(*ONE, "-m", "map", "-q", "-o", "json")
    read = json.loads(out)
    assert dict(zip(read["queries"], read["values"]["map"], strict=True)) == pytest.approx(
        {query: values["map"] for query, values in by_query.items()}
    )
    assert read["convention"].startswith("trec (")
    _, out, _ = run(*ONE, "-m", "map", "-o", "json")
    assert "values" not in json.loads(out)
    _, out, _ = run(*ONE, "-m", "map", "-o", "csv")
    assert out.splitlines()[0] == "measure,mean"
    for form, opening in (
        ("markdown", "| query"),
        ("latex", r"\begin{table}"),
        ("html", "<table>"),
    ):
        assert run(*ONE, "-m", "map", "-q", "-o", form)[1].startswith(opening)


def test_conventions_by_name(run, files):
    trec = run(*ONE, "-m", "nDCG@10")[1]
    letor = run(*ONE, "-m", "nDCG@10", "--convention", "all-lists", "--empty", "skip")[1]
    assert "Convention: all-lists, changed (gain 2ʸ − 1; AP@k over min(R, k);" in letor
    assert trec.splitlines()[3] != letor.splitlines()[3]


# Several runs


def test_several_runs_are_compared(run, files):
    code, out, err = run(*RUNS, "-m", "nDCG@10", "-m", "map")
    assert code == 0
    assert out.splitlines()[0].split() == ["nDCG@10", "map"]
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["a.run", "b.run.gz"]
    assert "Wilcoxon signed-rank test" in out
    assert "Convention: trec" in out
    means = [np.mean([values["map"] for values in expected(files, i).values()]) for i in (0, 1)]
    assert all(f"{mean:.4f}" in out for mean in means)
    assert "compared on" not in err


def test_a_comparison_in_every_form(run, files):
    both = (*RUNS, "-m", "nDCG@10", "-m", "map")
    read = json.loads(
        run(*both, "-o", "json", "--test", "t", "--correction", "holm", "--intervals")[1]
    )
    assert (read["test"], read["correction"], read["lists"]) == ("t", "holm", 7)
    assert set(read["means"]) == set(read["intervals"]) == {"a.run", "b.run.gz"}
    assert "systems" in json.loads(run(*both, "-o", "json", "-q")[1])
    rows = list(csv.reader(io.StringIO(run(*both, "-o", "csv")[1])))
    assert rows[0] == ["system", "measure", "mean"]
    assert [row[:2] for row in rows[1:]] == [
        [name, m] for name in ("a.run", "b.run.gz") for m in ("nDCG@10", "map")
    ]
    rows = list(csv.reader(io.StringIO(run(*both, "-o", "csv", "-q")[1])))
    assert rows[0] == ["system", "query", "nDCG@10", "map"]
    assert len(rows) == 1 + 2 * 7
    lines = run(*both, "-o", "trec")[1].splitlines()
    assert [line.split()[2] for line in lines if line.startswith("runid")] == ["bm25", "m|<y>_&"]
    assert r"\begin{tabular}{lrr}" in run(*both, "-o", "latex")[1]
    assert "| a.run |" in run(*both, "-o", "markdown")[1]
    assert "<strong>" in run(*both, "-o", "html")[1]
    per_query = run(*both, "-q")[1]
    assert "\nb.run.gz\nquery  nDCG@10     map\n" in per_query


def test_runs_are_compared_on_the_queries_that_all_have(run, files, tmp_path):
    short = "".join(f"q{i} Q0 d1 1 1.0 t\n" for i in (1, 2, 8))
    (tmp_path / "short.run").write_text(short)
    words = ("--run", "a.run", "--run", "short.run", "--qrels", "qrels.txt", "-m", "map")
    _, out, err = run(*words)
    assert "(2 lists)" in out
    assert err.splitlines()[-1] == "Note: Compared on the 2 queries that all runs have."
    _, out, err = run(*words, "-c")
    assert "(8 lists)" in out
    assert "compared on" not in err


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_plot(run, files, tmp_path, suffix):
    code, _, err = run(*RUNS, "-m", "map", "-o", "csv", "--plot", f"wins{suffix}")
    assert code == 0
    assert err.endswith(f"map drawn to wins{suffix}\n")
    assert (tmp_path / f"wins{suffix}").stat().st_size > 1000


def test_runs_of_the_same_name_show_their_paths(run, files, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.run").write_bytes((tmp_path / "a.run").read_bytes())
    _, out, _ = run("--run", "a.run", "--run", "sub/a.run", "--qrels", "qrels.txt", "-m", "map")
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["a.run", "sub/a.run"]
    assert out.splitlines()[2].split()[1:] == out.splitlines()[3].split()[1:]  # both are the best


# Scores of a data set


@pytest.fixture
def data(tmp_path):
    lines = ["2 qid:1 1:0.5 # docid = a", "0 qid:1 1:0.1 # docid = b", "1 qid:2 1:0.3 # docid = c"]
    (tmp_path / "test.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "good.txt").write_text("2\n1\n0\n")
    with gzip.open(tmp_path / "bad.gz", "wt") as file:
        file.write("1\n2\n0\n")


def test_scores_against_data(run, data):
    code, out, _ = run("test.txt", "--scores", "good.txt", "-m", "nDCG@1", "-m", "RR")
    assert code == 0
    assert "nDCG@1   1.0000      2" in out
    assert "Convention: twinrank (" in out
    _, out, _ = run("test.txt", "--scores", "good.txt", "--convention", "trec")
    assert "Convention: trec (" in out
    assert "nERR@10" in out  # the usual measures
    _, out, _ = run("test.txt", "--scores", "good.txt", "--scores", "bad.gz", "-m", "map")
    assert [line.split()[:2] for line in out.splitlines()[2:4]] == [
        ["good.txt", "1.0000•"],
        ["bad.gz", "0.7500"],
    ]


def test_scores_follow_the_order_of_the_file(run, data, tmp_path):
    lines = ["2 qid:1 1:1", "1 qid:2 1:1", "0 qid:1 1:1", "0 qid:2 1:1"]
    (tmp_path / "mixed.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "s.txt").write_text("9\n1\n3\n2\n")
    code, out, err = run("mixed.txt", "--scores", "s.txt", "-m", "RR", "-q", "-o", "csv")
    assert code == 0
    assert out.splitlines() == ["query,RR", "1,1.0", "2,0.5"]
    assert err.startswith("Note: ")


# Runs of the documents of a data set


@pytest.mark.parametrize("form", ["run", "csv", "parquet"])
def test_a_run_is_joined_by_query_and_document(run, data, tmp_path, form):
    """b ranks last, since the run lacks it; d of the run is ignored."""
    rows = [("2", "c", 0.7), ("1", "d", 0.9), ("1", "a", -3.5)]
    if form == "run":
        lines = [f"{query} Q0 {docid} 1 {score} engine\n" for query, docid, score in rows]
        (tmp_path / "production.run").write_text("".join(lines))
    else:
        frame = pl.DataFrame(rows, ["query", "docid", "score"], orient="row")
        getattr(frame, f"write_{form}")(tmp_path / f"production.{form}")
    name = f"production.{form}"
    code, out, err = run("test.txt", "--run", name, "--scores", "bad.gz", "-m", "RR", "-o", "json")
    assert code == 0
    means = {system: by["RR"] for system, by in json.loads(out)["means"].items()}
    assert means == {"bad.gz": 0.75, name: 1.0}
    assert err.splitlines() == [
        f"Note: {name} lacks 1 of 3 documents of test.txt, which rank last. It lacks 0 queries "
        f"completely.",
        f"Note: {name}: 1 document that test.txt lacks, ignored.",
    ]


def test_a_run_without_document_ids(cli, monkeypatch, tmp_path):
    """Documents are numbered within their query, as `predict` writes them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(3)} qid:{q} 1:{rng.random():.3f}" for _ in range(8) for q in range(9)]
    Path("bare.txt").write_text("\n".join(rows) + "\n")
    few = ["--set", "n_estimators=2", "--set", "ensemble_size=1"]
    assert cli("train", "bare.txt", "--trees", "--out", "r", *few)[0] == 0
    for name in ("bare.run", "bare.txt.scores"):
        form = ["--format", "run" if name == "bare.run" else "txt"]
        assert cli("predict", "r", "bare.txt", "-o", name, *form)[0] == 0
    systems = ["--run", "bare.run", "--scores", "bare.txt.scores"]
    code, out, err = cli("evaluate", "bare.txt", *systems, "-m", "nDCG", "-o", "json")
    assert code == 0
    assert "bare.txt has no document ids" in err
    means = json.loads(out)["means"]
    assert means["bare.run"] == means["bare.txt.scores"]


def test_a_table_is_a_run_for_qrels_too(run, files, tmp_path):
    scores = files[1][0]
    rows = [(query, docid, score) for query, by in scores.items() for docid, score in by.items()]
    pl.DataFrame(rows, ["topic_id", "docno", "score"], orient="row").write_csv(tmp_path / "a.csv")
    words = ["--qrels", "qrels.txt", "-m", "map", "-o", "json", "--quiet"]
    as_run, as_table = (json.loads(run("--run", name, *words)[1]) for name in ("a.run", "a.csv"))
    assert as_table["means"] == as_run["means"]


# Mistakes: one line on stderr and exit code 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Nothing to evaluate: give MODEL DATA, DATA --scores FILE, DATA --run"),
        (["--run", "a.run"], "--run needs --qrels"),
        ([*ONE, "--scores", "good.txt"], "--scores needs DATA"),
        (["plain.txt", "--run", "a.run"], "a.run has no document of plain.txt, whose first is '1'"),
        (["same.txt", "--run", "a.run"], "same.txt has a document id twice in a query"),
        (["test.txt", "--run", "a.run"], "a.run has no document of test.txt, whose first is 'a'"),
        (["test.txt", "--run", "no_ids.csv"], "no_ids.csv has no column of document ids"),
        (["test.txt", "--run", "twice.csv"], "twice.csv: query 1 has document 'a' twice"),
        (["--scores", "good.txt"], "--scores needs DATA"),
        (["test.txt", "--scores", "good.txt", "--qrels", "x"], "--qrels needs --run"),
        (["--run", "none.run", "--qrels", "qrels.txt"], "Can't read none.run: No such file"),
        (["--run", "a.run", "--qrels", "none"], "Can't read none: No such file"),
        (["--run", ".", "--qrels", "qrels.txt"], "is a folder, not a file"),
        (
            ["--run", "garbage", "--qrels", "qrels.txt"],
            "garbage, line 1: a run has at least six columns",
        ),
        (["--run", "empty", "--qrels", "qrels.txt"], "empty has no retrieved documents"),
        (["--run", "a.run", "--qrels", "empty"], "empty has no judgements"),
        (["--run", "a.run", "--qrels", "a.run"], "a.run, line 1: qrels have four columns"),
        (["--run", "cut.gz", "--qrels", "qrels.txt"], "cut.gz is truncated"),
        (
            ["--run", "other.run", "--qrels", "qrels.txt"],
            "no query in common. The first query of the run is '7'",
        ),
        (["--run", "twice.run", "--qrels", "qrels.txt"], "twice.run, line 2: query '"),
        (["--run", "a.run", "--run", "./a.run", "--qrels", "qrels.txt"], "a.run appears twice"),
        (["--run", "a.run", "--run", "other.run", "--qrels", "qrels.txt"], "No judged query is in"),
        ([*ONE, "-m", "ndgc@10"], "Unknown measure 'ndgc'. Did you mean 'nDCG'"),
        ([*RUNS, "-m", "ndcg_ct_10"], "Unknown measure 'ndcg_ct_10'. Did you mean 'ndcg_cut'"),
        ([*ONE, "-m", "nDGC@ten"], "Unknown measure 'nDGC'. Did you mean 'nDCG'"),
        ([*ONE, "-m", "num_q"], "Give at least one measure besides num_q"),
        ([*ONE, "--convention", "treck"], "Unknown --convention 'treck'. Did you mean 'trec'?"),
        ([*ONE, "--ties", "never"], "Unknown --ties 'never'"),
        ([*ONE, "--empty", "nan"], "Unknown --empty 'nan'"),
        ([*ONE, "-l", "0"], "The relevance level must be a positive number"),
        ([*ONE, "-o", "xml"], "Unknown output 'xml'"),
        ([*ONE, "--plot", "a.png"], "--plot needs two systems, or one calibrated model"),
        (
            [*RUNS, "--run", "c.run", "--plot", "a.png"],
            "--plot needs two systems, or one calibrated model",
        ),
        ([*RUNS, "--plot", "a.gif"], "Can't draw to a.gif. Choose a name with .png"),
        ([*RUNS, "--plot", "no/a.png"], "Can't write no/a.png: No such file or directory"),
        ([*RUNS, "--test", "z"], "Unknown test 'z'"),
        ([*RUNS, "--significance", "2"], "The significance level must be between 0 and 1"),
        (["test.txt", "--scores", "qrels.txt"], "qrels.txt, line 1: expected one score per line"),
        (["test.txt", "--scores", "empty"], "empty has 0 scores, but DATA has 3 documents"),
        (["test.txt", "--scores", "nan.txt"], "nan.txt, line 2: a score must be a finite number"),
        (["plain.txt", "--scores", "one.txt", "--ties", "docid"], "plain.txt has no document ids"),
        (["none.txt", "--scores", "good.txt"], "none.txt"),
    ],
)
def test_mistakes(run, files, data, tmp_path, words, complaint):
    (tmp_path / "garbage").write_bytes(bytes(range(128, 256)) * 20)
    (tmp_path / "empty").touch()
    (tmp_path / "cut.gz").write_bytes((tmp_path / "b.run.gz").read_bytes()[:200])
    (tmp_path / "other.run").write_text("7 Q0 d1 1 0.5 t\n")
    (tmp_path / "plain.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.4\n")
    (tmp_path / "same.txt").write_text("1 qid:1 1:0.5 # a\n0 qid:1 1:0.4 # a\n")
    (tmp_path / "no_ids.csv").write_text("qid,score\n1,0.5\n")
    (tmp_path / "twice.csv").write_text("qid,docid,score\n1,a,0.5\n1,a,0.4\n")
    (tmp_path / "twice.run").write_text("q1 Q0 d1 1 0.5 t\nq1 Q0 d1 2 0.4 t\n")
    (tmp_path / "nan.txt").write_text("1\nnan\n2\n")
    (tmp_path / "plain.txt").write_text("1 qid:1 1:0.5\n")
    (tmp_path / "one.txt").write_text("1\n")
    code, _, err = run(*words)
    assert code == 2
    assert complaint in err
    lines = err.splitlines()
    if "no/a.png" in words:  # known only when all else is done
        lines = [line for line in lines if not line.startswith("Note: ")]
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")


# In a process of its own


def test_the_command_line_and_python_agree(run, files):
    read = json.loads(run(*ONE, "-o", "json")[1])
    result = tr.evaluate_run("a.run", "qrels.txt")
    assert read == result.to_json(per_list=False)
    assert read["counts"]["num_q"] == 7
    assert read["run"] == "bm25"
