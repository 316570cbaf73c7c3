"""Rankers that learn from simulated clicks, judged by the true grades of test queries.

    python benchmarks/clicks.py                                       # the built-in data
    python benchmarks/clicks.py MQ2008 --impressions 1000,10000,100000 --seeds 0,1,2
    python benchmarks/clicks.py MQ2008 --etas 0.5,2 --shares 0.01,1 --impressions 100000
    python benchmarks/clicks.py MQ2008 --users trust --impressions 100000

The logger is LambdaMART on a share of the training queries (--shares); Gumbel noise on its scores
moves documents between positions (--temperature). Users see position k with probability (1/k)^eta.
With --users trust, they also click irrelevant documents because these are at the top.

`twinrank.experiments.study.click_learners` lists the methods; `net` is a net on the credits of
`ips`, and `net-two-tower` one with a net as its tower. `logger` is the ranker that collected the
log, and `safe` is `known` that stays near it.
`twinrank compare --methods "Clicks(learner=ips); …"` compares them in a study.

All trees have the same number of rounds, leaves and learning rate, and none stops early, because
what to stop on would differ. The file --out gets a line per training. The same command continues
where it was stopped, and prints the means over seeds, folds and test queries.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

import twinrank as tr
from common import console, show_table
from twinrank.experiments.study.click_learners import LEARNERS, ClickSetting, learn
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import one_thread

MEASURE = "nDCG@10"
QUERIES, TEST_QUERIES = 300, 1000  # of the built-in data; it trains on 70 % of the first
OURS = "ips"
METHODS = [*LEARNERS, "net", "net-two-tower", "logger", "safe"]
SAFE = 30


class Setting(NamedTuple):
    """A log to learn from."""

    data: str
    fold: int
    impressions: int
    eta: float
    share: float
    seed: int
    users: str = "position"


def trained(name: str, log: tr.ClickLog, setting: ClickSetting, train: tr.Dataset) -> Any:
    """The ranker of a method."""
    if name == "logger":
        return setting.logger(train)
    if name == "safe":
        known = setting.propensities(log.positions)
        return setting.ranker().fit(log.to_dataset(known, safe=SAFE))
    if name.startswith("net"):
        own = name.removeprefix("net").removeprefix("-") or "ips"
        return learn(own, log, replace(setting, model="net"))
    return learn(name, log, setting)


def values_of(ranker: Any, test: tr.Dataset) -> list[float]:
    """The measure of a ranker for each test query with something relevant."""
    found = tr.evaluate(ranker.predict(test), test.y, test.lists, [MEASURE]).values[MEASURE]
    return [round(float(value), 5) for value in found[np.isfinite(found)]]


def finished(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The lines of earlier runs; a line that was cut off is left out."""
    if not path.exists():
        return {}
    done = {}
    for line in path.read_text("utf-8").splitlines():
        try:
            record = {"users": "position", **json.loads(line)}
            key = tuple(record[name] for name in (*Setting._fields, "method"))
        except (ValueError, KeyError):
            continue
        done[key] = record
    return done


def run(options: argparse.Namespace, settings: Sequence[Setting], out: Path) -> None:
    """Train what is missing, and append a line per training."""
    done = finished(out)
    for setting in settings:
        missing = [name for name in options.methods if (*setting, name) not in done]
        if not missing:
            continue
        if setting.data == "built-in":
            whole = tr.synthetic_web_search(queries=QUERIES + TEST_QUERIES)
            train = whole.select(np.arange(QUERIES)).split(0.7, random_state=0)[0]
            test = whole.select(np.arange(QUERIES, QUERIES + TEST_QUERIES))
        else:
            sets = Source.of(options.data, {}).sets(setting.fold)
            train, test = sets["train"], sets["test"]
        with one_thread():
            own = ClickSetting(
                setting.impressions, setting.eta, setting.share, options.temperature,
                seed=setting.seed, users=setting.users,
            )  # fmt: skip
            log = own.log(train)
            for name in missing:
                began = time.perf_counter()
                values = values_of(trained(name, log, own, train), test)
                record = {
                    **setting._asdict(),
                    "method": name,
                    "value": mean(values),
                    "values": values,
                    "seconds": round(time.perf_counter() - began, 2),
                    "clicks": log.clicks,
                }
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                console.print(f"{setting}: {name} {record['value']:.4f}")


def numbers(text: str, kind: type = float) -> list[Any]:
    """Numbers separated by commas."""
    return [kind(float(part)) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", help="a folder with folds; default: the built-in data")
    parser.add_argument("--folds", default="1", help="folds, separated by commas")
    parser.add_argument("--impressions", default="10000")
    parser.add_argument("--etas", default="1")
    parser.add_argument("--shares", default="0.1", help="share of queries for the logger")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--users", choices=("position", "trust"), default="position")
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--against", default=OURS, help="the method that others are compared with")
    parser.add_argument("--out", type=Path, default=Path("results/clicks.jsonl"))
    options = parser.parse_args()
    options.methods = options.methods.split(",")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    name = "built-in" if options.data is None else Path(options.data).name
    settings = [
        Setting(name, fold, impressions, eta, share, seed, options.users)
        for impressions in numbers(options.impressions, int)
        for eta in numbers(options.etas)
        for share in numbers(options.shares)
        for seed in numbers(options.seeds, int)
        for fold in ([1] if options.data is None else numbers(options.folds, int))
    ]
    run(options, settings, options.out)
    done = finished(options.out)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for key in dict.fromkeys((each.impressions, each.eta, each.share) for each in settings):
        own = [each for each in settings if (each.impressions, each.eta, each.share) == key]
        rows[key] = {name: by_query(done, own, name) for name in options.methods}
    label = ["impressions", "eta", "share"]
    texts = [[f"{key[0]:,}", *map(str, key[1:])] for key in rows]
    show_table(
        f"{MEASURE} on {name}", [*label, *options.methods],
        [[*text, *(f"{own[m].mean():.4f}" for m in options.methods)]
         for text, own in zip(texts, rows.values(), strict=True)],
    )  # fmt: skip
    if (base := options.against) in options.methods:
        others = [m for m in options.methods if m != base]
        show_table(
            f"{base} − each method, with the 95 % interval over test queries", [*label, *others],
            [[*text, *(difference(own[base], own[m]) for m in others)]
             for text, own in zip(texts, rows.values(), strict=True)],
        )  # fmt: skip


def by_query(done: dict[tuple[Any, ...], Any], settings: Sequence[Setting], method: str) -> Any:
    """The values of all test queries, each the mean over seeds."""
    folds: dict[int, list[Any]] = defaultdict(list)
    for setting in settings:
        folds[setting.fold].append(done[(*setting, method)]["values"])
    return np.concatenate([np.mean(values, axis=0) for values in folds.values()])


def difference(a: Any, b: Any) -> str:
    """The mean difference and half of its interval."""
    change = a - b
    half = 1.96 * change.std(ddof=1) / np.sqrt(change.size)
    return f"{change.mean():+.4f} ± {half:.4f}"


if __name__ == "__main__":
    main()
