"""Output of commands: --json and --quiet on all of them, pipes, progress as JSON, exit codes."""

import io
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import typer
from sklearn.base import clone

import twinrank as tr
from twinrank.cli import EXIT_CODES, app
from twinrank.cli.evaluation_report import attributions_of
from twinrank.data.dataset import with_features
from twinrank.learning.training.console import JsonLines

COMMANDS = typer.main.get_command(app).commands


def test_every_option_and_argument_has_help():
    for name, command in COMMANDS.items():
        assert "Parameters" not in command.help, name
        for option in command.params:
            assert option.help, (name, option.name)
            assert "----" not in option.help, (name, option.name)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data and a model of trees."""
    folder = tmp_path_factory.mktemp("place")
    data = tr.synthetic_web_search(queries=12)
    data.save(folder / "data.txt")
    settings = {"n_estimators": 2, "ensemble_size": 1, "n_jobs": 1, "transforms": "none"}
    ranker = tr.BoostedRanker(**settings).fit(data)
    ranker.save(folder / "model")
    ranker.calibrate(data).save(folder / "calibrated")
    with_features(data, np.c_[data.X, ranker.predict(data)], None).save(folder / "log.txt")
    return folder


def pipe(monkeypatch, content):
    """Put bytes on standard input."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_every_command_has_the_same_options():
    for name, command in COMMANDS.items():
        options = {option.name: option for option in command.params}
        assert options["as_json"].opts == ["--json"], name
        assert options["quiet"].opts == ["--quiet"], name
        if "output" in options:
            assert options["output"].opts == ["-o", "--output"], name


def words_of(place, tmp_path):
    """A short call of each command."""
    data, model, study = place / "data.txt", place / "model", ["--jobs", 1]
    small = ["--set", "n_estimators=2", "--set", "n_jobs=1"]
    return {
        "calibrate": [shutil.copytree(model, tmp_path / "calibrated"), data],
        "compare": [data, "--cut", 1, "--methods", "LambdaMART", *study, "--set", "n_estimators=2"],
        "convert": [data, tmp_path / "copy.csv"],
        "evaluate": [model, data],
        "export": [model, "-o", tmp_path / "model.txt"],
        "inspect": [data],
        "measures": ["nDCG"],
        "predict": [model, data, "-o", tmp_path / "scores.txt"],
        "reproduce": ["--figure", 1],
        "simulate-clicks": [data, "--out", tmp_path / "clicks.csv", "--impressions", 10],
        "threshold": [place / "calibrated", data, "--precision", 0.5],
        "train": [data, "--trees", *small],
        "tune": [data, "--model", "trees", "--trials", 1, "--rounds", 2, *study],
        "verify": [model, place / "log.txt", "--score", 137],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_all_there_is_on_standard_output(place, tmp_path, cli, monkeypatch, name):
    if name == "tune":
        pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("twinrank.learning.training.run_folder.draw_history", lambda *_: None)
    monkeypatch.setattr("twinrank.experiments.report.report_page.write_report", lambda *_: None)
    figure = "twinrank.experiments.paper.paper_report.write_figure_1"
    monkeypatch.setattr(figure, lambda _: ["figure-1.png", "figure-1.svg"])
    monkeypatch.setattr("twinrank.experiments.tuning.tuning_results.draw_plots", lambda *_: [])
    code, out, err = cli(name, *words_of(place, tmp_path)[name], "--json", "--quiet")
    assert (code, err) == (0, "")
    assert json.loads(out)


def test_output_format_and_quiet(place, tmp_path, cli):
    inspect = cli("inspect", place / "data.txt", "-o", "json")
    assert inspect == cli("inspect", place / "data.txt", "--json")
    assert json.loads(cli("evaluate", place / "model", place / "data.txt", "--json")[1])["means"]
    code, _, err = cli("inspect", place / "data.txt", "-o", "yaml")
    assert code == 2
    assert "Unknown output 'yaml'. Choose from text, json." in err
    predict = ["predict", place / "model", place / "data.txt", "-o", tmp_path / "s.txt", "--quiet"]
    assert cli(*predict) == (0, "", "")
    code, _, err = cli(*predict)
    assert (code, err.count("\n")) == (2, 1)
    assert "s.txt exists; add --overwrite to replace it" in err
    assert cli(*predict, "--overwrite")[0] == 0
    assert "pass --format, or write to - (standard output)." in cli(*predict[:3], "-o", "json")[2]


def test_pipes(place, tmp_path, cli, monkeypatch):
    model, data = place / "model", tr.load(place / "data.txt")
    expected = tr.load_model(model).predict(data)
    data.save(tmp_path / "data.parquet")
    frame = pl.read_parquet(tmp_path / "data.parquet")
    forms = {
        "letor": (place / "data.txt").read_bytes(),
        "csv": frame.write_csv().encode(),
        "tsv": frame.write_csv(separator="\t").encode(),
        "parquet": (tmp_path / "data.parquet").read_bytes(),
    }
    for content in forms.values():
        pipe(monkeypatch, content)
        code, out, _ = cli("predict", model, "-", "-o", "-")
        assert code == 0
        np.testing.assert_array_equal(np.array(out.split(), np.float32), expected)
    pipe(monkeypatch, forms["letor"])
    lines = cli("predict", model, "-", "-o", "-", "--json")[1].splitlines()
    first = json.loads(lines[0])
    assert len(lines) == data.queries
    assert first["qid"] == data.query_ids[0]
    scores = [document["score"] for document in first["documents"]]
    assert scores == sorted(expected[: data.lists.sizes[0]].tolist(), reverse=True)
    pipe(monkeypatch, forms["csv"])
    out = cli("predict", model, "-", "-o", "-", "--format", "csv")[1]
    np.testing.assert_allclose(pl.read_csv(io.StringIO(out))["score"], expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08", "Standard input is compressed"),
        (b"1 qid:1 1:1\n", "standard input has 1 features, but the model has 136"),
        (b"1 qid:1 1:x\n", "standard input"),
        (b"", "standard input"),
    ],
)
def test_bad_standard_input(place, cli, monkeypatch, content, message):
    pipe(monkeypatch, content)
    code, out, err = cli("predict", place / "model", "-", "-o", "-")
    assert (code, out) == (2, "")
    assert message in err
    assert "twinrank-" not in err  # the temporary file


def test_train_logs_json_lines(place, tmp_path, cli, monkeypatch):
    monkeypatch.setattr("twinrank.learning.training.run_folder.draw_history", lambda *_: None)
    words = ["train", place / "data.txt", "--trees", "--epochs", 3, "--out", tmp_path / "run"]
    code, out, err = cli(*words, "--log", "json")
    assert code == 0
    assert "Model in" in err
    assert [json.loads(line) for line in out.splitlines()] == tr.load_model(
        tmp_path / "run"
    ).history_
    assert "remove --json" in cli(*words, "--log", "json", "--json")[2]
    assert "Unknown log 'xml'" in cli(*words, "--log", "xml")[2]


def test_a_line_waits_for_a_late_evaluation(place, capsys):
    data = tr.load(place / "data.txt")
    ranker = tr.BoostedRanker(n_estimators=3, validate_every=2, ensemble_size=1, n_jobs=1)
    ranker.fit(data, eval_set=data, callbacks=[JsonLines().for_ranker("trees")])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"ranker": "trees", **record} for record in ranker.history_]
    assert "validation" in lines[-1]


def test_help_states_the_exit_codes(cli):
    code, out, _ = cli("--help")
    text = " ".join(out.split())
    assert code == 0
    for number, meaning in EXIT_CODES.items():
        assert f"{number}: {meaning}" in text


def test_evaluate_writes_a_report(place, tmp_path, cli, monkeypatch):
    monkeypatch.setattr(
        "twinrank.experiments.report.report_page.draw_lines", lambda *_, **__: "<svg></svg>"
    )
    shutil.copytree(place / "model", tmp_path / "other")
    data = place / "data.txt"
    words = ["evaluate", place / "model", tmp_path / "other", data, "-m", "nDCG@5", "--quiet"]
    (tmp_path / "scores.txt").write_text("1\n" * tr.load(data).documents)

    def explored(*more):
        code, _, err = cli(*words, *more, "--report", tmp_path / "r.html", "--queries", 3)
        assert (code, err) == (0, "")
        page = (tmp_path / "r.html").read_text("utf-8")
        found = re.search(r'id="query-data">(.*?)</script>', page)[1]
        return json.loads(found)

    same = explored()
    assert same["methods"] == ["model", "other"]
    assert same["attributed"]
    assert len(same["queries"]) == 3
    assert all(pair["0,1"] == [] for pair in (query["pairs"] for query in same["queries"]))
    mixed = explored("--scores", tmp_path / "scores.txt")
    assert not mixed["attributed"]  # a file of scores has no model
    assert any(query["pairs"]["0,2"] for query in mixed["queries"])
    report = ["--report", tmp_path / "r.html"]
    assert "needs two or more" in cli("evaluate", place / "model", data, *report)[2]
    assert "Choose a name with .html" in cli(*words, "--report", tmp_path / "r.txt")[2]


def test_attributions_of_a_blend_add_up():
    data = tr.synthetic_web_search(queries=8)
    trees = tr.BoostedRanker(n_estimators=2, ensemble_size=1, n_jobs=1)
    blend = tr.Blend([trees, clone(trees).set_params(num_leaves=4)]).fit(data)
    values = attributions_of(blend, data).sum(axis=1)
    gaps = blend.predict(data) - values
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-5)  # the common base value


def test_attributions_are_those_of_the_datas_features():
    data = tr.synthetic_web_search(queries=8)
    names = data.feature_names
    frame = pd.DataFrame(np.array(data.X), columns=names)
    trees = tr.BoostedRanker(n_estimators=5, ensemble_size=1, n_jobs=1)
    few = trees.fit(frame[list(names[20:3:-1])], data.y, qid=data.qid)
    found = attributions_of(few, data)
    assert found.shape == data.X.shape
    assert not found[:, [0, 1, 2, 3, *range(21, len(names))]].any()
    own = few.contributions(frame, qid=data.qid)[:, :-1]
    np.testing.assert_array_equal(found[:, 20:3:-1], own)
    assert own.any()
