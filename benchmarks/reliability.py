"""The cost of checks and flushes: loading models and cached data, and saving checkpoints.

Every row compares the whole operation with the same one without the added work, in turn.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

import twinrank as tr
from twinrank.data import store
from twinrank.learning.models import saved_model
from twinrank.learning.training import checkpoints

ROUNDS = 15


@contextmanager
def unchecked() -> Iterator[None]:
    """No checksums, and no check of trees."""
    from twinrank.learning.boosting import lightgbm_engine

    def features(header: str, trees: list[str], name: str) -> int:  # noqa: ARG001
        return int(header.partition("max_feature_idx=")[2].partition("\n")[0]) + 1

    with (
        patch.object(saved_model, "checksum", Same()),
        patch.object(saved_model, "check_seal", lambda *_: None),
        patch.object(lightgbm_engine, "check_lightgbm", features),
    ):
        yield


@contextmanager
def unflushed() -> Iterator[None]:
    """Files are renamed without being flushed."""
    with patch.object(os, "fsync", lambda _: None):
        yield


def compared(name: str, call: Callable[[], Any], without: Callable[[], Any]) -> None:
    """Print the least and the median time of a call, with and without the added work."""
    times: dict[bool, list[float]] = {True: [], False: []}
    call()
    for _ in range(ROUNDS):
        for added in (True, False):
            begun = perf_counter()
            if added:
                call()
            else:
                with without():
                    begun = perf_counter()
                    call()
            times[added].append(1e3 * (perf_counter() - begun))
    least, middle = ([f(times[added]) for added in (True, False)] for f in (min, median))
    print(
        f"| {name} | {least[1]:.2f} ms | {least[0]:.2f} ms | {least[0] - least[1]:+.2f} ms | "
        f"{middle[0] - middle[1]:+.2f} ms |",
        flush=True,
    )


def main() -> None:
    """Print a Markdown table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("| operation | before | now | least | median |\n|---|---:|---:|---:|---:|")
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TWINRANK_CACHE_DIR"] = f"{folder}/cache"
        for documents in (20_000, 1_000_000):
            X = random.normal(size=(documents, 8)).astype(np.float32)
            labels = random.integers(0, 5, documents)
            data = tr.Dataset.from_arrays(X, labels, group=[100] * (documents // 100))
            path = Path(folder, f"{documents}.parquet")
            data.save(path)
            compared(
                f"load cached data, {documents:,} documents",
                lambda path=path: tr.load(path),  # type: ignore[misc]
                lambda: patch.object(store, "checksum", Same()),
            )
        small = data.select(range(20))
        for name, ranker in (
            ("a default net", tr.Ranker(epochs=1)),
            ("a net of 13 MB", tr.Ranker(architecture="MLP(width=1024, depth=4)", epochs=1)),
            ("500 trees, 0.9 MB", tr.BoostedRanker(n_estimators=100, n_jobs=1)),
        ):
            ranker.set_params(ensemble_size=1 if "13" in name else 5).fit(small)
            place = Path(folder, "model")
            ranker.save(place)
            compared(
                f"load {name}",
                lambda place=place: saved_model.read_model(place),  # type: ignore[misc]
                unchecked,
            )
            compared(
                f"save {name}",
                lambda place=place, ranker=ranker: ranker.save(place),  # type: ignore[misc]
                unflushed,
            )
        train_with_checkpoints(folder)


class Same:
    """A checksum that equals any other."""

    def __call__(self, _: Any) -> "Same":
        """Return the checksum of anything."""
        return self

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def train_with_checkpoints(folder: str) -> None:
    """Checkpoints of a net and of trees, each written with and without a flush."""
    data = tr.synthetic_web_search(queries=100)
    original = checkpoints.save_checkpoint
    for name, ranker in (
        ("a net", tr.Ranker(epochs=2)),
        ("trees", tr.BoostedRanker(n_estimators=60, n_jobs=1)),
    ):
        done: list[str] = []

        def measured(trainer: Any, path: Path, name: str = name, done: list[str] = done) -> None:
            original(trainer, path)
            if len(done) == 1:
                compared(f"checkpoint of {name}", lambda: original(trainer, path), unflushed)
            done.append(name)

        with patch.object(checkpoints, "save_checkpoint", measured):
            ranker.fit(data, run=Path(folder, f"run {name}"))


if __name__ == "__main__":
    main()
