"""As many documents as MSLR-WEB30K, from files to figures: `python benchmarks/large.py --mslr`.

Every step has a process of its own, and its result is kept in the folder, so that the script
continues where it was interrupted: generate Parquet files, load them, train trees, train LightGBM
with as many rounds and leaves, train one epoch of a net, predict and evaluate.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PARTS = {"train": range(27), "validation": range(27, 28), "test": range(28, 31)}
"""A seed for each part; all have the same number of queries."""
MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP")
Timed = Callable[[Callable[[], Any]], dict[str, float]]


def run(script: str, folder: Path, queries: int, rounds: int, again: bool) -> dict[str, Any]:
    """Run the steps that have no result, each in a new process, and print them all."""
    kept = folder / f"steps-{queries}-{rounds}"
    kept.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in STEPS:
        path = kept / f"{name}.json"
        if again or not path.exists():
            options = ["--step", name, "--folder", folder, "--queries", queries]
            options += ["--rounds", rounds]
            subprocess.run([sys.executable, script, "--mslr", *map(str, options)], check=True)
        results[name] = json.loads(path.read_text())
        show(name, results[name])
    return results


def run_step(chosen: argparse.Namespace, timed: Timed) -> None:
    """One step in this process; its result goes to a file."""
    result = STEPS[chosen.step](chosen, timed)
    kept = chosen.folder / f"steps-{chosen.queries}-{chosen.rounds}"
    (kept / f"{chosen.step}.json").write_text(json.dumps(result))


def show(name: str, result: dict[str, Any]) -> None:
    """A line for a step."""
    values = "".join(f"  {m} {result[m]:.4f}" for m in MEASURES if m in result)
    about = result.get("about", "")
    print(
        f"{name:12} {result['seconds']:8.1f} s  {result['cpu']:8.1f} s of processor  "
        f"peak {result['peak'] / 1e6:7,.0f} MB  {about}{values}",
        flush=True,
    )


def generate(chosen: argparse.Namespace, timed: Timed) -> dict[str, Any]:
    """The built-in data as Parquet, a part for each seed."""
    import polars as pl

    import twinrank as tr

    def write() -> None:
        for name, seeds in PARTS.items():
            (chosen.folder / name).mkdir(parents=True, exist_ok=True)
            for seed in seeds:
                data = tr.synthetic_web_search(chosen.queries // 31, seed)
                columns = dict(zip(data.feature_names or (), data.X.T, strict=True))
                qid = seed * chosen.queries + data.qid.astype(np.int64)
                frame = pl.DataFrame({"qid": qid, "label": data.y, **columns})
                frame.write_parquet(chosen.folder / name / f"part-{seed:02}.parquet")

    return timed(write)


def loaded(chosen: argparse.Namespace, name: str) -> Any:
    """A part of the data, which the cache keeps."""
    import twinrank as tr

    return tr.load(chosen.folder / name)


def load(chosen: argparse.Namespace, timed: Timed) -> dict[str, Any]:
    """Read the files, and write the cache."""
    import polars  # noqa: F401

    import twinrank as tr

    tr.load  # noqa: B018 (imported before the clock starts)
    documents: list[int] = []
    result = timed(lambda: documents.extend(loaded(chosen, name).documents for name in PARTS))
    return {**result, "about": f"{sum(documents):,} documents"}


def trees(chosen: argparse.Namespace, timed: Timed) -> dict[str, Any]:
    """The default trees, with this many rounds."""
    import twinrank as tr

    ranker = tr.BoostedRanker(n_estimators=chosen.rounds, early_stopping=None)
    return fitted(ranker, chosen, timed, "trees")


def net(chosen: argparse.Namespace, timed: Timed) -> dict[str, Any]:
    """One epoch of the default net."""
    import twinrank as tr

    return fitted(tr.Ranker(epochs=1), chosen, timed, "net")


def fitted(ranker: Any, chosen: argparse.Namespace, timed: Timed, name: str) -> dict[str, Any]:
    """Train and save."""
    sets = {part: loaded(chosen, part) for part in ("train", "validation")}
    few = [data.select(slice(0, 20)) for data in sets.values()]
    type(ranker)(**{ranker.iterations_parameter(): 1}).fit(few[0], eval_set=few[1])  # compiles
    result = timed(lambda: ranker.fit(sets["train"], eval_set={"validation": sets["validation"]}))
    ranker.save(chosen.folder / f"model-{name}")
    return result


def lightgbm(chosen: argparse.Namespace, timed: Timed) -> dict[str, Any]:
    """LightGBM with as many rounds and leaves, on the mapped features."""
    from lightgbm import LGBMRanker

    import twinrank as tr

    leaves = tr.load_model(chosen.folder / "model-trees").model_.provenance["resolved"]
    train, valid = loaded(chosen, "train"), loaded(chosen, "validation")
    ranker = LGBMRanker(
        n_estimators=chosen.rounds, num_leaves=leaves["num_leaves"], learning_rate=0.05, verbose=-1
    )

    def fit() -> None:
        ranker.fit(
            train.X,
            train.y,
            group=train.lists.sizes,
            eval_X=valid.X,
            eval_y=valid.y,
            eval_group=[valid.lists.sizes],
            eval_at=[5],
        )

    result = timed(fit)
    ranker.booster_.save_model(chosen.folder / "lightgbm.txt")
    return result


def evaluated(name: str) -> Callable[[argparse.Namespace, Timed], dict[str, Any]]:
    """Predict the test data, and evaluate."""

    def step(chosen: argparse.Namespace, timed: Timed) -> dict[str, Any]:
        import lightgbm as lgb

        import twinrank as tr

        test = loaded(chosen, "test")
        means: dict[str, float] = {}
        if name == "lightgbm":
            booster = lgb.Booster(model_file=chosen.folder / "lightgbm.txt")
        else:
            ranker = tr.load_model(chosen.folder / f"model-{name}")
            ranker.predict(test.select(slice(0, 20)))

        def work() -> None:
            scores = booster.predict(test.X) if name == "lightgbm" else ranker.predict(test)
            result = tr.evaluate(scores, test.y, test.lists, list(MEASURES))
            means.update({measure: float(result[measure]) for measure in MEASURES})

        return {**timed(work), **means}

    return step


STEPS: dict[str, Callable[[argparse.Namespace, Timed], dict[str, Any]]] = {
    "generate": generate,
    "load": load,
    "trees": trees,
    "lightgbm": lightgbm,
    "net": net,
    "test trees": evaluated("trees"),
    "test LightGBM": evaluated("lightgbm"),
    "test net": evaluated("net"),
}
