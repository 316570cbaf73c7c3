"""benchmarks/gpu.py at toy size, by Triton's interpreter, so that it runs when a GPU is there."""

import importlib
import json
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.filterwarnings("ignore")  # of torch.compile
@pytest.mark.parametrize("peers", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_toy(tmp_path, peers, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    report = tmp_path / "figures.json"
    words = ["--toy", "--json", str(report), *([] if peers else ["--peers"])]
    importlib.import_module("gpu").main(words)
    timings = json.loads(report.read_text())["batches"][0]["timings"]
    assert {"DirectLoss nDCG-type3", "CE4.L step, no loss"} <= timings.keys()
    for name in ("padded nDCG-type3, torch.compile", "sentence-transformers LambdaLoss"):
        assert (name in timings) == peers
    assert "| CPU (toy) | toy |" in capsys.readouterr().out
