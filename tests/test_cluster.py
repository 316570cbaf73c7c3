"""`BoostedRanker` on a Dask cluster: the same quality as one process, and no data gathered."""

import os
import signal
import threading
import time
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import twinrank as tr
from twinrank.learning.boosting.engines import TreeSettings, sample_size
from twinrank.learning.boosting.lightgbm_engine import joined_trees
from twinrank.learning.boosting.xgboost_engine import params_of
from twinrank.learning.distributed import dask_engines
from twinrank.learning.distributed.dask_engines import DaskRows
from twinrank.learning.distributed.dask_fit import _Course, _grow_and_stop
from twinrank.learning.distributed.dask_partitions import (
    Partition,
    delayed_rows,
    prepare,
    prepare_evaluation,
    query_in_two,
    summarise,
)
from twinrank.learning.training.learner import TrainingError
from twinrank.support.arrays import is_dask

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

NAMES = ["bm25", "length", "site"]
PARAMETERS = tr.BoostedRanker(transforms="none").check_parameters()


def queries(count, seed):
    """Features, labels and query ids, and the number of rows of each query."""
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 30, count)
    X = random.normal(size=(sizes.sum(), 3)).astype(np.float32)
    X[:, 2] = random.integers(0, 4, len(X))
    signal = X[:, 0] + np.array([0, 1, 0, 1])[X[:, 2].astype(int)] + random.normal(size=len(X)) / 3
    return X, np.clip(np.rint(signal), 0, 3), np.repeat(np.arange(count), sizes), sizes


X, Y, QID, SIZES = queries(240, 0)
CUTS = tuple(np.add.reduceat(SIZES, [0, 50, 130, 200]).tolist())


def arrays(cuts=CUTS):
    """Dask arrays of the same rows."""
    return (
        da.from_array(X, chunks=(cuts, 2)),
        da.from_array(Y, chunks=(cuts,)),
        da.from_array(QID, chunks=(cuts,)),
    )


# Preparation of a partition on a worker


def test_a_partition_holds_trainable_queries():
    qid = np.array([7, 3, 3, 7, 5, 9, 9])  # scattered, 5 alone, 9 without anything relevant
    labels = np.array([1, 0, 2, 0, 1, 0, 0])
    part = prepare((X[:7], labels, qid, None), PARAMETERS)
    assert part.sizes.tolist() == [2, 2]
    assert part.y.tolist() == [1, 0, 0, 2]
    assert np.array_equal(part.X, X[[0, 3, 1, 2]])
    assert sorted(part.ids.tolist()) == [3, 5, 7, 9]
    assert part.weights is None
    summary = summarise(part, None)
    assert (summary.queries, summary.documents, summary.features) == (2, 4, 3)


def test_weights_of_a_partition():
    qid, labels = np.array([7, 7, 3, 3]), np.array([1, 0, 0, 2])
    part = prepare((X[:4], labels, qid, np.array([2.0, 2, 0, 0])), PARAMETERS)
    assert part.weights.tolist() == [2, 2]
    assert summarise(prepare((X[:4], labels, qid, np.zeros(4)), PARAMETERS), None).queries == 0
    assert summarise(prepare((X[:4], labels * 0, qid, None), PARAMETERS), None).queries == 0


def test_frames_keep_their_names_and_transforms_apply():
    frame = pd.DataFrame(X[:40], columns=NAMES)
    parameters = {**PARAMETERS, "transforms": "QueryZScore", "categorical_features": ["site"]}
    part = prepare((frame, pd.Series(Y[:40]), pd.Series(QID[:40]), None), parameters)
    assert part.names == tuple(NAMES)
    used = tr.Dataset.from_arrays(X[:40], Y[:40], qid=QID[:40])
    expected = tr.transform("QueryZScore")(X[:40], used.lists)
    assert np.array_equal(part.X[:, :2], expected[: len(part.X), :2])
    assert np.array_equal(part.X[:, 2], X[: len(part.X), 2])


def test_a_partition_may_be_empty():
    nothing = prepare((X[:0], Y[:0], QID[:0], None), PARAMETERS)
    summary = summarise(nothing, None)
    assert (summary.queries, summary.documents, summary.features) == (0, 0, 0)
    assert query_in_two([nothing.ids, np.array(["a"]), np.array(["a"])]) == "a"
    assert query_in_two([nothing.ids]) is None


def test_evaluation_partitions_have_the_features_of_training():
    frame = pd.DataFrame(X[:40], columns=NAMES)
    rows = (frame[["site", "bm25", "length"]], pd.Series(Y[:40]), pd.Series(QID[:40]), None)
    part = prepare_evaluation(rows, PARAMETERS, 3, tuple(NAMES))
    assert part.names == tuple(NAMES)
    assert np.array_equal(part.X, X[:40])
    with pytest.raises(tr.InputError, match="The evaluation set lacks 1 feature"):
        prepare_evaluation(rows, PARAMETERS, 1, ("clicks",))
    long = prepare_evaluation(rows, {**PARAMETERS, "mode": "paper"}, 3, tuple(NAMES))
    assert long.sizes.tolist() == [size for size in part.sizes if size >= 10]


def test_large_partitions_are_in_memory(monkeypatch):
    monkeypatch.setattr("twinrank.learning.boosting.tree_features.STREAMED", 100)
    part = prepare((X[:40], Y[:40], QID[:40], None), PARAMETERS)
    assert isinstance(part.X, np.ndarray)
    assert len(part.X) > 20
    rows = (X[:40], Y[:40], QID[:40], None)
    assert np.array_equal(prepare_evaluation(rows, PARAMETERS, 3, None).X, X[:40])


def test_search_for_a_query_in_two_partitions():
    assert query_in_two([np.array([1, 2]), np.array([3])]) is None
    assert query_in_two([np.array(["a", "b"]), np.array(["c", "b"])]) == "b"


def test_partitions_agree_on_the_scale():
    """The hessians of two workers add up to those of one."""
    from dataclasses import replace

    from twinrank.learning.boosting.newton import Newton

    newton = Newton.of("nDCG", perturbation=0.0, samples=1)
    scores = X[:, 1]
    whole = newton.sums(scores, Y, tr.Lists.from_sizes(SIZES))[1]
    fixed, half = replace(newton, unit=0.01), CUTS[0] + CUTS[1]
    lists = tr.Lists.from_sizes(SIZES[:130])
    np.testing.assert_allclose(
        fixed(scores[:half], Y[:half], lists)[1], 100 * whole[:half] + 1e-3, rtol=1e-5
    )


# Errors


def test_dask_data_is_recognised():
    assert all(is_dask(array) for array in arrays())
    assert not any(is_dask(value) for value in (X, pd.DataFrame(X), None))
    with pytest.raises(tr.InputError, match="Make a client first"):
        tr.BoostedRanker().fit(*arrays()[:2], qid=arrays()[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_fraction": 0.2}, "takes X, y, qid, sample_weight and one eval_set"),
        ({"eval_set": {"a": (X, Y, QID), "b": (X, Y, QID)}}, "eval_set is one set"),
        ({"run": "run"}, "Run folders, callbacks, init_model and calibrate are not available"),
        ({"group": SIZES}, "takes X, y, qid, sample_weight"),
        (
            {"callbacks": [object()]},
            "Run folders, callbacks, init_model and calibrate are not available",
        ),
    ],
)
def test_arguments_of_fit_that_need_local_data(arguments, message):
    a, b, c = arrays()
    with pytest.raises(tr.InputError, match=message):
        tr.BoostedRanker().fit(a, b, qid=c, **arguments)


def test_nothing_is_copied_from_a_cluster_silently():
    a, b, c = arrays()
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({"qid": QID, "label": Y, "x": X[:, 0]}), npartitions=2)
    fitted = tr.BoostedRanker(n_estimators=1, ensemble_size=1).fit(X, Y, qid=QID)
    for copy in (
        lambda: tr.Ranker().fit(a, b, qid=c),
        lambda: tr.Ranker().fit(X, Y, qid=c),
        lambda: fitted.predict(a, qid=c),
        lambda: fitted.score(frame[["x"]], frame["label"], qid=frame["qid"]),
        lambda: fitted.fit(X, Y, qid=QID, eval_set=(a, b, c)),
        lambda: tr.Dataset.from_arrays(a, Y, qid=QID),
        lambda: tr.Dataset.from_frame(frame),
    ):
        with pytest.raises(tr.InputError, match="would copy all of it into the memory"):
            copy()


# Frames of files


def parquet_parts(folder, parts=20):
    """A frame of 20 files, cut between queries."""
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=NAMES).assign(label=Y, qid=QID)
    for i, numbers in enumerate(np.array_split(np.arange(240), parts)):
        rows = table[np.isin(QID, numbers)].reset_index(drop=True)
        rows.to_parquet(folder / f"part-{i:02}.parquet")
    return dd.read_parquet(folder)


def test_columns_of_parquet_keep_their_partitions(tmp_path):
    import dask

    frame = parquet_parts(tmp_path)
    rows = delayed_rows(frame[NAMES], frame["label"], frame["qid"])
    assert len(rows) == 20
    first = dask.compute(rows[0], scheduler="synchronous")[0]
    assert [len(values) for values in first[:3]] == [int((QID < 12).sum())] * 3
    assert first[3] is None


class OneProcess:
    """A client without workers."""

    def compute(self, tasks):
        import dask

        return dask.compute(*tasks, scheduler="synchronous")

    def gather(self, values):
        return values

    def scheduler_info(self, n_workers):
        return {"workers": {}}


def test_evaluation_partitions_stop_the_training():
    import lightgbm as lgb
    from dask import delayed

    data = lgb.Dataset(X, Y, group=SIZES, free_raw_data=False)
    asked = []

    def grow(client, rounds, start):
        asked.append(rounds)
        first = None if start is None else lgb.Booster(model_str=start)
        params = {"objective": "lambdarank", "verbosity": -1, "learning_rate": 1.0}
        return lgb.train(params, data, rounds, init_model=first).model_to_string()

    new = queries(100, 1)
    nothing = prepare_evaluation((X[:0], Y[:0], QID[:0], None), PARAMETERS, 3, None)
    parts = [prepare_evaluation((*new[:3], None), PARAMETERS, 3, None)] * 2 + [nothing]
    course = _Course({**PARAMETERS, "early_stopping": 5})
    sets = [delayed(part, traverse=False) for part in parts]
    trees = _grow_and_stop(grow, (OneProcess(),), sets, 200, course)
    values = [record["validation"] for record in course.history]
    best = int(np.argmax(values))
    assert len(values) == best + 1 + 5 < 200
    assert asked == [5] * len(asked)
    assert trees.count("\nTree=") == best + 1 == course.best[1]
    scores = lgb.Booster(model_str=trees).predict(new[0])
    assert values[best] == pytest.approx(
        tr.evaluate(scores, new[1], tr.Lists.from_sizes(new[3]), "nDCG@5")["nDCG@5"]
    )


@pytest.mark.parametrize("patience", [4, None])
def test_a_model_of_dart_is_kept_whole(patience):
    """Later rounds rescale earlier trees: the first trees are not the model of that round."""
    import lightgbm as lgb
    from dask import delayed

    params = {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}
    data, grown = lgb.Dataset(X, Y, group=SIZES, free_raw_data=False), []

    def grow(client, rounds, start):
        own = {"objective": "lambdarank", "verbosity": -1, "learning_rate": 1.0, **params}
        scores = None if start is None else lgb.Booster(model_str=start).predict(X)
        model = lgb.train(own, data.set_init_score(scores), rounds).model_to_string()
        grown.append(model if start is None else joined_trees(start, model))
        return grown[-1]

    new, course = queries(100, 1), _Course(PARAMETERS | {"engine_params": params})
    course.patience = patience
    part = prepare_evaluation((*new[:3], None), PARAMETERS, 3, None)
    kept = _grow_and_stop(grow, (OneProcess(),), [delayed(part, traverse=False)], 12, course)
    assert kept in grown
    step = patience or 12
    evaluated = [record["iteration"] for record in course.history if "validation" in record]
    assert evaluated == list(range(step, len(course.history) + 1, step))
    scores = lgb.Booster(model_str=kept).predict(new[0])
    assert course.best[0] == pytest.approx(
        tr.evaluate(scores, new[1], tr.Lists.from_sizes(new[3]), "nDCG@5")["nDCG@5"]
    )


def test_scores_on_a_cluster_print_no_error(capfd):
    """Dask would call LightGBM with an array of no columns to learn the type of the scores."""
    import lightgbm as lgb

    data = lgb.Dataset(X, Y, group=SIZES)
    booster = lgb.train({"objective": "lambdarank", "verbosity": -1}, data, 2)
    scores = DaskRows(*arrays(), None).scores(booster.model_to_string())
    assert np.array_equal(scores.compute(scheduler="synchronous"), booster.predict(X))
    assert "[Fatal]" not in "".join(capfd.readouterr())


def test_the_last_round_is_evaluated():
    course = _Course({**PARAMETERS, "n_estimators": 5, "validate_every": 3, "early_stopping": None})
    assert not course.add([0.1, 0.9, 0.2, 0.8, 0.3])
    assert [record.get("validation") for record in course.history] == [None, None, 0.2, None, 0.3]
    assert course.best == (0.3, 5)


# Two workers


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_twenty_files_on_two_workers(workers, tmp_path, engine):
    """The example of the documentation: files, an evaluation set, the best round."""
    frame = parquet_parts(tmp_path)
    train, valid = frame.partitions[:16], frame.partitions[16:]
    ranker = tr.BoostedRanker(
        engine=engine, n_estimators=200, learning_rate=0.5, early_stopping=10
    ).fit(
        train[NAMES],
        train["label"],
        qid=train["qid"],
        eval_set=(valid[NAMES], valid["label"], valid["qid"]),
    )
    assert len(ranker.history_) < 200
    assert ranker.best_iteration_ == 1 + int(
        np.argmax([record["validation"] for record in ranker.history_])
    )
    sums = []
    for number in range(valid.npartitions):  # equal scores are ranked at random, by partition
        rows = valid.partitions[number].compute()
        scores = ranker.predict(rows[NAMES], qid=rows["qid"])
        lists = tr.Lists.from_qid(rows["qid"].to_numpy())
        values = tr.evaluate(scores, rows["label"].to_numpy(), lists, "nDCG@5").values["nDCG@5"]
        sums += values[~np.isnan(values)].tolist()
    assert np.mean(sums) == pytest.approx(ranker.best_score_, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "engine_params"),
    [
        ("lightgbm", {"boosting_type": "dart", "drop_rate": 0.5, "skip_drop": 0.0}),
        ("xgboost", {"booster": "dart", "rate_drop": 0.5}),
    ],
)
def test_dart_on_two_workers(workers, engine, engine_params, capfd):
    new, cuts = queries(80, 1), (CUTS[0], len(X) - CUTS[0])
    one = [da.from_array(values, chunks=-1) for values in new[:3]]
    settings = {"n_estimators": 12, "early_stopping": 4, "ensemble_size": 1}
    ranker = tr.BoostedRanker(engine=engine, engine_params=engine_params, **settings)
    a, b, c = arrays(cuts)
    ranker.fit(a, b, qid=c, eval_set=tuple(one))
    assert ranker.best_iteration_ % 4 == 0
    assert ranker.score(*new[:2], qid=new[2]) == pytest.approx(ranker.best_score_, abs=1e-6)
    assert "[Fatal]" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("features", [3, 5, 46, 137])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_xgboost_draws_as_many_columns_as_elsewhere(share, features):
    settings = TreeSettings(learning_rate=0.1, num_leaves=7, colsample_bytree=share)
    params = params_of(settings, features)
    drawn = int(np.float32(params["colsample_bytree"]) * features)  # as XGBoost rounds
    assert drawn == sample_size(share, features)


@pytest.fixture(scope="module")
def workers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "engine", "ensemble_size"),
    [
        ("nDCG", "lightgbm", 1),
        ("nDCG", "lightgbm", 3),
        ("LambdaMART", "lightgbm", 1),
        ("nDCG", "xgboost", 1),
        ("nDCG", "xgboost", 3),
        ("rank:ndcg", "xgboost", 1),
    ],
)
def test_two_workers_learn_what_one_process_learns(workers, objective, engine, ensemble_size):
    settings = {"n_estimators": 40, "num_leaves": 8, "ensemble_size": ensemble_size}
    settings["colsample_bytree"] = 0.7 if ensemble_size > 1 else 1.0  # the draws differ
    ranker = tr.BoostedRanker(objective, engine=engine, categorical_features=[2], **settings)
    new = queries(2_000, 1)
    local = ranker.fit(X, Y, qid=QID).score(*new[:2], qid=new[2])
    a, b, c = arrays()
    gathered = []
    gather = type(workers).gather

    def recorded(self, *arguments, **options):
        result = gather(self, *arguments, **options)
        gathered.extend(result if isinstance(result, list | tuple) else [result])
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(workers), "gather", recorded)
        distributed_score = ranker.fit(a, b, qid=c).score(*new[:2], qid=new[2])
    assert abs(local - distributed_score) < 0.005
    assert (
        local > tr.evaluate(new[0][:, 0], new[1], tr.Lists.from_sizes(new[3]), "nDCG@5")["nDCG@5"]
    )
    assert not any(isinstance(value, Partition | np.ndarray) for value in gathered)
    assert ranker.best_iteration_ == 40
    assert ranker.model_.provenance["data"]["queries"] > 200


@pytest.mark.slow
def test_frames_weights_and_saving_on_two_workers(workers, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=NAMES).assign(y=Y, qid=QID, weight=1.0 + QID % 2)
    divisions = [0, *np.cumsum(CUTS).tolist()]
    parts = [table.iloc[a:b] for a, b in pairwise(divisions)]
    frame = dd.from_delayed([workers.scatter(part) for part in parts], meta=table.iloc[:0])
    ranker = tr.BoostedRanker(n_estimators=10, num_leaves=8, transforms="QueryZScore")
    ranker.fit(frame[NAMES], frame["y"], qid=frame["qid"], sample_weight=frame["weight"])
    assert ranker.feature_names_in_.tolist() == NAMES
    assert ranker.score(table[NAMES], Y, qid=QID) > 0.8
    ranker.save(tmp_path / "model")
    loaded = tr.BoostedRanker.load(tmp_path / "model")
    assert np.array_equal(
        loaded.predict(table[NAMES], qid=QID), ranker.predict(table[NAMES], qid=QID)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"y": Y}, "y must be a Dask array or column"),
        ({}, {"qid": None}, "fit needs qid, as a Dask array or column"),
        ({}, {"qid": arrays((len(Y),))[2]}, "qid has 1 partitions but X has 4"),
        ({}, {"y": arrays()[1] * 0}, "Cannot train on any query"),
        ({}, {"y": arrays()[1] * np.nan}, "label must be a finite number"),
        ({"engine": "xgboost"}, {"sample_weight": arrays()[1] * 0 + 1}, "engine='lightgbm'"),
        ({"transforms": "Standardise"}, {}, "statistics of all the data"),
        ({"objective": "LambdaMART"}, {"y": arrays()[1] / 2}, "whole numbers"),
    ],
)
def test_invalid_data_on_a_cluster(workers, changes, arguments, message):
    a, b, c = arrays()
    with pytest.raises(tr.InputError, match=message):
        tr.BoostedRanker(**changes).fit(**{"X": a, "y": b, "qid": c, **arguments})


@pytest.mark.slow
def test_a_query_in_two_partitions_is_an_error(workers):
    cuts = (CUTS[0] + 1, CUTS[1] - 1, *CUTS[2:])
    a, b, c = arrays(cuts)
    with pytest.raises(tr.InputError, match="Query 50 has rows in two partitions"):
        tr.BoostedRanker().fit(a, b, qid=c)


# Deaths of workers


class Cluster:
    """A client whose second worker dies at the second look."""

    def __init__(self):
        self.looks = 0

    def scheduler_info(self, n_workers):
        self.looks += 1
        return {"workers": {"tcp://a:1": {}} if self.looks > 1 else {"tcp://a:1": {}, "b": {}}}


@pytest.mark.parametrize("ends", ["waits", "fails"])
def test_the_death_of_a_worker_is_an_error(monkeypatch, ends):
    monkeypatch.setattr(dask_engines, "LOOK_SECONDS", 0.05)
    waiting = threading.Event()

    def train(number):
        if ends == "waits":
            waiting.wait()
        raise OSError(f"socket {number}")

    with pytest.raises(TrainingError, match="The Dask worker b died during training"):
        dask_engines.watched(Cluster(), train, 7)
    waiting.set()
    assert dask_engines.watched(Cluster(), lambda number: number, 7) == 7


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_a_killed_worker_ends_training_soon(engine):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
    with cluster, distributed.Client(cluster) as client:
        (victim, *_) = client.run(os.getpid).values()
        killed = []

        def kill():
            names = ("_train_part", "fn-")  # of the engines' tasks
            while not all(str(own)[2:].startswith(names) for own in client.processing().values()):
                time.sleep(0.1)
            time.sleep(1)
            os.kill(victim, signal.SIGKILL)
            killed.append(time.monotonic())

        threading.Thread(target=kill, daemon=True).start()
        a, b, c = arrays()
        ranker = tr.BoostedRanker(n_estimators=100_000, transforms="none", engine=engine)
        with pytest.raises(TrainingError, match=r"The Dask worker tcp://.* died during training"):
            ranker.set_params(ensemble_size=1).fit(a, b, qid=c)
        assert time.monotonic() - killed[0] < 30
