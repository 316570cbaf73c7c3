"""Training on a Dask cluster: a task on each worker that holds partitions trains on them."""

import secrets
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import numpy as np

from twinrank.learning.distributed.socket_group import SocketGroup, open_hub
from twinrank.learning.distributed.worker import Job, Part, Rows, outcome, result_of
from twinrank.learning.models.saved_model import Model
from twinrank.learning.training.learner import TrainingError
from twinrank.support.arrays import is_dask
from twinrank.support.errors import InputError

LOOK_SECONDS = 3.0
"""The time between two looks at the workers; the scheduler knows of a death within seconds."""

_HUBS: dict[str, Any] = {}
"""On the worker that is the hub: its socket, then its group, of each training that runs."""


def train_on_dask(job: Job, training: Sequence[Any], sets: Mapping[str, Sequence[Any]]) -> Model:
    """Grow trees on Dask arrays or frames X, y, qid and weights with the same partitions.

    `sets` are the evaluation sets, X, y and qid of each. All rows stay on the workers.
    """
    client = _client()
    parts = _computed(client, training)
    if not parts:
        raise InputError("X has no rows.")
    rows_of = _by_worker(client, parts)
    workers = list(rows_of)
    held = {
        name: _computed(client, own, f" of the evaluation set {name!r}")
        for name, own in sets.items()
    }
    sets_of = {name: _by_worker(client, own, workers) for name, own in held.items()}
    token, hub, tasks = secrets.token_hex(), workers[0], list[Any]()
    try:
        port = client.run(_open, token, workers=[hub])[hub]
        address = (hub.rpartition("://")[2].rpartition(":")[0], port)
        for rank, worker in enumerate(workers):
            own = {name: of.get(worker, []) for name, of in sets_of.items()}
            place = (rank, len(workers), address, token)
            tasks.append(
                client.submit(_work, job, rows_of[worker], own, place, workers=[worker], pure=False)
            )
        return _result(client, tasks, workers)
    finally:
        client.cancel(tasks)
        if hub in _known(client):  # ends the work of all workers, also after Ctrl-C
            client.run(_close, token, workers=[hub])


def _client() -> Any:
    try:
        from distributed import default_client
    except ImportError as missing:
        raise InputError(
            "This needs Dask; install it with pip install 'twinrank[cluster]'."
        ) from missing
    try:
        return default_client()
    except ValueError as missing:
        raise InputError(
            "Data on Dask needs a cluster. Make a client first: dask.distributed.Client()."
        ) from missing


def _computed(client: Any, inputs: Sequence[Any], where: str = "") -> list[Any]:
    """The partitions with rows, as `Rows` that the workers hold."""
    parts = client.compute(delayed_rows(*inputs, where=where))
    query = client.submit(query_in_two, client.map(_ids, parts)).result()
    if query is not None:
        raise InputError(
            f"Query {query}{where} has rows in two partitions. Cut partitions between queries, "
            f"for example by frame.set_index('qid') or one file per range of queries."
        )
    sizes = client.gather(client.map(_size, parts))
    return [part for part, size in zip(parts, sizes, strict=True) if size]


def delayed_rows(X: Any, y: Any, qid: Any, weights: Any = None, *, where: str = "") -> list[Any]:
    """The partitions of X, y, qid and weights, as delayed `Rows`; errors name `where` they are."""
    from dask import delayed

    if getattr(X, "ndim", 2) != 2:
        raise InputError(f"X{where} must be a matrix or a frame, but has {X.ndim} dimension(s).")
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
    inputs = {"X": X, "y": y, "qid": qid, "sample_weight": weights}
    for name, values in inputs.items():
        if values is None and name != "sample_weight":
            raise InputError(f"On a Dask cluster, fit needs {name}{where}, as an array or column.")
        if values is not None and not is_dask(values):
            raise InputError(
                f"{name}{where} must be a Dask array, frame or column, because the data is on Dask."
            )
        if values is not None and values.npartitions != X.npartitions:
            raise InputError(
                f"{name}{where} has {values.npartitions} partitions but X has {X.npartitions}; "
                f"both need the same partitions."
            )
    if all(values is None or hasattr(values, "map_partitions") for values in inputs.values()):
        # Together: Dask would combine files of one column more than those of all features.
        return _frame_rows(X, y, qid, weights)
    columns = [_array_partitions(values, X.npartitions) for values in inputs.values()]
    return [delayed(Rows)(*row) for row in zip(*columns, strict=True)]


def _frame_rows(X: Any, y: Any, qid: Any, weights: Any) -> list[Any]:
    import pandas as pd

    more = [] if weights is None else [weights]
    rows = X.map_partitions(
        Rows, y, qid, *more, meta=pd.Series(dtype=object), enforce_metadata=False
    )
    return list(rows.to_delayed())


def _array_partitions(values: Any, count: int) -> list[Any]:
    if values is None:
        return [None] * count
    own = {} if hasattr(values, "chunks") else {"optimize_graph": False}
    return list(np.ravel(np.asarray(values.to_delayed(**own), object)))


def _size(rows: Rows) -> int:
    return len(rows.y)


def _ids(rows: Rows) -> Any:
    """The ids of the queries of a partition."""
    ids = np.asarray(rows.qid)
    return np.unique(ids if ids.dtype.kind in "iuf" else ids.astype(str))


def query_in_two(ids: list[Any]) -> str | None:
    """A query that has rows in two partitions, or None."""
    filled = [own for own in ids if len(own)]
    if not filled:
        return None
    unique, counts = np.unique(np.concatenate(filled), return_counts=True)
    return str(unique[counts > 1][0]) if (counts > 1).any() else None


def _by_worker(
    client: Any, parts: list[Any], workers: Sequence[str] | None = None
) -> dict[str, list[Any]]:
    """The partitions that each worker holds; those of others move to one of `workers`."""
    places, result = client.who_has(parts), dict[str, list[Any]]()
    for number, part in enumerate(parts):
        worker = min(places[part.key])
        if workers is not None and worker not in workers:
            worker = workers[number % len(workers)]
        result.setdefault(worker, []).append(part)
    return result


def _open(token: str) -> int:
    _HUBS[token] = open_hub()
    return int(_HUBS[token].getsockname()[1])


def _close(token: str) -> None:
    hub = _HUBS.pop(token, None)
    if isinstance(hub, socket.socket):  # it may wait for workers
        with suppress(OSError):
            hub.shutdown(socket.SHUT_RDWR)
    if hub is not None:
        hub.close()


def _work(
    job: Job,
    rows: list[Rows],
    sets: dict[str, list[Rows]],
    place: tuple[int, int, tuple[str, int], str],
) -> bytes:
    """The task of a worker."""
    from distributed import get_worker

    rank, size, address, token = place

    def group() -> SocketGroup:
        own = SocketGroup(rank, size, address if rank else _HUBS[token], token)
        if not rank:
            _HUBS[token] = own
        return own

    threads = int(get_worker().state.nthreads)
    held = {name: joined(own) for name, own in sets.items()}
    return outcome(job, Part(joined(rows), held, threads), group)


def joined(parts: list[Rows]) -> Rows | None:
    """The rows of several partitions, one after the other; None without any."""
    parts = [part for part in parts if len(part.y)]
    if len(parts) < 2:
        return parts[0] if parts else None
    columns = zip(*((part.X, part.y, part.qid, part.weights) for part in parts), strict=True)
    return Rows(*map(_concatenated, columns))


def _concatenated(values: Sequence[Any]) -> Any:
    first = values[0]
    if first is None:
        return None
    if hasattr(first, "columns") and any(list(v.columns) != list(first.columns) for v in values):
        raise InputError("Partitions have different features; all need the same columns.")
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat(values, ignore_index=True)
    if hasattr(first, "toarray"):
        from scipy import sparse

        return sparse.vstack(values)
    return np.concatenate(values)


def _result(client: Any, tasks: list[Any], workers: list[str]) -> Model:
    """The trained model, or the error of a worker; TrainingError if one dies."""
    import distributed

    lost = set[str]()
    while not lost:
        try:
            distributed.wait(tasks, timeout=LOOK_SECONDS)
            break
        except (TimeoutError, CancelledError) as error:
            lost = {*workers} - _known(client)
            if not lost and isinstance(error, CancelledError):
                raise
    else:
        raise TrainingError(
            f"The Dask worker {', '.join(sorted(lost))} died during training. Start again; if it "
            f"ran out of memory, use smaller partitions or more workers."
        )
    return result_of(task.result() for task in tasks)


def _known(client: Any) -> set[str]:
    """The addresses of the workers that the scheduler knows."""
    return set(client.scheduler_info(n_workers=-1)["workers"])
