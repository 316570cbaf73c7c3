"""What it costs to score each document alone: the default trees, raw features, and distillation.

    python benchmarks/per_document.py MQ2008 OHSUMED MSLR-5k-rows.txt --out results

DATA are folders with folds, or files, which are cut into five folds. Every training is kept in
--out, so that the same command continues. The table shows the differences from `BoostedRanker()`
over all test queries, each the mean over the seeds, with 95 % intervals and the Wilcoxon test.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import twinrank as tr
from common import console, describe_environment, parser, show_table
from twinrank.evaluation.significance import p_value

MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP")
DEFAULT, RAW, DISTILLED, CROSS = "BoostedRanker()", "per-document", "distilled", "distilled, cv=3"


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds, or files")
    options.add_argument("--out", type=Path, required=True, help="keeps every training")
    options.add_argument("--folds", type=int, help="the first folds of each set only")
    options.add_argument("--seeds", type=int, default=1, help="trainings of each fold")
    given = options.parse_args()
    console.print(describe_environment())
    given.out.mkdir(parents=True, exist_ok=True)
    records: dict[str, list[dict[str, Any]]] = {}
    for path in given.data:
        folds = tr.load_folds(path) if path.is_dir() else tr.load(path).folds()
        for number, fold in enumerate(list(folds)[: given.folds], start=1):
            runs = [run(given.out, path.stem, number, seed, fold) for seed in range(given.seeds)]
            for name in runs[0]:
                own = {
                    key: np.mean([each[name][key] for each in runs], axis=0)
                    for key in runs[0][name]
                }
                records.setdefault(name, []).append({**own, "set": path.stem})
    show(records)


def run(out: Path, name: str, number: int, seed: int, fold: Any) -> dict[str, Any]:
    """The rankers of a fold and a seed, from the file that keeps them."""
    kept = out / f"{name}-{number}-{seed}.json"
    if not kept.exists():
        found = dict(trained(*fold, seed))
        kept.write_text(json.dumps(found))
        console.print(f"{name}, fold {number}, seed {seed}: {found[CROSS]['seconds']:.0f} s")
    read: dict[str, Any] = json.loads(kept.read_text())
    return read


def trained(
    train: tr.Dataset, valid: tr.Dataset, test: tr.Dataset, seed: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train the four rankers, and evaluate them on the test queries."""
    begin = time.perf_counter()
    teacher = tr.BoostedRanker(random_state=seed).fit(train, eval_set=valid)
    spent = time.perf_counter() - begin
    yield DEFAULT, evaluated(teacher, test, spent)
    begin = time.perf_counter()
    raw = tr.BoostedRanker(mode="per-document", random_state=seed).fit(train, eval_set=valid)
    yield RAW, evaluated(raw, test, time.perf_counter() - begin)
    for name, cv in ((DISTILLED, None), (CROSS, 3)):
        begin = time.perf_counter()
        student = teacher.distill(train, valid, cv=cv, random_state=seed)
        yield name, evaluated(student, test, spent + time.perf_counter() - begin)


def evaluated(ranker: Any, test: tr.Dataset, seconds: float) -> dict[str, Any]:
    scores = ranker.predict(test)
    values = {name: tr.measure(name)(scores, test.y, test.lists).tolist() for name in MEASURES}
    return {"seconds": seconds, **values}


def show(records: dict[str, list[dict[str, Any]]]) -> None:
    def pooled(name: str, measure: str, only: str | None = None) -> np.ndarray:
        chosen = (r[measure] for r in records[name] if only in (None, r["set"]))
        return np.concatenate([np.array(values, float) for values in chosen])

    rows = []
    for name in (RAW, DISTILLED, CROSS):
        cells = []
        for measure in MEASURES:
            gain = pooled(name, measure) - pooled(DEFAULT, measure)
            gain = gain[~np.isnan(gain)]
            half = 1.96 * gain.std(ddof=1) / np.sqrt(gain.size)
            p = p_value(gain, np.zeros_like(gain), "wilcoxon")
            cells.append(f"{gain.mean():+.4f} ± {half:.4f} (p = {p:.1g})")
        rows.append([name, *cells])
    show_table(f"difference from {DEFAULT}, {gain.size:,} queries", ["", *MEASURES], rows)
    sets = list(dict.fromkeys(record["set"] for record in records[DEFAULT]))
    rows = [
        [
            name,
            *(f"{np.nanmean(pooled(name, 'nDCG@5', own)):.4f}" for own in sets),
            f"{np.mean([record['seconds'] for record in records[name]]):.0f}",
        ]
        for name in records
    ]
    show_table("nDCG@5 by set", ["", *sets, "seconds per fit"], rows)


if __name__ == "__main__":
    main()
