"""Data and workers for the tests of training on clusters."""

import threading

import numpy as np

import twinrank as tr
from twinrank.learning.distributed.socket_group import SocketGroup, open_hub
from twinrank.learning.distributed.worker import Job, Rows, outcome, result_of
from twinrank.learning.estimators.parameters import saved_parameters

NAMES = ["bm25", "length", "site"]


def queries(count, seed):
    """Features, labels and query ids, and the number of rows of each query."""
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 30, count)
    X = random.normal(size=(sizes.sum(), 3)).astype(np.float32)
    X[:, 2] = random.integers(0, 4, len(X))
    signal = X[:, 0] + np.array([0, 1, 0, 1])[X[:, 2].astype(int)] + random.normal(size=len(X)) / 3
    return X, np.clip(np.rint(signal), 0, 3), np.repeat(np.arange(count), sizes), sizes


def rows(data, kept, weights=None):
    """Some rows of (X, y, qid, …)."""
    X, y, qid = data[:3]
    return Rows(X[kept], y[kept], qid[kept], None if weights is None else weights[kept])


def groups(size):
    """Functions that join a group, one for each of its workers."""
    hub, token = open_hub(), "secret"
    address = ("127.0.0.1", hub.getsockname()[1])
    return [
        lambda rank=rank: SocketGroup(rank, size, address if rank else hub, token)
        for rank in range(size)
    ]


def in_threads(functions):
    """The results or exceptions of functions that run at the same time."""
    results = [None] * len(functions)

    def run(number):
        try:
            results[number] = functions[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a worker hangs"
    return results


def job_of(ranker):
    return Job(ranker.get_params(), saved_parameters(ranker.get_params()))


def train_in_threads(ranker, parts):
    """The model that workers train, each in a thread of its own."""
    own = zip(parts, groups(len(parts)), strict=True)
    tasks = [lambda part=p, group=g: outcome(job_of(ranker), part, group) for p, g in own]
    return result_of(in_threads(tasks))


def fitted(ranker, model):
    """A ranker with a model."""
    ranker = tr.BoostedRanker(**ranker.get_params())
    ranker._adopt(model)
    return ranker


def check_same_quality(local, other, data):
    """The 95 % interval of the difference of nDCG@5, paired by query, lies within ±0.015."""
    lists = tr.Lists.from_sizes(data[3])
    values = [
        tr.evaluate(ranker.predict(data[0], qid=data[2]), data[1], lists, "nDCG@5").values["nDCG@5"]
        for ranker in (local, other)
    ]
    difference = (values[0] - values[1])[~np.isnan(values[0])]
    error = 1.96 * difference.std() / np.sqrt(difference.size)
    assert abs(difference.mean()) + error < 0.015, (difference.mean(), error)
