"""benchmarks/quality.py on folds in miniature, through its command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "quality.py"


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--nets",)])
def test_it_selects_by_validation_and_continues(
    folds_in_miniature: Path, tmp_path: Path, more: tuple
) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable,
        str(SCRIPT),
        str(folds_in_miniature),
        "--out",
        str(out),
        "--quick",
        "--jobs",
        "2",
    ]
    environment = {**os.environ, "TWINRANK_CACHE_DIR": str(tmp_path / "cache")}
    runs = []
    for _ in range(2):
        run = subprocess.run(
            [*command, *more, "--json", str(out.with_suffix(".json"))],
            capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        runs.append(run)
    report = json.loads(out.with_suffix(".json").read_text())
    chosen = out / ("chosen_net.json" if more else "chosen_trees.json")
    assert json.loads(chosen.read_text())["variant"] == report["chosen"]
    assert "LambdaMART" in report["means"][0]
    assert "validation nDCG@5" in runs[0].stderr
    assert "validation nDCG@5" not in runs[1].stderr  # nothing was trained again
    shown = [run.stdout.partition("Validation")[2] for run in runs]
    assert shown[0] == shown[1] != ""


TRAINED = {
    "quality_ensembles.py": ("P-type3, net", "nDCG-type3, net", "AP-type3, trees"),
    "quality_noise.py": ("AP-type3, τ = 2, 5 samples", "nDCG-type3, τ = 2, 1 to 20 samples"),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", TRAINED)
def test_half_of_the_queries_selects_and_the_other_half_evaluates(
    script: str, folds_in_miniature: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, str(SCRIPT.with_name(script)), str(folds_in_miniature)]
    environment = {**os.environ, "TWINRANK_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run(
        [*command, "--quick", "--jobs", "2", "--json", str(results)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    by_training = json.loads(results.read_text())[folds_in_miniature.name]
    assert set(TRAINED[script]) < set(by_training)
    assert all(0 < value < 1 for values in by_training.values() for value in values)
    assert len({values[0] for values in by_training.values()}) > 1  # they do differ
    assert "five, own epochs" in run.stdout
