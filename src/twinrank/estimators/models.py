"""Trained models in folders, of whatever kind they are."""

import shlex
from pathlib import Path

from twinrank.boosting.model import FORMAT as BOOSTED
from twinrank.estimators.base import BaseRanker
from twinrank.support.errors import InputError, explained
from twinrank.support.files import read_json

CONFIG, MODEL = "run.json", "model"
"""What a run's folder has: the file that says it is one, and the folder of its model."""


def model_in(folder: Path) -> BaseRanker:
    """The ranker of a run's folder, or of one that `save` wrote; torch only where it is a net."""
    with explained("read", folder):
        if not folder.exists():
            raise InputError(f"{folder} is not a model: there is no such folder")
        of_run = (folder / CONFIG).is_file()
        if of_run and not (folder / MODEL).exists():
            raise InputError(
                f"the run in {folder} isn't complete; finish it with: "
                f"twinrank train --resume {shlex.quote(str(folder))}"
            )
        place = folder / MODEL if of_run else folder
        config = place / "config.json"
        about = read_json(config) if config.is_file() else None
    if isinstance(about, dict) and about.get("format") == BOOSTED:
        from twinrank.estimators.boosted import BoostedRanker

        return BoostedRanker.load(place)
    from twinrank.estimators.ranker import Ranker

    return Ranker.load(place)
