"""Bytes that two workers exchange per round, against a model of the engines' algorithms.

    python benchmarks/cluster.py

Two processes train together on this machine, and the kernel counts the bytes of the loopback
device. Where it is allowed, they run in a network of their own (`unshare --net`), so that no other
program is counted. The bytes of a round are the difference of two trainings with different numbers
of rounds. `docs/cluster.md` extrapolates with the same model.
"""

import multiprocessing
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np

from twinrank import BoostedRanker
from twinrank.learning.boosting.engines import engine, sample_size
from twinrank.learning.distributed.socket_group import SocketGroup, open_hub
from twinrank.learning.distributed.worker import Job, Part, Rows, train_part
from twinrank.learning.training.tree_parameters import tree_settings

ENTRY = 16  # bytes of a bin: a gradient and a hessian in double precision
OWN_NETWORK = "TWINRANK_OWN_NETWORK"
ROUNDS = (5, 25)
CASES = ((50, 31, 1.0), (200, 31, 1.0), (200, 31, 0.5), (200, 63, 0.5))
DOCUMENTS, FEATURES = 10**9, 136


def histogram_bytes(name: str, columns: int, share: float) -> int:
    """The bytes of the histograms of a leaf: LightGBM sends those of the drawn columns only."""
    if name == "lightgbm":
        return sample_size(share, columns) * 255 * ENTRY
    return columns * 256 * ENTRY


def sent_per_round(name: str, histogram: int, leaves: int, workers: int) -> float:
    """The bytes that a worker sends in a round.

    A tree of L leaves needs the histograms of L − 1 leaves: those of the root, and after each split
    but the last of the smaller child; a subtraction gives the other child. LightGBM scatters the
    sums: each worker gets those of its own columns, in W − 1 messages of 1/W of a histogram.
    XGBoost gives all sums to all workers: further W messages of this size.
    """
    messages = workers - 1 if name == "lightgbm" else 2 * workers - 1
    return (leaves - 1) * histogram * messages / workers


def data(queries: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.normal(size=(queries * 20, columns)).astype(np.float32)
    y = np.clip(np.rint(X[:, 0] + X[:, 1] + random.normal(size=len(X))), 0, 4)
    return X, y, np.repeat(np.arange(queries), 20)


def work(rank: int, hub: object, parameters: dict, columns: int) -> None:
    X, y, qid = data(400, columns)
    own = qid % 2 == rank
    part = Part(Rows(X[own], y[own], qid[own]))
    train_part(Job(parameters, {}), part, SocketGroup(rank, 2, hub, "benchmark"))


def loopback() -> int:
    """The bytes that were sent on this machine to itself."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    raise SystemExit("This machine has no loopback device.")


def exchanged(parameters: dict, columns: int) -> int:
    """The bytes of a training with two workers, in both directions, with headers."""
    hub, before = open_hub(), loopback()
    address = ("127.0.0.1", hub.getsockname()[1])
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=work, args=(rank, address if rank else hub, parameters, columns))
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    hub.close()
    return loopback() - before


def measure() -> None:
    print("engine    columns  leaves  share  measured per round  model per round  ratio")
    for name, (columns, leaves, share) in product(("lightgbm", "xgboost"), CASES):
        own = {"num_leaves": leaves, "colsample_bytree": share, "transforms": "none", "n_jobs": 1}
        few = {"min_data_in_leaf": 2} if name == "lightgbm" else {}
        ranker = BoostedRanker(engine=name, ensemble_size=1, engine_params=few, **own)
        totals = [
            exchanged(ranker.set_params(n_estimators=rounds).get_params(), columns)
            for rounds in ROUNDS
        ]
        measured = (totals[1] - totals[0]) / (ROUNDS[1] - ROUNDS[0])
        model = 2 * sent_per_round(name, histogram_bytes(name, columns, share), leaves, 2)
        print(
            f"{name:9} {columns:7} {leaves:7} {share:6} {measured / 1e6:15.2f} MB "
            f"{model / 1e6:13.2f} MB {measured / model:6.2f}",
            flush=True,
        )


def extrapolate() -> None:
    """10⁹ documents with 136 features, each as it is and as a z-score within its query."""
    parameters = BoostedRanker(ensemble_size=1).check_parameters(DOCUMENTS)
    columns, settings = 2 * FEATURES, tree_settings(parameters, ())
    leaves, rounds = settings.num_leaves, int(parameters["n_estimators"])
    print(f"\n{DOCUMENTS:,} documents, {FEATURES} features, {columns} columns, {leaves} leaves,")
    print(f"{rounds} rounds, each with a share of {settings.colsample_bytree} of the columns")
    print("engine    workers  sent per round  sent in all  at 10 Gbit/s      rows   engine")
    for name, workers in product(("lightgbm", "xgboost"), (8, 32, 128)):
        histogram = histogram_bytes(name, columns, settings.colsample_bytree)
        sent, own = sent_per_round(name, histogram, leaves, workers), DOCUMENTS // workers
        memory = engine(name).memory_of(settings, own, 0, columns)
        print(
            f"{name:9} {workers:7} {sent / 1e6:12.0f} MB {sent * rounds / 1e9:9.0f} GB "
            f"{sent * rounds / 1.25e9 / 60:9.1f} min {own * FEATURES * 4 / 1e9:6.0f} GB "
            f"{memory / 1e9:5.0f} GB"
        )


if __name__ == "__main__":
    if OWN_NETWORK not in os.environ:
        script = f"ip link set lo up && exec {sys.executable} {Path(__file__).resolve()}"
        if not subprocess.run(["unshare", "--net", "true"], check=False).returncode:
            environment = {**os.environ, OWN_NETWORK: "1"}
            again = subprocess.run(["unshare", "--net", "sh", "-c", script], env=environment)
            raise SystemExit(again.returncode)
        print("No network of its own: bytes of other programs are counted too.")
    measure()
    extrapolate()
