"""`BoostedRanker` on Spark: the same quality as one process, scores as a column, lost executors."""

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import twinrank as tr
from cluster_data import NAMES, check_same_quality, queries
from twinrank.learning.distributed import on_spark
from twinrank.learning.distributed.on_spark import Columns, _rows, _scored
from twinrank.learning.training.learner import TrainingError

pa = pytest.importorskip("pyarrow")

X, Y, QID, SIZES = queries(240, 0)
VALID, NEW = queries(100, 2), queries(2_000, 1)
COLUMNS = {"label": "grade", "query": "qid", "features": NAMES}

needs_executors = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
ignored = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")


# Without a session


class Frame:
    """What `Columns` reads of a Spark frame."""

    dtypes = (("qid", "bigint"), ("grade", "int"), ("a", "float"), ("b", "vector"))
    columns = ("qid", "grade", "a", "b")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(None, "qid"), "fit needs label=, the name of a column"),
        (Columns("grade", "query"), "Unknown column for query 'query'"),
        (Columns("grade", "qid", "a"), "must be a list of names"),
        (Columns("grade", "qid", ["c"]), "Unknown column for features 'c'"),
        (Columns("grade", "qid"), "Column 'b' has type vector, but a feature is a number or text"),
        (Columns("grade", "qid", []), "has no column of features"),
    ],
)
def test_names_of_columns(columns, message):
    with pytest.raises(tr.InputError, match=message):
        columns.of(Frame)
    assert Columns("grade", "qid", ["a"]).of(Frame).features == ("a",)


def test_names_of_columns_are_for_spark(monkeypatch):
    monkeypatch.setattr(on_spark, "find_spec", lambda name: None)
    monkeypatch.setattr(on_spark.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    message = r"Spark is not installed: pip install .* Spark needs Java 17.* X is of type ndarray"
    with pytest.raises(tr.InputError, match=message):
        tr.BoostedRanker().fit(X, Y, query="qid")
    fitted = tr.BoostedRanker(n_estimators=1, ensemble_size=1).fit(X, Y, qid=QID)
    with pytest.raises(tr.InputError, match="are for a Spark DataFrame"):
        fitted.predict(X, query="qid")


def test_the_rows_of_a_set():
    table = pa.table(
        {"set": [0, 1, 0], "label": [1.0, 2, 0], "query": ["a", "b", "a"], "weight": [1.0] * 3}
        | {"f0": [3.0, 4, 5], "f1": ["x", "y", "z"]}
    )
    rows = _rows(table, 0, ["a b", "site"])
    assert rows.X.to_pydict() == {"a b": [3.0, 5.0], "site": ["x", "z"]}
    assert rows.qid.tolist() == ["a", "a"]
    assert rows.y.tolist() == [1, 0]
    assert rows.weights.tolist() == [1, 1]
    assert _rows(table, 2, ["a"]) is None
    assert _rows(None, 0, ["a"]) is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("An error.\n: a.SparkException: few slots\n\tat x", "a.SparkException: few slots"),
        (
            "a.SparkException: 4 times.\nb.PythonException: Traceback (most recent call last):\n"
            "  File x\nModuleNotFoundError: No module named 'twinrank'\n\n\tat c",
            "ModuleNotFoundError: No module named 'twinrank'",
        ),
    ],
)
def test_a_failed_stage_is_explained(text, cause):
    error = on_spark._explained(Exception(text), 2)
    assert str(error) == f"Training with 2 Spark workers failed ({cause})."


def test_batches_are_cut_between_queries():
    ranker = tr.BoostedRanker(n_estimators=3, ensemble_size=1)
    table = pa.table({name: X[:, i] for i, name in enumerate(NAMES)} | {"qid": QID})
    ranker.fit(table.select(NAMES), Y, qid=QID)
    own = {"ranker": ranker, "names": NAMES, "column": "score"}
    scores = ranker.predict(X, qid=QID)
    batches = table.to_batches(max_chunksize=37)
    result = pa.Table.from_batches(_scored(iter(batches), query="qid", **own))
    assert np.array_equal(result["score"].to_numpy(), scores)
    assert result.column_names == [*NAMES, "qid", "score"]
    assert list(_scored(iter([]), query="qid", **own)) == []


# Two executors


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    source = str(Path(tr.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            sql.SparkSession.builder.master("local-cluster[2,1,1024]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.executorEnv.PYTHONPATH", source)
            .config("spark.executorEnv.OMP_NUM_THREADS", "1")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def frame_of(spark, data, weights=None):
    table = pa.table(
        {name: data[0][:, i] for i, name in enumerate(NAMES)}
        | {"grade": data[1].astype(np.int32), "qid": [f"q{i}" for i in data[2]]}
        | ({} if weights is None else {"weight": weights})
    )
    shuffled = np.random.default_rng(0).permutation(len(data[1]))
    return spark.createDataFrame(table.take(shuffled))


@pytest.mark.slow
@ignored
@needs_executors
@pytest.mark.parametrize(
    ("objective", "engine", "ensemble_size"),
    [("nDCG", "lightgbm", 1), ("nDCG", "lightgbm", 3), ("nDCG", "xgboost", 1)],
)
def test_executors_learn_what_one_process_learns(spark, objective, engine, ensemble_size):
    settings = {"n_estimators": 40, "num_leaves": 8, "early_stopping": 10, "tolerance": 0}
    ranker = tr.BoostedRanker(
        objective, engine=engine, ensemble_size=ensemble_size, colsample_bytree=0.7, **settings
    )
    weights = 1.0 + QID % 2
    local = tr.BoostedRanker(**ranker.get_params())
    local.fit(X, Y, qid=QID, sample_weight=weights, eval_set=VALID[:3])
    two = ranker.fit(
        frame_of(spark, (X, Y, QID), weights),
        **COLUMNS,
        weight="weight",
        eval_set=frame_of(spark, VALID),
    )
    check_same_quality(local, two, NEW)
    assert two.model_.provenance["data"]["queries"] == local.model_.provenance["data"]["queries"]
    assert two.feature_names_in_.tolist() == NAMES
    assert len(two.history_) == two.history_[-1]["iteration"]
    assert two.history_[two.best_iteration_ - 1]["validation"] == pytest.approx(
        two.best_score_, abs=1e-9
    )


@pytest.mark.slow
@ignored
@needs_executors
@pytest.mark.parametrize("mode", ["default", "per-document"])
def test_scores_are_a_column(spark, mode):
    ranker = tr.BoostedRanker(n_estimators=5, ensemble_size=1, mode=mode)
    frame = frame_of(spark, (X, Y, QID))
    ranker.fit(frame, **COLUMNS)
    query = {"query": "qid"} if mode == "default" else {}
    result = ranker.predict(frame, **query).toArrow()
    assert result.num_rows == len(X)
    values = np.column_stack([result[name].to_numpy() for name in NAMES])
    expected = ranker.predict(values, qid=result["qid"].to_numpy())
    np.testing.assert_allclose(result["score"].to_numpy(), expected, rtol=1e-6)
    if mode == "default":
        with pytest.raises(tr.InputError, match="pass query="):
            ranker.predict(frame)
    with pytest.raises(tr.InputError, match="already has a column 'score'"):
        ranker.predict(ranker.predict(frame, **query), **query)
    with pytest.raises(tr.InputError, match="X is on Spark, and this would copy all of it"):
        ranker.score(frame, Y, qid=QID)


@pytest.mark.slow
@ignored
@needs_executors
def test_invalid_data_on_spark(spark):
    frame = frame_of(spark, (X, Y, QID))
    ranker = tr.BoostedRanker(n_estimators=2)
    with pytest.raises(tr.InputError, match="eval_set is a frame, or a dict of frames"):
        ranker.fit(frame, **COLUMNS, eval_set=VALID[:3])
    with pytest.raises(tr.InputError, match="eval_set is a frame, or a dict of frames"):
        ranker.fit(frame, **COLUMNS, eval_set=X)
    with pytest.raises(tr.InputError, match="Evaluation set 'a' must be a Spark DataFrame"):
        ranker.fit(frame, **COLUMNS, eval_set={"a": X})
    broken = frame.selectExpr("raise_error('no disk') as grade", "qid", *NAMES)
    with pytest.raises(TrainingError, match=r"Training with 2 Spark workers failed \(.*no disk"):
        ranker.fit(broken, **COLUMNS)
    one = frame.selectExpr("if(qid = 'q3', -2, grade) as grade", "qid", *NAMES)
    with pytest.raises(tr.InputError, match="is -2, but a label"):  # of one worker; no second try
        ranker.fit(one, **COLUMNS)
    with pytest.raises(tr.InputError, match="The Spark frame has no rows"):
        ranker.fit(frame.filter("false"), **COLUMNS)
    nothing = frame.withColumn("grade", frame["grade"] * 0)
    with pytest.raises(tr.InputError, match="Cannot train on any query"):
        ranker.fit(nothing, **COLUMNS)
    with pytest.raises(tr.InputError, match="Run folders, callbacks"):
        ranker.fit(frame, **COLUMNS, run="run")
    with pytest.raises(tr.InputError, match="statistics of all the data"):
        tr.BoostedRanker(transforms="Standardise").fit(frame, **COLUMNS)
    with pytest.raises(tr.InputError, match=r"workers=3 needs as many slots .* Spark has 2"):
        ranker.fit(frame, **COLUMNS, workers=3)
    for workers in (0, 1.5, "two"):
        with pytest.raises(tr.InputError, match="whole number of at least 1"):
            ranker.fit(frame, **COLUMNS, workers=workers)


@pytest.mark.slow
@ignored
@needs_executors
@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_training_survives_the_death_of_an_executor(spark, engine):
    """Spark starts a new executor, and the barrier stage again."""
    killed = []

    def kill():
        tracker, before = spark.sparkContext.statusTracker(), 0
        while before < 2:  # seconds inside the barrier stage, whose tasks run both for long
            time.sleep(0.5)
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            busy = any(info and info.numActiveTasks == 2 for info in infos)
            before = before + 0.5 if busy else 0
        own, pids = spark.sparkContext.applicationId.encode(), []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # the process has ended
                command = file.read_bytes()
                if b"CoarseGrainedExecutorBackend" in command and own in command:
                    pids.append(int(file.parent.name))
        os.kill(min(pids), signal.SIGKILL)
        killed.append(time.monotonic())

    frame = frame_of(spark, (X, Y, QID))
    threading.Thread(target=kill, daemon=True).start()
    ranker = tr.BoostedRanker(n_estimators=4000, engine=engine, ensemble_size=1)
    ranker.fit(frame, **COLUMNS)
    assert killed
    assert ranker.best_iteration_ == 4000


@pytest.mark.slow
@ignored
@needs_executors
def test_ctrl_c_frees_the_slots_of_spark(spark):
    frame = frame_of(spark, (X, Y, QID))
    spark.sparkContext.setJobGroup("mine", "of the user")
    before = signal.getsignal(signal.SIGINT)
    waiting = threading.Timer(6, os.kill, (os.getpid(), signal.SIGINT))
    waiting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            tr.BoostedRanker(n_estimators=100_000, ensemble_size=1).fit(frame, **COLUMNS)
    finally:
        waiting.cancel()
        signal.signal(signal.SIGINT, before)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    began = time.monotonic()
    tr.BoostedRanker(n_estimators=2, ensemble_size=1).fit(frame, **COLUMNS)
    assert time.monotonic() - began < 60  # the old tasks would never end
