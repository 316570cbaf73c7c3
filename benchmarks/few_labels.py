"""Nets and trees with 10, 30 and 100 % of the labels, with and without unlabelled lists.

    python benchmarks/few_labels.py                         # the built-in data
    python benchmarks/few_labels.py MQ2008 --folds 1,2      # folders with folds
    python benchmarks/few_labels.py MQ2008 --shares 0.1 --out results/mq2008

A share of the training queries and the same share of the validation queries keep their labels.
`pre-trained` nets also see all training lists without labels. `distilled` nets learn from the trees
that were trained on the same labels. Test queries always keep all their labels. Folds and seeds
choose the queries; all methods get the same ones.

The folder `--out` gets one line per training (results.jsonl), a table and a plot. The same command
continues where it was stopped.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import twinrank as tr
from common import console, show_table
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import one_thread
from twinrank.support.plots import COLOURS, drawing

MEASURE = "nDCG@10"
METHODS = ("trees", "net", "net, pre-trained", "net, distilled")
QUERIES = 400  # of the built-in data


def part_of(data: tr.Dataset, share: float, seed: int) -> tr.Dataset:
    """A share of the queries with something relevant; at least two."""
    useful = data.filter(min_documents=2, min_relevant=1)
    share = max(share, 2.5 / useful.queries)
    return useful if share >= 1 else useful.split(share, 1 - share, random_state=seed)[0]


def trained(
    sets: dict[str, tr.Dataset], share: float, seed: int, size: int
) -> dict[str, dict[str, float]]:
    """The value of every method on the test queries, and its seconds."""
    train, validation = (part_of(sets[name], share, seed) for name in ("train", "validation"))
    common: dict[str, Any] = {"ensemble_size": size, "random_state": seed}
    trees = tr.BoostedRanker(n_jobs=1, **common)
    nets = {name: tr.Ranker(**common) for name in METHODS[1:]}
    extra = {METHODS[2]: {"unlabelled": sets["train"]}, METHODS[3]: {"teacher": trees}}
    results = {}
    for name, ranker in {METHODS[0]: trees, **nets}.items():
        began = time.perf_counter()
        with one_thread():
            ranker.fit(train, eval_set=validation, **extra.get(name, {}))
            scores = ranker.predict(sets["test"])
        value = tr.evaluate(scores, sets["test"].y, sets["test"].lists, [MEASURE])[MEASURE]
        seconds = round(time.perf_counter() - began, 2)
        results[name] = {"value": value, "seconds": seconds, "queries": train.queries}
    return results


def table_of(records: list[dict[str, Any]], shares: Sequence[float]) -> list[list[str]]:
    """Rows of a method, its mean at each share, and its seconds with all labels."""
    rows = []
    for name in METHODS:
        cells = []
        for share in shares:
            values, plain = (
                [r["results"][m]["value"] for r in records if r["share"] == share]
                for m in (name, "net")
            )
            cell = f"{mean(values):.4f}"
            if name not in ("net", "trees") and len(values) > 1:
                gains = [a - b for a, b in zip(values, plain, strict=True)]
                cell += f" ({mean(gains):+.4f} ± {stdev(gains) / len(gains) ** 0.5:.4f})"
            cells.append(cell)
        last = [r["results"][name]["seconds"] for r in records if r["share"] == shares[-1]]
        rows.append([name, *cells, f"{mean(last):.1f}"])
    return rows


def draw(records: dict[str, list[dict[str, Any]]], shares: Sequence[float], path: Path) -> None:
    """The curves of every data set."""
    with drawing(path, 1, len(records), (4.5 * len(records), 3.2)) as axes:
        for axis, (data, own) in zip(axes[0], records.items(), strict=True):
            for name, colour in zip(METHODS, COLOURS, strict=False):
                values = [
                    mean(r["results"][name]["value"] for r in own if r["share"] == share)
                    for share in shares
                ]
                axis.plot([100 * s for s in shares], values, "o-", color=colour, label=name)
            axis.set_xscale("log")
            axis.set_xticks([100 * s for s in shares], [f"{s:.0%}" for s in shares])
            axis.minorticks_off()
            axis.set(title=data, xlabel="labels", ylabel=f"mean {MEASURE}")
        axes[0][0].legend()


def main() -> None:
    """Train what is missing, then print the tables and draw the curves."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("data", nargs="*", type=Path, help="folders with folds")
    arguments.add_argument("--folds", default="1,2,3", help="default: 1,2,3")
    arguments.add_argument("--shares", default="0.1,0.3,1", help="default: 0.1,0.3,1")
    arguments.add_argument("--seeds", type=int, default=1, help="per fold; default: 1")
    arguments.add_argument("--ensemble", type=int, default=1, help="models; default: 1")
    arguments.add_argument("--queries", type=int, default=QUERIES, help="of the built-in data")
    arguments.add_argument("--out", type=Path, default=Path("few-labels"))
    chosen = arguments.parse_args()
    shares = [float(share) for share in chosen.shares.split(",")]
    folds = [int(fold) for fold in chosen.folds.split(",")]
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / "results.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    done = {record.pop("key"): record for record in map(json.loads, lines)}
    found: dict[str, list[dict[str, Any]]] = {}
    for path in chosen.data or [None]:
        source = Source.of(path, {}, cut=5, queries=chosen.queries)
        name = "built-in data" if path is None else path.name
        for fold in folds:
            for seed in range(chosen.seeds):
                for share in shares:
                    key = f"{name} {fold} {seed} {share} {chosen.ensemble} {source.queries}"
                    if key not in done:
                        results = trained(source.sets(fold), share, seed, chosen.ensemble)
                        done[key] = {"share": share, "results": results}
                        with file.open("a", encoding="utf-8") as out:
                            out.write(json.dumps({"key": key, **done[key]}) + "\n")
                        values = {m: round(r["value"], 4) for m, r in results.items()}
                        console.print(f"{name}, fold {fold}, seed {seed}, {share:.0%}: {values}")
                    found.setdefault(name, []).append(done[key])
        headings = ["method", *(f"{share:.0%} of the labels" for share in shares), "seconds"]
        show_table(f"{name}: {MEASURE}", headings, table_of(found[name], shares))
    console.print("In brackets: the gain over the net, ± its standard error over folds and seeds.")
    for suffix in (".svg", ".png"):
        draw(found, shares, chosen.out / f"curves{suffix}")


if __name__ == "__main__":
    main()
