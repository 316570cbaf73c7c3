"""Units on processes: one after the other, several at a time, or on a cluster."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from twinrank.study.progress import Status
from twinrank.study.results import (
    FAILURES,
    RUNNING,
    read_failure,
    read_unit,
    write_failure,
    write_unit,
)
from twinrank.study.source import Source
from twinrank.study.units import Unit, train_unit
from twinrank.support.files import remove

_DIED = "the process that trained it died; was there enough memory?"


def run_unit(unit: Unit, source: str, out: str, leader: int | None = None) -> None:
    """Train a unit and publish what it gave, or why it failed; `source` is a `Source.to_text()`.

    `leader` is the process that this one works for, and doesn't outlive.
    """
    folder = Path(out)
    status = Status(folder / RUNNING / f"{unit.key}.json", unit, leader)
    try:
        write_unit(folder, train_unit(unit, Source.from_text(source), [status]))
    except Exception as error:  # whatever it was, the other units go on
        write_failure(folder, unit, error)
    finally:
        status.remove()


def run_units(
    units: Sequence[Unit],
    source: Source,
    out: Path,
    jobs: int | None = None,
    ray: str | None = None,
) -> None:
    """Train units, `jobs` at a time or on a Ray cluster, and publish each when it is done."""
    if not units:
        return
    remove(out / RUNNING)  # what killed processes left
    (out / RUNNING).mkdir(parents=True)
    for unit in units:
        (out / FAILURES / f"{unit.key}.json").unlink(missing_ok=True)
    if ray is not None:
        from twinrank.study.cluster import on_ray

        on_ray(ray, jobs, _calls(units, source, out))
        return
    count = min(jobs or _cores(), len(units))
    if count == 1:
        for unit in units:
            run_unit(unit, source.to_text(), str(out))
        return
    _in_processes(list(units), source, out, count)


def _in_processes(left: list[Unit], source: Source, out: Path, jobs: int) -> None:
    """Processes that train. If one dies, all do: what they were at is tried once more, alone."""
    while left and not _survived(left, source, out, jobs):
        begun = [unit for unit in left if (out / RUNNING / f"{unit.key}.json").exists()]
        for unit in begun or left[:1]:
            if not _survived([unit], source, out, jobs):
                write_failure(out, unit, _DIED)
        left = [u for u in left if not (read_unit(out, u) or read_failure(out, u))]


def _survived(units: Sequence[Unit], source: Source, out: Path, jobs: int) -> bool:
    """Train units in processes of their own; whether these lived to the end."""
    from joblib import Parallel
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        calls = _calls(units, source, out, os.getpid())
        Parallel(n_jobs=jobs, backend="loky", batch_size=1)(calls)
    except TerminatedWorkerError:
        return False
    except KeyboardInterrupt:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
        raise
    return True


def _calls(
    units: Iterable[Unit], source: Source, out: Path, leader: int | None = None
) -> list[Any]:
    from joblib import delayed

    return [delayed(run_unit)(unit, source.to_text(), str(out), leader) for unit in units]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
