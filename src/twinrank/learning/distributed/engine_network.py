"""The connections that LightGBM and XGBoost open between workers, to add up their histograms."""

import json
import os
import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.learning.boosting.engines import explained_by
from twinrank.learning.distributed.socket_group import SocketGroup
from twinrank.support.errors import InputError, needing

_LEAVING_SECONDS = 60
_PORTS = range(12_400, 32_700)  # below those that systems give to outgoing connections


def network(engine_name: str, group: SocketGroup) -> AbstractContextManager[None]:
    """The context in which an engine trains with all workers of the group, in this thread."""
    return _lightgbm(group) if engine_name == "lightgbm" else _xgboost(group)


def network_params(engine_name: str, engine_params: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The settings of an engine for this many workers."""
    if engine_name != "lightgbm" or size == 1:
        return dict(engine_params)
    # By its main names, so that the user's own choice of `tree_learner` counts.
    return {"tree_learner": "data", "num_machines": size, "pre_partition": True, **engine_params}


@contextmanager
def _lightgbm(group: SocketGroup) -> Iterator[None]:
    import lightgbm as lgb

    with _listening() as own:
        port = int(own.getsockname()[1])
        machines = group.all_gather(f"{group.host}:{port}")
    quiet = {"verbosity": -1}  # in this thread; the network needs any booster
    anchor = lgb.Booster(quiet, lgb.Dataset(np.zeros((2, 1)), np.zeros(2), params=quiet))
    addresses = {(host, int(port)) for host, _, port in (m.partition(":") for m in machines)}
    group.on_loss = lambda: _break_connections(addresses)
    with explained_by("LightGBM", lgb.basic.LightGBMError):
        anchor.set_network(f"rank={group.rank}," + ",".join(machines), port, 120, group.size)
        try:
            yield
        finally:
            anchor.free_network()


@contextmanager
def _xgboost(group: SocketGroup) -> Iterator[None]:
    with needing("This", "XGBoost", "xgboost"):
        from xgboost import RabitTracker, collective
        from xgboost.core import XGBoostError

    message, tracker = "", None
    if not group.rank:
        tracker = RabitTracker(group.size, group.host, sortby="task")
        tracker.start()
        message = json.dumps(tracker.worker_args())
    own = json.loads(group.all_gather(message)[0])
    # A single attempt: the tracker waits already, and after a loss it is gone.
    own |= {"dmlc_task_id": f"{group.rank:09}", "dmlc_retry": 1}
    try:
        with explained_by("XGBoost", XGBoostError), collective.CommunicatorContext(**own):
            yield
        if tracker is not None:
            tracker.wait_for(_LEAVING_SECONDS)
    except BaseException:
        if tracker is not None:
            with suppress(XGBoostError, ValueError):  # of workers that did not leave it
                tracker.free()
        raise


@contextmanager
def _listening() -> Iterator[socket.socket]:
    """A port that no other program uses; another worker on this machine finds another one."""
    with socket.socket() as own:
        for port in random.sample(_PORTS, len(_PORTS)):
            with suppress(OSError):
                own.bind(("", port))
                break
        else:
            raise InputError(f"No port from {_PORTS.start} to {_PORTS.stop - 1} is free.")
        yield own


def _break_connections(addresses: set[tuple[str, int]]) -> None:
    """Make LightGBM's calls fail: it would wait for a lost worker for ever.

    Its sockets stop receiving, and their numbers then stand for a file, so that the next call is an
    error. Closing them could hit a new socket of the same number.
    """
    ports = {port for _, port in addresses}
    for number in [int(name.name) for name in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as own:
            if own.family != socket.AF_INET:
                continue
            mine = own.getsockname()[1] in ports
            if mine or own.getpeername() in addresses:
                own.shutdown(socket.SHUT_RDWR)
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, number)
                os.close(nothing)
