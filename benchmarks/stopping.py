"""When to stop: rules that select an iteration, judged on test queries.

    python benchmarks/stopping.py MQ2008 OHSUMED

Models train to the end. Each rule selects an iteration from the validation queries, and the tables
show what the selected models have on the test queries: singly, and as an ensemble in which each
model is at its own iteration. `--queries 50` selects with fewer validation queries.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from common import console, describe_environment, parser, save, show_table
from twinrank import BoostedRanker, Ranker
from twinrank.evaluation.evaluate import evaluate
from twinrank.study.source import Source
from twinrank.training import Callback

MEASURE = "nDCG@5"
MODELS = 4
LEARNERS: dict[str, Callable[[], Any]] = {
    "trees": lambda: BoostedRanker(
        ensemble_size=MODELS, n_estimators=300, early_stopping=None, validate_every=10
    ),
    "nets": lambda: Ranker(ensemble_size=MODELS, epochs=40, early_stopping=None),
}


def best(values: Any) -> int:
    """The iteration with the best mean: the rule in use."""
    return int(np.nanmean(values, axis=1).argmax())


def smoothed(width: int) -> Callable[[Any], int]:
    """The best iteration of a moving average over `width` iterations on both sides."""

    def rule(values: Any) -> int:
        curve, window = np.nanmean(values, axis=1), np.ones(2 * width + 1)
        weights = np.convolve(np.ones(curve.size), window, "same")
        return int((np.convolve(curve, window, "same") / weights).argmax())

    return rule


def plateau(share: float) -> Callable[[Any], int]:
    """The middle of all iterations within a share of a standard error of the best, by query."""

    def rule(values: Any) -> int:
        loss = values[best(values)] - values
        error = np.nanstd(loss, axis=1) / np.sqrt(np.isfinite(loss).sum(axis=1))
        return int(np.median(np.flatnonzero(np.nanmean(loss, axis=1) <= share * error)))

    return rule


RULES: dict[str, Callable[[Any], int]] = {
    "the best iteration": best,
    "moving average, ±1": smoothed(1),
    "moving average, ±3": smoothed(3),
    "middle of the plateau, ¼ standard error": plateau(0.25),
    "middle of the plateau, ½ standard error": plateau(0.5),
    "the last iteration": lambda values: len(values) - 1,
}


class Scores(Callback):
    """Keeps the scores of every model after every evaluation."""

    def __init__(self) -> None:
        self.scores: dict[str, list[Any]] = {"validation": [], "test": []}

    def on_iteration_end(self, trainer: Any, record: dict[str, Any]) -> None:
        """Keep the scores of both sets."""
        if "validation" in record:
            for name, kept in self.scores.items():
                kept.append(np.array(trainer.learner.scores(name), np.float32))


def gains(make: Callable[[], Any], source: Source, fold: int, queries: int | None) -> Any:
    """The test value of each rule minus that of the best iteration: [rules, (one, ensemble)]."""
    sets, keep = source.sets(fold), Scores()
    watched = {name: sets[name] for name in ("validation", "test")}
    make().fit(sets["train"], eval_set=watched, callbacks=[keep])
    valid, test = watched.values()
    by_model = [
        np.array([_values(scores[:, model], valid) for scores in keep.scores["validation"]])
        for model in range(MODELS)
    ]
    rows = []
    for rule in RULES.values():
        chosen = [rule(values[:, :queries]) for values in by_model]
        columns = [keep.scores["test"][i][:, model] for model, i in enumerate(chosen)]
        single = fmean(float(np.nanmean(_values(column, test))) for column in columns)
        rows.append([single, float(np.nanmean(_values(np.mean(columns, axis=0), test)))])
    return np.array(rows) - rows[0]


def _values(scores: Any, data: Any) -> Any:
    return evaluate(scores, data.y, data.lists, [MEASURE]).values[MEASURE]


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds, or files")
    options.add_argument("--folds", type=int, help="the first folds of each set only")
    options.add_argument("--queries", type=int, help="validation queries that select (all)")
    given = options.parse_args()
    console.print(describe_environment())
    figures: dict[str, Any] = {}
    for learner, make in LEARNERS.items():
        results = []
        for path in given.data:
            source = Source.of(path, {})
            for fold in source.check()[: given.folds]:
                results.append(gains(make, source, fold, given.queries))
                console.print(f"{learner}, {source.name}, fold {fold}")
        mean = np.mean(results, axis=0)
        error = np.std(results, axis=0) / np.sqrt(len(results))
        rows = [
            [name, *(f"{m:+.4f} ± {e:.4f}" for m, e in zip(mean[i], error[i], strict=True))]
            for i, name in enumerate(RULES)
        ]
        title = f"{learner}: test {MEASURE} minus that of the best iteration, {len(results)} folds"
        show_table(title, ["rule", "one model", f"ensemble of {MODELS}"], rows)
        figures[learner] = {name: mean[i].tolist() for i, name in enumerate(RULES)}
    save(given.json, figures)


if __name__ == "__main__":
    main()
