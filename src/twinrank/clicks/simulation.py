"""Clicks on graded data by simulated users.

`r` is the probability of a click on a document that the user sees; see `click_probability`.

| model | users |
|---|---|
| position | see position k with probability p = (1/k)^eta, and click with probability r |
| trust | see it likewise, and then click with probability r + (1 − r) · 0.5 · p |
| cascade | read from the top until the first click |
| dependent | read from the top, and go on after a click at k with probability (1/(k + 1))^eta |
"""

from typing import Any

import numpy as np

from twinrank.clicks.click_log import Bools, ClickLog, Floats, Ints
from twinrank.clicks.scored_documents import scores_of_documents
from twinrank.data.dataset import Dataset
from twinrank.support.errors import InputError

MODELS = ("position", "trust", "cascade", "dependent")
TRUST = 0.5
"""The probability that a user who sees an irrelevant document at the top clicks from trust."""


def simulate_clicks(
    data: Dataset,
    *,
    logger: Any = "random",
    model: str = "position",
    eta: float = 1.0,
    noise: float = 0.1,
    impressions: int = 10_000,
    cutoff: int | None = 10,
    temperature: float = 0.0,
    randomised: float = 0.0,
    random_state: int = 0,
) -> ClickLog:
    """Simulate a log of clicks on graded data.

    Each impression shows a query, drawn uniformly, in the order of the logger. The user sees
    position k with probability (1/k)^eta, and clicks on a document that is seen with probability
    noise + (1 − noise) · (2ʸ − 1) / (2ᴸ − 1), where y is its label and L the highest label.

    Parameters
    ----------
    data : Dataset
        Queries with features and graded labels.
    logger : "random", feature, array or ranker, default "random"
        What orders the documents: chance; a feature by its name or number, from 1; one score per
        document; or a fitted ranker.
    model : {"position", "trust", "cascade", "dependent"}, default "position"
        How users click. "position" is the model above. With "trust", users also click irrelevant
        documents because they are at the top: the probability of a click on a document that is
        seen rises from r to r + (1 − r) · 0.5 · (1/k)^eta. With "cascade", users read from the top
        until the first click; with "dependent", they go on after a click at position k with
        probability (1/(k + 1))^eta.
    eta : float, default 1.0
        The strength of position bias; 0 means that users see all positions. "cascade" has none.
    noise : float, default 0.1
        The probability that a user clicks on an irrelevant document that is seen.
    impressions : int, default 10,000
        The number of impressions.
    cutoff : int, optional, default 10
        The number of documents that are shown; None shows all.
    temperature : float, default 0.0
        The scale of Gumbel noise on the logger's scores, in standard deviations within the query.
        Documents then change positions, as they do if the ranker or the index changes.
    randomised : float, default 0.0
        The share of impressions in random order, which the log marks.
    random_state : int, default 0
        The seed.

    Returns
    -------
    ClickLog

    Raises
    ------
    InputError
        If an argument is out of range.

    Examples
    --------
    >>> from twinrank import synthetic_web_search
    >>> data = synthetic_web_search(queries=5)
    >>> simulate_clicks(data, logger="body_bm25", impressions=1000, randomised=0.1)
    ClickLog(1,000 impressions, 5 queries, 10,000 rows, 717 clicks)
    """
    if model not in MODELS:
        raise InputError(argument="model", value=model, choices=MODELS)
    _check(eta=(eta, np.inf), noise=(noise, 1), temperature=(temperature, np.inf))
    _check(randomised=(randomised, 1))
    if impressions < 1 or (cutoff is not None and cutoff < 1):
        raise InputError("impressions and cutoff must be at least 1.")
    generator = np.random.default_rng(random_state)
    scores = _standardised(logger, data)
    filled = np.flatnonzero(data.lists.sizes > 0)
    queries = filled[np.sort(generator.integers(0, filled.size, impressions))]
    random_order = generator.random(impressions) < randomised
    if isinstance(logger, str) and logger == "random":
        random_order[:] = True
    depth = data.lists.sizes if cutoff is None else np.minimum(data.lists.sizes, cutoff)
    shown, counts = [], np.bincount(queries, minlength=data.queries)
    starts = np.cumsum(counts) - counts
    for query in np.flatnonzero(counts).tolist():
        rows = slice(*data.lists.offsets[query : query + 2].tolist())
        own = slice(starts[query], starts[query] + counts[query])
        keys = np.tile(scores[rows], (counts[query], 1))
        if temperature:
            keys += temperature * generator.gumbel(size=keys.shape)
        chance = random_order[own]
        keys[chance] = generator.random((int(chance.sum()), keys.shape[1]))
        order = np.argsort(-keys, axis=1, kind="stable")[:, : depth[query]]
        shown.append((order + rows.start).ravel())
    document = np.concatenate(shown)
    sizes = depth[queries]
    impression = np.repeat(np.arange(impressions), sizes)
    position = np.arange(document.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    relevance = click_probability(data, noise)[document]
    return ClickLog(
        impression=impression,
        document=document,
        position=position,
        clicked=_clicks(model, relevance, position, impression, eta, generator),
        lists=data.lists,
        query_ids=data.query_ids,
        docids=data.docids_or_numbers,
        weight=np.ones(impressions),
        randomised=random_order if random_order.any() else None,
        data=data,
    )


def _clicks(
    model: str,
    relevance: Floats,
    position: Ints,
    impression: Ints,
    eta: float,
    generator: np.random.Generator,
) -> Bools:
    """Draw the clicks of users; rows are sorted by impression and position."""
    seen = examination(position, eta)
    chance = generator.random(position.size)
    if model == "position":
        return chance < relevance * seen
    if model == "trust":
        return chance < seen * (relevance + (1 - relevance) * TRUST * seen)
    likes = chance < relevance
    stops = likes
    if model == "dependent":
        stops = likes & (generator.random(position.size) >= examination(position + 1, eta))
    before: Ints = np.cumsum(stops) - stops  # of this row, from the first impression on
    return np.asarray(likes & (before == before[np.searchsorted(impression, impression)]))


def examination(position: Any, eta: float) -> Floats:
    """The probability that a user sees a position: (1/k)^eta."""
    return np.asarray(position, np.float64) ** -eta


def click_probability(data: Dataset, noise: float) -> Floats:
    """The probability of a click on each document, if the user sees it."""
    gains = np.exp2(np.maximum(data.y, 0).astype(np.float64)) - 1
    return np.asarray(noise + (1 - noise) * gains / max(gains.max(initial=0), 1))


def _standardised(logger: Any, data: Dataset) -> Floats:
    """The logger's scores, with mean 0 and variance 1 in each query."""
    if isinstance(logger, str) and logger == "random":
        return np.zeros(data.documents)
    if isinstance(logger, str | int) and not isinstance(logger, bool):
        scores = _feature(logger, data)
    else:
        scores = scores_of_documents(logger, data, "logger")
    lists = data.lists
    sizes = np.maximum(lists.sizes, 1)
    centred = scores - lists.spread(lists.sum(scores) / sizes)
    spread = np.sqrt(lists.sum(centred**2) / sizes)
    return np.asarray(centred / lists.spread(np.where(spread > 0, spread, 1)))


def _feature(logger: str | int, data: Dataset) -> Floats:
    names = data.feature_names
    if isinstance(logger, str) and names is not None and logger in names:
        return data.X[:, names.index(logger)].astype(np.float64)
    if str(logger).isdecimal() and 1 <= int(logger) <= data.features:
        return data.X[:, int(logger) - 1].astype(np.float64)
    if names is None or str(logger).isdecimal():
        raise InputError(f"Feature {logger!r} is unknown; the data has {data.features} features.")
    raise InputError(argument="logger", value=logger, choices=["random", *names])


def _check(**ranges: tuple[float, float]) -> None:
    for name, (value, highest) in ranges.items():
        if not 0 <= value <= highest:
            limit = "at least 0" if highest == np.inf else f"between 0 and {highest:g}"
            raise InputError(f"{name} must be {limit}, not {value!r}.")
