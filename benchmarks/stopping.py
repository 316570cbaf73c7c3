"""Which iteration to keep: rules that select one by validation, judged on test queries.

    python benchmarks/stopping.py MQ2008 OHSUMED built-in --out results

Models train to the end, and their scores after every evaluation are kept in --out, so that the
script continues where it was interrupted. Early stopping is then simulated, and each rule selects
an iteration from 20, 50 or all validation queries. The tables show what the selected models have
on the test queries, compared with the best iteration: singly, and as an ensemble in which each
model is at its own iteration.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import console, describe_environment, parser, save, show_table
from quality import BUILT_IN_QUERIES, open_source
from twinrank import BoostedRanker, Lists, Ranker
from twinrank.evaluation.evaluate import evaluate
from twinrank.experiments.study.study_source import Source
from twinrank.support.files import replacing
from twinrank.support.quantities import counted
from twinrank.training import Callback

MEASURES = ("nDCG@5", "nDCG@10", "AP")  # the first one selects
MODELS = 5
QUERIES = (20, 50, None)  # validation queries that select
LEARNERS: dict[str, tuple[Callable[[], Any], int]] = {
    "trees": (
        lambda: BoostedRanker(
            ensemble_size=MODELS, n_estimators=400, early_stopping=None, validate_every=5
        ),
        50 // 5,
    ),
    "nets": (lambda: Ranker(ensemble_size=MODELS, epochs=40, early_stopping=None), 10),
}
"""A learner, and the evaluations without improvement after which early stopping ends it."""


def within(errors: float, share: float) -> Callable[[Any], int]:
    """Of all iterations within this many standard errors of the best: the last, middle, ….

    The error is that of the difference, paired by query.
    """

    def rule(values: Any) -> int:
        loss = values[_best(values)] - values
        error = np.nanstd(loss, axis=1) / np.sqrt(np.isfinite(loss).sum(axis=1))
        level = np.flatnonzero(np.nanmean(loss, axis=1) < errors * error)
        level = np.union1d(level, [_best(values)])
        return int(np.quantile(level, share, method="nearest"))

    return rule


def smoothed(width: int) -> Callable[[Any], int]:
    """The best iteration of a moving average over `width` evaluations on both sides."""

    def rule(values: Any) -> int:
        curve, window = np.nanmean(values, axis=1), np.ones(2 * width + 1)
        weights = np.convolve(np.ones(curve.size), window, "same")
        return int((np.convolve(curve, window, "same") / weights).argmax())

    return rule


def _best(values: Any) -> int:
    return int(np.nanmean(values, axis=1).argmax())


RULES: dict[str, Callable[[Any], int]] = {
    "the best": _best,
    "the last within ½ standard error": within(0.5, 1),
    "the last within 1 standard error": within(1, 1),
    "the last within 2 standard errors": within(2, 1),
    "the middle within 1 standard error": within(1, 0.5),
    "moving average, ±3": smoothed(3),
    "where training stopped": lambda values: len(values) - 1,
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


def trained(make: Callable[[], Any], source: Source, fold: int, file: Path) -> dict[str, Any]:
    """Scores [evaluation, document, model], labels and list sizes of both sets."""
    if not file.exists():
        sets, keep = source.sets(fold), Scores()
        watched = {name: sets[name] for name in ("validation", "test")}
        make().fit(sets["train"], eval_set=watched, callbacks=[keep])
        arrays = {}
        for name, data in watched.items():
            arrays[name] = np.array(keep.scores[name])
            arrays[f"{name} labels"], arrays[f"{name} sizes"] = data.y, data.lists.sizes
        with replacing(file) as partial, partial.open("wb") as handle:
            np.savez_compressed(handle, **arrays)
    with np.load(file) as arrays:
        return dict(arrays)


def gains(arrays: dict[str, Any], patience: int) -> dict[int | None, Any]:
    """Test values of each rule minus those of the best iteration, by number of queries.

    Their shape is [rule, one model or ensemble, measure, test query].
    """

    def values(name: str, scores: Any) -> Any:
        lists = Lists.from_sizes(arrays[f"{name} sizes"])
        return evaluate(scores, arrays[f"{name} labels"], lists, MEASURES).values

    valid = [
        np.array(
            [values("validation", scores[:, i])[MEASURES[0]] for scores in arrays["validation"]]
        )
        for i in range(MODELS)
    ]
    known = np.flatnonzero(np.isfinite(valid[0][0]))
    drawn = np.random.default_rng(0).permutation(known)
    gained = {}
    for queries in QUERIES:
        seen = [own[:, drawn[:queries]] for own in valid]
        together = _stop(seen, patience)
        rows = []
        for rule in RULES.values():
            single, columns = [], []
            for i, own in enumerate(seen):
                alone = rule(own[: _stop([own], patience)])
                single.append(values("test", arrays["test"][alone][:, i]))
                columns.append(arrays["test"][rule(own[:together])][:, i])
            ensemble = values("test", np.mean(columns, axis=0))
            rows.append([[np.mean([v[m] for v in single], axis=0), ensemble[m]] for m in MEASURES])
        gained[queries] = np.swapaxes(np.array(rows) - rows[0], 1, 2)
    return gained


def _stop(models: Sequence[Any], patience: int) -> int:
    """The number of evaluations before early stopping: no model has improved for a while."""
    curves = [np.nanmean(values, axis=1) for values in models]
    for i in range(len(curves[0])):
        if i - max(int(curve[: i + 1].argmax()) for curve in curves) >= patience:
            return i + 1
    return len(curves[0])


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", help="folders with folds, files, or 'built-in'")
    options.add_argument("--out", type=Path, required=True, help="keeps every training")
    options.add_argument("--learners", default="trees,nets", help="trees, nets or both")
    options.add_argument("--folds", type=int, help="the first folds of each set only")
    given = options.parse_args()
    console.print(describe_environment())
    given.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for learner in given.learners.split(","):
        make, patience = LEARNERS[learner]
        results = []
        for path in given.data:
            source = open_source(path, BUILT_IN_QUERIES)
            for fold in source.check()[: given.folds]:
                name = f"{learner}_{source.name.replace(' ', '-')}_{fold}.npz"
                results.append(gains(trained(make, source, fold, given.out / name), patience))
                console.print(f"{learner}, {source.name}, fold {fold}")
        for queries in QUERIES:
            every = np.concatenate([own[queries] for own in results], axis=-1)
            mean = np.nanmean(every, axis=-1)
            error = np.nanstd(every, axis=-1) / np.sqrt(np.isfinite(every).sum(axis=-1))
            rows = [
                [name, *(f"{m * 1e4:+.0f} ± {e * 1e4:.0f}" for m, e in zip(*pair, strict=True))]
                for name, *pair in zip(
                    RULES, mean.reshape(len(RULES), -1), error.reshape(len(RULES), -1), strict=True
                )
            ]
            chosen = "all" if queries is None else f"{queries} of the"
            folds = counted(len(results), "fold")
            title = f"{learner}, {folds}, selected by {chosen} validation queries (in 0.0001)"
            kinds = ("single model", f"{MODELS} models")
            head = [f"{m}, {kind}" for kind in kinds for m in MEASURES]
            show_table(title, ["rule", *head], rows)
            figures[f"{learner}, {queries or 'all'}"] = dict(zip(RULES, mean.tolist(), strict=True))
    save(given.json, figures)


if __name__ == "__main__":
    main()
