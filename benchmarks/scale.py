"""Quality, time and memory by the number of documents: our defaults, LightGBM and CatBoost.

    python benchmarks/scale.py --out results              # 1e4, 1e5 and 1e6 documents; an hour
    python benchmarks/scale.py --out results --methods "BoostedRanker(num_leaves=63)"

Every fit has a process of its own, and its result is kept in --out, so that the script continues
where it was interrupted. A method is a row below, or any method of studies with its parameters in
brackets; --set names parameters that brackets cannot hold. Smaller training sets are the first
queries of larger ones. All sizes share validation queries, which select rounds and epochs, and test
queries. Relevance has interactions, so that large models can be better (--data usual: the usual
relevance); the oracle ranks by the relevance before noise. The data identifies the results: if it
changes, they are measured again. After a change of our code, --again repeats a row.

Seconds are those of `fit` after imports and compilation. MB are the peak of private memory in fit
above that before it: without the data, which is mapped from files. "s to it" are the seconds to
the nDCG@10 of LGBMRanker() on the validation queries.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import twinrank as tr
from common import console, describe_environment, parser, save, show_table
from large import timed
from twinrank.data.synthetic import generate
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.significance import p_value
from twinrank.experiments.study.methods import method as method_of
from twinrank.support.files import replacing, write_json
from twinrank.training import Callback

MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP")
TARGET = "nDCG@10"
MEAN_LENGTH = 119.5  # documents per query of the built-in data
TRAIN, VALIDATION, TEST = 0, 1, 2  # seeds
LEAVES = "LightGBM, 255 leaves, rate .05"
PLAIN = "LGBMRanker()"
CATBOOST = "CatBoost(n_estimators=300)"
METHODS = ("BoostedRanker", "Ranker", PLAIN, LEAVES, CATBOOST)

Values = dict[str, Any]


class Curve(Callback):
    """The validation measure after each iteration, and the seconds until then."""

    def __init__(self, data: tr.Dataset) -> None:
        self.data, self.began, self.own = data, time.perf_counter(), 0.0
        self.points: list[tuple[float, float]] = []

    def on_iteration_end(self, trainer: Any, record: dict[str, Any]) -> None:
        """Evaluate; the time that this takes does not count."""
        now = time.perf_counter()
        if trainer is not None and "validation" in record:
            scores = trainer.learner.scores("validation").mean(axis=1)
            value = evaluate(scores, self.data.y, self.data.lists, [TARGET])[TARGET]
            self.points.append((now - self.began - self.own, value))
            self.own += time.perf_counter() - now


def lightgbm_of(name: str, warm: bool) -> Callable[..., Any]:
    """The fit of a row of LightGBM's own."""
    from lightgbm import LGBMRanker, early_stopping

    short = {"n_estimators": 1} if warm else {}
    plain = LGBMRanker(verbose=-1, **short)
    large = LGBMRanker(
        **{"num_leaves": 255, "learning_rate": 0.05, "n_estimators": 300, "verbose": -1, **short}
    )

    def fit(train: tr.Dataset, valid: tr.Dataset, curve: Curve) -> Any:  # noqa: ARG001
        if name == PLAIN:
            return plain.fit(train.X, train.y, group=train.lists.sizes)
        return large.fit(
            train.X,
            train.y,
            group=train.lists.sizes,
            eval_X=valid.X,
            eval_y=valid.y,
            eval_group=[valid.lists.sizes],
            eval_at=[5],
            callbacks=[] if warm else [early_stopping(50, verbose=False)],
        )

    return fit


def ours_of(name: str, parameters: Values, warm: bool) -> Callable[..., Any]:
    """The fit of a method of studies, CatBoost among them."""
    method = method_of(name)
    own = {**method.parameters(), **parameters}
    if warm:
        own[method.estimator.iterations_parameter()] = 1

    def fit(train: tr.Dataset, valid: tr.Dataset, curve: Curve) -> Any:
        ranker = method.estimator(**own)
        return ranker.fit(train, eval_set={"validation": valid}, callbacks=[curve])

    return fit


def fit_one(row: str, parameters: Values, folder: Path, documents: int, test_queries: int) -> None:
    """Fit a method in this process, and write its result."""
    train = tr.load(folder / "train").select(slice(0, queries_of(documents)))
    valid = tr.load(folder / "validation").select(slice(0, validation_queries(documents)))
    plain = row in (PLAIN, LEAVES)

    def fitter(warm: bool) -> Callable[..., Any]:
        return lightgbm_of(row, warm) if plain else ours_of(row, parameters, warm)

    few = train.select(slice(0, 20)), valid.select(slice(0, 20))
    fitter(warm=True)(*few, Curve(few[1]))  # imports and compiled code
    fit = fitter(warm=False)
    curve = Curve(valid)
    models: list[Any] = []
    fitting = timed(lambda: models.append(fit(train, valid, curve)))
    (model,) = models

    def values(data: tr.Dataset) -> Any:
        scores = model.predict(data.X if plain else data)
        return evaluate(scores, data.y, data.lists, MEASURES).values

    begun = time.perf_counter()
    result = values(tr.load(folder / "test").select(slice(0, test_queries)))
    about = {
        "row": row,
        "set": parameters,
        "documents": train.documents,
        "seconds": fitting["seconds"] - curve.own,
        "cpu": fitting["cpu"],
        "added": fitting["peak"],
        "iterations": getattr(model, "best_iteration_", None),
        "validation": float(np.nanmean(values(valid)[TARGET])),
        "prediction": time.perf_counter() - begun,
        "curve": curve.points,
    }
    path = result_path(folder, row, parameters, documents)
    path.parent.mkdir(exist_ok=True)
    with replacing(path.with_suffix(".npz")) as partial, partial.open("wb") as handle:
        np.savez(handle, **result)
    write_json(path, about)


def result_path(folder: Path, row: str, parameters: Values, documents: int) -> Path:
    """The file of a result; the values of test queries are beside it."""
    text = json.dumps([row, parameters, documents], sort_keys=True)
    word = "".join(letter if letter.isalnum() else "-" for letter in row)[:40]
    return folder / "results" / f"{documents}-{word}-{zlib.crc32(text.encode()):08x}.json"


def queries_of(documents: int) -> int:
    """The number of training queries with about this many documents."""
    return max(round(documents / MEAN_LENGTH), 1)


def validation_queries(documents: int) -> int:
    """A fifth of the training queries, between 20 and 1,000."""
    return min(max(queries_of(documents) // 5, 20), 1_000)


def test_queries(documents: int) -> int:
    """10,000 test queries for a million documents, 2,000 for less."""
    return 10_000 if documents >= 1_000_000 else 2_000


def prepared(out: Path, documents: int, tests: int, interactions: bool) -> Path:
    """Generate what is missing of the data; the folder of this version of the data."""
    X, y, _ = generate(64, 0, interactions)
    folder = out / f"built-in-{zlib.crc32(y.tobytes(), zlib.crc32(X.tobytes())):08x}"
    folder.mkdir(parents=True, exist_ok=True)
    needed = {
        "train": (queries_of(documents), TRAIN),
        "validation": (1_000, VALIDATION),
        "test": (tests, TEST),
    }
    for name, (queries, seed) in needed.items():
        place = folder / name
        if not place.exists() or tr.load(place).queries < queries:
            console.print(f"generating {queries:,} queries: {name}")
            tr.synthetic_web_search(queries, seed, interactions).save(place)
    return folder


def show_oracle(folder: Path, tests: int, interactions: bool) -> None:
    """Print the measures of the ranking that knows the relevance without noise."""
    data = tr.load(folder / "test").select(slice(0, tests))
    _, relevance, _ = generate(tests, TEST, interactions, graded=False)
    result = evaluate(relevance, data.y, data.lists, MEASURES)
    text = ", ".join(f"{name} {np.nanmean(result.values[name]):.4f}" for name in MEASURES)
    console.print(f"oracle, which knows the relevance without noise: {text}")


def measure(
    row: str, parameters: Values, folder: Path, documents: int, chosen: argparse.Namespace
) -> Values | None:
    """The result of a fit, in a new process unless it is kept already; None if it failed."""
    path = result_path(folder, row, parameters, documents)
    tests = chosen.test_queries or test_queries(documents)
    if not is_kept(path, tests) or row in chosen.again:
        console.print(f"{documents:,} documents: {row} {text_of(parameters)}")
        job = json.dumps([row, parameters, str(folder), documents, tests])
        done = subprocess.run([sys.executable, __file__, "--fit", job], env=os.environ)
        if done.returncode:
            console.print(f"{row} ended with exit code {done.returncode}", style="red")
            return None
    result: Values = json.loads(path.read_text())
    with np.load(path.with_suffix(".npz")) as values:
        return {**result, "values": {name: values[name][:tests] for name in MEASURES}}


def is_kept(path: Path, tests: int) -> bool:
    """True if there is a result for at least this many test queries."""
    if not path.exists():
        return False
    with np.load(path.with_suffix(".npz")) as values:
        return bool(len(values[TARGET]) >= tests)


def text_of(parameters: Values) -> str:
    """Parameters in words."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items())


def label_of(result: Values) -> str:
    """The name of a row."""
    extra = text_of(result["set"])
    name = result["row"] if result["row"] != CATBOOST else "CatBoost YetiRank, 300 rounds"
    return f"{name} with {extra}" if extra else name


def seconds_to(result: Values, target: Values | None) -> float | None:
    """The seconds until the validation measure is that of LGBMRanker(); None if it never is."""
    if target is None:
        return None
    return next((at for at, value in result["curve"] if value >= target["validation"]), None)


def show_size(documents: int, results: Sequence[Values]) -> None:
    """The table of one size."""
    target = next((result for result in results if result["row"] == PLAIN), None)
    rows = []
    for result in results:
        means = [f"{np.nanmean(result['values'][name]):.4f}" for name in MEASURES]
        reached = seconds_to(result, target)
        rows.append(
            [
                label_of(result),
                *means,
                f"{result['seconds']:,.1f}",
                f"{result['added'] / 1e6:,.0f}",
                "" if reached is None else f"{reached:,.1f}",
            ]
        )
    queries = len(results[0]["values"][TARGET])
    title = f"{documents:,} training documents, {queries:,} test queries"
    show_table(title, ["", *MEASURES, "seconds", "MB", "s to it"], rows)


def show_tests(documents: int, results: Sequence[Values]) -> list[Values]:
    """Each of our rows against the better row of LightGBM and against CatBoost."""
    lightgbm = [result for result in results if result["row"] in (PLAIN, LEAVES)]
    catboost = [result for result in results if result["row"].startswith("CatBoost")]
    ours = [result for result in results if result not in [*lightgbm, *catboost]]
    rows, figures = [], []
    for own in ours:
        for library, others in (("LightGBM", lightgbm), ("CatBoost", catboost)):
            if not others:
                continue
            cells = []
            for name in MEASURES:
                best = max(others, key=lambda other: np.nanmean(other["values"][name]))
                a, b = own["values"][name], best["values"][name]
                gain, p = float(np.nanmean(a - b)), p_value(a, b)
                cells.append(f"{gain:+.4f}, {p:.1g}")
                figures.append({"documents": documents, "row": label_of(own), "measure": name,
                                "against": label_of(best), "gain": gain, "p": p})  # fmt: skip
            rows.append([label_of(own), library, *cells])
    if rows:
        title = "Difference from the best row of each library, and p (Wilcoxon)"
        show_table(title, ["", "against", *MEASURES], rows, texts=2)
    return figures


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, whose value is a Python literal or text."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--out", type=Path, help="keeps the data and every result")
    options.add_argument("--documents", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    options.add_argument("--methods", nargs="+", default=METHODS, help=f"{METHODS}, or others")
    options.add_argument(
        "--data", choices=("interactions", "usual"), default="interactions",
        help="relevance of the built-in data (default: with interactions)",
    )  # fmt: skip
    options.add_argument("--test-queries", type=int, help="10,000 at 1e6 documents, else 2,000")
    options.add_argument("--set", type=setting, nargs="+", default=[], metavar="NAME=VALUE",
                         help="parameters of our rankers")  # fmt: skip
    options.add_argument("--again", nargs="+", default=[], metavar="METHOD", help="repeat these")
    options.add_argument("--fit", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.fit:
        row, parameters, folder, documents, tests = json.loads(chosen.fit)
        fit_one(row, parameters, Path(folder), documents, tests)
        return
    if chosen.out is None:
        options.error("--out is needed")
    console.print(describe_environment())
    sizes = sorted(int(size) for size in chosen.documents)
    tests = chosen.test_queries or max(map(test_queries, sizes))
    folder = prepared(chosen.out, sizes[-1], tests, chosen.data == "interactions")
    show_oracle(folder, tests, chosen.data == "interactions")
    figures: list[Values] = []
    rows: list[Values] = []
    for documents in sizes:
        results = []
        for row in chosen.methods:
            own = row not in (PLAIN, LEAVES) and not row.startswith("CatBoost")
            parameters = dict(chosen.set) if own else {}
            result = measure(row, parameters, folder, documents, chosen)
            if result is not None:
                results.append(result)
        if not results:
            continue
        show_size(documents, results)
        figures += show_tests(documents, results)
        rows += [
            {k: v for k, v in result.items() if k != "values"}
            | {name: float(np.nanmean(result["values"][name])) for name in MEASURES}
            for result in results
        ]
    save(chosen.json, {"rows": rows, "differences": figures})


if __name__ == "__main__":
    main()
