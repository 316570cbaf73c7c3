"""The gate of `twinrank train`: a new model takes a folder unless it is significantly worse."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.support.errors import InputError, explained
from twinrank.support.files import publish, remove
from twinrank.support.locks import is_empty

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.learning.estimators.base_ranker import BaseRanker

WORSE = 3
"""The exit code if the new model is significantly worse."""
LEVEL = 0.05
_TEST = "permutation"


def candidate_of(out: Path) -> Path:
    """The folder in which a model is trained that may later replace `out`."""
    return out.with_name(f"{out.name}.candidate")


def check_replaceable(out: Path) -> None:
    """Refuse a target that is neither new or empty, nor a model or a run."""
    from twinrank.learning.models.saved_model import CONFIG, RUN

    with explained("write", out):
        known = (out / RUN).is_file() or (out / CONFIG).is_file()
        if out.exists() and not known and not is_empty(out):
            raise InputError(f"{out} exists and is not a model; choose another name.")


def clear_candidate(folder: Path) -> None:
    """Remove the candidate of an earlier training; one that is not complete can be resumed."""
    from twinrank.learning.models.saved_model import RUN, RUN_MODEL

    with explained("write", folder):
        if (folder / RUN).is_file() and (folder / RUN_MODEL).is_dir():
            remove(folder)


def gate_result(old: "BaseRanker", new: "BaseRanker", data: "Dataset") -> dict[str, Any]:
    """Both models on the newest queries, and whether the new one is significantly worse."""
    from twinrank.evaluation.comparison import compare

    measure = new.selected_by
    scores = {"old": old.predict(data), "new": new.predict(data)}
    labels = data.labels or data.y
    measures = [measure if new.constraints_ else new.validation_measure]
    rows = data.row_weights
    tested = compare(scores, labels, data.lists, measures, test=_TEST, weights=rows)
    queries = tested.lists_in_means[measure]
    if not queries:
        raise InputError("--gate: no query of the data has a relevant document.")
    means, p = tested.means, min(tested.p_values[measure].values())
    difference = means["new"][measure] - means["old"][measure]
    return {
        "measure": measure,
        "queries": queries,
        "old": means["old"][measure],
        "new": means["new"][measure],
        "difference": difference,
        "p_value": p,
        "passed": not (difference < 0 and p < LEVEL),
    }


def gate_text(result: dict[str, Any]) -> str:
    """The result of the gate as a sentence."""
    verdict = "not significantly worse" if result["passed"] else "significantly worse"
    return (
        f"The new model is {verdict} on the newest queries: {result['measure']} "
        f"{result['new']:.4f}, before {result['old']:.4f} (p = {result['p_value']:.2g}, paired "
        f"permutation test, {result['queries']:,} queries)."
    )


def promote(candidate: Path, out: Path) -> None:
    """Move a candidate to its final place; an earlier model there is replaced."""
    with explained("write", out):
        publish(candidate, out)
