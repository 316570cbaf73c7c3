"""Logs of clicks on the command line: reading them, and their propensities."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.cli.data_options import load_unlabelled, show_notes, warnings_as_notes
from twinrank.cli.output_options import (
    is_quiet,
    show,
    show_drawn,
    show_json,
    show_note,
    show_table,
    wants_json,
)
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.clicks.click_log import ClickLog
    from twinrank.clicks.propensities import Propensities
    from twinrank.data.dataset import Dataset
    from twinrank.learning.estimators.base_ranker import BaseRanker

LINEAR = "DCG(gain=linear)@10"
"""The measure of clicks, if the user names none."""


def load_log(
    clicks: Path,
    data: Path | None,
    reading: dict[str, Any],
    text: Any = (),
    *,
    features: bool = False,
) -> "ClickLog":
    """Load a log; the labels of the data are ignored.

    Without data there are no features, or with `features` those of the built-in data.
    A folder with the indices of OpenSearch UBI is a log, too.
    """
    from twinrank.clicks.log_reading import load_clicks
    from twinrank.clicks.ubi import load_ubi

    documents = load_unlabelled(data, reading, text) if data or features else None
    if documents is not None:
        show_notes(documents)
    queries, events = (clicks / f"ubi_{name}.ndjson" for name in ("queries", "events"))
    if queries.exists() or events.exists():
        return load_ubi(queries, events, documents)
    if clicks.suffix == ".ndjson":
        raise InputError(
            f"{clicks} may be an index of OpenSearch UBI; pass a folder with both, "
            f"{queries.name} and {events.name}."
        )
    return load_clicks(clicks, documents)


def with_propensities(log: "ClickLog", path: Path | None) -> "tuple[ClickLog, Propensities | None]":
    """The log, and the propensities in a file, those of the log (None), or else estimates.

    Positions for which the file has no propensity are left out.
    """
    from twinrank.clicks.position_bias import estimate_propensities
    from twinrank.clicks.propensities import Propensities

    if path is not None:
        known = Propensities.load(path)
        if len(known) < log.positions:
            show_note(f"{path} has {len(known)} positions; rows below them are left out.")
            log = log.first(len(known))
        return log, known
    if log.propensity is not None:
        return log, None
    try:
        with warnings_as_notes(is_quiet()):
            found = estimate_propensities(log, resamples=0)
    except InputError as error:
        raise InputError(
            *error.parts, " Options for estimates are those of twinrank inspect --clicks."
        ) from error
    show_note(
        f"Estimated propensities ({found.method}): "
        f"{', '.join(f'{value:.3f}' for value in found.values[:10])}"
        f"{', …' if len(found) > 10 else ''}."
    )
    return log, found


def click_sets(
    source: dict[str, Any], data: Path | None, reading: dict[str, Any]
) -> "tuple[Dataset, Dataset]":
    """Training and validation data of a log: four fifths of its queries, and the others."""
    try:
        log = load_log(Path(source["clicks"]), data, reading, features=True)
    except InputError as error:
        if data:
            raise
        raise InputError(
            *error.parts, " DATA is the built-in data; name the file with the features."
        ) from error
    path, estimator = source.get("propensities"), source.get("estimator") or "ips"
    validating, found = "ips", None
    if estimator in ("ips", "dr") or path is not None or log.propensity is not None:
        log, found = with_propensities(log, None if path is None else Path(path))
    else:  # these need no propensities
        validating = estimator
    train, valid = log.split(0.8)
    with warnings_as_notes(is_quiet()):
        safe = source.get("safe") or 0.0
        clip = 0 if validating == "ips" else None
        credits = train.to_dataset(found, estimator=estimator, safe=safe)
        return credits, valid.to_dataset(found, estimator=validating, clip=clip)


def use_linear_measures(ranker: "BaseRanker") -> None:
    """Replace the default measures of a ranker, which clicks cannot estimate."""
    own, defaults = ranker.get_params(), type(ranker)().get_params()
    for name in (*ranker._named("objective"), *ranker._named("validation_measure")):
        if own[name] == defaults.get(name):
            ranker.set_params(**{name: LINEAR})


def inspect_clicks(
    clicks: Path,
    data: Path | None,
    reading: dict[str, Any],
    target: Path | None,
    plot: Path | None,
    positions: int | None,
    curve: str,
) -> None:
    """Print the summary of a log and its propensities; `target` gets them as JSON."""
    from twinrank.clicks.click_models import compare_click_models
    from twinrank.clicks.position_bias import estimate_propensities

    log = load_log(clicks, data, reading)
    summary, found = log.summary, None
    try:
        models = compare_click_models(log)
    except InputError:  # such as a log without clicks
        models = None
    wanted = any(option is not None for option in (target, plot, positions)) or curve != "free"
    if wanted or not summary.problem:
        with warnings_as_notes(is_quiet()):
            found = estimate_propensities(log, positions=positions, curve=curve)  # or an error
    if wants_json():
        both = {"click_models": models, "propensities": found}
        own = {name: None if each is None else each.to_json() for name, each in both.items()}
        show_json({**summary.to_json(), **own})
    else:
        show(f"{clicks}\n{summary}")
        if found is not None:
            show_table(found.table())
        if models is not None:
            show_table(models.table())
    if target is not None and found is not None:
        found.save(target)
        show_note(f"Propensities are in {target}.")
    if plot is not None and found is not None:
        found.draw(plot)
        show_drawn(plot)
