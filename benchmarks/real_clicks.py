"""A real log: hotel searches, some of them in random order.

    python benchmarks/real_clicks.py expedia.csv

The file is the training data of the Expedia competition (personalised sort), or a part of it. Each
search is a query of its own, because prices and dates differ. Propensities and rankers are learned
from the searches in the site's order, and judged on those in random order, where no position is
preferred. Every search in the file has a click, so propensities are ratios, conditional on a click.
Click likelihood and the quality of rankings are separate: a model may predict clicks well because
it knows positions, and rank no better.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import twinrank as tr
from common import show_table
from twinrank.experiments.study.units import one_thread

NOT_FEATURES = {
    *("srch_id", "date_time", "prop_id", "position", "random_bool", "click_bool", "booking_bool"),
    *("gross_bookings_usd", "srch_destination_id", "site_id", "visitor_location_country_id"),
    "prop_country_id",
}
SHOWN = (1, 2, 3, 4, 10, 20)
POSITIONS = 4  # that have enough clicks to be compared one by one
MEASURE = "nDCG(gain=linear)@10"
OBJECTIVE = "DCG(gain=linear)@10"
SEEDS = 5


def read(path: Path) -> tuple[dict[str, tr.ClickLog], Any]:
    """Logs of the searches in the site's order and in random order, and the frame of the latter.

    "same hotel" is the site's order with destinations as queries: it assumes that a hotel is as
    relevant in all searches for a destination.
    """
    frame = pl.read_csv(path, null_values=["NULL", ""], infer_schema_length=None)
    names = [name for name in frame.columns if name not in NOT_FEATURES]
    frame = frame.with_columns(pl.col(names).cast(pl.Float64).fill_null(-1.0))
    parts = [frame.filter(pl.col("random_bool") == kind) for kind in (0, 1)]
    columns = {"impression": "srch_id", "docid": "prop_id", "clicked": "click_bool"}
    ordered, random = (
        tr.ClickLog.from_frame(part, query="srch_id", **columns, features=names,
                               randomised="random_bool")
        for part in parts
    )  # fmt: skip
    same = tr.ClickLog.from_frame(parts[0], query="srch_destination_id", **columns)
    return {"ordered": ordered, "random": random, "same hotel": same}, parts[1]


def text_of(found: tr.Propensities) -> list[str]:
    """The propensities at some positions as ratios to the first, with their intervals."""
    pairs = found.intervals or [None] * len(found)
    cells = []
    for k in SHOWN:
        if k > len(found):
            cells.append("")
            continue
        pair, scale = pairs[k - 1], found.values[0]
        interval = "" if pair is None else f" [{pair[0] / scale:.2f}, {pair[1] / scale:.2f}]"
        cells.append(f"{found.values[k - 1] / scale:.2f}{interval}")
    return cells


def propensities(logs: dict[str, tr.ClickLog]) -> dict[str, tr.Propensities]:
    """Estimates from random order, and what is possible from the site's order."""
    options: dict[str, tuple[str, str, dict[str, Any]]] = {
        "random order, counted": ("random", "random", {"positions": POSITIONS}),
        "random order, power law": ("random", "random", {"curve": "power"}),
        "site's order, same hotel": ("same hotel", "pairs", {"positions": POSITIONS}),
        "site's order, same hotel, power law": ("same hotel", "pairs", {"curve": "power"}),
        "site's order, EM": ("ordered", "em", {}),
        f"site's order, EM, {POSITIONS} positions": ("ordered", "em", {"positions": POSITIONS}),
    }
    found = {}
    for name, (log, method, more) in options.items():
        try:
            found[name] = tr.estimate_propensities(logs[log], method, **more)
        except tr.InputError as error:
            print(f"{name}: {error}")
    return found


def power_law(found: tr.Propensities, positions: int) -> tr.Propensities:
    """The power law of an estimate at all positions."""
    eta = -np.log2(found.values[1] / found.values[0])
    return tr.Propensities(np.arange(1, positions + 1) ** -eta, f"η = {eta:.2f}")


def log_likelihood(log: tr.ClickLog, weights: Any) -> Any:
    """Per impression: the log of the share of the weights that is on the clicks."""
    total = np.bincount(log.impression, weights)[log.impression]
    rows = np.where(log.clicked, np.log(weights / total), 0)
    return np.bincount(log.impression, rows) / np.bincount(log.impression, log.clicked)


def interval(values: Any) -> str:
    """A mean and half of its 95 % interval."""
    return f"{values.mean():.4f} ± {1.96 * values.std(ddof=1) / np.sqrt(values.size):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("log", type=Path, help="the CSV file")
    options = parser.parse_args()
    with one_thread():
        study(*read(options.log))


def study(logs: dict[str, tr.ClickLog], frame: Any) -> None:
    """Print propensities, the likelihood of clicks and the quality of rankings."""
    ordered, random = logs["ordered"], logs["random"]
    print(f"site's order: {ordered!r}\nrandom order: {random!r}")
    found = propensities(logs)
    columns = ["position", *map(str, SHOWN)]
    rows = [[name, *text_of(own)] for name, own in found.items()]
    show_table("Propensity, as a ratio to position 1", columns, rows)
    depth = max(ordered.positions, random.positions)
    laws = {name: power_law(own, depth) for name, own in found.items() if "power" in name}
    baseline = log_likelihood(random, np.ones(random.position.size))
    rows = [["no bias, η = 0", interval(baseline), ""]]
    for name, own in laws.items():
        mine = log_likelihood(random, own.at(random.position))
        rows.append([f"{name}, {own.method}", interval(mine), interval(mine - baseline)])
    columns = ["propensities", "log-likelihood", "against no bias"]
    show_table("Position of a click, random order", columns, rows)
    data = random.data
    bookings = np.zeros(data.documents)
    bookings[random.document] = frame["booking_bool"].to_numpy()
    chosen: dict[str, dict[str, Any]] = {"naive": {"estimator": "naive"}}
    # The default credits do not correct positions in so short a log with queries shown once.
    clipped = {name: {"propensities": own, "clip": "auto"} for name, own in laws.items()}
    chosen |= {f"ips, {name}": options for name, options in clipped.items()}
    scores = {"chance": [np.zeros(data.documents)] * SEEDS}
    for name, options in chosen.items():
        credits = ordered.to_dataset(**options)
        scores[name] = [
            tr.BoostedRanker(OBJECTIVE, n_estimators=100, num_leaves=7, learning_rate=0.05,
                             n_jobs=1, random_state=seed).fit(credits).predict(data)
            for seed in range(SEEDS)
        ]  # fmt: skip
    values: dict[str, list[Any]] = {}
    for name, own in scores.items():
        values[name] = []
        for labels in (random.per_document(random.clicked), bookings):
            found = [
                tr.evaluate(each, labels, data.lists, [MEASURE], random_state=seed)
                for seed, each in enumerate(own)
            ]
            mean = np.mean([each.values[MEASURE] for each in found], axis=0)
            values[name].append(mean[np.isfinite(mean)])
    rows = [
        [name, *(interval(mine) for mine in own),
         *("" if name in ("chance", "naive") else interval(mine - other)
           for mine, other in zip(own, values["naive"], strict=True))]
        for name, own in values.items()
    ]  # fmt: skip
    columns = ["learned from", "clicks", "bookings", "clicks − naive", "bookings − naive"]
    show_table(f"{MEASURE}, random order", columns, rows)


if __name__ == "__main__":
    main()
