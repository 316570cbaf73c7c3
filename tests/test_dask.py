"""`BoostedRanker` on a Dask cluster: the same quality as one process, and no data gathered."""

import os
import signal
import threading
import time
import warnings
from itertools import pairwise

import numpy as np
import pytest

import twinrank as tr
from cluster_data import NAMES, check_same_quality, queries
from twinrank.learning.distributed import on_dask
from twinrank.learning.distributed.on_dask import delayed_rows, joined, query_in_two
from twinrank.learning.distributed.socket_group import SocketGroup
from twinrank.learning.distributed.worker import Rows
from twinrank.learning.training.learner import TrainingError
from twinrank.support.arrays import is_dask

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pd = pytest.importorskip("pandas")

X, Y, QID, SIZES = queries(240, 0)
CUTS = tuple(np.add.reduceat(SIZES, [0, 50, 130, 200]).tolist())


def arrays(cuts=CUTS):
    """Dask arrays of the same rows."""
    return (
        da.from_array(X, chunks=(cuts, 2)),
        da.from_array(Y, chunks=(cuts,)),
        da.from_array(QID, chunks=(cuts,)),
    )


# Partitions


def test_search_for_a_query_in_two_partitions():
    assert query_in_two([np.array([1, 2]), np.array([3])]) is None
    assert query_in_two([np.array(["a", "b"]), np.array(["c", "b"])]) == "b"
    assert query_in_two([np.array([]), np.array(["a"])]) is None
    assert query_in_two([]) is None


def test_partitions_of_a_worker_are_joined():
    frame = pd.DataFrame(X, columns=NAMES)
    parts = [Rows(frame[a:b], Y[a:b], QID[a:b]) for a, b in ((0, 3), (3, 3), (3, 9))]
    rows = joined(parts)
    assert np.array_equal(rows.X, X[:9])
    assert rows.X.columns.tolist() == NAMES
    assert np.array_equal(rows.y, Y[:9])
    assert np.array_equal(rows.qid, QID[:9])
    assert rows.weights is None
    assert joined([Rows(X[:0], Y[:0], QID[:0])]) is None
    with pytest.raises(tr.InputError, match="Partitions have different features"):
        joined([parts[0], Rows(frame[["site", "bm25", "length"]], Y, QID)])


# Errors


def test_dask_data_is_recognised():
    assert all(is_dask(array) for array in arrays())
    assert not any(is_dask(value) for value in (X, pd.DataFrame(X), None))
    with pytest.raises(tr.InputError, match="Make a client first"):
        tr.BoostedRanker().fit(*arrays()[:2], qid=arrays()[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_fraction": 0.2}, "takes X, y, qid, sample_weight and eval_set"),
        ({"eval_set": {"a": (X, Y)}}, r"an evaluation set is \(X, y, qid\)"),
        (
            {"run": "run"},
            "Run folders, callbacks, init_model, calibrate and current are not available",
        ),
        ({"group": SIZES}, "takes X, y, qid, sample_weight"),
        ({"resume": True}, "Run folders"),
        (
            {"callbacks": [object()]},
            "Run folders, callbacks, init_model, calibrate and current are not available",
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


def test_a_cancelled_training_frees_a_hub_that_waits():
    on_dask._open("token")
    hub = on_dask._HUBS["token"]
    threading.Timer(0.2, on_dask._close, ["token"]).start()
    with pytest.raises(OSError, match=r"Invalid argument|Bad file descriptor"):
        SocketGroup(0, 2, hub, "")


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
    assert [len(values) for values in (first.X, first.y, first.qid)] == [(QID < 12).sum()] * 3
    assert first.weights is None


# Two workers


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_twenty_files_on_two_workers(workers, tmp_path, engine):
    """The example of the documentation: files, an evaluation set, the best round."""
    frame = parquet_parts(tmp_path)
    train, valid = frame.partitions[:16], frame.partitions[16:]
    ranker = tr.BoostedRanker(
        engine=engine,
        n_estimators=200,
        learning_rate=0.5,
        early_stopping=10,
        tolerance=0,
        ensemble_size=1,
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
    assert len(ranker.history_) in (12, ranker.best_iteration_ + 4)
    assert ranker.score(*new[:2], qid=new[2]) == pytest.approx(ranker.best_score_, abs=1e-6)
    assert "[Fatal]" not in "".join(capfd.readouterr())


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
    settings |= {"early_stopping": 10, "tolerance": 0}
    ranker = tr.BoostedRanker(objective, engine=engine, categorical_features=[2], **settings)
    new, valid, weights = queries(2_000, 1), queries(100, 2), 1.0 + QID % 2
    local = tr.BoostedRanker(**ranker.get_params())
    local.fit(X, Y, qid=QID, sample_weight=weights, eval_set=valid[:3])
    a, b, c = arrays()
    half = int(valid[3][:60].sum())
    evaluation_on_dask = {
        "sample_weight": da.from_array(weights, chunks=(CUTS,)),
        "eval_set": tuple(
            da.from_array(values, chunks=((half, len(valid[1]) - half), -1)[: values.ndim])
            for values in valid[:3]
        ),
    }
    gathered = []
    gather = type(workers).gather

    def recorded(self, *arguments, **options):
        result = gather(self, *arguments, **options)
        gathered.extend(result if isinstance(result, list | tuple) else [result])
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(workers), "gather", recorded)
        two = tr.BoostedRanker(**ranker.get_params()).fit(a, b, qid=c, **evaluation_on_dask)
    check_same_quality(local, two, new)
    bm25 = tr.evaluate(new[0][:, 0], new[1], tr.Lists.from_sizes(new[3]), "nDCG@5")["nDCG@5"]
    assert two.score(*new[:2], qid=new[2]) > bm25
    assert not any(isinstance(value, Rows | np.ndarray) for value in gathered)
    assert two.model_.provenance["data"]["queries"] == local.model_.provenance["data"]["queries"]
    assert [r["iteration"] for r in two.history_] == list(range(1, len(two.history_) + 1))


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
        ({}, {"y": Y}, "y must be a Dask array, frame or column"),
        ({}, {"qid": None}, "fit needs qid, as an array or column"),
        ({}, {"qid": arrays((len(Y),))[2]}, "qid has 1 partitions but X has 4"),
        ({}, {"y": arrays()[1] * 0}, "Cannot train on any query"),
        ({}, {"y": arrays()[1] * np.nan}, "label must be a finite number"),
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
    message = "Query 50 of the evaluation set 'a' has rows in two partitions"
    with pytest.raises(tr.InputError, match=message):
        tr.BoostedRanker().fit(*arrays()[:2], qid=arrays()[2], eval_set={"a": (a, b, c)})


# Deaths of workers


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
            while not all("_work" in str(own) for own in client.processing().values()):
                time.sleep(0.1)
            time.sleep(3)  # inside the engine
            os.kill(victim, signal.SIGKILL)
            killed.append(time.monotonic())

        threading.Thread(target=kill, daemon=True).start()
        a, b, c = arrays()
        ranker = tr.BoostedRanker(n_estimators=100_000, transforms="none", engine=engine)
        with pytest.raises(TrainingError, match=r"The Dask worker tcp://.* died during training"):
            ranker.set_params(ensemble_size=1).fit(a, b, qid=c)
        assert time.monotonic() - killed[0] < 30
        # The other worker is free, and the lost one is back.
        ranker.set_params(n_estimators=3).fit(a, b, qid=c)
