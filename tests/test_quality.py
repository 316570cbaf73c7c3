"""benchmarks/quality.py on folds in miniature, through its command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "quality.py"


@pytest.mark.slow
def test_it_compares_the_defaults_and_continues(folds_in_miniature: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out", tmp_path / "figures.json"
    command = [
        *(sys.executable, str(SCRIPT), str(folds_in_miniature)),
        *("--out", str(out), "--folds", "1", "--seeds", "1", "--jobs", "2"),
        *("--methods", "LambdaMART; nDCG-type2 (Boosted)", "--json", str(report)),
    ]
    environment = {**os.environ, "TWINRANK_CACHE_DIR": str(tmp_path / "cache")}
    runs = []
    for _ in range(2):
        run = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert run.returncode == 0, run.stderr
        runs.append(run)
    figures = json.loads(report.read_text())
    names = [line["method"] for line in figures["means"]]
    assert names == ["LambdaMART", "nDCG-type2 (Boosted)", "BoostedRanker()", "Ranker()", "Blend()"]
    assert {line["against"] for line in figures["gains"]} == set(names[:2])
    assert "raw features only" in runs[0].stdout
    assert "validation nDCG@5" in runs[0].stderr
    assert "validation nDCG@5" not in runs[1].stderr  # nothing was trained again
    tables = [run.stdout.partition("test queries")[2] for run in runs]
    assert tables[0] == tables[1] != ""
