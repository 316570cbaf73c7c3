"""The gain of ensembles: half of the validation queries select epochs, the other half evaluates.

The best of many epochs is partly chance, more so for a single net than for the mean of five. The
best validation value therefore cannot compare the two. Here the validation queries are divided at
random into two halves, thirty times. One half selects the epoch (of trees: the round), the other
half evaluates it. Test labels are not read.

    python benchmarks/quality_ensembles.py MQ2008 MQ2007-partial

`one` is the mean of five single models. `best of five` is the best of them, selected like the
epoch. `five, one epoch` is their mean score at the epoch that is best for the mean. `five, own
epochs` is their mean score with each model at its own best epoch. Nets have the first setting of
quality.py, trees the defaults of BoostedRanker.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed

import twinrank as tr
from common import console, describe_environment, parser, save, show_table
from quality_methods import ENSEMBLE_SIZE, NET_GRID, NETS, NOISE
from twinrank.models.scorer import score_all
from twinrank.study.scheduler import cores
from twinrank.study.source import Source
from twinrank.study.units import one_thread
from twinrank.training.callbacks import Callback
from twinrank.training.loop import Trainer
from twinrank.training.settings import DEFAULTS

Array = npt.NDArray[Any]
Trainings = Mapping[str, tuple[Any, ...]]  # by name: a function, and its last arguments
VALIDATION = "nDCG@5"
EPOCHS, ROUNDS, EVERY, HALVES = 40, 180, 3, 30
SELECTIONS = ("one", "best of five", "five, one epoch", "five, own epochs")


class Keep(Callback):
    """Keep the scores of a dataset after each epoch."""

    def __init__(self, data: tr.Dataset) -> None:
        self.data, self.scores = data, list[Array]()

    def on_iteration_end(self, trainer: Trainer, record: dict[str, Any]) -> None:  # noqa: ARG002
        """Score the dataset."""
        learner: Any = trainer.learner
        self.scores.append(score_all(learner.net, self.data, learner.transform, 12_000)[:, 0])


def of_net(train: tr.Dataset, data: tr.Dataset, name: str, seed: int, epochs: int) -> Array:
    """The scores of `data` after every epoch, [epochs, documents]."""
    measure, strategy = name.split("-")
    settings = {**NETS, **NET_GRID[0], **NOISE["τ=2"], "epochs": epochs, "early_stopping": None}
    keep = Keep(data)
    with one_thread():
        ranker = tr.Ranker(measure, strategy, random_state=seed, **settings)
        ranker.fit(train, callbacks=[keep])
    return np.array(keep.scores)


def default_noise(_: float) -> dict[str, float]:
    """The default noise of trees, at any stage of training."""
    return {}


def of_trees(
    train: tr.Dataset,
    data: tr.Dataset,
    name: str,
    seed: int,
    rounds: int,
    noise: Callable[[float], Mapping[str, float]] = default_noise,
) -> Array:
    """The scores of `data` after every third round."""
    measure, strategy = name.split("-")
    defaults = DEFAULTS["trees"]["default"]
    settings: dict[str, Any] = {k: defaults[k] for k in ("num_leaves", "learning_rate")}
    settings |= {"objective": "none", "metric": "None", "num_threads": 1, "verbosity": -1}
    chosen = train.filter(min_relevant=1)
    rows = [
        lgb.Dataset(part.X, np.maximum(part.y, 0), group=part.lists.sizes, params=settings)
        for part in (chosen, data)
    ]
    booster = lgb.Booster(settings, rows[0])
    booster.add_valid(rows[1].set_reference(rows[0]), "validation")
    scores = list[Array]()

    def keep(current: Array, _: Any) -> tuple[str, float, bool]:
        scores.append(np.array(current, np.float32))
        return "kept", 0.0, True

    for number in range(rounds):
        own: Any = noise(number / max(rounds - 1, 1))
        booster.update(fobj=tr.lightgbm_objective(measure, strategy, random_state=seed, **own))
        if (number + 1) % EVERY == 0:
            booster.eval_valid(keep)
    return np.array(scores)


KINDS: Mapping[str, tuple[Callable[..., Array], int]] = {
    "net": (of_net, EPOCHS),
    "trees": (of_trees, ROUNDS),
}
METHODS = {"net": ("P-type3", "nDCG-type3"), "trees": ("AP-type3", "nDCG-type3")}


def length(whole: int, share: float) -> int:
    """A share of all epochs or rounds, with at least one whose scores are kept."""
    return max(EVERY, round(whole * share))


def trained(source: str, fold: int, seed: int, kind: str, name: str, share: float) -> Array:
    """One training, in its own process."""
    sets = Source.from_text(source).sets(fold)
    function, whole = KINDS[kind]
    return function(sets["train"], sets["validation"], name, seed, length(whole, share))


def selected(scores: Array, data: tr.Dataset, random: np.random.Generator) -> list[float]:
    """The value of each selection, from the scores [models, epochs, documents]."""

    def by_query(values: Array) -> Array:
        return np.asarray(tr.evaluate(values, data.y, data.lists, VALIDATION).values[VALIDATION])

    single = np.array([[by_query(epoch) for epoch in model] for model in scores])
    joint = np.array([by_query(epoch) for epoch in scores.mean(axis=0)])
    means = []
    for _ in range(HALVES):
        selects = random.permutation(data.queries) < data.queries // 2
        validation = np.nanmean(single[:, :, selects], axis=2)
        own, best = validation.argmax(axis=1), int(validation.max(axis=1).argmax())
        together = int(np.nanmean(joint[:, selects], axis=1).argmax())
        kept = [model[epoch] for model, epoch in zip(scores, own, strict=True)]
        of_each = [model[epoch] for model, epoch in zip(single, own, strict=True)]
        five = joint[together], by_query(np.mean(kept, axis=0))
        values = np.mean(of_each, axis=0), of_each[best], *five
        means.append([float(np.nanmean(value[~selects])) for value in values])
    return [float(mean) for mean in np.mean(means, axis=0)]


def mean_over_folds(
    source: Source, folds: Sequence[int], jobs: int, training: Callable[..., Array], *options: Any
) -> list[float]:
    """The value of each selection for one kind of training, averaged over the folds."""
    calls = [
        delayed(training)(source.to_text(), fold, seed, *options)
        for fold in folds
        for seed in range(ENSEMBLE_SIZE)
    ]
    scores = Parallel(n_jobs=jobs, batch_size=1)(calls)
    values = [
        selected(
            np.array(scores[i * ENSEMBLE_SIZE : (i + 1) * ENSEMBLE_SIZE]),
            source.sets(fold)["validation"],
            np.random.default_rng(fold),
        )
        for i, fold in enumerate(folds)
    ]
    means: list[float] = np.mean(values, axis=0).tolist()
    return means


def ensembles(share: float) -> Trainings:
    """Nets and trees with their default settings."""
    return {
        f"{name}, {kind}": (trained, kind, name, share)
        for kind, names in METHODS.items()
        for name in names
    }


def run(about: str, trainings: Callable[[float], Trainings]) -> None:
    """Show the value of each selection for each training, on each set of data."""
    options = parser(about.partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds")
    options.add_argument("--jobs", type=int, default=cores(), help="trainings at a time (cores)")
    options.add_argument("--quick", action="store_true", help="one fold, a quarter of the epochs")
    arguments = options.parse_args()
    console.print(describe_environment())
    results: dict[str, dict[str, list[float]]] = {}
    for path in arguments.data:
        source, begun = Source.of(path, {}), time.perf_counter()
        folds = source.check()[: 1 if arguments.quick else None]
        values = results[source.name] = {}
        for name, training in trainings(0.25 if arguments.quick else 1.0).items():
            values[name] = mean_over_folds(source, folds, arguments.jobs, *training)
            spent = time.perf_counter() - begun
            console.print(f"[dim]{source.name}: {name}, {spent:.0f} s[/]")
        rows = [[name, *(f"{value:.4f}" for value in row)] for name, row in values.items()]
        title = f"{source.name}: {VALIDATION} of the evaluating halves"
        show_table(title, ["", *SELECTIONS], rows)
    save(arguments.json, results)


if __name__ == "__main__":
    run(__doc__ or "", ensembles)
