"""benchmarks/quality_why.py on folds in miniature, through its command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "quality_why.py"
RESTARTS = ("best by validation", "mean of seeds", "averaged scores")


@pytest.mark.slow
def test_it_says_what_gradients_scores_and_restarts_do(
    folds_in_miniature: Path, tmp_path: Path
) -> None:
    out = tmp_path / "why.json"
    run = subprocess.run(
        [sys.executable, str(SCRIPT), str(folds_in_miniature), "--quick", "--json", str(out)],
        capture_output=True, text=True,
        env={**os.environ, "TWINRANK_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    report = json.loads(out.read_text())["data"]
    looked = report["strategies"]
    assert len(looked) == 8
    for way in ("type1", "type2", "type3", "swap"):
        quiet, noisy = (looked[f"nDCG-{way} {noise}"] for noise in ("τ=0", "τ=2"))
        assert quiet["start"] > 0
        assert quiet["start"] != noisy["start"]
        assert quiet["tied"] == pytest.approx(100 * 2 / 15, abs=2)
        assert quiet["valid."] >= quiet["valid., last"]
    fading = report["fading"]
    assert fading["nDCG-type3 τ=2→0 in 12 epochs"] != fading["nDCG-type3 τ=2"]
    restarts = {way: report["restarts"][f"nDCG-type3 {way}"] for way in RESTARTS}
    best, mean, averaged = restarts.values()
    assert best[0] >= mean[0]  # on validation data, which chose it
    assert averaged != mean
