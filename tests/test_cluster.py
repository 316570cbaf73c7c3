"""The worker of a cluster, in threads: the model of one machine, and errors without hangs."""

import runpy
import socket
import time
from dataclasses import replace

import numpy as np
import pytest

import twinrank as tr
from cluster_data import NAMES, fitted, groups, in_threads, job_of, queries, rows, train_in_threads
from twinrank.learning.boosting.engines import TreeSettings, sample_size
from twinrank.learning.boosting.newton import Newton
from twinrank.learning.boosting.xgboost_engine import params_of
from twinrank.learning.distributed import socket_group
from twinrank.learning.distributed.worker import Part, Rows, check_available, train_part
from twinrank.learning.training.process_group import ProcessLostError

DATA, VALID = queries(120, 0), queries(60, 1)
X, Y, QID, SIZES = DATA
FIRST = QID < 70
WEIGHTS = 1.0 + QID % 2


def halves(weights=None, sets=True):
    """The parts of two workers; only the first has queries of the second evaluation set."""
    half = VALID[2] < 25
    own = [
        {"validation": rows(VALID, half), "other": rows(VALID, half)},
        {"validation": rows(VALID, ~half), "other": None},
    ]
    return [
        Part(rows(DATA, kept, weights), of if sets else {})
        for kept, of in zip((FIRST, ~FIRST), own, strict=True)
    ]


# Training


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("ensemble_size", [1, 2])
def test_two_workers_take_the_decisions_of_one_machine(engine, ensemble_size):
    ranker = tr.BoostedRanker(
        engine=engine, n_estimators=15, early_stopping=3, ensemble_size=ensemble_size
    )
    model = train_in_threads(ranker, halves(WEIGHTS))
    half, means = VALID[2] < 25, []
    for kept in (half, ~half):  # equal scores are ranked at random, by worker
        scores = fitted(ranker, model).predict(VALID[0][kept], qid=VALID[2][kept])
        lists = tr.Lists.from_qid(VALID[2][kept])
        means.append(tr.evaluate(scores, VALID[1][kept], lists, "nDCG@5")["nDCG@5"])
    assert model.best_score == pytest.approx(np.average(means, weights=[25, 35]), abs=1e-6)
    assert model.history[model.best_iteration - 1]["other"] == pytest.approx(means[0], abs=1e-6)
    assert model.provenance["data"] == {"name": "", "queries": 120, "documents": len(X)}
    local = ranker.fit(X, Y, qid=QID, sample_weight=WEIGHTS, eval_set=VALID[:3])
    assert local.best_score_ == pytest.approx(model.best_score, abs=0.03)


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_a_round_draws_the_columns_of_one_machine(engine):
    """Draws of the engine's own gave other first rounds on a cluster, without good features."""
    ranker = tr.BoostedRanker(
        engine=engine, n_estimators=6, colsample_bytree=0.34, transforms="none", ensemble_size=1
    )
    two = train_in_threads(ranker, halves(sets=False)).trees.booster
    one = ranker.fit(X, Y, qid=QID).booster_
    if engine == "lightgbm":
        roots = [
            [tree["tree_structure"]["split_feature"] for tree in booster.dump_model()["tree_info"]]
            for booster in (two, one)
        ]
    else:
        roots = [[tree[: tree.index("<")] for tree in b.get_dump()] for b in (two, one)]
    assert roots[0] == roots[1]
    assert len(set(roots[0])) > 1


def test_workers_on_an_objective_without_noise_grow_the_trees_of_one_machine():
    """Columns have few values, so that all have the same bins."""
    rough = (np.clip(np.round(X), -1, 2), Y, QID)
    parts = [Part(rows(rough, kept)) for kept in (FIRST, ~FIRST)]
    # On several machines, LightGBM estimates the documents of a leaf from its hessian.
    few = {"min_data_in_bin": 1, "min_data_in_leaf": 1}
    ranker = tr.BoostedRanker("LambdaMART", n_estimators=5, num_leaves=6, engine_params=few)
    model = train_in_threads(ranker, parts)
    local = ranker.fit(*rough[:2], qid=QID)
    np.testing.assert_allclose(
        local.predict(rough[0]), fitted(ranker, model).predict(rough[0]), rtol=1e-3, atol=1e-3
    )


def test_workers_agree_on_the_scale():
    """The hessians of two workers add up to those of one."""
    newton = Newton.of("nDCG", perturbation=0.0, samples=1)
    scores = X[:, 1]
    _, whole = newton(scores, Y, tr.Lists.from_sizes(SIZES))

    def half(kept, join):
        group = join()
        lists = tr.Lists.from_qid(QID[kept])
        own = replace(newton, add_parts=group.add_parts)(scores[kept], Y[kept], lists)[1]
        group.finish()
        group.close()
        return own

    pairs = zip((FIRST, ~FIRST), groups(2), strict=True)
    parts = in_threads([lambda kept=k, join=g: half(kept, join) for k, g in pairs])
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-5)


def test_workers_share_the_codes_of_categories():
    site = np.array(["shop", "news", "wiki", "forum"])[X[:, 2].astype(int)]
    site[FIRST & (site == "wiki")] = "shop"  # the first worker has never seen it
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, :2], columns=NAMES[:2]).assign(site=site)
    ranker = tr.BoostedRanker(n_estimators=3, ensemble_size=1)
    parts = [Part(Rows(frame[kept], Y[kept], QID[kept])) for kept in (FIRST, ~FIRST)]
    model = train_in_threads(ranker, parts)
    local = ranker.fit(frame, Y, qid=QID)
    assert model.encoding.columns == local.model_.encoding.columns
    assert model.feature_names == tuple(NAMES)


def test_weights_of_documents():
    weights = np.where(X[:, 2] == 1, 1.0, 0.05)
    ranker = tr.BoostedRanker(n_estimators=5, ensemble_size=1, transforms="none", num_leaves=4)
    ranker.set_params(colsample_bytree=1.0, samples=50)
    own = halves(weights, sets=False), halves(sets=False)
    two, plain = (fitted(ranker, train_in_threads(ranker, parts)).predict(X) for parts in own)
    one = ranker.fit(X, Y, qid=QID, sample_weight=weights).predict(X)
    assert np.abs(two - one).mean() < 0.3 * np.abs(plain - one).mean()


def test_the_mode_per_document_trains():
    ranker = tr.BoostedRanker(mode="per-document", n_estimators=2, ensemble_size=1)
    assert not train_in_threads(ranker, halves()).per_query


def test_the_paper_leaves_out_short_queries():
    small = {"min_data_in_leaf": 5, "min_sum_hessian_in_leaf": 0.1}
    ranker = tr.BoostedRanker(mode="paper", n_estimators=2, engine_params=small)
    model = train_in_threads(ranker, halves())
    assert model.provenance["data"]["queries"] == (SIZES >= 10).sum()


@pytest.mark.parametrize("features", [3, 5, 46, 137])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_xgboost_draws_as_many_columns_as_elsewhere(share, features):
    settings = TreeSettings(learning_rate=0.1, num_leaves=7, colsample_bytree=share)
    params = params_of(settings, features)
    drawn = int(np.float32(params["colsample_bytree"]) * features)  # as XGBoost rounds
    assert drawn == sample_size(share, features)


def test_objectives_of_the_engines_are_available():
    check_available(tr.BoostedRanker("rank:ndcg", engine="xgboost").check_parameters())


# Errors


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (None, "1 of 2 workers have no rows"),
        (Rows(X[:5], Y[:5] * 0, QID[:5]), "1 of 2 workers have no query"),
        (Rows(X[:5, :2], Y[:5], QID[:5]), "Partitions have different features"),
        (Rows(X[:5], Y[:5] * np.nan, QID[:5]), "label must be a finite number"),
        (Rows(X[:5], Y[:5], QID[:5], -np.ones(5)), "must be finite and not negative"),
    ],
)
def test_data_that_cannot_be_used(first, message):
    with pytest.raises(tr.InputError, match=message):
        train_in_threads(tr.BoostedRanker(n_estimators=2), [Part(first), halves()[1]])


def test_no_query_to_train_on():
    nothing = Part(Rows(X, Y * 0, QID))
    with pytest.raises(tr.InputError, match="Cannot train on any query"):
        train_in_threads(tr.BoostedRanker(n_estimators=2), [nothing, nothing])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"transforms": "Standardise"}, "statistics of all the data"),
        ({"objective": lambda scores, labels, lists: scores.sum()}, "loss of your own"),
    ],
)
def test_what_needs_all_the_data(parameters, message):
    with pytest.raises(tr.InputError, match=message):
        check_available(tr.BoostedRanker(**parameters).check_parameters())


# Lost workers


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("rank", [0, 1])
def test_no_worker_waits_for_a_lost_one(engine, rank, monkeypatch):
    """A worker fails within a round, while the other one is inside the engine."""
    calls = []

    def failing(self, values):
        if self.rank == rank and len(values) == 2 and values[1] == own:
            calls.append(values)
            if len(calls) == 4:
                raise MemoryError("too little memory")
        return socket_group.SocketGroup.all_reduce(self, values)

    own = int((FIRST if not rank else ~FIRST).sum())
    monkeypatch.setattr(socket_group.SocketGroup, "add_parts", failing)
    ranker = tr.BoostedRanker(engine=engine, n_estimators=1000, ensemble_size=1)
    pairs = zip(halves(sets=False), groups(2), strict=True)
    started = time.monotonic()
    results = in_threads(
        [lambda part=p, group=g: train_part(job_of(ranker), part, group()) for p, g in pairs]
    )
    assert time.monotonic() - started < 20
    assert isinstance(results[rank], MemoryError)
    assert isinstance(results[1 - rank], ProcessLostError)


def test_a_lost_worker_interrupts_a_busy_one():
    first, second = in_threads(groups(2))
    losses = []
    first.on_loss = lambda: losses.append(1)
    second.close()
    deadline = time.monotonic() + 10
    while not losses and time.monotonic() < deadline:
        time.sleep(0.05)
    assert losses
    assert first.lost.is_set()
    with pytest.raises(ProcessLostError):
        first.all_gather("a")
    first.close()


@pytest.mark.parametrize("size", [1, 2])
def test_a_worker_that_is_closed_stops(size):
    """Dask cancels no task that runs: closing its group ends it."""
    first = in_threads(groups(size))[0]
    first.close()
    with pytest.raises(ProcessLostError):
        first.all_reduce([0])


def test_messages_and_sums_of_three_workers():
    def talk(join):
        group = join()
        result = group.all_gather("é" * (1 << group.rank)), group.all_reduce([0.1, group.rank])
        group.finish()
        group.close()
        assert not group.lost.is_set()
        return result

    results = in_threads([lambda join=g: talk(join) for g in groups(3)])
    assert results == [(["é", "éé", "éééé"], [0.1 + 0.1 + 0.1, 3.0])] * 3


@pytest.mark.parametrize("message", [b"GET / HTTP/1.1\r\n\r\n", b"1 wrong", b"\xff", b"[" * 1000])
def test_strangers_do_not_join(message):
    joins = groups(2)

    def stranger():
        address = joins[1].__defaults__  # rank
        assert address == (1,)
        hub = joins[1].__closure__[0].cell_contents
        with socket.create_connection(hub) as link:
            link.sendall(len(message).to_bytes(8, "big") + message)
            return link.recv(1)

    def join(number):
        time.sleep(0.5 * number)
        return joins[number]()

    first, answer, second = in_threads([lambda: join(0), stranger, lambda: join(1)])
    assert answer == b""
    assert first.size == second.size == 2
    in_threads([first.finish, second.finish])
    first.close()
    second.close()


def test_a_system_without_an_option_of_linux(monkeypatch):
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    assert runpy.run_path(socket_group.__file__)["SocketGroup"]


def test_a_worker_that_never_starts_is_an_error(monkeypatch):
    monkeypatch.setattr(socket_group, "JOIN_SECONDS", 0.2)
    with pytest.raises(tr.InputError, match=r"The workers \[1\] of 2 did not start within"):
        groups(2)[0]()
