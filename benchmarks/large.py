"""Parquet in many parts: speed and memory of `load`, beside polars alone, and of training on it.

    python benchmarks/large.py                       # 5 GB of features in 50 parts; half an hour
    python benchmarks/large.py --gb 1 --train none   # a minute
    python benchmarks/large.py --mslr --folder FOLDER   # 3.7 million documents, end to end: an hour

`load` writes the features to the cache, so that the speed of the disk matters; `--cache /dev/shm`
puts the cache into memory. Every figure is measured in a process of its own. The peak is private
memory (RssAnon of Linux) above that of the process before it began; mapped files of the cache are
not private memory.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import mslr_size

FEATURES, DOCUMENTS = 136, 120  # of MSLR-WEB30K, whose queries have 120 documents on average
PART = 100_000_000  # bytes of features
ENGINES = {
    "lightgbm": {"engine": "lightgbm"},
    "lightgbm-plain": {"engine": "lightgbm", "transforms": "none"},
    "xgboost-plain": {"engine": "xgboost", "transforms": "none"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gb", type=float, default=5.0, help="size of the features, as float32")
    parser.add_argument("--folder", type=Path, help="where the files go (default: temporary)")
    parser.add_argument("--cache", type=Path, help="where the cache goes (default: beside them)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each reader; the best counts")
    parser.add_argument("--rounds", type=int, help="rounds of boosting (default: 3; --mslr: 100)")
    parser.add_argument("--mslr", action="store_true",
                        help="as many documents as MSLR-WEB30K, in steps")  # fmt: skip
    parser.add_argument("--queries", type=int, default=31_000, help="of --mslr")
    parser.add_argument("--again", action="store_true", help="repeat the steps of --mslr")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--train", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}; none")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (100 if chosen.mslr else 3)
    if chosen.mslr:
        at_mslr_size(parser, chosen)
        return
    if chosen.measure:
        print(json.dumps(MEASURED[chosen.measure.partition(":")[0]](chosen)))
        return
    figures = {}
    with folder_of(chosen.folder) as folder:
        files = generate(folder / "parts", chosen.gb)
        megabytes = sum(rows for _, rows in files) * FEATURES * 4 / 1e6
        stored = sum(path.stat().st_size for path, _ in files) / 1e6
        print(f"{megabytes:,.0f} MB of features, {stored:,.0f} MB of Parquet in {len(files)} parts")
        chosen.cache = (chosen.cache or folder) / "twinrank-cache"
        runs: dict[str, list[Any]] = {"polars": [], "write": [], "load": []}
        for _ in range(chosen.runs):
            for name, results in runs.items():
                shutil.rmtree(chosen.cache, ignore_errors=True)
                results.append(measure(name, folder, chosen))
        best = {name: min(results, key=lambda r: r["seconds"]) for name, results in runs.items()}
        for name, result in best.items():
            show(name, result, megabytes)
        seconds = {name: result["seconds"] for name, result in best.items()}
        print(f"load takes {seconds['load'] / seconds['polars']:.2f} × polars")
        both = seconds["polars"] + seconds["write"]
        print(f"load takes {seconds['load'] / both:.2f} × polars and writing as many bytes")
        cpu = best["load"]["cpu"] / best["polars"]["cpu"]
        print(f"(processor time: {cpu:.2f} ×; best of {chosen.runs} runs)")
        figures = {"megabytes": megabytes, "parts": len(files), **runs}
        for name in chosen.train.split(","):
            if name in ENGINES:
                figures[name] = measure(f"train:{name}", folder, chosen)
                show(name, figures[name], megabytes)
        shutil.rmtree(chosen.cache, ignore_errors=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


def at_mslr_size(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """All steps, or one of them in this process."""
    if chosen.folder is None:
        parser.error("--mslr needs --folder, which keeps the data and the result of each step")
    os.environ["TWINRANK_CACHE_DIR"] = str(chosen.cache or chosen.folder / "cache")
    if chosen.step:
        mslr_size.run_step(chosen, timed)
        return
    results = mslr_size.run(__file__, chosen.folder, chosen.queries, chosen.rounds, chosen.again)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1))


@contextmanager
def folder_of(folder: Path | None) -> Iterator[Path]:
    """The folder, or a temporary one that is removed at the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def generate(folder: Path, gb: float) -> list[tuple[Path, int]]:
    """Write parts of whole queries; return each file with its number of rows."""
    import polars as pl

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    queries = PART // (4 * FEATURES * DOCUMENTS)
    rows, count = queries * DOCUMENTS, max(round(gb * 1e9 / PART), 1)
    files = []
    for part in range(count):
        path = folder / f"part-{part:04}.parquet"
        files.append((path, rows))
        if path.exists():
            continue
        X = random.standard_normal((rows, FEATURES), np.float32)
        np.rint(X[:, : FEATURES // 2], out=X[:, : FEATURES // 2])  # half of them are counts
        signal = X[:, -1] + X[:, -2] + random.standard_normal(rows, np.float32)
        columns = {
            "qid": part * queries + np.arange(rows) // DOCUMENTS,
            "label": np.digitize(signal, (0.0, 1.5, 3.0, 4.0)),
        }
        table = pl.DataFrame(columns | {f"f{i}": X[:, i] for i in range(FEATURES)})
        table.write_parquet(path)
    return files


def measure(name: str, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Run one measurement in a new process."""
    options = ["--measure", name, "--folder", folder, "--cache", chosen.cache]
    options += ["--gb", chosen.gb, "--rounds", chosen.rounds]
    done = subprocess.run(
        [sys.executable, __file__, *map(str, options)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def show(name: str, result: dict[str, Any], megabytes: float) -> None:
    rate = megabytes / result["seconds"]
    print(
        f"{name:15} {result['seconds']:7.1f} s  {rate:6.0f} MB/s of features  "
        f"peak {result['peak'] / 1e6:6,.0f} MB",
        flush=True,
    )


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds, processor seconds and the peak of private memory."""
    stop, before = threading.Event(), private_memory()
    peak = [before]

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], private_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    start, cpu = time.perf_counter(), time.process_time()
    kept = work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    stop.set()
    thread.join()
    del kept
    return {"seconds": seconds, "cpu": cpu, "peak": peak[0] - before}


def private_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this benchmark needs Linux")


def read_with_polars(chosen: argparse.Namespace) -> dict[str, float]:
    import polars as pl

    files = sorted((chosen.folder / "parts").iterdir())
    pl.read_parquet(files[0], n_rows=10)

    def read() -> None:
        for path in files:
            pl.read_parquet(path)

    return timed(read)


def write(chosen: argparse.Namespace) -> dict[str, float]:
    """Write as many bytes as the features have."""
    block, count = np.ones(1 << 22, np.float32), int(chosen.gb * 1e9) >> 24

    def write_blocks() -> None:
        with (chosen.cache / "bytes").open("wb", buffering=0) as file:
            for _ in range(count):
                file.write(block)

    chosen.cache.mkdir(parents=True)
    return timed(write_blocks)


def load(chosen: argparse.Namespace) -> dict[str, float]:
    import polars  # noqa: F401

    import twinrank as tr

    os.environ["TWINRANK_CACHE_DIR"] = str(chosen.cache)
    read = tr.load  # imported before the clock starts
    return timed(lambda: read(chosen.folder / "parts"))


def train(chosen: argparse.Namespace) -> dict[str, float]:
    import twinrank as tr

    os.environ["TWINRANK_CACHE_DIR"] = str(chosen.cache)
    data = tr.load(chosen.folder / "parts")
    parameters = ENGINES[chosen.measure.partition(":")[2]]
    ranker = tr.BoostedRanker(n_estimators=chosen.rounds, ensemble_size=1, **parameters)
    return timed(lambda: ranker.fit(data))


MEASURED = {"polars": read_with_polars, "write": write, "load": load, "train": train}

if __name__ == "__main__":
    main()
