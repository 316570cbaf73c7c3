"""Credits: estimates of the relevance of documents from clicks.

A query was shown N times. A document got C clicks, and was seen E times in expectation: E is the
sum of the propensities of the positions at which it was shown, 0 where it was not. All are sums
over impressions, with their weights. In the position-based model the expectation of C is E ×
relevance, so C / E is unbiased, whatever the positions were. This is inverse propensity scoring
with the propensity of the logging policy, E / N (Oosterhuis and de Rijke 2020), where displays
stand for the policy. Its variance is at most that of the mean of click / propensity.

The doubly robust estimate (Oosterhuis 2023) adds a prediction r of relevance where exposure is less
than the clip: r + (C − E · r) / max(E, clip · N). It is unbiased if the propensities are right and
nothing is clipped, and also if r is right. A document that was never shown has the credit r. It is
never negative, because C + (max(E, clip · N) − E) · r has no negative term.

If the logging policy is stochastic and known, E is N times the exposure that it gives a document,
also if the log happens not to show it (Oosterhuis and de Rijke 2020). With `clip=0`, a document
that was not shown then has the credit 0, and the estimate is unbiased over what the policy could
have shown.

C / E of a document with little exposure is mostly noise. So by default a credit is
C / (max(E, d) + d): each document gets d more displays without a click, and has an exposure of at
least d. d is 1, and less for queries that were shown rarely in a long log, 30 / √impressions · N:
features then average over queries, and noise matters less than bias. A prior for relevance instead
of 0 would give documents without clicks different labels. Strategies such as type3 see the sign of
a difference only, so where queries are shown once, rankers would learn the prior. `safe` does this
on purpose.

With trust bias, C is the number of clicks minus those that positions alone cause in expectation
(Vardasbi et al. 2020). A credit can then be negative. `lifted` adds a constant per query, because
labels are not: it changes a linear measure of any ranking by the same amount.
"""

from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog, Floats
from twinrank.clicks.logging_prior import logging_prior
from twinrank.clicks.propensities import row_propensities
from twinrank.clicks.relevance_trees import tree_features, trees_for
from twinrank.data.folds import cut
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import Argument, DataWarning, InputError, check_number, warn
from twinrank.support.quantities import counted

ESTIMATORS = ("ips", "dr", "naive")
_CLIP = 10  # / √impressions: the exposure per impression that credits are divided by at least
_DISPLAYS = 30  # / √impressions: the displays that are added per impression, up to one in all
_DOMINANT = 0.1  # the share of all credit that one impression may have
_ROUNDS = 60
_PARTS = 5  # of the queries, for predictions


@dataclass(frozen=True)
class CreditOptions:
    """How credits are estimated; `ClickLog.to_dataset` documents the options."""

    estimator: str = "ips"
    clip: float | str | None = None
    relevance: Any = None
    tower: Any = "trees"
    exposure: Any = None
    safe: float = 0.0

    @property
    def is_smooth(self) -> bool:
        """Whether each document gets more displays."""
        return self.estimator == "ips" and self.clip is None

    def bound(self, log: ClickLog) -> float:
        """The clip as a number; "auto" decreases with the size of the log (Oosterhuis 2023)."""
        clip = self.clip
        if clip is None:
            clip = "auto" if self.estimator == "dr" else 0.0
        if clip == "auto":
            return float(min(_CLIP / np.sqrt(max(log.impressions, 1)), 1.0))
        if not isinstance(clip, Real) or not 0 <= clip <= 1:
            raise InputError(f'clip must be "auto" or a number between 0 and 1, not {clip!r}.')
        return float(clip)


@dataclass(frozen=True)
class CreditSummary:
    """How much data the credits are based on.

    `effective_clicks` is the effective sample size (Kish): the number of clicks of equal weight
    that would have the same variance.
    """

    clicks: int
    effective_clicks: float
    largest_weight: float
    clip: float
    clipped_share: float  # of the documents that were shown
    unseen: int  # documents of shown queries that were never shown
    largest_impression: float  # its share of all credit

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        unseen, weight = counted(self.unseen, "document"), self.largest_weight
        floor = f"the clip {self.clip:.3g}" if self.clip else "the added displays"
        clipped = ""
        if self.clip or self.clipped_share:
            clipped = f"exposure below {floor}: {self.clipped_share:.1%} of the documents; "
        return (
            f"{counted(self.clicks, 'click')}, effective sample size {self.effective_clicks:,.0f}, "
            f"largest weight {weight:,.{0 if weight >= 100 else 2}f}; "
            f"{clipped}{unseen} never shown"
        )


@dataclass(frozen=True, eq=False)
class Credits:
    """The credit of each document, and which documents were shown."""

    values: Floats
    shown: Any
    summary: CreditSummary


def click_credits(log: ClickLog, propensities: Any, options: CreditOptions) -> Credits:
    """Estimate the credit of each document."""
    estimator, exposure, safe = options.estimator, options.exposure, options.safe
    if estimator not in ESTIMATORS:
        raise InputError(argument="estimator", value=estimator, choices=ESTIMATORS)
    if options.relevance is not None and estimator != "dr":
        raise InputError("relevance is for ", Argument("estimator", "dr"), "; leave it out.")
    check_number("safe", safe, least=0)
    if estimator == "naive" and (safe or exposure is not None):
        name = "safe" if safe else "exposure"
        raise InputError(f"{name} is for the estimators ips and dr; naive has no exposure.")
    if estimator == "naive" and options.clip is not None:
        raise InputError("clip is for the estimators ips and dr; leave it out.")
    if exposure is not None and propensities is not None:
        raise InputError("Pass exposure or propensities, not both.")
    if exposure is not None or estimator == "naive":
        propensity, trust = np.broadcast_to(1.0, log.position.shape), None
    else:
        propensity, trust = row_propensities(log, propensities)
    bound = options.bound(log)
    clicks = log.per_document(log.clicked if trust is None else log.clicked - trust)
    size = log.query_weights[log.document_query]
    seen = log.per_document(propensity)
    if exposure is not None:
        seen = _policy_exposure(exposure, seen > 0) * size
    floor: Any = bound * size
    added: Any = 0.0
    if options.is_smooth:
        floor = added = np.minimum(_DISPLAYS / np.sqrt(max(log.impressions, 1)) * size, 1.0)
    divisor = np.maximum(seen, floor) + added
    inverse = np.divide(1.0, divisor, out=np.zeros_like(divisor), where=divisor > 0)
    values = clicks * inverse
    if estimator == "dr":
        if options.relevance is None:
            predicted = regressed_relevance(log, clicks, seen)
        else:
            predicted = _relevance(options.relevance, log.lists.documents)
        values += np.where(divisor > 0, (divisor - seen) * inverse, 1.0) * predicted
    if safe:
        prior = logging_prior(clicks, seen, size)
        values = (values * divisor + safe * prior) / (divisor + safe)
        inverse = 1 / (divisor + safe)
    shown = seen > 0
    return Credits(values, shown, _summary(log, inverse, bound, shown, seen < floor))


def _policy_exposure(exposure: Any, shown: Any) -> Floats:
    """The exposure of each document under a known logging policy; checked."""
    values = to_numpy(exposure).astype(np.float64)
    if values.shape != shown.shape or not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            f"exposure must have one number between 0 and 1 for each of {shown.size:,} documents."
        )
    if (shown & (values == 0)).any():
        raise InputError(
            f"The exposure of document {int(np.argmax(shown & (values == 0)))} is 0, but the log "
            f"shows it."
        )
    return np.asarray(values)


def lifted(log: ClickLog, credits: Credits) -> tuple[Floats, Floats]:
    """Credits that are at least 0, and what was added to those of each query."""
    lowest = np.zeros(len(log.lists))
    np.minimum.at(lowest, log.document_query, credits.values)
    return credits.values - lowest[log.document_query], -lowest


def _relevance(relevance: Any, documents: int) -> Floats:
    values = to_numpy(relevance).astype(np.float64)
    if values.shape != (documents,) or not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(
            f"relevance must have one number of at least 0 for each of {documents:,} documents."
        )
    return values


def regressed_relevance(log: ClickLog, clicks: Floats, exposure: Floats) -> Floats:
    """Predict the credit from features, by trees that have not seen the query's clicks.

    Queries are in five parts, and the trees for each part are trained on the others. So the
    prediction is independent of the clicks that it corrects. Documents weigh as much as they were
    exposed, since the variance of C / E is about relevance / E.
    """
    if log.data is None:
        raise InputError(
            "A doubly robust estimate predicts relevance from features, and the log has none. Pass "
            "data to load_clicks, or pass relevance."
        )
    import lightgbm

    queries = np.flatnonzero(log.query_weights > 0)
    if queries.size < 2:
        raise InputError("A doubly robust estimate needs at least two queries.")
    X, predicted = tree_features(log.data), np.zeros(log.lists.documents)
    parts = min(_PARTS, queries.size)
    for part in cut(queries.size, [1 / parts] * (parts - 1), 0):
        own = np.isin(log.document_query, queries[part])
        rows = np.flatnonzero(~own & (exposure > 0))
        target, weight = clicks[rows] / exposure[rows], exposure[rows] / exposure[rows].mean()
        data = lightgbm.Dataset(X[rows], target, weight=weight)
        parameters = {**trees_for(rows.size), "objective": "regression"}
        model = lightgbm.train(parameters, data, num_boost_round=_ROUNDS)
        predicted[own] = model.predict(X[own], num_threads=1)
    return np.clip(predicted, 0, 1)


def _summary(
    log: ClickLog, inverse: Floats, bound: float, shown: Any, clipped: Any
) -> CreditSummary:
    """The figures, and a warning if one impression dominates."""
    size = log.query_weights[log.document_query]
    rows = np.flatnonzero(log.clicked)
    count = (log.shown * log.clicked)[rows]
    weight = (inverse * size)[log.document[rows]]
    if not log.is_sum:  # in a sum, each click has the weight 1
        weight = weight * log.row_weight[rows]
    total = count @ weight
    largest, what = weight.max(initial=0) / max(total, 1e-300), "A click"
    if not log.is_sum:
        by_impression = np.bincount(log.impression[rows], weight, log.impressions)
        largest = by_impression.max() / max(total, 1e-300)
        what = f"Impression {np.argmax(by_impression)}"
    unseen = ~shown & (size > 0)
    found = CreditSummary(
        clicks=log.clicks,
        effective_clicks=float(total**2 / (count @ weight**2)) if total else 0.0,
        largest_weight=float(weight.max(initial=0)),
        clip=bound,
        clipped_share=float(clipped[shown].mean()) if shown.any() else 0.0,
        unseen=int(unseen.sum()),
        largest_impression=float(largest),
    )
    if largest > _DOMINANT:
        warn(
            DataWarning(
                f"{what} has {largest:.0%} of all credit, so that estimates depend on it. Use a "
                f"longer log, or a higher clip in Python."
            )
        )
    return found
