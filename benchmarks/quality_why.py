"""Why nets rank better through one strategy than through another, and what helps them.

`quality.py --nets` says how well each measure and strategy ranks; this looks into the trainings of
its first setting, with noise and without. Then, since no objective here is convex, it tries noise
that fades, and five seeds instead of one: only for these are the test labels read.

    python benchmarks/quality_why.py MQ2008 MQ2007-partial --folds 2

The table of strategies has, of the training data's documents: `start`, the root mean square of
their gradients before training; `kept`, what is left of that after the last epoch; `still`, how
many % have less than a hundredth of `start` then; `stuck`, how many of the relevant ones that are
below a less relevant one; `down`, how many of these descent would lower, before training; `spread`,
the scores' standard deviation in a query; `tied`, % that share their score with another; nDCG@5.
"""

import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

import twinrank as tr
from common import console, describe_environment, parser, save, show_table
from quality_methods import NET_GRID, NETS, NOISE
from twinrank.models.scorer import score_all
from twinrank.study.source import Source
from twinrank.study.units import one_thread
from twinrank.training.callbacks import Callback
from twinrank.training.loop import Trainer
from twinrank.training.net_learner import NetLearner

Array = npt.NDArray[Any]
VALIDATION = "nDCG@5"
WAYS = ("type1", "type2", "type3", "swap")
REMEDIED = ("AP-type3", "nDCG-type3")
FADING: Mapping[str, tuple[float, float, int]] = {
    "τ=2→0 in 40 epochs": (2.0, 0.0, 40),
    "τ=4→1 in 40 epochs": (4.0, 1.0, 40),
    "τ=2→0 in 12 epochs": (2.0, 0.0, 12),  # small data is learnt before 40 epochs are over
}
FIGURES = {"start": 3, "kept": 2, "still": 0, "stuck": 0, "down": 0, "spread": 2, "tied": 0}
FIGURES |= {"epoch": 1, "train": 4, "valid.": 4, "train, last": 4, "valid., last": 4}  # digits


class Fading(Callback):
    """Moves the noise in a line from `first` to `last`, and leaves it there."""

    def __init__(self, first: float, last: float, epochs: int) -> None:
        self.first, self.last, self.epochs = first, last, epochs

    def on_iteration_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Set the noise of the next epoch."""
        loss = cast(tr.DirectLoss, learner_of(trainer).loss)
        passed = min(1.0, record["iteration"] / self.epochs)
        loss.perturbation = self.first + (self.last - self.first) * passed


class Watch(Callback):
    """Look at scores and their gradient before the first epoch and after the last."""

    def on_train_begin(self, trainer: Trainer) -> None:
        """The net is untrained."""
        scores, gradient = scores_and_gradient(trainer)
        data = learner_of(trainer).task.data
        wrong, start = misplaced(scores, data), np.sqrt(np.mean(gradient**2))
        self.figures = {"start": float(start), "down": percent(gradient[wrong] > 0)}

    def on_train_end(self, trainer: Trainer) -> None:
        """The weights are still those of the last epoch."""
        (scores, gradient), start = scores_and_gradient(trainer), self.figures["start"]
        data = learner_of(trainer).task.data
        still = np.abs(gradient) < 0.01 * start
        self.figures |= {
            "kept": float(np.sqrt(np.mean(gradient**2))) / start,
            "still": percent(still),
            "stuck": percent(still[misplaced(scores, data)]),
            "spread": float(np.mean(moments(scores, data.lists)[1])),
            "tied": percent(tied(scores, data.lists)),
            "train, last": tr.evaluate(scores, data.y, data.lists, VALIDATION)[VALIDATION],
        }


def learner_of(trainer: Trainer) -> NetLearner:
    """The net in training."""
    return cast(NetLearner, trainer.learner)


def scores_and_gradient(trainer: Trainer) -> tuple[Array, Array]:
    """The scores of the training data, and the gradient of the sum of its lists' losses."""
    torch.manual_seed(0)  # for ties and noise; every step of a training has its own seed
    learner, data = learner_of(trainer), learner_of(trainer).task.data
    values = score_all(learner.net, data, learner.transform, 12_000)[:, 0].copy()
    scores = torch.from_numpy(values).requires_grad_()
    loss = learner.loss(scores, torch.tensor(data.y), data.lists) * len(data.lists)
    return values, torch.autograd.grad(loss, scores)[0].numpy()


def misplaced(scores: Array, data: tr.Dataset) -> Array:
    """Which relevant documents are below a less relevant one of their query."""
    found, y = np.zeros(data.documents, bool), data.y
    for grade in np.unique(y[y > 0]):
        less = data.lists.max(np.where(y < grade, scores, -np.inf))
        found |= (y == grade) & (scores < data.lists.spread(less))
    return found


def moments(scores: Array, lists: tr.Lists) -> tuple[Array, Array]:
    """Mean and standard deviation of the scores of each query."""
    mean = lists.sum(scores) / lists.sizes
    return mean, np.sqrt(lists.sum((scores - lists.spread(mean)) ** 2) / lists.sizes)


def tied(scores: Array, lists: tr.Lists) -> Array:
    """Which documents have the score of another one of their query."""
    keys = lists.spread(np.arange(len(lists))) + 1j * scores  # a pair as one number
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] > 1)


def percent(which: Array) -> float:
    """The share of what is true; 0 of nothing."""
    return 100 * float(np.mean(which)) if which.size else 0.0


class Fold:
    """The trainings on one fold, each made once."""

    def __init__(self, sets: Mapping[str, tr.Dataset]) -> None:
        self.sets = sets
        self.train = cache(self._train)

    def _train(self, name: str, noise: str, seed: int = 0) -> tuple[Any, dict[str, float]]:
        """The ranker, and the figures of its training."""
        measure, way = name.split("-")
        callbacks: list[Callback] = [watch := Watch()]
        given = {**NETS, **NET_GRID[0], **NOISE.get(noise, NOISE["τ=2"]), "strategy": way}
        if noise in FADING:
            given["perturbation"] = FADING[noise][0]
            callbacks.append(Fading(*FADING[noise]))
        train, sets = self.sets["train"], {"validation": self.sets["validation"]}
        ranker: Any = tr.Ranker(measure, validation_measure=VALIDATION, random_state=seed, **given)
        ranker.fit(train, eval_set=sets, callbacks=callbacks)
        best = {"epoch": ranker.best_iteration_, "train": ranker.score(train)}
        best |= {"valid.": ranker.best_score_, "valid., last": ranker.history_[-1]["validation"]}
        return ranker, watch.figures | best

    def restarts(self, name: str, seeds: Sequence[int], part: str) -> dict[str, Array]:
        """Values by query of the seeds' mean, of the best by validation, of averaged scores."""
        rankers, data = [self.train(name, "τ=2", seed)[0] for seed in seeds], self.sets[part]
        scores = [np.asarray(ranker.predict(data), np.float64) for ranker in rankers]
        sides = [[data.lists.spread(x) for x in moments(one, data.lists)] for one in scores]
        alike = [(x - mean) / (sd + 1e-9) for x, (mean, sd) in zip(scores, sides, strict=True)]
        scores.append(np.mean(alike, axis=0))
        found = [tr.evaluate(one, data.y, data.lists, VALIDATION).values for one in scores]
        *values, averaged = (one[VALIDATION] for one in found)
        best = values[int(np.argmax([ranker.best_score_ for ranker in rankers]))]
        mean = np.mean(values, axis=0)
        return {"mean of seeds": mean, "best by validation": best, "averaged scores": averaged}


def strategies(title: str, folds: Sequence[Fold], measures: Sequence[str]) -> dict[str, Any]:
    """Show what the strategies do to gradients, scores and the fit, averaged over the folds."""
    found, begun = {}, time.perf_counter()
    for measure, way, noise in product(measures, WAYS, ("τ=0", "τ=2")):
        if (measure, way) == ("P", "swap"):
            continue  # a swap changes nothing in the precision of a whole list: no gradient
        seen = [fold.train(f"{measure}-{way}", noise)[1] for fold in folds]
        found[key := f"{measure}-{way} {noise}"] = {f: fmean(s[f] for s in seen) for f in FIGURES}
        console.print(f"[dim]{title}: {key}, {time.perf_counter() - begun:.0f} s[/]")
    rows = [[k, *(f"{v[f]:.{digits}f}" for f, digits in FIGURES.items())] for k, v in found.items()]
    show_table(f"{title}: strategies with seed 0", ["", *FIGURES], rows)
    return found


def fading(title: str, folds: Sequence[Fold], seeds: Sequence[int]) -> dict[str, Any]:
    """Show what noise that fades gives, against noise that stays and none."""
    found, rows, begun = {}, [], time.perf_counter()
    for name, noise in product(REMEDIED, ("τ=2", "τ=0", *FADING)):
        runs = [fold.train(name, noise, seed)[0] for fold in folds for seed in seeds]
        console.print(f"[dim]{title}: {name} {noise}, {time.perf_counter() - begun:.0f} s[/]")
        values = np.reshape([run.best_score_ for run in runs], (len(folds), len(seeds)))
        found[key := f"{name} {noise}"] = values.tolist()
        gain = (values - np.array(found[f"{name} τ=2"])).mean(axis=1)  # of each fold
        error = f" ± {stdev(gain) / len(gain) ** 0.5:.4f}" if len(gain) > 1 else ""
        spread, epoch = values.std(axis=1, ddof=1).mean(), fmean(r.best_iteration_ for r in runs)
        row = [f"{values.mean():.4f}", f"{gain.mean():+.4f}{error}", f"{spread:.4f}"]
        rows.append([key, *row, f"{epoch:.1f}"])
    columns = ["", VALIDATION, "gain over τ=2 ± s.e.", "s.d. of seeds", "best epoch"]
    show_table(f"{title}: noise that fades, {len(seeds)} seeds, validation", columns, rows)
    return found


def restarts(title: str, folds: Sequence[Fold], seeds: Sequence[int]) -> dict[str, Any]:
    """Show what several seeds give, on the queries of all folds."""
    found, rows = {}, []
    for name in REMEDIED:
        sides = []
        for part in ("validation", "test"):
            by_fold = [fold.restarts(name, seeds, part) for fold in folds]
            sides.append({k: np.concatenate([one[k] for one in by_fold]) for k in by_fold[0]})
        for way, values in sides[1].items():
            means = found[f"{name} {way}"] = [float(np.nanmean(side[way])) for side in sides]
            p = tr.p_value(values, sides[1]["mean of seeds"])
            rows.append([f"{name} τ=2, {way}", *(f"{x:.4f}" for x in means), f"{p:.3g}"])
    heading = f"{title}: {VALIDATION} of {len(seeds)} seeds, p against their mean"
    show_table(heading, ["", "validation", "test", "p"], rows)
    return found


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("data", nargs="+", type=Path, help="folders with folds")
    options.add_argument("--folds", type=int, help="how many of them; all unless told")
    options.add_argument("--no-remedies", action="store_true", help="look at strategies only")
    options.add_argument("--quick", action="store_true", help="one fold, two seeds, nDCG alone")
    given = options.parse_args()
    console.width = max(console.width, 130)
    console.print(describe_environment())
    measures = ("nDCG",) if given.quick else ("P", "AP", "nDCG", "nERR@10")
    seeds, found = range(2 if given.quick else 5), dict[str, Any]()
    for path in given.data:
        source = Source.of(path, {})
        folds = [Fold(source.sets(n)) for n in source.check()[: 1 if given.quick else given.folds]]
        with one_thread():
            own = found[source.name] = {"strategies": strategies(source.name, folds, measures)}
            if not given.no_remedies:
                own["fading"] = fading(source.name, folds, seeds[:3])
                own["restarts"] = restarts(source.name, folds, seeds)
    save(given.json, found)


if __name__ == "__main__":
    main()
