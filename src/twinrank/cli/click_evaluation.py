"""twinrank evaluate --clicks: estimate the value of models from a log."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.cli.click_files import LINEAR, load_log, with_propensities
from twinrank.cli.data_options import warnings_as_notes
from twinrank.cli.evaluated_systems import load_models, read_scores_of, system_names
from twinrank.cli.output_options import is_quiet
from twinrank.cli.predict_command import scores_of
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.clicks.click_log import ClickLog
    from twinrank.clicks.log_evaluation import LogEvaluation
    from twinrank.clicks.propensities import Propensities


def evaluate_clicks(
    clicks: Path,
    data: Path,
    models: list[Path],
    files: list[Path],
    measures: list[str] | None,
    propensities: Path | None,
    estimator: str | None,
    architecture: str | None,
    seed: int,
    min_overlap: float,
    reading: dict[str, Any],
) -> "tuple[LogEvaluation, ClickLog, Propensities | None]":
    """Estimate measures of models and of files of scores from a log on the same data.

    Returns the log and its propensities, too.
    """
    from twinrank.clicks.click_measures import check_linear
    from twinrank.clicks.log_evaluation import evaluate_log

    names = system_names([*models, *files])
    listed = [check_linear(name) for name in measures or [LINEAR]]
    rankers = load_models(models, data, architecture)
    text = {name for ranker in rankers for name in ranker._known_columns().text}
    log = load_log(clicks, data, reading, sorted(text))
    log, found = with_propensities(log, propensities)
    if log.data is None:
        raise InputError("--clicks needs DATA with the features of the documents.")
    scores = [scores_of(ranker, log.data, data) for ranker in rankers]
    scores += [
        log.data.from_source_order(read_scores_of(path, log.data.documents)) for path in files
    ]
    with warnings_as_notes(is_quiet()):
        result = evaluate_log(
            dict(zip(names, scores, strict=True)),
            log,
            listed,
            found,
            estimator=estimator or "ips",
            min_overlap=min_overlap,
            random_state=seed,
        )
    return result, log, found
