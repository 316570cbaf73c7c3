"""Units on a Ray cluster, through joblib."""

import logging
import re
import socket
from typing import Any

from twinrank.support.errors import InputError, TwinRankError

_PLACE = re.compile(r"(?:ray://)?(?P<host>[^/:]+):(?P<port>\d+)")
_PATIENCE = 5.0  # seconds; Ray itself would try for minutes
_GO_ON = "Finished units are kept; the same command goes on."


class ClusterError(TwinRankError):
    """A cluster broke down, not a unit on it."""


def on_ray(address: str, jobs: int | None, calls: list[Any]) -> None:
    """Run joblib calls on the Ray cluster at an address, or on the one this process is part of.

    Addresses are Ray's: "auto" for the cluster around, "local" to start one on this machine,
    "host:port", "ray://host:port". `jobs` at a time, by default as many as the cluster has cores.
    """
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise InputError("--ray needs Ray: pip install 'twinrank[cluster]'") from error
    from joblib import Parallel, parallel_config

    started = not ray.is_initialized()
    if started:
        _check_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"no Ray cluster at {address}: {error}") from error
    try:
        register_ray()
        with parallel_config(backend="ray"):
            Parallel(n_jobs=jobs or -1, batch_size=1)(calls)
    except ray.exceptions.RayError as error:
        raise ClusterError(f"the Ray cluster failed: {error}\n{_GO_ON}") from error
    finally:
        if started:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody listens."""
    if (match := _PLACE.fullmatch(address)) is None:
        return
    try:
        socket.create_connection((match["host"], int(match["port"])), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster at {address}: {error}") from error
