"""What several members are worth: epochs chosen by half of the validation queries, judged by half.

The best of many epochs is partly luck, of which a single net has more than the mean of five: what
is best in validation can't tell one from the other. So here the validation queries are cut in two,
at random, thirty times: one half chooses the epoch (of trees, the round), the other one judges. No
test labels are read.

    python benchmarks/quality_members.py MQ2008 MQ2007-partial

`one` is the mean of five single trainings; `best of five` the one of them that the choosing half
likes best, as if training had been begun anew several times; `five, one epoch` their mean score, at
the epoch that is best for it; `five, own epochs` the mean score of all at the epoch that is best
for each. Nets are those of the first setting of quality.py, trees have the settings that are
BoostedRanker's defaults.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from twinrank.boosting.session import MODES

import twinrank as tr
from common import console, describe_environment, parser, save, show_table
from quality_methods import MEMBERS, NET_GRID, NETS, NOISE
from twinrank.models.scorer import score_all
from twinrank.study.scheduler import cores
from twinrank.study.source import Source
from twinrank.study.units import one_thread
from twinrank.training.callbacks import Callback
from twinrank.training.loop import Trainer

Array = npt.NDArray[Any]
Trainings = Mapping[str, tuple[Any, ...]]  # by name: a function, and what it is given
VALIDATION = "nDCG@5"
EPOCHS, ROUNDS, EVERY, HALVES = 40, 180, 3, 30
WAYS = ("one", "best of five", "five, one epoch", "five, own epochs")


class Keep(Callback):
    """Keeps the scores of a dataset after each epoch."""

    def __init__(self, data: tr.Dataset) -> None:
        self.data, self.scores = data, list[Array]()

    def on_epoch(self, trainer: Trainer, _: dict[str, Any]) -> None:
        """Score it."""
        self.scores.append(score_all(trainer.scorer, self.data, trainer.transform, 12_000))


def of_net(train: tr.Dataset, data: tr.Dataset, name: str, seed: int, epochs: int) -> Array:
    """The scores of `data` after every epoch, [epochs, documents]."""
    measure, way = name.split("-")
    given = {**NETS, **NET_GRID[0], **NOISE["τ=2"], "epochs": epochs, "early_stopping": None}
    keep = Keep(data)
    with one_thread():
        ranker = tr.Ranker(measure, way, random_state=seed, **given)
        ranker.fit(train, callbacks=[keep])
    return np.array(keep.scores)


def usual(_: float) -> dict[str, float]:
    """The noise of trees is what it is by default, however far training has come."""
    return {}


def of_trees(
    train: tr.Dataset,
    data: tr.Dataset,
    name: str,
    seed: int,
    rounds: int,
    noise: Callable[[float], Mapping[str, float]] = usual,
) -> Array:
    """The scores of `data` after every third round."""
    measure, way = name.split("-")
    settings: dict[str, Any] = {k: MODES["default"][k] for k in ("num_leaves", "learning_rate")}
    settings |= {"objective": "none", "metric": "None", "num_threads": 1, "verbosity": -1}
    chosen = train.filter(min_relevant=1)
    rows = [
        lgb.Dataset(one.X, np.maximum(one.y, 0), group=one.lists.sizes, params=settings)
        for one in (chosen, data)
    ]
    booster = lgb.Booster(settings, rows[0])
    booster.add_valid(rows[1].set_reference(rows[0]), "validation")
    scores = list[Array]()

    def keep(found: Array, _: Any) -> tuple[str, float, bool]:
        scores.append(np.array(found, np.float32))
        return "kept", 0.0, True

    for number in range(rounds):
        given: Any = noise(number / max(rounds - 1, 1))
        booster.update(fobj=tr.lightgbm_objective(measure, way, random_state=seed, **given))
        if (number + 1) % EVERY == 0:
            booster.eval_valid(keep)
    return np.array(scores)


KINDS: Mapping[str, tuple[Callable[..., Array], int]] = {
    "net": (of_net, EPOCHS),
    "trees": (of_trees, ROUNDS),
}
METHODS = {"net": ("P-type3", "nDCG-type3"), "trees": ("AP-type3", "nDCG-type3")}


def length(whole: int, share: float) -> int:
    """How many epochs or rounds a part of the whole has; at least one that is kept."""
    return max(EVERY, round(whole * share))


def trained(source: str, fold: int, seed: int, kind: str, name: str, share: float) -> Array:
    """One training, in a process of its own."""
    sets = Source.from_text(source).sets(fold)
    function, whole = KINDS[kind]
    return function(sets["train"], sets["validation"], name, seed, length(whole, share))


def judged(scores: Array, data: tr.Dataset, random: np.random.Generator) -> list[float]:
    """What each way is worth, given the scores [members, epochs, documents]."""

    def by_query(one: Array) -> Array:
        return np.asarray(tr.evaluate(one, data.y, data.lists, VALIDATION).values[VALIDATION])

    alone = np.array([[by_query(one) for one in member] for member in scores])
    joint = np.array([by_query(one) for one in scores.mean(axis=0)])
    found = []
    for _ in range(HALVES):
        chooses = random.permutation(data.queries) < data.queries // 2
        chosen_by = np.nanmean(alone[:, :, chooses], axis=2)
        own, best = chosen_by.argmax(axis=1), int(chosen_by.max(axis=1).argmax())
        together = int(np.nanmean(joint[:, chooses], axis=1).argmax())
        kept = [member[epoch] for member, epoch in zip(scores, own, strict=True)]
        of_each = [member[epoch] for member, epoch in zip(alone, own, strict=True)]
        five = joint[together], by_query(np.mean(kept, axis=0))
        values = np.mean(of_each, axis=0), of_each[best], *five
        found.append([float(np.nanmean(one[~chooses])) for one in values])
    return [float(one) for one in np.mean(found, axis=0)]


def worth(
    source: Source, folds: Sequence[int], jobs: int, training: Callable[..., Array], *given: Any
) -> list[float]:
    """What each way is worth for one kind of training, averaged over the folds."""
    calls = [
        delayed(training)(source.to_text(), fold, seed, *given)
        for fold in folds
        for seed in range(MEMBERS)
    ]
    scores = Parallel(n_jobs=jobs, batch_size=1)(calls)
    values = [
        judged(
            np.array(scores[i * MEMBERS : (i + 1) * MEMBERS]),
            source.sets(fold)["validation"],
            np.random.default_rng(fold),
        )
        for i, fold in enumerate(folds)
    ]
    found: list[float] = np.mean(values, axis=0).tolist()
    return found


def members(share: float) -> Trainings:
    """Nets and trees as they are by default."""
    return {
        f"{name}, {kind}": (trained, kind, name, share)
        for kind, names in METHODS.items()
        for name in names
    }


def run(about: str, trainings: Callable[[float], Trainings]) -> None:
    """Show what the ways are worth for each training, on each set of data."""
    options = parser(about.partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds")
    options.add_argument("--jobs", type=int, default=cores(), help="trainings at a time (cores)")
    options.add_argument("--quick", action="store_true", help="one fold, a quarter of the epochs")
    given = options.parse_args()
    console.print(describe_environment())
    found: dict[str, dict[str, list[float]]] = {}
    for path in given.data:
        source, begun = Source.of(path, {}), time.perf_counter()
        folds = source.check()[: 1 if given.quick else None]
        values = found[source.name] = {}
        for name, training in trainings(0.25 if given.quick else 1.0).items():
            values[name] = worth(source, folds, given.jobs, *training)
            spent = time.perf_counter() - begun
            console.print(f"[dim]{source.name}: {name}, {spent:.0f} s[/]")
        rows = [[name, *(f"{value:.4f}" for value in row)] for name, row in values.items()]
        show_table(f"{source.name}: {VALIDATION}, the judging halves", ["", *WAYS], rows)
    save(given.json, found)


if __name__ == "__main__":
    run(__doc__ or "", members)
