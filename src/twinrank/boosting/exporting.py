"""Trees as a file of their engine's own, for programs without TwinRank."""

from pathlib import Path

from twinrank.boosting.model import BoostedModel
from twinrank.data.transforms import Compose
from twinrank.support.errors import InputError
from twinrank.support.files import replacing

SUFFIXES = {"lightgbm": (".txt",), "xgboost": (".json", ".ubj")}
NAMES = {"lightgbm": "LightGBM", "xgboost": "XGBoost"}


def export_trees(model: BoostedModel, path: Path) -> None:
    """Write the trees as LightGBM's text, or as XGBoost's JSON or UBJSON."""
    allowed = SUFFIXES[model.engine]
    if path.suffix not in allowed:
        raise InputError(
            f"can't write {path}: trees are exported in {NAMES[model.engine]}'s own format; "
            f"choose a name with {' or '.join(allowed)}"
        )
    content = model.trees.to_bytes()
    if path.suffix == ".ubj":
        content = bytes(model.trees.booster.save_raw("ubj"))
    with replacing(path) as partial:
        partial.write_bytes(content)


def left_out(model: BoostedModel) -> str | None:
    """What a program that reads the file has to do by itself, if anything."""
    if model.transform == Compose():
        return None
    each = ", query by query" if model.per_query else ""
    return f"features go through {model.transform} first{each}, which the file doesn't hold"
