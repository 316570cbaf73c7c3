"""`evaluate_log`: what a new ranker would be worth, estimated from the log of the old one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.clicks.click_credits import CreditOptions, CreditSummary, click_credits, lifted
from twinrank.clicks.click_log import ClickLog, Floats
from twinrank.clicks.click_measures import check_linear
from twinrank.clicks.scored_documents import scores_of_documents
from twinrank.core.measures import Measure
from twinrank.evaluation.evaluate import evaluate
from twinrank.support.errors import Argument, DataWarning, InputError, check_number, warn
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable

ESTIMATORS = ("ips", "snips", "dr")
_TITLES = {
    "ips": "inverse propensities",
    "snips": "self-normalised inverse propensities",
    "dr": "doubly robust",
}


@dataclass(frozen=True)
class Estimate:
    """An estimated value with its 95 % interval, which is NaN if the log has one query."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.4f}"
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, eq=False)
class LogEvaluation:
    """The result of `evaluate_log`; `str(result)` is a table.

    Parameters
    ----------
    estimates : mapping of str to mapping of str to Estimate
        The estimates by system and measure, each with `value`, `low` and `high`.
    overlap : mapping of str to mapping of str to float
        The share of the measure's weight that is on documents that were shown.
    draws : mapping of str to mapping of str to array of float
        The estimates from resamples of the queries, the same resamples for all systems.
    estimator : str
        The estimator.
    summary : CreditSummary
        How much data the estimates are based on.
    queries : int
        The number of queries.
    """

    estimates: Mapping[str, Mapping[str, Estimate]]
    overlap: Mapping[str, Mapping[str, float]]
    draws: Mapping[str, Mapping[str, Floats]]
    estimator: str
    summary: CreditSummary
    queries: int

    @property
    def measures(self) -> list[str]:
        """The names of the measures."""
        return list(next(iter(self.estimates.values())))

    def difference(self, first: str, second: str, measure: str | Measure | None = None) -> Estimate:
        """The estimated difference of two systems, first − second, with its 95 % interval.

        Parameters
        ----------
        first, second : str
            The names of the systems.
        measure : str or Measure, optional
            The measure. Default: the first one.
        """
        name = self.measures[0] if measure is None else str(measure)
        for system in (first, second):
            if system not in self.estimates:
                raise InputError(argument="system", value=system, choices=self.estimates)
        if name not in self.measures:
            raise InputError(argument="measure", value=name, choices=self.measures)
        own, other = self.estimates[first][name], self.estimates[second][name]
        changes = self.draws[first][name] - self.draws[second][name]
        return _estimate(own.value - other.value, changes)

    def table(self) -> ResultTable:
        """A table of estimates and intervals; differences to the first system are marked."""
        systems, names = list(self.estimates), self.measures
        rows = []
        for system in systems:
            cells = [Cell(system)]
            for name in names:
                mark = ""
                if system != systems[0]:
                    change = self.difference(system, systems[0], name)
                    mark = "*" if change.low > 0 or change.high < 0 else ""
                cells.append(Cell(str(self.estimates[system][name]), mark=mark))
            rows.append(cells)
        notes = [
            f"Estimated from {counted(self.queries, 'query')} by {_TITLES[self.estimator]}; 95 % "
            f"bootstrap intervals over queries.",
            f"{self.summary}.",
        ]
        if len(systems) > 1:
            notes.insert(1, f"*: differs from {systems[0]}; the interval of the paired difference "
                            f"excludes 0.")  # fmt: skip
        return ResultTable("", ["", *names], rows, notes)

    def to_json(self) -> dict[str, Any]:
        """The estimates as plain JSON."""
        return {
            "estimator": self.estimator,
            "queries": self.queries,
            "credits": self.summary.to_json(),
            "systems": {
                system: {
                    name: {**vars(found), "overlap": self.overlap[system][name]}
                    for name, found in by_measure.items()
                }
                for system, by_measure in self.estimates.items()
            },
        }

    def __str__(self) -> str:
        return self.table().to_text()


def evaluate_log(
    scores: Any,
    log: ClickLog,
    measures: str | Measure | Sequence[str | Measure] = "DCG(gain=linear)@10",
    propensities: Any = None,
    *,
    estimator: str = "ips",
    clip: float | str | None = None,
    relevance: Any = None,
    exposure: Any = None,
    average: str = "impressions",
    min_overlap: float = 0.5,
    resamples: int = 999,
    random_state: int = 0,
) -> LogEvaluation:
    """Estimate what rankers are worth from a log of clicks that another ranker collected.

    The value of a ranker is its measure with the credits of clicks as labels; see
    `ClickLog.to_dataset`. A document that was never shown counts 0, or with `estimator="dr"` as
    much as its features predict.

    Parameters
    ----------
    scores : array, ranker, or mapping of str to these
        One score per document of the log's dataset, or a fitted ranker; or several of them by name,
        which are compared on the same resamples.
    log : ClickLog
        The log. Use queries on which no ranker was trained.
    measures : str, Measure, or sequence of these, default "DCG(gain=linear)@10"
        Measures that are linear in the labels: DCG(gain=linear), P(gain=linear), RBP(gain=linear).
    propensities : Propensities or array of float, optional
        The probability that each position is seen. By default the log's own propensities.
    estimator : {"ips", "snips", "dr"}, default "ips"
        Inverse propensities; the same divided by the mean sum of credits per query, which has a
        lower variance and is the mean discount of a relevant document; or doubly robust.
    clip : float or "auto", optional
        The lowest exposure per impression that credits are divided by, as in `to_dataset`. Default:
        "auto" for "dr"; otherwise 0, with which "ips" is unbiased.
    relevance : array of float, shape (n_documents,), optional
        Predicted relevance for `estimator="dr"`. By default boosted trees predict it.
    exposure : array of float, shape (n_documents,), optional
        The probability that a user sees each document under a known logging policy, instead of
        `propensities`; see `ClickLog.to_dataset`.
    average : {"impressions", "queries"}, default "impressions"
        Whether queries count as often as they were shown, or equally.
    min_overlap : float, default 0.5
        The least share of the measure's weight on documents that were shown.
    resamples : int, default 999
        The number of bootstrap resamples of the queries.
    random_state : int, default 0
        The seed of resamples and of random ties.

    Returns
    -------
    LogEvaluation

    Raises
    ------
    InputError
        If a measure is not linear, or a ranker prefers documents that the log never shows.

    Examples
    --------
    >>> from twinrank import synthetic_web_search, simulate_clicks
    >>> data = synthetic_web_search(queries=20)
    >>> log = simulate_clicks(data, cutoff=None, impressions=2000)
    >>> systems = {"best": data.y, "worst": -data.y}
    >>> found = evaluate_log(systems, log, propensities=1 / np.arange(1, 500))
    >>> found.difference("best", "worst").low > 0
    True
    """
    if estimator not in ESTIMATORS:
        raise InputError(argument="estimator", value=estimator, choices=ESTIMATORS)
    if average not in ("impressions", "queries"):
        raise InputError(argument="average", value=average, choices=("impressions", "queries"))
    check_number("min_overlap", min_overlap, least=0)
    check_number("resamples", resamples, whole=True)
    if min_overlap > 1:
        raise InputError(f"min_overlap must be between 0 and 1, not {min_overlap!r}.")
    if not log.clicks:
        raise InputError("The log has no clicks, so that it says nothing about rankers.")
    listed = [measures] if isinstance(measures, str | Measure) else list(measures)
    by_name = {str(each): check_linear(each) for each in listed}
    if not by_name:
        raise InputError("Give at least one measure, such as measures='DCG(gain=linear)@10'.")
    systems = scores if isinstance(scores, Mapping) else {"ranker": scores}
    if not systems:
        raise InputError("scores must have at least one system.")
    documents = log.lists.documents
    ranked = {
        str(name): scores_of_documents(own, log.data, str(name), documents)
        for name, own in systems.items()
    }
    kind = "dr" if estimator == "dr" else "ips"
    unbiased = 0.0 if clip is None and kind == "ips" else clip
    options = CreditOptions(kind, unbiased, relevance, exposure=exposure)
    credits = click_credits(log, propensities, options)
    weight = log.query_weights.copy()
    if average == "queries":
        weight = (weight > 0).astype(np.float64)
    lifted_values, lift = lifted(log, credits)
    labels = {"value": lifted_values, "shown": credits.shown * 1.0, "all": np.ones(documents)}
    values: dict[str, dict[str, Floats]] = {}
    overlap: dict[str, dict[str, float]] = {}
    for system, own in ranked.items():
        found = {
            what: evaluate(
                own, each, log.lists, by_name, empty="zero", random_state=random_state
            ).values
            for what, each in labels.items()
        }
        values[system] = {
            name: found["value"][name] - lift * found["all"][name] for name in by_name
        }
        overlap[system] = {
            name: float((weight @ found["shown"][name]) / (weight @ found["all"][name]))
            for name in by_name
        }
        _check_overlap(system, overlap[system], min_overlap)
    normaliser = log.lists.sum(credits.values) if estimator == "snips" else np.ones(weight.size)
    draws, estimates = _bootstrap(values, weight, normaliser, resamples, random_state)
    return LogEvaluation(estimates, overlap, draws, estimator, credits.summary, log.queries)


def _check_overlap(system: str, overlap: Mapping[str, float], least: float) -> None:
    for name, share in overlap.items():
        if share < least:
            raise InputError(
                f"The log says too little about {system!r}: only {share:.0%} of the weight of "
                f"{name} is on documents that were shown (at least {least:.0%} is needed). Log "
                f"more impressions with some random order, rank only documents that were shown, or "
                f"accept this with ",
                Argument("min_overlap", math.floor(100 * share) / 100),
                ".",
            )


def _bootstrap(
    values: Mapping[str, Mapping[str, Floats]],
    weight: Floats,
    normaliser: Floats,
    resamples: int,
    random_state: int,
) -> tuple[dict[str, dict[str, Floats]], dict[str, dict[str, Estimate]]]:
    """Weighted means over queries, from resamples and from all queries."""
    kept = np.flatnonzero(weight > 0)
    if kept.size == 1:
        warn(DataWarning("The log has one query, so that there are no intervals; these come from "
                         "resampled queries."))  # fmt: skip
    columns = [weight * normaliser]
    columns += [weight * own for by_name in values.values() for own in by_name.values()]
    sums = np.stack(columns, axis=1)[kept]
    generator = np.random.default_rng(random_state)
    totals = np.empty((resamples, sums.shape[1]))
    for i in range(resamples):
        drawn = generator.integers(0, kept.size, kept.size)
        totals[i] = np.bincount(drawn, minlength=kept.size) @ sums
    if kept.size == 1:
        totals[:] = np.nan
    whole = sums.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn_means, means = totals[:, 1:] / totals[:, :1], whole[1:] / whole[0]
    draws: dict[str, dict[str, Floats]] = {}
    estimates: dict[str, dict[str, Estimate]] = {}
    column = 0
    for system, by_name in values.items():
        draws[system], estimates[system] = {}, {}
        for name in by_name:
            draws[system][name] = drawn_means[:, column]
            estimates[system][name] = _estimate(float(means[column]), drawn_means[:, column])
            column += 1
    return draws, estimates


def _estimate(value: float, draws: Floats) -> Estimate:
    known = draws[np.isfinite(draws)]  # a resample may have no clicks to normalise by
    low, high = np.quantile(known, [0.025, 0.975]) if known.size else (np.nan, np.nan)
    return Estimate(value, float(low), float(high))
