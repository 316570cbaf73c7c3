"""Trials of a search one after another, beside each other, or on a cluster."""

import os
from itertools import zip_longest
from pathlib import Path
from typing import Any

from twinrank.study.processes import DIED, cores, in_processes
from twinrank.study.tuning.search import Tuning
from twinrank.study.tuning.trials import give_up, run_trial
from twinrank.support.errors import TwinRankError


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
    count = min(jobs or cores(), len(lacking))
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
    while lacking := models_lacking(out, tuning, trials):
        if in_processes(_calls(lacking, out, tuning, deadline, os.getpid()), jobs):
            return
        if not give_up(out, tuning, DIED):
            raise TwinRankError("processes die before they train; is there enough memory?")


def _calls(
    models: list[str], out: Path, tuning: Tuning, deadline: float | None, leader: int | None
) -> list[Any]:
    from joblib import delayed

    text = tuning.to_text()
    return [delayed(run_trial)(text, model, str(out), deadline, leader) for model in models]
