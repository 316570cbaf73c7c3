"""Training data whose labels are the credits of clicks."""

from dataclasses import replace
from typing import Any

import numpy as np

from twinrank.clicks.click_credits import ESTIMATORS, CreditOptions, Credits, click_credits, lifted
from twinrank.clicks.click_log import ClickLog
from twinrank.core.lists import Lists
from twinrank.core.lists.row_weights import query_and_document_weights
from twinrank.data.dataset import Dataset
from twinrank.data.table import Table
from twinrank.support.errors import Argument, InputError, Parts
from twinrank.support.quantities import counted

CHOICES = (*ESTIMATORS, "two-tower")
AVERAGES = ("impressions", "queries")


def credit_dataset(
    log: ClickLog, propensities: Any, options: CreditOptions, average: str
) -> Dataset:
    """The queries of a log with credits as labels; see `ClickLog.to_dataset`."""
    if average not in AVERAGES:
        raise InputError(argument="average", value=average, choices=AVERAGES)
    data = log.data
    if data is None:
        raise InputError(
            "The log has no features to learn from. Pass the dataset with them as data to "
            "load_clicks or ClickLog.from_frame."
        )
    credits, note = estimated_credits(log, propensities, options)
    queries = np.flatnonzero(log.query_weights > 0)
    notes: list[Parts] = [[f"Credits ({options.estimator}): {note}."]]
    if credits.summary.unseen and not options.safe:
        unseen = counted(credits.summary.unseen, "document")
        notes.append([f"{unseen} without an impression {_were(credits.summary.unseen)} left "
                      f"out: clicks say nothing about them."])  # fmt: skip
    rows = np.flatnonzero(known_documents(log, credits, options))
    sizes = np.bincount(log.document_query[rows], minlength=len(log.lists))[queries]
    comments = data.comments
    weights = None if data.weights is None else data.weights[queries]
    row_weights = None if data.row_weights is None else data.row_weights[rows]
    if row_weights is not None:  # of the documents that were shown
        weights = query_and_document_weights(row_weights, Lists.from_sizes(sizes))[0]
    if average == "impressions":
        counts = log.query_weights[queries] / log.query_weights[queries].mean()
        weights = counts if weights is None else counts * weights
        row_weights = None if row_weights is None else row_weights * np.repeat(counts, sizes)
    table = Table(
        X=data.X[rows],
        y=lifted(log, credits)[0][rows].astype(np.float32),
        lists=Lists.from_sizes(sizes),
        query_ids=data.query_ids[queries],
        weights=weights,
        row_weights=row_weights,
        comments=None if comments is None else comments.take(rows),
        feature_names=data.feature_names,
        notes=tuple(notes),
        categories=data.categories,
        from_clicks=True,
    )
    return Dataset(table, data.name)


def known_documents(log: ClickLog, credits: Credits, options: CreditOptions) -> Any:
    """Which documents have a credit: with `safe` all of the queries in the log."""
    return log.query_weights[log.document_query] > 0 if options.safe else credits.shown


def estimated_credits(
    log: ClickLog, propensities: Any, options: CreditOptions
) -> tuple[Credits, str]:
    """The credits by any estimator, and what the user should know about them."""
    if options.estimator not in CHOICES:
        raise InputError(argument="estimator", value=options.estimator, choices=CHOICES)
    if options.tower != "trees" and options.estimator != "two-tower":
        raise InputError("tower is for ", Argument("estimator", "two-tower"), "; leave it out.")
    if options.estimator != "two-tower":
        credits = click_credits(log, propensities, options)
        return credits, str(credits.summary)
    given = {"safe": options.safe or None, "exposure": options.exposure, "clip": options.clip}
    for name in (name for name, value in given.items() if value is not None):
        raise InputError(f"{name} is for the estimators ips and dr; two-tower has no exposure.")
    from twinrank.clicks.two_tower import fit_two_tower

    rates = click_credits(log, None, CreditOptions("naive", relevance=options.relevance))
    model = fit_two_tower(log, options.tower)
    odds = ", ".join(f"{value:.3f}" for value in np.exp(model.bias[:10]))
    clicks = counted(rates.summary.clicks, "click")
    return replace(rates, values=model.relevance), f"{clicks}; odds of a click by position: {odds}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
