"""Trials of a search one after another, beside each other, or on a cluster."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any

from twinrank.study.tuning.search import Tuning
from twinrank.study.tuning.trials import give_up, run_trial
from twinrank.support.errors import TwinRankError

_DIED = "the process that trained it died; was there enough memory?"


def run_trials(
    out: Path,
    tuning: Tuning,
    trials: int,
    jobs: int | None = None,
    ray: str | None = None,
    deadline: float | None = None,
) -> None:
    """Run as many trials as are lacking, `jobs` at a time or on a Ray cluster."""
    lacking = models_lacking(out, tuning, trials)
    if not lacking:
        return
    if ray is not None:
        from twinrank.study.cluster import on_ray

        on_ray(ray, jobs, _calls(lacking, out, tuning, deadline, None))
        return
    from joblib import cpu_count

    count = min(jobs or cpu_count(), len(lacking))
    if count > 1:
        _in_processes(out, tuning, trials, count, deadline)
        return
    for model in lacking:
        run_trial(tuning.to_text(), model, str(out), deadline)


def models_lacking(out: Path, tuning: Tuning, trials: int) -> list[str]:
    """The kind of model of every trial that isn't there yet, in turn."""
    there = [one.model for one in tuning.tried(out) if one.state != "running"]
    lacking = [[model] * (trials - there.count(model)) for model in tuning.models]
    return [model for turn in zip_longest(*lacking) for model in turn if model is not None]


def _in_processes(
    out: Path, tuning: Tuning, trials: int, jobs: int, deadline: float | None
) -> None:
    """Processes that train; where one dies, what it and those beside it were at has failed."""
    from joblib import Parallel
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    while lacking := models_lacking(out, tuning, trials):
        calls = _calls(lacking, out, tuning, deadline, os.getpid())
        with _interrupted_once():
            try:
                Parallel(n_jobs=jobs, backend="loky", batch_size=1)(calls)
                return
            except TerminatedWorkerError as error:
                if not give_up(out, tuning, _DIED):
                    raise TwinRankError(f"processes die before they train: {error}") from error
            except KeyboardInterrupt:
                get_reusable_executor().shutdown(wait=True, kill_workers=True)
                raise


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """Let Ctrl-C count once: at a second one, processes that are being ended would live on."""

    def note(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _calls(
    models: list[str], out: Path, tuning: Tuning, deadline: float | None, leader: int | None
) -> list[Any]:
    from joblib import delayed

    text = tuning.to_text()
    return [delayed(run_trial)(text, model, str(out), deadline, leader) for model in models]
