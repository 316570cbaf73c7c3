"""Installing: without torch, and from the wheel and the sdist."""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from twinrank.experiments.study import method_comparison
from twinrank.experiments.study.study_source import Source

ROOT = Path(__file__).parents[1]
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import twinrank as tr
from twinrank.cli import main

def command(*words):
    sys.argv = ["twinrank", *words]
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0

def refused(what, call):
    try:
        call()
    except tr.InputError as error:
        assert isinstance(error, ImportError), error
        assert str(error) == f"{what} needs torch; install it with pip install 'twinrank[nets]'."
    else:
        raise AssertionError(what)
"""
WITHOUT_TORCH = (
    BLOCKED
    + """
data = tr.synthetic_web_search(queries=8)
data.save("data.txt")
own = tr.Measure.from_functions("Mine", lambda y, _: y * 1.0, lambda rank: 1 / rank)
assert 0 < tr.evaluate(data.X[:, 0], data.y, data.lists, [own, "AP"])["AP"] < 1
print(tr.compare({"a": data.X[:, 0], "b": data.X[:, 1]}, data.y, data.lists))
trees = tr.BoostedRanker(n_estimators=2, ensemble_size=1).fit(tr.load("data.txt"))
trees.save("model")
assert tr.BoostedRanker.load("model").score(data) > 0
assert tr.training.Callback and tr.transform("QueryZScore")
refused("Ranker", lambda: tr.Ranker().fit(data))
refused("DirectLoss", lambda: tr.DirectLoss)
refused("twinrank.text", lambda: tr.text)
for words in (
    ["--help"],
    ["train", "data.txt", "--trees", "--epochs", "2", "--set", "ensemble_size=1", "--out", "run"],
    ["predict", "run", "data.txt"],
    ["evaluate", "run", "data.txt", "--intervals"],
    ["inspect"],
    ["inspect", "data.txt", "--plot", "x.png"],
    ["convert", "data.txt", "x.csv"],
    ["convert", "x.csv", "x.parquet"],
    ["convert", "x.parquet", "x"],
):
    assert command(*words) == 0, words
assert command("train", "data.txt", "--out", "other") == 2
assert command("reproduce", "--table", "3") == 2
assert "torch" not in sys.modules and "xgboost" not in sys.modules
"""
)


def test_data_evaluation_and_trees_need_no_torch(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    errors = [line for line in ran.stderr.splitlines() if line.startswith("Error: ")]
    assert errors == [
        "Error: Ranker needs torch; install it with pip install 'twinrank[nets]'.",
        "Error: This command needs torch; install it with pip install 'twinrank[nets]'.",
    ]


def test_the_default_comparison_without_torch(monkeypatch):
    monkeypatch.setattr(method_comparison, "has_torch", lambda: False)
    study = method_comparison.comparison_study(Source(queries=30, cut=1))
    assert not {"Ranker", "Blend"} & set(study.method_names)
    assert "BoostedRanker" in study.method_names
    note = method_comparison.note_on_missing(study)
    assert "lacks nets. To add them: pip install 'twinrank[nets]'" in note


def test_only_extras_need_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any(name.startswith("torch") for name in project["dependencies"])
    for name in ("nets", "text", "track", "test"):
        assert "torch>=2.5" in extras[name]


@pytest.mark.slow
def test_wheel_and_sdist_are_built_and_install(tmp_path):
    """Each works in a new environment, which borrows the packages of this one."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words):
        ran = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    builder, files = tmp_path / "builder", tmp_path / "dist"
    venv.create(builder, with_pip=True)
    run(builder / "bin" / "pip", "install", "-q", "hatchling")
    run(builder / "bin" / "python", "-m", "hatchling", "build", "-d", files)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    built = sorted(files.iterdir())
    assert [path.name.split("-")[0] for path in built] == ["twinrank", "twinrank"]
    for path in built:
        folder = tmp_path / path.name
        venv.create(folder, with_pip=True)
        run(folder / "bin" / "pip", "install", "-q", "--no-deps", path)
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "borrowed.pth").write_text(f"{packages}\n")
        assert "nDCG@10 is valid." in run(folder / "bin" / "twinrank", "measures", "nDCG@10")
        shown = run(
            folder / "bin" / "python", "-P", "-c", "import twinrank as t; print(t.__file__)"
        )
        assert str(folder) in shown
