"""Training and scoring on Spark: a barrier stage whose tasks are the workers."""

import copy
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from os import environ
from typing import Any

import numpy as np

from twinrank.learning.distributed.socket_group import SocketGroup, open_hub
from twinrank.learning.distributed.worker import Job, Part, Rows, outcome, result_of
from twinrank.learning.models.saved_model import Model
from twinrank.learning.training.learner import TrainingError
from twinrank.support.arrays import is_spark
from twinrank.support.errors import Argument, InputError, check_number, unknown


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a Spark frame."""

    label: Any
    query: Any
    features: Any = None
    """A list of names; None: all columns but the others."""
    weight: Any = None

    def of(self, frame: Any) -> "Columns":
        """These columns, checked against a frame; `features` is then a tuple of names."""
        named = {"label": self.label, "query": self.query, "weight": self.weight}
        for name, column in named.items():
            if column is None and name != "weight":
                raise InputError(f"On Spark, fit needs {name}=, the name of a column.")
            if column is not None and column not in frame.columns:
                raise InputError(unknown(f"column for {name}", column, frame.columns))
        others = [name for name in frame.columns if name not in named.values()]
        if isinstance(self.features, str):
            raise InputError(Argument("features"), " must be a list of names of columns.")
        features = others if self.features is None else list(self.features)
        if not features:
            raise InputError("The Spark frame has no column of features.")
        types = dict(frame.dtypes)
        for name in features:
            if name not in types:
                raise InputError(unknown("column for features", name, frame.columns))
            if types[name].partition("(")[0] not in _TYPES:
                raise InputError(
                    f"Column {name!r} has type {types[name]}, but a feature is a number or text. "
                    f"Make a column of each element, for example with "
                    f"pyspark.ml.functions.vector_to_array, or leave it out of features=."
                )
        return Columns(self.label, self.query, tuple(features), self.weight)


_JOB_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
ATTEMPTS = 4
"""How often a training starts if it loses workers; Spark's own number for tasks."""

_TYPES = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "string",
)  # fmt: skip


def needs_spark(X: object) -> InputError:
    """The error for names of columns without a Spark frame; says what is not installed."""
    missing = ""
    if find_spec("pyspark") is None:
        missing = "Spark is not installed: pip install 'twinrank[spark]'. "
    if "JAVA_HOME" not in environ and shutil.which("java") is None:
        missing += "Spark needs Java 17, which is not installed or not on the PATH. "
    return InputError(
        f"{missing}label, query, features, weight and workers are for a Spark DataFrame, but X is "
        f"of type {type(X).__name__}."
    )


def train_on_spark(
    job: Job,
    frame: Any,
    columns: Columns,
    sets: Mapping[str, Any],
    workers: int | None = None,
) -> Model:
    """Grow trees on a Spark frame. `sets` are frames with the same columns; weights are optional.

    Rows move once: those of a query to the same worker.
    """
    import pyspark.sql.functions as F  # noqa: N812
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    columns = columns.of(frame)
    data = _selected(frame, columns, 0)
    for number, (name, other) in enumerate(sets.items(), 1):
        if not is_spark(other):
            raise InputError(f"Evaluation set {name!r} must be a Spark DataFrame, as X is.")
        weight = columns.weight if columns.weight in other.columns else None
        own = Columns(columns.label, columns.query, columns.features, weight).of(other)
        data = data.unionByName(_selected(other, own, number))
    workers = _workers(frame, workers)
    work = partial(_work, job=job, features=columns.features, sets=tuple(sets))
    held = data.repartition(workers, F.col("query"))
    for attempt in range(1, ATTEMPTS + 1):
        # No stage may follow: Spark would start it again itself, at times without some of its
        # tasks, and the others would wait for these for ever. Spark keeps the error of a frame.
        stage = held.mapInArrow(work, "rank int, outcome binary", barrier=True)
        try:
            rows = _collected(stage)
            break
        except (Py4JError, PySparkException) as error:
            if attempt == ATTEMPTS or "barrier task" not in str(error):  # no worker was lost
                raise _explained(error, workers) from error
    if not rows:
        raise InputError("The Spark frame has no rows.")
    return result_of(bytes(row["outcome"]) for row in sorted(rows, key=lambda r: r["rank"]))


def _collected(stage: Any) -> list[Any]:
    """The rows of a stage, whose tasks end with Ctrl-C."""
    context = getattr(stage.sparkSession, "sparkContext", None)
    if context is None:  # Spark Connect
        return list(stage.collect())
    before = {name: context.getLocalProperty(name) for name in _JOB_GROUP}
    group = secrets.token_hex()
    context.setJobGroup(group, "BoostedRanker.fit", interruptOnCancel=True)
    try:
        return list(stage.collect())
    except KeyboardInterrupt:
        context.cancelJobGroup(group)  # Spark's own handler fails while it waits for an answer
        raise
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


def _selected(frame: Any, columns: Columns, number: int) -> Any:
    """The columns that workers need, under names of ours."""
    import pyspark.sql.functions as F  # noqa: N812

    weight = F.lit(1.0) if columns.weight is None else _column(columns.weight).cast("double")
    return frame.select(
        F.lit(number).alias("set"),
        _column(columns.label).cast("double").alias("label"),
        _column(columns.query).alias("query"),
        weight.alias("weight"),
        *(_column(name).alias(f"f{i}") for i, name in enumerate(columns.features)),
    )


def _column(name: str) -> Any:
    """A column of any name; a dot would stand for a field of it."""
    import pyspark.sql.functions as F  # noqa: N812

    return F.col("`" + name.replace("`", "``") + "`")


def _workers(frame: Any, workers: int | None) -> int:
    """The number of tasks that train; Spark would wait ten minutes for slots that it lacks."""
    if workers is not None:
        check_number("workers", workers, whole=True, least=1)
    context = getattr(frame.sparkSession, "sparkContext", None)
    if context is None:  # Spark Connect
        if workers is None:
            raise InputError("With Spark Connect, pass workers=, the number of tasks that train.")
        return int(workers)
    conf = context.getConf()
    slots = context.defaultParallelism // int(conf.get("spark.task.cpus", "1"))
    if workers is not None and workers > slots and not conf.get("spark.default.parallelism"):
        raise InputError(
            Argument("workers", workers),
            f" needs as many slots at the same time, but Spark has {slots}. Use fewer workers or "
            f"more executors.",
        )
    return int(workers or max(slots, 1))  # executors may not have started yet


def _explained(error: Exception, workers: int) -> TrainingError:
    """An error of Spark: a worker was lost again and again, or there are too few slots."""
    _, traceback, own = str(error).partition("Traceback (most recent call last):\n")
    if traceback:  # of a worker: its last line
        cause = next((line for line in own.splitlines() if line[:1].strip()), "")
    else:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        cause = next((line for line in lines if "Exception: " in line), lines[0]).lstrip(": ")
    return TrainingError(f"Training with {workers} Spark workers failed ({cause[:500]}).")


def _work(
    batches: Iterator[Any], *, job: Job, features: Sequence[str], sets: Sequence[str]
) -> Iterator[Any]:
    """The task of a worker: reads its rows, trains, and reports."""
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    own = list(batches)
    table = pa.Table.from_batches(own) if own else None
    infos, rank = context.getTaskInfos(), int(context.partitionId())
    hub, message = None, ""
    if not rank:
        hub = open_hub()
        host = infos[0].address.rpartition(":")[0] or infos[0].address
        message = json.dumps([host, hub.getsockname()[1], secrets.token_hex()])
    host, port, token = json.loads(context.allGather(message)[0])

    def group() -> SocketGroup:
        return SocketGroup(rank, len(infos), hub or (host, port), token)

    held = [_rows(table, number, features) for number in range(len(sets) + 1)]
    part = Part(held[0], dict(zip(sets, held[1:], strict=True)), int(context.cpus()))
    report = outcome(job, part, group)
    yield pa.RecordBatch.from_arrays(
        [pa.array([rank], pa.int32()), pa.array([report], pa.binary())], ["rank", "outcome"]
    )


def _rows(table: Any, number: int, features: Sequence[str]) -> Rows | None:
    """The rows of a set: 0 is the training set."""
    import pyarrow.compute as pc

    if table is None:
        return None
    table = table.filter(pc.equal(table["set"], number))
    if not table.num_rows:
        return None
    X = table.select([f"f{i}" for i in range(len(features))]).rename_columns(list(features))
    query, label, weight = (table[name].to_numpy() for name in ("query", "label", "weight"))
    return Rows(X, label, query, weight)


def predict_on_spark(
    ranker: Any, frame: Any, query: str | None, column: str, per_query: bool
) -> Any:
    """The frame with a further column of scores, grades or probabilities."""
    from pyspark.sql.types import DoubleType, StructField, StructType

    names = ranker.model_.feature_names
    if names is None:
        raise InputError(
            "On Spark, features are found by name, but this ranker was trained without names."
        )
    for name in (*names, *(() if query is None else (query,))):
        if name not in frame.columns:
            raise InputError(unknown("column", name, frame.columns))
    if column in frame.columns:
        raise InputError(f"The frame already has a column {column!r}. Rename or drop it.")
    if per_query and query is None:
        raise InputError(
            "Scores depend on the other documents of a query: pass query=, the name of its column."
        )
    if per_query and query is not None:
        frame = frame.repartition(_column(query)).sortWithinPartitions(_column(query))
    own = copy.copy(ranker)
    own.n_jobs = 1  # Spark runs a task per core
    schema = StructType([*frame.schema.fields, StructField(column, DoubleType())])
    names = tuple(names)
    score = partial(
        _scored, ranker=own, names=names, query=query if per_query else None, column=column
    )
    return frame.mapInArrow(score, schema)


def _scored(
    batches: Iterator[Any], *, ranker: Any, names: Sequence[str], query: str | None, column: str
) -> Iterator[Any]:
    """Batches with a column of scores; with a query, rows are sorted by it, and it is whole."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def scored(table: Any) -> Iterator[Any]:
        if table.num_rows:
            qid = None if query is None else table[query].to_numpy()
            values = ranker.predict(table.select(names), qid=qid, output=column)
            table = table.append_column(column, pa.array(values.astype(np.float64)))
            yield from table.combine_chunks().to_batches()

    rest: Any = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if query is None:
            yield from scored(table)
            continue
        table = table if rest is None else pa.concat_tables([rest, table])
        last = table[query][-1]
        first = pc.index(table[query], last).as_py() if last.is_valid else 0
        rest = table.slice(first)
        yield from scored(table.slice(0, first))
    if rest is not None:
        yield from scored(rest)
