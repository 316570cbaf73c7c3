"""`twinrank inspect` and `twinrank convert` as a user meets them."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from rankings import assert_same, quietly
from twinrank import Dataset, load

LETOR = """\
0 qid:7 1:0.5 2:1 # docid = a
2 qid:9 1:1.5 2:1 # docid = b
1 qid:7 1:2.5 2:1
0 qid:8 1:3.5 2:1
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(cli):
    """The command line, as the tests here call it."""
    return cli


@pytest.fixture
def letor(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(LETOR)
    return path


# inspect


def test_inspect_tells_what_is_there(run, letor):
    code, out, err = run("inspect", "train.txt")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "train.txt",
        "queries              3",
        "documents            4",
        "features             2",
        "memory               32 bytes for the features, as float32",
        "documents per query  1 to 2, mean 1.3, median 1, middle half 1 to 2",
        "labels               0: 50.0%, 1: 25.0%, 2: 25.0%",
        "nothing relevant     1 query (33.3%)",
        "feature values       0.5 to 3.5",
        "constant features    1 of 2: 2",
        "missing values       none",
        "infinite values      none",
        "document ids         such as a",
        "note                 The rows of 1 query were scattered; they are now grouped.",
    ]


def test_inspect_keeps_and_counts_what_training_would_refuse(run, tmp_path):
    (tmp_path / "odd.txt").write_text("-1 qid:1 1:nan 2:inf\n1 qid:1 1:1 2:1e99\n")
    code, out, _ = run("inspect", "odd.txt")
    assert code == 0
    assert "unjudged             1 document (50.0%)" in out
    assert "missing values       1, in 1 feature" in out
    assert "infinite values      2" in out
    code, _, err = run("inspect", "odd.txt", "--non-finite", "error")
    assert code == 2
    assert "odd.txt, line 1, column 10: '1:nan' is not a finite float32; " in err
    assert "--non-finite keep or --non-finite clip" in err


def test_inspect_as_json(run, letor):
    code, out, err = run("inspect", "train.txt", "--json")
    facts = json.loads(out, parse_constant=pytest.fail)
    assert (code, err) == (0, "")
    assert (facts["queries"], facts["documents"], facts["features"]) == (3, 4, 2)
    assert facts["labels"] == {"0": 0.5, "1": 0.25, "2": 0.25}
    assert facts["notes"] == ["The rows of 1 query were scattered; they are now grouped."]


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_inspect_draws(run, letor, tmp_path, suffix, magic):
    code, out, err = run("inspect", "train.txt", "--plot", f"picture{suffix}")
    assert code == 0
    assert out.startswith("train.txt\n")
    assert err == f"Drawn to picture{suffix}\n"
    assert (tmp_path / f"picture{suffix}").read_bytes().startswith(magic)


def test_a_picture_of_odd_data(run, tmp_path):
    X = np.array([[np.nan, 1, 0], [np.inf, 2, 0]] * 40)
    odd = Dataset.from_arrays(X, np.linspace(0, 1, 80), group=[79, 1], non_finite="keep")
    odd.save(tmp_path / "odd")
    assert run("inspect", "odd", "--plot", "odd.svg")[0] == 0
    one = Dataset.from_arrays([[0.0]], [0], group=[1])
    one.save(tmp_path / "one")
    assert run("inspect", "one", "--plot", "one.svg")[0] == 0


def test_inspect_without_data_shows_the_synthetic(run):
    code, out, _ = run("inspect")
    assert code == 0
    assert out.startswith("synthetic web search")
    assert "features             136" in out


def test_columns_on_the_command_line(run, tmp_path):
    (tmp_path / "d.csv").write_text("s,relevance,label,x,t,id\n1,2,0,5,red,9\n1,0,1,6,blue,8\n")
    choices = ["--query", "s", "--docid", "t", "--ignore", "id"]
    code, out, _ = run("inspect", "d.csv", *choices, "--label", "relevance")
    assert code == 0
    assert "labels               0: 50.0%, 2: 50.0%" in out
    assert "feature names        label, x" in out
    assert out.endswith(
        "note                 Column 'label' looks like a label but is used as a feature. "
        "--ignore label leaves it out.\n"
    )
    code, out, _ = run("inspect", "d.csv", *choices, "--ignore", "label", "--no-label")
    assert code == 0
    assert "unjudged             2 documents (100.0%)" in out
    code, out, _ = run("inspect", "d.csv", "--query", "s", "--label", "label", "--features", "x")
    assert code == 0
    assert "feature names        x\n" in out


def test_notes_about_columns_name_options(run, tmp_path):
    (tmp_path / "d.csv").write_text("qid,label,weight,rank,n\n1,2,1,1,16777217\n1,0,1,2,3\n")
    code, out, err = run("inspect", "d.csv")
    assert (code, err) == (0, "")
    assert [line[21:] for line in out.splitlines() if line.startswith("note ")] == [
        "Column 'weight' is used as a feature. If it holds weights, pass "
        "--weight weight; --ignore weight leaves it out.",
        "Column 'rank' is used as a feature. If it is the result of an earlier ranking and unknown "
        "when documents are ranked, leave it out: --ignore rank.",
        "Feature 'n' has whole numbers beyond 2^24, which lose digits as float32.",
    ]
    code, _, err = run("convert", "d.csv", "e.txt", "--weight", "weight", "--ignore", "rank")
    note = "Note: d.csv: Feature 'n' has whole numbers beyond 2^24, which lose digits as float32.\n"
    assert err.startswith(note)


def test_the_number_of_features_on_the_command_line(run, letor):
    assert "features             9\n" in run("inspect", "train.txt", "--features", "9")[1]
    code, _, err = run("inspect", "train.txt", "--features", "1")
    assert code == 2
    assert "--features" in err
    code, _, err = run("inspect", "train.txt", "--features", "bm25")
    assert (code, err) == (
        2,
        "Error: train.txt has no named columns; --features must be a number.\n",
    )


# convert


def test_convert_there_and_back(run, letor, tmp_path):
    code, out, err = run("convert", "train.txt", "a.csv")
    assert (code, out) == (0, "Wrote a.csv: 3 queries, 4 documents, 2 features\n")
    assert err == "Note: train.txt: The rows of 1 query were scattered; they are now grouped.\n"
    chain = ["a.csv", "b.tsv.gz", "c.parquet", "d", "e.feather", "f.svm.zst", "g.txt"]
    for source, target in pairwise(chain):
        code, _, err = run("convert", source, target)
        assert (code, err) == (0, "")
    first = quietly("train.txt")
    for name in chain:
        assert_same(first, load(name))
    assert (tmp_path / "g.txt").read_text().splitlines()[1] == "1 qid:7 1:2.5 2:1"


def test_convert_keeps_what_is_odd(run, tmp_path):
    (tmp_path / "odd.txt").write_text("-1 qid:007 1:nan 2:-0\n0.5 qid:007 1:inf 2:1e-45 #\n")
    assert run("convert", "odd.txt", "odd.parquet")[0] == 0
    assert run("convert", "odd.parquet", "again.txt")[0] == 0
    assert_same(quietly("odd.txt"), quietly("again.txt"))
    code, _, err = run("convert", "odd.txt", "kept.csv", "--unjudged", "drop")
    assert code == 0
    assert "Note: odd.txt: 1 document without a judgement (label −1) was dropped.\n" in err


def test_convert_replaces_only_when_told(run, letor, tmp_path):
    (tmp_path / "a.csv").write_text("precious")
    code, _, err = run("convert", "train.txt", "a.csv")
    assert (code, err) == (
        2,
        "Error: a.csv exists; add --overwrite to replace it, or choose another name.\n",
    )
    assert (tmp_path / "a.csv").read_text() == "precious"
    assert run("convert", "train.txt", "a.csv", "--overwrite")[0] == 0
    assert load("a.csv").documents == 4
    for _ in range(2):
        assert run("convert", "a.csv", "folder", "--overwrite")[0] == 0
    assert run("convert", "folder", "folder", "--overwrite")[0] == 0
    assert run("convert", "a.csv", "a.csv", "--overwrite")[0] == 0
    assert_same(load("a.csv"), load("folder"))
    (tmp_path / "mine").mkdir()
    code, _, err = run("convert", "train.txt", "mine", "--overwrite")
    assert (code, err) == (2, "Error: mine exists and is not TwinRank data; choose another name.\n")


# Mistakes


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["inspect", "nowhere.txt"], "Can't read nowhere.txt: No such file or directory"),
        (["inspect", "empty"], "is a folder without 'manifest.json'"),
        (["inspect", "."], "bad.csv: no column looks like the query"),
        (["inspect", "bad.txt"], "bad.txt, line 1, column 1: expected a label"),
        (
            ["inspect", "bad.csv"],
            "looks like the query. Its columns: 'a', 'b'. Name it: --query ….\n",
        ),
        (["inspect", "two.csv"], "'rel', 'label' could each be the label; choose one: --label"),
        (
            ["inspect", "two.csv", "--label", "rl"],
            "two.csv: no column 'rl' for --label. Did you mean 'rel'?\n",
        ),
        (["inspect", "none.csv"], "Name it: --label …; if there are no labels: --no-label.\n"),
        (
            ["inspect", "text.csv"],
            "column 'c' contains 'red' in row 2, which is text, not a number. Convert the column "
            "to numbers or to a categorical type, or leave it out: --ignore c.\n",
        ),
        (
            ["inspect", "train.txt", "--unjudged", "kep"],
            "Error: Unknown --unjudged 'kep'. Did you mean 'keep'?\n",
        ),
        (
            ["inspect", "train.txt", "--plot", "x.gif"],
            "Can't draw to x.gif. Choose a name with .png",
        ),
        (["inspect", "train.txt", "--plot", "no/x.png"], "Can't write no/x.png: No such file"),
        (
            ["convert", "train.txt", "x.gif"],
            "Can't write x.gif: '.gif' is not a known format; choose",
        ),
        (
            ["convert", "train.txt", "no/x.csv"],
            "Can't write no/x.csv: the folder no does not exist",
        ),
        (
            ["convert", "blank.csv", "x.txt"],
            "query id 'a b' is empty, too long, or contains blanks or '#'",
        ),
        (["convert", "train.txt"], "Missing argument"),
        (
            ["inspect", "train.txt", "--colour"],
            "Error: No such option: --colour (Possible options: --curve). See twinrank",
        ),
        (["inspekt"], "Did you mean 'inspect'? See twinrank --help.\n"),
        (["train", "--epochs", "0"], "See twinrank train --help.\n"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(run, letor, tmp_path, words, complaint):
    for name, text in (
        ("bad.txt", "one qid:1 1:2\n"),
        ("bad.csv", "a,b\n1,2\n"),
        ("two.csv", "qid,rel,label,a\n1,2,3,4\n"),
        ("none.csv", "qid,a\n1,2\n"),
        ("text.csv", "qid,label,c\n1,2,7\n1,0,red\n"),
        ("blank.csv", "qid,label,c\na b,2,1\n"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.iterdir())
    code, _, err = run(*words)
    assert code == 2
    assert complaint in err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "cache"] == before


def test_a_cache_that_cannot_be_written(run, letor, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("inspect", "train.txt", "--cache-dir", "file/cache")
    assert code == 2
    assert err == (
        f"Error: Can't write {tmp_path / 'file' / 'cache'}: Not a directory. Choose another cache "
        f"folder (--cache-dir or TWINRANK_CACHE_DIR), or pass --no-cache.\n"
    )
    assert run("inspect", "train.txt", "--cache-dir", "file/cache", "--no-cache")[0] == 0


def test_the_cache_is_where_it_was_asked_for(run, letor, tmp_path):
    assert run("inspect", "train.txt", "--no-cache")[0] == 0
    assert not (tmp_path / "cache").exists()
    assert run("inspect", "train.txt", "--cache-dir", "elsewhere")[0] == 0
    assert not (tmp_path / "cache").exists()
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
    assert run("inspect", "train.txt")[0] == 0
    assert len(list((tmp_path / "cache").iterdir())) == 1


# In a process of its own


def test_a_process_of_its_own(letor):
    def twinrank(*words, **environment):
        return subprocess.run(
            [sys.executable, "-m", "twinrank", *words],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environment},
        )

    shown = twinrank("inspect", "train.txt", FORCE_COLOR="1", COLUMNS="60")
    assert shown.returncode == 0
    assert "\x1b[1mtrain.txt\x1b[0m" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) < 100
    refused = twinrank("inspect", "nowhere.txt")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr == "Error: Can't read nowhere.txt: No such file or directory.\n"
