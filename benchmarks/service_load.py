"""Latency of the example service at a fixed rate: one server process, one client, loopback.

Requests are sent on a schedule that does not wait for answers. The latency of a request counts from
its place in the schedule, so a slow answer also delays the requests behind it.
"""

import http.client
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import twinrank as tr
from common import (
    Bar,
    console,
    describe_environment,
    milliseconds,
    parser,
    save,
    show_bars,
    show_table,
)

SERVICE = Path(__file__).parents[1] / "examples" / "serving"
CONNECTIONS, WARM_UP, BODIES = 16, 100, 20
MOST = 0.05  # seconds, for 99 of 100 requests


@contextmanager
def served(model: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """The address of the service and the id of its process."""
    words = ["uvicorn", "--factory", "service:create_app", "--app-dir", str(SERVICE)]
    server = subprocess.Popen(
        [sys.executable, "-m", *words, "--port", "0", "--no-access-log"],
        env={**os.environ, "TWINRANK_MODEL": str(model), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if address := re.search(r"running on http://([\d.]+):(\d+)", line):
                yield (address[1], int(address[2])), server.pid
                return
        raise RuntimeError("the service has not started")
    finally:
        server.terminate()
        server.wait(30)


def cpu_seconds(process: int) -> float:
    """The processor time of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bodies(documents: int) -> list[bytes]:
    """Requests with one query each, features with six digits."""
    data = tr.synthetic_web_search(queries=100)
    rows = np.resize(data.X, (BODIES * documents, data.features))
    encoded = []
    for part in np.split(rows, BODIES):
        features = [[float(f"{value:.6g}") for value in row] for row in part.tolist()]
        listed = [{"id": f"d{i}", "features": row} for i, row in enumerate(features)]
        encoded.append(json.dumps({"queries": [{"documents": listed}]}).encode())
    return encoded


def latencies(
    address: tuple[str, int], requests: list[bytes], rate: float, count: int
) -> list[float]:
    """Seconds from the scheduled time of each request to the end of its answer."""
    waiting: queue.Queue[tuple[float, bytes] | None] = queue.Queue()
    seconds: list[float] = []

    def work() -> None:
        connection = http.client.HTTPConnection(*address, timeout=30)
        headers = {"content-type": "application/json"}
        while (item := waiting.get()) is not None:
            scheduled, body = item
            connection.request("POST", "/rank", body, headers)
            answer = connection.getresponse()
            answer.read()
            seconds.append(time.perf_counter() - scheduled if answer.status == 200 else np.inf)
        connection.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    for i in range(count):
        scheduled = began + i / rate
        time.sleep(max(0.0, scheduled - time.perf_counter()))
        waiting.put((scheduled, requests[i % len(requests)]))
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join(60)
    return seconds


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=100, help="of a query (100)")
    options.add_argument("--rate", type=float, default=200, help="requests per second (200)")
    options.add_argument("--seconds", type=float, default=5, help="of each round (5, at most 60)")
    options.add_argument("--rounds", type=int, default=3, help="the best counts (3)")
    chosen = options.parse_args()
    console.print(f"{describe_environment()}, {os.cpu_count()} cores, shared with the client")
    data = tr.synthetic_web_search(queries=100)
    ranker = tr.Ranker(architecture="CE4.L", epochs=1, random_state=0).fit(data)
    requests, count = bodies(chosen.documents), int(chosen.rate * min(chosen.seconds, 60))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ranker.export(Path(folder) / "model.onnx")
        with served(Path(folder) / "model.onnx") as (address, process):
            latencies(address, requests, chosen.rate, WARM_UP)
            for _ in range(chosen.rounds):
                before = cpu_seconds(process)
                seconds = latencies(address, requests, chosen.rate, count)
                cpu = (cpu_seconds(process) - before) / count
                rows.append([*np.percentile(seconds, [50, 90, 99, 100]).tolist(), cpu])
    size = f"{len(requests[0]) / 1000:,.0f} kB"
    show_table(
        f"{chosen.rate:g} requests per second of {chosen.documents} documents × 136 ({size})",
        ["round", "p50", "p90", "p99", "max", "processor time per request"],
        [[str(i), *map(milliseconds, row)] for i, row in enumerate(rows, 1)],
    )
    best = min(rows, key=lambda row: row[2])
    text = f"{milliseconds(best[2])} (median {milliseconds(best[0])})"
    bars = [Bar(f"p99 at most {milliseconds(MOST)}, best round", text, best[2] <= MOST)]
    show_bars(bars)
    save(chosen.json, {"rounds": rows, "requests": count}, bars)


if __name__ == "__main__":
    main()
