"""`twinrank evaluate MODEL… DATA`: models measured and compared on one data set."""

import json
import re
import sys

import numpy as np
import pytest

import twinrank as tr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two saved models, a run's folder that holds the first, and test data as LETOR text."""
    folder = tmp_path_factory.mktemp("models")
    train, test = tr.synthetic_web_search(queries=20).split(0.5)
    for name, objective in (("ap", "AP"), ("ndcg", "nDCG")):
        ranker = tr.Ranker(objective, architecture="Linear", epochs=2, random_state=len(name))
        ranker.fit(train).save(folder / name)
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text("{}")
    tr.Ranker.load(folder / "ap").save(folder / "run" / "model")
    test.save(folder / "test.txt")
    return folder


@pytest.fixture
def cli(cli, monkeypatch, folder, tmp_path):
    """The command line among the models, with a cache of its own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))
    return cli


def test_a_model_is_measured_as_its_scores_are(cli, folder, tmp_path):
    options = ["-m", "nDCG@5", "-m", "AP(rel=2)", "--convention", "letor", "-q", "-o", "json"]
    code, out, err = cli("evaluate", "ap", "test.txt", *options)
    assert (code, err) == (0, "")
    shown = json.loads(out)
    test = tr.load(folder / "test.txt")
    scores = tr.Ranker.load(folder / "ap").predict(test)
    expected = tr.evaluate(
        scores, test.y, test.lists, ["nDCG@5", "AP(rel=2)"], convention="letor",
        query_ids=test.query_ids,
    )  # fmt: skip
    assert shown == json.loads(json.dumps(expected.to_json(True)))
    assert cli("predict", "ap", "test.txt", "-o", tmp_path / "ap.txt")[0] == 0
    assert cli("evaluate", "test.txt", "--scores", tmp_path / "ap.txt", *options)[1] == out


def test_the_folder_of_a_run_stands_for_its_model(cli):
    assert cli("evaluate", "run", "test.txt", "-q")[1] == cli("evaluate", "ap", "test.txt", "-q")[1]


def test_models_and_scores_are_compared(cli, folder, tmp_path):
    test = tr.load(folder / "test.txt")
    scores = test.in_source_order(np.asarray(test.y, float))
    (tmp_path / "perfect.txt").write_text("".join(f"{s}\n" for s in scores))
    words = ["evaluate", "ap", "ndcg", "test.txt", "--scores", tmp_path / "perfect.txt"]
    code, out, err = cli(
        *words, "-m", "nDCG@10", "-o", "json", "-q", "--test", "t", "--correction", "holm"
    )
    assert (code, err) == (0, "")
    systems = json.loads(out)["systems"]
    assert list(systems) == ["ap", "ndcg", "perfect.txt"]
    alone = json.loads(cli("evaluate", "ndcg", "test.txt", "-m", "nDCG@10", "-o", "json", "-q")[1])
    assert systems["ndcg"] == alone
    assert systems["perfect.txt"] != alone
    code, out, _ = cli(*words)
    assert code == 0
    assert all(name in out for name in ("ap", "ndcg", "perfect.txt"))


def test_two_models_are_drawn_against_each_other(cli, tmp_path):
    words = ["evaluate", "ap", "ndcg", "test.txt", "-m", "AP", "--plot", tmp_path / "wins.svg"]
    code, _, err = cli(*words)
    assert (code, err) == (0, f"AP drawn to {tmp_path / 'wins.svg'}\n")
    assert "<svg" in (tmp_path / "wins.svg").read_text()


def test_a_table_is_no_wider_than_the_terminal(cli, monkeypatch):
    words = ["evaluate", "ap", "ndcg", "test.txt"]
    wide = cli(*words)[1]
    assert max(map(len, wide.splitlines())) > 70  # a pipe gets whole lines
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    narrow = re.sub(r"\x1b\[\d*m", "", cli(*words)[1])
    assert max(map(len, narrow.splitlines())) <= 70


def test_models_of_the_same_name_are_shown_with_their_folders(cli):
    code, out, _ = cli("evaluate", "run/model", "run/../run/model", "test.txt")
    assert code == 0
    assert "run/model" in out
    assert "run/../run/model" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ap"], "Nothing to evaluate on ap: give MODEL DATA"),
        (["ap", "ndcg"], "ndcg is a model's folder; DATA comes last"),
        (["test.txt", "run"], "run is a model's folder; DATA comes last"),
        (["ap", "ap", "test.txt"], "ap appears twice"),
        (["none", "test.txt"], "none is not a model"),
        (["test.txt", "test.txt"], "test.txt is not a model"),
        (["ap", "none.txt"], "none.txt"),
        (["ap", "test.txt", "--qrels", "q"], "--qrels needs --run"),
        (["ap", "test.txt", "--run", "r", "--qrels", "q"], "--qrels needs --run without DATA"),
        (["ap", "test.txt", "--plot", "a.png"], "and ap is not calibrated"),
        (["ap", "test.txt", "-m", "nDGC"], "Unknown measure 'nDGC'"),
        (
            ["ap", "narrow.txt"],
            "but the model has 136. If the last features are absent throughout, add --feat",
        ),
        (["ap", "wide.txt"], "137 features"),
    ],
)
def test_mistakes(cli, folder, words, complaint):
    (folder / "narrow.txt").write_text("1 qid:1 1:0.5\n0 qid:1 2:0.5\n")
    (folder / "wide.txt").write_text("1 qid:1 1:0.5\n0 qid:1 137:0.5\n")
    code, out, err = cli("evaluate", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_the_features_option_adds_absent_features(cli, folder):
    (folder / "narrow.txt").write_text("1 qid:1 1:0.5\n0 qid:1 2:0.5\n")
    code, out, _ = cli("evaluate", "ap", "narrow.txt", "--features", "136")
    assert code == 0
    assert "nDCG" in out


def test_the_error_for_an_unfinished_run_shows_how_to_finish_it(cli, folder):
    (folder / "cut").mkdir(exist_ok=True)
    (folder / "cut" / "run.json").write_text('{"version": 2, "source": {"data": "x"}}')
    code, _, err = cli("evaluate", "cut", "test.txt")
    assert code == 2
    assert "twinrank train --resume cut" in err


def test_trees_are_models_like_nets(cli, folder, tmp_path):
    train = tr.synthetic_web_search(queries=10)
    trees = tr.BoostedRanker(n_estimators=3, n_jobs=1).fit(train)
    trees.save(tmp_path / "trees")
    code, out, _ = cli("evaluate", "ap", tmp_path / "trees", "test.txt", "-m", "AP")
    assert code == 0
    assert "trees" in out
    assert cli("predict", tmp_path / "trees", "test.txt", "-o", tmp_path / "scores.txt")[0] == 0
    scores = np.loadtxt(tmp_path / "scores.txt", np.float32)
    assert np.array_equal(scores, trees.predict(tr.load(folder / "test.txt")))


def test_names_that_only_runs_have(cli):
    code, _, err = cli("evaluate", "ap", "test.txt", "-m", "nDCG(judged_only=True)@5")
    assert code == 2
    assert "judged_only is for runs with --qrels" in err
    code, out, err = cli("evaluate", "ap", "test.txt", "-m", "num_q", "-m", "nDCG@5")
    assert code == 0
    assert "num_q is for runs with --qrels and left out" in err
    assert "num_q" not in out
    assert cli("evaluate", "ap", "test.txt", "-m", "num_q")[0] == 2
