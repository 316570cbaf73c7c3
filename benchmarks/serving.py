"""Latency of scoring one query on one core: Ranker.predict, its ONNX file, the bare net, trees."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import twinrank as tr
from common import (
    Bar,
    Call,
    Timing,
    console,
    describe_environment,
    milliseconds,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)

BARE, PREDICT, FILE, TREES = (
    "the bare torch module",
    "Ranker.predict",
    "its ONNX file, onnxruntime",
    "BoostedRanker.predict",
)
MOST = {PREDICT: 3e-3, FILE: 1e-3}  # seconds


def session_of(ranker: tr.Ranker) -> onnxruntime.InferenceSession:
    """The ranker's file in a session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ranker.export(path)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def contestants(documents: int, trees: int) -> tuple[dict[str, Call], float]:
    """A call of each for the same query, and how far onnxruntime's scores are from predict's."""
    data = tr.synthetic_web_search(queries=100)
    query = np.ascontiguousarray(np.resize(data.X, (documents, data.features)))
    ranker = tr.Ranker(architecture="CE4.L", epochs=1, random_state=0).fit(data)
    boosted = tr.BoostedRanker(ensemble_size=1, n_estimators=trees, n_jobs=1, random_state=0).fit(
        data
    )
    session, net = session_of(ranker), ranker.model_.net.eval()
    lists = tr.Lists.from_sizes([documents])
    ready = torch.from_numpy(ranker.model_.transform(query, lists))

    def predict() -> Any:
        return ranker.predict(query, group=[documents])

    def run() -> Any:
        return session.run(None, {"X": query})[0]

    @torch.inference_mode()
    def bare() -> Any:
        return net(ready, lists)

    def grown() -> Any:
        return boosted.predict(query, group=[documents])

    apart = float(np.abs(run() - predict()).max())
    return {BARE: bare, PREDICT: predict, FILE: run, TREES: grown}, apart


def percentiles(timing: Timing) -> dict[str, float]:
    """Seconds that half, nine tenths, all but a hundredth, and all of the calls took at most."""
    found = np.percentile(timing.seconds, [50, 90, 99, 100]).tolist()
    return dict(zip(("p50", "p90", "p99", "max"), found, strict=True))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=100, help="of the query (100)")
    options.add_argument("--trees", type=int, default=300, help="of BoostedRanker (300)")
    options.add_argument(
        "--rounds", type=int, default=60, help="turns of 50 ms that each one gets (60)"
    )
    chosen = options.parse_args()
    torch.set_num_threads(1)
    console.print(f"{describe_environment()}, onnxruntime {onnxruntime.__version__}")
    calls, apart = contestants(chosen.documents, chosen.trees)
    timings = race(calls, rounds=chosen.rounds)
    seconds = {name: percentiles(timing) for name, timing in timings.items()}
    base = seconds[BARE]["p50"]
    show_table(
        f"One query of {chosen.documents} documents × 136 features, CE4.L, one core",
        ["", "p50", "p90", "p99", "max", "calls", "p50 against the bare net"],
        [
            [
                name,
                *map(milliseconds, found.values()),
                f"{len(timings[name].seconds):,}",
                times(found["p50"] / base),
            ]
            for name, found in seconds.items()
        ],
    )
    bars = [
        Bar(
            f"{name}: at most {milliseconds(most)} for 99 of 100 calls",
            f"{milliseconds(seconds[name]['p99'])} (median {milliseconds(seconds[name]['p50'])})",
            seconds[name]["p99"] <= most,
        )
        for name, most in MOST.items()
    ]
    bars.append(Bar("the same scores, to 1e-5", f"{apart:.1e}", apart <= 1e-5))
    show_bars(bars)
    save(chosen.json, {"seconds": seconds, "difference": apart}, bars)


if __name__ == "__main__":
    main()
