"""A watch over the workers of a Dask cluster while an engine trains on them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from twinrank.learning.training.learner import TrainingError

LOOK_SECONDS = 3.0
"""The time between two looks at the workers; the scheduler knows of a death within seconds."""


def watched(client: Any, train: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that trains on the workers; TrainingError if one of them dies.

    The engines would wait for a dead worker for ever, or raise the error of a socket. They wait in
    a thread of their own, which ends with this process.
    """
    before, result = _workers(client), Future[Any]()

    def run() -> None:
        try:
            result.set_result(train(*arguments))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="twinrank-dask").start()
    lost: set[str] = set()
    while not lost and not wait([result], timeout=LOOK_SECONDS).done:
        lost = before - _workers(client)
    wait([result], timeout=LOOK_SECONDS)  # it may have ended before the worker
    problem = result.exception() if result.done() else None
    if result.done() and problem is None:
        return result.result()
    if problem is not None and not lost:
        lost = before - _workers(client)
    if not lost and problem is not None:
        raise problem
    raise TrainingError(
        f"The Dask worker {', '.join(sorted(lost))} died during training. Start again; if it ran "
        f"out of memory, use smaller partitions or more workers."
    ) from problem


def _workers(client: Any) -> set[str]:
    """The addresses of the workers that the scheduler knows."""
    return set(client.scheduler_info(n_workers=-1)["workers"])
