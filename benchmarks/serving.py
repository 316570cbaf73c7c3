"""Latency of scoring one query on one core: Ranker.predict, its ONNX file, the bare net, trees.

With --formats and folders of data sets: the size and the scores of every export format.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import onnxruntime
import torch
import xgboost as xgb

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
from twinrank.deployment.export_format import TreeFormat
from twinrank.deployment.forest import forest_of
from twinrank.deployment.model_export import FORMATS
from twinrank.deployment.tree_rules import scores_of

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


def scorer_of(
    name: str, path: Path, ranker: tr.BoostedRanker, data: tr.Dataset
) -> Callable[[], Any]:
    """A call that scores data from an exported file, by its reader or by the reader's rules."""
    if name == "onnx":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"X": data.X})[0]
    if name == "lightgbm":
        trees = lgb.Booster(model_file=path)
        return lambda: trees.predict(data.X, raw_score=True, num_threads=1)
    if name == "xgboost":
        booster = xgb.Booster({"nthread": 1}, model_file=path)
        return lambda: booster.predict(xgb.DMatrix(data.X, nthread=1), output_margin=True)
    chosen = FORMATS[name]
    assert isinstance(chosen, TreeFormat)
    forest = chosen.chosen(forest_of(ranker.model_, name))
    read = chosen.read(
        {file.name: file.read_bytes() for file in path.iterdir()},
        [feature.name for feature in forest.features],
    )
    X = forest.matrix(data)
    return lambda: scores_of(read, X, chosen.rule)


def microseconds(call: Callable[[], Any], documents: int) -> str:
    """The shortest time of three, per document."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return f"{1e6 * min(seconds) / documents:.2f}"


def compare_formats(source: Path) -> list[dict[str, Any]]:
    """Size, time, difference and nDCG@5 of every format, on the first fold of a data set."""
    fold = tr.load_folds(source)[0]
    rankers = {
        engine: tr.BoostedRanker(transforms="none", engine=engine, n_jobs=1, random_state=0).fit(
            fold.train, eval_set=fold.validation
        )
        for engine in ("lightgbm", "xgboost")
    }
    data, rows = fold.test, []
    for name in FORMATS:
        ranker = rankers["xgboost" if name == "xgboost" else "lightgbm"]
        expected = ranker.predict(data)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FORMATS[name].target
            try:
                done = ranker.export(path, name, fold.train)
            except tr.InputError as refused:
                rows.append({"format": name, "refused": str(refused)})
                continue
            call = scorer_of(name, path, ranker, data)
            scores = np.asarray(call(), np.float32)
        runs = not isinstance(FORMATS[name], TreeFormat)
        rows.append(
            {
                "format": name,
                "trees": done.trees,
                "leaves": done.leaves,
                "kB": round(done.bytes / 1000),
                "µs": microseconds(call, data.documents) if runs else None,
                "predict µs": microseconds(lambda own=ranker: own.predict(data), data.documents),
                "difference": float(np.abs(scores - expected).max()),
                "nDCG@5": tr.evaluate(scores, data.y, data.lists, ["nDCG@5"])["nDCG@5"],
                "predict nDCG@5": tr.evaluate(expected, data.y, data.lists, ["nDCG@5"])["nDCG@5"],
            }
        )
    return rows


def show_formats(source: Path, rows: list[dict[str, Any]]) -> None:
    """The table of one data set."""
    columns = ["format", "trees", "leaves", "kB", "µs per document", "predict µs"]
    columns += ["largest difference", "nDCG@5", "predict nDCG@5"]
    show_table(
        f"{source.name}: BoostedRanker(transforms='none')",
        columns,
        [
            [row["format"], row["refused"], *[""] * 7]
            if "refused" in row
            else [
                row["format"],
                f"{row['trees']:,}",
                f"{row['leaves']:,}",
                f"{row['kB']:,}",
                row["µs"] or "–",
                row["predict µs"],
                f"{row['difference']:.1e}",
                f"{row['nDCG@5']:.4f}",
                f"{row['predict nDCG@5']:.4f}",
            ]
            for row in rows
        ],
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--formats", type=Path, nargs="+", metavar="FOLDER", help="compare export formats instead"
    )
    options.add_argument("--documents", type=int, default=100, help="of the query (100)")
    options.add_argument("--trees", type=int, default=300, help="of BoostedRanker (300)")
    options.add_argument(
        "--rounds", type=int, default=60, help="turns of 50 ms that each one gets (60)"
    )
    chosen = options.parse_args()
    torch.set_num_threads(1)
    console.print(f"{describe_environment()}, onnxruntime {onnxruntime.__version__}")
    if chosen.formats:
        tables = {source.name: compare_formats(source) for source in chosen.formats}
        for source in chosen.formats:
            show_formats(source, tables[source.name])
        save(chosen.json, tables, [])
        return
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
