"""Reading and evaluating a long log of clicks, next to a group-by and a sort of the same rows.

    python benchmarks/click_logs.py                   # 10 million rows
    python benchmarks/click_logs.py --rows 50000000

The log has ten documents per impression and 20,000 queries with a long tail; its ids are text. Each
figure is the best of --repeats runs in a process of its own, whose peak memory is stated.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import twinrank as tr
from common import show_table

SHOWN, CANDIDATES, QUERIES = 10, 20, 20_000
PART = 10_000_000  # rows in a file
KEYS = ["query", "docid", "position"]


def write(folder: Path, rows: int) -> None:
    """Write a log as Parquet files."""
    for number, start in enumerate(range(0, rows, PART)):
        rng = np.random.default_rng(number)
        impressions = min(PART, rows - start) // SHOWN
        query = np.repeat(rng.zipf(1.3, impressions) % QUERIES, SHOWN)
        noisy = np.arange(CANDIDATES) + 3 * rng.gumbel(size=(impressions, CANDIDATES))
        document = np.argsort(noisy, axis=1)[:, :SHOWN].ravel()
        position = np.tile(np.arange(1, SHOWN + 1), impressions)
        clicked = rng.random(position.size) < 0.3 * (document % 3 == 0) / position
        first = start // SHOWN
        frame = pl.DataFrame(
            {
                "impression": np.repeat(np.arange(first, first + impressions), SHOWN),
                "query": pl.Series([f"query {i}" for i in range(QUERIES)]).gather(query),
                "docid": pl.Series([f"d{i}" for i in range(QUERIES * CANDIDATES)]).gather(
                    query * CANDIDATES + document
                ),
                "position": position,
                "clicked": clicked.astype(np.int8),
            }
        )
        frame.write_parquet(folder / f"{number}.parquet")


def group_by(folder: Path, engine: Any) -> Callable[[], Any]:
    """Clicks and displays by document and position, with polars."""
    sums = pl.scan_parquet(folder / "*.parquet").group_by(KEYS)
    summed = sums.agg(pl.col("clicked").sum(), pl.len())
    return lambda: summed.collect(engine=engine)


def evaluation(folder: Path) -> Callable[[], Any]:
    """`evaluate_log` of random scores."""
    log = tr.load_clicks(folder, summed=False)
    scores = np.random.default_rng(0).random(log.lists.documents)
    seen = 1 / np.arange(1, SHOWN + 1)
    return lambda: tr.evaluate_log(scores, log, propensities=seen, min_overlap=0)


def sort(folder: Path) -> Callable[[], Any]:
    """The order of the rows by query and document, as numbers."""
    log = tr.load_clicks(folder, summed=False)
    return lambda: np.argsort(log.document)


def plain_sort(folder: Path) -> Callable[[], Any]:
    """Sorted random numbers, as many as rows."""
    rows = pl.scan_parquet(folder / "*.parquet").select(pl.len()).collect().item()
    values = np.random.default_rng(0).random(rows)
    return lambda: np.sort(values)


STEPS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "polars group-by": lambda folder: group_by(folder, "in-memory"),
    "polars group-by, streaming": lambda folder: group_by(folder, "streaming"),
    "load_clicks": lambda folder: lambda: tr.load_clicks(folder, summed=False),
    "load_clicks(summed=True)": lambda folder: lambda: tr.load_clicks(folder, summed=True),
    "sort of random numbers": plain_sort,
    "order of the rows by document": sort,
    "evaluate_log": evaluation,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", default=",".join(map(str, range(len(STEPS)))))
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [list(STEPS)[int(number)] for number in options.steps.split(",")]
    if options.folder is not None:  # a child, with one step
        run = STEPS[names[0]](options.folder)
        seconds = []
        for _ in range(options.repeats):
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps([min(seconds), peak]))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.rows)
        rows = []
        for name in names:
            number = list(STEPS).index(name)
            command = [sys.executable, __file__, "--folder", folder, "--steps", str(number)]
            command += ["--repeats", str(options.repeats)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, peak = json.loads(done.stdout)
            rows.append([name, f"{seconds:.2f}", f"{peak:.1f}"])
    show_table(f"{options.rows:,} rows", ["", "seconds", "peak GB"], rows)


if __name__ == "__main__":
    main()
