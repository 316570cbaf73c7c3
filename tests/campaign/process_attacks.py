"""Attacks by many calls: eight threads, forked and spawned processes, growth of a process."""

import gc
import multiprocessing
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import twinrank as tr

from .harness import attack
from .run_attacks import NEW, TRAIN, rankers

_fitted = {}


def fitted():
    """Every ranker, trained once."""
    if not _fitted:
        _fitted.update(
            {name: ranker.fit(TRAIN, eval_set=NEW) for name, ranker in rankers().items()}
        )
    return _fitted


def gradient(seed):
    """The gradient of a loss for a seed."""
    random = np.random.default_rng(seed)
    scores = torch.from_numpy(random.normal(size=200)).requires_grad_()
    labels = torch.from_numpy(random.integers(0, 4, 200))
    tr.DirectLoss("nDCG", strategy="type3")(
        scores, labels, tr.Lists.from_sizes([120, 80])
    ).backward()
    return scores.grad.numpy()


@attack("processes: eight threads at once")
def eight_threads(random, folder):
    """Predictions, losses, loads and fits at once: the same bits as one after another."""
    models = fitted()
    folders = {}
    for name, ranker in models.items():
        ranker.save(folder / name)
        folders[name] = folder / name
    expected = {name: ranker.predict(NEW) for name, ranker in models.items()}

    def work(seed):
        own = np.random.default_rng(seed)
        name = list(models)[own.integers(len(models))]
        match own.integers(4):
            case 0:
                return np.array_equal(models[name].predict(NEW), expected[name])
            case 1:
                return np.array_equal(
                    type(models[name]).load(folders[name]).predict(NEW), expected[name]
                )
            case 2 if name in ("lightgbm", "xgboost"):
                again = rankers()[name].fit(TRAIN, eval_set=NEW)
                return np.array_equal(again.predict(NEW), expected[name])
            case _:
                return np.array_equal(gradient(seed), gradient(seed))

    with ThreadPoolExecutor(8) as pool:
        while True:
            seeds = random.integers(0, 2**31, 32).tolist()
            assert all(pool.map(work, seeds)), seeds
            yield


def child_scores(folder, queue):
    """In a new process: the scores of a saved model."""
    from twinrank.learning.estimators.saved_ranker import load_model

    torch.set_num_threads(1)
    queue.put(load_model(folder).predict(NEW).tobytes())


@attack("processes: fork and spawn")
def children(random, folder):
    """A forked or spawned process gives the same scores."""
    models = fitted()
    while True:
        name = list(models)[random.integers(len(models))]
        expected = models[name].predict(NEW)
        place = folder / name
        models[name].save(place)
        context = multiprocessing.get_context("spawn" if random.random() < 0.2 else "fork")
        queue = context.Queue()
        process = context.Process(target=child_scores, args=(place, queue))
        process.start()
        assert queue.get(timeout=120) == expected.tobytes(), name
        process.join(60)
        assert process.exitcode == 0
        yield


def usage():
    """Resident bytes, threads and open files of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        pages * resource.getpagesize(),
        threading.active_count(),
        len(list(Path("/proc/self/fd").iterdir())),
    )


@attack("processes: growth")
def growth(random, folder):
    """2,000 predictions and 200 fits of a kind: memory, threads and open files stay."""
    names = ["net", "lightgbm", "xgboost"]
    name = names[random.integers(len(names))]
    ranker = rankers()[name].set_params(
        ensemble_size=1, **({"epochs": 1} if name == "net" else {"n_estimators": 3})
    )
    ranker.fit(TRAIN)
    for _ in range(300):
        ranker.predict(NEW)
    for _ in range(20):
        ranker.fit(TRAIN)
    before = usage()
    for _ in range(2000):
        ranker.predict(NEW)
    between = usage()
    for _ in range(200):
        ranker.fit(TRAIN)
    after = usage()
    assert between[0] - before[0] < 30e6, (name, before, between)
    assert after[0] - between[0] < 60e6, (name, between, after)
    assert after[1:] == between[1:] == before[1:], (name, before, between, after)
    yield
