"""Units on processes: one after the other, several at a time, or on a cluster."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from twinrank.study.processes import DIED, cores, in_processes
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
    count = min(jobs or cores(), len(units))
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
                write_failure(out, unit, DIED)
        left = [u for u in left if not (read_unit(out, u) or read_failure(out, u))]


def _survived(units: Sequence[Unit], source: Source, out: Path, jobs: int) -> bool:
    """Train units in processes of their own; whether these lived to the end."""
    return in_processes(_calls(units, source, out, os.getpid()), jobs)


def _calls(
    units: Iterable[Unit], source: Source, out: Path, leader: int | None = None
) -> list[Any]:
    from joblib import delayed

    return [delayed(run_unit)(unit, source.to_text(), str(out), leader) for unit in units]
