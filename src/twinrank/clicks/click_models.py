"""Which click model describes a log: the likelihood of clicks in impressions that were held out.

| model | probability of a click on document d at position k |
|---|---|
| position | p_k · r_d |
| trust | β_k + α_k · r_d (Agarwal et al. 2019) |
| cascade | r_d until the first click, then 0 (Craswell et al. 2008) |
| dependent | r_d until a click; after one, users go on with probability λ_k (Guo et al. 2009) |

All are fitted by EM to 70 % of the impressions of each query, with the same prior for r_d.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from twinrank.clicks.click_log import Bools, ClickLog, Floats, Ints, summed
from twinrank.support.errors import DataWarning, InputError, check_number, warn
from twinrank.support.tables import Cell, ResultTable

CLICK_MODELS = ("position", "trust", "cascade", "dependent")
_STEPS = 60
_PRIOR = 10.0  # displays with the mean relevance that each document gets
_TINY = 1e-6
_SURE = 3.0  # standard errors
_FEWEST = 50  # impressions that are held out
_CLEAR = 1e-4  # a smaller difference is of no use, however certain it is
_HELD_OUT = 0.3
_QUICK = 30_000  # rows for the warning


@dataclass(frozen=True)
class ClickModelComparison:
    """How well click models predict clicks that they have not seen.

    Parameters
    ----------
    log_likelihood : mapping of str to float
        The mean log-likelihood of an impression, by model; higher is better.
    difference : mapping of str to tuple of float
        The difference to the position-based model, and its standard error.
    impressions : int
        The number of impressions that were held out.
    """

    log_likelihood: Mapping[str, float]
    difference: Mapping[str, tuple[float, float]]
    impressions: int

    @property
    def best(self) -> str:
        """The model with the highest likelihood; "position" unless another is clearly better."""
        clear = [
            name
            for name, (mean, error) in self.difference.items()
            if mean > max(_SURE * error, _CLEAR * abs(self.log_likelihood["position"]))
        ]
        return max(clear, key=self.log_likelihood.__getitem__, default="position")

    @property
    def doubt(self) -> str:
        """Why the position-based model is wrong, in words; empty if it describes the log best."""
        if self.best == "position":
            return ""
        mean, error = self.difference[self.best]
        return (
            f"The {self.best} click model describes this log better than the position-based model: "
            f"the log-likelihood of an impression is higher by {mean:.4f} ± {1.96 * error:.4f}."
        )

    def table(self) -> ResultTable:
        """A table of all models."""
        rows = []
        for name, value in self.log_likelihood.items():
            mean, error = self.difference[name]
            change = "" if name == "position" else f"{mean:+.4f} ± {1.96 * error:.4f}"
            rows.append([Cell(name), Cell(f"{value:.4f}"), Cell(change)])
        notes = [
            f"Mean log-likelihood of {self.impressions:,} impressions that were held out, and the "
            f"difference to the position-based model with its 95 % interval.",
            f"{self.best} describes the log best.",
        ]
        return ResultTable("", ["click model", "log-likelihood", "difference"], rows, notes)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON."""
        return {
            "best": self.best,
            "impressions": self.impressions,
            "log_likelihood": dict(self.log_likelihood),
            "difference": {name: list(pair) for name, pair in self.difference.items()},
        }

    def __str__(self) -> str:
        return self.table().to_text()


class _Fit(NamedTuple):
    """The parameters of a model: by document, and by position."""

    relevance: Floats
    high: Floats  # P(click) of a relevant document; λ of sequential models
    low: Floats  # of an irrelevant one


def compare_click_models(
    log: ClickLog, *, rows: int = 100_000, random_state: int = 0
) -> ClickModelComparison:
    """Compare click models by the likelihood of clicks that were held out.

    Parameters
    ----------
    log : ClickLog
        The log. Queries need several impressions, because models estimate relevance by document.
    rows : int, default 100,000
        The number of rows from which a longer log is sampled, as whole queries.
    random_state : int, default 0
        The seed of the sample and of the impressions that are held out.

    Returns
    -------
    ClickModelComparison

    Raises
    ------
    InputError
        If too few impressions are of queries with several, or nothing was clicked.

    Examples
    --------
    >>> from twinrank import synthetic_web_search, simulate_clicks
    >>> data = synthetic_web_search(queries=20)
    >>> compare_click_models(simulate_clicks(data, model="cascade", impressions=5000)).best
    'cascade'
    """
    check_number("rows", rows, whole=True, least=1)
    log.check_rows("compare_click_models")
    generator = np.random.default_rng(random_state)
    log = _sampled(log, rows, generator)
    held = _held_out(log, generator)
    if held.sum() < _FEWEST:
        raise InputError(
            f"Click models need queries with several impressions, so that at least {_FEWEST} can "
            f"be held out; here there are {held.sum()}."
        )
    train, test = _Lists.of(log.select(~held)), _Lists.of(log.select(held))
    if not train.clicked.any():
        raise InputError("Click models need clicks.")
    likelihood = {}
    for name in CLICK_MODELS:
        if name in ("position", "trust"):
            predicted = _affine(_fit_affine(train, trust=name == "trust"), test)
        else:
            predicted = _sequential(_fit_sequential(train, stops=name == "cascade"), test)
        predicted = np.clip(predicted, _TINY, 1 - _TINY)
        each = np.where(test.clicked, np.log(predicted), np.log1p(-predicted))
        likelihood[name] = (each * test.shown).sum(axis=1)
    return ClickModelComparison(
        {name: float(own.mean()) for name, own in likelihood.items()},
        {name: _mean_difference(own - likelihood["position"], test.query)
         for name, own in likelihood.items()},
        test.query.size,
    )  # fmt: skip


def _mean_difference(values: Floats, query: Ints) -> tuple[float, float]:
    """The mean over impressions and its standard error, in which queries are clusters."""
    mean = float(values.mean())
    sums = np.bincount(query, values - mean)
    clustered = np.sqrt((sums**2).sum()) / values.size
    return mean, float(max(clustered, values.std() / np.sqrt(values.size)))


@dataclass(frozen=True, eq=False)
class _Lists:
    """Impressions as the rows of arrays, in the order in which users read them."""

    document: Ints
    position: Ints  # from 0
    clicked: Bools
    shown: Bools  # False in the places that fill a row
    query: Ints

    @classmethod
    def of(cls, log: ClickLog) -> "_Lists":
        order = np.lexsort((log.position, log.impression))
        row = log.impression[order]
        sizes = np.bincount(row, minlength=log.impressions)
        place = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        shape = (log.impressions, int(sizes.max()))

        def filled(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            array = np.zeros(shape, values.dtype)
            array[row, place] = values[order]
            return array

        shown = filled(np.ones(order.size, np.bool_))
        return cls(filled(log.document), filled(log.position - 1), filled(log.clicked), shown,
                   log.impression_query)  # fmt: skip

    def by_document(self, values: Any) -> Floats:
        """The sum of values over the displays of each document."""
        return summed(self.document[self.shown], np.asarray(values)[self.shown], self.documents)

    def by_position(self, values: Any) -> Floats:
        """The sum of values over the displays at each position."""
        return summed(self.position[self.shown], np.asarray(values)[self.shown], self.positions)

    @property
    def documents(self) -> int:
        return int(self.document.max()) + 1

    @property
    def positions(self) -> int:
        return int(self.position.max()) + 1


def _sampled(log: ClickLog, most: int, generator: np.random.Generator) -> ClickLog:
    if log.position.size <= most:
        return log
    rows = summed(log.query, np.ones(log.position.size), len(log.lists))
    order = generator.permutation(np.flatnonzero(rows))
    kept = order[np.cumsum(rows[order]) <= most]
    return log.select(np.isin(log.impression_query, kept if kept.size else order[:1]))


def _held_out(log: ClickLog, generator: np.random.Generator) -> Bools:
    """Impressions drawn at random, but never the only one of a query."""
    order = np.lexsort((generator.random(log.impressions), log.impression_query))
    query = log.impression_query[order]
    first = np.ones(query.size, np.bool_)
    first[1:] = query[1:] != query[:-1]
    held = np.zeros(log.impressions, np.bool_)
    held[order] = ~first & (generator.random(query.size) < _HELD_OUT)
    return held


def _posterior_mean(clicks: Floats, exposure: Floats) -> Floats:
    """Clicks / exposure of each document, with a prior at the mean of all."""
    mean = clicks.sum() / max(exposure.sum(), _TINY)
    relevance = (clicks + _PRIOR * mean) / (exposure + _PRIOR)
    return np.asarray(np.clip(relevance, _TINY, 1 - _TINY))


def _fit_affine(lists: _Lists, trust: bool) -> _Fit:
    """EM for P(click) = low_k + (high_k − low_k) · r_d; without trust, low is 0."""
    depth = np.arange(1, lists.positions + 1)
    high, low = 0.9 * depth**-0.5, (0.1 if trust else 0.0) / depth
    displays, at_position = lists.by_document(1.0 * lists.shown), lists.by_position(lists.shown)
    relevance = np.full(lists.documents, 0.3)
    for _ in range(_STEPS):
        r, h = relevance[lists.document], high[lists.position]
        p = np.clip(r * h + (1 - r) * low[lists.position], _TINY, 1 - _TINY)
        relevant = np.where(lists.clicked, r * h / p, r * (1 - h) / (1 - p))
        total = lists.by_position(relevant)
        high = lists.by_position(relevant * lists.clicked) / np.maximum(total, _TINY)
        if trust:
            rest = np.maximum(at_position - total, _TINY)
            low = lists.by_position((1 - relevant) * lists.clicked) / rest
        high, low = np.clip(high, _TINY, 1 - _TINY), np.clip(low, 0, 1 - _TINY)
        relevance = _posterior_mean(lists.by_document(relevant), displays)
    return _Fit(relevance, np.asarray(high, np.float64), np.asarray(low, np.float64))


def _fit_sequential(lists: _Lists, stops: bool) -> _Fit:
    """EM for users who read from the top; with `stops`, they leave after the first click."""
    place = np.arange(lists.clicked.shape[1])
    any_click: Bools = np.asarray(lists.clicked.any(axis=1))
    last = np.where(any_click, place.size - 1 - lists.clicked[:, ::-1].argmax(axis=1), -1)
    if stops:
        last = np.where(any_click, lists.clicked.argmax(axis=1), place.size)
        read = (place <= last[:, None]) * 1.0
        relevance = _posterior_mean(
            lists.by_document(lists.clicked * read), lists.by_document(read)
        )
        return _Fit(relevance, np.zeros(lists.positions), np.zeros(0))
    after: Bools = np.asarray(place > last[:, None])
    rows = np.flatnonzero(any_click)
    end = lists.position[rows, last[rows]]  # of the last click
    clicks, at_position = lists.by_document(lists.clicked), lists.by_position(lists.clicked)
    going_on = np.full(lists.positions, 0.5)
    relevance = _posterior_mean(clicks, lists.by_document(~after | ~any_click[:, None]))
    for _ in range(_STEPS):
        silent = np.where(after & lists.shown, np.log1p(-relevance[lists.document]), 0).sum(axis=1)
        stays = going_on[end] * np.exp(silent[rows])
        went_on = np.ones(any_click.size)
        went_on[rows] = stays / (stays + 1 - going_on[end])
        read = np.where(after, went_on[:, None], 1.0)
        relevance = _posterior_mean(clicks, lists.by_document(read))
        final = summed(end, 1 - went_on[rows], lists.positions)
        going_on = (at_position - final + 1) / (at_position + 2)
    return _Fit(relevance, going_on, np.zeros(0))


def _affine(fit: _Fit, lists: _Lists) -> Floats:
    high, low = _by_position(fit.high, lists), _by_position(fit.low, lists)
    return np.asarray(low + (high - low) * _by_document(fit, lists))


def _sequential(fit: _Fit, lists: _Lists) -> Floats:
    """P(click) of each document, given the clicks above it."""
    relevance, going_on = _by_document(fit, lists), _by_position(fit.high, lists)
    reads, predicted = np.ones(lists.query.size), np.zeros(lists.shown.shape)
    for place in range(lists.shown.shape[1]):
        r, clicked = relevance[:, place], lists.clicked[:, place]
        predicted[:, place] = reads * r
        reads = np.where(clicked, going_on[:, place], reads * (1 - r) / (1 - reads * r))
    return predicted


def _by_document(fit: _Fit, lists: _Lists) -> Floats:
    """Relevance at each place; the mean for documents that were not in the training part."""
    padded = np.append(fit.relevance, fit.relevance.mean())
    return padded[np.minimum(lists.document, fit.relevance.size)]


def _by_position(values: Floats, lists: _Lists) -> Floats:
    """A parameter at each place; the last one for positions beyond the training part."""
    return values[np.minimum(lists.position, values.size - 1)]


def warn_of_other_models(log: ClickLog) -> None:
    """Warn if another click model describes the log better than the position-based one."""
    try:
        comparison = compare_click_models(log, rows=_QUICK)
    except InputError:  # a short log or a sum, which cannot say it
        return
    if comparison.doubt:
        warn(
            DataWarning(
                f"{comparison.doubt} Estimates that assume position bias only may be wrong; "
                f"confirm them by an A/B test."
            )
        )
