"""Trained models in folders, of whatever kind they are."""

from pathlib import Path

from twinrank.boosting.model import FORMAT as BOOSTED
from twinrank.estimators.base import BaseRanker
from twinrank.estimators.places import model_place
from twinrank.support.errors import explained
from twinrank.support.files import read_json


def model_in(folder: Path) -> BaseRanker:
    """The ranker of a run's folder, or of one that `save` wrote; torch only where it is a net."""
    place = model_place(folder)
    config = place / "config.json"
    with explained("read", config):
        about = read_json(config) if config.is_file() else None
    if isinstance(about, dict) and about.get("format") == BOOSTED:
        from twinrank.estimators.boosted import BoostedRanker

        return BoostedRanker.load(place)
    from twinrank.estimators.ranker import Ranker

    return Ranker.load(place)
