"""`twinrank compare`: from data, folds or a study file to a table, files and a report."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import twinrank as tr
from twinrank.experiments.study import study_folder
from twinrank.experiments.study.comparison_results import headline
from twinrank.experiments.study.method_comparison import comparison_study
from twinrank.experiments.study.study_source import Source

SMALL = ["--methods", "AP-type3 (Linear); LambdaMART", "--epochs", "1", "--jobs", "1"]
SMALL += ["--set", "n_estimators=2", "--measures", "nDCG@5; AP"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Results go to the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two folds of small data as LETOR text."""
    base = tmp_path_factory.mktemp("data") / "Tiny"
    for number in (1, 2):
        (base / f"Fold{number}").mkdir(parents=True)
        parts = tr.synthetic_web_search(24).select(slice(12 * number - 12, 12 * number))
        for name, part in zip(("train", "vali", "test"), parts.split(0.5, 0.25), strict=True):
            part.save(base / f"Fold{number}" / f"{name}.txt")
    return base


@pytest.fixture
def compare(cli):
    """`twinrank compare` within this process."""
    return partial(cli, "compare")


def test_folds_side_by_side(compare, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    before = torch.get_num_threads()
    code, out, err = compare(folder, *SMALL)
    assert code == 0, err
    assert torch.get_num_threads() == before
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["nDCG@5", "AP"]
    assert "iterations" in lines[0]
    assert max(len(line) for line in lines if not line.startswith("Report: ")) <= 80
    assert lines[2].startswith("AP-type3 (Linear)")
    assert lines[3].startswith("LambdaMART")
    assert lines[3].endswith("s")
    assert "has the best nDCG@5" in out
    assert out.endswith(f"Report: {Path('comparison-Tiny', 'report.html')}\n")
    assert "[4/4] LambdaMART, fold 2, seed 0: validation nDCG@5" in err
    place = tmp_path / "comparison-Tiny"
    names = {path.name for path in place.iterdir()}
    assert names >= {"study.json", "units", "table.txt", "table.md", "table.tex", "queries.csv"}
    assert len((place / "queries.csv").read_text().splitlines()) == 1 + 2 * 6
    means = json.loads((place / "comparison.json").read_text())["means"]
    assert means.keys() == {"AP-type3 (Linear)", "LambdaMART"}
    page = (place / "report.html").read_text()
    assert "LambdaMART" in page
    assert "twinrank compare" in page


def test_paper_mode_tests_on_the_papers_queries(compare, folder, tmp_path):
    for part in ("train", "vali", "test"):
        whole = (folder / "Fold1" / f"{part}.txt").read_text()
        short = "".join(f"{d} qid:9{d // 3} 1:{d}\n" for d in (1, 0, 0, 3, 4, 5))
        (tmp_path / "Short" / "Fold1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "Short" / "Fold1" / f"{part}.txt").write_text(whole + short)
    methods = ["--methods", "AP-type3 (Linear)", "--measures", "nDCG@5", "--epochs", "1"]
    words = [tmp_path / "Short", *methods, "--jobs", "1"]
    code, out, err = compare(*words, "--set", "mode=paper")
    assert code == 0, err
    assert "Note: Fold 1: --paper keeps queries with at least 10 documents" in err
    assert "2 of 8 queries (train) and 2 of 5 queries (validation) and 2 of 5 queries (test)" in err
    assert "(3 lists)" in out
    _, out, err = compare(*words, "--out", "all")
    assert "(5 lists)" in out
    assert "mode=" not in err


def test_the_same_command_goes_on(compare, folder):
    words = [folder, *SMALL, "--out", "results"]
    assert compare(*words, "--folds", "1")[0] == 0
    _, first, err = compare(*words)
    assert "2 of 4 units were finished before" in err
    _, second, err = compare(*words)
    assert err == ""
    assert first == second
    _, _, err = compare(*words, "--set", "num_leaves=5")
    assert "2 of 4 units were finished before" in err
    assert "AP-type3" not in err


def test_results_in_the_home_folder(compare, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code, _, err = compare(folder, *SMALL, "--folds", "1", "--out", "~/results")
    assert code == 0, err
    assert {"report.html", "units"} <= {p.name for p in (tmp_path / "home/results").iterdir()}
    assert not (tmp_path / "~").exists()


def test_a_file_is_cut_into_folds(compare, folder):
    code, out, err = compare(folder / "Fold1" / "train.txt", "--cut", "3", *SMALL)
    assert code == 0, err
    assert "[6/6]" in err
    assert "(6 lists)" in out


def test_without_data(compare, tmp_path):
    code, out, err = compare(*SMALL, "--quick")
    assert code == 0, err
    assert "(50 lists)" in out
    assert (tmp_path / "comparison-quick" / "report.html").exists()


@pytest.mark.parametrize(
    ("shifts", "said"),
    [
        ({"A": 0.5}, "."),
        ({"A": 0.5, "B": 0.0}, ". It differs significantly from B (p < 0.01)."),
        ({"A": 0.1, "B": 0.5, "C": 0.0}, ". It differs significantly from all others (p < 0.01)."),
        ({"A": 0.5, "B": 0.5}, ". B does not differ significantly from it (p ≥ 0.01)."),
        (
            {"A": 0.5, "B": 0.5, "C": 0.5, "D": 0.0},
            ". B and C do not differ significantly from it (p ≥ 0.01).",
        ),
    ],
)
def test_headlines(shifts, said):
    values = np.linspace(0, 0.2, 40)
    systems = {name: {"AP": values + shift} for name, shift in shifts.items()}
    best = max(shifts, key=lambda name: shifts[name])
    assert headline(tr.compare(systems), "AP") == f"{best} has the best AP: 0.6000{said}"


STUDY = """
data = "Tiny"
methods = ["AP-type3 (Linear)", "nDCG-type3 (Boosted)"]
measures = ["RR"]
folds = [2]
seeds = [3]
[parameters]
epochs = 1
n_estimators = 2
[method."AP-type3 (Linear)"]
alpha = 2.0
[reading]
features = 136
"""


def test_study_file(compare, folder):
    path = folder.parent / "mine.toml"
    path.write_text(STUDY)
    code, out, err = compare(path, "--jobs", "1", "--out", "results")
    assert code == 0, err
    assert out.split()[0] == "RR"
    assert "[2/2]" in err
    found = json.loads(Path("results", "study.json").read_text())
    assert found["parameters"]["AP-type3 (Linear)"]["alpha"] == 2.0
    assert found["parameters"]["nDCG-type3 (Boosted)"]["n_estimators"] == 2
    assert found["seeds"] == [3]
    _, out, _ = compare(path, "--jobs", "1", "--out", "results", "--measures", "AP")
    assert out.split()[0] == "AP"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("measures =", "mesures ="), "Unknown key 'mesures'. Did you mean 'measures'"),
        (("[3]", '"3"'), "seeds must be a list of whole numbers"),
        (("[3]", "[true]"), "seeds must be a list of whole numbers"),
        (("[2]", "[]"), "folds must be a list of numbers"),
        (("epochs = 1", "epoch = 1"), "Unknown parameter 'epoch'. Did you mean 'epochs'"),
        (("alpha", "alhpa"), "Did you mean 'alpha'"),
        (("features = 136", "feature = 136"), "Did you mean 'features'"),
        (('[method."AP-type3 (Linear)"]', '[method."RR-type3"]'), "but no such method"),
        (("Boosted", "Bosted"), "Bosted"),
        (('data = "Tiny"', 'data = "Tinny"'), "Tinny"),
        (("seeds", "= seeds"), "is not TOML"),
    ],
)
def test_study_files_that_are_none(compare, folder, change, complaint):
    path = folder.parent / "broken.toml"
    path.write_text(STUDY.replace(*change))
    code, out, err = compare(path, "--jobs", "1")
    assert code == 2
    assert complaint in err
    assert err.startswith("Error: ")
    assert not out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--methods", "LambdaMart"], "Did you mean 'LambdaMART'"),
        (["--methods", "ListNte"], "Did you mean 'ListNet'"),
        (["--methods", "nDGC-type3"], "Did you mean 'nDCG'"),
        (["--methods", "nDCG-type4"], "Did you mean 'type3'"),
        (["--methods", "AP"], "write objective-strategy (model)"),
        (["--methods", ";"], "needs at least one method"),
        (["--measures", "nDGC@5"], "Did you mean 'nDCG'"),
        (["--folds", "3"], "has 2 folds (1, 2), but no fold 3"),
        (["--folds", "one"], "--folds takes numbers"),
        (["--folds", "0"], "from 1 on"),
        (["--seeds", "-1"], "--seeds takes numbers"),
        (["--set", "epoch=3"], "Unknown parameter 'epoch'. Did you mean 'epochs'"),
        (["--methods", "LambdaMART", "--epochs", "3"], "epochs is a parameter of Ranker, which no"),
        (["--methods", "ListNet", "--set", "num_leaves=3"], "is a parameter of BoostedRanker, whi"),
        (["--set", "random_state=3"], "pass --seeds"),
        (["--set", "epochs"], "write key=value"),
        (["--ray", "localhost:1"], "Ray"),
    ],
)
def test_bad_input(compare, folder, tmp_path, words, complaint):
    code, out, err = compare(folder, *words)
    assert code == 2
    assert complaint in err
    assert not out
    assert not (tmp_path / "comparison-Tiny" / "units").exists()


def test_methods_have_the_transforms_of_their_estimators():
    methods = ["nDCG-type3", "ListNet", "Ranker", "nDCG-type3 (Boosted)", "BoostedRanker"]
    study = comparison_study(Source(queries=30, cut=1), methods)
    chosen = {
        unit.method: unit.kind.estimator(**unit.parameters).check_parameters()["transforms"]
        for unit in study.units
    }
    net, trees = tr.Ranker(), tr.BoostedRanker()
    assert list(chosen.values()) == (
        [net.check_parameters()["transforms"]] * 3 + [trees.check_parameters()["transforms"]] * 2
    )


def test_data_that_isnt_there(compare):
    code, _, err = compare("nowhere")
    assert code == 2
    assert "Can't read" in err
    assert "nowhere" in err


def test_a_folder_of_other_results_is_left_alone(compare, folder):
    assert compare(folder, *SMALL, "--folds", "1", "--out", "results")[0] == 0
    other = [folder / "Fold1" / "train.txt", "--cut", "3", *SMALL, "--folds", "1"]
    code, _, err = compare(*other, "--out", "results")
    assert code == 2
    assert "results contains results on other data" in err
    assert compare(*other, "--out", "results", "--force")[0] == 0


def test_failures_are_told_and_the_others_shown(compare, folder):
    words = [folder, "--folds", "1", "--jobs", "1", "--epochs", "1"]
    words += ["--methods", "AP-type3 (Linear); LambdaMART", "--set", "device=abacus"]
    code, out, err = compare(*words)
    assert code == 1
    assert "LambdaMART" in out
    assert "Failed: AP-type3 (Linear), fold 1, seed 0: There is no device 'abacus' here" in err
    assert "Not in the table: AP-type3 (Linear)" in err


def test_sigterm_stops_a_study(compare, folder, tmp_path, monkeypatch):
    train = study_folder.run_unit

    def train_and_stop(*words):
        train(*words)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(study_folder, "run_unit", train_and_stop)
    words = [folder, "--methods", "LambdaMART", "--set", "n_estimators=2", "--jobs", "1"]
    code, _, err = compare(*words, "--out", tmp_path / "results")
    assert code == 130
    assert f"Stopped. Finished trainings are kept in {tmp_path / 'results'}" in err
    assert len(list(tmp_path.glob("results/units/*/unit.json"))) == 1


@pytest.mark.slow
def test_sigterm_stops_the_processes_of_a_study(folder, tmp_path):
    words = [sys.executable, "-m", "twinrank", "compare", str(folder), "--jobs", "2"]
    words += ["--methods", "LambdaMART; nDCG-type3 (Linear)", "--set", "n_estimators=2"]
    words += ["--set", "early_stopping=none", "--epochs", "1000000", "--out", "results"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    units, until = tmp_path / "results" / "units", time.monotonic() + 120
    while time.monotonic() < until and not list(units.glob("*/unit.json")):
        time.sleep(0.1)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Stopped. Finished trainings are kept in results" in err
    assert "Traceback" not in err
    assert list(units.glob("*/unit.json"))


@pytest.mark.slow
def test_interrupt_and_go_on(folder, tmp_path):
    """Ctrl-C, with a live picture on a terminal: what is finished stays."""
    words = [sys.executable, "-m", "twinrank", "compare", str(folder), "--jobs", "2"]
    words += ["--methods", "LambdaMART; nDCG-type3 (Linear)", "--set", "n_estimators=2"]
    words += ["--set", "early_stopping=none", "--out", str(tmp_path / "results")]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*words, "--epochs", "1000000"],
        stderr=slave,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(slave)
    units = tmp_path / "results" / "units"
    seen, until = b"", time.monotonic() + 120
    while time.monotonic() < until and len(list(units.glob("*/unit.json"))) < 2:
        seen += _read(master)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes get it
    while process.poll() is None:
        seen += _read(master)
    seen += _read(master)
    os.close(master)
    assert process.returncode == 130, seen
    assert "nDCG-type3 (Linear), fold 1, seed 0" in seen.decode()
    assert "the same command continues" in seen.decode()
    assert "Traceback" not in seen.decode()
    assert len(list(units.glob("*/unit.json"))) == 2
    done = subprocess.run([*words, "--epochs", "1"], capture_output=True, text=True, check=True)
    assert "2 of 4 units were finished before" in done.stderr
    assert "Report: " in done.stdout


def _read(master):
    if not select.select([master], [], [], 0.1)[0]:
        return b""
    try:
        return os.read(master, 65_536)
    except OSError:  # the other side is closed
        return b""
